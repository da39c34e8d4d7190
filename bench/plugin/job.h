// What the parts share: a process that plays a training job, the collectives it runs, and how its numbers go out.
//
// Thread rule: Confined.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/plugin/parts.h"
#include "bench/plugin/script.h"

namespace lockstep::plugin_bench {

inline constexpr uint64_t kWarmUp = 200;
inline constexpr uint64_t kFirstCommunicator = 0x1000;

inline double as_double(uint64_t value) {
  return static_cast<double>(value);
}

// A process with a plugin and its communicators, and the collectives that it runs.
struct Job {
  Host host;
  Timer timer = Timer::calibrate();
  std::vector<void*> contexts;
  uint64_t collectives = 0;

  void init_one() {
    const uint64_t number = contexts.size();
    contexts.push_back(host.init(kFirstCommunicator + number, number % 2 == 0 ? "tp" : "dp", 2, 16, 3));
  }
  void init(int count) {
    for (int i = 0; i < count; ++i) init_one();
  }
  void finalize() {
    for (void* context : contexts) host.finalize(context);
  }
  // One collective on the next communicator; the ticks it took.
  template <bool kTimed>
  uint64_t play_next(Collective& collective, std::vector<void*>& handles, Meter* meter) {
    void* const* context = &contexts[collectives % contexts.size()];
    const uint64_t begin = ticks_begin();
    const Moment moment{collectives / contexts.size(), static_cast<uint64_t>(timer.ns(as_double(begin)))};
    collectives += 1;
    play<kTimed>(host, collective.enqueue, context, handles.data(), moment, timer, meter);
    play<kTimed>(host, collective.proxy, context, handles.data(), moment, timer, meter);
    return timer.between(begin, ticks_end());
  }
};

// The two shapes: 16 channels over NVLink, and 4 channels whose 8 steps cross the network.
struct Shapes {
  Collective nvlink, network;
  std::vector<void*> handles;

  explicit Shapes(Host& host)
      : nvlink(make_collective(host, 16, 0)),
        network(make_collective(host, 4, 8)),
        handles(std::max(nvlink.objects, network.objects)) {}
  Collective& alternating(uint64_t number) { return number % 2 == 0 ? nvlink : network; }
};

void warm_up(Job& job, Shapes& shapes, uint64_t count);

void emit_histogram(const Emit& emit, const std::string& name, const Histogram& ticks, const Timer& timer);
void emit_meter(const Emit& emit, const std::string& part, const Meter& meter, const Timer& timer);

// The parts; what each is for stands in its .cc.
void part_calls(Job& job, const PartOptions& options, const Emit& emit);
void part_batched(Job& job, const PartOptions& options, const Emit& emit);
void part_comms(Job& job, const PartOptions& options, const Emit& emit, int communicators);
void part_memory(Job& job, const PartOptions& options, const Emit& emit);
void part_load(Job& job, const PartOptions& options, const Emit& emit);
void part_threads(Job& job, const PartOptions& options, const Emit& emit, int communicators);
Result<void> part_recording(Job& job, const Emit& emit, const std::string& folder);

}  // namespace lockstep::plugin_bench
