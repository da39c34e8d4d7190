#include "agent/kept_recorders.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "base/files.h"

namespace lockstep {

Result<void> KeptRecorders::keep(const std::string& path) {
  if (Result<void> made = make_directories(folder_); !made.ok()) return Error{made.error()};
  Result<std::string> content = read_file(path, kBytesMax);
  if (!content.ok()) return Error{content.error()};
  make_room(content->size());
  return write_file_atomically(folder_ + path.substr(path.rfind('/')), *content);
}

void KeptRecorders::make_room(uint64_t bytes) {
  Result<std::vector<std::string>> names = list_directory(folder_);
  if (!names.ok()) return;
  std::vector<std::tuple<int64_t, uint64_t, std::string>> files;  // by age
  uint64_t total = bytes;
  for (const std::string& name : *names) {
    const std::string path = folder_ + "/" + name;
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    files.emplace_back(status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec, status.st_size, path);
    total += static_cast<uint64_t>(status.st_size);
  }
  std::sort(files.begin(), files.end());
  for (size_t i = 0; i < files.size() && (total > kBytesMax || files.size() - i >= kFilesMax); ++i) {
    ::unlink(std::get<2>(files[i]).c_str());
    total -= std::get<1>(files[i]);
  }
}

}  // namespace lockstep
