// A node's push as a frame of remote write 1.0 in snappy, made by writing values into a frame that is there already: 21
// ns of CPU a sample with the values themselves, because the load shares the cores with what it measures.
//
// 1.0 and not 2.0 or OTLP: its labels are what the server compares with the push before as they came, without spelling
// anything out, and snappy's copies make them cheap to send (40 bytes a sample) and to unpack.
//
// A frame is written once for each shape (hosts and ranks of as many digits): what a series has in common with the one
// before, or with the same of the GPU before, are copies in snappy's sense; the first host, job, rank and uuid are
// literals, so that writing another node's over them changes all of its series. Values and times are literals of fixed
// length (a millisecond of our time is six bytes of varint until 2109). It decompresses to the bytes of
// Fleet::append_node(): problem_of() compares.
//
// Without churn: a job's name may not change its length.
// Thread rule: Confined.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bench/metrics/fleet.h"

namespace lockstep::bench {

class PushFrames {
 public:
  explicit PushFrames(Fleet& fleet) : fleet_(fleet) {}

  // Moves the node on to this step. Valid until the next call; the text may be swapped out and in meanwhile.
  std::string& fill(int node, int step, int64_t start_ms);

  // Whether a node's frame is the request it should be. Empty: yes.
  static std::string problem_of(const FleetOptions& options, int node, int64_t start_ms);

 private:
  struct Frame {
    std::string bytes;
    size_t host = 0, job = 0;  // where these stand
    size_t ranks[kGpusPerNode] = {}, uuids[kGpusPerNode] = {};
    std::vector<uint32_t> values, times;
  };
  static Frame make(const Fleet::Identity& identity);

  Fleet& fleet_;
  std::map<std::string, Frame> shapes_;  // by the lengths of what differs
};

}  // namespace lockstep::bench
