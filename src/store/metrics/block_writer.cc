// Writing a block: groups go to the file as they come; the index is made at the end, of all labels there were.
#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "base/crc32c.h"
#include "store/columns/byte_codec.h"
#include "store/columns/int_codec.h"
#include "store/metrics/block.h"
#include "store/metrics/block_layout.h"
#include "store/metrics/wal_record.h"

namespace lockstep::metrics {

using namespace block_layout;

namespace {

using columns::put_bytes;
using columns::put_fixed;
using columns::put_signed;
using columns::put_varint;

constexpr size_t kBufferBytes = 1 << 20;

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

}  // namespace

void BlockSlice::add(std::string_view chunk) {
  sizes.push_back(static_cast<uint16_t>(chunk.size()));
  crcs.push_back(crc32c(chunk));
  bytes.append(chunk);
}

Result<std::unique_ptr<BlockWriter>> BlockWriter::create(const std::string& folder, BlockInfo info) {
  info.first_ms = INT64_MAX;
  info.last_ms = INT64_MIN;
  std::unique_ptr<BlockWriter> writer(new BlockWriter(folder, info));
  if (Result<void> opened = writer->file_.opened(); !opened.ok())
    return prefixed(opened.failure(), writer->file_.part_path() + ": ");
  LOCKSTEP_TRY(writer->put(columns::start_content(kFormat)));
  return writer;
}

BlockWriter::BlockWriter(const std::string& folder, BlockInfo info)
    : folder_(folder), info_(std::move(info)), file_(folder_, info_.name()) {}

Result<void> BlockWriter::put(std::string_view bytes) {
  buffer_.append(bytes);
  offset_ += bytes.size();
  return buffer_.size() >= kBufferBytes ? flush() : Result<void>{};
}

Result<void> BlockWriter::flush() {
  if (Result<void> written = file_.write(buffer_); !written.ok())
    return prefixed(written.failure(), file_.part_path() + ": ");
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

// The sections of a block's index, made of what its writer has been given.
class BlockWriter::IndexSections {
 public:
  explicit IndexSections(const BlockWriter& block) : block_(block) {}

  std::array<std::string, kSections> make() {
    make_symbols();
    make_names();
    make_labels();
    make_groups();
    put_varint(sections_[kHistograms], block_.histogram_count_);
    sections_[kHistograms] += block_.histograms_;
    std::string exemplars;
    put_varint(exemplars, block_.exemplar_count_);
    exemplars += block_.exemplars_;
    sections_[kExemplars] = columns::pack_bytes(exemplars);
    return std::move(sections_);
  }

 private:
  size_t series_count() const { return block_.label_places_.size(); }
  std::span<const uint32_t> labels_of(size_t series) const {
    const std::vector<uint64_t>& places = block_.label_places_;
    const size_t end = series + 1 < places.size() ? places[series + 1] : block_.labels_.size();
    return std::span<const uint32_t>(block_.labels_).subspan(places[series], end - places[series]);
  }
  // Name and value of a pair, by the order of their texts.
  std::pair<uint32_t, uint32_t> key(uint32_t pair) const {
    return {rank_[block_.pairs_[pair].label.name], rank_[block_.pairs_[pair].label.value]};
  }

  // In the order of their text.
  void make_symbols() {
    const columns::TextTable& symbols = block_.symbols_;
    std::vector<uint32_t> order(symbols.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return symbols[a] < symbols[b]; });
    rank_.resize(order.size());
    std::string texts;
    put_fixed(sections_[kSymbols], static_cast<uint32_t>(order.size()));
    for (uint32_t i = 0; i < order.size(); ++i) {
      rank_[order[i]] = i;
      texts += symbols[order[i]];
      put_fixed(sections_[kSymbols], static_cast<uint32_t>(texts.size()));
    }
    sections_[kSymbols] += texts;
  }

  // Names with their values, each with the series that have it.
  void make_names() {
    std::vector<uint32_t> pair_order(block_.pairs_.size());
    std::iota(pair_order.begin(), pair_order.end(), 0);
    std::sort(pair_order.begin(), pair_order.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
    name_of_.resize(pair_order.size());
    value_of_.resize(pair_order.size());
    std::string list, postings;
    size_t names = 0;
    for (size_t i = 0; i < pair_order.size(); ++names) {
      const uint32_t name = key(pair_order[i]).first;
      size_t name_end = i;
      while (name_end < pair_order.size() && key(pair_order[name_end]).first == name) ++name_end;
      put_varint(list, name);
      put_varint(list, name_end - i);
      name_bits_.push_back(bits_for(name_end - i));
      uint32_t before = 0;
      for (uint32_t number = 0; i < name_end; ++i, ++number) {
        const uint32_t pair = pair_order[i];
        name_of_[pair] = static_cast<uint32_t>(names);
        value_of_[pair] = number;
        put_varint(list, key(pair).second - before);
        before = key(pair).second;
        postings.clear();
        block_.pairs_[pair].postings.encode(postings);
        put_bytes(list, postings);
      }
    }
    put_varint(sections_[kNames], names);
    sections_[kNames] += list;
  }

  // For every series its list of names (shape), and for each name the number of the value.
  void make_labels() {
    std::string& section = sections_[kLabels];
    put_varint(section, series_count());
    find_shapes();
    put_varint(section, shape_list_.size());
    for (const std::vector<uint32_t>* shape : shape_list_) {
      put_varint(section, shape->size());
      for (uint32_t name : *shape) put_varint(section, name);
    }
    BitPacker ids, rows;
    std::string checkpoints;
    const unsigned shape_width = bits_for(shape_list_.size());
    for (size_t i = 0; i < series_count(); ++i) {
      if (i % kStride == 0) put_fixed(checkpoints, rows.bit());
      ids.put(shape_of_[i], shape_width);
      for (uint32_t pair : labels_of(i)) rows.put(value_of_[pair], name_bits_[name_of_[pair]]);
    }
    section += checkpoints;
    put_bytes(section, ids.finish());
    put_bytes(section, rows.finish());
  }

  void find_shapes() {
    shape_of_.resize(series_count());
    std::vector<uint32_t> names;
    for (size_t i = 0; i < series_count(); ++i) {
      names.clear();
      for (uint32_t pair : labels_of(i)) names.push_back(name_of_[pair]);
      if (i > 0 && *shape_list_[shape_of_[i - 1]] == names) {
        shape_of_[i] = shape_of_[i - 1];
        continue;
      }
      auto [known, is_new] = shapes_.try_emplace(names, static_cast<uint32_t>(shapes_.size()));
      if (is_new) shape_list_.push_back(&known->first);
      shape_of_[i] = known->second;
    }
  }

  void make_groups() {
    std::string& section = sections_[kGroups];
    put_varint(section, block_.groups_.size());
    uint64_t end = 0;
    for (const GroupEntry& group : block_.groups_) {
      put_varint(section, group.series);
      put_varint(section, group.slices.size());
      for (const SliceEntry& slice : group.slices) {
        std::string times;
        encode_times(slice.times_ms, times);
        put_varint(section, slice.offset - end);
        put_varint(section, slice.bytes);
        put_varint(section, slice.times_ms.size());
        put_signed(section, slice.times_ms.front());
        put_varint(section, static_cast<uint64_t>(slice.times_ms.back() - slice.times_ms.front()));
        put_bytes(section, times);
        end = slice.offset + slice.bytes;
      }
    }
  }

  const BlockWriter& block_;
  std::array<std::string, kSections> sections_;
  std::vector<uint32_t> rank_;                            // by symbol of the writer: that of the block
  std::vector<uint32_t> name_of_, value_of_;              // by pair: numbers in the section of names
  std::vector<unsigned> name_bits_;                       // by name: to number its values
  std::map<std::vector<uint32_t>, uint32_t> shapes_;      // of names
  std::vector<const std::vector<uint32_t>*> shape_list_;  // by number
  std::vector<uint32_t> shape_of_;                        // by series
};

Result<BlockInfo> BlockWriter::finish() {
  const std::array<std::string, kSections> sections = IndexSections(*this).make();
  info_.series = label_places_.size();
  if (info_.first_ms > info_.last_ms) info_.first_ms = info_.last_ms = 0;
  LOCKSTEP_TRY(put_sections(sections));
  LOCKSTEP_TRY(flush());
  if (Result<void> synced = file_.sync(); !synced.ok()) return prefixed(synced.failure(), file_.part_path() + ": ");
  if (Result<void> renamed = file_.rename(); !renamed.ok()) return prefixed(renamed.failure(), file_.path() + ": ");
  LOCKSTEP_TRY(sync_directory(folder_));
  return info_;
}

Result<void> BlockWriter::put_sections(std::span<const std::string> sections) {
  std::string footer;
  for (uint64_t number : {info_.number, uint64_t{info_.level}, uint64_t{info_.tier}}) put_varint(footer, number);
  put_signed(footer, info_.first_ms);
  put_signed(footer, info_.last_ms);
  put_varint(footer, info_.series);
  put_varint(footer, info_.samples);
  put_varint(footer, info_.replaces.size());
  for (uint64_t number : info_.replaces) put_varint(footer, number);
  put_varint(footer, sections.size());
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
  return put(packed + tail);
}

}  // namespace lockstep::metrics
