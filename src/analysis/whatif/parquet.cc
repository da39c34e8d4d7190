// A file is: "PAR1", chunks of columns, the footer (a Thrift struct), its length in four bytes, "PAR1". A chunk is a
// run of pages, each with a header of its own: first the dictionary, where there is one, then the data. A page of a
// column that may lack values begins with a bit per row (definition levels), then come the values that are there.
#include "analysis/whatif/parquet.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

#include "analysis/whatif/thrift_compact.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr std::string_view kMagic = "PAR1";
constexpr std::string_view kMagicEncrypted = "PARE";

// Numbers as the format writes them.
enum Physical : int64_t { kBoolean = 0, kInt32 = 1, kInt64 = 2, kInt96 = 3, kFloat = 4, kDouble = 5, kByteArray = 6 };
enum PageType : int64_t { kDataPage = 0, kIndexPage = 1, kDictionaryPage = 2, kDataPageV2 = 3 };
enum Codec : int64_t { kPlainPages = 0, kSnappy = 1, kGzip = 2, kZstd = 6 };
enum Encoding : int64_t { kPlain = 0, kPlainDictionary = 2, kRunLength = 3, kDictionaryIndex = 8 };
enum Repetition : int64_t { kRequired = 0, kOptional = 1, kRepeated = 2 };
enum Converted : int64_t { kDecimal = 5, kUint8 = 11, kUint16 = 12, kUint32 = 13 };

const char* name_of_codec(int64_t codec) {
  constexpr const char* kNames[] = {"none", "snappy", "gzip", "lzo", "brotli", "lz4", "zstd", "lz4_raw"};
  return codec >= 0 && codec < 8 ? kNames[codec] : "unknown";
}
const char* name_of_encoding(int64_t encoding) {
  constexpr const char* kNames[] = {"plain",      "group var int",       "plain dictionary",        "run length",
                                    "bit packed", "delta binary packed", "delta length byte array", "delta byte array",
                                    "dictionary", "byte stream split"};
  return encoding >= 0 && encoding < 10 ? kNames[encoding] : "unknown";
}

struct SchemaColumn {
  std::string name;
  int64_t physical = -1;
  int64_t repetition = kRequired;
  int64_t converted = -1;
  bool nested = false;
};

struct Chunk {
  std::string path;  // of a nested column: its parts joined by dots
  int64_t physical = -1;
  int64_t codec = 0;
  int64_t values = 0;
  int64_t bytes = 0;
  int64_t data_offset = 0;
  int64_t dictionary_offset = 0;
};
struct RowGroup {
  int64_t rows = 0;
  std::vector<Chunk> chunks;
};
struct Footer {
  int64_t rows = 0;
  bool encrypted = false;
  std::vector<SchemaColumn> columns;
  std::vector<RowGroup> groups;
};

Chunk read_chunk_metadata(ThriftReader& thrift) {
  Chunk chunk;
  ThriftReader::Field field;
  int16_t last = 0;
  while (thrift.next_field(field, last)) {
    switch (field.id) {
      case 1:
        chunk.physical = thrift.integer(field.type);
        break;
      case 3: {
        const ThriftReader::List parts = thrift.list(field.type);
        for (uint32_t i = 0; i < parts.size && thrift.ok(); ++i) {
          if (i > 0) chunk.path += '.';
          chunk.path += thrift.binary(parts.element);
        }
        break;
      }
      case 4:
        chunk.codec = thrift.integer(field.type);
        break;
      case 5:
        chunk.values = thrift.integer(field.type);
        break;
      case 7:
        chunk.bytes = thrift.integer(field.type);
        break;
      case 9:
        chunk.data_offset = thrift.integer(field.type);
        break;
      case 11:
        chunk.dictionary_offset = thrift.integer(field.type);
        break;
      default:
        thrift.skip(field.type);
    }
  }
  return chunk;
}

Chunk read_chunk(ThriftReader& thrift) {
  Chunk chunk;
  ThriftReader::Field field;
  int16_t last = 0;
  while (thrift.next_field(field, last)) {
    if (field.id == 3 && field.type == ThriftType::kStruct) {
      chunk = read_chunk_metadata(thrift);
    } else {
      thrift.skip(field.type);
    }
  }
  return chunk;
}

// What a row group or a chunk takes at least, in any file that holds something. Without this a footer of single bytes
// would become a hundred times its size in memory.
constexpr size_t kChunkBytesMin = 16;

ThriftReader::List bounded_list(ThriftReader& thrift, ThriftType type) {
  const ThriftReader::List list = thrift.list(type);
  if (list.size > thrift.left() / kChunkBytesMin) thrift.fail();
  return thrift.ok() ? list : ThriftReader::List{};
}

RowGroup read_row_group(ThriftReader& thrift) {
  RowGroup group;
  ThriftReader::Field field;
  int16_t last = 0;
  while (thrift.next_field(field, last)) {
    if (field.id == 1) {
      const ThriftReader::List chunks = bounded_list(thrift, field.type);
      for (uint32_t i = 0; i < chunks.size && thrift.ok(); ++i) group.chunks.push_back(read_chunk(thrift));
    } else if (field.id == 3) {
      group.rows = thrift.integer(field.type);
    } else {
      thrift.skip(field.type);
    }
  }
  return group;
}

constexpr uint32_t kSchemaElementsMax = 65'536;

// The schema is a tree, written depth first; what lies under an inner node is a nested column.
void read_schema(ThriftReader& thrift, ThriftType type, Footer& footer) {
  const ThriftReader::List elements = thrift.list(type);
  if (elements.size > kSchemaElementsMax) thrift.fail();
  int64_t nested_left = 0;  // leaves and nodes that still belong to the node of the top level
  for (uint32_t i = 0; i < elements.size && thrift.ok(); ++i) {
    SchemaColumn column;
    int64_t children = 0;
    ThriftReader::Field field;
    int16_t last = 0;
    while (thrift.next_field(field, last)) {
      switch (field.id) {
        case 1:
          column.physical = thrift.integer(field.type);
          break;
        case 3:
          column.repetition = thrift.integer(field.type);
          break;
        case 4:
          column.name = thrift.binary(field.type);
          break;
        case 5:
          children = std::clamp<int64_t>(thrift.integer(field.type), 0, elements.size);
          break;
        case 6:
          column.converted = thrift.integer(field.type);
          break;
        default:
          thrift.skip(field.type);
      }
    }
    if (i == 0) continue;  // the root
    if (nested_left > 0) {
      nested_left += children - 1;
      continue;
    }
    nested_left = children;
    column.nested = children > 0;
    footer.columns.push_back(std::move(column));
  }
}

bool read_footer(std::string_view bytes, Footer& footer) {
  ThriftReader thrift(bytes);
  ThriftReader::Field field;
  int16_t last = 0;
  while (thrift.next_field(field, last)) {
    switch (field.id) {
      case 2:
        read_schema(thrift, field.type, footer);
        break;
      case 3:
        footer.rows = thrift.integer(field.type);
        break;
      case 4: {
        const ThriftReader::List groups = bounded_list(thrift, field.type);
        for (uint32_t i = 0; i < groups.size && thrift.ok(); ++i) footer.groups.push_back(read_row_group(thrift));
        break;
      }
      case 8:
        footer.encrypted = true;
        thrift.skip(field.type);
        break;
      default:
        thrift.skip(field.type);
    }
  }
  return thrift.ok();
}

struct PageHeader {
  int64_t type = -1;
  int64_t unpacked_bytes = -1;
  int64_t packed_bytes = -1;
  int64_t values = -1;
  int64_t encoding = -1;
  int64_t level_bytes = 0;         // v2: definition levels, not packed
  int64_t repetition_bytes = 0;    // v2
  int64_t levels_run_length = -1;  // v1: encoding of the definition levels
  bool packed = true;              // v2 may say otherwise
};

void read_page_details(ThriftReader& thrift, bool version_two, PageHeader& page) {
  ThriftReader::Field field;
  int16_t last = 0;
  while (thrift.next_field(field, last)) {
    const int id = field.id;
    if (id == 1) {
      page.values = thrift.integer(field.type);
    } else if (id == (version_two ? 4 : 2)) {
      page.encoding = thrift.integer(field.type);
    } else if (!version_two && id == 3 && page.type == kDataPage) {
      page.levels_run_length = thrift.integer(field.type);
    } else if (version_two && id == 5) {
      page.level_bytes = thrift.integer(field.type);
    } else if (version_two && id == 6) {
      page.repetition_bytes = thrift.integer(field.type);
    } else if (version_two && id == 7) {
      page.packed = thrift.integer(field.type) != 0;
    } else {
      thrift.skip(field.type);
    }
  }
}

// Returns the header's own length; 0: it cannot be read.
size_t read_page_header(std::string_view bytes, PageHeader& page) {
  ThriftReader thrift(bytes);
  ThriftReader::Field field;
  int16_t last = 0;
  while (thrift.next_field(field, last)) {
    const bool details = field.id == 5 || field.id == 7 || field.id == 8;
    if (field.id == 1) {
      page.type = thrift.integer(field.type);
    } else if (field.id == 2) {
      page.unpacked_bytes = thrift.integer(field.type);
    } else if (field.id == 3) {
      page.packed_bytes = thrift.integer(field.type);
    } else if (details && field.type == ThriftType::kStruct) {
      read_page_details(thrift, field.id == 8, page);
    } else {
      thrift.skip(field.type);
    }
  }
  return thrift.ok() ? thrift.position() : 0;
}

uint32_t little32(const char* bytes) {
  uint32_t value = 0;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// Runs of one value and stretches of packed bits, mixed: definition levels, dictionary indexes and flags. Fills `out`
// or says that the bytes do not suffice.
bool decode_runs(std::string_view bytes, int bit_width, std::vector<uint32_t>& out, size_t count) {
  out.clear();
  out.reserve(count);
  size_t at = 0;
  while (out.size() < count) {
    uint64_t head = 0;
    int shift = 0;
    for (;; shift += 7) {
      if (at >= bytes.size() || shift > 35) return false;
      const auto byte = static_cast<uint8_t>(bytes[at++]);
      head |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    const uint64_t left = count - out.size();
    if ((head & 1) == 0) {
      const uint64_t run = head >> 1;
      const size_t value_bytes = static_cast<size_t>(bit_width + 7) / 8;
      if (run == 0 || bytes.size() - at < value_bytes) return false;
      uint32_t value = 0;
      for (size_t i = 0; i < value_bytes; ++i)
        value |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[at++])) << (8 * i);
      out.insert(out.end(), std::min(run, left), value);
      continue;
    }
    const uint64_t values = std::min((head >> 1) * 8, left);
    if (head >> 1 == 0) return false;
    // The last stretch may be written without the bytes behind its last value.
    const uint64_t whole = (head >> 1) * static_cast<uint64_t>(bit_width);
    const uint64_t needed = (values * static_cast<uint64_t>(bit_width) + 7) / 8;
    if (bytes.size() - at < needed) return false;
    uint64_t buffer = 0;
    int bits = 0;
    size_t next = at;
    const uint64_t mask = (uint64_t{1} << bit_width) - 1;
    for (uint64_t i = 0; i < values; ++i) {
      while (bits < bit_width) {
        buffer |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[next++])) << bits;
        bits += 8;
      }
      out.push_back(static_cast<uint32_t>(buffer & mask));
      buffer >>= bit_width;
      bits -= bit_width;
    }
    at += std::min<uint64_t>(whole, bytes.size() - at);
  }
  return true;
}

// One column, over all its chunks.
class ColumnReader {
 public:
  ColumnReader(std::string_view file, const SchemaColumn& schema, const PageUnpacker& unpacker,
               const ParquetLimits& limits)
      : file_(file), schema_(schema), unpacker_(unpacker), limits_(limits) {
    column_.name = schema.name;
    column_.kind = schema.physical == kByteArray                             ? ParquetColumn::Kind::kText
                   : schema.physical == kFloat || schema.physical == kDouble ? ParquetColumn::Kind::kReal
                                                                             : ParquetColumn::Kind::kInteger;
  }

  // nullopt: readable.
  static std::optional<std::string> why_not(const SchemaColumn& schema) {
    if (schema.nested) return "it is nested";
    if (schema.repetition == kRepeated) return "it is repeated (a list)";
    if (schema.converted == kDecimal) return "it holds decimals";
    if (schema.physical == kInt96) return "it holds 96-bit timestamps";
    if (schema.physical < kBoolean || schema.physical > kByteArray) return "it holds bytes of fixed length";
    return std::nullopt;
  }

  Result<void> add(const Chunk& chunk, int64_t rows);
  ParquetColumn take() { return std::move(column_); }

 private:
  Error bad(const std::string& what) const {
    return Error{format("parquet: column %s: %s", as_one_line(schema_.name.substr(0, 64)).c_str(), what.c_str())};
  }
  Result<std::string_view> open_page(const Chunk& chunk, const PageHeader& page, std::string_view packed);
  Result<std::string> unpack(int64_t codec, std::string_view packed, uint64_t bytes);
  Result<void> read_dictionary(const PageHeader& page, std::string_view bytes);
  Result<void> read_data(const PageHeader& page, std::string_view bytes);
  Result<void> read_values(int64_t encoding, std::string_view bytes, size_t count);
  Result<void> decode_plain(std::string_view bytes, size_t count);
  Result<uint32_t> word(std::string_view text);
  void append(size_t index_in_plain);
  void append_nothing();

  std::string_view file_;
  const SchemaColumn& schema_;
  const PageUnpacker& unpacker_;
  const ParquetLimits& limits_;
  ParquetColumn column_;
  std::unordered_map<std::string, uint32_t> word_codes_;
  uint64_t word_bytes_ = 0;
  std::string page_;  // unpacked

  // Values of the page before they are put into rows; of the dictionary while the chunk lasts.
  struct Values {
    std::vector<int64_t> integers;
    std::vector<double> reals;
    std::vector<uint32_t> codes;
    size_t size = 0;
  };
  Values plain_;
  std::optional<Values> dictionary_;
  std::vector<uint32_t> indexes_;
  std::vector<uint32_t> levels_;
};

Result<std::string> ColumnReader::unpack(int64_t codec, std::string_view packed, uint64_t bytes) {
  if (unpacker_ && (codec == kSnappy || codec == kGzip || codec == kZstd)) {
    return unpacker_(codec == kSnappy ? PageCodec::kSnappy
                     : codec == kGzip ? PageCodec::kGzip
                                      : PageCodec::kZstd,
                     packed, bytes);
  }
  return Error{format("pages are packed by %s; known are none, snappy, gzip and zstd", name_of_codec(codec))};
}

// The whole page as it was before it was packed, levels first.
Result<std::string_view> ColumnReader::open_page(const Chunk& chunk, const PageHeader& page, std::string_view packed) {
  const size_t levels = page.type == kDataPageV2 ? static_cast<size_t>(page.level_bytes) : 0;  // bounded by add()
  if (chunk.codec == kPlainPages || !page.packed) return packed;
  const uint64_t bytes = static_cast<uint64_t>(page.unpacked_bytes) - levels;
  std::string opened =
      LOCKSTEP_TRY(bytes == 0 ? Result<std::string>(std::string()) : unpack(chunk.codec, packed.substr(levels), bytes));
  if (opened.size() != bytes)
    return Error{format("a page opens to %zu bytes, not %llu", opened.size(), static_cast<unsigned long long>(bytes))};
  page_.assign(packed.substr(0, levels));
  page_ += opened;
  return std::string_view(page_);
}

Result<uint32_t> ColumnReader::word(std::string_view text) {
  const auto [found, added] = word_codes_.try_emplace(std::string(text), static_cast<uint32_t>(column_.words.size()));
  if (added) {
    word_bytes_ += text.size() + sizeof(std::string);
    if (word_bytes_ > limits_.text_bytes_max)
      return bad(
          format("more than %llu bytes of different texts", static_cast<unsigned long long>(limits_.text_bytes_max)));
    column_.words.emplace_back(text);
  }
  return found->second;
}

Result<void> ColumnReader::decode_plain(std::string_view bytes, size_t count) {
  plain_.integers.clear();
  plain_.reals.clear();
  plain_.codes.clear();
  plain_.size = count;
  const auto cut_off = [&] {
    return bad(format("a page of %zu bytes is too short for %zu values", bytes.size(), count));
  };
  switch (schema_.physical) {
    case kBoolean:
      if (bytes.size() < (count + 7) / 8) return cut_off();
      for (size_t i = 0; i < count; ++i) plain_.integers.push_back(static_cast<uint8_t>(bytes[i / 8]) >> (i % 8) & 1);
      return {};
    case kInt32:
    case kFloat:
      if (bytes.size() / 4 < count) return cut_off();
      for (size_t i = 0; i < count; ++i) {
        const uint32_t raw = little32(bytes.data() + 4 * i);
        if (schema_.physical == kFloat) {
          float value = 0;
          std::memcpy(&value, &raw, sizeof value);
          plain_.reals.push_back(value);
        } else {
          const bool is_unsigned = schema_.converted >= kUint8 && schema_.converted <= kUint32;
          plain_.integers.push_back(is_unsigned ? static_cast<int64_t>(raw) : static_cast<int32_t>(raw));
        }
      }
      return {};
    case kInt64:
    case kDouble:
      if (bytes.size() / 8 < count) return cut_off();
      if (schema_.physical == kDouble) {
        plain_.reals.resize(count);
        if (count > 0) std::memcpy(plain_.reals.data(), bytes.data(), 8 * count);
      } else {
        plain_.integers.resize(count);
        if (count > 0) std::memcpy(plain_.integers.data(), bytes.data(), 8 * count);
      }
      return {};
    default: {
      size_t at = 0;
      for (size_t i = 0; i < count; ++i) {
        if (bytes.size() - at < 4) return cut_off();
        const uint32_t length_untrusted = little32(bytes.data() + at);
        at += 4;
        if (length_untrusted > bytes.size() - at) return cut_off();
        uint32_t code = LOCKSTEP_TRY(word(bytes.substr(at, length_untrusted)));
        plain_.codes.push_back(code);
        at += length_untrusted;
      }
      return {};
    }
  }
}

Result<void> ColumnReader::read_dictionary(const PageHeader& page, std::string_view bytes) {
  if (page.encoding != kPlain && page.encoding != kPlainDictionary)
    return bad(format("a dictionary in the encoding %s", name_of_encoding(page.encoding)));
  // A value takes at least a bit of its page, so the page's size bounds what is made.
  if (static_cast<uint64_t>(page.values) > bytes.size() * 8)
    return bad(format("a dictionary of %lld values in %zu bytes", static_cast<long long>(page.values), bytes.size()));
  Result<void> decoded = decode_plain(bytes, static_cast<size_t>(page.values));
  if (decoded.ok()) dictionary_ = std::exchange(plain_, {});
  return decoded;
}

// After this the values that are there lie in plain_, or their places in the dictionary in indexes_.
Result<void> ColumnReader::read_values(int64_t encoding, std::string_view bytes, size_t count) {
  indexes_.clear();
  if (encoding == kPlain) {
    if (count > bytes.size() * 8) return bad(format("%zu values in a page of %zu bytes", count, bytes.size()));
    return decode_plain(bytes, count);
  }
  if (encoding == kRunLength && schema_.physical == kBoolean) {
    if (bytes.size() < 4 || little32(bytes.data()) > bytes.size() - 4) return bad("a page of flags is cut off");
    if (!decode_runs(bytes.substr(4, little32(bytes.data())), 1, indexes_, count))
      return bad("a page of flags is cut off");
    plain_ = {};
    plain_.integers.assign(indexes_.begin(), indexes_.end());
    plain_.size = count;
    indexes_.clear();
    return {};
  }
  if (encoding != kPlainDictionary && encoding != kDictionaryIndex)
    return bad(format("the encoding %s is not known here", name_of_encoding(encoding)));
  if (!dictionary_) return bad("refers to a dictionary that is not there");
  if (count == 0) return {};
  if (bytes.empty()) return bad("a page without values");
  const int bit_width = static_cast<uint8_t>(bytes[0]);
  if (bit_width > 32) return bad(format("indexes of %d bits", bit_width));
  if (!decode_runs(bytes.substr(1), bit_width, indexes_, count)) return bad("a page of indexes is cut off");
  for (const uint32_t index : indexes_) {
    if (index >= dictionary_->size) return bad(format("index %u into a dictionary of %zu", index, dictionary_->size));
  }
  return {};
}

void ColumnReader::append(size_t index) {
  const Values& from = indexes_.empty() ? plain_ : *dictionary_;
  const size_t place = indexes_.empty() ? index : indexes_[index];
  switch (column_.kind) {
    case ParquetColumn::Kind::kInteger:
      column_.integers.push_back(from.integers[place]);
      break;
    case ParquetColumn::Kind::kReal:
      column_.reals.push_back(from.reals[place]);
      break;
    case ParquetColumn::Kind::kText:
      column_.codes.push_back(from.codes[place]);
  }
}

void ColumnReader::append_nothing() {
  switch (column_.kind) {
    case ParquetColumn::Kind::kInteger:
      column_.integers.push_back(0);
      break;
    case ParquetColumn::Kind::kReal:
      column_.reals.push_back(std::numeric_limits<double>::quiet_NaN());
      break;
    case ParquetColumn::Kind::kText:
      column_.codes.push_back(word("").value());  // adds no more than one word
  }
}

Result<void> ColumnReader::read_data(const PageHeader& page, std::string_view bytes) {
  const auto rows = static_cast<size_t>(page.values);
  size_t there = rows;
  levels_.clear();
  if (schema_.repetition == kOptional) {
    std::string_view levels;
    if (page.type == kDataPageV2) {
      levels = bytes.substr(0, static_cast<size_t>(page.level_bytes));
      bytes.remove_prefix(levels.size());
    } else {
      if (page.levels_run_length != kRunLength)
        return bad(format("definition levels in the encoding %s", name_of_encoding(page.levels_run_length)));
      if (bytes.size() < 4 || little32(bytes.data()) > bytes.size() - 4) return bad("definition levels are cut off");
      levels = bytes.substr(4, little32(bytes.data()));
      bytes.remove_prefix(4 + levels.size());
    }
    if (!decode_runs(levels, 1, levels_, rows)) return bad("definition levels are cut off");
    there = static_cast<size_t>(std::count(levels_.begin(), levels_.end(), 1u));
  } else if (page.type == kDataPageV2) {
    bytes.remove_prefix(static_cast<size_t>(page.level_bytes));
  }
  LOCKSTEP_TRY(read_values(page.encoding, bytes, there));
  if (there == rows) {
    for (size_t i = 0; i < rows; ++i) append(i);
    if (!column_.present.empty()) column_.present.insert(column_.present.end(), rows, 1);
    return {};
  }
  if (column_.present.empty()) {  // the rows before this page had values, all of them
    const size_t before = std::max({column_.integers.size(), column_.reals.size(), column_.codes.size()});
    column_.present.assign(before, 1);
  }
  size_t next = 0;
  for (size_t i = 0; i < rows; ++i) {
    const bool here = levels_[i] == 1;
    column_.present.push_back(here);
    if (here) {
      append(next++);
    } else {
      append_nothing();
    }
  }
  return {};
}

Result<void> ColumnReader::add(const Chunk& chunk, int64_t rows) {
  if (chunk.physical != schema_.physical) return bad("its chunks are of another type than the schema says");
  if (chunk.values != rows)
    return bad(format("%lld values for %lld rows", static_cast<long long>(chunk.values), static_cast<long long>(rows)));
  // Some writers leave the dictionary's offset at 0, where the magic is.
  const bool dictionary_first = chunk.dictionary_offset > 0 && chunk.dictionary_offset < chunk.data_offset;
  const int64_t begin = dictionary_first ? chunk.dictionary_offset : chunk.data_offset;
  if (begin < 0 || chunk.bytes < 0 || static_cast<uint64_t>(begin) > file_.size() ||
      static_cast<uint64_t>(chunk.bytes) > file_.size() - static_cast<uint64_t>(begin))
    return bad(format("%lld bytes at %lld are not in the file", static_cast<long long>(chunk.bytes),
                      static_cast<long long>(begin)));
  std::string_view bytes = file_.substr(static_cast<size_t>(begin), static_cast<size_t>(chunk.bytes));
  dictionary_.reset();
  int64_t seen = 0;
  while (seen < rows) {
    PageHeader page;
    const size_t header = read_page_header(bytes, page);
    if (header == 0) return bad("a page's header is cut off or malformed");
    bytes.remove_prefix(header);
    if (page.packed_bytes < 0 || static_cast<uint64_t>(page.packed_bytes) > bytes.size())
      return bad(
          format("a page of %lld bytes where %zu are left", static_cast<long long>(page.packed_bytes), bytes.size()));
    if (page.unpacked_bytes < 0 || static_cast<uint64_t>(page.unpacked_bytes) > limits_.page_bytes_max)
      return bad(format("a page of %lld bytes unpacked (limit %llu)", static_cast<long long>(page.unpacked_bytes),
                        static_cast<unsigned long long>(limits_.page_bytes_max)));
    const std::string_view packed = bytes.substr(0, static_cast<size_t>(page.packed_bytes));
    bytes.remove_prefix(packed.size());
    if (page.type == kIndexPage) continue;
    const bool data = page.type == kDataPage || page.type == kDataPageV2;
    if (!data && page.type != kDictionaryPage) return bad("a page of an unknown kind");
    if (page.values < 0 || (data && page.values > rows - seen))
      return bad(format("a page of %lld values where %lld rows are left", static_cast<long long>(page.values),
                        static_cast<long long>(rows - seen)));
    if (page.repetition_bytes != 0) return bad("it is repeated (a list)");
    if (page.level_bytes < 0 || page.level_bytes > std::min(page.packed_bytes, page.unpacked_bytes))
      return bad("definition levels are cut off");
    Result<std::string_view> opened = open_page(chunk, page, packed);
    if (!opened.ok()) return bad(opened.error());
    LOCKSTEP_TRY(data ? read_data(page, *opened) : read_dictionary(page, *opened));
    if (data) seen += page.values;
  }
  return {};
}

}  // namespace

const ParquetColumn* ParquetTable::find(std::string_view name) const {
  for (const ParquetColumn& column : columns) {
    if (column.name == name) return &column;
  }
  return nullptr;
}

Result<ParquetTable> read_parquet(std::string_view file, const std::vector<std::string>& wanted,
                                  const PageUnpacker& unpacker, const ParquetLimits& limits) {
  constexpr size_t kTail = 8;
  if (file.size() < kMagic.size() + kTail || file.substr(0, 4) != kMagic) {
    if (file.substr(0, 4) == kMagicEncrypted) return Error{"parquet: the file is encrypted"};
    return Error{"parquet: this is no Parquet file (it does not begin with PAR1)"};
  }
  if (file.substr(file.size() - 4) != kMagic)
    return Error{"parquet: the file does not end as a Parquet file does: cut off, or still being written"};
  const uint64_t footer_bytes = little32(file.data() + file.size() - kTail);
  if (footer_bytes > file.size() - kMagic.size() - kTail || footer_bytes > limits.footer_bytes_max)
    return Error{format("parquet: a footer of %llu bytes (file %zu, limit %llu)",
                        static_cast<unsigned long long>(footer_bytes), file.size(),
                        static_cast<unsigned long long>(limits.footer_bytes_max))};
  Footer footer;
  if (!read_footer(file.substr(file.size() - kTail - footer_bytes, footer_bytes), footer))
    return Error{"parquet: the footer cannot be read"};
  if (footer.encrypted) return Error{"parquet: the file is encrypted"};
  if (footer.rows < 0 || static_cast<uint64_t>(footer.rows) > limits.rows_max)
    return Error{format("parquet: %lld rows (limit %llu)", static_cast<long long>(footer.rows),
                        static_cast<unsigned long long>(limits.rows_max))};
  if (footer.columns.size() > limits.columns_max || footer.groups.size() > limits.row_groups_max)
    return Error{format("parquet: %zu columns in %zu row groups (limits %llu, %llu)", footer.columns.size(),
                        footer.groups.size(), static_cast<unsigned long long>(limits.columns_max),
                        static_cast<unsigned long long>(limits.row_groups_max))};
  int64_t rows = 0;
  for (const RowGroup& group : footer.groups) {
    if (group.rows < 0 || group.rows > footer.rows - rows)
      return Error{"parquet: row groups have more rows than the file"};
    rows += group.rows;
  }
  if (rows != footer.rows) return Error{"parquet: row groups have fewer rows than the file"};

  ParquetTable table;
  table.rows = static_cast<uint64_t>(footer.rows);
  for (const SchemaColumn& schema : footer.columns) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), schema.name) == wanted.end()) continue;
    if (table.find(schema.name) != nullptr)
      return Error{format("parquet: two columns are called %s", as_one_line(schema.name.substr(0, 64)).c_str())};
    if (const std::optional<std::string> reason = ColumnReader::why_not(schema)) {
      if (wanted.empty()) continue;
      return Error{format("parquet: column %s cannot be read: %s", as_one_line(schema.name.substr(0, 64)).c_str(),
                          reason->c_str())};
    }
    ColumnReader reader(file, schema, unpacker, limits);
    for (const RowGroup& group : footer.groups) {
      const auto chunk = std::find_if(group.chunks.begin(), group.chunks.end(),
                                      [&](const Chunk& candidate) { return candidate.path == schema.name; });
      if (chunk == group.chunks.end())
        return Error{
            format("parquet: column %s is missing in a row group", as_one_line(schema.name.substr(0, 64)).c_str())};
      LOCKSTEP_TRY(reader.add(*chunk, group.rows));
    }
    table.columns.push_back(reader.take());
  }
  return table;
}

}  // namespace lockstep
