#include "sources/gpu/gpu_child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/files.h"
#include "base/text.h"
#include "sources/gpu/gpu_readings.h"
#include "sources/gpu/snapshot_json.h"

namespace lockstep {
namespace {

constexpr size_t kRequestBytesMax = 4096;
constexpr useconds_t kBetweenReadingsUs = 250'000;  // the hardware's counters need 100 ms

// Lines of the standard input, one at a time; false at its end, or if it is not lines.
class Requests {
 public:
  bool next(std::string& line) {
    while (true) {
      const size_t newline = buffered_.find('\n');
      if (newline != std::string::npos) {
        line = buffered_.substr(0, newline);
        buffered_.erase(0, newline + 1);
        return true;
      }
      if (buffered_.size() > kRequestBytesMax) return false;
      char chunk[512];
      const ssize_t got = read(STDIN_FILENO, chunk, sizeof chunk);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      buffered_.append(chunk, static_cast<size_t>(got));
    }
  }

 private:
  std::string buffered_;
};

bool say(int fd, const std::string& line) {
  return write_all(fd, line + "\n").ok();
}

}  // namespace

Result<std::vector<OpenReader>> open_gpu_readers(const GpuChildOptions& options) {
  struct Vendor {
    const char* vendor;
    const char* name;
    Result<std::unique_ptr<GpuReader>> (*open)(const std::string& library);
    const std::string& library;
  };
  const Vendor vendors[] = {{"nvidia", "nvml", open_nvml_reader, options.nvml_library},
                            {"amd", "amdsmi", open_amdsmi_reader, options.amdsmi_library}};
  std::vector<OpenReader> readers;
  std::string failures;
  for (const Vendor& vendor : vendors) {
    if (options.vendor != "auto" && options.vendor != vendor.vendor) continue;
    Result<std::unique_ptr<GpuReader>> reader = vendor.open(vendor.library);
    if (reader.ok()) {
      readers.push_back({vendor.name, std::move(*reader)});
    } else {
      failures += (failures.empty() ? "" : "; ") + reader.error();
    }
  }
  if (!readers.empty()) return readers;
  if (failures.empty()) failures = format("no GPU vendor \"%s\": auto, nvidia or amd", options.vendor.c_str());
  return Error{failures};
}

Result<GpuSnapshot> read_all(std::vector<OpenReader>& readers, const GpuTick& tick) {
  GpuSnapshot all;
  all.unix_ns = tick.unix_ns;
  for (OpenReader& open : readers) {
    GpuSnapshot one = LOCKSTEP_TRY(open.reader->read(tick));
    auto append = [](auto& to, auto& from) {
      to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
    };
    append(all.gpus, one.gpus);
    append(all.processes, one.processes);
    append(all.events, one.events);
    append(all.notes, one.notes);
    all.processes_read = all.processes_read || one.processes_read;
  }
  return all;
}

int run_gpu_child(const GpuChildOptions& options) {
  // The parent asked for this already; a program with file capabilities loses it in exec.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGPIPE, SIG_IGN);
  // Some libraries print their troubles to the standard output.
  const UniqueFd answers(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  dup2(STDERR_FILENO, STDOUT_FILENO);

  Result<std::vector<OpenReader>> readers = open_gpu_readers(options);
  if (!readers.ok()) {
    say(answers.get(), gpu_error_line(readers.error(), true));
    return 0;
  }
  std::string names;
  for (const OpenReader& open : *readers) names += (names.empty() ? "" : ", ") + open.name;
  if (!say(answers.get(), gpu_ready_line(names))) return 0;

  const SystemClock clock;
  Requests requests;
  GpuSnapshotWriter writer;
  std::string line;
  while (requests.next(line)) {
    const Result<GpuRequest> request = parse_gpu_request(line);
    if (!request.ok()) {
      say(answers.get(), gpu_error_line(request.error(), false));
      return 1;
    }
    const Result<GpuSnapshot> snapshot =
        read_all(*readers, {.unix_ns = clock.unix_ns(), .slow = request->slow, .processes = request->processes});
    if (!snapshot.ok()) {
      say(answers.get(), gpu_error_line(snapshot.error(), false));
      return 1;
    }
    if (!say(answers.get(), writer.line(request->number, *snapshot))) return 0;
  }
  return 0;  // the readers go, and with them every handle
}

Result<std::string> describe_gpus(const GpuChildOptions& options) {
  std::vector<OpenReader> readers = LOCKSTEP_TRY(open_gpu_readers(options));
  const SystemClock clock;
  const GpuTick everything{.unix_ns = clock.unix_ns(), .slow = true, .processes = true};
  GpuSnapshot first = LOCKSTEP_TRY(read_all(readers, everything));
  usleep(kBetweenReadingsUs);
  GpuSnapshot second = LOCKSTEP_TRY(read_all(readers, {.unix_ns = clock.unix_ns(), .slow = true, .processes = true}));
  // What is said once was said the first time.
  second.notes.insert(second.notes.begin(), first.notes.begin(), first.notes.end());
  second.events.insert(second.events.begin(), first.events.begin(), first.events.end());
  return to_text(second);
}

namespace {

// As a person would write it: shares in percent, bytes, clocks and times in a unit that fits.
std::string human_value(const MetricDescriptor& metric, double value) {
  const std::string_view unit = metric.unit;
  // Unit 1 is a share only where it is noisy (it has a quantum); else it is a state, a flag or a version.
  if (unit == "1") return metric.quantum > 0 ? format("%.1f %%", 100 * value) : format("%.10g", value);
  if (unit == "By") return human_bytes(value);
  if (unit == "By/s") return human_bytes(value) + "/s";
  if (unit == "s") return value == 0 ? "0 s" : human_duration(value * 1e9);
  if (unit == "Hz") return format("%.0f MHz", value / 1e6);
  if (unit == "Cel") return format("%.0f °C", value);
  if (unit == "W" || unit == "J") return format("%.1f %s", value, metric.unit);
  // "{error}": what is counted.
  return format("%.10g %s", value, unit.size() > 2 ? std::string(unit.substr(1, unit.size() - 2)).c_str() : "");
}

}  // namespace

std::string to_text(const GpuSnapshot& snapshot) {
  std::string text;
  for (const GpuState& gpu : snapshot.gpus) {
    const GpuInfo& info = gpu.info;
    text += format("GPU %d  %s  %s  %s  driver %s%s%s%s\n", info.index, info.uuid.c_str(), info.model.c_str(),
                   info.pci.c_str(), info.driver.c_str(), info.parent_uuid.empty() ? "" : "  part of ",
                   info.parent_uuid.c_str(), gpu.lost ? "  LOST" : "");
    for (const GpuValue& value : gpu.values) {
      const std::string_view label = second_label(value.metric->labels);
      std::string name = value.metric->name;
      if (!value.label.empty())
        name += format("{%.*s=%s}", static_cast<int>(label.size()), label.data(), value.label.c_str());
      text += format("  %-64s %s\n", name.c_str(), human_value(*value.metric, value.value).c_str());
    }
    for (const GpuProcess& process : snapshot.processes) {
      if (process.gpu_uuid == info.uuid)
        text +=
            format("  process %d: %s\n", process.pid, human_bytes(static_cast<double>(process.memory_bytes)).c_str());
    }
  }
  if (snapshot.gpus.empty()) text += "no GPU\n";
  for (const GpuEvent& event : snapshot.events)
    text +=
        format("event: %s %s %lld\n", event.gpu_uuid.c_str(), event.kind.c_str(), static_cast<long long>(event.code));
  for (const std::string& note : snapshot.notes) text += "note: " + note + "\n";
  return text;
}

}  // namespace lockstep
