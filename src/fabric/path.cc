#include "fabric/path.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <unordered_map>

#include "base/text.h"
#include "fabric/job_places.h"

namespace lockstep::fabric {
namespace {

constexpr size_t kRoutedHopsMax = 64;  // a table that leads in a circle
constexpr uint32_t kFar = 0xFFFFFFFF;

Certainty certainty_of(uint8_t known) {
  if ((known & (kByAgent | kByLldp)) != 0) return Certainty::kReported;
  return (known & kByFile) != 0 ? Certainty::kDeclared : Certainty::kAssumed;
}

// A link on the way, from one switch to the next one.
struct Step {
  LinkIndex link = kNone;
  NodeIndex from = kNone, to = kNone;
  double share = 0;
  uint64_t packets = 0;
  bool is_left = true;
};

// All shortest ways between two switches, level by level.
class EqualPaths {
 public:
  EqualPaths(const Topology& topology, NodeIndex from, NodeIndex to) : topology_(topology), from_(from), to_(to) {
    if (measure()) spread();
  }

  bool found() const { return !levels_.empty(); }
  std::vector<std::vector<Step>>& levels() { return levels_; }
  double count() const { return count_; }

  // Only steps that packets were seen on, on levels where any were; then what no longer leads through goes too.
  bool restrict_to(const std::vector<ObservedPort>& ports) {
    std::map<std::tuple<NodeIndex, std::string_view, bool>, uint64_t> packets;  // by switch, port and whether they left
    for (const ObservedPort& port : ports)
      if (const std::optional<NodeIndex> node = topology_.find_switch(port.switch_name))
        packets[{*node, port.port, port.out}] += port.packets;
    bool any = false;
    for (std::vector<Step>& level : levels_) {
      bool seen = false;
      for (Step& step : level) {
        const Link& link = topology_.links()[step.link];
        for (const NodeIndex end : {step.from, step.to}) {
          const std::string_view port = topology_.text(link.a == end ? link.port_a : link.port_b);
          const auto found = packets.find({end, port, end == step.from});
          if (found != packets.end()) step.packets += found->second;
        }
        seen |= step.packets > 0;
      }
      if (!seen) continue;
      any = true;
      for (Step& step : level) step.is_left = step.packets > 0;
    }
    if (any) share_again();
    return any;
  }

 private:
  struct Reach {
    uint32_t distance = kFar;
    double ways = 0;
  };

  // From the far end, so that every switch knows how far it still is.
  bool measure() {
    reach_[to_] = {0, 1};
    std::vector<NodeIndex> edge = {to_};
    for (uint32_t distance = 1; !edge.empty(); ++distance) {
      if (reach_.contains(from_)) return true;
      std::vector<NodeIndex> next;
      for (const NodeIndex node : edge) {
        const double ways = reach_[node].ways;
        for (const LinkIndex link : topology_.links_of(node)) {
          const NodeIndex other = topology_.other_end(link, node);
          if (!is_switch(topology_.nodes()[other].kind)) continue;
          Reach& reach = reach_[other];
          if (reach.distance == kFar) {
            reach.distance = distance;
            next.push_back(other);
          }
          if (reach.distance == distance) reach.ways += ways;
        }
      }
      edge = std::move(next);
    }
    return reach_.contains(from_);
  }

  void spread() {
    count_ = reach_[from_].ways;
    std::vector<std::pair<NodeIndex, double>> here = {{from_, 1}};
    for (uint32_t distance = reach_[from_].distance; distance > 0; --distance) {
      std::vector<Step>& level = levels_.emplace_back();
      for (const auto& [node, share] : here) {
        const size_t begin = level.size();
        for (const LinkIndex link : topology_.links_of(node)) {
          const NodeIndex other = topology_.other_end(link, node);
          const auto reach = reach_.find(other);
          if (reach != reach_.end() && reach->second.distance == distance - 1)
            level.push_back({.link = link, .from = node, .to = other});
        }
        for (size_t i = begin; i < level.size(); ++i)
          level[i].share = share / static_cast<double>(level.size() - begin);
      }
      here = arrived(level);
    }
  }

  static std::vector<std::pair<NodeIndex, double>> arrived(const std::vector<Step>& level) {
    std::vector<std::pair<NodeIndex, double>> nodes;
    std::unordered_map<NodeIndex, size_t> at;
    for (const Step& step : level) {
      const auto [entry, is_new] = at.emplace(step.to, nodes.size());
      if (is_new) nodes.emplace_back(step.to, 0);
      nodes[entry->second].second += step.share;
    }
    return nodes;
  }

  void share_again() {
    std::unordered_map<NodeIndex, bool> reaches_end = {{to_, true}};
    for (auto level = levels_.rbegin(); level != levels_.rend(); ++level) {
      std::unordered_map<NodeIndex, bool> before;
      for (Step& step : *level) {
        step.is_left = step.is_left && reaches_end.contains(step.to);
        if (step.is_left) before[step.from] = true;
      }
      reaches_end = std::move(before);
    }
    std::unordered_map<NodeIndex, double> share = {{from_, 1}};
    count_ = 1;
    for (std::vector<Step>& level : levels_) {
      std::erase_if(level, [&](const Step& step) { return !step.is_left || !share.contains(step.from); });
      std::unordered_map<NodeIndex, double> weight, next;
      // By packets where they were counted; a link among them without any counts as one that had a single packet.
      auto weight_of = [](const Step& step) { return static_cast<double>(std::max<uint64_t>(1, step.packets)); };
      for (const Step& step : level) weight[step.from] += weight_of(step);
      for (Step& step : level) {
        step.share = share[step.from] * weight_of(step) / weight[step.from];
        next[step.to] += step.share;
      }
      count_ = std::max(count_, static_cast<double>(level.size()));
      share = std::move(next);
    }
  }

  const Topology& topology_;
  const NodeIndex from_, to_;
  std::unordered_map<NodeIndex, Reach> reach_;
  std::vector<std::vector<Step>> levels_;
  double count_ = 0;
};

class PathFinder {
 public:
  PathFinder(const Topology& topology, const PathQuestion& question, const FlowObserver* observer)
      : topology_(topology), question_(question), observer_(observer) {}

  FabricPath find() {
    add_node(question_.a);
    if (question_.a == question_.b) {
      path_.kind = PathKind::kSameGpu;
    } else if (!over_nvlink() && !over_pcie()) {
      over_network();
    }
    std::stable_sort(path_.hops.begin(), path_.hops.end(), [](const Hop& a, const Hop& b) {
      // Shares are sums of fractions: what differs only in the last bits is the same.
      const int64_t share_a = std::llround(a.share * 1e9), share_b = std::llround(b.share * 1e9);
      if (a.position != b.position) return a.position < b.position;
      return share_a != share_b ? share_a > share_b : std::pair(a.node, a.link) < std::pair(b.node, b.link);
    });
    bound();
    return std::move(path_);
  }

 private:
  const Node& node(NodeIndex index) const { return topology_.nodes()[index]; }

  void add(Hop hop) {
    hop.position = position_;
    path_.hops.push_back(hop);
  }
  void add_node(NodeIndex index) {
    add({.node = index, .sure = certainty_of(node(index).known)});
    ++position_;
  }
  void add_link(LinkIndex link, NodeIndex from) {
    add({.node = from, .link = link, .sure = certainty_of(topology_.links()[link].known)});
    ++position_;
  }
  LinkIndex link_between(NodeIndex a, NodeIndex b) const {
    for (const LinkIndex link : topology_.links_of(a))
      if (topology_.other_end(link, a) == b) return link;
    return kNone;
  }

  bool over_nvlink() {
    const std::optional<NodeIndex> domain = topology_.nvlink_of(question_.a);
    if (!domain || domain != topology_.nvlink_of(question_.b)) return false;
    path_.kind = PathKind::kNvlink;
    add_link(link_between(question_.a, *domain), question_.a);
    add_node(*domain);
    add_link(link_between(question_.b, *domain), *domain);
    add_node(question_.b);
    return true;
  }

  bool over_pcie() {
    if (node(question_.a).parent != node(question_.b).parent) return false;
    path_.kind = PathKind::kPcie;
    add({.node = node(question_.a).parent, .sure = Certainty::kAssumed});
    ++position_;
    add_node(question_.b);
    path_.notes.push_back("no NVLink between these GPUs is reported: they are taken to meet over PCIe or the host");
    return true;
  }

  void over_network() {
    path_.kind = PathKind::kNetwork;
    const std::optional<Topology::Adapter> a = topology_.adapter_of(question_.a), b = topology_.adapter_of(question_.b);
    for (const auto& [adapter, gpu] : {std::pair(&a, question_.a), {&b, question_.b}}) {
      if (!*adapter)
        path_.notes.push_back("which adapter " + topology_.name(gpu) +
                              " uses is not known: its agent reports none near it");
      else if ((*adapter)->as_near > 1)
        path_.notes.push_back(format("%s has %zu adapters as near as this one; NCCL may use them all",
                                     topology_.name(gpu).c_str(), (*adapter)->as_near));
    }
    if (a) {
      path_.nic_a = a->nic;
      add_link(a->link, question_.a);
      add_node(a->nic);
    }
    if (b) path_.nic_b = b->nic;
    if (a && b) between_adapters(a->nic, b->nic);
    if (!a || !b) path_.equal_paths = 0;
    if (b) {
      add_node(b->nic);
      add_link(b->link, b->nic);
    }
    add_node(question_.b);
  }

  void between_adapters(NodeIndex a, NodeIndex b) {
    const int16_t rail_a = node(a).index, rail_b = node(b).index;
    if (rail_a >= 0 && rail_b >= 0 && rail_a != rail_b)
      path_.notes.push_back(
          format("rails differ (%d and %d): NCCL may first go over NVLink to the GPU on rail %d (PXN)", rail_a, rail_b,
                 rail_b));
    const std::optional<LinkIndex> up = topology_.uplink_of(a), down = topology_.uplink_of(b);
    for (const auto& [link, nic] : {std::pair(&up, a), {&down, b}}) {
      if (!*link)
        path_.notes.push_back("which switch " + topology_.name(nic) +
                              " hangs on is not known: no LLDP neighbour, and no link in a topology file");
    }
    if (!up || !down) {
      path_.equal_paths = 0;
      if (up) {
        add_link(*up, a);
        add_node(topology_.other_end(*up, a));
      }
      return;
    }
    const NodeIndex leaf_a = topology_.other_end(*up, a), leaf_b = topology_.other_end(*down, b);
    add_link(*up, a);
    add_node(leaf_a);
    if (leaf_a != leaf_b && !routed(leaf_a, b, leaf_b)) among_equals(leaf_a, leaf_b, a, b);
    add_link(*down, leaf_b);
  }

  // By the subnet manager's tables, from switch to switch.
  bool routed(NodeIndex leaf_a, NodeIndex nic_b, NodeIndex leaf_b) {
    const uint16_t lid = topology_.lid_of(nic_b);
    if (lid == 0 || !topology_.has_forwarding()) return false;
    std::vector<Hop> hops;
    NodeIndex at = leaf_a;
    while (at != leaf_b && hops.size() < 2 * kRoutedHopsMax) {
      const ForwardingTable* const table = topology_.forwarding_of(at);
      const uint8_t port = table == nullptr || lid >= table->port_of_lid.size() ? 0 : table->port_of_lid[lid];
      LinkIndex out = kNone;
      for (const LinkIndex link : topology_.links_of(at)) {
        const Link& one = topology_.links()[link];
        if (topology_.text(one.a == at ? one.port_a : one.port_b) == std::to_string(port)) out = link;
      }
      if (port == 0 || out == kNone) {
        path_.notes.push_back(
            format("the forwarding table of %s does not lead to LID %u", topology_.name(at).c_str(), lid));
        return false;
      }
      hops.push_back({.node = at, .link = out, .sure = Certainty::kRouted});
      at = topology_.other_end(out, at);
      hops.push_back({.node = at, .sure = Certainty::kRouted});
    }
    if (at != leaf_b) {
      path_.notes.push_back(format("the forwarding tables lead in a circle on the way to LID %u", lid));
      return false;
    }
    for (const Hop& hop : hops) {
      add(hop);
      ++position_;
    }
    return true;
  }

  void among_equals(NodeIndex leaf_a, NodeIndex leaf_b, NodeIndex nic_a, NodeIndex nic_b) {
    EqualPaths paths(topology_, leaf_a, leaf_b);
    if (!paths.found()) {
      path_.equal_paths = 0;
      path_.notes.push_back(format("no way from %s to %s is known: give the links between switches in a topology file",
                                   topology_.name(leaf_a).c_str(), topology_.name(leaf_b).c_str()));
      add({.node = leaf_b, .sure = Certainty::kAssumed});
      ++position_;
      return;
    }
    bool is_observed = false;
    if (const std::optional<FlowKey> flow = flow_between(nic_a, nic_b); flow && observer_ != nullptr) {
      is_observed = paths.restrict_to(observer_->observed_ports(*flow, question_.from_unix_ns, question_.to_unix_ns));
      path_.flow = flow;
    }
    path_.equal_paths = static_cast<size_t>(std::min(1e9, std::max(1.0, paths.count())));
    for (const std::vector<Step>& level : paths.levels()) add_level(level, is_observed);
    if (path_.equal_paths > 1 && !is_observed)
      path_.notes.push_back(
          format("%zu equal paths, none observed: each switch is taken to spread evenly", path_.equal_paths));
  }

  void add_level(const std::vector<Step>& level, bool is_observed) {
    auto sure_of = [&](double share, uint64_t packets, Certainty known) {
      if (packets > 0) return Certainty::kObserved;
      return share < 0.9999 || is_observed ? Certainty::kPossible : known;
    };
    std::unordered_map<NodeIndex, Hop> nodes;
    for (const Step& step : level) {
      const Link& link = topology_.links()[step.link];
      add({.node = step.from,
           .link = step.link,
           .share = step.share,
           .sure = sure_of(step.share, step.packets, certainty_of(link.known)),
           .packets = step.packets});
      Hop& to = nodes.try_emplace(step.to, Hop{.node = step.to, .share = 0}).first->second;
      to.share += step.share;
      to.packets += step.packets;
    }
    ++position_;
    for (auto& [index, hop] : nodes) {
      hop.sure = sure_of(hop.share, hop.packets, certainty_of(node(index).known));
      add(hop);
    }
    ++position_;
  }

  std::optional<FlowKey> flow_between(NodeIndex a, NodeIndex b) {
    FlowKey flow = question_.flow.value_or(FlowKey{});
    constexpr IpAddress kNoAddress{};
    for (const auto& [address, nic] : {std::pair(&flow.source, a), {&flow.destination, b}})
      if (*address == kNoAddress) *address = parse_ip(topology_.text(node(nic).address)).value_or(kNoAddress);
    if (flow.source != kNoAddress && flow.destination != kNoAddress) return flow;
    if (observer_ != nullptr)
      path_.notes.push_back(
          "the adapters' addresses are not known, so sampled packets cannot be joined: no agent reports them, and no "
          "topology file has them");
    return std::nullopt;
  }

  // The smallest shares go first; a position keeps at least its largest.
  void bound() {
    std::vector<Hop>& hops = path_.hops;
    if (hops.size() <= kHopsMax) return;
    std::vector<size_t> beside;  // those that are not the first of their position
    for (size_t i = 1; i < hops.size(); ++i)
      if (hops[i - 1].position == hops[i].position) beside.push_back(i);
    std::stable_sort(beside.begin(), beside.end(), [&](size_t a, size_t b) { return hops[a].share > hops[b].share; });
    const size_t left_out = std::min(beside.size(), hops.size() - kHopsMax);
    std::vector<bool> is_left_out(hops.size());
    for (size_t i = beside.size() - left_out; i < beside.size(); ++i) is_left_out[beside[i]] = true;
    size_t kept = 0;
    for (size_t i = 0; i < hops.size(); ++i)
      if (!is_left_out[i]) hops[kept++] = hops[i];
    hops.resize(kept);
    path_.hops_left_out = left_out;
  }

  const Topology& topology_;
  const PathQuestion& question_;
  const FlowObserver* const observer_;
  FabricPath path_;
  uint32_t position_ = 0;
};

}  // namespace

const char* to_text(PathKind kind) {
  constexpr const char* kTexts[] = {"same_gpu", "nvlink", "pcie", "network", "unknown"};
  return kTexts[static_cast<size_t>(kind)];
}

const char* to_text(Certainty certainty) {
  constexpr const char* kTexts[] = {"reported", "declared", "routed", "observed", "possible", "assumed"};
  return kTexts[static_cast<size_t>(certainty)];
}

FabricPath find_path(const Topology& topology, const PathQuestion& question, const FlowObserver* observer) {
  return PathFinder(topology, question, observer).find();
}

Result<PathEnd> find_path_end(const Topology& topology, const JobPlaces& places, std::string_view job,
                              std::string_view text, int64_t at_unix_ns) {
  const std::string shown = as_one_line(text.substr(0, 100)), shown_job = as_one_line(job.substr(0, 100));
  if (const std::optional<int64_t> rank = parse_int(text); rank) {
    if (job.empty()) return Error{format("\"%s\" is a rank: of which job? (--job JOB)", shown.c_str())};
    if (!places.has_job(job)) {
      const std::optional<std::string> meant = did_you_mean(job, places.jobs());
      return Error{
          format("no job \"%s\"%s", shown_job.c_str(), meant ? (". Did you mean " + *meant + "?").c_str() : ""),
          ErrorCode::kNotFound};
    }
    const std::optional<RankPlace> place = *rank >= 0 && *rank < INT32_MAX
                                               ? places.find(job, Rank{static_cast<int32_t>(*rank)}, at_unix_ns)
                                               : std::nullopt;
    if (!place)
      return Error{format("job %s has no rank %lld (%d ranks)", shown_job.c_str(), static_cast<long long>(*rank),
                          places.rank_count(job, at_unix_ns)),
                   ErrorCode::kNotFound};
    std::optional<NodeIndex> gpu = place->gpu_uuid.empty() ? std::nullopt : topology.find(place->gpu_uuid);
    if (!gpu || topology.nodes()[*gpu].kind != NodeKind::kGpu) gpu = topology.find_gpu(place->host, place->local_rank);
    if (!gpu)
      return Error{format("rank %lld runs on %s, of whose GPUs nothing is known: does its agent read them?",
                          static_cast<long long>(*rank), as_one_line(place->host).c_str()),
                   ErrorCode::kNotFound};
    return PathEnd{*gpu, place->rank};
  }
  const std::optional<NodeIndex> found = topology.find(text);
  if (found && topology.nodes()[*found].kind == NodeKind::kGpu) return PathEnd{*found, kNoRank};
  if (found)
    return Error{format("%s is a %s, not a GPU: RANK, HOST:gpuN or a GPU's UUID", shown.c_str(),
                        to_text(topology.nodes()[*found].kind))};
  const size_t colon = text.rfind(':');
  const std::string_view name = colon == std::string_view::npos ? text : text.substr(0, colon);
  if (colon != std::string_view::npos && topology.find(name))
    return Error{format("%s has no \"%s\"", as_one_line(name).c_str(), as_one_line(text.substr(colon + 1)).c_str()),
                 ErrorCode::kNotFound};
  const std::optional<std::string> meant = did_you_mean(name, topology.names_like(name));
  return Error{format("no GPU \"%s\"%s (RANK with --job, HOST:gpuN, or a GPU's UUID)", shown.c_str(),
                      meant ? (". Did you mean " + *meant + "?").c_str() : ""),
               ErrorCode::kNotFound};
}

}  // namespace lockstep::fabric
