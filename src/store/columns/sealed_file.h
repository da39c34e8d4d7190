// The frame that files of columns share: a head, sections, a packed and checksummed footer, an end. Such a file is
// written once, whole, and never changed (docs/formats/span-blocks.md, step-blocks.md).
//
// write_sealed() leaves the whole file under its name, synced, or nothing. read_footer() checks head, end and the
// footer's checksum; sections are for their readers to check.
// On error: a file that is torn, foreign or of another version is one clear line.
// Thread rule: Thread-safe (no state); a source is Confined.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

#include "base/files.h"
#include "base/format_versions.h"
#include "base/result.h"

namespace lockstep::columns {

struct SealedFormat {
  std::string_view magic;      // 8 bytes
  std::string_view end_magic;  // 4 bytes
  uint32_t version;
  const char* name;  // "span file"
};
constexpr SealedFormat sealed_format(const formats::Format& format, std::string_view end_magic) {
  return {format.magic, end_magic, format.version, format.name};
}

struct SectionPlace {
  uint32_t section = 0;
  uint64_t offset = 0;  // in the file
  uint32_t bytes = 0;
  uint32_t crc = 0;
};

// Where sections come from.
class SectionSource {
 public:
  virtual ~SectionSource() = default;
  virtual Result<std::string> read(const SectionPlace& place) const = 0;
};
// `bytes` must outlive it.
std::unique_ptr<SectionSource> bytes_source(std::string_view bytes);
// Good for a few reads in a row. Where there is no descriptor, reading fails as the last call of this thread has.
std::unique_ptr<SectionSource> disk_source(const std::string& path, uint64_t size, UniqueFd fd);
std::unique_ptr<SectionSource> disk_source(const std::string& path, uint64_t size);

template <typename T>
struct Range {
  T least = std::numeric_limits<T>::max();
  T most = std::numeric_limits<T>::min();
  void add(T value) {
    least = value < least ? value : least;
    most = value > most ? value : most;
  }
  void add(const Range& other) {
    if (other.empty()) return;
    add(other.least);
    add(other.most);
  }
  bool empty() const { return least > most; }
  bool overlaps(T from, T to) const { return !empty() && least <= to && most >= from; }
  bool has(T value) const { return overlaps(value, value); }
};

// What a file begins with.
std::string start_content(const SealedFormat& format);
// `content` and its footer, which is packed here, become a file. Gives its size.
Result<uint64_t> write_sealed(const SealedFormat& format, const std::string& folder, const std::string& name,
                              std::string content, std::string_view footer);
// The footer, unpacked.
Result<std::string> read_footer(const SealedFormat& format, uint64_t size, const SectionSource& source);
// An error only where the file is whole and of a version that is not read: its head and its end say the same. A file
// that is damaged is for its reader to refuse.
Result<void> check_sealed_version(const formats::Format& format, const std::string& path);
Result<uint64_t> file_size(const std::string& path);

}  // namespace lockstep::columns
