#include "backup/folder_objects.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/files.h"
#include "base/text.h"

namespace lockstep::backup {
namespace {

constexpr std::string_view kPartEnd = ".part";

class FolderObjects final : public Objects {
 public:
  FolderObjects(std::string place, UniqueFd lock) : place_(std::move(place)), lock_(std::move(lock)) {}

  const std::string& place() const override { return place_; }

  Result<std::vector<Entry>> list(const std::string& prefix) override {
    std::vector<Entry> found;
    std::error_code error;
    const std::filesystem::recursive_directory_iterator end;
    for (std::filesystem::recursive_directory_iterator at(path_of(prefix), error); !error && at != end;
         at.increment(error)) {
      if (!at->is_regular_file()) continue;
      const std::string path = at->path().string();
      std::error_code ignored;
      if (!path.ends_with(kPartEnd)) {
        found.push_back({path.substr(place_.size() + 1), at->file_size(ignored)});
      } else if (lock_.valid()) {
        std::filesystem::remove(at->path(), ignored);  // nobody else writes
      }
    }
    if (error) return Error{format("cannot list %s: %s", path_of(prefix).c_str(), error.message().c_str())};
    return found;
  }
  Result<std::string> read(const std::string& name, uint64_t bytes_max) override {
    const std::string path = path_of(name);
    if (::access(path.c_str(), F_OK) != 0) return Error{path + " is missing", ErrorCode::kNotFound};
    return read_file(path, bytes_max);
  }
  Result<void> write(const std::string& name, std::string_view content, const std::string&) override {
    const std::string path = path_of(name), part = path + std::string(kPartEnd);
    LOCKSTEP_TRY(make_directories(parent_of(path)));
    const UniqueFd file(::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file.valid()) return failed("cannot create", part);
    Result<void> written = write_all(file.get(), content);
    if (!written.ok()) return prefixed(written.failure(), part + ": ");
    // Before it has its name: a later backup takes what has a name for whole.
    if (::fdatasync(file.get()) != 0) return failed("cannot sync", part);
    if (::rename(part.c_str(), path.c_str()) != 0) return failed("cannot rename to", path);
    unsynced_.insert({parent_of(path), parent_of(parent_of(path))});
    return {};
  }
  Result<void> remove(const std::string& name) override {
    const std::string path = path_of(name);
    if (::unlink(path.c_str()) != 0) return failed("cannot remove", path);
    unsynced_.insert(parent_of(path));
    return {};
  }
  Result<void> sync() override {
    for (const std::string& folder : unsynced_) LOCKSTEP_TRY(sync_directory(folder));
    unsynced_.clear();
    return {};
  }

 private:
  static Error failed(const char* what, const std::string& path) {
    return Error{format("%s %s: %s", what, path.c_str(), std::strerror(errno))};
  }
  static std::string parent_of(const std::string& path) { return path.substr(0, path.rfind('/')); }
  std::string path_of(const std::string& name) const { return place_ + "/" + name; }

  const std::string place_;
  const UniqueFd lock_;             // none: we only read
  std::set<std::string> unsynced_;  // folders with names that a power cut could take
};

}  // namespace

Result<std::unique_ptr<Objects>> open_folder(const std::string& folder, Access access) {
  if (access == Access::kRead) {
    if (::access((folder + "/generations").c_str(), R_OK | X_OK) != 0)
      return Error{format("%s holds no backup: %s", folder.c_str(), std::strerror(errno)), ErrorCode::kNotFound};
    return std::unique_ptr<Objects>(std::make_unique<FolderObjects>(folder, UniqueFd()));
  }
  // A folder of something else is not written into: the first backup makes it, or finds it empty.
  const bool is_new = ::access((folder + "/generations").c_str(), F_OK) != 0;
  if (is_new && ::access(folder.c_str(), F_OK) == 0) {
    const std::vector<std::string> names = LOCKSTEP_TRY(list_directory(folder));
    if (std::any_of(names.begin(), names.end(), [](const std::string& name) { return name != "lock"; }))
      return Error{format("%s is neither empty nor a folder of backups: choose another", folder.c_str())};
  }
  UniqueFd lock = LOCKSTEP_TRY(lock_folder(folder, "lockstep backup"));
  if (is_new) {
    if (::chmod(folder.c_str(), 0700) != 0)
      return Error{format("cannot make %s private: %s", folder.c_str(), std::strerror(errno))};
    LOCKSTEP_TRY(make_directories(folder + "/pieces"));
    LOCKSTEP_TRY(make_directories(folder + "/generations"));
  }
  return std::unique_ptr<Objects>(std::make_unique<FolderObjects>(folder, std::move(lock)));
}

}  // namespace lockstep::backup
