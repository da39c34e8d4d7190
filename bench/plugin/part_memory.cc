// Many communicators: what each costs to make and to keep.
#include <fstream>

#include "bench/plugin/job.h"

namespace lockstep::plugin_bench {
namespace {

// A line "Name:   1234 kB" of a file of /proc; 0 where there is none.
double proc_kb(const char* file, const std::string& name) {
  std::ifstream in(file);
  for (std::string word; in >> word;) {
    double kb = 0;
    if (word == name && in >> kb) return kb;
  }
  return 0;
}
double resident_kb() {
  return proc_kb("/proc/self/smaps_rollup", "Rss:");
}

}  // namespace

void part_memory(Job& job, const PartOptions& options, const Emit& emit) {
  constexpr double kLeaveKb = 3 << 20;  // to the rest of the machine
  Shapes shapes(job.host);
  job.contexts.reserve(kMemoryCommunicators);
  std::vector<double> init_ns;
  init_ns.reserve(kMemoryCommunicators);
  const double before_kb = resident_kb();
  double first_kb = 0;
  while (job.contexts.size() < kMemoryCommunicators && proc_kb("/proc/meminfo", "MemAvailable:") > kLeaveKb) {
    const uint64_t from = monotonic_ns();
    job.init_one();
    init_ns.push_back(as_double(monotonic_ns() - from));
    if (job.contexts.size() == 1) first_kb = resident_kb() - before_kb;
  }
  const auto count = static_cast<double>(job.contexts.size());
  emit("memory/communicators", count);
  emit("memory/first_kb", first_kb);
  const double all_kb = resident_kb() - before_kb;
  emit("memory/init_kb", all_kb / count);
  if (count > 1) emit("memory/further_kb", (all_kb - first_kb) / (count - 1));
  const int64_t each = std::max<int64_t>(20, options.collectives / 100);
  for (uint64_t i = 0; i < static_cast<uint64_t>(each) * job.contexts.size(); ++i) {
    job.play_next<false>(shapes.alternating(i / job.contexts.size()), shapes.handles, nullptr);
  }
  emit("memory/run_kb", (resident_kb() - before_kb) / count);
  emit("memory/init_first_ns", init_ns[0]);
  std::sort(init_ns.begin() + 1, init_ns.end());
  if (init_ns.size() > 1) emit("memory/init_ns", init_ns[init_ns.size() / 2]);
}

}  // namespace lockstep::plugin_bench
