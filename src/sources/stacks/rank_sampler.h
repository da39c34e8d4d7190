// Looks at a rank's Python stacks again and again, from outside and without stopping it, and counts them: its own
// process and those it started (loaders of data). python_frames.h says how a stack is read.
//
// Whose memory is read is made sure of at every look: a process that has ended, or that is its owner's alone no more,
// is not believed (sources/ownership/process_handle.h).
// Limits: kWorkersMax processes beside the rank's own, kStacksMax different stacks; further ones are counted as left out.
// Thread rule: Confined. May wait for a kernel that does not answer.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/result.h"
#include "model/rank_samples.h"

namespace lockstep {

class RankSampler {
 public:
  static constexpr size_t kWorkersMax = 32;
  static constexpr size_t kStacksMax = 16'384;

  // The error is one line: why its stacks cannot be read.
  static Result<RankSampler> begin(int32_t pid, uint64_t start_ticks, uid_t owner);
  RankSampler(RankSampler&&) noexcept;
  RankSampler& operator=(RankSampler&&) noexcept;
  ~RankSampler();

  // False: its process is gone, and what was counted is what there is.
  bool sample();
  // What was seen, within the limits of an event. time, duration and hz are the caller's.
  RankSamples finish();

 private:
  struct Process;
  RankSampler();
  void add_workers(int32_t pid, uid_t owner);
  bool sample(Process& process);
  uint32_t thread_of(Process& process, uint64_t ident, int64_t native_id);

  std::vector<std::unique_ptr<Process>> processes_;  // the rank's own first
  RankSamples samples_;
  std::map<std::pair<uint32_t, std::vector<uint32_t>>, uint32_t> stack_by_frames_;
  std::map<std::tuple<std::string, std::string, int32_t>, uint32_t> frame_by_text_;
};

// The stacks of a process's Python threads, once, as evidence about a rank that hangs; the main thread first.
Result<std::vector<PythonStack>> read_python_stacks(int32_t pid, uint64_t start_ticks, uid_t owner);

}  // namespace lockstep
