#include "store/metrics/block.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/crc32c.h"
#include "base/disk.h"
#include "base/text.h"
#include "store/columns/byte_codec.h"
#include "store/columns/int_codec.h"
#include "store/metrics/block_layout.h"
#include "store/metrics/wal_record.h"

namespace lockstep::metrics {

using namespace block_layout;

namespace {

using columns::ByteReader;

constexpr size_t kHistogramBytesMax = 256u << 20;

// At most 32 bits; the caller has checked that the word is there.
uint32_t bits_at(std::string_view bytes, uint64_t bit, unsigned count) {
  uint64_t word;
  std::memcpy(&word, bytes.data() + bit / 8, 8);
  return static_cast<uint32_t>((word >> (bit % 8)) & ((uint64_t{1} << count) - 1));
}

template <typename T>
T fixed_at(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at * sizeof(T), sizeof(T));
  return value;
}

}  // namespace

std::string BlockInfo::name() const {
  return format("block-%010llu-t%u-l%u.blk", static_cast<unsigned long long>(number), tier, level);
}

std::optional<BlockInfo> BlockInfo::from_name(std::string_view name) {
  BlockInfo info;
  if (!name.starts_with("block-") || !name.ends_with(".blk")) return std::nullopt;
  name = name.substr(6, name.size() - 10);
  const std::vector<std::string_view> parts = split(name, '-');
  if (parts.size() != 3 || !parts[1].starts_with("t") || !parts[2].starts_with("l")) return std::nullopt;
  std::optional<uint64_t> number = parse_uint(parts[0]), tier = parse_uint(parts[1].substr(1)),
                          level = parse_uint(parts[2].substr(1));
  if (!number || !tier || !level || *tier >= kTiers || *level > 9) return std::nullopt;
  info.number = *number;
  info.tier = static_cast<uint32_t>(*tier);
  info.level = static_cast<uint32_t>(*level);
  return info;
}

class Block::Name final : public LabelDictionary {
 public:
  Name(const Block& block, uint32_t symbol) : block_(block), symbol_(symbol) {}
  size_t value_count() const override { return values.size(); }
  std::string_view value(size_t at) const override { return block_.text(values[at]); }
  size_t find(std::string_view text) const override {
    auto place = std::lower_bound(values.begin(), values.end(), text, [&](uint32_t symbol, std::string_view wanted) {
      return block_.text(symbol) < wanted;
    });
    return place == values.end() || block_.text(*place) != text ? SIZE_MAX
                                                                : static_cast<size_t>(place - values.begin());
  }
  bool add_series(size_t at, SeriesSet& set) const override {
    ByteReader in(postings[at]);
    return Postings::decode(in, set);
  }
  std::string_view text() const { return block_.text(symbol_); }
  uint32_t symbol() const { return symbol_; }

  std::vector<uint32_t> values;  // symbols, ascending
  std::vector<std::string_view> postings;
  unsigned bits = 0;

 private:
  const Block& block_;
  const uint32_t symbol_;
};

Block::~Block() {
  if (mapped_) ::munmap(const_cast<char*>(map_.data()), map_.size());
}

Result<std::shared_ptr<const Block>> Block::open(const std::string& folder, const std::string& name) {
  std::shared_ptr<Block> block(new Block);
  block->path_ = folder + "/" + name;
  UniqueFd file(disk::open(block->path_, disk::Open::kRead));
  struct stat info {};
  if (!file.valid() || ::fstat(file.get(), &info) != 0)
    return Error{format("%s: %s", block->path_.c_str(), std::strerror(errno))};
  if (info.st_size > 0) {
    void* map = ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_SHARED, file.get(), 0);
    if (map == MAP_FAILED) return Error{format("%s: %s", block->path_.c_str(), std::strerror(errno))};
    block->map_ = {static_cast<const char*>(map), static_cast<size_t>(info.st_size)};
    block->mapped_ = true;
    ::madvise(map, block->map_.size(), MADV_RANDOM);
  }
  if (Result<void> read = block->read_footer(); !read.ok()) return prefixed(read.failure(), block->path_ + ": ");
  return std::shared_ptr<const Block>(std::move(block));
}

Result<std::shared_ptr<const Block>> Block::from_bytes(std::string bytes) {
  std::shared_ptr<Block> block(new Block);
  block->path_ = "bytes";
  block->own_bytes_ = std::move(bytes);
  block->map_ = block->own_bytes_;
  LOCKSTEP_TRY(block->read_footer());
  return std::shared_ptr<const Block>(std::move(block));
}

Result<void> Block::read_footer() {
  std::string footer = LOCKSTEP_TRY(columns::read_footer(kFormat, map_.size(), *columns::bytes_source(map_)));
  ByteReader in(footer);
  info_.number = in.varint();
  info_.level = static_cast<uint32_t>(in.varint());
  info_.tier = static_cast<uint32_t>(in.varint());
  info_.first_ms = in.signed_varint();
  info_.last_ms = in.signed_varint();
  info_.series = in.varint();
  info_.samples = in.varint();
  info_.replaces.resize(in.count());
  for (uint64_t& number : info_.replaces) number = in.varint();
  sections_.resize(std::min<size_t>(in.count(6), 64));
  for (Section& section : sections_) {
    section.offset = in.varint();
    section.bytes = in.varint();
    section.crc = in.fixed<uint32_t>();
    if (section.offset > map_.size() || section.bytes > map_.size() - section.offset) in.fail();
  }
  if (!in.ok() || sections_.size() < kSections || info_.tier >= kTiers || info_.level > 9)
    return Error{"its footer makes no sense"};
  return {};
}

Result<void> Block::load() const {
  std::call_once(loaded_, [&] {
    if (Result<void> done = load_index(); !done.ok()) load_error_ = path_ + ": " + done.error();
  });
  if (!load_error_.empty()) return Error{load_error_};
  return {};
}

std::string_view Block::text(uint32_t symbol) const {
  const Index& index = *index_;
  if (symbol >= index.symbol_count) return {};
  const uint32_t start = symbol == 0 ? 0 : fixed_at<uint32_t>(index.symbol_ends, symbol - 1);
  const uint32_t end = fixed_at<uint32_t>(index.symbol_ends, symbol);
  return start > end || end > index.symbol_bytes.size() ? std::string_view{}
                                                        : index.symbol_bytes.substr(start, end - start);
}

bool Block::load_names(std::string_view bytes, Index& index) const {
  ByteReader in(bytes);
  for (size_t left = in.count(2); left > 0; --left) {
    const uint64_t symbol = in.varint();
    const size_t values = in.count(2);
    if (!in.ok() || symbol >= index.symbol_count || values == 0) return false;
    auto name = std::make_unique<Name>(*this, static_cast<uint32_t>(symbol));
    uint64_t value = 0;
    for (size_t i = 0; i < values; ++i) {
      value += in.varint();
      const std::string_view postings = in.bytes();
      if (!in.ok() || value >= index.symbol_count) return false;
      name->values.push_back(static_cast<uint32_t>(value));
      name->postings.push_back(postings);
    }
    name->bits = bits_for(values);
    index.names.push_back(std::move(name));
  }
  return in.ok();
}

bool Block::load_labels(std::string_view bytes, Index& index) const {
  ByteReader in(bytes);
  index.series = in.varint();
  if (index.series > bytes.size() * kStride) return false;  // a checkpoint for every kStride
  for (size_t left = in.count(); left > 0; --left) {
    std::vector<uint32_t> shape(in.count());
    uint32_t bits = 0;
    for (uint32_t& name : shape) {
      const uint64_t number = in.varint();
      if (number >= index.names.size()) return false;
      name = static_cast<uint32_t>(number);
      bits += index.names[name]->bits;
    }
    index.shapes.push_back(std::move(shape));
    index.shape_bits.push_back(bits);
  }
  index.shape_width = bits_for(index.shapes.size());
  index.checkpoints = in.raw((index.series + kStride - 1) / kStride * 8);
  index.shape_ids = in.bytes();
  index.rows = in.bytes();
  return in.ok() && index.shape_ids.size() >= (index.series * index.shape_width + 7) / 8 + 8 &&
         (index.series == 0 || !index.shapes.empty()) && index.rows.size() >= 8;
}

bool Block::load_groups(std::string_view bytes, Index& index) const {
  ByteReader in(bytes);
  uint64_t series = 0, end = 0;
  for (size_t left = in.count(2); left > 0; --left) {
    GroupEntry group;
    const uint64_t count = in.varint();
    const size_t slices = in.count(6);
    if (!in.ok() || count > index.series - series) return false;
    group.first_series = static_cast<uint32_t>(series);
    group.series = static_cast<uint32_t>(count);
    group.first_slice = static_cast<uint32_t>(index.slices.size());
    group.slices = static_cast<uint32_t>(slices);
    series += count;
    const size_t head = (count + kStride - 1) / kStride * 4 + count * 6;
    for (size_t i = 0; i < slices; ++i) {
      Slice slice;
      slice.offset = end + in.varint();
      const uint64_t size = in.varint(), rows = in.varint();
      slice.first_ms = in.signed_varint();
      slice.last_ms = static_cast<int64_t>(static_cast<uint64_t>(slice.first_ms) + in.varint());
      slice.times = in.bytes();
      if (!in.ok() || rows == 0 || rows > kChunkRowsMax || slice.offset > map_.size() ||
          size > map_.size() - slice.offset || size < head || size > UINT32_MAX)
        return false;
      slice.rows = static_cast<uint32_t>(rows);
      slice.bytes = static_cast<uint32_t>(size);
      end = slice.offset + size;
      index.slices.push_back(slice);
    }
    index.groups.push_back(group);
  }
  return in.ok() && series == index.series;
}

Result<void> Block::load_index() const {
  for (size_t i = 0; i < kSections; ++i) {
    if (crc32c(map_.substr(sections_[i].offset, sections_[i].bytes)) != sections_[i].crc)
      return Error{format("section %zu of its index has a wrong checksum", i)};
  }
  auto part = [&](size_t section) { return map_.substr(sections_[section].offset, sections_[section].bytes); };
  auto index = std::make_unique<Index>();
  ByteReader symbols(part(kSymbols));
  index->symbol_count = symbols.fixed<uint32_t>();
  index->symbol_ends = symbols.raw(index->symbol_count * 4);
  index->symbol_bytes = symbols.raw(symbols.left());
  if (!symbols.ok()) return Error{"its texts make no sense"};
  if (!load_names(part(kNames), *index)) return Error{"its names make no sense"};
  if (!load_labels(part(kLabels), *index)) return Error{"its labels make no sense"};
  if (!load_groups(part(kGroups), *index)) return Error{"its groups make no sense"};
  ByteReader histograms(part(kHistograms));
  for (size_t left = histograms.count(2); left > 0; --left) {
    const uint64_t series = histograms.varint();
    const std::string_view bytes = histograms.bytes();
    if (!histograms.ok() || series >= index->series) return Error{"its histograms make no sense"};
    index->histograms[static_cast<uint32_t>(series)] = bytes;
  }
  index->exemplars = part(kExemplars);
  index_ = std::move(index);
  return {};
}

Result<SeriesSet> Block::matching(const CompiledMatchers& matchers) const {
  SeriesSet set(index_->series, true);
  auto dictionary = [&](std::string_view wanted) -> const LabelDictionary* {
    for (const std::unique_ptr<Name>& name : index_->names) {
      if (name->text() == wanted) return name.get();
    }
    return nullptr;
  };
  if (!matching_series(matchers, dictionary, set)) return Error{path_ + ": its postings make no sense"};
  return set;
}

bool Block::labels(size_t series, std::vector<LabelSymbols>& to) const {
  const Index& index = *index_;
  to.clear();
  if (series >= index.series) return false;
  const size_t start = series / kStride * kStride;
  uint64_t bit = fixed_at<uint64_t>(index.checkpoints, series / kStride);
  uint32_t shape = 0;
  for (size_t i = start; i <= series; ++i) {
    shape = index.shape_width == 0 ? 0 : bits_at(index.shape_ids, i * index.shape_width, index.shape_width);
    if (shape >= index.shapes.size()) return false;
    if (i < series) bit += index.shape_bits[shape];
  }
  if (bit > (index.rows.size() - 8) * 8 || index.shape_bits[shape] > (index.rows.size() - 8) * 8 - bit) return false;
  for (uint32_t number : index.shapes[shape]) {
    const Name& name = *index.names[number];
    const uint32_t value = name.bits == 0 ? 0 : bits_at(index.rows, bit, name.bits);
    bit += name.bits;
    if (value >= name.values.size()) return false;
    to.push_back({name.symbol(), name.values[value]});
  }
  return true;
}

void Block::label_names(std::vector<std::string>& to) const {
  for (const std::unique_ptr<Name>& name : index_->names) to.emplace_back(name->text());
}

void Block::label_values(std::string_view wanted, std::vector<std::string>& to) const {
  for (const std::unique_ptr<Name>& name : index_->names) {
    if (name->text() != wanted) continue;
    for (uint32_t value : name->values) to.emplace_back(text(value));
  }
}

size_t Block::group_of(size_t series) const {
  auto after = std::upper_bound(index_->groups.begin(), index_->groups.end(), series,
                                [](size_t wanted, const GroupEntry& group) { return wanted < group.first_series; });
  size_t at = static_cast<size_t>(after - index_->groups.begin());
  while (at > 0 && index_->groups[at - 1].first_series + index_->groups[at - 1].series <= series) --at;
  return at == 0 ? 0 : at - 1;
}

bool Block::times(const Slice& slice, int64_t* times_ms) const {
  return decode_times(slice.times, slice.rows, times_ms);
}

bool Block::chunk(const Slice& slice, size_t series_in_group, size_t slot, std::string_view& bytes) const {
  const std::string_view all = map_.substr(slice.offset, slice.bytes);
  const size_t checkpoints = (series_in_group + kStride - 1) / kStride * 4;
  const std::string_view sizes = all.substr(checkpoints, series_in_group * 2);
  const std::string_view crcs = all.substr(checkpoints + series_in_group * 2, series_in_group * 4);
  const std::string_view chunks = all.substr(checkpoints + series_in_group * 6);
  size_t at = fixed_at<uint32_t>(all, slot / kStride);
  for (size_t i = slot / kStride * kStride; i < slot; ++i) at += fixed_at<uint16_t>(sizes, i);
  const size_t size = fixed_at<uint16_t>(sizes, slot);
  if (at > chunks.size() || size > chunks.size() - at) return false;
  bytes = chunks.substr(at, size);
  return crc32c(bytes) == fixed_at<uint32_t>(crcs, slot);
}

// Series of a group share their times, and who reads one series of it mostly reads the next: each thread keeps the last
// it decoded.
const int64_t* Block::times_of(size_t slice) const {
  struct Decoded {
    uint64_t instance = 0;
    size_t slice = 0;
    int64_t times_ms[kChunkRowsMax];
  };
  constexpr size_t kKept = 64;  // 120 KB a thread: a day of 10 s samples
  thread_local std::unique_ptr<Decoded[]> kept;
  if (kept == nullptr) kept = std::make_unique<Decoded[]>(kKept);
  Decoded& place = kept[slice % kKept];
  if (place.instance != instance_ || place.slice != slice) {
    place.instance = 0;
    if (!times(index_->slices[slice], place.times_ms)) return nullptr;
    place.instance = instance_;
    place.slice = slice;
  }
  return place.times_ms;
}

namespace {
// A chunk's head as a stretch; false: its values must be read.
bool stretch_of(std::string_view chunk, const Block::Slice& slice, SampleStretch& stretch) {
  ChunkSummary summary;
  // Every row is there and none is stale: then the times of the first and the last sample are known.
  if (!read_summary(chunk, slice.rows, summary) || summary.count != slice.rows) return false;
  stretch.first_ms = slice.first_ms;
  stretch.last_ms = slice.last_ms;
  stretch.count = summary.count;
  stretch.first = summary.first;
  stretch.last = summary.last;
  stretch.min = summary.min;
  stretch.max = summary.max;
  stretch.falls = summary.falls;
  const double largest = std::max(std::abs(summary.min), std::abs(summary.max));
  stretch.sum_is_exact = summary.is_whole && largest * summary.count < kExactMax;
  if (stretch.sum_is_exact) stretch.sum = summary.sum;
  return true;
}
}  // namespace

size_t Block::read(size_t series, int64_t from_ms, int64_t to_ms, SampleColumns& out, const WindowEdges* edges,
                   std::vector<SampleStretch>* stretches) const {
  size_t damaged = 0;
  if (!index_->groups.empty()) {
    const GroupEntry& group = index_->groups[group_of(series)];
    for (size_t i = group.first_slice; i < group.first_slice + group.slices; ++i) {
      const Slice& slice = index_->slices[i];
      if (slice.last_ms < from_ms || slice.first_ms > to_ms) continue;
      const bool whole = slice.first_ms >= from_ms && slice.last_ms <= to_ms;
      std::string_view bytes;
      if (!chunk(slice, group.series, series - group.first_series, bytes)) {
        ++damaged;
        continue;
      }
      if (edges != nullptr && whole && !edges->cut(slice.first_ms, slice.last_ms)) {
        SampleStretch stretch{.before = out.times_ms.size()};
        if (stretch_of(bytes, slice, stretch)) {
          stretches->push_back(stretch);
          continue;
        }
      }
      const size_t at = out.values.size();
      out.values.resize(at + slice.rows);
      const int64_t* times_ms = times_of(i);
      double* values = out.values.data() + at;
      if (times_ms == nullptr || !decode_values(bytes, slice.rows, values)) {
        out.values.resize(at);
        ++damaged;
        continue;
      }
      if (whole && !has_gaps(bytes)) {
        out.times_ms.insert(out.times_ms.end(), times_ms, times_ms + slice.rows);
        continue;
      }
      size_t kept = 0;
      for (size_t row = 0; row < slice.rows; ++row) {
        if (times_ms[row] < from_ms || times_ms[row] > to_ms || is_absent(values[row])) continue;
        out.times_ms.push_back(times_ms[row]);
        values[kept++] = values[row];
      }
      out.values.resize(at + kept);
    }
  }
  if (!index_->histograms.empty()) {
    std::vector<HistogramSample> samples;
    histograms(series, samples);
    SampleColumns beside, merged;
    for (HistogramSample& sample : samples) {
      if (sample.time_ms < from_ms || sample.time_ms > to_ms) continue;
      beside.times_ms.push_back(sample.time_ms);
      beside.values.push_back(sample.histogram->sum);
      beside.histograms.push_back(std::move(sample.histogram));
    }
    if (!beside.times_ms.empty()) {
      merge_columns(out, beside, merged);
      std::swap(out, merged);
    }
  }
  return damaged;
}

bool Block::newest(size_t series, int64_t& time_ms, double& value) const {
  if (index_->groups.empty()) return false;
  const GroupEntry& group = index_->groups[group_of(series)];
  double values[kChunkRowsMax];
  for (size_t i = group.first_slice + group.slices; i-- > group.first_slice;) {
    const Slice& slice = index_->slices[i];
    std::string_view bytes;
    const int64_t* times_ms = times_of(i);
    if (times_ms == nullptr || !chunk(slice, group.series, series - group.first_series, bytes) ||
        !decode_values(bytes, slice.rows, values))
      return false;
    for (size_t row = slice.rows; row-- > 0;) {
      if (is_absent(values[row])) continue;
      time_ms = times_ms[row];
      value = values[row];
      return true;
    }
  }
  return false;
}

void Block::histograms(size_t series, std::vector<HistogramSample>& to) const {
  auto known = index_->histograms.find(static_cast<uint32_t>(series));
  std::string bytes;
  if (known == index_->histograms.end() || !columns::unpack_bytes(known->second, kHistogramBytesMax, bytes)) return;
  ByteReader in(bytes);
  int64_t time_ms = 0;
  for (size_t left = in.count(); left > 0 && in.ok(); --left) {
    time_ms = static_cast<int64_t>(static_cast<uint64_t>(time_ms) + static_cast<uint64_t>(in.signed_varint()));
    NativeHistogram histogram;
    if (!decode_histogram(in, histogram)) return;
    to.push_back({time_ms, std::make_shared<const NativeHistogram>(std::move(histogram))});
  }
}

bool Block::exemplars(std::vector<std::pair<uint32_t, PushedExemplar>>& to) const {
  std::string bytes;
  if (!columns::unpack_bytes(index_->exemplars, kHistogramBytesMax, bytes)) return false;
  ByteReader in(bytes);
  for (size_t left = in.count(); left > 0; --left) {
    PushedExemplar exemplar;
    const uint64_t series = in.varint();
    exemplar.time_ms = in.signed_varint();
    exemplar.value = in.fixed<double>();
    exemplar.labels.resize(in.count(2));
    for (auto& [name, value] : exemplar.labels) {
      name = in.bytes();
      value = in.bytes();
    }
    if (!in.ok() || series >= index_->series) return false;
    to.emplace_back(static_cast<uint32_t>(series), std::move(exemplar));
  }
  return true;
}

}  // namespace lockstep::metrics
