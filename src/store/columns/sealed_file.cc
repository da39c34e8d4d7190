#include "store/columns/sealed_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/crc32c.h"
#include "base/disk.h"
#include "base/files.h"
#include "base/text.h"
#include "store/columns/byte_codec.h"
#include "store/columns/int_codec.h"
#include "store/sealed/part_file.h"

namespace lockstep::columns {
namespace {

constexpr size_t kHeadBytes = 16;
constexpr size_t kTailBytes = 24;
constexpr size_t kFooterBytesMax = 64u << 20;

class BytesSource final : public SectionSource {
 public:
  explicit BytesSource(std::string_view bytes) : bytes_(bytes) {}
  Result<std::string> read(const SectionPlace& place) const override {
    if (place.offset > bytes_.size() || place.bytes > bytes_.size() - place.offset)
      return Error{"a section goes past the end of the file"};
    return std::string(bytes_.substr(place.offset, place.bytes));
  }

 private:
  std::string_view bytes_;
};

class DiskSource final : public SectionSource {
 public:
  DiskSource(const std::string& path, uint64_t size, UniqueFd fd)
      : path_(path), size_(size), fd_(std::move(fd)), error_(errno) {}

  Result<std::string> read(const SectionPlace& place) const override {
    if (!fd_.valid()) return Error{format("%s: %s", path_.c_str(), std::strerror(error_))};
    if (place.offset > size_ || place.bytes > size_ - place.offset)
      return Error{"a section goes past the end of the file"};
    std::string bytes(place.bytes, '\0');
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t got = disk::pread(fd_.get(), bytes.data() + done, bytes.size() - done, place.offset + done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Error{format("%s: %s", path_.c_str(), std::strerror(errno))};
      if (got == 0) return Error{format("%s: shorter than it was", path_.c_str())};
      done += static_cast<size_t>(got);
    }
    return bytes;
  }

 private:
  std::string path_;
  uint64_t size_;
  UniqueFd fd_;
  int error_;
};

// One line that says so when the disk is full, and nothing left behind.
Result<void> write_whole(const std::string& folder, const std::string& name, std::string_view content) {
  sealed::PartFile file(folder, name);
  Result<void> done = file.opened();
  if (done.ok()) done = file.write(content);
  if (done.ok()) done = file.sync();
  if (done.ok()) done = file.rename();
  if (!done.ok()) return prefixed(done.failure(), file.path() + ": ");
  return {};
}

}  // namespace

std::unique_ptr<SectionSource> bytes_source(std::string_view bytes) {
  return std::make_unique<BytesSource>(bytes);
}

std::unique_ptr<SectionSource> disk_source(const std::string& path, uint64_t size, UniqueFd fd) {
  return std::make_unique<DiskSource>(path, size, std::move(fd));
}

std::unique_ptr<SectionSource> disk_source(const std::string& path, uint64_t size) {
  return disk_source(path, size, UniqueFd(disk::open(path, disk::Open::kRead)));
}

std::string start_content(const SealedFormat& format) {
  std::string content(format.magic);
  put_fixed(content, format.version);
  put_fixed(content, uint32_t{0});
  return content;
}

Result<uint64_t> write_sealed(const SealedFormat& format, const std::string& folder, const std::string& name,
                              std::string content, std::string_view footer) {
  const std::string packed = pack_bytes(footer);
  const uint64_t footer_at = content.size();
  content += packed;
  put_fixed(content, footer_at);
  put_fixed(content, static_cast<uint32_t>(packed.size()));
  put_fixed(content, crc32c(packed));
  put_fixed(content, format.version);
  content += format.end_magic;
  LOCKSTEP_TRY(write_whole(folder, name, content));
  LOCKSTEP_TRY(sync_directory(folder));
  return content.size();
}

Result<std::string> read_footer(const SealedFormat& format, uint64_t size, const SectionSource& source) {
  if (size < kHeadBytes + kTailBytes)
    return Error{lockstep::format("%llu bytes are no %s", static_cast<unsigned long long>(size), format.name)};
  const std::string head = LOCKSTEP_TRY(source.read({0, 0, kHeadBytes, 0}));
  const std::string tail = LOCKSTEP_TRY(source.read({0, size - kTailBytes, kTailBytes, 0}));
  if (!head.starts_with(format.magic)) return Error{lockstep::format("not a %s", format.name)};
  ByteReader in_head(std::string_view(head).substr(format.magic.size()));
  const uint32_t version = in_head.fixed<uint32_t>();
  if (version != format.version) {
    return Error{lockstep::format("format version %u, and this server reads version %u", version, format.version)};
  }
  if (!tail.ends_with(format.end_magic)) return Error{"torn: it has no end"};
  ByteReader in_tail(tail);
  const uint64_t footer_at = in_tail.fixed<uint64_t>();
  const uint32_t footer_bytes = in_tail.fixed<uint32_t>();
  const uint32_t footer_crc = in_tail.fixed<uint32_t>();
  if (footer_at > size - kTailBytes || footer_bytes != size - kTailBytes - footer_at)
    return Error{"its footer is not where its end says"};
  std::string footer = LOCKSTEP_TRY(source.read({0, footer_at, footer_bytes, 0}));
  if (crc32c(footer) != footer_crc) return Error{"its footer has a wrong checksum"};
  std::string plain;
  if (!unpack_bytes(footer, kFooterBytesMax, plain)) return Error{"its footer cannot be unpacked"};
  return plain;
}

Result<void> check_sealed_version(const formats::Format& format, const std::string& path) {
  Result<uint64_t> size = file_size(path);
  if (!size.ok() || *size < kHeadBytes + kTailBytes) return {};
  const std::unique_ptr<SectionSource> source = disk_source(path, *size);
  Result<std::string> head = source->read({0, 0, kHeadBytes, 0});
  Result<std::string> tail = source->read({0, *size - kTailBytes, kTailBytes, 0});
  if (!head.ok() || !tail.ok()) return {};
  const formats::Head found = formats::read_head(format, *head);
  if (found.found != formats::Found::kOlder && found.found != formats::Found::kNewer) return {};
  ByteReader in_tail(std::string_view(*tail).substr(kTailBytes - 8));
  if (in_tail.fixed<uint32_t>() != found.version) return {};
  return formats::check_version(format, path, found.version);
}

Result<uint64_t> file_size(const std::string& path) {
  struct stat about {};
  if (::stat(path.c_str(), &about) != 0) return Error{path + ": " + std::strerror(errno)};
  return static_cast<uint64_t>(about.st_size);
}

}  // namespace lockstep::columns
