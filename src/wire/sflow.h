// sFlow version 5 (sflow.org/sflow_version_5.txt and its extensions): flow samples, plain and expanded, with the header
// of the sampled packet, switch data, egress queue, transit delay and queue depth; counter samples, plain and expanded,
// with the counters of an interface, of Ethernet, peaks of its buffers (Broadcom's ASICs) and the name of a port; packets
// that were dropped (format 5). What
// else is there is skipped by its length and counted.
//
// Every sample carries its own sampling rate, so a change of the rate needs nothing of us. Lost datagrams are seen by
// the sequence number of the agent and sub-agent. A switch has restarted where it is up for less long than it was not
// heard of; that its uptime goes around after 49 days is none.
// On error: one line; nothing of that datagram is taken.
// Limits:   kAgentsMax agents; one that was not heard of for kForgetNs makes room. kSamplesMax samples a datagram.
// Cost:     no allocation per sample once `report` has grown to what comes; bench/fabric says how many a second.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "base/result.h"
#include "model/flow.h"

namespace lockstep {

// A stream's sequence numbers: what is missing.
class SequenceGaps {
 public:
  // A number is taken to be from a restart if it is further away than this.
  static constexpr int64_t kJumpMax = 100'000;
  static constexpr int64_t kLateMax = 256;

  struct Seen {
    uint64_t lost = 0;
    bool is_late = false;  // one that was counted as lost
  };
  Seen next(uint32_t sequence);
  void restart() { is_known_ = false; }

 private:
  bool is_known_ = false;
  uint32_t expected_ = 0;
};

class SflowDecoder {
 public:
  static constexpr size_t kAgentsMax = 16'384;
  static constexpr size_t kSourcesMax = 4096;  // of an agent: beyond, their drops are not counted
  static constexpr size_t kSamplesMax = 4096;
  static constexpr int64_t kForgetNs = 3'600'000'000'000;
  static constexpr uint32_t kFrameBytesMax = 1 << 20;

  // now_ns: of any clock that only goes forward.
  Result<void> decode(std::string_view datagram, int64_t now_ns, FlowReport& report);
  size_t agents() const { return agents_.size(); }

 private:
  struct Agent {
    SequenceGaps datagrams;
    uint32_t uptime_ms = 0;  // of its newest datagram, as of heard_ns
    int64_t heard_ns = 0;
    std::unordered_map<uint32_t, uint32_t> drops;  // by source
  };
  bool make_room(int64_t now_ns);
  static bool has_restarted(const Agent& agent, uint32_t uptime_ms, int64_t now_ns);

  std::unordered_map<Exporter, Agent, ExporterHash> agents_;
};

}  // namespace lockstep
