// Whether the node has cores to spare, by what /proc/stat says of their time. Where there are none, whatever we do is
// taken from the job.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

// Time of all cores since the start of the machine, in ticks.
struct CoreTime {
  uint64_t idle = 0;  // waiting for a disk included
  uint64_t all = 0;
};
// The first line of /proc/stat; nullopt where it is none.
std::optional<CoreTime> parse_core_time(std::string_view text);

class NodeIdle {
 public:
  static constexpr int64_t kEveryNs = 1'000'000'000;
  // A job that has taken all cores still leaves gaps on each, between a transfer and the next.
  static constexpr double kIdleShareMin = 0.25;

  // root: "" or the folder below which /proc is.
  explicit NodeIdle(const std::string& root) : path_(root + "/proc/stat") {}

  // Reads once a second; what it said last in between. A node that does not tell is taken for one with room.
  bool crowded(int64_t now_ns);

 private:
  const std::string path_;
  int64_t next_ns_ = 0;
  CoreTime then_;
  bool crowded_ = false;
};

}  // namespace lockstep
