#include "sources/host/host_source.h"

#include <sys/timex.h>
#include <unistd.h>

#include <utility>

#include "base/text.h"
#include "sources/host/cgroup_part.h"
#include "sources/host/clock_part.h"
#include "sources/host/cpu_part.h"
#include "sources/host/host_files.h"
#include "sources/host/memory_part.h"
#include "sources/host/pressure_part.h"
#include "sources/host/proc_text.h"
#include "sources/host/process_walk.h"
#include "sources/host/storage_part.h"
#include "sources/host/system_part.h"
#include "sources/host/thread_watch.h"

namespace lockstep {
namespace {

using namespace host;

class HostSource final : public NodeSource {
 public:
  explicit HostSource(HostSourceOptions options)
      : options_(std::move(options)),
        files_(options_.root),
        clock_(files_),
        pressure_(files_),
        walk_(files_),
        threads_(files_, options_),
        cpu_(files_),
        memory_(files_),
        storage_(files_),
        system_(files_),
        cgroups_(files_) {}

  const char* name() const override { return "host"; }

  void read(const Tick& tick, NodeReadings& out) override {
    files_.begin(&out);
    clock_.read_fast(tick, out);
    pressure_.read(tick.slow, out);
    // Before the threads, which want to know whose children are whose.
    if (tick.slow) walk_.start();
    bool walked = walk_.go(options_.walk_budget_ns);
    if (tick.slow) {
      threads_.read_slow(tick, walk_.processes(), out);
      cpu_.read_slow(threads_.busy_cpus(), out);
      memory_.read_slow(out);
      storage_.read_slow(out);
      system_.read_slow(out);
      cgroups_.read_slow(threads_.gpu_of_trainers(), out);
      clock_.read_slow(out);
    } else {
      threads_.read_fast(tick, out);
    }
    if (walked) system_.publish_stuck(walk_.processes(), threads_, out);
    files_.begin(nullptr);
  }

  std::vector<SourceCheck> check() override;

 private:
  SourceCheck check_file(const char* what, const std::string& path, const char* todo) {
    bool works = files_.readable(path);
    return {what, works, options_.root + path + (works ? "" : ": cannot be read"), works ? "" : todo};
  }

  HostSourceOptions options_;
  HostFiles files_;
  ClockPart clock_;
  PressurePart pressure_;
  ProcessWalk walk_;
  ThreadWatch threads_;
  CpuPart cpu_;
  MemoryPart memory_;
  StoragePart storage_;
  SystemPart system_;
  CgroupPart cgroups_;
};

std::vector<SourceCheck> HostSource::check() {
  std::vector<SourceCheck> checks;
  checks.push_back(check_file("CPU times", "/proc/stat", "mount /proc"));
  checks.push_back(check_file("pressure stall information", "/proc/pressure/cpu",
                              "boot with psi=1 on the kernel's command line (kernel 4.20 or newer)"));
  std::string self = options_.root.empty() ? std::to_string(getpid()) : "1";
  checks.push_back(check_file("scheduling delay of threads", "/proc/" + self + "/schedstat",
                              "use a kernel with CONFIG_SCHED_INFO (all distributions' have it)"));
  checks.push_back(check_file("processes of other users", "/proc/1/stat",
                              "run the agent as root, or mount /proc without hidepid; in a container, with the host's "
                              "pid namespace"));
  checks.push_back(check_file("NFS counters of the host", "/proc/1/mountstats",
                              "run the agent as root in the host's pid namespace; else it sees its own mounts alone"));

  SourceCheck clock{"clock discipline", false, "adjtimex(2) gives nothing", "allow the system call adjtimex"};
  if (auto state = clock_.state()) {
    clock.works = (state->status & STA_UNSYNC) == 0;
    clock.found = clock.works
                      ? format("synchronised, error at most %.1f ms", static_cast<double>(state->maxerror_us) / 1e3)
                      : "the kernel's clock follows no time server";
    clock.todo = clock.works ? "" : "run chronyd or another time daemon: ranks cannot be compared in time otherwise";
  }
  checks.push_back(std::move(clock));
  return checks;
}

}  // namespace

std::unique_ptr<NodeSource> open_host_source(HostSourceOptions options) {
  return std::make_unique<HostSource>(std::move(options));
}

}  // namespace lockstep
