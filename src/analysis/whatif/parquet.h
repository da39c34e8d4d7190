// Reads flat tables from Parquet files: what published traces come in. Small and careful instead of complete: whole
// columns of numbers, text and flags, packed by none, snappy, gzip or zstd, written plain or by dictionary (what
// pandas, Arrow, DuckDB and Spark write unless told otherwise). Anything else is named in one line: nested or repeated
// columns, delta encodings, decimals, encryption, other packers. Only the columns that are asked for have to be of
// those kinds.
//
// Nothing in the file is trusted: every offset and length is checked before it is used, and what a file may grow to is
// bounded by ParquetLimits.
// Thread rule: Thread-safe (pure functions); tables are Immutable once made.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep {

struct ParquetColumn {
  enum class Kind : uint8_t { kInteger, kReal, kText };  // flags are integers, 0 or 1
  std::string name;
  Kind kind = Kind::kInteger;
  std::vector<int64_t> integers;  // kInteger; a row without a value: 0
  std::vector<double> reals;      // kReal; a row without a value: NaN
  std::vector<uint32_t> codes;    // kText: an index into `words`; a row without a value: the one of ""
  std::vector<std::string> words;
  std::vector<uint8_t> present;  // 0: the row has no value here; empty: all rows have one
  bool has_value(size_t row) const { return present.empty() || present[row] != 0; }
};

struct ParquetTable {
  uint64_t rows = 0;
  std::vector<ParquetColumn> columns;                      // in the file's order
  const ParquetColumn* find(std::string_view name) const;  // nullptr: not there
};

struct ParquetLimits {
  uint64_t rows_max = 16'000'000;
  uint64_t footer_bytes_max = 16u << 20;
  uint64_t page_bytes_max = 256u << 20;  // unpacked
  uint64_t columns_max = 4'096;          // in the file, not only those asked for
  uint64_t row_groups_max = 65'536;
  uint64_t text_bytes_max = 64u << 20;  // different words of one column, together
};

// Opens what is packed by these. Without one, such pages are refused by name.
enum class PageCodec : uint8_t { kSnappy, kGzip, kZstd };
using PageUnpacker = std::function<Result<std::string>(PageCodec, std::string_view packed, uint64_t bytes_max)>;

// wanted: names of columns; empty: every column that is flat and of a kind that is known. One that is wanted and not
// there is left out of the table; one that is there and cannot be read is an error.
Result<ParquetTable> read_parquet(std::string_view file_untrusted, const std::vector<std::string>& wanted = {},
                                  const PageUnpacker& unpacker = {}, const ParquetLimits& limits = {});

}  // namespace lockstep
