// Any bytes as the tables of a rank.samples event: refused, or within every limit and the same when written again.
#include <cstdlib>

#include "model/rank_samples.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t half = text.find('\0') == std::string_view::npos ? size : text.find('\0');
  RankSamples base{.looks = 1};
  base.threads = {{.role = ThreadRole::kMain, .pid = 1, .tid = 1}, {.role = ThreadRole::kWorker, .pid = 2}};
  LogRecord record = to_record(base);
  for (Attribute& attribute : record.attributes) {
    if (attribute.key == "frames") attribute.value = std::string(text.substr(0, half));
    if (attribute.key == "stacks") attribute.value = std::string(text.substr(std::min(half + 1, size)));
  }
  Result<RankSamples> read = rank_samples_from_record(record);
  if (!read.ok()) return 0;
  if (read->frames.size() > kSampleFramesMax || read->stacks.size() > kSampleStacksMax) std::abort();
  for (const CountedStack& stack : read->stacks) {
    if (stack.thread >= read->threads.size() || stack.frames.empty() || stack.frames.size() > kSampleDepthMax)
      std::abort();
    for (uint32_t frame : stack.frames) {
      if (frame >= read->frames.size()) std::abort();
    }
  }
  Result<RankSamples> again = rank_samples_from_record(to_record(*read));
  if (!again.ok() || !(*again == *read)) std::abort();
  RankSamples fitted = *read;
  fit(fitted);
  if (!rank_samples_from_record(to_record(fitted)).ok()) std::abort();
  return 0;
}
