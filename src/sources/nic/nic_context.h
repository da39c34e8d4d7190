// What the parts of the network source share: the root, the budget of open files, what has been said already.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "sources/nic/stopwatch.h"
#include "sources/nic/sysfs_file.h"
#include "sources/node_source.h"

namespace lockstep {

struct NicContext {
  explicit NicContext(std::string root_directory)
      : root(std::move(root_directory)), files(root.empty() ? FileBudget::from_process_limit() : 0) {}

  std::string root;
  // None for a recorded tree: its files may be replaced, and an open one would go on showing the old.
  FileBudget files;

  // A thing is said once; after kSaidMax different ones no more are said.
  void say_once(NodeReadings& out, std::string line) {
    if (said.size() >= kSaidMax || !said.insert(line).second) return;
    out.notes.push_back(std::move(line));
  }

 private:
  static constexpr size_t kSaidMax = 256;
  std::set<std::string> said;
};

// A device that answers slowly (a wedged firmware makes its driver wait for each command) is left alone for a while:
// one of them must not stop the readings of all.
class SlowDevice {
 public:
  static constexpr int64_t kSlowNs = 500'000'000;
  static constexpr int64_t kRestNs = 30'000'000'000;
  bool resting(int64_t monotonic_ns) const { return monotonic_ns < rest_until_ns_; }
  // True when it was too slow, and rests now.
  bool took(int64_t elapsed_ns, int64_t monotonic_ns) {
    if (elapsed_ns <= kSlowNs) return false;
    rest_until_ns_ = monotonic_ns + elapsed_ns + kRestNs;
    return true;
  }

 private:
  int64_t rest_until_ns_ = 0;
};

}  // namespace lockstep
