#include "sources/ownership/recorder_process.h"

#include <fcntl.h>

#include "base/text.h"
#include "recorder/reader.h"

namespace lockstep {
namespace {

// 0 also where the holder lives in a pid namespace that is not below ours.
int32_t lock_holder(const RecorderWriterWord& word) {
  if (word.folder == nullptr) return 0;
  const UserFile file = word.folder->open_file(word.name, {});
  struct flock asked {};
  asked.l_type = F_RDLCK;
  asked.l_whence = SEEK_SET;
  asked.l_len = 1;
  if (!file.ok() || ::fcntl(file.fd.get(), F_GETLK, &asked) != 0 || asked.l_type == F_UNLCK) return 0;
  return asked.l_pid;
}

}  // namespace

uint64_t start_ticks_of_recorder(std::string_view name) {
  if (!name.ends_with(kRecorderSuffix)) return 0;
  name.remove_suffix(std::string_view(kRecorderSuffix).size());
  const size_t dash = name.rfind('-');
  return dash == std::string_view::npos ? 0 : parse_uint(name.substr(dash + 1)).value_or(0);
}

int32_t process_of_recorder(const RecorderWriterWord& word, Processes& processes,
                            const std::vector<int32_t>& candidates) {
  if (word.user < 0) return -1;
  const uint64_t start_ticks = start_ticks_of_recorder(word.name);
  auto of_owner = [&](int32_t pid) {
    const ProcessFacts* facts = processes.find(pid);
    return facts != nullptr && facts->owner_uid == word.user ? facts : nullptr;
  };
  const ProcessFacts* named = start_ticks != 0 ? of_owner(word.pid) : nullptr;
  if (named != nullptr && named->start_ticks == start_ticks) return word.pid;
  if (const int32_t holder = lock_holder(word); holder > 0) return of_owner(holder) != nullptr ? holder : -1;
  int32_t found = -1;
  for (const int32_t candidate : candidates) {
    const ProcessFacts* facts = of_owner(candidate);
    if (facts == nullptr || facts->inner_pid != word.pid || start_ticks == 0 || facts->start_ticks != start_ticks)
      continue;
    if (found >= 0 && found != candidate) return -1;
    found = candidate;
  }
  return found;
}

}  // namespace lockstep
