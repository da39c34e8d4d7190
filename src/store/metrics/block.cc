#include "store/metrics/block.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <numeric>

#include "base/crc32c.h"
#include "base/disk.h"
#include "base/text.h"
#include "store/columns/byte_codec.h"
#include "store/columns/int_codec.h"
#include "store/columns/sealed_file.h"
#include "store/metrics/wal_record.h"

namespace lockstep::metrics {
namespace {

using columns::ByteReader;
using columns::put_bytes;
using columns::put_fixed;
using columns::put_signed;
using columns::put_varint;

constexpr columns::SealedFormat kFormat = columns::sealed_format(formats::kMetricBlock, "MBLE");
constexpr size_t kBufferBytes = 1 << 20;
constexpr size_t kStride = 16;  // series or chunks between two places that are told
constexpr size_t kHistogramBytesMax = 256u << 20;

enum Section : size_t { kSymbols, kNames, kLabels, kGroups, kHistograms, kExemplars, kSections };

unsigned bits_for(size_t values) {  // to number so many
  unsigned bits = 0;
  while ((size_t{1} << bits) < values) ++bits;
  return bits;
}

class BitPacker {
 public:
  void put(uint64_t value, unsigned bits) {
    for (unsigned done = 0; done < bits;) {
      if (bit_ % 8 == 0) bytes_.push_back(0);
      const unsigned room = 8 - static_cast<unsigned>(bit_ % 8);
      const unsigned take = std::min(room, bits - done);
      bytes_.back() =
          static_cast<char>(static_cast<uint8_t>(bytes_.back()) | ((value >> done) & ((1u << take) - 1)) << (bit_ % 8));
      done += take;
      bit_ += take;
    }
  }
  uint64_t bit() const { return bit_; }
  std::string finish() {
    bytes_.append(8, '\0');  // so that a word can be read anywhere
    return std::move(bytes_);
  }

 private:
  std::string bytes_;
  uint64_t bit_ = 0;
};

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

void BlockSlice::add(std::string_view chunk) {
  sizes.push_back(static_cast<uint16_t>(chunk.size()));
  crcs.push_back(crc32c(chunk));
  bytes.append(chunk);
}

// Writing.

Result<std::unique_ptr<BlockWriter>> BlockWriter::create(const std::string& folder, BlockInfo info) {
  const std::string path = folder + "/" + info.name() + ".part";
  UniqueFd file(disk::open(path, disk::Open::kReplace));
  if (!file.valid()) return Error{format("%s: %s", path.c_str(), std::strerror(errno))};
  info.first_ms = INT64_MAX;
  info.last_ms = INT64_MIN;
  std::unique_ptr<BlockWriter> writer(new BlockWriter(folder, info, std::move(file)));
  LOCKSTEP_TRY(writer->put(columns::start_content(kFormat)));
  return writer;
}

BlockWriter::BlockWriter(std::string folder, BlockInfo info, UniqueFd file)
    : folder_(std::move(folder)), info_(std::move(info)), file_(std::move(file)) {}

BlockWriter::~BlockWriter() {
  if (!finished_) disk::unlink(part_path());
}

std::string BlockWriter::part_path() const {
  return folder_ + "/" + info_.name() + ".part";
}

Result<void> BlockWriter::put(std::string_view bytes) {
  buffer_.append(bytes);
  offset_ += bytes.size();
  return buffer_.size() >= kBufferBytes ? flush() : Result<void>{};
}

Result<void> BlockWriter::flush() {
  if (Result<void> written = write_all(file_.get(), buffer_); !written.ok())
    return Error{part_path() + ": " + written.error()};
  buffer_.clear();
  return {};
}

uint32_t BlockWriter::add_series(std::span<const LabelSymbols> labels) {
  const uint32_t series = static_cast<uint32_t>(label_places_.size());
  const size_t before = label_places_.empty() ? 0 : label_places_.back();
  const size_t before_count = labels_.size() - before;
  label_places_.push_back(labels_.size());
  for (size_t i = 0; i < labels.size(); ++i) {
    const LabelSymbols label = labels[i];
    uint32_t number;
    // Most labels are those of the series before.
    if (i < before_count && pairs_[labels_[before + i]].label.value == label.value &&
        pairs_[labels_[before + i]].label.name == label.name) {
      number = labels_[before + i];
    } else {
      auto [known, is_new] =
          pair_numbers_.try_emplace(uint64_t{label.name} << 32 | label.value, static_cast<uint32_t>(pairs_.size()));
      if (is_new) pairs_.push_back({label, {}});
      number = known->second;
    }
    pairs_[number].postings.add(series);
    labels_.push_back(number);
  }
  return series;
}

Result<void> BlockWriter::add_group(std::span<const BlockSlice> slices) {
  GroupEntry group{static_cast<uint32_t>(label_places_.size()) - group_first_, {}};
  group_first_ = static_cast<uint32_t>(label_places_.size());
  for (const BlockSlice& slice : slices) {
    if (slice.times_ms.empty()) continue;
    std::string head;
    uint32_t start = 0;
    for (size_t i = 0; i < slice.sizes.size(); ++i) {
      if (i % kStride == 0) put_fixed(head, start);
      start += slice.sizes[i];
    }
    head.append(reinterpret_cast<const char*>(slice.sizes.data()), slice.sizes.size() * 2);
    head.append(reinterpret_cast<const char*>(slice.crcs.data()), slice.crcs.size() * 4);
    group.slices.push_back({offset_, head.size() + slice.bytes.size(), slice.times_ms});
    info_.first_ms = std::min(info_.first_ms, slice.times_ms.front());
    info_.last_ms = std::max(info_.last_ms, slice.times_ms.back());
    LOCKSTEP_TRY(put(head));
    LOCKSTEP_TRY(put(slice.bytes));
  }
  groups_.push_back(std::move(group));
  return {};
}

void BlockWriter::add_histograms(uint32_t series, std::span<const HistogramSample> samples) {
  if (samples.empty()) return;
  std::string bytes;
  put_varint(bytes, samples.size());
  int64_t before = 0;
  for (const HistogramSample& sample : samples) {
    put_signed(bytes, sample.time_ms - before);
    before = sample.time_ms;
    encode_histogram(*sample.histogram, bytes);
    info_.first_ms = std::min(info_.first_ms, sample.time_ms);
    info_.last_ms = std::max(info_.last_ms, sample.time_ms);
  }
  put_varint(histograms_, series);
  put_bytes(histograms_, columns::pack_bytes(bytes));
  ++histogram_count_;
}

void BlockWriter::add_exemplar(uint32_t series, const PushedExemplar& exemplar) {
  put_varint(exemplars_, series);
  put_signed(exemplars_, exemplar.time_ms);
  put_fixed(exemplars_, exemplar.value);
  put_varint(exemplars_, exemplar.labels.size());
  for (const auto& [name, value] : exemplar.labels) {
    put_bytes(exemplars_, name);
    put_bytes(exemplars_, value);
  }
  ++exemplar_count_;
}

Result<BlockInfo> BlockWriter::finish() {
  const size_t series_count = label_places_.size();
  auto labels_of = [&](size_t series) {
    const size_t end = series + 1 < series_count ? label_places_[series + 1] : labels_.size();
    return std::span<const uint32_t>(labels_).subspan(label_places_[series], end - label_places_[series]);
  };
  std::string sections[kSections];

  // Symbols in the order of their text.
  std::vector<uint32_t> order(symbols_.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return symbols_[a] < symbols_[b]; });
  std::vector<uint32_t> rank(order.size());
  std::string texts;
  put_fixed(sections[kSymbols], static_cast<uint32_t>(order.size()));
  for (uint32_t i = 0; i < order.size(); ++i) {
    rank[order[i]] = i;
    texts += symbols_[order[i]];
    put_fixed(sections[kSymbols], static_cast<uint32_t>(texts.size()));
  }
  sections[kSymbols] += texts;

  // Names with their values, each with the series that have it.
  std::vector<uint32_t> pair_order(pairs_.size());
  std::iota(pair_order.begin(), pair_order.end(), 0);
  auto key = [&](uint32_t pair) { return std::pair(rank[pairs_[pair].label.name], rank[pairs_[pair].label.value]); };
  std::sort(pair_order.begin(), pair_order.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
  std::vector<uint32_t> name_of(pairs_.size()), value_of(pairs_.size());  // numbers in the section
  std::vector<unsigned> name_bits;
  std::string list, postings;
  size_t names = 0;
  for (size_t i = 0; i < pair_order.size(); ++names) {
    const uint32_t name = key(pair_order[i]).first;
    size_t name_end = i;
    while (name_end < pair_order.size() && key(pair_order[name_end]).first == name) ++name_end;
    put_varint(list, name);
    put_varint(list, name_end - i);
    name_bits.push_back(bits_for(name_end - i));
    uint32_t before = 0;
    for (uint32_t number = 0; i < name_end; ++i, ++number) {
      const uint32_t pair = pair_order[i];
      name_of[pair] = static_cast<uint32_t>(names);
      value_of[pair] = number;
      put_varint(list, key(pair).second - before);
      before = key(pair).second;
      postings.clear();
      pairs_[pair].postings.encode(postings);
      put_bytes(list, postings);
    }
  }
  put_varint(sections[kNames], names);
  sections[kNames] += list;

  // Labels: for every series its list of names (shape), and for each name the number of the value.
  std::map<std::vector<uint32_t>, uint32_t> shapes;
  std::vector<const std::vector<uint32_t>*> shape_list;
  std::vector<uint32_t> shape_of(series_count);
  std::vector<uint32_t> shape_names;
  for (size_t i = 0; i < series_count; ++i) {
    shape_names.clear();
    for (uint32_t pair : labels_of(i)) shape_names.push_back(name_of[pair]);
    if (i > 0 && *shape_list[shape_of[i - 1]] == shape_names) {
      shape_of[i] = shape_of[i - 1];
      continue;
    }
    auto [known, is_new] = shapes.try_emplace(shape_names, static_cast<uint32_t>(shapes.size()));
    if (is_new) shape_list.push_back(&known->first);
    shape_of[i] = known->second;
  }
  put_varint(sections[kLabels], series_count);
  put_varint(sections[kLabels], shape_list.size());
  for (const std::vector<uint32_t>* shape : shape_list) {
    put_varint(sections[kLabels], shape->size());
    for (uint32_t name : *shape) put_varint(sections[kLabels], name);
  }
  BitPacker ids, rows;
  std::string checkpoints;
  const unsigned shape_width = bits_for(shape_list.size());
  for (size_t i = 0; i < series_count; ++i) {
    if (i % kStride == 0) put_fixed(checkpoints, rows.bit());
    ids.put(shape_of[i], shape_width);
    for (uint32_t pair : labels_of(i)) rows.put(value_of[pair], name_bits[name_of[pair]]);
  }
  sections[kLabels] += checkpoints;
  put_bytes(sections[kLabels], ids.finish());
  put_bytes(sections[kLabels], rows.finish());

  put_varint(sections[kGroups], groups_.size());
  uint64_t end = 0;
  for (const GroupEntry& group : groups_) {
    put_varint(sections[kGroups], group.series);
    put_varint(sections[kGroups], group.slices.size());
    for (const SliceEntry& slice : group.slices) {
      std::string times;
      encode_times(slice.times_ms, times);
      put_varint(sections[kGroups], slice.offset - end);
      put_varint(sections[kGroups], slice.bytes);
      put_varint(sections[kGroups], slice.times_ms.size());
      put_signed(sections[kGroups], slice.times_ms.front());
      put_varint(sections[kGroups], static_cast<uint64_t>(slice.times_ms.back() - slice.times_ms.front()));
      put_bytes(sections[kGroups], times);
      end = slice.offset + slice.bytes;
    }
  }
  put_varint(sections[kHistograms], histogram_count_);
  sections[kHistograms] += histograms_;
  std::string exemplars;
  put_varint(exemplars, exemplar_count_);
  exemplars += exemplars_;
  sections[kExemplars] = columns::pack_bytes(exemplars);

  info_.series = series_count;
  if (info_.first_ms > info_.last_ms) info_.first_ms = info_.last_ms = 0;
  std::string footer;
  for (uint64_t number : {info_.number, uint64_t{info_.level}, uint64_t{info_.tier}}) put_varint(footer, number);
  put_signed(footer, info_.first_ms);
  put_signed(footer, info_.last_ms);
  put_varint(footer, info_.series);
  put_varint(footer, info_.samples);
  put_varint(footer, info_.replaces.size());
  for (uint64_t number : info_.replaces) put_varint(footer, number);
  put_varint(footer, kSections);
  for (const std::string& section : sections) {
    put_varint(footer, offset_);
    put_varint(footer, section.size());
    put_fixed(footer, crc32c(section));
    LOCKSTEP_TRY(put(section));
  }
  const std::string packed = columns::pack_bytes(footer);
  std::string tail;
  put_fixed(tail, offset_);
  put_fixed(tail, static_cast<uint32_t>(packed.size()));
  put_fixed(tail, crc32c(packed));
  put_fixed(tail, kFormat.version);
  tail += kFormat.end_magic;
  LOCKSTEP_TRY(put(packed + tail));
  LOCKSTEP_TRY(flush());
  if (disk::sync(file_.get()) != 0) return Error{format("%s: %s", part_path().c_str(), std::strerror(errno))};
  const std::string path = folder_ + "/" + info_.name();
  if (disk::rename(part_path(), path) != 0) return Error{format("%s: %s", path.c_str(), std::strerror(errno))};
  finished_ = true;
  LOCKSTEP_TRY(sync_directory(folder_));
  return info_;
}

// Reading.

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
  if (Result<void> read = block->read_footer(); !read.ok()) return Error{block->path_ + ": " + read.error()};
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
