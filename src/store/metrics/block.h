// A block: samples of many series over a stretch of time in one immutable file, with an index of its own
// (docs/formats/metric-blocks.md).
//
// Series of a group lie together and share their times; a slice is up to 240 rows of a group, a chunk the column of one
// series in it. Labels are packed numbers, found without a table in memory; the file is mapped, and only what is asked
// for is read.
// Writing: BlockWriter streams to a name of its own and renames it when all is on disk: a block is there whole or not.
// On error: a file that is torn, foreign or of another version is refused with one line. A chunk whose checksum is
//   wrong is left out of what is read, and told: a gap, never a wrong number.
// Thread rule: Thread-safe once open (Block); Confined (BlockWriter).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "model/metric_descriptor.h"
#include "store/columns/text_table.h"
#include "store/metric_reader.h"
#include "store/metric_writer.h"
#include "store/metrics/chunk_codec.h"
#include "store/metrics/group.h"
#include "store/metrics/matching.h"
#include "store/sealed/part_file.h"

namespace lockstep::metrics {

struct BlockInfo {
  uint64_t number = 0;
  uint32_t level = 0;  // how often it was merged: 0 sealed from memory, 1 some hours, 2 a day
  uint32_t tier = 0;   // 0 raw; else the spacing of its samples is kTierSpacingMs[tier]
  int64_t first_ms = 0, last_ms = 0;
  uint64_t series = 0, samples = 0;
  std::vector<uint64_t> replaces;                                    // blocks that this one was made of
  static std::optional<BlockInfo> from_name(std::string_view name);  // number, level and tier
  std::string name() const;
};

inline constexpr int64_t kTierSpacingMs[] = {0, 60'000, 3'600'000};
inline constexpr uint32_t kTiers = 3;

struct BlockSlice {
  std::vector<int64_t> times_ms;
  std::string bytes;
  std::vector<uint16_t> sizes;
  std::vector<uint32_t> crcs;
  void add(std::string_view chunk);
};

// Not finished: nothing is left once it is gone.
class BlockWriter {
 public:
  static Result<std::unique_ptr<BlockWriter>> create(const std::string& folder, BlockInfo info);

  uint32_t symbol(std::string_view text) { return symbols_.intern(text); }
  std::string_view text(uint32_t symbol) const { return symbols_[symbol]; }
  uint32_t find_symbol(std::string_view text) const { return symbols_.find(text).value_or(UINT32_MAX); }
  uint32_t tier() const { return info_.tier; }
  // (name, value) symbols, sorted by the name's text; a series of the group that add_group() comes with next. Gives its
  // number.
  uint32_t add_series(std::span<const LabelSymbols> labels);
  // Slices in time order; each has a chunk for every series since the group before.
  Result<void> add_group(std::span<const BlockSlice> slices);
  void add_histograms(uint32_t series, std::span<const HistogramSample> samples);
  void add_exemplar(uint32_t series, const PushedExemplar& exemplar);
  void count_samples(uint64_t samples) { info_.samples += samples; }
  size_t series_count() const { return label_places_.size(); }
  // On disk when it returns, under its name.
  Result<BlockInfo> finish();

 private:
  struct SliceEntry {
    uint64_t offset;
    uint64_t bytes;
    std::vector<int64_t> times_ms;
  };
  struct GroupEntry {
    uint32_t series;
    std::vector<SliceEntry> slices;
  };
  class IndexSections;
  BlockWriter(const std::string& folder, BlockInfo info);
  Result<void> put(std::string_view bytes);
  Result<void> flush();
  Result<void> put_sections(std::span<const std::string> sections);  // and the footer that says where they are

  const std::string folder_;
  BlockInfo info_;
  sealed::PartFile file_;
  uint64_t offset_ = 0;
  std::string buffer_;
  columns::TextTable symbols_;
  struct Pair {
    LabelSymbols label;
    Postings postings;
  };
  std::unordered_map<uint64_t, uint32_t> pair_numbers_;
  std::vector<Pair> pairs_;
  std::vector<uint32_t> labels_;        // pairs of all series, one after the other
  std::vector<uint64_t> label_places_;  // by series
  uint32_t group_first_ = 0;
  std::vector<GroupEntry> groups_;
  std::string histograms_, exemplars_;
  uint64_t histogram_count_ = 0, exemplar_count_ = 0;
};

class Block {
 public:
  static Result<std::shared_ptr<const Block>> open(const std::string& folder, const std::string& name);
  static Result<std::shared_ptr<const Block>> from_bytes(std::string bytes);  // for tests and fuzzing
  ~Block();

  const BlockInfo& info() const { return info_; }
  const std::string& path() const { return path_; }
  uint64_t bytes() const { return map_.size(); }
  // The index, read at first use. What follows is only called after ok.
  Result<void> load() const;

  size_t series_count() const { return index_->series; }
  std::string_view text(uint32_t symbol) const;
  size_t symbol_count() const { return index_->symbol_count; }
  Result<SeriesSet> matching(const CompiledMatchers& matchers) const;
  bool labels(size_t series, std::vector<LabelSymbols>& to) const;
  void label_names(std::vector<std::string>& to) const;
  // Values of all series of the block.
  void label_values(std::string_view name, std::vector<std::string>& to) const;

  struct Slice {
    uint64_t offset = 0;
    uint32_t bytes = 0;
    uint32_t rows = 0;
    int64_t first_ms = 0, last_ms = 0;
    std::string_view times;
  };
  struct GroupEntry {
    uint32_t first_series = 0;
    uint32_t series = 0;
    uint32_t first_slice = 0;
    uint32_t slices = 0;
  };
  size_t group_count() const { return index_->groups.size(); }
  const GroupEntry& group(size_t at) const { return index_->groups[at]; }
  size_t group_of(size_t series) const;
  const Slice& slice(size_t at) const { return index_->slices[at]; }
  // False: damage.
  bool times(const Slice& slice, int64_t* times_ms) const;
  bool chunk(const Slice& slice, size_t series_in_group, size_t slot, std::string_view& bytes) const;
  bool has_histograms(size_t series) const { return index_->histograms.contains(static_cast<uint32_t>(series)); }

  // Appended, in time order. Gives how many chunks are damaged and left out. With edges, chunks between them whose
  // heads say enough come as stretches.
  size_t read(size_t series, int64_t from_ms, int64_t to_ms, SampleColumns& out, const WindowEdges* edges = nullptr,
              std::vector<SampleStretch>* stretches = nullptr) const;
  // The last float sample; false: there is none, or it cannot be read.
  bool newest(size_t series, int64_t& time_ms, double& value) const;
  bool has_histograms() const { return !index_->histograms.empty(); }
  void histograms(size_t series, std::vector<HistogramSample>& to) const;
  // (series, exemplar)
  bool exemplars(std::vector<std::pair<uint32_t, PushedExemplar>>& to) const;

  // Says it the first time only.
  bool first_damage() const { return !damaged_.exchange(true); }

 private:
  class Name;
  struct Index {
    size_t series = 0;
    size_t symbol_count = 0;
    std::string_view symbol_ends, symbol_bytes;
    std::vector<std::unique_ptr<Name>> names;
    std::vector<std::vector<uint32_t>> shapes;  // of names
    std::vector<uint32_t> shape_bits;
    unsigned shape_width = 0;
    std::string_view checkpoints, shape_ids, rows;
    std::vector<GroupEntry> groups;
    std::vector<Slice> slices;
    std::unordered_map<uint32_t, std::string_view> histograms;  // by series
    std::string_view exemplars;
  };
  Block() = default;
  Result<void> read_footer();
  Result<void> load_index() const;
  bool load_names(std::string_view bytes, Index& index) const;
  bool load_labels(std::string_view bytes, Index& index) const;
  bool load_groups(std::string_view bytes, Index& index) const;
  const int64_t* times_of(size_t slice) const;  // null: damage

  const uint64_t instance_ = ++instances_;  // of all that were ever opened
  static inline std::atomic<uint64_t> instances_{0};
  std::string path_;
  std::string own_bytes_;
  std::string_view map_;
  bool mapped_ = false;
  BlockInfo info_;
  struct Section {
    uint64_t offset = 0;
    uint64_t bytes = 0;
    uint32_t crc = 0;
  };
  std::vector<Section> sections_;
  mutable std::once_flag loaded_;
  mutable std::string load_error_;
  mutable std::unique_ptr<const Index> index_;
  mutable std::atomic<bool> damaged_{false};
};

}  // namespace lockstep::metrics
