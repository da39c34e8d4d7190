// What a thread of the host did in a stretch of time, in one name: the annotation that covers most of it, else the
// operator, else the call of the runtime.
//
// Thread rule: Confined: a thread's timeline is made when it is first asked for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "profile/rank/rank_index.h"

namespace lockstep::profile {

inline constexpr std::string_view kGapBetweenKernels = "between kernels already launched";
inline constexpr std::string_view kOutsideOperators = "host code outside operators";

bool is_data_loading(std::string_view what);

class HostTime {
 public:
  explicit HostTime(const RankIndex& index) : index_(index) {}
  // track: of the thread.
  std::string what_ran(uint32_t track, int64_t from_ns, int64_t to_ns);

 private:
  struct Segment {
    int64_t start_ns;
    int64_t end_ns;
    uint32_t name;
  };
  struct Thread {
    std::vector<Segment> annotations;  // the innermost at every moment
    std::vector<Segment> operators;    // the outermost
    std::vector<Segment> calls;
  };
  Thread& thread(uint32_t track);
  void sort_events();
  uint32_t mostly(const std::vector<Segment>& segments, int64_t from_ns, int64_t to_ns) const;

  const RankIndex& index_;
  std::vector<uint32_t> order_;  // host events by track and start
  bool is_sorted_ = false;
  std::unordered_map<uint32_t, Thread> threads_;
};

}  // namespace lockstep::profile
