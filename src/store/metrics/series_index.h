// Which series there are: labels, who has which label, and where each one's samples are kept in memory. One for all
// shards: series are numbered in the order in which they come, and touched here only when they are made or asked for;
// samples of known series never come by.
//
// Labels are numbers of texts. A series that has one label other than the last that was written out in full with these
// names (a GPU's metrics differ in their name alone) is that one and the other label, 8 bytes; so memory per series is
// 8 bytes and its place in the tables (9), and for one in some ten or a hundred 4 bytes a label.
// Limits: on creation, over all, per metric name, per job (label job_id) and per tenant (label tenant);
//         existing series are never refused.
//         Labels take their memory from the budget, where there is one; new series are refused where it has none.
// Series that left keep their numbers, rows and texts until a Renumbering.
// Thread rule: Thread-safe; a Reading holds the shared lock while it lives, so it is kept short.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/memory_budget.h"
#include "base/mutex.h"
#include "base/strong_id.h"
#include "model/metric_descriptor.h"
#include "store/metrics/chunked_array.h"
#include "store/metrics/matching.h"
#include "store/metrics/postings.h"
#include "store/metrics/run_array.h"
#include "store/metrics/symbols.h"

namespace lockstep::metrics {

// A series' number in the index of all shards, until a Renumbering; neither its place in a block nor in a selection.
using SeriesId = StrongId<struct SeriesIdTag, uint32_t>;
inline constexpr SeriesId kNoSeries{UINT32_MAX};

struct SeriesLimits {
  uint64_t series_max = 20'000'000;
  uint64_t series_per_metric_max = 5'000'000;  // a counter of every NVLink is a fifth of a fleet's series
  uint64_t series_per_job_max = 20'000'000;
  uint64_t series_per_tenant_max = 20'000'000;
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
  // As one number; the next slot's is one more.
  uint64_t word() const { return uint64_t{group} << 32 | slot; }
  static Home of(uint64_t word) { return {static_cast<uint32_t>(word >> 32), static_cast<uint32_t>(word)}; }
};

struct Creator {
  std::string name;
  uint64_t series = 0;
};

class SeriesIndex {
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
    mutable Mutex remembered_mutex_;
    mutable std::map<std::string, Remembered, std::less<>> remembered_ LOCKSTEP_GUARDED_BY(remembered_mutex_);
  };
  static constexpr uint32_t kNone = UINT32_MAX;
  // The label names of a series. There are few such lists.
  struct Shape {
    std::vector<uint32_t> names;
    std::vector<Name*> dictionaries;
    uint32_t last_full = kNone;  // in words_
    struct Made {
      uint32_t symbol = kNone, place = 0;
    };
    std::vector<Made> last_made;  // per name: the last value, and where it is in the dictionary
  };
  // The values of a series: those of a full row, but for at most one.
  struct Row {
    const Shape& shape;
    const uint32_t* full;
    uint32_t changed, value;
    uint32_t operator[](size_t at) const { return at == changed ? value : full[at]; }
  };
  struct Tables {
    SeriesId make(std::span<const LabelSymbols> labels, Home home);
    uint32_t shape_of(std::span<const LabelSymbols> labels);
    Row row_of(SeriesId series) const;
    uint32_t add_row(uint32_t shape, std::span<const LabelSymbols> labels);
    uint64_t hash_of(SeriesId series) const;
    SeriesId lookup(std::span<const LabelSymbols> labels) const;
    void enter(SeriesId series);
    const Name* dictionary(std::string_view name) const;
    uint64_t live_with(std::string_view name, std::string_view value) const;

    // Shared with selections, which give out its texts.
    const std::shared_ptr<Symbols> symbols = std::make_shared<Symbols>();
    std::vector<std::unique_ptr<Shape>> shapes;
    std::map<std::vector<uint32_t>, uint32_t> shape_numbers;
    std::unordered_map<uint32_t, std::unique_ptr<Name>> names;  // by symbol
    // Per series: its shape and a value symbol for each name; or, with kDerived, which name has another value than in
    // the full row so many words before, and that value.
    ChunkedArray<uint32_t, 16> words;
    static constexpr uint32_t kDerived = 0x8000'0000, kDistanceBits = 25, kNamesMax = 64;
    ChunkedArray<uint32_t> places;  // by series: in words
    RunArray homes;                 // by series
    std::vector<bool> is_forgotten;
    std::vector<uint32_t> slots;  // open addressing by labels: series + 1, or 0
    size_t slots_used = 0;
    std::vector<SeriesId> forgotten;
    size_t idle_text_bytes = 0;  // of values that only series that left have
  };

 public:
  explicit SeriesIndex(SeriesLimits limits, MemoryBudget* memory = nullptr)
      : limits_(limits), tables_(std::make_unique<Tables>()), memory_(memory, MemoryUse::kSeries) {}

  // Of the numbers there are now; whoever keeps such numbers keeps it too. Not under a Reading, which has its own.
  std::shared_ptr<Symbols> symbols() const {
    SharedLock lock(mutex_);
    return tables_->symbols;
  }

  // Making series: takes the lock for as many as there are to make.
  class Making {
   public:
    explicit Making(SeriesIndex& index) : index_(index), lock_(index.mutex_) {}
    // kNoSeries: not known. Labels are sorted by name, each once.
    SeriesId find(const Labels& labels);
    SeriesId find(std::span<const LabelSymbols> labels) const;
    // nullptr: may be made; else the reason, with `example` set to a line that says it.
    const char* refusal(const Labels& labels, std::string& example) const;
    // For a series that is about to be made. False: there is no memory for it.
    [[nodiscard]] bool take_memory(const Labels& labels);
    // Not known, not refused.
    SeriesId make(const Labels& labels, Home home);
    SeriesId make(std::span<const LabelSymbols> labels, Home home);
    Home home(SeriesId series) const {
      index_.mutex_.assert_held();
      return Home::of(index_.tables_->homes[series.value()]);
    }

   private:
    SeriesIndex& index_;
    MutexLock<SharedMutex> lock_;
  };

  class Reading {
   public:
    explicit Reading(const SeriesIndex& index) : lock_(index.mutex_), tables_(*index.tables_) {}
    SeriesSet matching(const CompiledMatchers& matchers) const;
    const Symbols& symbols() const { return *tables_.symbols; }
    // By series; only those that matching() gave have one.
    const RunArray& homes() const { return tables_.homes; }
    // Sorted by the name's text, to where room(count) says.
    template <typename Room>
    void labels(SeriesId series, Room&& room) const {
      const Row row = tables_.row_of(series);
      const std::vector<uint32_t>& names = row.shape.names;
      LabelSymbols* to = room(names.size());
      for (size_t i = 0; i < names.size(); ++i) to[i] = {names[i], row[i]};
    }
    // Appended.
    void labels(SeriesId series, std::vector<LabelSymbols>& to) const {
      labels(series, [&](size_t count) {
        to.resize(to.size() + count);
        return to.data() + to.size() - count;
      });
    }
    // Labels of this series are soon asked for.
    void prefetch(SeriesId series) const { __builtin_prefetch(&tables_.words[tables_.places[series.value()]]); }
    // Of any series that has not left.
    void names(std::vector<std::string>& to) const;
    void values(std::string_view name, std::vector<std::string>& to) const;

   private:
    SharedLock lock_;
    const Tables& tables_;
  };

  size_t series_count() const;
  size_t memory_bytes() const;
  // The values of a label that have the most series, most first.
  std::vector<Creator> largest(std::string_view label, size_t count) const;
  // Series that nobody wrote to for long leave: they match nothing and may be made again.
  void forget(std::span<const SeriesId> series);
  // Of all numbers so many have left.
  size_t forgotten_count() const;
  // Much of its memory is of series that left: more of them than there are (and than series_min), or of their texts.
  bool is_mostly_forgotten(size_t series_min) const;
  // What the tables take is what they are charged with from now on, also beyond the budget: it is there.
  void settle_memory();

  // New tables without the series that left. Made while others read and make series, and only put in place of the old
  // ones when nobody else goes by numbers. One at a time, and nothing is forgotten meanwhile.
  class Renumbering {
   public:
    explicit Renumbering(SeriesIndex& index);
    // The new number by the old one, kNoSeries for those that left: whoever keeps numbers must take the new ones
    // before anybody reads.
    const std::vector<SeriesId>& finish();
    // Likewise for the numbers of texts; UINT32_MAX for those that nobody has.
    const std::vector<uint32_t>& symbols() const { return symbols_; }

   private:
    static constexpr size_t kAtOnce = 20'000;  // series copied under the lock
    void copy(size_t end) LOCKSTEP_REQUIRES_SHARED(index_.mutex_);
    SeriesIndex& index_;
    uint32_t symbol(uint32_t old) LOCKSTEP_REQUIRES_SHARED(index_.mutex_);
    std::unique_ptr<Tables> tables_;
    std::vector<SeriesId> numbers_;
    std::vector<uint32_t> symbols_;
  };

 private:
  const SeriesLimits limits_;
  mutable SharedMutex mutex_;
  std::unique_ptr<Tables> tables_ LOCKSTEP_GUARDED_BY(mutex_);
  MemoryPool memory_ LOCKSTEP_GUARDED_BY(mutex_);
  uint64_t charged_bytes_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep::metrics
