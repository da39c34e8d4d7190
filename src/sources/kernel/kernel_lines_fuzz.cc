// Whatever the kernel's log holds: every event that comes of it can be sent and read again.
#include <cstdlib>

#include "base/text.h"
#include "sources/kernel/event_fusion.h"
#include "sources/kernel/kernel_lines.h"
#include "sources/kernel/kernel_log.h"

namespace {

using namespace lockstep;

void check(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  KernelLineParser parser;
  EventFusion fusion;
  OwnerTable owners;
  owners.gpus.emplace_back().uuid = "GPU-a";
  owners.gpus.back().pci = "0000:1b:00.0";
  owners.gpus.back().driver = "570.1";
  owners.by_gpu["GPU-a"].job_id = "job";
  Tick tick;
  tick.unix_ns = 1'700'000'000'000'000'000;
  tick.monotonic_ns = 1'000'000'000'000;
  tick.owners = &owners;
  std::vector<NodeEvent> events;
  std::string text;
  for (std::string_view line : split(input, '\n')) {
    fusion.begin(tick, true);
    KernelRecord record;
    // A whole record, or the text of one: nearly every mutation of the front would end before the text.
    if (std::optional<KernelRecord> parsed = parse_kernel_record(line)) {
      record = *parsed;
      check(record.seq >= 0 && record.stamp_us >= 0 && record.priority >= 0 && record.priority <= 7);
    } else {
      record.text = line;
    }
    unescape_kernel_text(record.text, text);
    check(text.size() <= record.text.size());
    record.text = text;
    record.time_unix_ns = tick.unix_ns;
    if (std::optional<KernelLine> found = parser.parse(record.text)) {
      check(found->name.empty() ? !found->gpu_uuid.empty() : found->name.find('.') != std::string_view::npos);
      check(found->pid >= -1 && found->code >= -1 && found->sub_code >= -1);
      check(found->meaning != nullptr && found->action != nullptr);
      fusion.line(*found, record);
    }
    if (!line.empty() && line.front() == '!') {
      fusion.driver({"GPU-a", line.size() % 3 == 0 ? "recovery_action" : "xid", static_cast<int64_t>(line.size()) * 7,
                     tick.unix_ns});
    }
    fusion.finish(events);
    tick.unix_ns += 400'000'000;
    tick.monotonic_ns += 400'000'000;
  }
  for (int i = 0; i < 4; ++i) {
    tick.monotonic_ns += 1'000'000'000;
    fusion.begin(tick, true);
    fusion.finish(events);
  }
  check(!fusion.holding());
  for (const NodeEvent& event : events) {
    check(event.count >= 1 && event.text.size() <= kKernelLineMax);
    check(node_event_from_record(to_record(event)).ok());
  }
  NodeReadings readings;
  fusion.add_readings(readings);
  for (const Reading& reading : readings.readings) check(reading.labels != nullptr && reading.value >= 0);
  return 0;
}
