#include "sources/kernel/kernel_source.h"

#include <cerrno>
#include <cstring>

#include "base/text.h"
#include "sources/kernel/event_fusion.h"
#include "sources/kernel/kernel_lines.h"
#include "sources/kernel/kernel_log.h"
#include "sources/kernel/kernel_metrics.h"

namespace lockstep {
namespace {

class KernelSource final : public NodeSource {
 public:
  explicit KernelSource(const KernelSourceOptions& options)
      : root_(options.root),
        log_({options.log.empty() ? options.root + "/dev/kmsg" : options.log,
              options.root + "/proc/sys/kernel/random/boot_id", options.state_file}),
        no_labels_(std::make_shared<const Labels>()) {}

  const char* name() const override { return "kernel"; }

  void read(const Tick& tick, NodeReadings& out) override {
    fusion_.begin(tick, log_.is_open());
    const auto take = [&](const KernelRecord& record) {
      if (std::optional<KernelLine> line = parser_.parse(record.text)) fusion_.line(*line, record);
    };
    log_.read(tick.monotonic_ns, tick.unix_ns, take);
    if (tick.gpu_events != nullptr) {
      for (const GpuEvent& event : *tick.gpu_events) fusion_.driver(event);
    }
    const size_t events_before = out.events.size();
    fusion_.finish(out.events);
    reported_ |= out.events.size() > events_before;
    // What is held back would be lost with us: its place is not kept yet.
    if (!fusion_.holding() && log_.done(tick.monotonic_ns, reported_)) reported_ = false;

    fusion_.add_readings(out);
    if (log_.is_open()) {
      out.add(kKernelLinesTotal, no_labels_, static_cast<double>(log_.records()));
      out.add(kKernelLinesLost, no_labels_, static_cast<double>(log_.lost()));
    }
    if (log_.malformed() > malformed_) {
      out.failures += log_.malformed() - malformed_;
      if (malformed_ == 0)
        out.notes.push_back(
            format("kernel log: %s has a line that is no record; such lines are left out", log_.path().c_str()));
      malformed_ = log_.malformed();
    }
    if (std::string note = log_.take_note(); !note.empty()) out.notes.push_back(std::move(note));
    if (log_.is_open()) {
      said_ = false;
    } else if (!said_) {
      said_ = true;
      const SourceCheck state = check().front();
      out.notes.push_back("kernel log: " + state.found + "; " + state.todo);
    }
  }

  std::vector<SourceCheck> check() override {
    SourceCheck check{"kernel log", log_.is_open(), "", ""};
    const int error = log_.open_error();
    if (log_.is_open()) {
      check.found = log_.path() + " can be read";
      return {check};
    }
    check.found = log_.path() + ": " + (error == 0 ? "cannot be read" : std::strerror(error));
    if (error == EACCES || error == EPERM) {
      const Result<std::string> restricted = read_file(root_ + "/proc/sys/kernel/dmesg_restrict", 64);
      const bool is_restricted = !restricted.ok() || trim(*restricted) != "0";
      check.todo = is_restricted ? "give the agent CAP_SYSLOG, or set sysctl kernel.dmesg_restrict=0"
                                 : "let the agent's user read it (mode, or the container's device rules)";
    } else if (error == ENOENT) {
      check.todo = "in a container: mount the host's /dev/kmsg (--kernel-log FILE if elsewhere)";
    } else {
      check.todo = "XIDs come from the driver alone, without text";
    }
    return {check};
  }

 private:
  std::string root_;
  KernelLog log_;
  KernelLineParser parser_;
  EventFusion fusion_;
  LabelSet no_labels_;
  int64_t malformed_ = 0;
  bool reported_ = false;  // since the place was last kept
  bool said_ = false;
};

}  // namespace

std::unique_ptr<NodeSource> open_kernel_source(const KernelSourceOptions& options) {
  return std::make_unique<KernelSource>(options);
}

}  // namespace lockstep
