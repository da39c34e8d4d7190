#include "bench/plugin/parts.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/text.h"
#include "bench/plugin/job.h"
#include "recorder/reader.h"

namespace lockstep::plugin_bench {
namespace {

// Ours says itself what it could not take, and which collectives it did not see to their end.
Result<void> check_recorder(const Emit& emit) {
  const char* folder = std::getenv("LOCKSTEP_RECORDER_DIR");
  if (folder == nullptr) return Error{"no LOCKSTEP_RECORDER_DIR"};
  uint64_t files = 0, refused = 0, enqueued = 0, incomplete = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const auto reader = LOCKSTEP_TRY(RecorderReader::open(entry.path()));
    const RecorderHeader header = reader->header();
    if (header.pid != ::getpid()) continue;
    files += 1;
    // Flat out, the agent asks for less detail rather than to lose records: ends are then not told.
    const bool lowered = header.control != 0;
    const uint64_t ends = lowered ? header.refused[static_cast<size_t>(Refused::kCompletion)] : 0;
    refused += header.refused_total() - ends + header.lanes_refused + header.switched_off;
    for (size_t i = 0; i < kRefusedReasons; ++i) {
      if (header.refused[i] != 0 && !(lowered && static_cast<Refused>(i) == Refused::kCompletion)) {
        emit(std::string("check/refused_") + to_text(static_cast<Refused>(i)), as_double(header.refused[i]));
      }
    }
    for (const InFlightComm& comm : reader->in_flight()) {
      enqueued += comm.collectives_enqueued;
      if (!lowered) incomplete += comm.collectives_enqueued - comm.collectives_completed;
    }
  }
  emit("check/files", as_double(files));
  emit("check/refused", as_double(refused));
  emit("check/enqueued", as_double(enqueued));
  emit("check/incomplete", as_double(incomplete));
  return {};
}

}  // namespace

Result<void> run_part(const PartOptions& options, const Emit& emit) {
  Host host = LOCKSTEP_TRY(Host::open(options.plugin));
  Job job{.host = std::move(host)};
  const std::string& part = options.part;
  if (part.starts_with("recording:")) return part_recording(job, emit, part.substr(10));
  if (part == "calls") {
    part_calls(job, options, emit);
  } else if (part == "batched") {
    part_batched(job, options, emit);
  } else if (part == "memory") {
    part_memory(job, options, emit);
  } else if (part == "paced" || part == "flat") {
    part_load(job, options, emit);
  } else if (part.starts_with("comms:")) {
    const auto count = parse_int(part.substr(6));
    if (!count || *count < 1 || *count > 1024) return Error{"comms: 1 to 1024 communicators, not " + part.substr(6)};
    part_comms(job, options, emit, static_cast<int>(*count));
  } else if (part.starts_with("threads:")) {
    const auto count = parse_int(part.substr(8));
    if (!count || *count < 1 || *count > 16) return Error{"threads: 1 to 16 communicators, not " + part.substr(8)};
    part_threads(job, options, emit, static_cast<int>(*count));
  } else {
    return Error{"no part \"" + part + "\""};
  }
  if (options.check_recorder) {
    LOCKSTEP_TRY(check_recorder(emit));
  }
  job.finalize();
  return {};
}

}  // namespace lockstep::plugin_bench
