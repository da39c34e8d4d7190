#include "store/spans/span_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/crc32c.h"
#include "base/text.h"
#include "store/spans/byte_codec.h"
#include "store/spans/int_codec.h"

namespace lockstep::spans {
namespace {

constexpr std::string_view kMagic = "LSSPANS\n";
constexpr std::string_view kTailMagic = "LSSE";
constexpr size_t kHeadBytes = 16;
constexpr size_t kTailBytes = 24;
constexpr size_t kFooterBytesMax = 64u << 20;
constexpr size_t kGroupsMax = 65'536;

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
  DiskSource(const std::string& path, uint64_t size)
      : path_(path), size_(size), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), error_(errno) {}

  Result<std::string> read(const SectionPlace& place) const override {
    if (!fd_.valid()) return Error{format("%s: %s", path_.c_str(), std::strerror(error_))};
    if (place.offset > size_ || place.bytes > size_ - place.offset)
      return Error{"a section goes past the end of the file"};
    std::string bytes(place.bytes, '\0');
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t got =
          ::pread(fd_.get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(place.offset + done));
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

std::string encode_footer(const SpanFileInfo& info, const std::vector<RowGroupMeta>& groups) {
  std::string out;
  put_varint(out, info.number);
  put_varint(out, info.first_sequence);
  put_varint(out, info.last_sequence);
  put_signed(out, info.received_unix_ns.least);
  put_signed(out, info.received_unix_ns.most);
  put_varint(out, info.replaces.size());
  for (uint64_t number : info.replaces) put_varint(out, number);
  put_varint(out, groups.size());
  for (const RowGroupMeta& group : groups) encode_meta(out, group);
  return pack_bytes(out);
}

// One line that says so when the disk is full, and nothing left behind.
Result<void> write_whole(const std::string& path, std::string_view content) {
  const std::string beside = path + ".part";
  auto failed = [&](const std::string& why) {
    ::unlink(beside.c_str());
    return Error{path + ": " + why};
  };
  UniqueFd fd(::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) return failed(std::strerror(errno));
  if (Result<void> written = write_all(fd.get(), content); !written.ok()) return failed(written.error());
  if (::fsync(fd.get()) != 0) return failed(std::strerror(errno));
  fd.reset();
  if (::rename(beside.c_str(), path.c_str()) != 0) return failed(std::strerror(errno));
  return {};
}

}  // namespace

std::string SpanFileInfo::name() const {
  return format("spans-%llu-%llu-%llu.blk", static_cast<unsigned long long>(number),
                static_cast<unsigned long long>(first_sequence), static_cast<unsigned long long>(last_sequence));
}

std::optional<SpanFileInfo> SpanFileInfo::from_name(std::string_view name) {
  if (!name.starts_with("spans-") || !name.ends_with(".blk")) return std::nullopt;
  name.remove_prefix(6);
  name.remove_suffix(4);
  std::vector<std::string_view> parts = split(name, '-');
  if (parts.size() != 3) return std::nullopt;
  std::optional<uint64_t> number = parse_uint(parts[0]);
  std::optional<uint64_t> first = parse_uint(parts[1]);
  std::optional<uint64_t> last = parse_uint(parts[2]);
  if (!number || !first || !last) return std::nullopt;
  SpanFileInfo info;
  info.number = *number;
  info.first_sequence = *first;
  info.last_sequence = *last;
  return info;
}

std::string SpanFile::start_content() {
  std::string content(kMagic);
  put_fixed(content, kSpanFileVersion);
  put_fixed(content, uint32_t{0});
  return content;
}

Result<std::shared_ptr<const SpanFile>> SpanFile::write(const std::string& folder, const SpanFileInfo& info,
                                                        std::vector<RowGroupMeta> groups, std::string content) {
  const std::string footer = encode_footer(info, groups);
  const uint64_t footer_at = content.size();
  content += footer;
  put_fixed(content, footer_at);
  put_fixed(content, static_cast<uint32_t>(footer.size()));
  put_fixed(content, crc32c(footer));
  put_fixed(content, kSpanFileVersion);
  content += kTailMagic;

  std::shared_ptr<SpanFile> file(new SpanFile());
  file->info_ = info;
  file->path_ = folder + "/" + info.name();
  file->bytes_ = content.size();
  file->groups_ = std::move(groups);
  file->spoilt_ = std::make_unique<std::atomic<bool>[]>(file->groups_.size());
  if (Result<void> written = write_whole(file->path_, content); !written.ok()) return Error{written.error()};
  if (Result<void> synced = sync_directory(folder); !synced.ok()) return Error{synced.error()};
  return std::shared_ptr<const SpanFile>(std::move(file));
}

Result<std::shared_ptr<const SpanFile>> SpanFile::open(const std::string& folder, const SpanFileInfo& from_name) {
  std::shared_ptr<SpanFile> file(new SpanFile());
  file->info_ = from_name;
  file->path_ = folder + "/" + from_name.name();
  struct stat about {};
  if (::stat(file->path_.c_str(), &about) != 0) return Error{file->path_ + ": " + std::strerror(errno)};
  const uint64_t size = static_cast<uint64_t>(about.st_size);
  DiskSource source(file->path_, size);
  const std::string path = file->path_;
  Result<std::shared_ptr<const SpanFile>> read = read_footer(std::move(file), size, source);
  if (!read.ok()) return Error{path + ": " + read.error()};
  return read;
}

Result<std::shared_ptr<const SpanFile>> SpanFile::from_bytes(std::string content) {
  std::shared_ptr<SpanFile> file(new SpanFile());
  file->content_ = std::move(content);
  BytesSource source(file->content_);
  const uint64_t size = file->content_.size();
  return read_footer(std::move(file), size, source);
}

Result<std::shared_ptr<const SpanFile>> SpanFile::read_footer(std::shared_ptr<SpanFile> file, uint64_t size,
                                                              const SectionSource& source) {
  if (size < kHeadBytes + kTailBytes)
    return Error{format("%llu bytes are no span file", static_cast<unsigned long long>(size))};
  Result<std::string> head = source.read({0, 0, kHeadBytes, 0});
  Result<std::string> tail = source.read({0, size - kTailBytes, kTailBytes, 0});
  if (!head.ok()) return Error{head.error()};
  if (!tail.ok()) return Error{tail.error()};
  if (!head->starts_with(kMagic)) return Error{"not a span file"};
  ByteReader in_head(std::string_view(*head).substr(kMagic.size()));
  const uint32_t version = in_head.fixed<uint32_t>();
  if (version != kSpanFileVersion)
    return Error{format("format version %u, and this server reads version %u", version, kSpanFileVersion)};
  if (!tail->ends_with(kTailMagic)) return Error{"torn: it has no end"};
  ByteReader in_tail(*tail);
  const uint64_t footer_at = in_tail.fixed<uint64_t>();
  const uint32_t footer_bytes = in_tail.fixed<uint32_t>();
  const uint32_t footer_crc = in_tail.fixed<uint32_t>();
  if (footer_at > size - kTailBytes || footer_bytes != size - kTailBytes - footer_at)
    return Error{"its footer is not where its end says"};
  Result<std::string> footer = source.read({0, footer_at, footer_bytes, 0});
  if (!footer.ok()) return Error{footer.error()};
  if (crc32c(*footer) != footer_crc) return Error{"its footer has a wrong checksum"};
  std::string plain;
  if (!unpack_bytes(*footer, kFooterBytesMax, plain)) return Error{"its footer cannot be unpacked"};
  ByteReader in(plain);
  SpanFileInfo& info = file->info_;
  info.number = in.varint();
  info.first_sequence = in.varint();
  info.last_sequence = in.varint();
  info.received_unix_ns.least = in.signed_varint();
  info.received_unix_ns.most = in.signed_varint();
  info.replaces.resize(in.count());
  for (uint64_t& number : info.replaces) number = in.varint();
  const uint64_t groups = in.varint();
  if (groups > kGroupsMax) in.fail();
  for (uint64_t i = 0; i < groups && in.ok(); ++i) decode_meta(in, file->groups_.emplace_back());
  if (!in.ok() || !in.at_end()) return Error{"its footer does not make sense"};
  file->bytes_ = size;
  file->spoilt_ = std::make_unique<std::atomic<bool>[]>(file->groups_.size());
  return std::shared_ptr<const SpanFile>(std::move(file));
}

uint64_t SpanFile::rows() const {
  uint64_t rows = 0;
  for (const RowGroupMeta& group : groups_) rows += group.rows;
  return rows;
}

uint64_t SpanFile::readable_rows() const {
  uint64_t rows = 0;
  for (size_t i = 0; i < groups_.size(); ++i) rows += is_spoilt(i) ? 0 : groups_[i].rows;
  return rows;
}

std::unique_ptr<SectionSource> SpanFile::source() const {
  if (path_.empty()) return std::make_unique<BytesSource>(content_);
  return std::make_unique<DiskSource>(path_, bytes_);
}

}  // namespace lockstep::spans
