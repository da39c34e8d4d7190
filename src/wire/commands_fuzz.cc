// Any bytes as what a server tells an agent: refused, or within every limit and the same when written again.
#include <cstdlib>

#include "wire/commands.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  Result<CommandList> list = parse_commands({reinterpret_cast<const char*>(data), size});
  if (!list.ok()) return 0;
  if (!is_cursor(list->cursor) ||
      list->details.size() + list->stacks.size() + list->profiles.size() + list->samples.size() > kCommandsMax)
    std::abort();
  for (const StackRequest& request : list->stacks) {
    if (request.job_id.empty() || request.attempt < 0 || request.ranks.empty() || request.ranks.size() > kStackRanksMax)
      std::abort();
  }
  for (const ProfileRequest& request : list->profiles) {
    if (!check(request).ok()) std::abort();
  }
  for (const SampleRequest& request : list->samples) {
    if (request.job_id.empty() || request.attempt < 0 || request.ranks.empty() ||
        request.ranks.size() > kSampleRanksMax || request.seconds < 1 || request.seconds > kSampleSecondsMax ||
        request.hz < 1 || request.hz > kSampleHzMax)
      std::abort();
  }
  for (const DetailRequest& request : list->details) {
    if (request.job_id.empty() || request.attempt < 0 || request.from_step < 0_step ||
        request.to_step < request.from_step || request.to_step - request.from_step >= kDetailStepsMax ||
        request.ranks.size() > kDetailRanksMax)
      std::abort();
  }
  list->unknown = 0;
  const std::string written = encode_commands(*list);
  if (written.size() > kCommandsBytesMax) return 0;  // ranks like 0-99999/2 come out longer than they went in
  Result<CommandList> again = parse_commands(written);
  if (!again.ok() || !(*again == *list)) std::abort();
  return 0;
}
