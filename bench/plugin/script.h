// Calls prepared in advance, so that making them costs the harness next to nothing: a made-up collective in NCCL's own
// order, or one rank of a recording. A script is played by play() as often as wanted.
//
// Thread rule: Confined (parents are written into its descriptors as it is played); every thread has a copy.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "bench/plugin/calls.h"
#include "bench/plugin/host.h"
#include "bench/plugin/timing.h"
#include "sim/replay/recording.h"

namespace lockstep::plugin_bench {

struct Step {
  uint64_t type = 0;
  uint64_t value = 0;  // state: transfer's bytes; Coll start: sequence number; KernelCh start and state: GPU's time
  uint32_t descriptor = replay::kNone;
  uint32_t object = replay::kNone;
  uint32_t parent = replay::kNone;
  uint32_t group = replay::kNone;
  uint32_t group_offset = 0;
  uint32_t context = 0;
  int32_t state = 0;
  Verb verb = Verb::kStart;
  CallRow row = CallRow::kOther;
};

struct Script {
  std::vector<Step> steps;
  std::vector<Descriptor> descriptors;
};

// A collective as two threads see it: what the caller of NCCL makes, then what the proxy makes. Objects of both count
// from 0 to objects - 1.
struct Collective {
  Script enqueue;
  Script proxy;
  uint32_t objects = 0;
};
// AllReduce of 64 MiB float32, RING/SIMPLE. steps: of each transfer; 0: NVLink, no proxy. polls: how often a send says
// again that it waits for its peer.
Collective make_collective(Host& host, int channels, int steps, int polls = 0);

// The same calls by kind, each kind by itself: `operations` collectives of `channels` channels, one step each.
struct Batches {
  std::vector<Script> scripts;
  uint32_t objects = 0;
};
Batches make_batches(Host& host, int operations, int channels);

// Everything between init and finalize, in the recorded order. Recordings may leave out the API call, the group and the
// launch around an operation; NCCL does not, so they are put back. objects: how many handles it needs.
Script make_script(Host& host, const replay::RankCalls& calls, uint32_t& objects);

// What the calls took. No allocation after it is made.
struct Meter {
  std::array<Histogram, kCallRows> rows;
  std::array<uint64_t, kCallRows> declined{};  // starts that the plugin answered with NULL
  uint64_t slow = 0;                           // calls above slow_ticks, and their ticks
  uint64_t slow_sum = 0;
  uint64_t slow_ticks = UINT64_MAX;

  void merge(const Meter& other);
  Histogram all() const;
  static std::unique_ptr<Meter> make() { return std::make_unique<Meter>(); }
};

struct Moment {
  uint64_t sequence = 0;  // added to every Coll's
  uint64_t gpu_ns = 0;    // added to every GPU time
};

// Makes every call that NCCL would make: an event outside the mask is not started, and one that the plugin declined is
// not touched again. meter null: nothing is timed.
template <bool kTimed>
void play(const Host& host, Script& script, void* const* contexts, void** handles, Moment moment, const Timer& timer,
          Meter* meter);

}  // namespace lockstep::plugin_bench
