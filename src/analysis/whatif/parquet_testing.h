// Writes small Parquet files, so that tests of the reader stand alone. Knows more ways to write a column than any one
// writer uses; nothing of it is in the product.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::testing {

// Thrift's compact protocol, as far as a footer needs it.
class ThriftWriter {
 public:
  void integer(int id, int64_t value, uint8_t type = 5) {  // 5: i32, 6: i64
    head(id, type);
    varint(static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63));
  }
  void flag(int id, bool value) { head(id, value ? 1 : 2); }
  void text(int id, const std::string& value) {
    head(id, 8);
    plain_text(value);
  }
  void list(int id, uint8_t element, size_t size) {
    head(id, 9);
    if (size < 15) {
      bytes += static_cast<char>(size << 4 | element);
    } else {
      bytes += static_cast<char>(15 << 4 | element);
      varint(size);
    }
  }
  void begin(int id) {
    head(id, 12);
    open();
  }
  void open() {  // an element of a list of structs, or the outermost one
    last_.push_back(0);
  }
  void end() {
    bytes += '\0';
    last_.pop_back();
  }
  void plain_text(const std::string& value) {
    varint(value.size());
    bytes += value;
  }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
    bytes += static_cast<char>(value);
  }
  std::string bytes;

 private:
  void head(int id, uint8_t type) {
    const int delta = id - last_.back();
    bytes += static_cast<char>(delta << 4 | type);
    last_.back() = id;
  }
  std::vector<int> last_;
};

struct TestColumn {
  std::string name;
  int physical = 2;  // 0 flag, 1 int32, 2 int64, 4 float, 5 double, 6 text
  bool optional = false;
  bool dictionary = false;
  int converted = -1;
  int repetition = -1;  // otherwise than `optional` says
  std::vector<std::optional<double>> numbers;
  std::vector<std::optional<std::string>> texts;
  size_t rows() const { return physical == 6 ? texts.size() : numbers.size(); }
  bool has(size_t row) const { return physical == 6 ? texts[row].has_value() : numbers[row].has_value(); }
};

struct TestFile {
  int codec = 0;
  std::function<std::string(const std::string&)> pack;  // for `codec`
  bool version_two = false;
  int encoding = -1;  // written into data pages instead of the right one
  size_t rows_per_page = 1000;
  size_t row_groups = 1;
};

// As a literal of snappy's block format: packed, though not smaller.
inline std::string pack_snappy(const std::string& bytes) {
  ThriftWriter size;
  size.varint(bytes.size());
  std::string packed = size.bytes;
  for (size_t at = 0; at < bytes.size(); at += 60) {
    const std::string piece = bytes.substr(at, 60);
    packed += static_cast<char>((piece.size() - 1) << 2);
    packed += piece;
  }
  return packed;
}

inline std::string plain_value(const TestColumn& column, size_t row) {
  const auto raw = [](auto value) {
    std::string bytes(sizeof value, '\0');
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
  };
  if (column.physical == 6) return raw(static_cast<uint32_t>(column.texts[row]->size())) + *column.texts[row];
  const double value = *column.numbers[row];
  if (column.physical == 1) return raw(static_cast<int32_t>(static_cast<int64_t>(value)));
  if (column.physical == 2) return raw(static_cast<int64_t>(value));
  if (column.physical == 4) return raw(static_cast<float>(value));
  return raw(value);
}

// Half of it as runs, the rest packed: both forms in one stretch.
inline std::string hybrid(const std::vector<uint32_t>& values, int width) {
  ThriftWriter out;
  size_t at = 0;
  while (at < values.size()) {
    size_t run = 1;
    while (at + run < values.size() && values[at + run] == values[at]) ++run;
    if (run >= 8) {
      out.varint(run << 1);
      for (int i = 0; i < (width + 7) / 8; ++i) out.bytes += static_cast<char>(values[at] >> (8 * i));
      at += run;
      continue;
    }
    out.varint(1 << 1 | 1);
    uint64_t bits = 0;
    int held = 0;
    for (size_t i = 0; i < 8; ++i) {
      bits |= static_cast<uint64_t>(at + i < values.size() ? values[at + i] : 0) << held;
      for (held += width; held >= 8; held -= 8, bits >>= 8) out.bytes += static_cast<char>(bits);
    }
    at += 8;
  }
  return out.bytes;
}

class ParquetWriter {
 public:
  ParquetWriter(const std::vector<TestColumn>& columns, const TestFile& how) : columns_(columns), how_(how) {}

  std::string run() {
    const size_t rows = columns_.empty() ? 0 : columns_[0].rows();
    footer_.open();
    footer_.integer(1, 1);
    describe_columns();
    footer_.integer(3, static_cast<int64_t>(rows), 6);
    footer_.list(4, 12, how_.row_groups);
    for (size_t group = 0; group < how_.row_groups; ++group) {
      const size_t first = rows * group / how_.row_groups, last = rows * (group + 1) / how_.row_groups;
      footer_.open();
      footer_.list(1, 12, columns_.size());
      for (const TestColumn& column : columns_) add_chunk(column, first, last);
      footer_.integer(3, static_cast<int64_t>(last - first), 6);
      footer_.end();
    }
    footer_.text(6, "lockstep test");
    footer_.end();
    return file_ + footer_.bytes + little32(footer_.bytes.size()) + "PAR1";
  }

 private:
  // What a dictionary page holds, and where each row's value is in it.
  struct Dictionary {
    std::vector<std::string> words;
    std::vector<uint32_t> indexes;  // by row
  };
  // Values of a data page, and how many rows have one.
  struct Values {
    std::string bytes;
    std::vector<uint32_t> levels;
    size_t there = 0;
  };

  static std::string little32(size_t value) {
    std::string bytes(4, '\0');
    const auto number = static_cast<uint32_t>(value);
    std::memcpy(bytes.data(), &number, 4);
    return bytes;
  }
  std::string packed(const std::string& bytes) const { return how_.pack ? how_.pack(bytes) : bytes; }

  void describe_columns() {
    footer_.list(2, 12, columns_.size() + 1);
    footer_.open();
    footer_.text(4, "schema");
    footer_.integer(5, static_cast<int64_t>(columns_.size()));
    footer_.end();
    for (const TestColumn& column : columns_) {
      footer_.open();
      footer_.integer(1, column.physical);
      footer_.integer(3, column.repetition >= 0 ? column.repetition : column.optional ? 1 : 0);
      footer_.text(4, column.name);
      if (column.converted >= 0) footer_.integer(6, column.converted);
      footer_.end();
    }
  }

  // A column's rows from `first` up to `last`, in pages.
  void add_chunk(const TestColumn& column, size_t first, size_t last) {
    const size_t chunk = file_.size();
    Dictionary dictionary;
    if (column.dictionary) {
      dictionary = dictionary_of(column, first, last);
      add_dictionary_page(dictionary);
    }
    const size_t data = file_.size();
    for (size_t from = first; from < last; from += how_.rows_per_page) {
      const size_t to = std::min(last, from + how_.rows_per_page);
      const Values values = values_of(column, dictionary, from, to);
      if (how_.version_two) {
        add_page_v2(column, values, to - from);
      } else {
        add_page_v1(column, values, to - from);
      }
    }
    footer_.open();
    footer_.integer(2, static_cast<int64_t>(chunk), 6);
    footer_.begin(3);
    footer_.integer(1, column.physical);
    footer_.list(2, 5, 1);
    footer_.varint(0);
    footer_.list(3, 8, 1);
    footer_.plain_text(column.name);
    footer_.integer(4, how_.codec);
    footer_.integer(5, static_cast<int64_t>(last - first), 6);
    footer_.integer(6, static_cast<int64_t>(file_.size() - chunk), 6);
    footer_.integer(7, static_cast<int64_t>(file_.size() - chunk), 6);
    footer_.integer(9, static_cast<int64_t>(data), 6);
    if (column.dictionary) footer_.integer(11, static_cast<int64_t>(chunk), 6);
    footer_.end();
    footer_.end();
  }

  static Dictionary dictionary_of(const TestColumn& column, size_t first, size_t last) {
    Dictionary dictionary;
    dictionary.indexes.resize(last);
    for (size_t row = first; row < last; ++row) {
      if (!column.has(row)) continue;
      const std::string value = plain_value(column, row);
      size_t index = 0;
      while (index < dictionary.words.size() && dictionary.words[index] != value) ++index;
      if (index == dictionary.words.size()) dictionary.words.push_back(value);
      dictionary.indexes[row] = static_cast<uint32_t>(index);
    }
    return dictionary;
  }

  void add_dictionary_page(const Dictionary& dictionary) {
    std::string body;
    for (const std::string& word : dictionary.words) body += word;
    ThriftWriter page;
    page.open();
    page.integer(1, 2);
    page.integer(2, static_cast<int64_t>(body.size()));
    page.integer(3, static_cast<int64_t>(packed(body).size()));
    page.begin(7);
    page.integer(1, static_cast<int64_t>(dictionary.words.size()));
    page.integer(2, 0);
    page.end();
    page.end();
    file_ += page.bytes + packed(body);
  }

  static Values values_of(const TestColumn& column, const Dictionary& dictionary, size_t from, size_t to) {
    Values values;
    std::vector<uint32_t> places;
    std::string flags;
    for (size_t row = from; row < to; ++row) {
      values.levels.push_back(column.has(row) ? 1 : 0);
      if (!column.has(row)) continue;
      if (column.dictionary) {
        places.push_back(dictionary.indexes[row]);
      } else if (column.physical == 0) {
        if (values.there % 8 == 0) flags += '\0';
        flags.back() = static_cast<char>(flags.back() | (*column.numbers[row] != 0) << (values.there % 8));
      } else {
        values.bytes += plain_value(column, row);
      }
      ++values.there;
    }
    values.bytes += flags;
    if (column.dictionary) {
      int width = 0;
      while (dictionary.words.size() > size_t{1} << width) ++width;
      values.bytes = static_cast<char>(width) + hybrid(places, width);
    }
    return values;
  }

  std::string levels_of(const TestColumn& column, const Values& values) const {
    return column.optional ? hybrid(values.levels, 1) : std::string();
  }
  int encoding_of(const TestColumn& column) const {
    return how_.encoding >= 0 ? how_.encoding : column.dictionary ? 8 : 0;
  }

  void add_page_v1(const TestColumn& column, const Values& values, size_t rows) {
    const std::string levels = levels_of(column, values);
    const std::string whole = (column.optional ? little32(levels.size()) + levels : "") + values.bytes;
    ThriftWriter page;
    page.open();
    page.integer(1, 0);
    page.integer(2, static_cast<int64_t>(whole.size()));
    page.integer(3, static_cast<int64_t>(packed(whole).size()));
    page.begin(5);
    page.integer(1, static_cast<int64_t>(rows));
    page.integer(2, encoding_of(column));
    page.integer(3, 3);
    page.integer(4, 3);
    page.end();
    page.end();
    file_ += page.bytes + packed(whole);
  }

  void add_page_v2(const TestColumn& column, const Values& values, size_t rows) {
    const std::string levels = levels_of(column, values);
    const std::string body = packed(values.bytes);
    ThriftWriter page;
    page.open();
    page.integer(1, 3);
    page.integer(2, static_cast<int64_t>(levels.size() + values.bytes.size()));
    page.integer(3, static_cast<int64_t>(levels.size() + body.size()));
    page.begin(8);
    page.integer(1, static_cast<int64_t>(rows));
    page.integer(2, static_cast<int64_t>(rows - values.there));
    page.integer(3, static_cast<int64_t>(rows));
    page.integer(4, encoding_of(column));
    page.integer(5, static_cast<int64_t>(levels.size()));
    page.integer(6, 0);
    page.flag(7, true);
    page.end();
    page.end();
    file_ += page.bytes + levels + body;
  }

  const std::vector<TestColumn>& columns_;
  const TestFile& how_;
  std::string file_ = "PAR1";
  ThriftWriter footer_;
};

inline std::string parquet_file(const std::vector<TestColumn>& columns, const TestFile& how = {}) {
  return ParquetWriter(columns, how).run();
}

}  // namespace lockstep::testing
