// From what agents report and what files declare to one topology, in this order: names that files declare, then what
// agents see, then what files say of adapters and links. So a link that was seen is there before the file's, and the
// file's either agrees with it or is a difference.
#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>

#include "base/text.h"
#include "fabric/reported.h"
#include "fabric/topology.h"
#include "fabric/topology_file.h"
#include "model/ip_address.h"

namespace lockstep::fabric {
namespace {

constexpr size_t kNearestMax = 4;  // adapters that a GPU without one of its own may use

}  // namespace

class TopologyBuilder {
 public:
  TopologyBuilder(const ReportedHosts& reported, const Declared& declared)
      : reported_(reported), declared_(declared), built_(std::make_shared<Topology>()) {}

  std::shared_ptr<const Topology> build() {
    declare_names();
    for (const ReportedHost& host : reported_.hosts)
      if (host.name != kNoText) add_reported(host);
    declare_hosts();
    declare_links();
    find_undeclared();
    declare_nvlink();
    add_mounts();
    infer_tiers();
    declare_forwarding();
    index();
    return built_;
  }

 private:
  Symbol symbol(std::string_view text) { return built_->texts_.intern(text); }
  // A text of the reports; most are asked for again and again.
  Symbol translated(Symbol theirs) {
    if (theirs >= translated_.size()) translated_.resize(theirs + 1, kNone);
    if (translated_[theirs] == kNone) translated_[theirs] = symbol(reported_.texts[theirs]);
    return translated_[theirs];
  }

  static uint64_t key_of(NodeIndex parent, Symbol name) {
    return (static_cast<uint64_t>(parent == kNone ? 0 : parent + 1) << 32) | name;
  }
  NodeIndex find(NodeIndex parent, Symbol name) const {
    const auto found = by_key_.find(key_of(parent, name));
    return found == by_key_.end() ? kNone : found->second;
  }
  NodeIndex add(NodeKind kind, NodeIndex parent, Symbol name, uint8_t known) {
    const auto [entry, added] = by_key_.emplace(key_of(parent, name), static_cast<NodeIndex>(built_->nodes_.size()));
    if (added)
      built_->nodes_.push_back({.name = name, .parent = parent, .kind = kind, .known = known});
    else
      built_->nodes_[entry->second].known |= known;
    return entry->second;
  }
  // A host or switch by the name that somebody uses for it: files and LLDP often differ in the domain.
  NodeIndex find_named(std::string_view name) {
    if (const NodeIndex exact = find(kNone, symbol(name)); exact != kNone) return exact;
    const auto found = by_short_name_.find(std::string(short_name_of(name)));
    return found == by_short_name_.end() ? kNone : found->second;
  }

  void declare_names() {
    for (const DeclaredNode& node : declared_.nodes) {
      const NodeIndex added = add(node.kind, kNone, symbol(node.name), kByFile);
      if (!node.address.empty()) {
        built_->nodes_[added].address = symbol(node.address);
        by_address_.emplace(built_->nodes_[added].address, added);
      }
      // Not by a short name that two have.
      const auto [entry, is_new] = by_short_name_.emplace(std::string(short_name_of(node.name)), added);
      if (!is_new && entry->second != added) entry->second = kNone;
    }
  }

  LinkIndex add_link(Link link) {
    if (link.a == link.b) return kNone;
    built_->links_.push_back(link);
    return static_cast<LinkIndex>(built_->links_.size() - 1);
  }

  void add_reported(const ReportedHost& reported) {
    const std::string_view name = reported_.texts[reported.name];
    NodeIndex host = find_named(name);
    if (host == kNone)
      host = add(NodeKind::kHost, kNone, symbol(name), kByAgent);
    else
      built_->nodes_[host].known |= kByAgent;
    if (built_->nodes_[host].kind != NodeKind::kHost) return;  // a file says it is a switch: it has no GPUs
    any_reported_ = true;
    size_t joined = 0;
    for (const ReportedGpu& gpu : reported.gpus) {
      const NodeIndex node = add(NodeKind::kGpu, host, translated(gpu.uuid), kByAgent);
      built_->nodes_[node].index = gpu.index;
      built_->nodes_[node].more = translated(gpu.model);
      if (gpu.index >= 0) gpus_by_index_[key_of(host, static_cast<uint32_t>(gpu.index))] = node;
      joined += gpu.links_up > 0 ? 1 : 0;
    }
    if (joined > 1) {
      const NodeIndex domain = add(NodeKind::kNvlink, host, symbol("nvlink"), kByAgent);
      for (const ReportedGpu& gpu : reported.gpus) {
        if (gpu.links_up <= 0) continue;
        add_link({.a = find(host, translated(gpu.uuid)), .b = domain, .kind = LinkKind::kNvlink, .known = kByAgent});
      }
    }
    add_reported_nics(reported, host);
  }

  void add_reported_nics(const ReportedHost& reported, NodeIndex host) {
    std::vector<const ReportedNic*> nics;
    for (const ReportedNic& nic : reported.nics) nics.push_back(&nic);
    // Rails: adapters of GPUs in the order of their GPUs; where none has a GPU, all in the order of the bus.
    const bool any_of_gpu = std::any_of(nics.begin(), nics.end(), [](const auto* nic) { return nic->gpu != kNoText; });
    auto place = [&](const ReportedNic& nic) {
      const auto gpu = std::find_if(reported.gpus.begin(), reported.gpus.end(),
                                    [&](const ReportedGpu& one) { return one.uuid == nic.gpu; });
      return std::pair(gpu == reported.gpus.end() ? INT16_MAX : gpu->index, reported_.texts[nic.pci]);
    };
    std::stable_sort(nics.begin(), nics.end(),
                     [&](const ReportedNic* a, const ReportedNic* b) { return place(*a) < place(*b); });
    int16_t rail = 0;
    for (const ReportedNic* nic : nics) {
      const NodeIndex node = add(NodeKind::kNic, host, translated(nic->device), kByAgent);
      built_->nodes_[node].more = translated(nic->netdev);
      built_->nodes_[node].address = translated(nic->address);
      if (!any_of_gpu || nic->gpu != kNoText) built_->nodes_[node].index = rail++;
      if (nic->gpu != kNoText) {
        const NodeIndex gpu = find(host, translated(nic->gpu));
        if (gpu != kNone)
          add_link({.a = gpu, .b = node, .kind = LinkKind::kPcie, .known = kByAgent, .distance = nic->distance});
      }
      if (nic->leaf == kNoText) continue;
      const std::string_view leaf_name = reported_.texts[nic->leaf];
      NodeIndex leaf = find_named(leaf_name);
      if (leaf == kNone) leaf = add(NodeKind::kLeaf, kNone, symbol(leaf_name), kByLldp);
      built_->nodes_[leaf].known |= kByLldp;
      seen_uplink_[node] = add_link(
          {.a = node, .b = leaf, .port_b = translated(nic->leaf_port), .kind = LinkKind::kNetwork, .known = kByLldp});
    }
    for (const ReportedGpu& gpu : reported.gpus) add_nearest(reported, host, gpu);
  }

  // A GPU that no adapter is for uses one of the nearest.
  void add_nearest(const ReportedHost& reported, NodeIndex host, const ReportedGpu& gpu) {
    const bool has_own =
        std::any_of(reported.nics.begin(), reported.nics.end(), [&](const auto& nic) { return nic.gpu == gpu.uuid; });
    if (has_own) return;
    uint8_t nearest = UINT8_MAX;
    for (const ReportedDistance& one : reported.distances)
      if (one.gpu == gpu.uuid) nearest = std::min(nearest, one.path);
    size_t added = 0;
    for (const ReportedDistance& one : reported.distances) {
      if (one.gpu != gpu.uuid || one.path != nearest || added == kNearestMax) continue;
      const NodeIndex nic = find(host, translated(one.device));
      if (nic == kNone) continue;
      ++added;
      add_link({.a = find(host, translated(gpu.uuid)),
                .b = nic,
                .kind = LinkKind::kPcie,
                .known = kByAgent,
                .distance = nearest});
    }
  }

  // The GPU of that index; one that nobody reports is made from the file.
  NodeIndex declared_gpu(NodeIndex host, int32_t index) {
    NodeIndex& known = gpus_by_index_.try_emplace(key_of(host, static_cast<uint32_t>(index)), kNone).first->second;
    if (known == kNone) {
      known = static_cast<NodeIndex>(built_->nodes_.size());
      built_->nodes_.push_back({.name = kNoText,
                                .parent = host,
                                .index = static_cast<int16_t>(index),
                                .kind = NodeKind::kGpu,
                                .known = kByFile});
    }
    built_->nodes_[known].known |= kByFile;
    return known;
  }

  NodeIndex declared_nic(NodeIndex host, std::string_view port) {
    const Symbol name = symbol(port);
    if (const NodeIndex found = find(host, name); found != kNone) {
      built_->nodes_[found].known |= kByFile;
      return found;
    }
    if (nics_by_netdev_.empty() && !built_->nodes_.empty()) {
      for (NodeIndex i = 0; i < built_->nodes_.size(); ++i) {
        const Node& one = built_->nodes_[i];
        if (one.kind == NodeKind::kNic && one.more != kNoText) nics_by_netdev_.emplace(key_of(one.parent, one.more), i);
      }
    }
    if (const auto found = nics_by_netdev_.find(key_of(host, name)); found != nics_by_netdev_.end()) {
      built_->nodes_[found->second].known |= kByFile;
      return found->second;
    }
    return add(NodeKind::kNic, host, name, kByFile);
  }

  void declare_hosts() {
    std::unordered_map<NodeIndex, std::vector<const DeclaredNic*>> nics;
    for (const DeclaredNic& nic : declared_.nics) {
      const NodeIndex host = find_named(nic.nic.node);
      if (host != kNone && built_->nodes_[host].kind == NodeKind::kHost) nics[host].push_back(&nic);
    }
    for (const DeclaredNode& node : declared_.nodes) {
      if (node.kind != NodeKind::kHost) continue;
      const NodeIndex host = find(kNone, symbol(node.name));
      std::vector<NodeIndex> gpus;
      for (int32_t i = 0; i < node.gpus; ++i) gpus.push_back(declared_gpu(host, i));
      if (node.nvlink && find(host, symbol("nvlink")) == kNone && gpus.size() > 1) {
        const NodeIndex domain = add(NodeKind::kNvlink, host, symbol("nvlink"), kByFile);
        for (const NodeIndex gpu : gpus) add_link({.a = gpu, .b = domain, .kind = LinkKind::kNvlink, .known = kByFile});
      }
      const auto of_host = nics.find(host);
      if (of_host == nics.end()) continue;
      for (const DeclaredNic* nic : of_host->second) declare_nic(host, *nic, gpus);
    }
  }

  void declare_nic(NodeIndex host, const DeclaredNic& nic, const std::vector<NodeIndex>& gpus) {
    const NodeIndex node = declared_nic(host, nic.nic.port);
    const bool is_reported = (built_->nodes_[node].known & kByAgent) != 0;
    if (nic.rail >= 0) built_->nodes_[node].index = static_cast<int16_t>(nic.rail);
    if (!nic.address.empty()) built_->nodes_[node].address = symbol(nic.address);
    if (nic.gpu < 0 || is_reported || nic.gpu >= static_cast<int32_t>(gpus.size())) return;
    if (nic.rail < 0) built_->nodes_[node].index = static_cast<int16_t>(nic.gpu);
    add_link({.a = gpus[static_cast<size_t>(nic.gpu)], .b = node, .kind = LinkKind::kPcie, .known = kByFile});
  }

  struct End {
    NodeIndex node = kNone;
    Symbol port = kNoText;
  };
  using Cable = std::array<uint32_t, 4>;  // both nodes, both ports
  struct CableHash {
    size_t operator()(const Cable& cable) const {
      uint64_t hash = 0;
      for (const uint32_t part : cable) hash = (hash ^ part) * 0x9E3779B97F4A7C15ull;
      return hash ^ hash >> 32;
    }
  };
  End end_of(const Endpoint& endpoint) {
    const NodeIndex node = find_named(endpoint.node);
    if (node == kNone) return {};
    if (built_->nodes_[node].kind == NodeKind::kHost) return {declared_nic(node, endpoint.port), kNoText};
    return {node, symbol(endpoint.port)};
  }

  void declare_links() {
    for (const DeclaredLink& link : declared_.links) {
      End a = end_of(link.a), b = end_of(link.b);
      if (a.node == kNone || b.node == kNone || a.node == b.node) continue;
      const bool a_is_nic = built_->nodes_[a.node].kind == NodeKind::kNic;
      const bool b_is_nic = built_->nodes_[b.node].kind == NodeKind::kNic;
      if (b_is_nic && !a_is_nic) std::swap(a, b);
      if (a_is_nic || b_is_nic) {
        any_nic_declared_ = true;
        declared_uplinks_.insert(a.node);
        if (compare(a.node, b)) continue;
      }
      if (b.node < a.node && !a_is_nic && !b_is_nic) std::swap(a, b);  // both files of a cable say the same
      if (!declared_links_.insert({a.node, b.node, a.port, b.port}).second) continue;
      add_link({.a = a.node,
                .b = b.node,
                .port_a = a.port,
                .port_b = b.port,
                .kind = LinkKind::kNetwork,
                .known = kByFile,
                .gbit_s = static_cast<float>(link.gbit_s)});
    }
  }

  void differ(Difference::Kind kind, NodeIndex subject, std::string expected, std::string seen) {
    if (built_->differences_.size() == Topology::kDifferencesMax) {
      ++built_->differences_left_out_;
      return;
    }
    built_->differences_.push_back({kind, built_->name(subject), std::move(expected), std::move(seen)});
  }
  std::string end_text(NodeIndex node, Symbol port) const {
    const std::string name = built_->name(node);
    return port == kNoText ? name : name + ":" + std::string(built_->text(port));
  }

  // Whether the adapter's link was seen, so that the file's is not needed.
  bool compare(NodeIndex nic, const End& declared) {
    const auto seen = seen_uplink_.find(nic);
    if (seen == seen_uplink_.end()) {
      if (any_reported_ && (built_->nodes_[nic].known & kByAgent) == 0)
        differ(Difference::Kind::kNotSeen, nic, end_text(declared.node, declared.port), "");
      return false;
    }
    Link& link = built_->links_[seen->second];
    if (link.b == declared.node && (link.port_b == declared.port || declared.port == kNoText))
      link.known |= kByFile;
    else
      differ(Difference::Kind::kOtherPort, nic, end_text(declared.node, declared.port), end_text(link.b, link.port_b));
    return true;
  }

  void find_undeclared() {
    if (!any_nic_declared_) return;
    std::vector<std::pair<NodeIndex, LinkIndex>> seen(seen_uplink_.begin(), seen_uplink_.end());
    std::sort(seen.begin(), seen.end());
    for (const auto& [nic, link] : seen) {
      if (declared_uplinks_.contains(nic)) continue;
      differ(Difference::Kind::kNotDeclared, nic, "", end_text(built_->links_[link].b, built_->links_[link].port_b));
    }
  }

  // A domain over several hosts takes the place of each host's own.
  void declare_nvlink() {
    std::unordered_map<NodeIndex, NodeIndex> domain_of_host;
    for (const DeclaredNvlink& domain : declared_.nvlink_domains) {
      const NodeIndex node = add(NodeKind::kNvlink, kNone, symbol(domain.name), kByFile);
      for (const std::string& host : domain.hosts)
        if (const NodeIndex found = find_named(host); found != kNone) domain_of_host[found] = node;
    }
    if (domain_of_host.empty()) return;
    std::erase_if(built_->links_, [&](const Link& link) {
      return link.kind == LinkKind::kNvlink && domain_of_host.contains(built_->nodes_[link.a].parent);
    });
    for (NodeIndex i = 0; i < built_->nodes_.size(); ++i) {
      if (built_->nodes_[i].kind != NodeKind::kGpu) continue;
      const auto domain = domain_of_host.find(built_->nodes_[i].parent);
      if (domain != domain_of_host.end())
        add_link({.a = i, .b = domain->second, .kind = LinkKind::kNvlink, .known = kByFile});
    }
  }

  // A server by its name, or by the address that a file has for it.
  NodeIndex storage_of(std::string_view server) {
    if (const NodeIndex found = find_named(server); found != kNone) return found;
    if (const auto found = by_address_.find(symbol(server)); found != by_address_.end()) return found->second;
    const NodeIndex added = add(NodeKind::kStorage, kNone, symbol(server), kByAgent);
    if (parse_ip(server)) built_->nodes_[added].address = symbol(server);
    return added;
  }

  void add_mounts() {
    for (const ReportedHost& reported : reported_.hosts) {
      if (reported.mounts.empty()) continue;
      const NodeIndex host = find_named(reported_.texts[reported.name]);
      if (host == kNone || built_->nodes_[host].kind != NodeKind::kHost) continue;
      for (const ReportedMount& mount : reported.mounts) {
        const NodeIndex server = storage_of(reported_.texts[mount.server]);
        built_->nodes_[server].known |= kByAgent;
        add_link({.a = host,
                  .b = server,
                  .port_b = translated(mount.exported),
                  .kind = LinkKind::kMount,
                  .known = kByAgent});
      }
    }
  }

  // A switch of which nobody said what it is: a leaf where adapters hang on it, a spine next to leaves.
  void infer_tiers() {
    std::vector<Node>& nodes = built_->nodes_;
    for (const Link& link : built_->links_) {
      if (link.kind != LinkKind::kNetwork) continue;
      for (const auto& [from, to] : {std::pair(link.a, link.b), std::pair(link.b, link.a)})
        if (nodes[from].kind == NodeKind::kNic && nodes[to].kind == NodeKind::kSwitch) nodes[to].kind = NodeKind::kLeaf;
    }
    for (const Link& link : built_->links_) {
      if (link.kind != LinkKind::kNetwork) continue;
      for (const auto& [from, to] : {std::pair(link.a, link.b), std::pair(link.b, link.a)})
        if (nodes[from].kind == NodeKind::kLeaf && nodes[to].kind == NodeKind::kSwitch)
          nodes[to].kind = NodeKind::kSpine;
    }
  }

  void declare_forwarding() {
    for (const auto& [name, ports] : declared_.forwarding)
      if (const NodeIndex node = find_named(name); node != kNone) built_->forwarding_.push_back({node, ports});
    std::sort(built_->forwarding_.begin(), built_->forwarding_.end(),
              [](const ForwardingTable& a, const ForwardingTable& b) { return a.at < b.at; });
    for (const auto& [endpoint, lid] : declared_.lids) {
      const NodeIndex host = find_named(endpoint.node);
      if (host == kNone || built_->nodes_[host].kind != NodeKind::kHost) continue;
      built_->lids_.emplace_back(declared_nic(host, endpoint.port), lid);
    }
    std::sort(built_->lids_.begin(), built_->lids_.end());
  }

  template <typename Items>
  static void by_node(size_t nodes, const Items& items, std::vector<uint32_t>& begin, std::vector<uint32_t>& list) {
    begin.assign(nodes + 1, 0);
    for (const auto& [node, item] : items) ++begin[node + 1];
    for (size_t i = 0; i < nodes; ++i) begin[i + 1] += begin[i];
    list.resize(begin[nodes]);
    std::vector<uint32_t> at(begin.begin(), begin.end() - 1);
    for (const auto& [node, item] : items) list[at[node]++] = item;
  }

  void index() {
    Topology& built = *built_;
    built.nodes_.shrink_to_fit();
    built.links_.shrink_to_fit();
    std::vector<std::pair<uint32_t, uint32_t>> pairs;
    pairs.reserve(2 * built.links_.size());
    for (LinkIndex i = 0; i < built.links_.size(); ++i) {
      pairs.emplace_back(built.links_[i].a, i);
      pairs.emplace_back(built.links_[i].b, i);
    }
    by_node(built.nodes_.size(), pairs, built.links_begin_, built.links_by_node_);
    pairs.clear();
    for (NodeIndex i = 0; i < built.nodes_.size(); ++i) {
      const Node& node = built.nodes_[i];
      ++built.counts_[static_cast<size_t>(node.kind)];
      if (node.parent != kNone) pairs.emplace_back(node.parent, i);
      if (node.parent == kNone || (node.kind == NodeKind::kGpu && node.name != kNoText)) built.by_name_.push_back(i);
    }
    by_node(built.nodes_.size(), pairs, built.children_begin_, built.children_by_node_);
    std::sort(built.by_name_.begin(), built.by_name_.end(), [&](NodeIndex a, NodeIndex b) {
      return built.text(built.nodes_[a].name) < built.text(built.nodes_[b].name);
    });
    built.by_name_.shrink_to_fit();
    built.texts_.seal();
  }

  const ReportedHosts& reported_;
  const Declared& declared_;
  const std::shared_ptr<Topology> built_;
  std::vector<Symbol> translated_;
  std::unordered_map<uint64_t, NodeIndex> by_key_;
  std::unordered_map<std::string, NodeIndex> by_short_name_;
  std::unordered_map<uint64_t, NodeIndex> nics_by_netdev_;
  std::unordered_map<Symbol, NodeIndex> by_address_;  // of storage
  std::unordered_map<NodeIndex, LinkIndex> seen_uplink_;
  std::unordered_set<NodeIndex> declared_uplinks_;
  std::unordered_set<Cable, CableHash> declared_links_;
  std::unordered_map<uint64_t, NodeIndex> gpus_by_index_;  // of hosts, by key_of(host, index)
  bool any_reported_ = false, any_nic_declared_ = false;
};

std::shared_ptr<const Topology> build_topology(const ReportedHosts& reported, const Declared& declared) {
  return TopologyBuilder(reported, declared).build();
}

}  // namespace lockstep::fabric
