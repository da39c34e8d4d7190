// Which series there are: labels, who has which label, and where each one's samples are kept in memory. One for all
// shards: series are numbered in the order in which they come, and touched here only when they are made or asked for;
// samples of known series never come by.
//
// Memory per series: 4 bytes a label and 28 besides, whatever the labels say.
// Limits: on creation, over all, per metric name and per job (label job_id); existing series are never refused.
// Thread rule: Thread-safe; a Reading holds the shared lock while it lives, so it is kept short.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "model/metric_descriptor.h"
#include "store/metrics/chunked_array.h"
#include "store/metrics/matching.h"
#include "store/metrics/postings.h"
#include "store/metrics/symbols.h"

namespace lockstep::metrics {

struct SeriesLimits {
  uint64_t series_max = 20'000'000;
  uint64_t series_per_metric_max = 2'000'000;
  uint64_t series_per_job_max = 20'000'000;
  uint64_t series_per_stream_max = 200'000;
  uint32_t labels_max = 64;
  uint32_t label_bytes_max = 4096;
};

// Where a series' samples are: a group of a shard, and its place there.
struct Home {
  static constexpr uint32_t kShardBits = 6;
  uint32_t group = UINT32_MAX;  // the shard in the upper kShardBits bits
  uint32_t slot = 0;
  static uint32_t pack(uint32_t shard, uint32_t group) { return shard << (32 - kShardBits) | group; }
  uint32_t shard() const { return group >> (32 - kShardBits); }
  uint32_t group_in_shard() const { return group & ((1u << (32 - kShardBits)) - 1); }
};

struct Creator {
  std::string name;
  uint64_t series = 0;
};

class SeriesIndex {
 public:
  explicit SeriesIndex(SeriesLimits limits) : limits_(limits) {}

  Symbols& symbols() { return symbols_; }
  const Symbols& symbols() const { return symbols_; }

  // Making series: takes the lock for as many as there are to make.
  class Making {
   public:
    explicit Making(SeriesIndex& index) : index_(index), lock_(index.mutex_) {}
    // SIZE_MAX: not known. Labels are sorted by name, each once.
    uint32_t find(const Labels& labels);
    // nullptr: may be made; else the reason, with `example` set to a line that says it.
    const char* refusal(const Labels& labels, std::string& example) const;
    // Not known, not refused.
    uint32_t make(const Labels& labels, Home home);
    Home home(uint32_t series) const { return index_.homes_[series]; }

   private:
    SeriesIndex& index_;
    std::unique_lock<std::shared_mutex> lock_;
  };

  class Reading {
   public:
    explicit Reading(const SeriesIndex& index) : index_(index), lock_(index.mutex_) {}
    SeriesSet matching(const CompiledMatchers& matchers) const;
    Home home(uint32_t series) const { return index_.homes_[series]; }
    size_t label_count(uint32_t series) const;
    void labels(uint32_t series, LabelSymbols* to) const;  // label_count() of them, sorted by the name's text
    size_t series_count() const { return index_.homes_.size(); }
    // Of any series that has not left.
    void names(std::vector<std::string>& to) const;
    void values(std::string_view name, std::vector<std::string>& to) const;

   private:
    const SeriesIndex& index_;
    std::shared_lock<std::shared_mutex> lock_;
  };

  size_t series_count() const;
  size_t memory_bytes() const;
  // The values of a label that have the most series, most first.
  std::vector<Creator> largest(std::string_view label, size_t count) const;
  // Series that nobody wrote to for long leave: they match nothing and may be made again.
  void forget(std::span<const uint32_t> series);

 private:
  struct Value {
    uint32_t symbol = 0;
    uint32_t forgotten = 0;
    Postings postings;
  };
  struct Remembered {
    size_t seen = 0;
    std::shared_ptr<std::vector<uint32_t>> values;
  };
  class Name final : public LabelDictionary {
   public:
    explicit Name(const Symbols& symbols) : symbols_(&symbols) {}
    size_t value_count() const override { return values.size(); }
    std::string_view value(size_t at) const override { return symbols_->text(values[at].symbol); }
    size_t find(std::string_view value) const override;
    bool add_series(size_t at, SeriesSet& set) const override {
      values[at].postings.add_to(set);
      return true;
    }
    std::shared_ptr<const std::vector<uint32_t>> remembered(const CompiledMatcher& matcher) const override;

    std::deque<Value> values;
    std::unordered_map<uint32_t, uint32_t> by_symbol;

   private:
    static constexpr size_t kRememberedMax = 64;
    const Symbols* symbols_;
    mutable std::mutex remembered_mutex_;
    mutable std::map<std::string, Remembered, std::less<>> remembered_;
  };
  // The label names of a series. There are few such lists.
  struct Shape {
    std::vector<uint32_t> names;
    std::vector<Name*> dictionaries;
  };
  static constexpr uint32_t kNone = UINT32_MAX;

  bool symbols_of(const Labels& labels, std::vector<uint32_t>& pairs) const;  // false: some text is not known
  uint32_t shape_of(const std::vector<uint32_t>& pairs);
  uint64_t hash_of(uint32_t series) const;
  uint32_t lookup(uint64_t hash, std::span<const uint32_t> pairs) const;
  void enter(uint32_t series);
  const Name* dictionary(std::string_view name) const;
  uint64_t live_with(std::string_view name, std::string_view value) const;

  const SeriesLimits limits_;
  Symbols symbols_;

  mutable std::shared_mutex mutex_;
  // Under mutex_.
  std::vector<std::unique_ptr<Shape>> shapes_;
  std::map<std::vector<uint32_t>, uint32_t> shape_numbers_;
  std::unordered_map<uint32_t, std::unique_ptr<Name>> names_;  // by symbol
  ChunkedArray<uint32_t, 16> words_;                           // per series: shape, then a value symbol for each name
  ChunkedArray<uint32_t> places_;                              // by series: in words_
  ChunkedArray<Home> homes_;                                   // by series; no group: forgotten
  std::vector<uint32_t> slots_;                                // open addressing by labels: series + 1, or 0
  size_t slots_used_ = 0;
  std::vector<uint32_t> forgotten_;
};

}  // namespace lockstep::metrics
