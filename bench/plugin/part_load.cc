// A job's pace, and as fast as it goes, while somebody reads along.
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>

#include "bench/plugin/allocations.h"
#include "bench/plugin/job.h"

namespace lockstep::plugin_bench {
namespace {

void sleep_until(uint64_t monotonic) {
  const timespec when{static_cast<time_t>(monotonic / 1'000'000'000), static_cast<long>(monotonic % 1'000'000'000)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, nullptr) == EINTR) {
  }
}

}  // namespace

// For how long, not how many: whoever reads along has to keep up with it. A slow call is laid to the machine's charge
// where the thread was preempted during that collective.
void part_load(Job& job, const PartOptions& options, const Emit& emit) {
  const std::string& part = options.part;
  job.init(kCommunicators);
  Shapes shapes(job.host);
  warm_up(job, shapes, kWarmUp / 2);
  ::usleep(300'000);  // whoever reads along is to start with nothing left to read
  auto meter = Meter::make();
  meter->slow_ticks = job.timer.ticks(kSlowNs);
  uint64_t undisturbed = 0, faulted = 0;
  rusage before{}, after{};
  const uint64_t allocated = allocations_of_this_thread();
  const uint64_t from_ns = monotonic_ns(), to_ns = from_ns + static_cast<uint64_t>(options.seconds) * 1'000'000'000;
  uint64_t number = 0;
  for (uint64_t now_ns = from_ns; now_ns < to_ns; now_ns = monotonic_ns(), ++number) {
    if (part == "paced") sleep_until(from_ns + number * (1'000'000'000 / kPacedPerSecond));
    const uint64_t slow = meter->slow;
    getrusage(RUSAGE_THREAD, &before);
    job.play_next<true>(shapes.alternating(number), shapes.handles, meter.get());
    getrusage(RUSAGE_THREAD, &after);
    if (after.ru_nivcsw == before.ru_nivcsw) undisturbed += meter->slow - slow;
    faulted += static_cast<uint64_t>(after.ru_minflt - before.ru_minflt);
  }
  emit(part + "/allocations", as_double(allocations_of_this_thread() - allocated) / as_double(number));
  emit(part + "/collectives", as_double(number));
  emit(part + "/slow", as_double(meter->slow));
  emit(part + "/slow_undisturbed", as_double(undisturbed));
  emit(part + "/page_faults", as_double(faulted));
  emit_meter(emit, part, *meter, job.timer);
  const Histogram all = meter->all();
  const uint64_t usual = std::max<uint64_t>(1, all.count() - meter->slow);
  emit(part + "/usual_mean", job.timer.ns(as_double(all.sum() - meter->slow_sum) / as_double(usual)));
}

}  // namespace lockstep::plugin_bench
