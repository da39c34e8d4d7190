#include "fabric/graph.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/text.h"
#include "fabric/ranks_at.h"

namespace lockstep::fabric {
namespace {

constexpr const char* kWaitsFor = "waits-for";
constexpr size_t kVersionEndsMax = 1'000;

// "leaf-1:Ethernet49": the link on that port.
LinkIndex link_at_port(const Topology& topology, std::string_view name) {
  for (size_t colon = name.find(':'); colon != std::string_view::npos; colon = name.find(':', colon + 1)) {
    const std::optional<NodeIndex> node = topology.find(name.substr(0, colon));
    if (!node || !is_switch(topology.nodes()[*node].kind)) continue;
    for (const LinkIndex link : topology.links_of(*node)) {
      const Link& one = topology.links()[link];
      if (topology.text(one.a == *node ? one.port_a : one.port_b) == name.substr(colon + 1)) return link;
    }
  }
  return kNone;
}

struct Component {
  NodeIndex node = kNone;
  LinkIndex link = kNone;
};

Result<Component> component_of(const Topology& topology, std::string_view text) {
  std::string_view name = text;
  if (const size_t colon = text.find(':'); colon != std::string_view::npos) {
    const std::string_view kind = text.substr(0, colon);
    if (node_kind_of(kind) || kind == "link") name = text.substr(colon + 1);
    // As link_name() writes it: its other port names it too.
    if (const size_t ports = name.rfind(" - "); kind == "link" && ports != std::string_view::npos)
      name = name.substr(ports + 3);
  }
  if (const std::optional<NodeIndex> node = topology.find(name)) return Component{*node, kNone};
  if (const LinkIndex link = link_at_port(topology, name); link != kNone) return Component{kNone, link};
  const std::optional<std::string> meant = did_you_mean(name, topology.names_like(name));
  return Error{format("no component \"%s\"%s", as_one_line(text.substr(0, 100)).c_str(),
                      meant ? (". Did you mean " + *meant + "?").c_str() : ""),
               ErrorCode::kNotFound};
}

std::string link_name(const Topology& topology, LinkIndex link) {
  const Link& one = topology.links()[link];
  return topology.port_name(link, one.a) + " - " + topology.port_name(link, one.b);
}

std::string version_name(const Change& change) {
  return change.what + " " + (change.after.empty() ? "gone" : change.after);
}

// The waits of one job, by who waited and by whom they waited for; the longest first.
struct JobWaits {
  std::vector<RankWait> all;
  std::unordered_map<Rank, std::vector<uint32_t>> by_waiter, by_awaited;
  std::unordered_map<Rank, double> caused_s;

  explicit JobWaits(std::vector<RankWait> waits) : all(std::move(waits)) {
    for (uint32_t i = 0; i < all.size(); ++i) {
      by_waiter[all[i].waiter].push_back(i);
      by_awaited[all[i].awaited].push_back(i);
      caused_s[all[i].awaited] += all[i].seconds;
    }
  }
};

class GraphWalk {
 public:
  GraphWalk(const Topology& topology, const JobPlaces& places, const Troubles& troubles, const GraphQuestion& question,
            const GraphHistory& history)
      : topology_(topology),
        troubles_(troubles),
        question_(question),
        history_(history),
        ranks_(topology, places, question.at_unix_ns) {
    for (uint32_t i = 0; i < ranks_.ranks.size(); ++i)
      if (ranks_.ranks[i].gpu != kNone) ranks_of_gpu_.emplace(ranks_.ranks[i].gpu, i);
    for (uint32_t i = 0; i < history_.changes.size(); ++i) {
      const Change& change = history_.changes[i];
      changes_of_[change.component].push_back(i);
      const auto [version, is_new] =
          version_of_.try_emplace(version_name(change), static_cast<uint32_t>(versions_.size()));
      if (is_new) versions_.emplace_back();
      versions_[version->second].push_back(i);
    }
  }

  Result<Graph> walk() {
    LOCKSTEP_TRY(begin());
    for (size_t at = 0; at < graph_.nodes.size(); ++at) {
      if (graph_.nodes[at].depth >= question_.depth) continue;
      grow(at);
    }
    return std::move(graph_);
  }

 private:
  enum class What : uint8_t { kNode, kJob, kRank, kLink, kVersion };
  struct Key {
    What what = What::kNode;
    uint32_t index = 0;
    bool operator<(const Key& other) const { return what != other.what ? what < other.what : index < other.index; }
  };
  struct Neighbour {
    Key key;
    const char* kind = "";
    bool outwards = true;  // the edge leads from the node to the neighbour
    double weight = 1;
    std::string label, known;
    int64_t at_unix_ns = 0;
    double order = 0;  // the most first; then by weight
    std::string id;
    bool is_troubled = false, is_done = false;
  };

  std::string name_of(Key key) const {
    switch (key.what) {
      case What::kNode:
        return topology_.name(key.index);
      case What::kJob:
        return ranks_.jobs[key.index];
      case What::kRank:
        return format("%s/%d", ranks_.jobs[ranks_.ranks[key.index].job].c_str(), ranks_.ranks[key.index].rank.value());
      case What::kLink:
        return link_name(topology_, key.index);
      case What::kVersion:
        return version_name(history_.changes[versions_[key.index].front()]);
    }
    return {};
  }
  std::string kind_of(Key key) const {
    switch (key.what) {
      case What::kNode:
        return to_text(topology_.nodes()[key.index].kind);
      case What::kJob:
        return "job";
      case What::kRank:
        return "rank";
      case What::kLink:
        return "link";
      case What::kVersion:
        return "version";
    }
    return {};
  }

  Result<void> begin() {
    const std::string& focus = question_.focus;
    if (focus.starts_with("version:")) {
      const auto version = version_of_.find(focus.substr(8));
      if (version == version_of_.end())
        return Error{format("nothing has changed to \"%s\" in that time", as_one_line(focus.substr(8, 100)).c_str()),
                     ErrorCode::kNotFound};
      put({What::kVersion, version->second}, 0);
      return {};
    }
    const std::string_view name = focus.starts_with("job:") ? std::string_view(focus).substr(4) : focus;
    if (focus.starts_with("rank:")) {
      const std::string wanted = focus.substr(5);
      const uint32_t rank = ranks_.find_rank(wanted);
      if (rank == kNone)
        return Error{format("no rank \"%s\": rank:JOB/NUMBER", as_one_line(wanted.substr(0, 100)).c_str()),
                     ErrorCode::kNotFound};
      put({What::kRank, rank}, 0);
      return {};
    }
    const uint32_t job = ranks_.find_job(name);
    if (job != kNone && (focus.starts_with("job:") || !topology_.find(focus))) {
      put({What::kJob, job}, 0);
      return {};
    }
    if (focus.starts_with("job:"))
      return Error{format("no job \"%s\"", as_one_line(name.substr(0, 100)).c_str()), ErrorCode::kNotFound};
    const Component component = LOCKSTEP_TRY(component_of(topology_, focus));
    put(component.link == kNone ? Key{What::kNode, component.node} : Key{What::kLink, component.link}, 0);
    return {};
  }

  // A verdict names a link by one of its ports.
  std::string trouble_of(Key key, const std::string& id) const {
    std::vector<std::string> names = {id};
    if (key.what == What::kLink) {
      const Link& link = topology_.links()[key.index];
      for (const NodeIndex end : {link.a, link.b}) names.push_back("link:" + topology_.port_name(key.index, end));
    }
    for (const std::string& name : names)
      if (const auto found = troubles_.find(name); found != troubles_.end()) return found->second;
    return {};
  }

  uint32_t put(Key key, uint32_t depth) {
    const auto [entry, is_new] = numbers_.emplace(key, static_cast<uint32_t>(graph_.nodes.size()));
    if (!is_new) return entry->second;
    GraphNode node{.kind = kind_of(key), .name = name_of(key), .depth = depth};
    node.id = node.kind + ":" + node.name;
    node.trouble = trouble_of(key, node.id);
    graph_.nodes.push_back(std::move(node));
    keys_.push_back(key);
    return entry->second;
  }

  void grow(size_t at) {
    std::vector<Neighbour> neighbours = neighbours_of(keys_[at]);
    graph_.nodes[at].left_out += std::exchange(beyond_, 0);
    for (Neighbour& one : neighbours) {
      one.id = kind_of(one.key) + ":" + name_of(one.key);
      one.is_troubled = troubles_.contains(one.id);
    }
    std::stable_sort(neighbours.begin(), neighbours.end(), [](const Neighbour& a, const Neighbour& b) {
      if (a.is_troubled != b.is_troubled) return a.is_troubled;
      return a.order != b.order ? a.order > b.order : a.weight > b.weight;
    });
    // At most half of them of one kind while there are others: a leaf has its spines beside its adapters.
    size_t taken = 0;
    std::map<std::string, size_t> taken_of_kind;
    for (const bool is_rest : {false, true}) {
      for (Neighbour& one : neighbours) {
        if (one.is_done) continue;
        const bool is_known = numbers_.contains(one.key);
        size_t& of_kind = taken_of_kind[kind_of(one.key)];
        if (!is_known && !is_rest && of_kind >= kFanOutMax / 2) continue;
        one.is_done = true;
        if (!is_known && (taken >= kFanOutMax || graph_.nodes.size() >= question_.nodes_max)) {
          ++graph_.nodes[at].left_out;
          continue;
        }
        taken += is_known ? 0 : 1;
        of_kind += is_known ? 0 : 1;
        add_edge(static_cast<uint32_t>(at), put(one.key, graph_.nodes[at].depth + 1), one);
      }
    }
  }

  void add_edge(uint32_t here, uint32_t there, Neighbour& one) {
    const uint32_t from = one.outwards ? here : there, to = one.outwards ? there : here;
    // Two ranks may wait for each other, in two groups; any other edge is the same from both ends.
    const bool is_directed = std::string_view(one.kind) == kWaitsFor;
    const std::pair ends = is_directed ? std::pair(from, to) : std::minmax({from, to});
    if (!edges_.insert({ends.first, ends.second, std::string(one.kind)}).second) return;
    graph_.edges.push_back(
        {from, to, one.kind, one.weight, std::move(one.label), std::move(one.known), one.at_unix_ns});
  }

  std::vector<Neighbour> neighbours_of(Key key) {
    switch (key.what) {
      case What::kJob:
        return neighbours_of_job(key.index);
      case What::kRank: {
        const RankAt& rank = ranks_.ranks[key.index];
        std::vector<Neighbour> found = {{.key = {What::kJob, rank.job}, .kind = "member-of"}};
        if (rank.gpu != kNone) found.push_back({.key = {What::kNode, rank.gpu}, .kind = "runs-on", .known = "agent"});
        add_waits(rank, found);
        return found;
      }
      case What::kLink: {
        const Link& link = topology_.links()[key.index];
        return {{.key = {What::kNode, link.a}, .kind = "carries", .known = known_by_text(link.known)},
                {.key = {What::kNode, link.b}, .kind = "carries", .known = known_by_text(link.known)}};
      }
      case What::kNode:
        return neighbours_of_node(key.index);
      case What::kVersion:
        return neighbours_of_version(key.index);
    }
    return {};
  }

  const JobWaits& waits_of(uint32_t job) {
    const auto found = waits_.find(job);
    if (found != waits_.end()) return found->second;
    std::vector<RankWait> waits;
    if (history_.waits != nullptr)
      waits = history_.waits->worst(ranks_.jobs[job], history_.waits_from_unix_ns, question_.at_unix_ns);
    return waits_.try_emplace(job, std::move(waits)).first->second;
  }

  // Its place among all ranks; kNone: it is not there (any more).
  uint32_t place_of(uint32_t job, Rank rank) const {
    const auto first = ranks_.ranks.begin() + ranks_.begin[job], last = ranks_.ranks.begin() + ranks_.end(job);
    const auto found = std::lower_bound(first, last, rank, [](const RankAt& a, Rank b) { return a.rank < b; });
    return found == last || found->rank != rank ? kNone : static_cast<uint32_t>(found - ranks_.ranks.begin());
  }

  // Whom it waited for, and who waited for it.
  void add_waits(const RankAt& rank, std::vector<Neighbour>& found) {
    const JobWaits& waits = waits_of(rank.job);
    for (const bool outwards : {true, false}) {
      const auto& by_rank = outwards ? waits.by_waiter : waits.by_awaited;
      const auto its = by_rank.find(rank.rank);
      if (its == by_rank.end()) continue;
      for (size_t i = 0; i < its->second.size(); ++i) {
        const RankWait& wait = waits.all[its->second[i]];
        const uint32_t other = place_of(rank.job, outwards ? wait.awaited : wait.waiter);
        if (i >= kWaitsShown || other == kNone)
          ++beyond_;
        else
          found.push_back({.key = {What::kRank, other},
                           .kind = kWaitsFor,
                           .outwards = outwards,
                           .weight = wait.seconds,
                           .known = "diagnosis"});
      }
    }
  }

  void add_changes(const std::string& component, std::vector<Neighbour>& found) {
    const auto its = changes_of_.find(component);
    if (its == changes_of_.end()) return;
    std::set<std::string> there;
    for (const uint32_t i : its->second) {
      const Change& change = history_.changes[i];
      const std::string version = version_name(change);
      if (there.size() >= kChangesShown && !there.contains(version)) {
        ++beyond_;
      } else if (there.insert(version).second) {
        found.push_back(changed({What::kVersion, version_of_.at(version)}, change));
      }
    }
  }

  static Neighbour changed(Key key, const Change& change) {
    return {.key = key,
            .kind = "changed-at",
            .label = change.before.empty() ? "" : "was " + change.before,
            .known = "agent",
            .at_unix_ns = change.time_unix_ns};
  }

  // Who has it since; the newest change of each.
  std::vector<Neighbour> neighbours_of_version(uint32_t version) {
    std::vector<Neighbour> found;
    std::set<std::string_view> there;
    for (const uint32_t i : versions_[version]) {
      const Change& change = history_.changes[i];
      if (!there.insert(change.component).second) continue;
      const size_t colon = change.component.find(':');
      const std::string_view name = std::string_view(change.component).substr(colon + 1);
      Key key;
      if (change.component.starts_with("job:"))
        key = {What::kJob, ranks_.find_job(name)};
      else
        key = {What::kNode, topology_.find(name).value_or(kNone)};
      if (key.index == kNone || found.size() >= kVersionEndsMax) {
        ++beyond_;
        continue;
      }
      found.push_back(changed(key, change));
      found.back().outwards = false;
    }
    return found;
  }

  // Once, and only where a job is among the nodes.
  void count_by_leaf() {
    if (!ranks_by_leaf_.empty()) return;
    for (const RankAt& rank : ranks_.ranks)
      if (const NodeIndex leaf = leaf_of_gpu(topology_, rank.gpu); leaf != kNone) ++ranks_by_leaf_[leaf][rank.job];
  }

  std::vector<Neighbour> neighbours_of_job(uint32_t job) {
    std::vector<Neighbour> found;
    std::set<NodeIndex> leaves;
    const JobWaits& waits = waits_of(job);
    add_changes("job:" + ranks_.jobs[job], found);
    for (uint32_t i = ranks_.begin[job]; i < ranks_.end(job); ++i) {
      const auto caused = waits.caused_s.find(ranks_.ranks[i].rank);
      found.push_back({.key = {What::kRank, i},
                       .kind = "member-of",
                       .outwards = false,
                       .order = caused == waits.caused_s.end() ? 0 : caused->second});
      if (const NodeIndex leaf = leaf_of_gpu(topology_, ranks_.ranks[i].gpu); leaf != kNone) leaves.insert(leaf);
    }
    count_by_leaf();
    std::map<uint32_t, std::pair<double, std::string>> shared;  // by the other job
    for (const NodeIndex leaf : leaves) {
      for (const auto& [other, ranks] : ranks_by_leaf_[leaf]) {
        if (other == job) continue;
        auto& [weight, label] = shared[other];
        weight += ranks;
        if (label.size() < 80) label += (label.empty() ? "" : ", ") + topology_.name(leaf);
      }
    }
    for (auto& [other, what] : shared)
      found.push_back({.key = {What::kJob, other}, .kind = "shares", .weight = what.first, .label = what.second});
    return found;
  }

  std::vector<Neighbour> neighbours_of_node(NodeIndex index) {
    std::vector<Neighbour> found;
    const Node& node = topology_.nodes()[index];
    add_changes(std::string(to_text(node.kind)) + ":" + topology_.name(index), found);
    auto [first, last] = ranks_of_gpu_.equal_range(index);
    for (auto rank = first; rank != last; ++rank)
      found.push_back({.key = {What::kRank, rank->second}, .kind = "runs-on", .outwards = false, .known = "agent"});
    if (node.parent != kNone)
      found.push_back({.key = {What::kNode, node.parent}, .kind = "member-of", .known = known_by_text(node.known)});
    for (const NodeIndex child : topology_.children(index))
      found.push_back({.key = {What::kNode, child},
                       .kind = "member-of",
                       .outwards = false,
                       .known = known_by_text(topology_.nodes()[child].known)});
    std::map<NodeIndex, size_t> at;  // links side by side are one edge
    for (const LinkIndex link : topology_.links_of(index)) {
      const Link& one = topology_.links()[link];
      const NodeIndex other = topology_.other_end(link, index);
      const auto [entry, is_new] = at.emplace(other, found.size());
      if (!is_new) {
        found[entry->second].weight += 1;
        continue;
      }
      const bool is_nvlink = one.kind == LinkKind::kNvlink;
      std::string label = one.kind == LinkKind::kPcie ? pcie_distance_text(one.distance) : "";
      if (one.kind == LinkKind::kNetwork) label = link_name(topology_, link);
      if (one.kind == LinkKind::kMount) label = topology_.text(one.port_b);
      found.push_back(
          {.key = {What::kNode, other},
           .kind = is_nvlink                      ? "member-of"
                   : one.kind == LinkKind::kMount ? "mounts"
                                                  : "carries",
           .outwards = is_nvlink ? node.kind == NodeKind::kGpu : one.kind != LinkKind::kMount || one.a == index,
           .label = std::move(label),
           .known = known_by_text(one.known)});
    }
    return found;
  }

  const Topology& topology_;
  const Troubles& troubles_;
  const GraphQuestion& question_;
  const GraphHistory& history_;
  const RanksAt ranks_;
  std::unordered_map<std::string, std::vector<uint32_t>> changes_of_;  // by component, newest first
  std::map<std::string, uint32_t> version_of_;                         // by its name
  std::vector<std::vector<uint32_t>> versions_;                        // changes to it, newest first
  std::map<uint32_t, JobWaits> waits_;                                 // by job, once asked for
  size_t beyond_ = 0;  // neighbours of the node that grows, left out before they were put in order
  std::unordered_multimap<NodeIndex, uint32_t> ranks_of_gpu_;
  std::unordered_map<NodeIndex, std::map<uint32_t, double>> ranks_by_leaf_;  // by job; empty: not counted yet
  std::map<Key, uint32_t> numbers_;
  std::vector<Key> keys_;
  std::set<std::tuple<uint32_t, uint32_t, std::string>> edges_;
  Graph graph_;
};

// Of what goes up from a leaf, the share that each switch and link above it carries, spread evenly.
double share_over(const Topology& topology, NodeIndex leaf, const Component& component) {
  std::map<NodeIndex, double> here = {{leaf, 1}};
  std::set<NodeIndex> seen = {leaf};
  double share = 0;
  for (int tier = 0; tier < 4 && !here.empty() && share == 0; ++tier) {
    std::map<NodeIndex, double> next;
    for (const auto& [node, carried] : here) {
      std::vector<LinkIndex> up;
      for (const LinkIndex link : topology.links_of(node)) {
        const NodeIndex other = topology.other_end(link, node);
        const NodeKind kind = topology.nodes()[other].kind;
        if (!is_switch(kind) || seen.contains(other)) continue;
        if (kind == NodeKind::kLeaf && topology.nodes()[node].kind != NodeKind::kLeaf) continue;  // that is down
        up.push_back(link);
      }
      for (const LinkIndex link : up) {
        const double part = carried / static_cast<double>(up.size());
        if (link == component.link) share += part;
        next[topology.other_end(link, node)] += part;
      }
    }
    for (const auto& [node, carried] : next) {
      seen.insert(node);
      if (node == component.node) share += carried;
    }
    here = std::move(next);
  }
  return share;
}

}  // namespace

NodeIndex leaf_of_gpu(const Topology& topology, NodeIndex gpu) {
  if (gpu == kNone) return kNone;
  const std::optional<Topology::Adapter> adapter = topology.adapter_of(gpu);
  const std::optional<LinkIndex> uplink = adapter ? topology.uplink_of(adapter->nic) : std::nullopt;
  return uplink ? topology.other_end(*uplink, adapter->nic) : kNone;
}

Result<Graph> find_graph(const Topology& topology, const JobPlaces& places, const Troubles& troubles,
                         const GraphQuestion& question, const GraphHistory& history) {
  return GraphWalk(topology, places, troubles, question, history).walk();
}

namespace {

// How much of what a rank needs goes through a component: 1 where it is its own, a part where it is one of many ways.
class ComponentShares {
 public:
  ComponentShares(const Topology& topology, const Component& component)
      : topology_(topology), component_(component), own_(component.node) {
    // A cable of an adapter is as the adapter itself.
    if (component.link != kNone) {
      const Link& link = topology.links()[component.link];
      for (const NodeIndex end : {link.a, link.b})
        if (topology.nodes()[end].kind == NodeKind::kNic) own_ = end;
    }
    is_shared_in_part_ = own_ == kNone || topology.nodes()[own_].kind == NodeKind::kSpine ||
                         topology.nodes()[own_].kind == NodeKind::kSwitch;
    for (const LinkIndex link : own_ == kNone ? std::span<const LinkIndex>() : topology.links_of(own_))
      if (topology.links()[link].kind == LinkKind::kMount && topology.links()[link].b == own_)
        clients_.insert(topology.links()[link].a);
  }

  bool is_shared_in_part() const { return is_shared_in_part_; }

  double of(const RankAt& rank, NodeIndex leaf) {
    const NodeIndex gpu = rank.gpu;
    if (rank.host != kNone && (rank.host == own_ || clients_.contains(rank.host))) return 1;
    if (gpu == kNone) return 0;
    if (is_shared_in_part_) {
      if (leaf == kNone) return 0;
      const auto [entry, is_new] = share_of_leaf_.try_emplace(leaf, 0);
      if (is_new) entry->second = share_over(topology_, leaf, component_);
      return entry->second;
    }
    if (gpu == own_ || leaf == own_) return 1;
    if (const auto domain = topology_.nvlink_of(gpu); domain == own_) return 1;
    const std::optional<Topology::Adapter> adapter = topology_.adapter_of(gpu);
    return adapter && adapter->nic == own_ ? 1 : 0;
  }

 private:
  const Topology& topology_;
  const Component& component_;
  NodeIndex own_;
  bool is_shared_in_part_ = false;
  std::set<NodeIndex> clients_;  // hosts that mount it
  std::unordered_map<NodeIndex, double> share_of_leaf_;
};

}  // namespace

Result<Affected> find_affected(const Topology& topology, const JobPlaces& places, std::string_view text,
                               int64_t at_unix_ns) {
  const Component component = LOCKSTEP_TRY(component_of(topology, text));
  Affected affected;
  affected.component = component.link == kNone ? topology.name(component.node) : link_name(topology, component.link);
  affected.kind = component.link == kNone ? to_text(topology.nodes()[component.node].kind) : "link";
  ComponentShares shares(topology, component);
  const RanksAt ranks(topology, places, at_unix_ns);
  std::set<NodeIndex> gpus, hosts;
  for (size_t begin = 0; begin < ranks.ranks.size();) {
    const uint32_t job = ranks.ranks[begin].job;
    size_t end = begin;
    std::set<NodeIndex> leaves;
    while (end < ranks.ranks.size() && ranks.ranks[end].job == job)
      leaves.insert(leaf_of_gpu(topology, ranks.ranks[end++].gpu));
    leaves.erase(kNone);
    AffectedJob one{.job = ranks.jobs[job], .ranks = static_cast<int32_t>(end - begin)};
    for (; begin < end; ++begin) {
      const RankAt& rank = ranks.ranks[begin];
      if (shares.is_shared_in_part() && leaves.size() < 2) continue;  // it stays under its leaf
      const double share = shares.of(rank, leaf_of_gpu(topology, rank.gpu));
      if (share <= 0) continue;
      ++one.ranks_hit;
      one.share += share;
      if (one.first_ranks.size() < kRanksShown) one.first_ranks.push_back(rank.rank);
      if (rank.gpu != kNone) gpus.insert(rank.gpu);
      hosts.insert(rank.host);
    }
    if (one.ranks_hit == 0) continue;
    one.share /= one.ranks_hit;
    affected.jobs.push_back(std::move(one));
  }
  std::stable_sort(affected.jobs.begin(), affected.jobs.end(), [](const AffectedJob& a, const AffectedJob& b) {
    return a.ranks_hit * a.share > b.ranks_hit * b.share;
  });
  affected.gpus = gpus.size();
  affected.hosts = hosts.size();
  if (shares.is_shared_in_part())
    affected.note = "share: of what these ranks send to other leaves, spread evenly over equal links";
  return affected;
}

}  // namespace lockstep::fabric
