// Cost of each profiler callback, against one reading of the clock in the same run (the floor: every record needs one).
// Shape: AllReduce of 64 MiB float32, 4 communicators in turn; 16 channels without network, then 4 channels x 8 steps.
// Checked as it runs: nothing was refused, every collective completed, nothing was allocated after the warm-up.
//
// Each kind of call is timed in batches (a timer around a single call costs as much as the call); the figure is the
// median over the batches. Usage: plugin_bench [collectives]
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

#include "plugin/nccl/test_host.h"
#include "recorder/reader.h"

extern "C" void* __libc_malloc(size_t size);
static std::atomic<uint64_t> allocations{0};
// Takes the place of the C library's for the plugin as well.
extern "C" __attribute__((visibility("default"))) void* malloc(size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(size);
}

namespace lockstep::nccl {
namespace {

uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

constexpr int kBatch = 256;
constexpr int kOps = 16;  // operations in a batch: 16 channels each
constexpr int kBatches = 400;

double median(std::vector<double>& values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

class Row {
 public:
  explicit Row(const char* name) : name_(name) { batches_.reserve(kBatches); }
  template <typename Body>
  void batch(int count, Body body) {
    const uint64_t from = now_ns();
    for (int i = 0; i < count; ++i) body(i);
    batches_.push_back(static_cast<double>(now_ns() - from) / count);
  }
  double print(double clock_ns) {
    const double ns = median(batches_);
    std::printf("%-22s %7.1f ns %6.2f clocks\n", name_, ns, clock_ns > 0 ? ns / clock_ns : 1.0);
    return ns;
  }

 private:
  const char* name_;
  std::vector<double> batches_;
};

using Host = TestHost<V5>;

void per_call(Host& host, void* context) {
  Row clock("clock_gettime"), declined("Group start (declined)"), coll_start("Coll start"), coll_stop("Coll stop"),
      proxy_start("ProxyOp start"), proxy_stop("ProxyOp stop"), step_start("ProxyStep start"),
      step_state("ProxyStep state"), step_repeat("ProxyStep state again"), step_stop("ProxyStep stop"),
      kernel_start("KernelCh start"), kernel_state("KernelCh state"), kernel_stop("KernelCh stop");
  std::vector<void*> colls(kOps), proxies(kBatch), steps(kBatch), kernels(kBatch);
  uint64_t sink = 0;
  // Made before the clock starts: NCCL's own work is not the plugin's cost.
  auto group = Host::of(kEventGroup);
  auto coll = Host::all_reduce(0, 1 << 24, kBatch / kOps);
  auto proxy = Host::proxy_op(nullptr, 0, 4, true, 8);
  auto kernel = Host::kernel(nullptr, 0, 1);
  auto step = Host::proxy_step(nullptr, 0);
  const auto under = [](Host::Descriptor& descriptor, void* parent) -> Host::Descriptor& {
    descriptor.parentObj = parent;
    return descriptor;
  };
  for (int i = 0; i < kBatches; ++i) {
    clock.batch(kBatch, [&](int) { sink += now_ns(); });
    declined.batch(kBatch, [&](int) { host.start(context, group); });
    coll_start.batch(kOps, [&](int n) { colls[n] = host.start(context, coll); });
    coll_stop.batch(kOps, [&](int n) { host.stop(colls[n]); });
    proxy_start.batch(kBatch, [&](int n) { proxies[n] = host.start(context, under(proxy, colls[n % kOps])); });
    kernel_start.batch(kBatch, [&](int n) { kernels[n] = host.start(context, under(kernel, colls[n % kOps])); });
    step_start.batch(kBatch, [&](int n) { steps[n] = host.start(context, under(step, proxies[n])); });
    step_state.batch(kBatch, [&](int n) { host.state(steps[n], kStateStepSendPeerWait); });
    step_repeat.batch(kBatch, [&](int n) { host.state(steps[n], kStateStepSendPeerWait); });
    step_stop.batch(kBatch, [&](int n) { host.stop(steps[n]); });
    proxy_stop.batch(kBatch, [&](int n) { host.stop(proxies[n]); });
    kernel_state.batch(kBatch, [&](int n) { host.state(kernels[n], kStateKernelChStop, 2); });
    kernel_stop.batch(kBatch, [&](int n) { host.stop(kernels[n]); });
  }
  const double clock_ns = clock.print(0);
  for (Row* row : {&declined, &coll_start, &coll_stop, &proxy_start, &proxy_stop, &step_start, &step_state,
                   &step_repeat, &step_stop, &kernel_start, &kernel_state, &kernel_stop}) {
    row->print(clock_ns);
  }
  if (sink == 0) std::abort();
}

void per_collective(Host& host, const std::vector<void*>& contexts, const char* name, int count, int channels,
                    int steps) {
  std::vector<double> times;
  times.reserve(static_cast<size_t>(count));
  const uint64_t allocated = allocations.load();
  for (int i = 0; i < count; ++i) {
    const uint64_t from = now_ns();
    host.play_collective(contexts[static_cast<size_t>(i) % contexts.size()], static_cast<uint64_t>(i), channels, steps,
                         from);
    times.push_back(static_cast<double>(now_ns() - from));
  }
  const uint64_t made = allocations.load() - allocated;
  std::printf("%-22s %7.2f us per collective, %llu allocations\n", name, median(times) / 1000,
              static_cast<unsigned long long>(made));
  if (made != 0) {
    std::fprintf(stderr, "plugin_bench: the plugin allocated on a callback\n");
    std::exit(1);
  }
}

}  // namespace
}  // namespace lockstep::nccl

int main(int argc, char** argv) {
  using namespace lockstep;
  const int count = argc > 1 ? std::atoi(argv[1]) : 3000;
  char folder[] = "/dev/shm/lockstep-bench-XXXXXX";
  if (::mkdtemp(folder) == nullptr) return 1;
  ::setenv("LOCKSTEP_RECORDER_DIR", folder, 1);

  nccl::Host host;
  std::vector<void*> contexts;
  const uint64_t from = nccl::now_ns();
  for (uint64_t i = 0; i < 4; ++i) contexts.push_back(host.init(0x1000 + i));
  std::printf("%-22s %7.2f us (4 communicators and the file)\n", "init",
              static_cast<double>(nccl::now_ns() - from) / 1000);
  for (int i = 0; i < 200; ++i) host.play_collective(contexts[0], 0, 16, 1, 1);

  nccl::per_call(host, contexts[0]);
  nccl::per_collective(host, contexts, "16 channels, NVLink", count, 16, 0);
  nccl::per_collective(host, contexts, "4 channels x 8 steps", count, 4, 8);

  bool whole = false;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    auto reader = RecorderReader::open(entry.path());
    whole = reader.ok() && (*reader)->header().events_refused == 0;
    if (reader.ok()) {
      for (const auto& comm : (*reader)->in_flight())
        whole = whole && comm.collectives_completed == comm.collectives_enqueued;
    }
  }
  std::filesystem::remove_all(folder);
  if (!whole) std::fprintf(stderr, "plugin_bench: events were refused or collectives did not complete\n");
  return whole ? 0 : 1;
}
