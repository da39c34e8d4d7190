// What hangs on what: hosts, their GPUs and adapters, NVLink domains, switches, storage servers, and the links between
// them, each with how it is known. Built from what agents report (reported.h) and what files declare
// (topology_file.h); where both speak of the same adapter, what was seen counts, and that they differ is told.
//
// Compact: numbers into one table of texts, about 25 bytes a node and 30 a link (bench/results/fabric.md).
// Names: a GPU is its UUID or "HOST:gpuN"; an adapter is "HOST:DEVICE"; everything else is its own name.
// Thread rule: Immutable once built; handed on as shared_ptr<const Topology>.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/symbol.h"

namespace lockstep::fabric {

enum class NodeKind : uint8_t { kHost, kGpu, kNvlink, kPcieSwitch, kNic, kLeaf, kSpine, kSwitch, kStorage };
inline constexpr size_t kNodeKindCount = 9;
const char* to_text(NodeKind kind);  // "host", "gpu", "nvlink", "pcie", "nic", "leaf", "spine", "switch", "storage"
std::optional<NodeKind> node_kind_of(std::string_view text);
inline bool is_switch(NodeKind kind) {
  return kind == NodeKind::kLeaf || kind == NodeKind::kSpine || kind == NodeKind::kSwitch;
}

// Bits.
inline constexpr uint8_t kByAgent = 1;     // an agent read it on its own node
inline constexpr uint8_t kByLldp = 2;      // a switch said it to an agent
inline constexpr uint8_t kByFile = 4;      // --topology
std::string known_by_text(uint8_t known);  // "agent", "LLDP and file"

using NodeIndex = uint32_t;
using LinkIndex = uint32_t;
inline constexpr uint32_t kNone = 0xFFFFFFFF;

struct Node {
  Symbol name = kNoText;
  NodeIndex parent = kNone;  // host of a GPU, an adapter, an NVLink domain within it
  int16_t index = -1;        // of a GPU in its host; rail of an adapter; -1: not known
  NodeKind kind = NodeKind::kHost;
  uint8_t known = 0;
  Symbol more = kNoText;     // of a GPU its model; of an adapter its interface
  Symbol address = kNoText;  // of an adapter, a storage server
};

enum class LinkKind : uint8_t {
  kNvlink,
  kPcie,
  kNetwork,
  kMount
};                                   // kMount: a host reads and writes at a storage server
const char* to_text(LinkKind kind);  // "nvlink", "pcie", "network", "mount"

struct Link {
  NodeIndex a = kNone, b = kNone;
  Symbol port_a = kNoText, port_b = kNoText;  // empty: the node has one, or it is not known
  LinkKind kind = LinkKind::kNetwork;
  uint8_t known = 0;
  uint8_t distance = 0;  // PCIe: NCCL's path number; 0: not known
  float gbit_s = 0;      // 0: not known
};
// Of a PCIe path by NCCL's number: "PIX", "PXB", "PHB", "SYS"; "" where it is not known. And back; 0 where it is none.
const char* pcie_distance_text(uint8_t distance);
uint8_t pcie_distance_of(std::string_view text);

// "leaf-1" of "leaf-1.cluster.local": files, LLDP and switches themselves often differ in the domain. An address is all
// of it.
std::string_view short_name_of(std::string_view name);

// Where file and fabric disagree.
struct Difference {
  enum class Kind : uint8_t { kOtherPort, kNotSeen, kNotDeclared };
  Kind kind = Kind::kOtherPort;
  std::string subject;   // "node-01:mlx5_0"
  std::string expected;  // "leaf-1:Ethernet1/1"; empty: the file does not have it
  std::string seen;      // empty: nobody reports it
};
const char* to_text(Difference::Kind kind);  // "other_port", "not_seen", "not_declared"

// Where a switch sends what goes to a LID: InfiniBand's tables as the subnet manager made them.
struct ForwardingTable {
  NodeIndex at = kNone;
  std::vector<uint8_t> port_of_lid;  // 0: none
};

class Topology {
 public:
  std::span<const Node> nodes() const { return nodes_; }
  std::span<const Link> links() const { return links_; }
  std::string_view text(Symbol symbol) const { return texts_[symbol]; }
  // As commands and the API write it and find() reads it.
  std::string name(NodeIndex node) const;
  // "node-01:mlx5_0" of a network link's end, "leaf-1:Ethernet1/1".
  std::string port_name(LinkIndex link, NodeIndex end) const;

  // By name, as above; an adapter also by its interface. nullopt: there is none.
  std::optional<NodeIndex> find(std::string_view name) const;
  std::optional<NodeIndex> find_gpu(std::string_view host, int32_t index) const;
  // A switch also by a name that differs from its own in the domain, where no other has that one.
  std::optional<NodeIndex> find_switch(std::string_view name) const;
  // Names like it, for a line that says there is none.
  std::vector<std::string> names_like(std::string_view name) const;

  std::span<const NodeIndex> children(NodeIndex node) const;  // of a host
  std::span<const LinkIndex> links_of(NodeIndex node) const;
  NodeIndex other_end(LinkIndex link, NodeIndex end) const {
    return links_[link].a == end ? links_[link].b : links_[link].a;
  }

  // A GPU's adapter: the one that its agent names for it, else the nearest; of several as near, how many there are.
  struct Adapter {
    LinkIndex link = kNone;
    NodeIndex nic = kNone;
    size_t as_near = 1;
  };
  std::optional<Adapter> adapter_of(NodeIndex gpu) const;
  std::optional<NodeIndex> nvlink_of(NodeIndex gpu) const;
  // The network link of an adapter; with several the first.
  std::optional<LinkIndex> uplink_of(NodeIndex nic) const;

  const ForwardingTable* forwarding_of(NodeIndex node) const;
  uint16_t lid_of(NodeIndex nic) const;  // 0: not known
  bool has_forwarding() const { return !forwarding_.empty(); }

  const std::vector<Difference>& differences() const { return differences_; }
  size_t differences_left_out() const { return differences_left_out_; }
  size_t count(NodeKind kind) const { return counts_[static_cast<size_t>(kind)]; }
  size_t memory_bytes() const;

  static constexpr size_t kDifferencesMax = 10'000;  // further ones are counted

 private:
  friend class TopologyBuilder;

  TextTable texts_;
  std::vector<Node> nodes_;
  std::vector<Link> links_;
  std::vector<uint32_t> links_begin_;     // by node, one more
  std::vector<LinkIndex> links_by_node_;  // of each node together
  std::vector<uint32_t> children_begin_;
  std::vector<NodeIndex> children_by_node_;
  std::vector<NodeIndex> by_name_;                    // all but adapters, in the order of their names
  std::vector<ForwardingTable> forwarding_;           // by node
  std::vector<std::pair<NodeIndex, uint16_t>> lids_;  // by node
  std::vector<Difference> differences_;
  size_t differences_left_out_ = 0;
  size_t counts_[kNodeKindCount] = {};
};

struct ReportedHosts;
struct Declared;
std::shared_ptr<const Topology> build_topology(const ReportedHosts& reported, const Declared& declared);

}  // namespace lockstep::fabric
