#include "net/hpack.h"

#include <array>
#include <optional>

#include "base/text.h"

namespace lockstep {
namespace {

struct StaticHeader {
  std::string_view name;
  std::string_view value;
};
// RFC 7541, appendix A; index 1 is the first.
constexpr StaticHeader kStatic[] = {
    {":authority", ""},
    {":method", "GET"},
    {":method", "POST"},
    {":path", "/"},
    {":path", "/index.html"},
    {":scheme", "http"},
    {":scheme", "https"},
    {":status", "200"},
    {":status", "204"},
    {":status", "206"},
    {":status", "304"},
    {":status", "400"},
    {":status", "404"},
    {":status", "500"},
    {"accept-charset", ""},
    {"accept-encoding", "gzip, deflate"},
    {"accept-language", ""},
    {"accept-ranges", ""},
    {"accept", ""},
    {"access-control-allow-origin", ""},
    {"age", ""},
    {"allow", ""},
    {"authorization", ""},
    {"cache-control", ""},
    {"content-disposition", ""},
    {"content-encoding", ""},
    {"content-language", ""},
    {"content-length", ""},
    {"content-location", ""},
    {"content-range", ""},
    {"content-type", ""},
    {"cookie", ""},
    {"date", ""},
    {"etag", ""},
    {"expect", ""},
    {"expires", ""},
    {"from", ""},
    {"host", ""},
    {"if-match", ""},
    {"if-modified-since", ""},
    {"if-none-match", ""},
    {"if-range", ""},
    {"if-unmodified-since", ""},
    {"last-modified", ""},
    {"link", ""},
    {"location", ""},
    {"max-forwards", ""},
    {"proxy-authenticate", ""},
    {"proxy-authorization", ""},
    {"range", ""},
    {"referer", ""},
    {"refresh", ""},
    {"retry-after", ""},
    {"server", ""},
    {"set-cookie", ""},
    {"strict-transport-security", ""},
    {"transfer-encoding", ""},
    {"user-agent", ""},
    {"vary", ""},
    {"via", ""},
    {"www-authenticate", ""},
};
constexpr size_t kStaticCount = std::size(kStatic);
static_assert(kStaticCount == 61);

// RFC 7541, appendix B is a canonical code: the lengths say it all. Symbol 256 ends the string and is never sent.
constexpr int kCodeBitsMax = 30;
constexpr size_t kSymbols = 257;
constexpr uint8_t kCodeBits[kSymbols] = {
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 28, 6,  10, 10, 12, 13, 6,  8,  11, 10, 10, 8,  11, 8,  6,  6,  6,  5,  5,  5,  6,  6,  6,  6,  6,  6,  6,
    7,  8,  15, 6,  12, 10, 13, 6,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,
    7,  8,  7,  8,  13, 19, 13, 14, 6,  15, 5,  6,  5,  6,  5,  6,  6,  6,  5,  7,  7,  6,  6,  6,  5,  6,  7,  6,  5,
    5,  6,  7,  7,  7,  7,  7,  15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24,
    24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22,
    23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26,
    27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23,
    22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30};

struct HuffmanCode {
  std::array<uint16_t, kCodeBitsMax + 1> count{};  // codes of each length
  std::array<uint16_t, kSymbols> symbols{};        // in the order of their codes
};
constexpr HuffmanCode make_code() {
  HuffmanCode code;
  size_t at = 0;
  for (int bits = 1; bits <= kCodeBitsMax; ++bits) {
    for (size_t symbol = 0; symbol < kSymbols; ++symbol) {
      if (kCodeBits[symbol] != bits) continue;
      code.symbols[at++] = static_cast<uint16_t>(symbol);
      ++code.count[static_cast<size_t>(bits)];
    }
  }
  return code;
}
constexpr HuffmanCode kCode = make_code();

// Bit by bit: headers are short, and a table of 2^30 is not. At most bytes_max letters come out.
std::optional<std::string> huffman_decode(std::string_view bytes, size_t bytes_max) {
  std::string text;
  uint32_t code = 0, first = 0;  // of this length: what was read so far, and the first code
  size_t index = 0;              // of that first code in symbols
  int bits = 0;
  bool all_ones = true;
  for (char c : bytes) {
    for (int shift = 7; shift >= 0; --shift) {
      const uint32_t bit = static_cast<uint8_t>(c) >> shift & 1u;
      all_ones = all_ones && bit == 1;
      code = code << 1 | bit;
      first <<= 1;
      ++bits;
      if (bits > kCodeBitsMax) return std::nullopt;
      const uint32_t count = kCode.count[static_cast<size_t>(bits)];
      if (code - first < count) {
        const uint16_t symbol = kCode.symbols[index + (code - first)];
        if (symbol == 256 || text.size() == bytes_max) return std::nullopt;
        text += static_cast<char>(symbol);
        code = first = 0;
        index = 0;
        bits = 0;
        all_ones = true;
        continue;
      }
      first += count;
      index += count;
    }
  }
  // The last byte is filled up with the beginning of the end symbol: fewer than eight ones.
  if (bits > 7 || !all_ones) return std::nullopt;
  return text;
}

void put_number(std::string& out, uint8_t pattern, int prefix_bits, uint64_t value) {
  const uint64_t most = (1u << prefix_bits) - 1;
  if (value < most) {
    out += static_cast<char>(pattern | value);
    return;
  }
  out += static_cast<char>(pattern | most);
  for (value -= most; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void put_text(std::string& out, std::string_view text) {
  put_number(out, 0x00, 7, text.size());
  out.append(text);
}

class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : rest_(bytes) {}
  bool at_end() const { return rest_.empty(); }
  uint8_t peek() const { return static_cast<uint8_t>(rest_.front()); }

  std::optional<uint64_t> number(int prefix_bits) {
    const uint64_t most = (1u << prefix_bits) - 1;
    if (rest_.empty()) return std::nullopt;
    uint64_t value = peek() & most;
    rest_.remove_prefix(1);
    if (value < most) return value;
    // Four further bytes carry more than any length or index that is allowed here.
    for (int shift = 0; shift < 28; shift += 7) {
      if (rest_.empty()) return std::nullopt;
      const uint8_t byte = peek();
      rest_.remove_prefix(1);
      value += static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  std::optional<std::string> text(size_t bytes_max) {
    if (rest_.empty()) return std::nullopt;
    const bool huffman = (peek() & 0x80) != 0;
    const std::optional<uint64_t> length = number(7);
    if (!length || *length > rest_.size()) return std::nullopt;
    const std::string_view bytes = rest_.substr(0, *length);
    rest_.remove_prefix(*length);
    if (huffman) return huffman_decode(bytes, bytes_max);
    if (bytes.size() > bytes_max) return std::nullopt;
    return std::string(bytes);
  }

 private:
  std::string_view rest_;
};

constexpr size_t kEntryBytes = 32;  // what HTTP/2 counts for a header besides its letters
size_t size_of(const std::pair<std::string, std::string>& header) {
  return header.first.size() + header.second.size() + kEntryBytes;
}

}  // namespace

std::string hpack_encode(const HeaderList& headers) {
  std::string out;
  for (const auto& [name, value] : headers) {
    size_t name_index = 0, whole_index = 0;
    for (size_t i = 0; i < kStaticCount && whole_index == 0; ++i) {
      if (kStatic[i].name != name) continue;
      if (name_index == 0) name_index = i + 1;
      if (!value.empty() && kStatic[i].value == value) whole_index = i + 1;
    }
    if (whole_index != 0) {
      put_number(out, 0x80, 7, whole_index);
      continue;
    }
    put_number(out, name == "authorization" ? 0x10 : 0x00, 4, name_index);
    if (name_index == 0) put_text(out, name);
    put_text(out, value);
  }
  return out;
}

Result<HpackDecoder::Header> HpackDecoder::at(uint64_t index) const {
  if (index == 0 || index > kStaticCount + table_.size())
    return Error{format("HPACK: index %llu of a table of %zu", static_cast<unsigned long long>(index),
                        kStaticCount + table_.size())};
  if (index > kStaticCount) return table_[index - kStaticCount - 1];
  const StaticHeader& found = kStatic[index - 1];
  return Header{found.name, found.value};
}

void HpackDecoder::shrink_to(size_t bytes) {
  while (table_bytes_ > bytes) {
    table_bytes_ -= size_of(table_.back());
    table_.pop_back();
  }
}

void HpackDecoder::insert(const Header& header) {
  const size_t bytes = size_of(header);
  shrink_to(bytes > table_bytes_max_ ? 0 : table_bytes_max_ - bytes);
  if (bytes > table_bytes_max_) return;
  table_.push_front(header);
  table_bytes_ += bytes;
}

Result<HeaderList> HpackDecoder::decode(std::string_view block) {
  const Error malformed{"HPACK: a header block is malformed"};
  HeaderList headers;
  size_t list_bytes = 0;
  Cursor cursor(block);
  while (!cursor.at_end()) {
    const uint8_t first = cursor.peek();
    if ((first & 0xe0) == 0x20) {  // a new size of the dynamic table
      const std::optional<uint64_t> size = cursor.number(5);
      if (!size || *size > kHpackTableBytesMax || !headers.empty()) return malformed;
      table_bytes_max_ = static_cast<size_t>(*size);
      shrink_to(table_bytes_max_);
      continue;
    }
    const bool indexed = (first & 0x80) != 0;
    const bool insert_it = (first & 0xc0) == 0x40;
    const std::optional<uint64_t> index = cursor.number(indexed ? 7 : insert_it ? 6 : 4);
    if (!index) return malformed;
    Header header;
    if (indexed || *index != 0) {
      header = LOCKSTEP_TRY(at(*index));
    }
    if (!indexed) {
      if (*index == 0) {
        std::optional<std::string> name = cursor.text(list_bytes_max_);
        if (!name) return malformed;
        header.first = std::move(*name);
      }
      std::optional<std::string> value = cursor.text(list_bytes_max_);
      if (!value) return malformed;
      header.second = std::move(*value);
      if (insert_it) insert(header);
    }
    list_bytes += size_of(header);
    if (list_bytes > list_bytes_max_) return Error{format("headers are over the limit of %zu bytes", list_bytes_max_)};
    headers.push_back(std::move(header));
  }
  return headers;
}

}  // namespace lockstep
