#include "store/steps/step_merge.h"

#include <algorithm>

namespace lockstep::steps {

bool GroupCache::find(uint64_t file, uint64_t group, Entry& entry) {
  MutexLock lock(mutex_);
  for (Entry& known : entries_) {
    if (known.file != file || known.group != group) continue;
    known.used = ++uses_;
    entry = known;
    return true;
  }
  return false;
}

void GroupCache::keep(Entry entry) {
  MutexLock lock(mutex_);
  entry.used = ++uses_;
  bytes_ += entry.bytes;
  entries_.push_back(std::move(entry));
  while (bytes_ > bytes_max_ && entries_.size() > 1) {
    auto oldest = std::min_element(entries_.begin(), entries_.end(),
                                   [](const Entry& a, const Entry& b) { return a.used < b.used; });
    bytes_ -= oldest->bytes;
    entries_.erase(oldest);
  }
}

size_t GroupCache::bytes() const {
  MutexLock lock(mutex_);
  return bytes_;
}

std::shared_ptr<const StepColumns> GroupCache::load(const StepFile& file, size_t group) {
  if (file.is_corrupt(group)) return nullptr;
  const uint64_t number = file.info().number;
  Entry entry;
  if (find(number, group, entry)) return entry.columns;
  if (!find(number, kTables, entry)) {
    Result<std::shared_ptr<const StepTables>> tables = file.read_tables();
    if (!tables.ok()) {
      spoiled_(file, group, tables.error());
      return nullptr;
    }
    entry = {
        .file = number, .group = kTables, .bytes = (*tables)->memory_bytes(), .columns = nullptr, .tables = *tables};
    keep(entry);
  }
  Result<std::shared_ptr<const StepColumns>> columns = file.read_group(group, entry.tables);
  if (!columns.ok()) {
    spoiled_(file, group, columns.error());
    return nullptr;
  }
  keep({.file = number, .group = group, .bytes = (*columns)->memory_bytes(), .columns = *columns, .tables = nullptr});
  return *columns;
}

StepMerge::StepMerge(std::vector<PartRef> parts, GroupCache& cache) : cache_(cache), parts_(std::move(parts)) {
  std::stable_sort(parts_.begin(), parts_.end(),
                   [](const PartRef& a, const PartRef& b) { return a.part().first() < b.part().first(); });
}

std::optional<StepNumber> StepMerge::next_of(const Active& active, StepNumber from) {
  if (active.is_read) {
    if (active.row == active.end) return std::nullopt;
    return active.columns->step(active.row);
  }
  for (const StepRun& run : active.ref.part().runs) {
    if (run.last >= from) return std::max(from, run.first);
  }
  return std::nullopt;
}

void StepMerge::advance(StepNumber from) {
  std::erase_if(active_, [&](Active& active) {
    while (active.row < active.end && active.columns->step(active.row) < from) ++active.row;
    return !next_of(active, from).has_value();
  });
  for (; next_part_ < parts_.size() && parts_[next_part_].part().first() <= from; ++next_part_) {
    const PartRef& ref = parts_[next_part_];
    if (ref.part().last() < from) continue;
    // The newest last, so that its rows win.
    auto at = std::upper_bound(active_.begin(), active_.end(), ref, [](const PartRef& one, const Active& other) {
      return std::pair(one.file->info().order, one.place.group) <
             std::pair(other.ref.file->info().order, other.ref.place.group);
    });
    active_.insert(at, Active{ref, false, nullptr, 0, 0});
  }
}

std::optional<StepNumber> StepMerge::next(StepNumber from) {
  advance(from);
  std::optional<StepNumber> least;
  for (const Active& active : active_) {
    std::optional<StepNumber> step = next_of(active, from);
    if (step && (!least || *step < *least)) least = step;
  }
  if (next_part_ < parts_.size()) {
    const StepNumber step = parts_[next_part_].part().first();
    if (!least || step < *least) least = step;
  }
  return least;
}

const std::vector<StepMerge::Row>& StepMerge::rows_of(StepNumber step) {
  rows_.clear();
  advance(step);
  size_t sources = 0;
  for (Active& active : active_) {
    if (!active.is_read) {
      const std::optional<StepNumber> may = next_of(active, step);
      if (!may || *may != step) continue;
      active.is_read = true;
      active.columns = cache_.load(*active.ref.file, active.ref.place.group);
      if (active.columns != nullptr) {
        active.row = active.ref.place.first_row;
        active.end = active.row + active.ref.part().rows;
        while (active.row < active.end && active.columns->step(active.row) < step) ++active.row;
      }
    }
    if (active.columns == nullptr) continue;
    const size_t before = rows_.size();
    for (; active.row < active.end && active.columns->step(active.row) == step; ++active.row)
      rows_.push_back({active.columns.get(), active.row, active.columns->identity(active.row).rank});
    sources += rows_.size() > before ? 1 : 0;
  }
  if (sources > 1) {
    std::stable_sort(rows_.begin(), rows_.end(), [](const Row& a, const Row& b) { return a.rank < b.rank; });
    size_t kept = 0;
    for (size_t i = 0; i < rows_.size(); ++i) {
      if (i + 1 < rows_.size() && rows_[i + 1].rank == rows_[i].rank) {
        ++twice_;
      } else {
        rows_[kept++] = rows_[i];
      }
    }
    rows_.resize(kept);
  }
  return rows_;
}

}  // namespace lockstep::steps
