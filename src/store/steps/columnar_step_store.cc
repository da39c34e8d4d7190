// Appending, sealing and questions; files that were found, and those put together, are in step_file_set.cc.
#include "store/steps/columnar_step_store.h"

#include <algorithm>

#include "base/contained.h"
#include "base/text.h"

namespace lockstep {

using steps::GroupPart;
using steps::JobInFile;
using steps::PartPlace;
using steps::PartRef;
using steps::StepFile;
using steps::StepFileInfo;
using steps::StepMerge;
using steps::StepWriter;

namespace {

constexpr const char* kTable = "table=\"steps\"";
constexpr sealed::StoreKind kStepStore{.name = "steps",
                                       .rows = "rows",
                                       .table = kTable,
                                       .format = formats::kStepFile,
                                       .files_counter = "lockstep_step_files",
                                       .bytes_counter = "lockstep_step_file_bytes",
                                       .refused_counter = "lockstep_step_files_refused_total",
                                       .corrupt_counter = "lockstep_step_row_groups_corrupt_total",
                                       .failed_counter = "lockstep_step_seals_failed_total",
                                       .small_rows = 65'536,
                                       .small_bytes = 16u << 20};
constexpr const char* kHotTable = "hot_steps";
constexpr const char* kHotLabel = "table=\"hot_steps\"";

MemoryStepStoreOptions hot(MemoryStepStoreOptions options) {
  options.steps_table = kHotTable;
  return options;
}

const char* to_text(MemoryStepStore::Outcome outcome) {
  return outcome == MemoryStepStore::Outcome::kOldAttempt ? "old_attempt" : "rank_limit";
}

}  // namespace

ColumnarStepStore::ColumnarStepStore(ColumnarStepStoreOptions options, const Clock& clock, Counters& counters)
    : FileStore(kStepStore,
                {.folder = options.folder,
                 .days = options.days,
                 .bytes_max = options.bytes_max,
                 .rows_max = options.rows_max,
                 .witness = options.witness,
                 .background = options.background},
                clock, counters),
      options_(std::move(options)),
      received_(counters.at("lockstep_store_rows_received_total", kTable)),
      replaced_(counters.at("lockstep_store_rows_replaced_total", kTable)),
      unsealed_(counters.at("lockstep_step_rows_unsealed")),
      memory_bytes_(counters.at("lockstep_store_bytes", kHotLabel)),
      memory_(hot(options_.memory), counters),
      cache_(options_.cache_bytes_max,
             [this](const StepFile& file, size_t group, const std::string& error) { spoil(file, group, error); }),
      coarse_ns_(clock.monotonic_ns()) {}

Result<std::unique_ptr<ColumnarStepStore>> ColumnarStepStore::open(ColumnarStepStoreOptions options, const Clock& clock,
                                                                   Counters& counters) {
  std::unique_ptr<ColumnarStepStore> store(new ColumnarStepStore(std::move(options), clock, counters));
  LOCKSTEP_TRY(store->start());
  return store;
}

ColumnarStepStore::~ColumnarStepStore() {
  close();
}

bool ColumnarStepStore::holds(uint64_t log_sequence, int64_t received_unix_ns) const {
  if (is_live_) return false;
  SharedLock lock(mutex_);
  // A log that was made anew counts from one again: the time tells its records from those of the old one.
  const bool is_through = std::any_of(through_.begin(), through_.end(), [&](const Through& through) {
    return log_sequence <= through.sequence && received_unix_ns <= through.unix_ns;
  });
  return is_through && !lost_.has(log_sequence);
}

uint64_t ColumnarStepStore::first_unsealed() const {
  MutexLock lock(pending_mutex_);
  uint64_t first = sealing_first_sequence_;
  for (const auto& [id, job] : pending_) {
    for (const auto& [number, step] : job.steps) {
      if (step.first_sequence != 0) first = std::min(first, step.first_sequence);
    }
  }
  return first;
}

// Append.

void ColumnarStepStore::begin_record(uint64_t log_sequence, int64_t received_unix_ns) {
  record_is_held_ = holds(log_sequence, received_unix_ns);
  MutexLock lock(pending_mutex_);
  record_ = log_sequence;
  received_most_unix_ns_ = std::max(received_most_unix_ns_, received_unix_ns);
}

void ColumnarStepStore::end_record() {
  record_is_held_ = false;
  MutexLock lock(pending_mutex_);
  applied_ = std::max(applied_, record_);
  record_ = 0;
}

bool ColumnarStepStore::may_be_on_disk(std::string_view job_id, int64_t attempt, StepNumber step) const {
  SharedLock lock(mutex_);
  auto found = on_disk_.find(job_id);
  return found != on_disk_.end() && found->second.attempt == attempt && found->second.steps.has(step);
}

void ColumnarStepStore::note_on_disk(std::string_view job_id, int64_t attempt, StepNumber first, StepNumber last) {
  auto found = on_disk_.find(job_id);
  if (found == on_disk_.end()) found = on_disk_.emplace(std::string(job_id), OnDisk{attempt, {}}).first;
  OnDisk& job = found->second;
  if (attempt < job.attempt) return;
  if (attempt > job.attempt) job = {attempt, {}};
  job.steps.add(first);
  job.steps.add(last);
}

void ColumnarStepStore::drop_pending(PendingJob& job, const char* reason) {
  latest_step_ = nullptr;
  uint64_t rows = 0;
  for (const auto& [step, pending] : job.steps) rows += pending.ranks.size();
  pending_rows_ -= rows;
  unsealed_.fetch_sub(static_cast<int64_t>(rows), std::memory_order_relaxed);
  count_dropped(reason, rows);
  job.steps.clear();
}

void ColumnarStepStore::attempt_back(const std::string& job_id, int64_t attempt) {
  memory_.attempt_back(job_id, attempt);
  {
    MutexLock lock(pending_mutex_);
    auto pending = pending_.find(job_id);
    if (pending != pending_.end() && pending->second.attempt > attempt) {
      drop_pending(pending->second, "new_attempt");
      pending->second.attempt = attempt;
    }
  }
  JobInfo on_disk;
  on_disk.job_id = job_id;
  on_disk.attempt = attempt;
  {
    MutexLock lock(mutex_);
    if (auto found = on_disk_.find(job_id); found != on_disk_.end() && found->second.attempt > attempt)
      on_disk_.erase(found);
    for (const sealed::FilePointer& pointer : *files_) {
      const StepFile& file = static_cast<const StepFile&>(*pointer);
      const std::optional<size_t> job = file.find_job(job_id, attempt);
      if (!job) continue;
      const JobInFile& info = file.jobs()[*job];
      on_disk.world_size = info.world_size;
      if (on_disk.first_seen_unix_ns == 0) on_disk.first_seen_unix_ns = info.first_seen_unix_ns;
      on_disk.last_seen_unix_ns = std::max(on_disk.last_seen_unix_ns, info.last_seen_unix_ns);
      on_disk.last_step = info.last_step;
      for (const PartPlace& place : file.parts_of(*job)) {
        const GroupPart& part = file.group(place.group).parts[place.part];
        note_on_disk(job_id, attempt, part.first(), part.last());
      }
    }
  }
  if (on_disk.last_seen_unix_ns != 0) memory_.restore(on_disk);
}

ColumnarStepStore::PendingStep* ColumnarStepStore::pending_step(const Identity& identity, StepNumber step) {
  // Ranks of one step come together.
  const bool is_latest = latest_step_ != nullptr && latest_number_ == step &&
                         latest_job_->attempt == identity.attempt && *latest_id_ == identity.job_id;
  if (is_latest) return latest_step_;
  auto job = pending_.find(identity.job_id);
  if (job == pending_.end()) job = pending_.emplace(identity.job_id, PendingJob{identity.attempt, {}}).first;
  if (identity.attempt < job->second.attempt) return nullptr;  // another thread has brought the new one meanwhile
  if (identity.attempt > job->second.attempt) {
    drop_pending(job->second, "new_attempt");
    job->second.attempt = identity.attempt;
  }
  latest_id_ = &job->first;
  latest_job_ = &job->second;
  latest_number_ = step;
  latest_step_ = &job->second.steps[step];
  return latest_step_;
}

void ColumnarStepStore::note_row(PendingStep& step, Rank rank, bool may_be_there, int64_t received_unix_ns) {
  if (may_be_there && std::find(step.ranks.begin(), step.ranks.end(), rank) != step.ranks.end()) {
    replaced_.fetch_add(1, std::memory_order_relaxed);
    rows_.fetch_sub(1, std::memory_order_relaxed);
  } else {
    step.ranks.push_back(rank);
    ++pending_rows_;
    unsealed_.fetch_add(1, std::memory_order_relaxed);
  }
  step.last_ns = options_.background ? coarse_ns_.load(std::memory_order_relaxed) : clock_.monotonic_ns();
  if (step.appends++ == 0) {
    step.first_ns = step.last_ns;
    pending_first_ns_ = std::min(pending_first_ns_, step.first_ns);
  }
  if (step.first_sequence == 0) step.first_sequence = record_;  // they rise
  step.last_sequence = std::max(step.last_sequence, record_);
  step.received_unix_ns.add(received_unix_ns);
  received_most_unix_ns_ = std::max(received_most_unix_ns_, received_unix_ns);
}

void ColumnarStepStore::append_step(const Identity& identity, const StepSummary& summary, int64_t received_unix_ns) {
  using Outcome = MemoryStepStore::Outcome;
  received_.fetch_add(1, std::memory_order_relaxed);
  if (summary.comms.size() > kCommsPerStepMax || summary.flows.size() > kFlowsPerStepMax ||
      summary.scalars.size() > kScalarsPerStepMax) {
    counters_.add("lockstep_store_rows_refused_total", format("%s,reason=\"too_large\"", kTable));
    return;
  }
  const bool is_sealed = record_is_held_.load(std::memory_order_relaxed);
  const auto [outcome, is_new_step] = memory_.append(identity, summary, received_unix_ns, is_sealed);
  if (outcome == Outcome::kOldAttempt || outcome == Outcome::kRankLimit) {
    counters_.add("lockstep_store_rows_refused_total", format("%s,reason=\"%s\"", kTable, to_text(outcome)));
    return;
  }
  if (is_new_step && !may_be_on_disk(identity.job_id, identity.attempt, summary.step))
    memory_.mark_whole(identity.job_id, identity.attempt, summary.step);
  if (is_sealed) {
    replaced_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  bool is_due = false;
  {
    MutexLock lock(pending_mutex_);
    rows_.fetch_add(1, std::memory_order_relaxed);
    PendingStep* step = pending_step(identity, summary.step);
    if (step == nullptr) {
      count_dropped("new_attempt", 1);
      return;
    }
    note_row(*step, identity.rank, outcome == Outcome::kReplaced, received_unix_ns);
    is_due = pending_rows_ % options_.seal_rows == 0;
  }
  if (is_due) sealer_.wake();
  if (options_.background && is_too_much() && !cannot_write_) wait_for_room();
}

bool ColumnarStepStore::is_too_much() const {
  const size_t rows = static_cast<size_t>(std::max<int64_t>(0, unsealed_.load(std::memory_order_relaxed)));
  const size_t bytes = static_cast<size_t>(memory_bytes_.load(std::memory_order_relaxed));
  return rows > options_.memory.step_rows_max / 2 || bytes > options_.memory.step_bytes_max / 8 * 7;
}

void ColumnarStepStore::wait_for_room() {
  sealer_.wake();
  MutexLock lock(room_mutex_);
  room_.wait_for(room_mutex_, std::chrono::nanoseconds(kStallNs), [&] { return cannot_write_ || !is_too_much(); });
}

void ColumnarStepStore::notify_room() {
  MutexLock lock(room_mutex_);
  room_.notify_all();
}

void ColumnarStepStore::end_replay() {
  is_live_ = true;
  memory_.trim(options_.hot_rows_max, options_.hot_bytes_max);
}

// Seal.

bool ColumnarStepStore::seal_is_due() const {
  const bool is_much =
      static_cast<size_t>(memory_bytes_.load()) > (options_.hot_bytes_max + options_.memory.step_bytes_max) / 2;
  MutexLock lock(pending_mutex_);
  if (pending_rows_ == 0) return false;
  if (is_much || pending_rows_ >= 2 * options_.seal_rows) return true;
  const int64_t now_ns = clock_.monotonic_ns();
  // Asked several times a second, where a thousand jobs have a hundred thousand steps pending.
  if (now_ns - pending_first_ns_ < options_.seal_age_ns && pending_rows_ < options_.seal_rows) return false;
  int64_t first_ns = INT64_MAX;
  bool is_settled = false;
  for (const auto& [id, job] : pending_) {
    for (const auto& [number, step] : job.steps) {
      first_ns = std::min(first_ns, step.first_ns);
      is_settled |= now_ns - step.last_ns >= options_.settle_ns;
    }
  }
  pending_first_ns_ = first_ns;
  return now_ns - first_ns >= options_.seal_age_ns || (is_settled && pending_rows_ >= options_.seal_rows);
}

ColumnarStepStore::TakenSteps ColumnarStepStore::take(Which which) {
  const bool is_much =
      static_cast<size_t>(memory_bytes_.load()) > (options_.hot_bytes_max + options_.memory.step_bytes_max) / 2;
  TakenSteps taken;
  MutexLock lock(pending_mutex_);
  latest_step_ = nullptr;
  const int64_t now_ns = clock_.monotonic_ns();
  const bool take_all = which == Which::kAll || is_much || pending_rows_ >= 2 * options_.seal_rows;
  const size_t rows_max = 2 * options_.seal_rows;
  size_t rows = 0;
  uint64_t least_left = record_ != 0 ? record_ : applied_ + 1;
  for (auto job = pending_.begin(); job != pending_.end();) {
    for (auto at = job->second.steps.begin(); at != job->second.steps.end();) {
      PendingStep& step = at->second;
      const bool is_due =
          take_all || now_ns - step.last_ns >= options_.settle_ns || now_ns - step.first_ns >= options_.seal_age_ns;
      if (!is_due || rows >= rows_max) {
        if (step.first_sequence != 0) least_left = std::min(least_left, step.first_sequence);
        ++at;
        continue;
      }
      rows += step.ranks.size();
      if (step.first_sequence != 0) sealing_first_sequence_ = std::min(sealing_first_sequence_, step.first_sequence);
      taken.steps.push_back({job->first, job->second.attempt, at->first, std::move(step)});
      at = job->second.steps.erase(at);
    }
    job = job->second.steps.empty() ? pending_.erase(job) : std::next(job);
  }
  pending_rows_ -= rows;
  taken.through_sequence = least_left - 1;
  taken.through_unix_ns = received_most_unix_ns_;
  return taken;
}

size_t ColumnarStepStore::write_steps(const std::vector<Taken>& taken, size_t from, StepWriter& writer,
                                      StepFileInfo& info, std::map<const char*, uint64_t>& missing) {
  const Taken* job_at_hand = nullptr;
  std::optional<JobInfo> job;
  size_t at = from;
  for (; at < taken.size() && !writer.is_full(); ++at) {
    const Taken& step = taken[at];
    if (job_at_hand == nullptr || job_at_hand->job_id != step.job_id || job_at_hand->attempt != step.attempt) {
      job_at_hand = &step;
      job = memory_.job_without_ranks(step.job_id);
      if (job && job->attempt == step.attempt) {
        JobInFile in_file;
        in_file.job_id = step.job_id;
        in_file.attempt = step.attempt;
        in_file.world_size = job->world_size;
        in_file.first_seen_unix_ns = job->first_seen_unix_ns;
        in_file.last_seen_unix_ns = job->last_seen_unix_ns;
        writer.begin_job(in_file);
      }
    }
    if (!job || job->attempt != step.attempt) {
      missing[job ? "new_attempt" : "job_dropped"] += step.rows.ranks.size();
      continue;
    }
    std::span<const Rank> ranks(step.rows.ranks);
    while (!ranks.empty()) {
      const MemoryStepStore::Visited visited = memory_.visit_rows(
          step.job_id, step.attempt, step.step, ranks,
          [&](const RankInfo& rank, const StepSummary& row) { return writer.add(steps::seen_of(rank), row); });
      missing["unsealed"] += visited.missing;
      ranks = ranks.subspan(visited.done);
      if (!ranks.empty()) writer.write_group();  // not within the visit: appends wait for that
    }
    if (step.rows.first_sequence != 0 && (info.first_sequence == 0 || step.rows.first_sequence < info.first_sequence))
      info.first_sequence = step.rows.first_sequence;
    info.last_sequence = std::max(info.last_sequence, step.rows.last_sequence);
    info.received_unix_ns.add(step.rows.received_unix_ns);
  }
  return at;
}

// A rank that came twice for a step is one row.
void ColumnarStepStore::count_ranks_once(std::vector<Taken>& taken) {
  for (Taken& step : taken) {
    std::vector<Rank>& ranks = step.rows.ranks;
    std::sort(ranks.begin(), ranks.end());
    const size_t before = ranks.size();
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    const int64_t twice = static_cast<int64_t>(before - ranks.size());
    replaced_.fetch_add(twice);
    rows_.fetch_sub(twice);
    unsealed_.fetch_sub(twice);
  }
}

Result<size_t> ColumnarStepStore::seal_file(const TakenSteps& taken, size_t from) {
  StepWriter writer = StepFile::start();
  StepFileInfo info;
  std::map<const char*, uint64_t> missing;
  size_t end = from;
  uint64_t rows = 0;
  std::string problem = "an exception";
  contained("steps", "a file of steps", [&] {
    seal_mutex_.assert_held();
    end = write_steps(taken.steps, from, writer, info, missing);
    if (end == taken.steps.size()) {  // only then is everything up to that record on disk
      info.through_sequence = taken.through_sequence;
      info.through_unix_ns = taken.through_unix_ns;
    }
    rows = writer.rows();
    if (rows > 0) {
      info.number = info.order = next_number_++;
      const Result<std::shared_ptr<const StepFile>> file = StepFile::write(folder(), info, writer.finish());
      if (file.ok()) {
        MutexLock lock(mutex_);
        add_file(*file);
      }
      problem = file.ok() ? "" : file.error();
    } else {
      problem.clear();
    }
  });
  if (!problem.empty()) return Error{problem};
  uint64_t gone = 0;
  for (const auto& [reason, count] : missing) {
    count_dropped(reason, count);
    gone += count;
  }
  unsealed_.fetch_sub(static_cast<int64_t>(rows + gone));
  return end;
}

Result<bool> ColumnarStepStore::seal_some(Which which) {
  MutexLock one_at_a_time(seal_mutex_);
  TakenSteps all = take(which);
  std::vector<Taken>& taken = all.steps;
  if (taken.empty()) return false;
  count_ranks_once(taken);
  {
    // Before the rows are there, so that no step is taken for whole in memory that is on its way to disk.
    MutexLock lock(mutex_);
    for (const Taken& step : taken) note_on_disk(step.job_id, step.attempt, step.step, step.step);
  }
  for (size_t from = 0; from < taken.size();) {
    const Result<size_t> end = seal_file(all, from);
    if (!end.ok()) {
      counters_.add("lockstep_step_seals_failed_total");
      put_back(std::move(taken), from);
      return end.failure();
    }
    for (; from < *end; ++from)
      memory_.mark_sealed(taken[from].job_id, taken[from].attempt, taken[from].step, taken[from].rows.appends);
  }
  {
    MutexLock lock(pending_mutex_);
    sealing_first_sequence_ = UINT64_MAX;
  }
  memory_.trim(options_.hot_rows_max, options_.hot_bytes_max);
  notify_room();
  return true;
}

void ColumnarStepStore::put_back(std::vector<Taken> taken, size_t from) {
  MutexLock lock(pending_mutex_);
  sealing_first_sequence_ = UINT64_MAX;
  for (size_t i = from; i < taken.size(); ++i) {
    Taken& old = taken[i];
    const size_t rows = old.rows.ranks.size();
    auto job = pending_.try_emplace(old.job_id, PendingJob{old.attempt, {}}).first;
    if (job->second.attempt != old.attempt) {
      count_dropped("new_attempt", rows);
      unsealed_.fetch_sub(static_cast<int64_t>(rows));
      continue;
    }
    pending_rows_ += rows;
    pending_first_ns_ = std::min(pending_first_ns_, old.rows.first_ns);
    auto [at, is_new] = job->second.steps.try_emplace(old.step);
    PendingStep& step = at->second;
    if (is_new) {
      step = std::move(old.rows);
      continue;
    }
    // Rows that came meanwhile; of one that is in both the same is taken for twice when the next file is written.
    step.ranks.insert(step.ranks.end(), old.rows.ranks.begin(), old.rows.ranks.end());
    step.appends += old.rows.appends;
    step.first_ns = old.rows.first_ns;
    if (old.rows.first_sequence != 0) step.first_sequence = old.rows.first_sequence;
    step.received_unix_ns.add(old.rows.received_unix_ns);
  }
}

sealed::SealWork ColumnarStepStore::work() {
  sealed::SealWork work = FileStore::work();
  work.on_wake = [this] { coarse_ns_ = clock_.monotonic_ns(); };
  work.is_due = [this] { return seal_is_due(); };
  work.on_sealed = [this](bool ok) {
    cannot_write_ = !ok;
    if (!ok) notify_room();
  };
  work.limit = [this] {
    return format("%zu rows or %s", options_.memory.step_rows_max,
                  human_bytes(static_cast<double>(options_.memory.step_bytes_max)).c_str());
  };
  return work;
}

// Questions.

std::vector<PartRef> ColumnarStepStore::parts_of(const sealed::Files& files, std::string_view job_id, int64_t attempt,
                                                 StepNumber from_step, StepNumber to_step) const {
  std::vector<PartRef> parts;
  for (const sealed::FilePointer& pointer : files) {
    const std::optional<size_t> job = static_cast<const StepFile&>(*pointer).find_job(job_id, attempt);
    if (!job) continue;
    const auto file = std::static_pointer_cast<const StepFile>(pointer);
    for (const PartPlace& place : file->parts_of(*job)) {
      const GroupPart& part = file->group(place.group).parts[place.part];
      if (part.first() <= to_step && part.last() >= from_step && !file->is_corrupt(place.group))
        parts.push_back({file, place});
    }
  }
  return parts;
}

namespace {

// Visits what is on disk and what memory has of a step, by rank; memory's row is the newer one. Gives how many are in
// both.
size_t visit_by_rank(const std::vector<StepMerge::Row>& on_disk, const std::vector<StepRow>& in_memory,
                     StepSummary& scratch, const std::function<void(const Identity&, const StepSummary&)>& visit) {
  size_t next = 0;
  size_t in_both = 0;
  for (const StepMerge::Row& row : on_disk) {
    for (; next < in_memory.size() && in_memory[next].identity.rank < row.rank; ++next)
      visit(in_memory[next].identity, in_memory[next].summary);
    if (next < in_memory.size() && in_memory[next].identity.rank == row.rank) {  // visited later in this loop
      ++in_both;
      continue;
    }
    row.columns->get(row.row, scratch);
    visit(row.columns->identity(row.row), scratch);
  }
  for (; next < in_memory.size(); ++next) visit(in_memory[next].identity, in_memory[next].summary);
  return in_both;
}

}  // namespace

void ColumnarStepStore::visit_steps(std::string_view job_id, StepNumber from_step, StepNumber to_step,
                                    const std::function<void(const Identity&, const StepSummary&)>& visit) const {
  if (from_step > to_step) return;
  // What memory has is asked first: what leaves it after that is on disk.
  std::optional<MemoryStepStore::HeldSteps> held = memory_.held_steps(job_id, from_step, to_step);
  if (!held) {
    SharedLock lock(mutex_);
    auto found = on_disk_.find(job_id);
    if (found == on_disk_.end()) return;
    held = MemoryStepStore::HeldSteps{found->second.attempt, {}};
  }
  const int64_t attempt = held->attempt;
  if (from_step == to_step && !held->steps.empty() && memory_.visit_step(job_id, attempt, from_step, true, visit) > 0)
    return;

  StepMerge merge(parts_of(*files(), job_id, attempt, from_step, to_step), cache_);
  std::vector<StepRow> at_hand;
  StepSummary from_disk;
  auto visit_disk = [&](StepMerge& disk, StepNumber step) {
    const std::vector<StepMerge::Row>& rows = disk.rows_of(step);
    const size_t in_both = visit_by_rank(rows, at_hand, from_disk, visit);
    if (!at_hand.empty() && in_both == rows.size()) memory_.mark_whole(job_id, attempt, step);
  };

  StepNumber from = from_step;
  for (size_t next_held = 0;;) {
    std::optional<StepNumber> step = merge.next(from);
    const bool is_held = next_held < held->steps.size() && (!step || held->steps[next_held].step <= *step);
    if (is_held) step = held->steps[next_held].step;
    if (!step || *step > to_step) break;
    at_hand.clear();
    if (!is_held) {
      visit_disk(merge, *step);
    } else if (memory_.visit_step(job_id, attempt, *step, true, visit) == 0) {
      memory_.visit_step(job_id, attempt, *step, false, [&](const Identity& identity, const StepSummary& summary) {
        at_hand.push_back({identity, summary});
      });
      if (at_hand.empty()) {  // it has left memory meanwhile, perhaps to a file that is newer than those at hand
        StepMerge again(parts_of(*files(), job_id, attempt, *step, *step), cache_);
        visit_disk(again, *step);
      } else {
        visit_disk(merge, *step);
      }
    }
    if (is_held) ++next_held;
    if (*step == kLastStep) break;
    from = *step + 1;
  }
}

std::vector<StepRow> ColumnarStepStore::steps(std::string_view job_id, StepNumber from_step, StepNumber to_step) const {
  std::vector<StepRow> rows;
  visit_steps(job_id, from_step, to_step, [&](const Identity& identity, const StepSummary& summary) {
    rows.push_back({identity, summary});
  });
  return rows;
}

}  // namespace lockstep
