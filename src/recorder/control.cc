#include "recorder/control.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/files.h"
#include "recorder/layout.h"

namespace lockstep {

std::optional<uint16_t> mask_of_level(const std::string& level) {
  if (level == "low") return kDetailLow;
  if (level == "full") return kDetailFull;
  return std::nullopt;
}

Result<void> ask_detail(const std::string& path, std::optional<DetailRequest> request) {
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.valid()) return Error{"recorder: " + path + ": " + std::strerror(errno)};
  return ask_detail(fd.get(), path, request);
}

Result<void> ask_detail(int file, const std::string& what, std::optional<DetailRequest> request) {
  struct stat status {};
  layout::FileHeader header;
  if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode) ||
      ::pread(file, &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header)) {
    return Error{"recorder: " + what + ": too short for a flight recorder"};
  }
  if (const char* fault = layout::header_fault(header, static_cast<uint64_t>(status.st_size)))
    return Error{"recorder: " + what + ": " + fault};
  const uint64_t word = request ? request->word() : 0;
  if (::pwrite(file, &word, sizeof word, offsetof(layout::FileHeader, control)) != static_cast<ssize_t>(sizeof word))
    return Error{"recorder: " + what + ": " + std::strerror(errno)};
  return {};
}

}  // namespace lockstep
