#include "backup/restore.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/files.h"
#include "base/format_versions.h"
#include "base/text.h"

namespace lockstep::backup {
namespace {

constexpr size_t kNamedMax = 5;               // damaged files in the line
constexpr const char* kMarker = "restoring";  // in DATA.part: it is ours

Error failed(const char* what, const std::string& path) {
  return Error{format("%s %s: %s", what, path.c_str(), std::strerror(errno))};
}

// Before anything is copied: what the server that wrote it wrote. A format that we do not know of is a newer server's.
Result<void> check_formats(const Manifest& manifest) {
  for (const auto& [name, version] : manifest.formats) {
    const formats::Format* known = nullptr;
    for (const formats::Format* format : formats::kAll) known = name == format->name ? format : known;
    if (known == nullptr || version > known->version)
      return Error{format(
          "the backup was made by lockstep %s, which writes %s of version %llu; this one reads %s: "
          "restore it with that release",
          manifest.lockstep.c_str(), as_one_line(name.substr(0, 40)).c_str(), static_cast<unsigned long long>(version),
          known == nullptr ? "none" : format("up to version %u", known->version).c_str())};
  }
  return {};
}

// The format of a file by its name below a tenant's folder, or the data folder's.
const formats::Format* format_of(std::string_view name) {
  auto is_in = [&](std::string_view folder) {
    return name.starts_with(folder) || name.find("/" + std::string(folder)) != std::string_view::npos;
  };
  if (is_in("metrics/log/")) return name.ends_with(".snap") || name.ends_with(".wal") ? &formats::kMetricLog : nullptr;
  if (is_in("metrics/blocks/")) return &formats::kMetricBlock;
  if (name.ends_with("metrics/tombstones")) return &formats::kTombstones;
  if (is_in("steps/")) return &formats::kStepFile;
  if (is_in("spans/")) return &formats::kSpanFile;
  if (is_in("logs/")) return &formats::kLogFile;
  if (is_in("log/")) return &formats::kDurableLog;
  if (is_in("sle/") && (name.ends_with(".snap") || name.ends_with(".wal"))) return &formats::kMetricLog;  // its frame
  return nullptr;
}

Result<void> check_state(const std::string& path) {
  constexpr off_t kUserVersionAt = 60;  // of a SQLite file, big-endian
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  uint8_t at[4];
  if (!file.valid() || ::pread(file.get(), at, sizeof at, kUserVersionAt) != sizeof at)
    return Error{path + " is no state database"};
  const uint32_t version = static_cast<uint32_t>(at[0]) << 24 | static_cast<uint32_t>(at[1]) << 16 |
                           static_cast<uint32_t>(at[2]) << 8 | at[3];
  return formats::check_version(formats::kState, path, version);
}

class Restoring {
 public:
  Restoring(const Repository& repository, std::string data, const Progress& progress)
      : repository_(repository), data_(std::move(data)), part_(data_ + ".part"), progress_(progress) {}

  Result<void> run(const Manifest& manifest) {
    LOCKSTEP_TRY(check_formats(manifest));
    LOCKSTEP_TRY(check_place());
    LOCKSTEP_TRY(take_part());
    Result<void> done = write_all_files(manifest);
    if (done.ok()) done = finish();
    if (!done.ok()) {
      std::error_code ignored;
      std::filesystem::remove_all(part_, ignored);
    }
    return done;
  }
  bool was_left() const { return was_left_; }

 private:
  Result<void> check_place() const {
    struct stat info {};
    if (lstat(data_.c_str(), &info) != 0) return {};
    const std::vector<std::string> names = LOCKSTEP_TRY(list_directory(data_));
    if (!names.empty()) return Error{data_ + " is not empty: a backup is restored into a folder of its own"};
    return {};
  }

  // Makes the folder beside, or empties what a restore that was killed has left of it.
  Result<void> take_part() {
    was_left_ = ::mkdir(part_.c_str(), 0700) != 0;
    if (was_left_ && errno != EEXIST) return failed("cannot create", part_);
    const std::string marker = part_ + "/" + kMarker;
    std::vector<std::string> names;
    if (was_left_) {
      names = LOCKSTEP_TRY(list_directory(part_));
      if (!names.empty() && std::find(names.begin(), names.end(), kMarker) == names.end())
        return Error{part_ + " is there, and no restore has made it: move it away"};
    }
    lock_ = UniqueFd(::open(marker.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!lock_.valid()) return failed("cannot create", marker);
    if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) return Error{part_ + " is being written by another restore"};
    std::error_code error;
    for (const std::string& name : names) {
      if (name != kMarker) std::filesystem::remove_all(part_ + "/" + name, error);
      if (error) return Error{format("cannot remove %s/%s: %s", part_.c_str(), name.c_str(), error.message().c_str())};
    }
    return {};
  }

  // All of them, so that one run says everything that is wrong.
  Result<void> write_all_files(const Manifest& manifest) {
    std::string line;
    size_t wrong = 0;
    for (const File& file : manifest.files) {
      Result<void> written = write_one(file, manifest.bytes());
      if (written.ok()) continue;
      if (++wrong <= kNamedMax) line += (line.empty() ? "" : "; ") + file.name + ": " + written.error();
    }
    if (wrong == 0) return {};
    return Error{format("%zu of %zu files cannot be restored, and nothing was: %s%s", wrong, manifest.files.size(),
                        line.c_str(), wrong > kNamedMax ? "; ..." : "")};
  }

  Result<void> write_one(const File& file, uint64_t bytes_all) {
    const std::string path = part_ + "/" + file.name;
    LOCKSTEP_TRY(make_directories(path.substr(0, path.rfind('/'))));
    const UniqueFd out(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!out.valid()) return failed("cannot create", path);
    for (size_t i = 0; i < file.pieces.size(); ++i) {
      const std::string content = LOCKSTEP_TRY(repository_.read_piece(file.pieces[i]));
      if (content.size() != piece_bytes(file, i))
        return Error{format("piece %zu has %zu bytes, not %llu", i, content.size(),
                            static_cast<unsigned long long>(piece_bytes(file, i)))};
      Result<void> written = write_all(out.get(), content);
      if (!written.ok()) return prefixed(written.failure(), path + ": ");
      done_ += content.size();
      if (progress_) progress_(done_, bytes_all);
    }
    if (const formats::Format* format = format_of(file.name)) return formats::check_file(*format, path);
    if (file.name == "state.sqlite" || file.name.ends_with("/state.sqlite")) return check_state(path);
    return {};
  }

  Result<void> finish() const {
    const std::string marker = part_ + "/" + kMarker;
    if (::unlink(marker.c_str()) != 0) return failed("cannot remove", marker);
    const UniqueFd folder(::open(part_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder.valid() || ::syncfs(folder.get()) != 0) return failed("cannot sync", part_);
    if (::chmod(part_.c_str(), 0700) != 0) return failed("cannot make private", part_);
    if (::rename(part_.c_str(), data_.c_str()) != 0) return failed("cannot rename to", data_);
    const size_t slash = data_.rfind('/');
    return sync_directory(slash == std::string::npos ? "." : slash == 0 ? "/" : data_.substr(0, slash));
  }

  const Repository& repository_;
  const std::string data_, part_;
  const Progress& progress_;
  uint64_t done_ = 0;
  UniqueFd lock_;  // of the marker, until we end
  bool was_left_ = false;
};

std::string without_end_slash(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

}  // namespace

Result<Restored> restore(const Repository& repository, uint64_t generation, const std::string& data,
                         const Progress& progress) {
  Manifest manifest = LOCKSTEP_TRY(find_generation(repository, generation));
  Restoring restoring(repository, without_end_slash(data), progress);
  LOCKSTEP_TRY(restoring.run(manifest));
  const uint64_t bytes = manifest.bytes();
  return Restored{std::move(manifest), bytes, restoring.was_left()};
}

}  // namespace lockstep::backup
