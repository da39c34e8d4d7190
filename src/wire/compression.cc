#include "wire/compression.h"

#include <array>
#include <memory>
#include <optional>

#include "base/characters.h"
#include "base/text.h"
#ifdef LOCKSTEP_SNAPPY
#include <snappy.h>
#endif
#ifdef LOCKSTEP_ZLIB
#include <zlib.h>
#endif
#ifdef LOCKSTEP_ZSTD
#include <zstd.h>
#endif

namespace lockstep {
namespace {

using Chunk = std::array<char, 32 * 1024>;

Error not_built(const char* name) {
  return Error{format("%s: this build does without it", name)};
}

#if defined(LOCKSTEP_ZLIB) || defined(LOCKSTEP_ZSTD)
// Takes what a decompressor made; false once it is more than the limit or the lease allows.
bool append_bounded(std::string& out, const char* data, size_t size, uint64_t bytes_max, MemoryLease* lease) {
  if (size > bytes_max - out.size()) return false;
  if (out.capacity() - out.size() < size) {
    const size_t room = std::min<uint64_t>(std::max(out.size() + size, 2 * out.capacity()), bytes_max);
    if (lease != nullptr && !lease->add(room)) return false;  // while it moves it is there twice
    out.reserve(room);
  }
  out.append(data, size);
  return true;
}

Error too_large(const char* name, size_t compressed, uint64_t bytes_max, const MemoryLease* lease) {
  if (lease != nullptr && lease->was_refused()) return Error{kMemorySpent};
  return {format("%s: %zu bytes become more than the limit of %llu", name, compressed,
                 static_cast<unsigned long long>(bytes_max)),
          ErrorCode::kTooLarge};
}
#endif

#ifdef LOCKSTEP_ZLIB
constexpr int kGzipWindowBits = 15 + 16;    // +16: the gzip wrapper, and nothing else
constexpr size_t kZlibPieceMax = 1u << 30;  // zlib counts in unsigned int

struct Inflater {
  z_stream stream{};
  bool ready = inflateInit2(&stream, kGzipWindowBits) == Z_OK;
  ~Inflater() {
    if (ready) inflateEnd(&stream);
  }
};

struct Deflater {
  z_stream stream{};
  bool ready = deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kGzipWindowBits, 8, Z_DEFAULT_STRATEGY) == Z_OK;
  ~Deflater() {
    if (ready) deflateEnd(&stream);
  }
};

void feed(z_stream& stream, std::string_view& rest) {
  if (stream.avail_in > 0 || rest.empty()) return;
  std::string_view piece = rest.substr(0, kZlibPieceMax);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(piece.data()));
  stream.avail_in = static_cast<uInt>(piece.size());
  rest.remove_prefix(piece.size());
}

Result<std::string> gzip_compress(std::string_view data) {
  Deflater deflater;
  if (!deflater.ready) return Error{"gzip: out of memory"};
  std::string out;
  Chunk chunk;
  std::string_view rest = data;
  int status = Z_OK;
  while (status != Z_STREAM_END) {
    feed(deflater.stream, rest);
    deflater.stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
    deflater.stream.avail_out = chunk.size();
    status = deflate(&deflater.stream, rest.empty() ? Z_FINISH : Z_NO_FLUSH);
    if (status != Z_OK && status != Z_STREAM_END) return Error{format("gzip: compression failed with %d", status)};
    out.append(chunk.data(), chunk.size() - deflater.stream.avail_out);
  }
  return out;
}

// A gzip body may be several members one after the other.
Result<std::string> gzip_decompress(std::string_view data, uint64_t bytes_max, MemoryLease* lease) {
  Inflater inflater;
  if (!inflater.ready) return Error{"gzip: out of memory"};
  z_stream& stream = inflater.stream;
  std::string out;
  Chunk chunk;
  std::string_view rest = data;
  while (true) {
    feed(stream, rest);
    stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream.avail_out = chunk.size();
    int status = inflate(&stream, Z_NO_FLUSH);
    if (!append_bounded(out, chunk.data(), chunk.size() - stream.avail_out, bytes_max, lease)) {
      return too_large("gzip", data.size(), bytes_max, lease);
    }
    if (status == Z_STREAM_END) {
      if (stream.avail_in == 0 && rest.empty()) return out;
      inflateReset(&stream);
    } else if (status == Z_BUF_ERROR ||
               (status == Z_OK && stream.avail_in == 0 && rest.empty() && stream.avail_out > 0)) {
      return Error{format("gzip: cut short after %zu bytes", data.size())};
    } else if (status != Z_OK) {
      return Error{format("gzip: %s", stream.msg ? stream.msg : "malformed data")};
    }
  }
}
#endif

#ifdef LOCKSTEP_ZSTD
constexpr int kZstdLevelFast = 1;
constexpr int kZstdLevel = 3;
constexpr int kZstdLevelOfSmall = 9;
constexpr size_t kSmallBytes = 128 * 1024;
// 8 MiB: what RFC 8878 asks every decoder to support. More would let a few bytes claim a lot of memory.
constexpr int kZstdWindowLogMax = 23;

struct ZstdFree {
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

Result<std::string> zstd_compress(std::string_view data, Effort effort) {
  const int level = effort == Effort::kFast      ? kZstdLevelFast
                    : data.size() <= kSmallBytes ? kZstdLevelOfSmall
                                                 : kZstdLevel;
  std::string out(ZSTD_compressBound(data.size()), '\0');
  size_t size = ZSTD_compress(out.data(), out.size(), data.data(), data.size(), level);
  if (ZSTD_isError(size)) return Error{format("zstd: %s", ZSTD_getErrorName(size))};
  out.resize(size);
  return out;
}

// One frame that says how long it becomes, which nearly every body is: in one go, with a context that a thread keeps.
// Making one for each, with its window, cost as much as what is done with it. Nullopt: it is something else, or malformed.
std::optional<std::string> zstd_decompress_frame(std::string_view data, uint64_t bytes_max, MemoryLease* lease) {
  constexpr unsigned long long kDensest = 64;  // a few bytes that claim to become a lot are taken step by step
  const unsigned long long size = ZSTD_getFrameContentSize(data.data(), data.size());
  if (size == ZSTD_CONTENTSIZE_UNKNOWN || size == ZSTD_CONTENTSIZE_ERROR) return std::nullopt;
  if (size > bytes_max || size / kDensest > data.size()) return std::nullopt;
  if (ZSTD_findFrameCompressedSize(data.data(), data.size()) != data.size()) return std::nullopt;
  static thread_local std::unique_ptr<ZSTD_DCtx, ZstdFree> context(ZSTD_createDCtx());
  if (!context || (lease != nullptr && !lease->add(size))) return std::nullopt;
  std::string out(size, '\0');
  const size_t made = ZSTD_decompressDCtx(context.get(), out.data(), out.size(), data.data(), data.size());
  if (ZSTD_isError(made) || made != size) return std::nullopt;
  return out;
}

// A zstd body may be several frames one after the other.
Result<std::string> zstd_decompress(std::string_view data, uint64_t bytes_max, MemoryLease* lease) {
  if (std::optional<std::string> whole = zstd_decompress_frame(data, bytes_max, lease)) return std::move(*whole);
  if (lease != nullptr && lease->was_refused()) return Error{kMemorySpent};
  std::unique_ptr<ZSTD_DCtx, ZstdFree> context(ZSTD_createDCtx());
  if (!context) return Error{"zstd: out of memory"};
  ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, kZstdWindowLogMax);
  std::string out;
  Chunk chunk;
  ZSTD_inBuffer in{data.data(), data.size(), 0};
  size_t wanted = 1;  // 0: a frame has just ended
  while (in.pos < in.size || wanted != 0) {
    const size_t before = in.pos;
    ZSTD_outBuffer piece{chunk.data(), chunk.size(), 0};
    wanted = ZSTD_decompressStream(context.get(), &piece, &in);
    if (ZSTD_isError(wanted)) return Error{format("zstd: %s", ZSTD_getErrorName(wanted))};
    if (!append_bounded(out, chunk.data(), piece.pos, bytes_max, lease))
      return too_large("zstd", data.size(), bytes_max, lease);
    if (wanted != 0 && in.pos == before && piece.pos == 0)
      return Error{format("zstd: cut short after %zu bytes", data.size())};
  }
  return out;
}
#endif

}  // namespace

bool available(Encoding encoding) {
  switch (encoding) {
    case Encoding::kIdentity:
      return true;
#ifdef LOCKSTEP_ZLIB
    case Encoding::kGzip:
      return true;
#endif
#ifdef LOCKSTEP_ZSTD
    case Encoding::kZstd:
      return true;
#endif
    default:
      return false;
  }
}

Result<Encoding> parse_encoding(std::string_view content_encoding) {
  const std::string name = lower_case(trim(content_encoding));  // HTTP: not case-sensitive
  for (Encoding encoding : {Encoding::kIdentity, Encoding::kGzip, Encoding::kZstd}) {
    if (name == to_text(encoding)) return encoding;
  }
  if (name.empty()) return Encoding::kIdentity;
  std::string shown = name.substr(0, 40);
  for (char& letter : shown) {
    if (letter < ' ' || letter > '~') letter = '?';
  }
  std::string understood = "identity";
  if (available(Encoding::kGzip)) understood += ", gzip";
  if (available(Encoding::kZstd)) understood += ", zstd";
  return Error{format("content encoding \"%s\" is not understood (%s are)", shown.c_str(), understood.c_str())};
}

const char* to_text(Encoding encoding) {
  switch (encoding) {
    case Encoding::kIdentity:
      return "identity";
    case Encoding::kGzip:
      return "gzip";
    case Encoding::kZstd:
      return "zstd";
  }
  return "?";
}

Result<std::string> compress(Encoding encoding, std::string_view data, [[maybe_unused]] Effort effort) {
  switch (encoding) {
    case Encoding::kIdentity:
      return std::string(data);
#ifdef LOCKSTEP_ZLIB
    case Encoding::kGzip:
      return gzip_compress(data);
#endif
#ifdef LOCKSTEP_ZSTD
    case Encoding::kZstd:
      return zstd_compress(data, effort);
#endif
    default:
      return not_built(to_text(encoding));
  }
}

Result<std::string> decompress(Encoding encoding, std::string_view data, uint64_t bytes_max,
                               [[maybe_unused]] MemoryLease* lease) {
  switch (encoding) {
    case Encoding::kIdentity:
      if (data.size() > bytes_max) {
        return Error{format("%zu bytes are more than the limit of %llu", data.size(),
                            static_cast<unsigned long long>(bytes_max)),
                     ErrorCode::kTooLarge};
      }
      return std::string(data);
#ifdef LOCKSTEP_ZLIB
    case Encoding::kGzip:
      return gzip_decompress(data, bytes_max, lease);
#endif
#ifdef LOCKSTEP_ZSTD
    case Encoding::kZstd:
      return zstd_decompress(data, bytes_max, lease);
#endif
    default:
      return not_built(to_text(encoding));
  }
}

#ifdef LOCKSTEP_SNAPPY
Result<std::string_view> snappy_decompress(std::string_view data, uint64_t bytes_max, std::string& buffer,
                                           MemoryLease* lease) {
  size_t length_untrusted = 0;
  if (!snappy::GetUncompressedLength(data.data(), data.size(), &length_untrusted)) {
    return Error{"not snappy: no length at the beginning"};
  }
  if (length_untrusted > bytes_max) {
    return Error{format("%zu bytes after decompression are more than the limit of %llu", length_untrusted,
                        static_cast<unsigned long long>(bytes_max)),
                 ErrorCode::kTooLarge};
  }
  // The densest snappy is 64 bytes for 3: what claims more does not get the memory either.
  if (length_untrusted / 32 > data.size()) return Error{"not snappy: the length at the beginning is not true"};
  if (lease != nullptr && !lease->add(length_untrusted)) return Error{kMemorySpent};
  if (buffer.size() < length_untrusted) buffer.resize(length_untrusted);
  if (!snappy::RawUncompress(data.data(), data.size(), buffer.data())) return Error{"not snappy: malformed block"};
  return std::string_view(buffer).substr(0, length_untrusted);
}

Result<std::string> snappy_compress(std::string_view data) {
  std::string out;
  snappy::Compress(data.data(), data.size(), &out);
  return out;
}
#else
Result<std::string_view> snappy_decompress(std::string_view, uint64_t, std::string&, MemoryLease*) {
  return not_built("snappy");
}
Result<std::string> snappy_compress(std::string_view) {
  return not_built("snappy");
}
#endif

#ifdef LOCKSTEP_ZLIB
struct GzipStream::State {
  Deflater deflater;
};
#else
struct GzipStream::State {};
#endif

GzipStream::GzipStream() : state_(std::make_unique<State>()) {}
GzipStream::~GzipStream() = default;

Result<void> GzipStream::add(std::string_view data, bool is_last, std::string& out) {
#ifdef LOCKSTEP_ZLIB
  if (!state_->deflater.ready) return Error{"gzip: out of memory"};
  z_stream& stream = state_->deflater.stream;
  Chunk chunk;
  for (std::string_view rest = data;;) {
    feed(stream, rest);
    stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream.avail_out = chunk.size();
    const int status = deflate(&stream, is_last && rest.empty() ? Z_FINISH : Z_NO_FLUSH);
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
      return Error{format("gzip: compression failed with %d", status)};
    out.append(chunk.data(), chunk.size() - stream.avail_out);
    const bool is_taken = rest.empty() && stream.avail_in == 0 && stream.avail_out > 0;
    if (status == Z_STREAM_END || (!is_last && is_taken)) return {};
  }
#else
  (void)data, (void)is_last, (void)out;
  return not_built("gzip");
#endif
}

}  // namespace lockstep
