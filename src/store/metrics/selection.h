// What MetricEngine::select() gives out: series found in memory and in blocks, each once, and their samples put
// together.
//
// Thread rule: as MetricSelection says.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "store/metric_reader.h"
#include "store/metrics/block.h"
#include "store/metrics/block_builder.h"
#include "store/metrics/label_sets.h"
#include "store/metrics/series_index.h"
#include "store/metrics/shard.h"

namespace lockstep::metrics {

class Selection final : public MetricSelection {
 public:
  struct HeadPlace {
    uint32_t snapshot = UINT32_MAX;
    uint32_t slot = 0;
  };
  struct BlockPart {
    std::shared_ptr<const Block> block;
    int64_t from_ms = INT64_MIN, to_ms = INT64_MAX;
    std::vector<uint32_t> there;  // by series of the selection: in the block
    std::vector<uint32_t> last;   // likewise, of a rollup the last values, where something else is wanted
    struct Deleted {
      SeriesSet series;
      int64_t from_ms, to_ms;
    };
    std::vector<Deleted> deleted;
  };

  Selection(std::shared_ptr<const Symbols> symbols, Rollup rollup, std::function<void(const Block&, size_t)> on_damage)
      : symbols_(std::move(symbols)), rollup_(rollup), on_damage_(std::move(on_damage)) {}

  size_t size() const override { return sets_.size(); }
  std::span<const LabelSymbols> labels(size_t series) const override { return sets_[series]; }
  std::string_view text(uint32_t symbol) const override {
    return symbol < first_extra_ ? symbols_->text(symbol) : std::string_view(extra_[symbol - first_extra_]);
  }
  bool has_rollups() const override { return has_rollups_; }
  Result<void> samples(size_t series, int64_t from_ms, int64_t to_ms, SampleColumns& out) const override;
  Result<void> stretches(size_t series, int64_t from_ms, int64_t to_ms, const WindowEdges& edges, SampleColumns& out,
                         std::vector<SampleStretch>& stretches) const override;
  Result<void> newest(size_t series, int64_t from_ms, int64_t to_ms, SampleColumns& out) const override;

  // Building it: first what is in memory, then block after block in the order of their numbers.
  LabelSets& sets() { return sets_; }
  std::vector<HeadPlace>& head() { return head_; }
  std::vector<GroupSnapshot>& snapshots() { return snapshots_; }
  // Adds the series of the block that are in `set`, and those of `last` as BlockPart::last; those without a sample in
  // its range are left out where that is cheap to know.
  Result<void> add_block(BlockPart part, const SeriesSet& set, const SeriesSet& last, bool is_first_indexed);

 private:
  uint32_t symbol_of(std::string_view text);
  bool read_apart(size_t series, int64_t from_ms, int64_t to_ms, const WindowEdges& edges, SampleColumns& out,
                  std::vector<SampleStretch>& stretches) const;
  void read_head(HeadPlace place, int64_t from_ms, int64_t to_ms, SampleColumns& more, SampleColumns& out) const;
  void prefetch(size_t series, int64_t from_ms, int64_t to_ms) const;
  void read_part(const BlockPart& part, uint32_t there, int64_t from_ms, int64_t to_ms, SampleColumns& out) const;
  bool read_counter(size_t series, int64_t from_ms, int64_t to_ms, SampleColumns& out) const;

  const std::shared_ptr<const Symbols> symbols_;
  const Rollup rollup_;
  const std::function<void(const Block&, size_t)> on_damage_;
  LabelSets sets_;
  std::vector<HeadPlace> head_;
  std::vector<GroupSnapshot> snapshots_;
  std::vector<BlockPart> blocks_;
  std::vector<uint32_t> by_time_;  // of blocks_
  bool has_rollups_ = false;
  int64_t last_in_blocks_ms_ = INT64_MIN;
  // Texts that only blocks have are numbered after those of memory, from where these ended when the first block came:
  // who reads may keep a table by number.
  uint32_t first_extra_ = UINT32_MAX;
  std::deque<std::string> extra_;
  std::unordered_map<std::string_view, uint32_t> extra_numbers_;
};

}  // namespace lockstep::metrics
