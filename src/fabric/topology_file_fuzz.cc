// Any content of a topology file, and a topology built of it.
#include <cstdlib>
#include <string_view>

#include "fabric/path.h"
#include "fabric/reported.h"
#include "fabric/topology_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::fabric;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  const TopologyFileLimits limits{.nodes_max = 1000, .links_max = 1000, .forwarding_entries_max = 1 << 20};
  Declared declared;
  lockstep::Result<void> done;
  switch (data[0] % 5) {
    case 0:
      done = parse_topology_yaml(text, "f", declared, limits);
      break;
    case 1:
      done = parse_ibnetdiscover(text, "f", declared, limits);
      break;
    case 2:
      done = parse_forwarding(text, "f", declared, limits);
      break;
    case 3:
      done = parse_lldpctl(text, "f", declared, limits);
      break;
    default:
      done = parse_topology(text, "f", declared, limits);
  }
  if (!done.ok()) {
    if (!declared.empty() || done.error().find('\n') != std::string::npos) std::abort();
    return 0;
  }
  const auto topology = build_topology(ReportedHosts{}, declared);
  NodeIndex first = kNone;
  for (NodeIndex i = 0; i < topology->nodes().size(); ++i) {
    if (topology->nodes()[i].kind != NodeKind::kGpu) continue;
    if (first == kNone) first = i;
    if (find_path(*topology, {.a = first, .b = i}, nullptr).hops.empty()) std::abort();
  }
  return 0;
}
