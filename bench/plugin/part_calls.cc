// One call at a time, one thread: each kind of call, whole collectives, and the process when nothing happens.
#include <sys/resource.h>
#include <unistd.h>

#include "bench/plugin/allocations.h"
#include "bench/plugin/job.h"

namespace lockstep::plugin_bench {
namespace {

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

void part_calls(Job& job, const PartOptions& options, const Emit& emit) {
  job.init(kCommunicators);
  emit("interface", job.host.version());
  emit("mask", as_double(job.host.wanted()));
  Shapes shapes(job.host);
  Collective polled = make_collective(job.host, 4, 8, 4);
  shapes.handles.resize(std::max<size_t>(shapes.handles.size(), polled.objects));
  auto meter = Meter::make(), polls = Meter::make();
  uint64_t allocated = allocations_of_this_thread();
  warm_up(job, shapes, kWarmUp);
  emit("calls/allocations_warm_up", as_double(allocations_of_this_thread() - allocated));

  const auto shape = [&](const char* name, Collective& collective, int64_t count) {
    Histogram whole;
    allocated = allocations_of_this_thread();
    for (int64_t i = 0; i < count; ++i) whole.add(job.play_next<false>(collective, shapes.handles, nullptr));
    const uint64_t made = allocations_of_this_thread() - allocated;
    const uint64_t before = meter->all().count();
    for (int64_t i = 0; i < count; ++i) job.play_next<true>(collective, shapes.handles, meter.get());
    emit_histogram(emit, name, whole, job.timer);
    emit(std::string(name) + "/calls", as_double(meter->all().count() - before) / static_cast<double>(count));
    emit(std::string(name) + "/allocations", as_double(made) / static_cast<double>(count));
  };
  shape("nvlink", shapes.nvlink, options.collectives);
  shape("network", shapes.network, std::max<int64_t>(1, options.collectives / 5));
  for (int64_t i = 0; i < std::max<int64_t>(1, options.collectives / 20); ++i) {
    job.play_next<true>(polled, shapes.handles, polls.get());
  }
  constexpr auto kRepeat = static_cast<size_t>(CallRow::kProxyStepRepeat);
  meter->rows[kRepeat].merge(polls->rows[kRepeat]);
  emit_meter(emit, "calls", *meter, job.timer);

  const double cpu = cpu_seconds();
  ::usleep(2'000'000);
  emit("idle_cpu_percent", (cpu_seconds() - cpu) / 2 * 100);
}

// As part_calls, with as many communicators as are wanted, one after the other: what each call finds in the caches then
// depends on how much memory a communicator and its operations take.
void part_comms(Job& job, const PartOptions& options, const Emit& emit, int communicators) {
  job.init(communicators);
  Shapes shapes(job.host);
  auto meter = Meter::make();
  const auto count = static_cast<uint64_t>(communicators);
  const auto round = [&](uint64_t number) -> Collective& { return shapes.alternating(number / count); };
  // Until every ring has gone round: the pages are there, and the caches hold what they will hold.
  for (uint64_t i = 0; i < std::max<uint64_t>(4096, 4 * count); ++i) {
    job.play_next<false>(round(i), shapes.handles, nullptr);
  }
  const uint64_t allocated = allocations_of_this_thread();
  const auto collectives = static_cast<uint64_t>(std::max<int64_t>(options.collectives, 4 * communicators));
  for (uint64_t i = 0; i < collectives; ++i) job.play_next<true>(round(i), shapes.handles, meter.get());
  const std::string part = "comms" + std::to_string(communicators);
  emit(part + "/allocations", as_double(allocations_of_this_thread() - allocated) / as_double(collectives));
  emit_meter(emit, part, *meter, job.timer);
}

// A timer around one call costs as much as the call and keeps it from overlapping with the next: here a timer stands
// around many calls of a kind. The same calls into the null plugin, in turn, are what the harness costs.
void part_batched(Job& job, const PartOptions& options, const Emit& emit) {
  constexpr int kOperations = 16, kChannels = 16;
  Result<Host> null = Host::open(kNullPlugin);
  void* nowhere = null->init(1, nullptr, 1, 2, 0);
  job.init(1);
  Batches batches = make_batches(job.host, kOperations, kChannels), null_batches = batches;
  if (job.host.version() != null->version()) null_batches = make_batches(*null, kOperations, kChannels);
  std::vector<void*> handles(batches.objects), null_handles(batches.objects);
  std::vector<Histogram> ours(batches.scripts.size()), empty(batches.scripts.size());
  const int64_t rounds = std::max<int64_t>(options.collectives / 40, 20);
  for (int64_t round = -10; round < rounds; ++round) {
    const Moment moment{static_cast<uint64_t>(round + 10) * kOperations, monotonic_ns()};
    const auto time = [&](const Host& host, Script& script, void* context, std::vector<void*>& objects,
                          Histogram& ticks) {
      const uint64_t begin = ticks_begin();
      play<false>(host, script, &context, objects.data(), moment, job.timer, nullptr);
      const uint64_t taken = job.timer.between(begin, ticks_end());
      if (round >= 0) ticks.add(taken);  // before that: warm-up
    };
    for (size_t i = 0; i < batches.scripts.size(); ++i) {
      time(job.host, batches.scripts[i], job.contexts[0], handles, ours[i]);
      time(*null, null_batches.scripts[i], nowhere, null_handles, empty[i]);
    }
  }
  const uint64_t wanted = job.host.wanted();
  for (size_t i = 0; i < batches.scripts.size(); ++i) {
    const std::vector<Step>& steps = batches.scripts[i].steps;
    const Step& first = steps[0];
    // Not sent, or declined and so never sent again.
    if ((wanted & first.type) == 0 || (first.verb != Verb::kStart && handles[first.object] == nullptr)) continue;
    const double ticks = as_double(ours[i].quantile(0.5)) - as_double(empty[i].quantile(0.5));
    emit(std::string("batched/") + kCallRowNames[static_cast<size_t>(first.row)] + "/p50",
         std::max(0.0, job.timer.ns(ticks)) / as_double(steps.size()));
  }
}

}  // namespace lockstep::plugin_bench
