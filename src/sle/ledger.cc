#include "sle/ledger.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "sle/ledger_records.h"

namespace lockstep::sle {
namespace {

// With what the maps and malloc need for each. A short text lies in the string itself.
constexpr uint64_t kRowBytes = 64;
uint64_t bytes_of(const std::string& text) {
  return sizeof(std::string) + (text.size() < 16 ? 0 : text.size() + 16);
}
uint64_t bytes_of(const Owner& owner) {
  uint64_t bytes = kRowBytes + sizeof(Owner) + bytes_of(owner.key);
  for (const std::string* text : {&owner.key, &owner.classifier, &owner.sub, &owner.culprit, &owner.host,
                                  &owner.gpu_uuid, &owner.verdict_id, &owner.job_id, &owner.place})
    bytes += bytes_of(*text) - sizeof(std::string);
  return bytes;
}
uint64_t bytes_of(const RankCells& cells) {
  return kRowBytes + sizeof(RankCells) + cells.size() * sizeof(RankRun);
}
uint64_t bytes_of(const Placement& placement) {
  uint64_t bytes = kRowBytes + sizeof(Placement);
  for (const Placement::HostRun& run : placement.hosts) bytes += 8 + bytes_of(run.host);
  for (const std::string& gpu : placement.gpus) bytes += bytes_of(gpu);
  return bytes;
}

}  // namespace

const char* to_text(CulpritKind kind) {
  constexpr const char* kNames[] = {"nobody", "job", "rank", "gpu", "host", "nic", "link", "switch"};
  return kNames[static_cast<size_t>(kind)];
}

Ledger::Ledger(LedgerOptions options, const Clock& clock, Counters& counters)
    : options_(std::move(options)), clock_(clock), counters_(counters), memory_(options_.memory, MemoryUse::kLedger) {
  owners_.push_back({.key = "unexplained", .classifier = "unexplained"});
  owner_rows_.emplace(owners_[0].key, kUnexplained);
  cells_.emplace_back();
  placements_.push_back(nullptr);
}

Result<std::unique_ptr<Ledger>> Ledger::open(LedgerOptions options, const Clock& clock, Counters& counters) {
  std::unique_ptr<Ledger> ledger(new Ledger(std::move(options), clock, counters));
  if (!ledger->options_.folder.empty()) LOCKSTEP_TRY(ledger->read_back());
  return ledger;
}

const Ledger::Job* Ledger::find(std::string_view job_id) const {
  const auto found = job_rows_.find(job_id);
  return found == job_rows_.end() ? nullptr : jobs_[found->second].get();
}

Ledger::Job* Ledger::job_of(const std::string& job_id) {
  const auto found = job_rows_.find(job_id);
  if (found != job_rows_.end()) return jobs_[found->second].get();
  if (jobs_.size() >= kJobsMax) return nullptr;
  const auto row = static_cast<uint32_t>(jobs_.size());
  jobs_.push_back(std::make_unique<Job>());
  jobs_.back()->job_id = job_id;
  jobs_.back()->row = row;
  job_rows_.emplace(job_id, row);
  table_bytes_ += sizeof(Job) + kRowBytes;
  log(records::job(row, job_id));
  return jobs_.back().get();
}

uint32_t Ledger::owner_row(const Owner& owner) {
  const auto found = owner_rows_.find(owner.key);
  if (found != owner_rows_.end()) {
    if (owners_[found->second] != owner && found->second != kUnexplained) {
      owners_[found->second] = owner;
      log(records::owner(found->second, owner));
    }
    return found->second;
  }
  if (owners_.size() >= kOwnersMax) {
    counters_.add("lockstep_sle_minutes_total", "result=\"owners_full\"");
    return kUnexplained;
  }
  const auto row = static_cast<uint32_t>(owners_.size());
  owners_.push_back(owner);
  owner_rows_.emplace(owner.key, row);
  table_bytes_ += bytes_of(owner);
  log(records::owner(row, owner));
  return row;
}

uint32_t Ledger::cells_row(const RankCells& cells) {
  if (cells.empty()) return 0;
  const uint64_t hash = hash_of(cells);
  const auto [first, last] = cells_rows_.equal_range(hash);
  for (auto at = first; at != last; ++at)
    if (cells_[at->second] == cells) return at->second;
  const auto row = static_cast<uint32_t>(cells_.size());
  cells_.push_back(cells);
  weight_ += cells.size();
  table_bytes_ += bytes_of(cells);
  cells_rows_.emplace(hash, row);
  log(records::cells(row, cells));
  return row;
}

// Few per job: its newest is looked at, and any other is a new row. One that no file could hold is not kept.
uint32_t Ledger::placement_row(const Job& job, const std::shared_ptr<const Placement>& placement) {
  if (!placement) return 0;
  const uint32_t newest = job.placements.empty() ? 0 : job.placements.runs().back().value;
  if (newest != 0 && (placements_[newest] == placement || *placements_[newest] == *placement)) return newest;
  const auto row = static_cast<uint32_t>(placements_.size());
  const std::string record = records::placement(row, *placement);
  if (record.size() > metrics::kWalRecordBytesMax) return 0;
  placements_.push_back(placement);
  weight_ += placement->gpus.size();
  table_bytes_ += bytes_of(*placement);
  log(record);
  return row;
}

void Ledger::set(MinuteRuns& runs, int32_t minute, uint32_t value) {
  const size_t before = runs.size();
  runs.set(minute, value);
  runs_ += runs.size() - before;
}

uint64_t Ledger::bytes_of_tables() const {
  uint64_t bytes = jobs_.size() * (sizeof(Job) + kRowBytes);
  for (size_t i = 1; i < owners_.size(); ++i) bytes += bytes_of(owners_[i]);
  for (size_t i = 1; i < cells_.size(); ++i) bytes += bytes_of(cells_[i]);
  for (size_t i = 1; i < placements_.size(); ++i) bytes += bytes_of(*placements_[i]);
  return bytes;
}

uint64_t Ledger::memory_bytes() const {
  MutexLock lock(mutex_);
  return bytes();
}

void Ledger::settle_memory() {
  const uint64_t now = bytes();
  if (now < charged_bytes_) memory_.release(charged_bytes_ - now);
  if (now <= charged_bytes_ || memory_.hold(now - charged_bytes_)) charged_bytes_ = now;
}

bool Ledger::has_memory_for(const Job& job, const JudgedMinute& judged) {
  uint64_t most = bytes() + (kSles + 1) * 2 * sizeof(MinuteRun);
  for (const Owner& owner : judged.owners) most += bytes_of(owner);
  for (const RankCells& cells : judged.cells)
    if (!cells.empty()) most += bytes_of(cells);
  const uint32_t placed = job.placements.empty() ? 0 : job.placements.runs().back().value;
  if (judged.placement && placements_[placed] != judged.placement) most += bytes_of(*judged.placement);
  if (most > charged_bytes_ && !memory_.hold(most - charged_bytes_)) return false;
  charged_bytes_ = std::max(most, charged_bytes_);
  return true;
}

Ledger::Recent* Ledger::recent_of(Job& job, int32_t minute) {
  for (Recent& recent : job.recent)
    if (recent.minute == minute) return &recent;
  return nullptr;
}

void Ledger::note_recent(Job& job, int32_t minute, uint64_t evidence) {
  if (Recent* known = recent_of(job, minute)) {
    known->evidence = evidence;
    return;
  }
  const auto place =
      std::find_if(job.recent.begin(), job.recent.end(), [&](const Recent& recent) { return recent.minute > minute; });
  job.recent.insert(place, {minute, evidence});
  while (job.recent.front().minute <= job.recent.back().minute - kOpenMinutes) job.recent.pop_front();
}

bool Ledger::is_closed(const Job& job, int32_t minute) const {
  return minute < dropped_before_ || (!job.recent.empty() && minute <= job.recent.back().minute - kOpenMinutes);
}

Ledger::Put Ledger::put(const std::string& job_id, JudgedMinute judged) {
  MutexLock lock(mutex_);
  if (weight_ > 2 * options_.runs_max) {  // no snapshot could be made for long
    counters_.add("lockstep_sle_minutes_total", "result=\"tables_full\"");
    return Put::kFull;
  }
  Job* job = job_of(job_id);
  if (job == nullptr) {
    counters_.add("lockstep_sle_minutes_total", "result=\"jobs_full\"");
    return Put::kFull;
  }
  if (is_closed(*job, judged.minute)) {
    counters_.add("lockstep_sle_minutes_total", "result=\"closed\"");
    return Put::kClosed;
  }
  const Recent* known = recent_of(*job, judged.minute);
  const bool is_less = known != nullptr && (known->evidence > judged.evidence ||
                                            (judged.only_if_more && known->evidence == judged.evidence));
  if (is_less) {
    counters_.add("lockstep_sle_minutes_total", "result=\"fewer_rows\"");
    return Put::kFewerRows;
  }
  if (!has_memory_for(*job, judged)) {
    counters_.add("lockstep_sle_minutes_total", "result=\"no_memory\"");
    said_.warn("no_memory", [&] {
      mutex_.assert_held();
      return format("the ledger holds %s and finds no more memory (--memory-max); minutes of job %s are left out",
                    human_bytes(static_cast<double>(bytes())).c_str(), as_one_line(job_id).c_str());
    });
    return Put::kFull;
  }
  const Put result = put_down(*job, std::move(judged));
  settle_memory();
  return result;
}

Ledger::Put Ledger::put_down(Job& job, JudgedMinute judged) {
  const Recent* known = recent_of(job, judged.minute);
  std::vector<uint32_t> owners = {kUnexplained};
  for (const Owner& owner : judged.owners) owners.push_back(owner_row(owner));
  std::vector<std::pair<uint8_t, uint32_t>> changed;
  for (size_t i = 0; i < kSles; ++i) {
    MinuteRuns& track = job.tracks[i];
    const uint32_t before = track.at(judged.minute);
    const uint32_t row = cells_row(keeping_charges(renumbered(judged.cells[i], owners), cells_[before]));
    if (row == before) continue;
    set(track, judged.minute, row);
    changed.emplace_back(static_cast<uint8_t>(i), row);
  }
  const uint32_t placement = placement_row(job, judged.placement);
  const bool moved = placement != job.placements.at(judged.minute);
  if (moved) set(job.placements, judged.minute, placement);
  const bool same = changed.empty() && !moved && known != nullptr && known->evidence == judged.evidence;
  if (same) {
    counters_.add("lockstep_sle_minutes_total", "result=\"same\"");
    return Put::kSame;
  }
  note_recent(job, judged.minute, judged.evidence);
  job.baselines = judged.baselines;
  log(records::minute({job.row, judged.minute, judged.evidence, placement, changed}, judged.baselines));
  counters_.add("lockstep_sle_minutes_total", known == nullptr ? "result=\"new\"" : "result=\"replaced\"");
  while (runs_ > options_.runs_max && drop_oldest_day()) continue;
  return Put::kStored;
}

int32_t Ledger::charge(const std::string& job_id, std::span<const int32_t> minutes, std::span<const Sle> sles,
                       const Owner& charged_owner) {
  MutexLock lock(mutex_);
  const auto found = job_rows_.find(job_id);
  if (found == job_rows_.end()) return 0;
  Job& job = *jobs_[found->second];
  const uint32_t owner = owner_row(charged_owner);
  int32_t changed_minutes = 0;
  for (const Recent& recent : job.recent) {
    if (std::find(minutes.begin(), minutes.end(), recent.minute) == minutes.end()) continue;
    std::vector<std::pair<uint8_t, uint32_t>> changed;
    for (const Sle sle : sles) {
      MinuteRuns& track = job.tracks[static_cast<size_t>(sle)];
      const uint32_t before = track.at(recent.minute);
      const auto lighter = [&](uint32_t now) {
        mutex_.assert_held();
        return now != owner && (now == kUnexplained || owners_[now].weight < owners_[owner].weight);
      };
      const uint32_t row = cells_row(charged(cells_[before], owner, lighter));
      if (row == before) continue;
      set(track, recent.minute, row);
      changed.emplace_back(static_cast<uint8_t>(sle), row);
    }
    if (changed.empty()) continue;
    ++changed_minutes;
    log(records::minute({job.row, recent.minute, recent.evidence, job.placements.at(recent.minute), changed},
                        job.baselines));
  }
  settle_memory();
  return changed_minutes;
}

Baselines Ledger::baselines(std::string_view job_id) const {
  MutexLock lock(mutex_);
  const Job* job = find(job_id);
  return job == nullptr ? Baselines{} : job->baselines;
}

int32_t Ledger::newest_minute(std::string_view job_id) const {
  MutexLock lock(mutex_);
  const Job* job = find(job_id);
  return job == nullptr || job->recent.empty() ? 0 : job->recent.back().minute;
}

RankCells Ledger::cells(std::string_view job_id, Sle sle, int32_t minute) const {
  MutexLock lock(mutex_);
  const Job* job = find(job_id);
  return job == nullptr ? RankCells() : cells_[job->tracks[static_cast<size_t>(sle)].at(minute)];
}

Owner Ledger::owner_at(uint32_t row) const {
  MutexLock lock(mutex_);
  return owners_[row < owners_.size() ? row : kUnexplained];
}

size_t Ledger::run_count() const {
  MutexLock lock(mutex_);
  return runs_;
}

void Ledger::drop_before(int32_t minute) {
  dropped_before_ = std::max(dropped_before_, minute);
  runs_ = 0;
  for (const std::unique_ptr<Job>& job : jobs_) {
    for (MinuteRuns& track : job->tracks) {
      track.drop_before(minute);
      runs_ += track.size();
    }
    job->placements.drop_before(minute);
    runs_ += job->placements.size();
    while (!job->recent.empty() && job->recent.front().minute < minute) job->recent.pop_front();
  }
}

int32_t Ledger::oldest_minute() const {
  int32_t oldest = INT32_MAX;
  for (const std::unique_ptr<Job>& job : jobs_) {
    if (!job->placements.empty()) oldest = std::min(oldest, job->placements.runs().front().first);
    for (const MinuteRuns& track : job->tracks)
      if (!track.empty()) oldest = std::min(oldest, track.runs().front().first);
  }
  return oldest;
}

// The newest minute stays: what is dropped is closed, and what comes next must not be.
bool Ledger::drop_oldest_day() {
  int32_t newest = 0;
  for (const std::unique_ptr<Job>& job : jobs_)
    if (!job->recent.empty()) newest = std::max(newest, job->recent.back().minute);
  const int32_t oldest = oldest_minute();
  if (oldest >= newest) return false;
  counters_.add("lockstep_sle_days_dropped_total");
  drop_before(std::min(oldest + 1440, newest));
  return true;
}

// Nothing is closed by a clock that is ahead where there is nothing to drop.
void Ledger::expire(int32_t now_minute) {
  MutexLock lock(mutex_);
  const int32_t oldest = oldest_minute();
  const int64_t cutoff = pace_.cutoff(now_minute, options_.keep_minutes, oldest == INT32_MAX ? INT64_MAX : oldest,
                                      clock_.monotonic_ns() / kMinuteNs);
  if (cutoff > oldest) drop_before(static_cast<int32_t>(cutoff));
  settle_memory();
}

bool Ledger::is_full() const {
  return weight_ > options_.runs_max || jobs_.size() >= kJobsMax || owners_.size() >= kOwnersMax;
}

// A log of twice its length waits for a snapshot that fails: nothing more is kept for it in memory.
void Ledger::log(const std::string& record) {
  if (!wal_) return;
  logged_ += record.size();
  if (is_log_cut()) return;
  wal_->begin_record();
  wal_->append(record);
}

Result<void> Ledger::flush() {
  {
    MutexLock lock(mutex_);
    const bool is_due =
        is_full() || is_ahead_of_log_ || logged_ > options_.log_bytes_max || (wal_ && wal_->is_corrupt());
    const int64_t now_ns = clock_.monotonic_ns();
    if (is_due && now_ns >= retry_ns_) {
      const Result<void> begun = begin_snapshot();
      retry_ns_ = !begun.ok() || is_full() ? now_ns + kRetryNs : 0;
      if (begun.ok()) return {};
    }
    if (is_ahead_of_log_)
      return Error{options_.folder + ": a snapshot that failed can neither be finished nor removed"};
    if (is_log_cut())
      return Error{options_.folder + ": the log has grown too long, and no new snapshot can be written"};
  }
  return wal_ ? wal_->flush(true) : Result<void>();
}

}  // namespace lockstep::sle
