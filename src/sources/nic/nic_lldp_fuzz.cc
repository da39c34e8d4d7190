// Any frame: refused with a line, or read into plain text.
#include <cstdlib>
#include <string>

#include "base/text.h"
#include "sources/nic/lldp.h"

namespace {

void parse(lockstep::Bytes frame) {
  using namespace lockstep;
  Result<LldpNeighbour> neighbour = parse_lldp_frame(frame);
  if (!neighbour) {
    if (neighbour.error().empty()) std::abort();
    return;
  }
  if (has_control_characters(neighbour->leaf()) || has_control_characters(neighbour->leaf_port())) std::abort();
  if (neighbour->leaf().size() > 2048 || neighbour->ttl_seconds < 0) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  parse({data, size});
  // And as what follows an Ethernet header, so that most tries reach the elements.
  std::string frame(12, '\x02');
  frame += "\x88\xcc";
  frame.append(reinterpret_cast<const char*>(data), size);
  parse({reinterpret_cast<const uint8_t*>(frame.data()), frame.size()});
  return 0;
}
