// What files say of the fabric (--topology, docs/guide/fabric.md): our own YAML, a containerlab topology, the outputs of
// ibnetdiscover, dump_lfts and `lldpctl -f json`. Which of these a file is, its content says.
//
// Limits: TopologyFileLimits; more is an error, never a cut.
// On error: one line, "FILE:LINE: what is wrong"; nothing of that file counts.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "fabric/topology.h"

namespace lockstep::fabric {

struct TopologyFileLimits {
  size_t bytes_max = 256u << 20;
  size_t yaml_bytes_max = 32u << 20;  // yaml-cpp makes some 50 bytes of each
  size_t nodes_max = 1'000'000;       // and as many adapters, GPUs, and hosts in NVLink domains
  size_t links_max = 2'000'000;
  size_t name_bytes_max = 256;
  size_t forwarding_entries_max = 64'000'000;  // a byte each
};

// "node-01:mlx5_0", "leaf-1:Ethernet1/1": a node, and its port behind the first colon.
struct Endpoint {
  std::string node;
  std::string port;
  bool operator==(const Endpoint&) const = default;
};

struct DeclaredNode {
  std::string name;
  NodeKind kind = NodeKind::kSwitch;  // kHost, kLeaf, kSpine, kSwitch (of which the links say what it is), kStorage
  int32_t gpus = 0;                   // of a host
  bool nvlink = false;                // they are joined
  std::string address = {};           // of storage
};

struct DeclaredNic {
  Endpoint nic;
  int32_t gpu = -1;  // index of the GPU it is for
  int32_t rail = -1;
  std::string address;
};

struct DeclaredLink {
  Endpoint a, b;
  double gbit_s = 0;  // 0: not said
};

struct DeclaredNvlink {
  std::string name;
  std::vector<std::string> hosts;
};

struct Declared {
  std::vector<DeclaredNode> nodes;
  std::vector<DeclaredNic> nics;
  std::vector<DeclaredLink> links;
  std::vector<DeclaredNvlink> nvlink_domains;
  std::map<std::string, std::vector<uint8_t>> forwarding;   // by the switch's name
  std::vector<std::pair<Endpoint, uint16_t>> lids;          // of adapters
  std::map<std::string, std::string> switch_names_by_guid;  // of InfiniBand
  size_t gpus = 0;                                          // of all nodes that append() took
  bool empty() const { return nodes.empty() && links.empty() && nics.empty() && forwarding.empty(); }
};

// Adds what the text declares. file_name: for lines, and the host of an lldpctl output ("node-01.json").
Result<void> parse_topology(std::string_view text, std::string_view file_name, Declared& into,
                            const TopologyFileLimits& limits = {});
// Reads all of them, in this order; the first error ends it.
Result<Declared> read_topology_files(const std::vector<std::string>& paths);

// Adds what one file declares. Else one line without the file's name: more of something than the limits allow.
Result<void> append(Declared&& declared, Declared& into, const TopologyFileLimits& limits);

// Each format on its own.
Result<void> parse_topology_yaml(std::string_view text, std::string_view file, Declared& into,
                                 const TopologyFileLimits& limits);
Result<void> parse_ibnetdiscover(std::string_view text, std::string_view file, Declared& into,
                                 const TopologyFileLimits& limits);
Result<void> parse_forwarding(std::string_view text, std::string_view file, Declared& into,
                              const TopologyFileLimits& limits);
Result<void> parse_lldpctl(std::string_view text, std::string_view file, Declared& into,
                           const TopologyFileLimits& limits);

// What an InfiniBand node calls itself: "MF0;leaf-1:MSB7700/U1" is leaf-1; "node-01 mlx5_0" and "node-01 HCA-1" are the
// adapter mlx5_0 of node-01.
std::string switch_of_description(std::string_view description);
Endpoint nic_of_description(std::string_view description);

}  // namespace lockstep::fabric
