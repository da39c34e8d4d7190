// Any bytes as a kept timeline: reading a part of it ends without a crash; a failure is one line; an answer is within its
// limits.
#include <cstdlib>

#include "profile/timeline/timeline_view.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  using namespace lockstep::profile;
  if (size < 4) return 0;
  TimelineQuestion question;
  question.width = 1 + data[0] * 32;
  question.from_ns = static_cast<int64_t>(data[1]) << (data[1] % 50);
  question.to_ns = data[2] == 0 ? -1 : static_cast<int64_t>(data[2]) << (data[2] % 50);
  if (data[3] % 2 == 1) question.ranks = {Rank{data[3] / 2}};
  std::string bytes(reinterpret_cast<const char*>(data + 4), size - 4);
  // The lengths in the head are right mostly: else nothing behind it would ever be read.
  if (bytes.size() > kTimelineHeadBytes && data[3] % 4 < 3) {
    const uint64_t rest = bytes.size() - kTimelineHeadBytes, directory = rest * (data[0] % 8) / 8, names = rest / 16;
    const std::string head = encode_head({directory, names, rest - directory - names});
    bytes.replace(0, kTimelineHeadBytes, head);
  }
  const Result<TimelineView> view = view_timeline(
      bytes.size(), [&](uint64_t from, size_t count) { return Result<std::string>(bytes.substr(from, count)); },
      question);
  if (!view.ok()) {
    if (view.error().empty() || view.error().find('\n') != std::string::npos) std::abort();
    return 0;
  }
  size_t slices = 0;
  for (const TimelineViewLane& lane : view->lanes) {
    slices += lane.slices.size();
    for (const TimelineSlice& slice : lane.slices) {
      if (slice.name >= view->names.size() || slice.duration_ns < 0) std::abort();
    }
  }
  if (view->lanes.size() > kViewLanesMax || slices > kReadSlicesMax) std::abort();
  return 0;
}
