// Whatever is accepted keeps to the limits that the header promises, and survives the way back.
#include <cmath>
#include <cstdlib>

#include "base/text.h"
#include "sources/gpu/snapshot_json.h"

namespace {

using namespace lockstep;

void check(bool holds) {
  if (!holds) std::abort();
}

bool is_fine(const std::string& text) {
  return text.size() <= kGpuLineTextMax && !has_control_characters(text);
}

void check_snapshot(const GpuSnapshot& snapshot) {
  check(snapshot.gpus.size() <= kGpuLineGpusMax && snapshot.processes.size() <= kGpuLineProcessesMax);
  check(snapshot.events.size() <= kGpuLineEventsMax && snapshot.notes.size() <= kGpuLineNotesMax);
  for (const GpuState& gpu : snapshot.gpus) {
    check(!gpu.info.uuid.empty() && is_fine(gpu.info.uuid) && is_fine(gpu.info.model) && is_fine(gpu.info.pci));
    check(gpu.info.index >= -1 && gpu.values.size() <= kGpuLineValuesMax);
    for (const GpuValue& value : gpu.values)
      check(value.metric != nullptr && std::isfinite(value.value) && is_fine(value.label));
  }
  for (const GpuProcess& process : snapshot.processes) check(process.pid > 0 && is_fine(process.gpu_uuid));
  for (const GpuEvent& event : snapshot.events) check(!event.kind.empty() && is_fine(event.kind));
  for (const std::string& note : snapshot.notes) check(is_fine(note));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  GpuLineReader reader;
  // Lines, because a reader remembers what a GPU is from one to the next.
  for (std::string_view line : split(text, '\n')) {
    const Result<GpuLine> read = reader.read(line);
    if (!read.ok()) {
      check(!read.error().empty() && !has_control_characters(read.error()));
      continue;
    }
    check(is_fine(read->text));
    check_snapshot(read->snapshot);
    if (read->kind != GpuLine::Kind::kSnapshot) continue;
    GpuLineReader other;
    const Result<GpuLine> again = other.read(GpuSnapshotWriter().line(read->request, read->snapshot));
    // Texts may grow: bytes that are no UTF-8 become three each.
    if (again.ok()) check(again->snapshot.gpus.size() == read->snapshot.gpus.size());
    check(again.ok() || text.size() > 170);
  }
  (void)parse_gpu_request(text);
  return 0;
}
