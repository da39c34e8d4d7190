#include "profile/baseline/baseline_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/random_id.h"
#include "base/text.h"

namespace lockstep::profile {
namespace {

constexpr std::string_view kEnd = ".baseline";

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

std::string file_name(const std::string& name) {
  return name + std::string(kEnd);
}

// A saver that has not touched its file for so long is dead: 16 MB take no hour on any disk.
constexpr int64_t kLeftBehindSeconds = 3600;
constexpr std::string_view kBesideEnd = ".tmp";

// One that no other saver has, also where they are in two containers and both are process 1.
std::string beside_name(const std::string& name) {
  return random_id(("." + name + ".tmp").c_str());
}

// ".NAME.tmp-0123456789ab", or ".NAME.17.tmp" as it once was.
bool is_beside_name(std::string_view file) {
  const size_t end = file.rfind(kBesideEnd);
  if (!file.starts_with('.') || end == std::string_view::npos) return false;
  const std::string_view name = file.substr(1, end - 1), rest = file.substr(end + kBesideEnd.size());
  const bool is_random = rest.starts_with('-') && rest.size() > 1 &&
                         rest.find_first_not_of("0123456789abcdef", 1) == std::string_view::npos;
  const size_t process = name.rfind('.');
  const bool is_of_process = rest.empty() && process != std::string_view::npos && process + 1 < name.size() &&
                             name.find_first_not_of("0123456789", process + 1) == std::string_view::npos;
  return (is_random || is_of_process) && BaselineFolder::check_name(name).ok();
}

}  // namespace

Result<void> BaselineFolder::check_name(std::string_view name) {
  const bool is_name = !name.empty() && name.size() <= kNameLengthMax && is_letter_or_digit(name.front()) &&
                       std::all_of(name.begin(), name.end(),
                                   [](char c) { return is_letter_or_digit(c) || c == '.' || c == '_' || c == '-'; });
  if (is_name) return {};
  return Error{
      format("\"%s\" is no name of a baseline: letters, digits, '.', '_' and '-', %zu at most, the first a "
             "letter or a digit",
             as_one_line(utf8_prefix(name, 60)).c_str(), kNameLengthMax)};
}

Result<BaselineFolder> BaselineFolder::open(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.valid()) return BaselineFolder(path, std::move(fd));
  return Error{format("no folder of baselines %s: %s", path.c_str(), std::strerror(errno)),
               errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kUnspecified};
}

Result<BaselineFolder> BaselineFolder::make(const std::string& path) {
  LOCKSTEP_TRY(make_directories(path));
  return open(path);
}

std::string BaselineFolder::file_of(const std::string& name) const {
  return path_ + "/" + file_name(name);
}

Error BaselineFolder::failed(const char* what, const std::string& name) const {
  if (errno == ENOENT) return {format("no baseline %s in %s", name.c_str(), path_.c_str()), ErrorCode::kNotFound};
  const char* why = errno == ELOOP ? "it is a symbolic link, which is not followed" : std::strerror(errno);
  return {format("cannot %s %s: %s", what, file_of(name).c_str(), why)};
}

Result<std::string> BaselineFolder::read_text(const std::string& name) const {
  // A pipe in its place is not waited for.
  const UniqueFd file(
      ::openat(fd_.get(), file_name(name).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat info {};
  if (!file.valid() || ::fstat(file.get(), &info) != 0) return failed("open", name);
  if (!S_ISREG(info.st_mode)) return Error{file_of(name) + ": this is no file"};
  std::string text;
  char buffer[65536];
  while (true) {
    const ssize_t got = ::read(file.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed("read", name);
    if (got == 0) return text;
    text.append(buffer, static_cast<size_t>(got));
    if (text.size() > kBaselineBytesMax)
      return Error{
          format("%s: larger than %zu bytes, the limit of a baseline", file_of(name).c_str(), kBaselineBytesMax)};
  }
}

Result<Baseline> BaselineFolder::read(const std::string& name) const {
  LOCKSTEP_TRY(check_name(name));
  const std::string text = LOCKSTEP_TRY(read_text(name));
  Result<Baseline> baseline = parse_baseline_untrusted(text);
  if (!baseline.ok()) return prefixed(baseline.failure(), file_of(name) + ": ");
  return baseline;
}

// By the clock of the file system, which savers on several machines have in common.
void BaselineFolder::remove_left_behind(int64_t now_unix_s) const {
  const Result<std::vector<std::string>> files = list_directory(format("/proc/self/fd/%d", fd_.get()));
  if (!files.ok()) return;
  for (const std::string& file : *files) {
    struct stat info {};
    if (!is_beside_name(file) || ::fstatat(fd_.get(), file.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (S_ISREG(info.st_mode) && now_unix_s - info.st_mtime > kLeftBehindSeconds)
      (void)::unlinkat(fd_.get(), file.c_str(), 0);
  }
}

Result<void> BaselineFolder::write_beside(const std::string& beside, std::string_view text) const {
  const UniqueFd file(::openat(fd_.get(), beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!file.valid())
    return Error{format("cannot create %s/%s: %s", path_.c_str(), beside.c_str(), std::strerror(errno))};
  struct stat info {};
  if (::fstat(file.get(), &info) == 0) remove_left_behind(info.st_mtime);
  Result<void> written = write_all(file.get(), text);
  if (written.ok() && ::fsync(file.get()) != 0)
    written = Error{format("cannot sync %s/%s: %s", path_.c_str(), beside.c_str(), std::strerror(errno))};
  if (!written.ok()) (void)::unlinkat(fd_.get(), beside.c_str(), 0);
  return written;
}

Result<void> BaselineFolder::write(const std::string& name, const Baseline& baseline) const {
  LOCKSTEP_TRY(check_name(name));
  const std::string text = LOCKSTEP_TRY(baseline_text(baseline));
  const std::string beside = beside_name(name);
  LOCKSTEP_TRY(write_beside(beside, text));
  if (::renameat(fd_.get(), beside.c_str(), fd_.get(), file_name(name).c_str()) != 0) {
    const Error error{format("cannot write %s: %s", file_of(name).c_str(), std::strerror(errno))};
    (void)::unlinkat(fd_.get(), beside.c_str(), 0);
    return error;
  }
  if (::fsync(fd_.get()) != 0) return Error{format("cannot sync %s: %s", path_.c_str(), std::strerror(errno))};
  return {};
}

Result<void> BaselineFolder::remove(const std::string& name) const {
  LOCKSTEP_TRY(check_name(name));
  if (::unlinkat(fd_.get(), file_name(name).c_str(), 0) != 0) return failed("delete", name);
  return {};
}

Result<std::vector<std::string>> BaselineFolder::names() const {
  std::vector<std::string> names;
  for (std::string& file : LOCKSTEP_TRY(list_directory(format("/proc/self/fd/%d", fd_.get())))) {
    if (!file.ends_with(kEnd)) continue;
    file.resize(file.size() - kEnd.size());
    if (!check_name(file).ok()) continue;
    if (names.size() == kListedMax)
      return Error{format("%s: more than %zu baselines, the limit of a list", path_.c_str(), kListedMax)};
    names.push_back(std::move(file));
  }
  return names;
}

}  // namespace lockstep::profile
