#include "store/metrics/wal_record.h"

#include <bit>
#include <cstring>

#include "store/metrics/chunk_codec.h"

namespace lockstep::metrics {
namespace {

using columns::ByteReader;
using columns::put_bytes;
using columns::put_fixed;
using columns::put_signed;
using columns::put_varint;

enum Item : uint8_t { kText = 1, kSeries = 2, kRun = 3, kHistogram = 4, kExemplar = 5, kMetadata = 6 };

constexpr uint8_t kAgainstBefore = 1;
// A byte of control per value: low nibble the zero bytes at the end, high nibble the bytes that are there (1 to 8); or
// 0x00..0x0F: so many values less one are as before.
constexpr size_t kSameMax = 16;

uint64_t bits_of(double value) {
  return std::bit_cast<uint64_t>(value);
}

}  // namespace

void pack_row(std::span<const double> values, const double* before, std::string& out) {
  const size_t start = out.size();
  out.resize(start + values.size() * 9 + 8);
  char* to = out.data() + start;
  size_t same = 0;
  auto end_same = [&] {
    for (; same > 0; same -= same < kSameMax ? same : kSameMax)
      *to++ = static_cast<char>((same < kSameMax ? same : kSameMax) - 1);
  };
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t changed = bits_of(values[i]) ^ (before != nullptr ? bits_of(before[i]) : 0);
    if (changed == 0) {
      ++same;
      continue;
    }
    if (same > 0) end_same();
    const unsigned trailing = static_cast<unsigned>(std::countr_zero(changed)) / 8;
    const unsigned bytes = 8 - trailing - static_cast<unsigned>(std::countl_zero(changed)) / 8;
    *to++ = static_cast<char>(bytes << 4 | trailing);
    const uint64_t word = changed >> (trailing * 8);
    std::memcpy(to, &word, 8);
    to += bytes;
  }
  end_same();
  out.resize(static_cast<size_t>(to - out.data()));
}

bool unpack_row(ByteReader& in, size_t count, const double* before, double* values) {
  for (size_t i = 0; i < count;) {
    const uint8_t control = in.fixed<uint8_t>();
    if (!in.ok()) return false;
    if (control < kSameMax) {
      for (size_t same = control + size_t{1}; same > 0; --same, ++i) {
        if (i == count) return false;
        values[i] = before != nullptr ? before[i] : 0.0;
      }
      continue;
    }
    const unsigned trailing = control & 0x0F, bytes = control >> 4;
    if (bytes + trailing > 8) return false;
    const std::string_view part = in.raw(bytes);
    if (!in.ok()) return false;
    uint64_t word = 0;
    std::memcpy(&word, part.data(), bytes);
    values[i] = std::bit_cast<double>(word << (trailing * 8) ^ (before != nullptr ? bits_of(before[i]) : 0));
    ++i;
  }
  return true;
}

void encode_histogram(const NativeHistogram& histogram, std::string& out) {
  put_signed(out, histogram.schema);
  out.push_back(static_cast<char>(histogram.reset));
  for (double value : {histogram.zero_threshold, histogram.zero_count, histogram.count, histogram.sum})
    put_fixed(out, value);
  for (const std::vector<HistogramSpan>* spans : {&histogram.positive_spans, &histogram.negative_spans}) {
    put_varint(out, spans->size());
    for (const HistogramSpan& span : *spans) {
      put_signed(out, span.offset);
      put_varint(out, span.length);
    }
  }
  for (const std::vector<double>* list : {&histogram.positive, &histogram.negative, &histogram.custom_bounds}) {
    put_varint(out, list->size());
    pack_row(*list, nullptr, out);
  }
}

bool decode_histogram(ByteReader& in, NativeHistogram& histogram) {
  histogram.schema = static_cast<int32_t>(in.signed_varint());
  const uint8_t reset = in.fixed<uint8_t>();
  if (reset > static_cast<uint8_t>(CounterReset::kGauge)) return false;
  histogram.reset = static_cast<CounterReset>(reset);
  for (double* value : {&histogram.zero_threshold, &histogram.zero_count, &histogram.count, &histogram.sum})
    *value = in.fixed<double>();
  for (std::vector<HistogramSpan>* spans : {&histogram.positive_spans, &histogram.negative_spans}) {
    spans->resize(in.count(2));
    for (HistogramSpan& span : *spans) {
      span.offset = static_cast<int32_t>(in.signed_varint());
      span.length = static_cast<uint32_t>(in.varint());
    }
  }
  for (std::vector<double>* list : {&histogram.positive, &histogram.negative, &histogram.custom_bounds}) {
    const uint64_t count = in.varint();
    if (!in.ok() || count > in.left() * kSameMax) return false;
    list->resize(count);
    if (!unpack_row(in, count, nullptr, list->data())) return false;
  }
  return in.ok();
}

void WalRecordWriter::put_text(std::string_view text) {
  bytes_.push_back(kText);
  put_bytes(bytes_, text);
}

// After the first series only what differs is said: senders go through metrics of one thing after another.
void WalRecordWriter::put_series(uint32_t group, uint32_t first_slot) {
  bytes_.push_back(kSeries);
  put_varint(bytes_, group);
  put_varint(bytes_, first_slot);
  put_varint(bytes_, series_.size());
  std::span<const LabelSymbols> before;
  for (size_t k = 0; k < series_.size(); ++k) {
    const std::span<const LabelSymbols> row = series_[k];
    bool same_names = k > 0 && before.size() == row.size() && row.size() <= 32;
    uint64_t differing = 0;
    for (size_t i = 0; same_names && i < row.size(); ++i) {
      same_names = row[i].name == before[i].name;
      if (row[i].value != before[i].value) differing |= uint64_t{1} << i;
    }
    if (same_names) {
      put_varint(bytes_, differing << 1 | 1);
      for (size_t i = 0; i < row.size(); ++i) {
        if ((differing >> i & 1) != 0) put_varint(bytes_, row[i].value);
      }
    } else {
      put_varint(bytes_, row.size() << 1);
      for (const LabelSymbols& label : row) {
        put_varint(bytes_, label.name);
        put_varint(bytes_, label.value);
      }
    }
    before = row;
  }
}

void WalRecordWriter::add_run(uint32_t group, int64_t time_ms, uint32_t first_slot, std::span<const double> values,
                              const double* before) {
  bytes_.push_back(kRun);
  put_varint(bytes_, group);
  put_signed(bytes_, static_cast<int64_t>(static_cast<uint64_t>(time_ms) - static_cast<uint64_t>(time_ms_)));
  put_varint(bytes_, first_slot);
  put_varint(bytes_, values.size());
  bytes_.push_back(before != nullptr ? kAgainstBefore : 0);
  pack_row(values, before, bytes_);
  time_ms_ = time_ms;
}

void WalRecordWriter::add_histogram(uint32_t group, uint32_t slot, int64_t time_ms, const NativeHistogram& histogram) {
  bytes_.push_back(kHistogram);
  put_varint(bytes_, group);
  put_varint(bytes_, slot);
  put_signed(bytes_, time_ms);
  encode_histogram(histogram, bytes_);
}

void WalRecordWriter::add_exemplar(uint32_t group, uint32_t slot, int64_t time_ms, double value, const Labels& labels) {
  bytes_.push_back(kExemplar);
  put_varint(bytes_, group);
  put_varint(bytes_, slot);
  put_signed(bytes_, time_ms);
  put_fixed(bytes_, value);
  put_varint(bytes_, labels.size());
  for (const auto& [name, text] : labels) {
    put_bytes(bytes_, name);
    put_bytes(bytes_, text);
  }
}

void WalRecordWriter::add_metadata(const MetricMetadata& metadata) {
  bytes_.push_back(kMetadata);
  for (const std::string* text : {&metadata.name, &metadata.type, &metadata.help, &metadata.unit})
    put_bytes(bytes_, *text);
}

namespace {

constexpr size_t kRowLabelsMax = 1024;  // far above what SeriesLimits lets in

bool read_histogram(ByteReader& in, WalVisitor& visitor) {
  const uint32_t group = static_cast<uint32_t>(in.varint()), slot = static_cast<uint32_t>(in.varint());
  const int64_t time_ms = in.signed_varint();
  NativeHistogram histogram;
  if (!decode_histogram(in, histogram)) return false;
  visitor.on_histogram(group, slot, time_ms, std::move(histogram));
  return true;
}

bool read_exemplar(ByteReader& in, WalVisitor& visitor) {
  const uint32_t group = static_cast<uint32_t>(in.varint()), slot = static_cast<uint32_t>(in.varint());
  const int64_t time_ms = in.signed_varint();
  const double value = in.fixed<double>();
  Labels labels(in.count(2));
  for (auto& [name, text] : labels) {
    name = in.bytes();
    text = in.bytes();
  }
  if (!in.ok()) return false;
  visitor.on_exemplar(group, slot, time_ms, value, std::move(labels));
  return true;
}

bool read_metadata(ByteReader& in, WalVisitor& visitor) {
  MetricMetadata metadata;
  for (std::string* text : {&metadata.name, &metadata.type, &metadata.help, &metadata.unit}) *text = in.bytes();
  if (!in.ok()) return false;
  visitor.on_metadata(std::move(metadata));
  return true;
}

}  // namespace

bool WalRecordReader::read(std::string_view record, WalVisitor& visitor) {
  ByteReader in(record);
  int64_t run_time_ms = 0;
  while (in.ok() && !in.at_end()) {
    bool ok = true;
    switch (in.fixed<uint8_t>()) {
      case kText:
        ++texts_;
        visitor.on_text(in.bytes());
        break;
      case kSeries:
        ok = read_series(in, visitor);
        break;
      case kRun:
        ok = read_run(in, run_time_ms, visitor);
        break;
      case kHistogram:
        ok = read_histogram(in, visitor);
        break;
      case kExemplar:
        ok = read_exemplar(in, visitor);
        break;
      case kMetadata:
        ok = read_metadata(in, visitor);
        break;
      default:
        ok = false;
    }
    if (!ok) return false;
  }
  return in.ok();
}

bool WalRecordReader::read_series(ByteReader& in, WalVisitor& visitor) {
  const uint32_t group = static_cast<uint32_t>(in.varint());
  const uint64_t first_slot = in.varint();
  const size_t count = in.count();
  if (!in.ok() || first_slot > kGroupSlotsMax || count > kGroupSlotsMax - first_slot) return false;
  std::vector<std::pair<uint64_t, uint64_t>> row;
  series_.clear();
  for (size_t i = 0; i < count; ++i) {
    const uint64_t head = in.varint();
    if ((head & 1) != 0) {
      if (i == 0 || (row.size() < 63 && head >> 1 >> row.size() != 0)) return false;
      for (size_t k = 0; k < row.size() && k < 63; ++k) {
        if ((head >> 1 >> k & 1) != 0) row[k].second = in.varint();
      }
    } else {
      if (head / 2 > in.left() / 2 || head / 2 > kRowLabelsMax) return false;
      row.resize(head / 2);
      for (auto& [name, value] : row) {
        name = in.varint();
        value = in.varint();
      }
    }
    if (!in.ok()) return false;
    for (const auto& [name, value] : row) {
      if (name >= texts_ || value >= texts_) return false;
      series_.labels.push_back({static_cast<uint32_t>(name), static_cast<uint32_t>(value)});
    }
    series_.end();
  }
  visitor.on_series(group, static_cast<uint32_t>(first_slot), series_);
  return true;
}

bool WalRecordReader::read_run(ByteReader& in, int64_t& run_time_ms, WalVisitor& visitor) {
  const uint32_t group = static_cast<uint32_t>(in.varint());
  run_time_ms = static_cast<int64_t>(static_cast<uint64_t>(run_time_ms) + static_cast<uint64_t>(in.signed_varint()));
  const uint64_t first = in.varint(), count = in.varint();
  const uint8_t how = in.fixed<uint8_t>();
  if (!in.ok() || how > kAgainstBefore || first > kGroupSlotsMax || count > kGroupSlotsMax - first) return false;
  Rows& rows = rows_[group];
  if (rows.now.size() < first + count) {
    rows.now.resize(first + count, absent());
    rows.before.resize(first + count, absent());
  }
  if (rows.time_ms < run_time_ms) {
    std::swap(rows.now, rows.before);
    rows.before_ms = rows.time_ms;
    rows.time_ms = run_time_ms;
    std::fill(rows.now.begin(), rows.now.end(), absent());
  }
  values_.resize(count);
  if (!unpack_row(in, count, how == kAgainstBefore ? rows.before.data() + first : nullptr, values_.data()))
    return false;
  if (run_time_ms == rows.time_ms) std::copy(values_.begin(), values_.end(), rows.now.data() + first);
  if (run_time_ms == rows.before_ms) std::copy(values_.begin(), values_.end(), rows.before.data() + first);
  visitor.on_run(group, run_time_ms, static_cast<uint32_t>(first), values_);
  return true;
}

}  // namespace lockstep::metrics
