// Any bytes as a dump of PyTorch's Flight Recorder: a dump within its limits that survives being sent, or one line.
#include "model/rank_evidence.h"
#include "sources/nccl/flight_dump_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  Result<FlightDump> dump = read_flight_dump(std::string(reinterpret_cast<const char*>(data), size));
  if (!dump.ok()) {
    if (dump.error().empty() || dump.error().find('\n') != std::string::npos) __builtin_trap();
    return 0;
  }
  if (dump->groups.size() > kDumpGroupsMax) __builtin_trap();
  Result<FlightDump> back = flight_dump_from_record(to_record(*dump));
  if (!back.ok()) __builtin_trap();
  return 0;
}
