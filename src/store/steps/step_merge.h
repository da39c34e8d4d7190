// Rows of one job from row groups of several files, in the order (step, rank), of a row that is there more than once
// the newest. Row groups are read when their steps come up and let go when those are over, so that a walk over any
// number of rows holds few of them.
//
// Thread rule: GroupCache is Thread-safe, and reads without holding its lock. StepMerge is Confined.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "store/steps/step_file.h"

namespace lockstep::steps {

// Row groups and tables that were read lately.
class GroupCache {
 public:
  using Spoiled = std::function<void(const StepFile& file, size_t group, const std::string& error)>;
  // `spoiled` is told of a row group that cannot be read.
  GroupCache(size_t bytes_max, Spoiled spoiled) : bytes_max_(bytes_max), spoiled_(std::move(spoiled)) {}

  // nullptr: it cannot be read.
  std::shared_ptr<const StepColumns> load(const StepFile& file, size_t group);
  size_t bytes() const;

 private:
  static constexpr uint64_t kTables = UINT64_MAX;
  struct Entry {
    uint64_t file = 0;
    uint64_t group = 0;  // or kTables
    uint64_t used = 0;
    size_t bytes = 0;
    std::shared_ptr<const StepColumns> columns;
    std::shared_ptr<const StepTables> tables;
  };
  bool find(uint64_t file, uint64_t group, Entry& entry);
  void keep(Entry entry);

  const size_t bytes_max_;
  const Spoiled spoiled_;
  mutable Mutex mutex_;
  std::vector<Entry> entries_ LOCKSTEP_GUARDED_BY(mutex_);
  size_t bytes_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  uint64_t uses_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

struct PartRef {
  std::shared_ptr<const StepFile> file;
  PartPlace place;
  const GroupPart& part() const { return file->group(place.group).parts[place.part]; }
};

class StepMerge {
 public:
  StepMerge(std::vector<PartRef> parts, GroupCache& cache);

  // The first step from `from` on of which rows may be here. `from` never falls.
  std::optional<StepNumber> next(StepNumber from);
  struct Row {
    const StepColumns* columns;
    uint32_t row;
    Rank rank;
  };
  // By rank; good until the next call. Steps never fall. May be empty after all.
  const std::vector<Row>& rows_of(StepNumber step);
  size_t twice() const { return twice_; }  // rows left out because there were newer ones

 private:
  struct Active {
    PartRef ref;
    bool is_read = false;
    std::shared_ptr<const StepColumns> columns;
    uint32_t row = 0;  // the next one
    uint32_t end = 0;
  };
  void advance(StepNumber from);
  static std::optional<StepNumber> next_of(const Active& active, StepNumber from);

  GroupCache& cache_;
  std::vector<PartRef> parts_;  // by first step
  size_t next_part_ = 0;
  std::vector<Active> active_;  // oldest file first
  std::vector<Row> rows_;
  size_t twice_ = 0;
};

}  // namespace lockstep::steps
