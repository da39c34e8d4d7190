// Log records as anybody may have left them on disk: whatever is in a file or in its row groups, reading ends, and what is
// read can be looked at. Checksums of row groups are made right, so that what is behind them is reached.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/crc32c.h"
#include "store/logs/log_file.h"
#include "store/logs/log_search.h"

using namespace lockstep;

namespace {

void look(const columns::SectionSource& source, const logs::GroupMeta& meta) {
  Result<logs::LogColumns> columns = logs::read_index(source, meta);
  if (!columns.ok() || !logs::read_lines(source, meta, *columns).ok()) return;
  for (const logs::LogRow& row : columns->rows) (void)columns->entry(row);
  // Records that nobody can name, in every order.
  LogQuery query{.filters = {{.text = "a"}}, .limit = 3, .bytes_max = 1000};
  for (const int64_t after : {0, 1}) {
    for (const bool oldest_first : {false, true}) {
      query.after = after;
      query.oldest_first = oldest_first;
      logs::LogSearch search(query);
      if (search.goes_on(meta) && search.choose(*columns, true)) search.take(*columns, meta);
      if (search.page(INT64_MAX).entries.size() > query.limit) abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  if (const auto file = logs::LogFile::from_bytes(bytes); file.ok()) {
    const auto source = (*file)->source();
    for (size_t group = 0; group < (*file)->groups(); ++group) look(*source, (*file)->group(group));
  }
  if (size < 4) return 0;
  logs::GroupMeta meta;
  meta.rows = data[0] + 1u;
  const std::string_view rest = std::string_view(bytes).substr(3);
  const auto split = static_cast<uint32_t>(std::min<size_t>(rest.size(), data[1] * 256u + data[2]));
  meta.index = {0, 0, split, crc32c(rest.substr(0, split))};
  meta.lines = {1, split, static_cast<uint32_t>(rest.size() - split), crc32c(rest.substr(split))};
  look(*columns::bytes_source(rest), meta);
  columns::ByteReader in(rest);
  logs::GroupMeta decoded;
  (void)logs::decode_meta(in, decoded);
  return 0;
}
