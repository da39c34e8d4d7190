// Threads as NCCL has them: one that enqueues and one that serves the network, per communicator.
#include <atomic>
#include <memory>
#include <thread>

#include "bench/plugin/allocations.h"
#include "bench/plugin/job.h"

namespace lockstep::plugin_bench {
namespace {

// Collectives on their way from the thread that enqueues them to the proxy's thread.
struct Pipeline {
  static constexpr uint64_t kDepth = 64;
  std::vector<std::vector<void*>> handles{kDepth};
  alignas(64) std::atomic<uint64_t> enqueued{0};
  alignas(64) std::atomic<uint64_t> done{0};

  template <typename Condition>
  static void await(Condition condition) {
    for (int spin = 0; !condition(); ++spin) {
      if (spin >= 100) std::this_thread::yield();
    }
  }
};

struct ThreadResult {
  std::unique_ptr<Meter> meter = Meter::make();
  uint64_t allocations = 0;
};

}  // namespace

void part_threads(Job& job, const PartOptions& options, const Emit& emit, int communicators) {
  job.init(communicators);
  const auto each = static_cast<uint64_t>(std::max<int64_t>(10, options.collectives / 5));
  const auto warm = std::min<uint64_t>(kWarmUp, each / 2);
  std::vector<std::unique_ptr<Pipeline>> pipelines;
  std::vector<ThreadResult> enqueuers(static_cast<size_t>(communicators)), proxies(static_cast<size_t>(communicators));
  std::vector<std::unique_ptr<Shapes>> copies;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2 * communicators; ++i) copies.push_back(std::make_unique<Shapes>(job.host));

  const auto run = [&](size_t i, bool is_proxy) {
    Pipeline& pipeline = *pipelines[i];
    ThreadResult& result = is_proxy ? proxies[i] : enqueuers[i];
    Shapes& shapes = *copies[2 * i + (is_proxy ? 1 : 0)];
    uint64_t allocated = 0;
    for (uint64_t number = 0; number < warm + each; ++number) {
      if (number == warm) allocated = allocations_of_this_thread();
      Pipeline::await([&] {
        const uint64_t done = pipeline.done.load(std::memory_order_acquire);
        return is_proxy ? pipeline.enqueued.load(std::memory_order_acquire) > number : number - done < Pipeline::kDepth;
      });
      const Moment moment{number, number * 1'000'000};
      Collective& collective = shapes.alternating(number);
      Script& script = is_proxy ? collective.proxy : collective.enqueue;
      void** handles = pipeline.handles[number % Pipeline::kDepth].data();
      if (number < warm) {
        play<false>(job.host, script, &job.contexts[i], handles, moment, job.timer, nullptr);
      } else {
        play<true>(job.host, script, &job.contexts[i], handles, moment, job.timer, result.meter.get());
      }
      (is_proxy ? pipeline.done : pipeline.enqueued).store(number + 1, std::memory_order_release);
    }
    result.allocations = allocations_of_this_thread() - allocated;
  };
  for (size_t i = 0; i < static_cast<size_t>(communicators); ++i) {
    pipelines.push_back(std::make_unique<Pipeline>());
    for (std::vector<void*>& slot : pipelines.back()->handles) slot.resize(copies[0]->handles.size());
  }
  for (size_t i = 0; i < pipelines.size(); ++i) {
    threads.emplace_back(run, i, false);
    threads.emplace_back(run, i, true);
  }
  for (std::thread& thread : threads) thread.join();

  const auto merged = [](std::vector<ThreadResult>& results) {
    auto meter = Meter::make();
    for (const ThreadResult& result : results) meter->merge(*result.meter);
    return meter;
  };
  auto of_enqueuers = merged(enqueuers);
  const auto of_proxies = merged(proxies);
  const std::string part = "threads" + std::to_string(communicators);
  emit_histogram(emit, part + "/enqueue", of_enqueuers->all(), job.timer);
  emit_histogram(emit, part + "/proxy", of_proxies->all(), job.timer);
  of_enqueuers->merge(*of_proxies);
  emit_meter(emit, part, *of_enqueuers, job.timer);
  uint64_t allocations = 0;
  for (size_t i = 0; i < enqueuers.size(); ++i) allocations += enqueuers[i].allocations + proxies[i].allocations;
  emit(part + "/allocations", as_double(allocations) / as_double(each * pipelines.size()));
}

}  // namespace lockstep::plugin_bench
