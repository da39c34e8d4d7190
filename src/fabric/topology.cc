#include "fabric/topology.h"

#include <algorithm>

#include "base/text.h"
#include "model/ip_address.h"
#include "model/pcie_path.h"

namespace lockstep::fabric {
namespace {

constexpr const char* kKindTexts[kNodeKindCount] = {"host", "gpu",   "nvlink", "pcie",   "nic",
                                                    "leaf", "spine", "switch", "storage"};

template <typename Item>
size_t bytes_of(const std::vector<Item>& items) {
  return items.capacity() * sizeof(Item);
}

}  // namespace

const char* to_text(NodeKind kind) {
  return kKindTexts[static_cast<size_t>(kind)];
}

std::optional<NodeKind> node_kind_of(std::string_view text) {
  for (size_t i = 0; i < kNodeKindCount; ++i)
    if (text == kKindTexts[i]) return static_cast<NodeKind>(i);
  return std::nullopt;
}

std::string known_by_text(uint8_t known) {
  std::string text;
  for (const auto& [bit, word] : {std::pair(kByAgent, "agent"), {kByLldp, "LLDP"}, {kByFile, "file"}}) {
    if ((known & bit) == 0) continue;
    if (!text.empty()) text += " and ";
    text += word;
  }
  return text.empty() ? "assumed" : text;
}

const char* to_text(LinkKind kind) {
  switch (kind) {
    case LinkKind::kNvlink:
      return "nvlink";
    case LinkKind::kPcie:
      return "pcie";
    case LinkKind::kNetwork:
      return "network";
    case LinkKind::kMount:
      return "mount";
  }
  return "";
}

const char* pcie_distance_text(uint8_t distance) {
  for (const auto& [number, text] : kPciePaths)
    if (number == distance) return text;
  return "";
}

uint8_t pcie_distance_of(std::string_view text) {
  for (const auto& [number, name] : kPciePaths)
    if (text == name) return number;
  return 0;
}

std::string_view short_name_of(std::string_view name) {
  return parse_ip(name) ? name : name.substr(0, name.find('.'));
}

const char* to_text(Difference::Kind kind) {
  switch (kind) {
    case Difference::Kind::kOtherPort:
      return "other_port";
    case Difference::Kind::kNotSeen:
      return "not_seen";
    case Difference::Kind::kNotDeclared:
      return "not_declared";
  }
  return "";
}

std::string Topology::name(NodeIndex node) const {
  const Node& one = nodes_[node];
  std::string own(text(one.name));
  if (one.kind == NodeKind::kGpu && own.empty()) own = format("gpu%d", one.index);
  const bool has_own_name = one.kind == NodeKind::kGpu && one.name != kNoText;
  return one.parent == kNone || has_own_name ? own : std::string(text(nodes_[one.parent].name)) + ":" + own;
}

std::string Topology::port_name(LinkIndex link, NodeIndex end) const {
  const Link& one = links_[link];
  const Symbol port = one.a == end ? one.port_a : one.port_b;
  return port == kNoText ? name(end) : name(end) + ":" + std::string(text(port));
}

std::optional<NodeIndex> Topology::find(std::string_view wanted) const {
  const auto found =
      std::lower_bound(by_name_.begin(), by_name_.end(), wanted,
                       [this](NodeIndex node, std::string_view name) { return text(nodes_[node].name) < name; });
  if (found != by_name_.end() && text(nodes_[*found].name) == wanted) return *found;
  const size_t colon = wanted.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const std::string_view part = wanted.substr(colon + 1);
  const std::optional<NodeIndex> host = find(wanted.substr(0, colon));
  if (!host || nodes_[*host].kind != NodeKind::kHost) return std::nullopt;
  for (const NodeIndex child : children(*host)) {
    const Node& one = nodes_[child];
    if (one.kind == NodeKind::kGpu ? part == format("gpu%d", one.index)
                                   : part == text(one.name) || (one.kind == NodeKind::kNic && part == text(one.more)))
      return child;
  }
  return std::nullopt;
}

std::optional<NodeIndex> Topology::find_switch(std::string_view name) const {
  if (const std::optional<NodeIndex> exact = find(name); exact && is_switch(nodes_[*exact].kind)) return exact;
  const std::string_view wanted = short_name_of(name);
  if (wanted.empty()) return std::nullopt;
  std::optional<NodeIndex> found;
  for (auto at = std::lower_bound(
           by_name_.begin(), by_name_.end(), wanted,
           [this](NodeIndex node, std::string_view text_wanted) { return text(nodes_[node].name) < text_wanted; });
       at != by_name_.end() && text(nodes_[*at].name).starts_with(wanted); ++at) {
    if (!is_switch(nodes_[*at].kind) || short_name_of(text(nodes_[*at].name)) != wanted) continue;
    if (found) return std::nullopt;
    found = *at;
  }
  return found;
}

std::optional<NodeIndex> Topology::find_gpu(std::string_view host, int32_t index) const {
  return find(format("%.*s:gpu%d", static_cast<int>(host.size()), host.data(), index));
}

std::vector<std::string> Topology::names_like(std::string_view wanted) const {
  // Of a hundred thousand names only those that begin alike are looked at closer.
  constexpr size_t kLookedAtMax = 5'000;
  std::vector<std::string> names;
  for (const NodeIndex node : by_name_) {
    const std::string_view one = text(nodes_[node].name);
    if (one.empty() || wanted.empty() || one.front() != wanted.front()) continue;
    if (one.size() > wanted.size() + 2 || one.size() + 2 < wanted.size()) continue;
    names.emplace_back(one);
    if (names.size() == kLookedAtMax) break;
  }
  return names;
}

std::span<const NodeIndex> Topology::children(NodeIndex node) const {
  return {children_by_node_.data() + children_begin_[node], children_begin_[node + 1] - children_begin_[node]};
}

std::span<const LinkIndex> Topology::links_of(NodeIndex node) const {
  return {links_by_node_.data() + links_begin_[node], links_begin_[node + 1] - links_begin_[node]};
}

std::optional<Topology::Adapter> Topology::adapter_of(NodeIndex gpu) const {
  std::optional<Adapter> best;
  for (const LinkIndex link : links_of(gpu)) {
    if (links_[link].kind != LinkKind::kPcie) continue;
    const NodeIndex nic = other_end(link, gpu);
    if (nodes_[nic].kind != NodeKind::kNic) continue;
    if (!best || links_[link].distance < links_[best->link].distance)
      best = Adapter{link, nic, 1};
    else if (links_[link].distance == links_[best->link].distance)
      ++best->as_near;
  }
  return best;
}

std::optional<NodeIndex> Topology::nvlink_of(NodeIndex gpu) const {
  for (const LinkIndex link : links_of(gpu))
    if (links_[link].kind == LinkKind::kNvlink) return other_end(link, gpu);
  return std::nullopt;
}

std::optional<LinkIndex> Topology::uplink_of(NodeIndex nic) const {
  for (const LinkIndex link : links_of(nic))
    if (links_[link].kind == LinkKind::kNetwork) return link;
  return std::nullopt;
}

const ForwardingTable* Topology::forwarding_of(NodeIndex node) const {
  const auto found = std::lower_bound(forwarding_.begin(), forwarding_.end(), node,
                                      [](const ForwardingTable& table, NodeIndex at) { return table.at < at; });
  return found != forwarding_.end() && found->at == node ? &*found : nullptr;
}

uint16_t Topology::lid_of(NodeIndex nic) const {
  const auto found = std::lower_bound(lids_.begin(), lids_.end(), std::pair<NodeIndex, uint16_t>(nic, 0));
  return found != lids_.end() && found->first == nic ? found->second : 0;
}

size_t Topology::memory_bytes() const {
  size_t bytes = texts_.memory_bytes() + bytes_of(nodes_) + bytes_of(links_) + bytes_of(links_begin_) +
                 bytes_of(links_by_node_) + bytes_of(children_begin_) + bytes_of(children_by_node_) +
                 bytes_of(by_name_) + bytes_of(lids_) + bytes_of(differences_);
  for (const ForwardingTable& table : forwarding_) bytes += sizeof table + table.port_of_lid.capacity();
  return bytes;
}

}  // namespace lockstep::fabric
