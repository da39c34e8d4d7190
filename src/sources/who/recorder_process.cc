#include "sources/who/recorder_process.h"

#include <fcntl.h>

#include <optional>

#include "base/files.h"
#include "base/process.h"
#include "base/text.h"
#include "recorder/reader.h"

namespace lockstep {
namespace {

std::optional<uint64_t> start_ticks_of(std::string_view path) {
  if (!path.ends_with(kRecorderSuffix)) return std::nullopt;
  path.remove_suffix(std::string_view(kRecorderSuffix).size());
  const size_t dash = path.rfind('-');
  return dash == std::string_view::npos ? std::nullopt : parse_uint(path.substr(dash + 1));
}

// 0 also where the holder lives in a pid namespace that is not below ours.
int32_t lock_holder(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct flock asked {};
  asked.l_type = F_RDLCK;
  asked.l_whence = SEEK_SET;
  asked.l_len = 1;
  if (!file.valid() || ::fcntl(file.get(), F_GETLK, &asked) != 0 || asked.l_type == F_UNLCK) return 0;
  return asked.l_pid;
}

}  // namespace

int32_t process_of_recorder(const std::string& path, int32_t pid, const std::string& root, Processes& processes,
                            const std::vector<int32_t>& candidates) {
  const std::optional<uint64_t> start_ticks = start_ticks_of(path);
  if (start_ticks && process_state(pid, root).start_ticks == *start_ticks) return pid;
  if (const int32_t holder = lock_holder(path); holder > 0) return holder;
  int32_t found = -1;
  for (const int32_t candidate : candidates) {
    const ProcessFacts* facts = processes.find(candidate);
    if (facts == nullptr || facts->inner_pid != pid || !start_ticks || facts->start_ticks != *start_ticks) continue;
    if (found >= 0 && found != candidate) return -1;
    found = candidate;
  }
  return found;
}

}  // namespace lockstep
