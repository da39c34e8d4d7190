// Apart from reader.cc, of which the libraries in a job carry a part: they ask for no other process.
#include "recorder/reader.h"

namespace lockstep {

std::optional<ProcessState> writer_state(const RecorderReader& reader, const RecorderHeader& header) {
  const ProcessState process = process_state(header.pid);
  if (process.start_ticks != 0 && process.start_ticks == header.process_start_ticks) return process;
  return reader.held() ? std::optional(ProcessState{}) : std::nullopt;
}

}  // namespace lockstep
