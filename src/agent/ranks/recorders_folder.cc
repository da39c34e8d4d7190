#include "agent/ranks/recorders_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "base/files.h"
#include "base/text.h"

namespace lockstep {

Result<std::string> prepare_recorders_folder(const std::string& path) {
  auto failed = [&](const char* what) { return Error{format("%s %s: %s", what, path.c_str(), std::strerror(errno))}; };
  const size_t slash = path.rfind('/');
  if (slash != std::string::npos && slash > 0) {
    LOCKSTEP_TRY(make_directories(path.substr(0, slash)));
  }
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return failed("cannot make folder");
  std::string real = path;
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return failed("cannot look at");
  if (S_ISLNK(info.st_mode)) {
    if (info.st_uid != ::geteuid() && info.st_uid != 0)
      return Error{format("%s is a link that user %u has put there; it is not followed", path.c_str(),
                          static_cast<unsigned>(info.st_uid))};
    char resolved[PATH_MAX];
    if (::realpath(path.c_str(), resolved) == nullptr) return failed("cannot follow");
    real = resolved;
  }
  const UniqueFd folder(::open(real.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder.valid() || ::fstat(folder.get(), &info) != 0) return failed("cannot open folder");
  if (info.st_uid == ::geteuid() && ::fchmod(folder.get(), 0700) != 0) return failed("cannot close to others");
  return real;
}

}  // namespace lockstep
