// Any bytes as a metric block or as a segment of the metrics' log: an error of one line or what can be read, never a
// crash.
//
// Random bytes never pass the checksums, so the input is also taken as records whose frame is right, and as changes to
// a block whose checksums are made right again.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/crc32c.h"
#include "base/files.h"
#include "store/columns/byte_codec.h"
#include "store/columns/int_codec.h"
#include "store/metrics/block.h"
#include "store/metrics/wal.h"
#include "store/metrics/wal_record.h"

namespace {

using namespace lockstep;
using namespace lockstep::metrics;

void expect_one_line(const std::string& error) {
  if (error.empty() || error.find('\n') != std::string::npos) std::abort();
}

class Nobody final : public WalVisitor {
 public:
  void on_text(std::string_view text) override { seen += text.size(); }
  void on_series(uint32_t, uint32_t, const LabelRows& series) override { seen += series.labels.size(); }
  void on_run(uint32_t, int64_t, uint32_t, std::span<const double> values) override { seen += values.size(); }
  void on_histogram(uint32_t, uint32_t, int64_t, NativeHistogram histogram) override {
    seen += histogram.positive.size();
  }
  void on_exemplar(uint32_t, uint32_t, int64_t, double, Labels labels) override { seen += labels.size(); }
  void on_metadata(MetricMetadata metadata) override { seen += metadata.name.size(); }
  size_t seen = 0;
};

void read_block(std::string bytes) {
  Result<std::shared_ptr<const Block>> block = Block::from_bytes(std::move(bytes));
  if (!block.ok()) return expect_one_line(block.error());
  if (Result<void> loaded = (*block)->load(); !loaded.ok()) return expect_one_line(loaded.error());
  std::vector<LabelSymbols> labels;
  SampleColumns columns;
  for (size_t i = 0; i < (*block)->series_count() && i < 100; ++i) {
    if ((*block)->labels(i, labels)) {
      for (const LabelSymbols& label : labels) (void)(*block)->text(label.value).size();
    }
    columns.clear();
    (void)(*block)->read(i, INT64_MIN, INT64_MAX, columns);
    if (columns.times_ms.size() != columns.values.size()) std::abort();
    columns.clear();
    std::vector<SampleStretch> stretches;
    const WindowEdges edges{.first_ms = 250, .step_ms = 300, .count = 2, .range_ms = 1'000};
    (void)(*block)->read(i, INT64_MIN, INT64_MAX, columns, &edges, &stretches);
    int64_t time_ms = 0;
    double value = 0;
    (void)(*block)->newest(i, time_ms, value);
    if (columns.times_ms.size() != columns.values.size()) std::abort();
  }
  const LabelMatcher matcher{"__name__", LabelMatcher::Op::kRegex, "m.*"};
  Result<CompiledMatchers> matchers = compile_matchers({&matcher, 1});
  if (Result<SeriesSet> set = (*block)->matching(*matchers); !set.ok()) expect_one_line(set.error());
  std::vector<std::pair<uint32_t, PushedExemplar>> exemplars;
  (void)(*block)->exemplars(exemplars);
}

std::string whole_block() {
  const std::string folder = std::filesystem::temp_directory_path().string();
  BlockInfo info;
  info.number = static_cast<uint64_t>(::getpid());
  Result<std::unique_ptr<BlockWriter>> created = BlockWriter::create(folder, info);
  std::unique_ptr<BlockWriter> writer = std::move(*created);
  const uint32_t name = writer->symbol("__name__"), host = writer->symbol("host");
  std::vector<BlockSlice> slices(2);
  std::string chunk;
  for (uint32_t i = 0; i < 20; ++i) {
    const LabelSymbols labels[] = {{name, writer->symbol(i % 2 == 0 ? "m" : "n")},
                                   {host, writer->symbol(std::to_string(i / 2))}};
    const uint32_t series = writer->add_series(labels);
    for (size_t s = 0; s < 2; ++s) {
      std::vector<double> values;
      for (int64_t row = 0; row < 30; ++row) {
        if (i == 0) slices[s].times_ms.push_back(static_cast<int64_t>(s) * 300 + row * 10);
        values.push_back(static_cast<double>((row * (i + 1)) % 17) / 4);
      }
      chunk.clear();
      encode_values(values, WithSummary::kYes, chunk);
      slices[s].add(chunk);
    }
    NativeHistogram histogram;
    histogram.positive = {1, 2};
    histogram.positive_spans = {{0, 2}};
    const HistogramSample sample{5, std::make_shared<const NativeHistogram>(histogram)};
    if (i == 3) writer->add_histograms(series, {&sample, 1});
    if (i == 4) writer->add_exemplar(series, {{{"trace_id", "x"}}, 1, 2});
  }
  if (!writer->add_group(slices).ok()) std::abort();
  Result<BlockInfo> finished = writer->finish();
  if (!finished.ok()) std::abort();
  Result<std::string> bytes = read_file(folder + "/" + finished->name(), 1 << 20);
  std::filesystem::remove(folder + "/" + finished->name());
  return *bytes;
}

// Pairs of place and byte; then the checksums of all sections are made right, so that readers see what changed.
std::string changed(std::string bytes, const uint8_t* data, size_t size) {
  for (size_t i = 0; i + 2 < size; i += 3)
    bytes[(data[i] * 256u + data[i + 1]) % bytes.size()] = static_cast<char>(data[i + 2]);
  if (bytes.size() < 40) return bytes;
  uint64_t footer_at;
  uint32_t footer_size;
  std::memcpy(&footer_at, bytes.data() + bytes.size() - 24, 8);
  std::memcpy(&footer_size, bytes.data() + bytes.size() - 16, 4);
  if (footer_at > bytes.size() - 24 || footer_size > bytes.size() - 24 - footer_at) return bytes;
  std::string footer;
  if (!columns::unpack_bytes(std::string_view(bytes).substr(footer_at, footer_size), 1 << 16, footer)) return bytes;
  columns::ByteReader in(footer);
  for (int i = 0; i < 3; ++i) in.varint();
  for (int i = 0; i < 2; ++i) in.signed_varint();
  for (int i = 0; i < 2; ++i) in.varint();
  for (size_t left = in.count(); left > 0; --left) in.varint();
  for (size_t left = in.count(); left > 0 && in.ok(); --left) {
    const uint64_t offset = in.varint(), length = in.varint();
    if (!in.ok() || in.left() < 4 || offset > footer_at || length > footer_at - offset) return bytes;
    const uint32_t crc = crc32c(std::string_view(bytes).substr(offset, length));
    std::memcpy(footer.data() + (footer.size() - in.left()), &crc, 4);
    in.fixed<uint32_t>();
  }
  const std::string packed = columns::pack_bytes(footer);
  bytes.resize(footer_at);
  bytes += packed;
  columns::put_fixed(bytes, footer_at);
  columns::put_fixed(bytes, static_cast<uint32_t>(packed.size()));
  columns::put_fixed(bytes, crc32c(packed));
  columns::put_fixed(bytes, uint32_t{1});
  bytes += "MBLE";
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string whole = whole_block();
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  Nobody nobody;
  WalRecordReader reader;
  (void)read_wal_bytes(bytes, [&](std::string_view record) { return reader.read(record, nobody); });
  (void)reader.read(bytes, nobody);
  reader.begin_segment();
  (void)reader.read(bytes, nobody);
  read_block(std::string(bytes));
  read_block(changed(whole, data, size));
  WalFileName name;
  (void)WalFileName::parse(bytes, name);
  (void)BlockInfo::from_name(bytes);
  return 0;
}
