#include "base/format_versions.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/files.h"
#include "base/text.h"

namespace lockstep::formats {

Head read_head(const Format& format, std::string_view bytes) {
  const bool is_digit = format.place == VersionPlace::kDigit;
  const size_t head_bytes = format.magic.size() + (is_digit ? 1 : sizeof(uint32_t));
  const std::string_view head = bytes.substr(0, head_bytes);
  if (head.empty() || head.find_first_not_of('\0') == std::string_view::npos) return {Found::kTorn};
  if (!head.starts_with(format.magic.substr(0, head.size()))) return {Found::kForeign};
  if (head.size() < head_bytes) return {Found::kTorn};
  uint32_t version = 0;
  if (is_digit) {
    const char digit = head.back();
    if (digit < '0' || digit > '9') return {Found::kForeign};
    version = static_cast<uint32_t>(digit - '0');
  } else {
    std::memcpy(&version, head.data() + format.magic.size(), sizeof version);
  }
  if (version < format.oldest) return {Found::kOlder, version};
  return {version > format.version ? Found::kNewer : Found::kKnown, version};
}

Result<void> check_version(const Format& format, const std::string& path, uint32_t version) {
  if (version >= format.oldest && version <= format.version) return {};
  const std::string reads = format.oldest == format.version
                                ? lockstep::format("version %u", format.version)
                                : lockstep::format("versions %u to %u", format.oldest, format.version);
  return Error{lockstep::format(
      "%s: a %s of format version %u, and this server reads %s; nothing was changed. %s, or move the folder away to "
      "begin "
      "anew (docs/formats/README.md)",
      path.c_str(), format.name, version, reads.c_str(),
      version > format.version ? "It is newer: start the release that wrote it"
                               : "It is older: start a release that still reads it, which upgrades it")};
}

Result<void> check_file(const Format& format, const std::string& path) {
  UniqueFd file(
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe is no file of ours: never wait for it
  char bytes[32];
  const ssize_t got = file.valid() ? ::pread(file.get(), bytes, sizeof bytes, 0) : -1;
  if (got <= 0) return {};
  const Head head = read_head(format, {bytes, static_cast<size_t>(got)});
  if (head.found != Found::kOlder && head.found != Found::kNewer) return {};
  return check_version(format, path, head.version);
}

}  // namespace lockstep::formats
