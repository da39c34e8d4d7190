#include "base/held_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/disk.h"
#include "base/text.h"

namespace lockstep {

Result<HeldFile> hold_file(const std::string& path, const std::string& folder, const std::string& name) {
  const std::string to = folder + "/" + name;
  if (disk::link(path, to) != 0 && errno != EEXIST)
    return Error{format("cannot hold %s as %s: %s", path.c_str(), to.c_str(), std::strerror(errno))};
  struct stat info {};
  if (stat(to.c_str(), &info) != 0) return Error{format("cannot hold %s: %s", path.c_str(), std::strerror(errno))};
  return HeldFile{name, static_cast<uint64_t>(info.st_size), false};
}

}  // namespace lockstep
