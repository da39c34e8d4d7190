#include "store/memory_step_store.h"

#include <algorithm>

#include "base/median.h"
#include "base/text.h"
#include "base/wrapping.h"
#include "store/memory_bytes.h"

namespace lockstep {
namespace {

size_t bytes_of(const StepSummary& summary) {
  constexpr size_t kTreeNode = 48;
  return kTreeNode + sizeof(StepSummary) + summary.comms.size() * sizeof(CommStep) +
         summary.flows.size() * sizeof(FlowStep) + summary.scalars.size() * sizeof(StepScalar);
}

size_t bytes_of(const StepReport& report) {
  const Identity& identity = report.identity;
  return sizeof(StepReport) - sizeof(StepSummary) + bytes_of(report.summary) + identity.job_id.size() +
         identity.host.size() + identity.gpu_uuid.size();
}

std::string_view service_of(const std::shared_ptr<const Attributes>& resource) {
  return resource ? find_string(*resource, "service.name") : std::string_view();
}

// Of a job as a file has it: where most ranks are, and not where one says it is.
StepNumber last_step_of(const JobInfo& known) {
  std::vector<StepNumber> steps;
  for (const RankInfo& rank : known.ranks) {
    if (rank.last_step >= 0_step) steps.push_back(rank.last_step);
  }
  if (steps.empty()) return known.last_step;
  StepFollower near;
  near.restore(lower_median_in_place(steps));
  for (StepNumber step : steps) near.restore(step);
  return near.newest();
}

std::string table_label(const char* table) {
  return format("table=\"%s\"", table);
}

}  // namespace

template <typename T>
void MemoryStepStore::Ring<T>::push(uint64_t number, size_t item_bytes, T item) {
  received.fetch_add(1, std::memory_order_relaxed);
  entries.push_back({number, item_bytes, std::move(item)});
  bytes += item_bytes;
  while (entries.size() > rows_max || (bytes > bytes_max && !entries.empty())) {
    bytes -= entries.front().bytes;
    entries.pop_front();
    dropped.fetch_add(1, std::memory_order_relaxed);
  }
  held.store(static_cast<int64_t>(entries.size()), std::memory_order_relaxed);
  held_bytes.store(static_cast<int64_t>(bytes), std::memory_order_relaxed);
}

template <typename T>
MemoryStepStore::Ring<T> MemoryStepStore::make_ring(const char* table, size_t rows_max, size_t bytes_max) {
  std::string label = table_label(table);
  return Ring<T>{.table = table,
                 .rows_max = rows_max,
                 .bytes_max = bytes_max,
                 .received = counters_.at("lockstep_store_rows_received_total", label),
                 .held = counters_.at("lockstep_store_rows", label),
                 .held_bytes = counters_.at("lockstep_store_bytes", label),
                 .dropped = counters_.at("lockstep_store_rows_dropped_total", label + ",reason=\"limit\"")};
}

MemoryStepStore::MemoryStepStore(MemoryStepStoreOptions options, Counters& counters)
    : options_(options),
      counters_(counters),
      steps_received_(counters.at("lockstep_store_rows_received_total", table_label(options.steps_table))),
      steps_replaced_(counters.at("lockstep_store_rows_replaced_total", table_label(options.steps_table))),
      steps_dropped_(
          counters.at("lockstep_store_rows_dropped_total", table_label(options.steps_table) + ",reason=\"limit\"")),
      steps_held_(counters.at("lockstep_store_rows", table_label(options.steps_table))),
      steps_bytes_(counters.at("lockstep_store_bytes", table_label(options.steps_table))),
      logs_(make_ring<StoredLog>("logs", options.logs_max, options.log_bytes_max)),
      events_(make_ring<StoredEvent>("events", options.events_max, options.log_bytes_max)) {}

void MemoryStepStore::drop_step(Job& job, StepNumber step, std::atomic<int64_t>& dropped) {
  auto found = job.steps.find(step);
  if (found == job.steps.end()) return;
  for (const auto& [rank, summary] : found->second.rows) step_bytes_total_ -= bytes_of(summary);
  step_rows_ -= found->second.rows.size();
  dropped.fetch_add(static_cast<int64_t>(found->second.rows.size()), std::memory_order_relaxed);
  job.steps.erase(found);
}

void MemoryStepStore::drop_job_rows(Job& job, const char* reason) {
  std::atomic<int64_t>& dropped =
      counters_.at("lockstep_store_rows_dropped_total",
                   format("%s,reason=\"%s\"", table_label(options_.steps_table).c_str(), reason));
  while (!job.steps.empty()) drop_step(job, job.steps.begin()->first, dropped);
  ranks_ -= job.ranks.size();
  job.ranks.clear();
}

void MemoryStepStore::drop_longest_silent_job(const std::string& except) {
  auto oldest = jobs_.end();
  for (auto at = jobs_.begin(); at != jobs_.end(); ++at) {
    if (at->first != except &&
        (oldest == jobs_.end() || at->second.info.last_seen_unix_ns < oldest->second.info.last_seen_unix_ns))
      oldest = at;
  }
  if (oldest == jobs_.end()) return;
  drop_job_rows(oldest->second, "job_dropped");
  jobs_.erase(oldest);
  counters_.add("lockstep_store_jobs_dropped_total");
}

void MemoryStepStore::drop_steps_over_limit() {
  while (!arrivals_.empty()) {
    const Arrival& oldest = arrivals_.front();
    auto job = jobs_.find(oldest.job_id);
    bool is_void = job == jobs_.end() || job->second.generation != oldest.generation;
    if (!is_void && step_rows_ <= options_.step_rows_max && step_bytes_total_ <= options_.step_bytes_max) return;
    if (!is_void) drop_step(job->second, oldest.step, steps_dropped_);
    arrivals_.pop_front();
  }
}

void MemoryStepStore::begin_attempt(Job& job, int64_t attempt) {
  drop_job_rows(job, "new_attempt");
  std::string job_id = std::move(job.info.job_id);
  job = Job{};
  job.generation = ++generations_;
  job.info.job_id = std::move(job_id);
  job.info.attempt = attempt;
}

void MemoryStepStore::attempt_back(const std::string& job_id, int64_t attempt) {
  MutexLock lock(steps_mutex_);
  auto found = jobs_.find(job_id);
  if (found == jobs_.end() || found->second.info.attempt <= attempt) return;
  begin_attempt(found->second, attempt);
  report_sizes();
}

void MemoryStepStore::count_world_size(Job& job, const Identity& before, const Identity& now) {
  if (before.world_size == now.world_size) return;
  if (before.world_size != 0) job.world_size.remove(before.world_size);
  if (now.world_size != 0) job.world_size.add(now.world_size);
}

MemoryStepStore::Job* MemoryStepStore::job_of(const Identity& identity, int64_t received_unix_ns) {
  auto found = jobs_.find(identity.job_id);
  if (found == jobs_.end()) {
    if (jobs_.size() >= options_.jobs_max) drop_longest_silent_job(identity.job_id);
    found = jobs_.emplace(identity.job_id, Job{}).first;
    found->second.generation = ++generations_;
    found->second.info.job_id = identity.job_id;
    found->second.info.attempt = identity.attempt;
  }
  Job& job = found->second;
  if (identity.attempt < job.info.attempt) return nullptr;
  if (identity.attempt > job.info.attempt) begin_attempt(job, identity.attempt);
  if (job.info.first_seen_unix_ns == 0) job.info.first_seen_unix_ns = received_unix_ns;
  job.info.last_seen_unix_ns = std::max(job.info.last_seen_unix_ns, received_unix_ns);
  return &job;
}

RankInfo* MemoryStepStore::rank_of(const Identity& identity, int64_t received_unix_ns, const char** refused_because) {
  const char* ignored = nullptr;
  const char*& reason = refused_because != nullptr ? *refused_because : ignored;
  Job* job = job_of(identity, received_unix_ns);
  reason = "old_attempt";
  if (job == nullptr) return nullptr;
  auto found = job->ranks.find(identity.rank);
  if (found == job->ranks.end()) {
    if (ranks_ >= options_.ranks_max) drop_longest_silent_job(identity.job_id);
    reason = "rank_limit";
    if (ranks_ >= options_.ranks_max) return nullptr;
    found = job->ranks.try_emplace(identity.rank).first;
    ++ranks_;
  }
  RankInfo& rank = found->second;
  count_world_size(*job, rank.identity, identity);
  rank.identity = identity;
  rank.last_seen_unix_ns = std::max(rank.last_seen_unix_ns, received_unix_ns);
  return &rank;
}

void MemoryStepStore::append_step(const Identity& identity, const StepSummary& summary, int64_t received_unix_ns) {
  append(identity, summary, received_unix_ns, false);
}

MemoryStepStore::Appended MemoryStepStore::append(const Identity& identity, const StepSummary& summary,
                                                  int64_t received_unix_ns, bool is_sealed) {
  MutexLock lock(steps_mutex_);
  steps_received_.fetch_add(1, std::memory_order_relaxed);
  const char* reason = nullptr;
  RankInfo* rank = rank_of(identity, received_unix_ns, &reason);
  if (rank == nullptr) {
    counters_.add("lockstep_store_rows_refused_total",
                  format("%s,reason=\"%s\"", table_label(options_.steps_table).c_str(), reason));
    return {std::string_view(reason) == "old_attempt" ? Outcome::kOldAttempt : Outcome::kRankLimit, false};
  }
  Job& job = jobs_.find(identity.job_id)->second;
  switch (job.last_step.take(summary.step)) {
    case StepFollower::Taken::kNear:
      rank->last_step = std::max(rank->last_step, summary.step);
      break;
    case StepFollower::Taken::kFar:
      break;
    case StepFollower::Taken::kJumped:  // where the ranks stood before says nothing any more
      for (auto& [number, other] : job.ranks) other.last_step = kNoStep;
      rank->last_step = summary.step;
      break;
  }
  auto [step, is_new_step] = job.steps.try_emplace(summary.step);
  if (is_new_step) arrivals_.push_back({identity.job_id, job.generation, summary.step});
  auto [row, is_new_row] = step->second.rows.try_emplace(identity.rank);
  if (is_new_row) {
    ++step_rows_;
  } else {
    steps_replaced_.fetch_add(1, std::memory_order_relaxed);
    step_bytes_total_ -= bytes_of(row->second);
    rank->records_lost = minus(rank->records_lost, row->second.records_lost);
  }
  row->second = summary;
  if (!is_sealed || !is_new_row) rank->records_lost = plus(rank->records_lost, summary.records_lost);
  if (!is_sealed) ++step->second.unsealed;
  step_bytes_total_ += bytes_of(row->second);
  drop_steps_over_limit();
  report_sizes();
  return {is_new_row ? Outcome::kNew : Outcome::kReplaced, is_new_step};
}

void MemoryStepStore::report_sizes() {
  steps_held_.store(static_cast<int64_t>(step_rows_), std::memory_order_relaxed);
  steps_bytes_.store(static_cast<int64_t>(step_bytes_total_), std::memory_order_relaxed);
}

void MemoryStepStore::append_status(const Identity& identity, const RankStatus& status, int64_t received_unix_ns) {
  MutexLock lock(steps_mutex_);
  RankInfo* rank = rank_of(identity, received_unix_ns);
  if (rank != nullptr && (!rank->status || rank->status->time_unix_ns <= status.time_unix_ns)) rank->status = status;
}

void MemoryStepStore::append_comm(const Identity& identity, const CommInit& comm, int64_t received_unix_ns) {
  MutexLock lock(steps_mutex_);
  RankInfo* rank = rank_of(identity, received_unix_ns);
  if (rank == nullptr) return;
  auto same = std::find_if(rank->comms.begin(), rank->comms.end(),
                           [&](const CommInit& known) { return known.comm_id == comm.comm_id; });
  if (same != rank->comms.end()) {
    *same = comm;
    return;
  }
  if (rank->comms.size() >= options_.comms_per_rank_max) rank->comms.erase(rank->comms.begin());
  rank->comms.push_back(comm);
}

void MemoryStepStore::append_group(const Identity& identity, const CommGroup& group, int64_t received_unix_ns) {
  MutexLock lock(steps_mutex_);
  RankInfo* rank = rank_of(identity, received_unix_ns);
  if (rank == nullptr) return;
  auto at = std::lower_bound(rank->groups.begin(), rank->groups.end(), group.name,
                             [](const CommGroup& known, const std::string& name) { return known.name < name; });
  if (at != rank->groups.end() && at->name == group.name) {
    *at = group;
  } else if (rank->groups.size() < options_.groups_per_rank_max) {
    rank->groups.insert(at, group);
  }
}

void MemoryStepStore::rank_started(const Identity& identity, int64_t received_unix_ns) {
  MutexLock lock(steps_mutex_);
  if (RankInfo* rank = rank_of(identity, received_unix_ns)) rank->ended = rank->ended_cleanly = false;
}

void MemoryStepStore::rank_ended(const Identity& identity, bool clean, int64_t received_unix_ns) {
  MutexLock lock(steps_mutex_);
  if (RankInfo* rank = rank_of(identity, received_unix_ns)) {
    rank->ended = true;
    rank->ended_cleanly = clean;
  }
}

void MemoryStepStore::rank_lost_records(const Identity& identity, int64_t records) {
  MutexLock lock(steps_mutex_);
  if (RankInfo* rank = rank_of(identity, 0)) rank->records_lost = plus(rank->records_lost, records);
}

void MemoryStepStore::append_log(std::shared_ptr<const Attributes> resource, LogRecord record) {
  size_t bytes = bytes_of(record);
  bool is_frequent = record.event_name == kEventTrainStep || record.event_name == kEventRankStatus;
  StoredLog stored{std::move(resource), std::move(record)};
  MutexLock lock(records_mutex_);
  if (is_frequent) {
    events_.push(next_number_++, bytes, std::move(stored));
  } else {
    logs_.push(next_number_++, bytes, std::move(stored));
  }
}

void MemoryStepStore::append_step_log(StepReport report) {
  const size_t bytes = bytes_of(report);
  MutexLock lock(records_mutex_);
  events_.push(next_number_++, bytes, std::move(report));
}

JobInfo MemoryStepStore::info_without_ranks(const Job& job) {
  JobInfo info = job.info;
  info.last_step = job.last_step.newest();
  if (job.world_size.value() != 0) info.world_size = job.world_size.value();
  return info;
}

JobInfo MemoryStepStore::info_of(const Job& job) {
  JobInfo info = info_without_ranks(job);
  info.ranks.reserve(job.ranks.size());
  for (const auto& [number, rank] : job.ranks) info.ranks.push_back(rank);
  return info;
}

std::vector<JobInfo> MemoryStepStore::jobs() const {
  SharedLock lock(steps_mutex_);
  std::vector<JobInfo> infos;
  infos.reserve(jobs_.size());
  for (const auto& [id, job] : jobs_) infos.push_back(info_of(job));
  return infos;
}

std::optional<JobInfo> MemoryStepStore::job(std::string_view job_id) const {
  SharedLock lock(steps_mutex_);
  auto found = jobs_.find(job_id);
  if (found == jobs_.end()) return std::nullopt;
  return info_of(found->second);
}

void MemoryStepStore::visit_steps(std::string_view job_id, StepNumber from_step, StepNumber to_step,
                                  const std::function<void(const Identity&, const StepSummary&)>& visit) const {
  SharedLock lock(steps_mutex_);
  auto found = jobs_.find(job_id);
  if (found == jobs_.end()) return;
  const Job& job = found->second;
  for (auto step = job.steps.lower_bound(from_step); step != job.steps.end() && step->first <= to_step; ++step) {
    auto info = job.ranks.begin();
    for (const auto& [rank, summary] : step->second.rows) {
      while (info->first != rank) ++info;  // both are sorted, and every row's rank is known
      visit(info->second.identity, summary);
    }
  }
}

std::vector<StepRow> MemoryStepStore::steps(std::string_view job_id, StepNumber from_step, StepNumber to_step) const {
  std::vector<StepRow> rows;
  visit_steps(job_id, from_step, to_step, [&](const Identity& identity, const StepSummary& summary) {
    rows.push_back({identity, summary});
  });
  return rows;
}

void MemoryStepStore::restore(const JobInfo& known) {
  MutexLock lock(steps_mutex_);
  auto found = jobs_.find(known.job_id);
  if (found == jobs_.end()) {
    if (jobs_.size() >= options_.jobs_max) return;
    found = jobs_.emplace(known.job_id, Job{}).first;
    found->second.generation = ++generations_;
    found->second.info.job_id = known.job_id;
    found->second.info.attempt = known.attempt;
  }
  Job& job = found->second;
  if (known.attempt < job.info.attempt) return;
  if (known.attempt > job.info.attempt) begin_attempt(job, known.attempt);
  JobInfo& info = job.info;
  if (info.world_size == 0) info.world_size = known.world_size;
  if (known.first_seen_unix_ns != 0 &&
      (info.first_seen_unix_ns == 0 || known.first_seen_unix_ns < info.first_seen_unix_ns))
    info.first_seen_unix_ns = known.first_seen_unix_ns;
  info.last_seen_unix_ns = std::max(info.last_seen_unix_ns, known.last_seen_unix_ns);
  job.last_step.restore(last_step_of(known));
  for (const RankInfo& other : known.ranks) {
    auto at = job.ranks.find(other.identity.rank);
    if (at == job.ranks.end()) {
      if (ranks_ >= options_.ranks_max) continue;
      at = job.ranks.emplace(other.identity.rank, other).first;
      at->second.last_step = kNoStep;
      if (other.identity.world_size != 0) job.world_size.add(other.identity.world_size);
      ++ranks_;
    } else {
      RankInfo& rank = at->second;
      if (other.last_seen_unix_ns >= rank.last_seen_unix_ns) {
        count_world_size(job, rank.identity, other.identity);
        rank.identity = other.identity;
        rank.last_seen_unix_ns = other.last_seen_unix_ns;
        rank.ended = other.ended;
        rank.ended_cleanly = other.ended_cleanly;
      }
      rank.records_lost = plus(rank.records_lost, other.records_lost);
    }
    if (job.last_step.is_near(other.last_step)) at->second.last_step = std::max(at->second.last_step, other.last_step);
  }
}

std::optional<JobInfo> MemoryStepStore::job_without_ranks(std::string_view job_id) const {
  SharedLock lock(steps_mutex_);
  auto found = jobs_.find(job_id);
  if (found == jobs_.end()) return std::nullopt;
  return info_without_ranks(found->second);
}

const MemoryStepStore::Job* MemoryStepStore::find_job(std::string_view job_id, int64_t attempt) const {
  auto found = jobs_.find(job_id);
  return found == jobs_.end() || found->second.info.attempt != attempt ? nullptr : &found->second;
}

const MemoryStepStore::Step* MemoryStepStore::find_step(std::string_view job_id, int64_t attempt,
                                                        StepNumber step) const {
  const Job* job = find_job(job_id, attempt);
  if (job == nullptr) return nullptr;
  auto found = job->steps.find(step);
  return found == job->steps.end() ? nullptr : &found->second;
}

MemoryStepStore::Step* MemoryStepStore::find_step(std::string_view job_id, int64_t attempt, StepNumber step) {
  const MemoryStepStore* self = this;
  self->steps_mutex_.assert_held_shared();  // as ours, which it is
  return const_cast<Step*>(self->find_step(job_id, attempt, step));
}

std::optional<MemoryStepStore::HeldSteps> MemoryStepStore::held_steps(std::string_view job_id, StepNumber from_step,
                                                                      StepNumber to_step) const {
  SharedLock lock(steps_mutex_);
  auto found = jobs_.find(job_id);
  if (found == jobs_.end()) return std::nullopt;
  const Job& job = found->second;
  HeldSteps held{job.info.attempt, {}};
  for (auto at = job.steps.lower_bound(from_step); at != job.steps.end() && at->first <= to_step; ++at)
    held.steps.push_back({at->first, at->second.is_whole});
  return held;
}

size_t MemoryStepStore::visit_step(std::string_view job_id, int64_t attempt, StepNumber step, bool whole_only,
                                   const std::function<void(const Identity&, const StepSummary&)>& visit) const {
  SharedLock lock(steps_mutex_);
  const Step* held = find_step(job_id, attempt, step);
  if (held == nullptr || (whole_only && !held->is_whole)) return 0;
  auto info = find_job(job_id, attempt)->ranks.begin();
  for (const auto& [rank, summary] : held->rows) {
    while (info->first != rank) ++info;  // both are sorted, and every row's rank is known
    visit(info->second.identity, summary);
  }
  return held->rows.size();
}

MemoryStepStore::Visited MemoryStepStore::visit_rows(
    std::string_view job_id, int64_t attempt, StepNumber step, std::span<const Rank> ranks,
    const std::function<bool(const RankInfo&, const StepSummary&)>& visit) const {
  SharedLock lock(steps_mutex_);
  const Step* held = find_step(job_id, attempt, step);
  if (held == nullptr) return {ranks.size(), ranks.size()};
  const Job& job = *find_job(job_id, attempt);
  Visited visited;
  auto row = held->rows.lower_bound(ranks.empty() ? 0_rank : ranks.front());
  auto info = job.ranks.lower_bound(ranks.empty() ? 0_rank : ranks.front());
  for (Rank rank : ranks) {
    while (row != held->rows.end() && row->first < rank) ++row;
    if (row == held->rows.end() || row->first != rank) {
      ++visited.missing;
    } else {
      while (info->first != rank) ++info;
      if (!visit(info->second, row->second)) return visited;
    }
    ++visited.done;
  }
  return visited;
}

void MemoryStepStore::mark_whole(std::string_view job_id, int64_t attempt, StepNumber step) {
  MutexLock lock(steps_mutex_);
  if (Step* held = find_step(job_id, attempt, step)) held->is_whole = true;
}

void MemoryStepStore::mark_sealed(std::string_view job_id, int64_t attempt, StepNumber step, uint64_t appends) {
  MutexLock lock(steps_mutex_);
  // Fewer than told: the step was dropped meanwhile and came again.
  if (Step* held = find_step(job_id, attempt, step)) held->unsealed -= std::min(held->unsealed, appends);
}

void MemoryStepStore::trim(size_t rows_max, size_t bytes_max) {
  MutexLock lock(steps_mutex_);
  while (!arrivals_.empty() && (step_rows_ > rows_max || step_bytes_total_ > bytes_max)) {
    const Arrival& oldest = arrivals_.front();
    auto job = jobs_.find(oldest.job_id);
    if (job != jobs_.end() && job->second.generation == oldest.generation) {
      auto step = job->second.steps.find(oldest.step);
      if (step != job->second.steps.end() && step->second.unsealed > 0) break;
      drop_step(job->second, oldest.step, steps_dropped_);
    }
    arrivals_.pop_front();
  }
  report_sizes();
}

Page<StoredLog> MemoryStepStore::logs(std::string_view service, std::string_view event, size_t limit) const {
  SharedLock lock(records_mutex_);
  Page<StoredLog> page;
  auto add_log = [&](const StoredLog& item) {
    if (!event.empty() && item.record.event_name != event) return;
    if (!service.empty() && service_of(item.resource) != service) return;
    if (page.total++ < limit) page.items.push_back(item);
  };
  auto add_step = [&](const StepReport& report) {
    if (!event.empty() && event != kEventTrainStep) return;
    if (!service.empty() && (report.resource ? service_of(report.resource) : kAgentService) != service) return;
    if (page.total++ < limit) page.items.push_back({resource_of(report), to_record(report)});
  };
  auto log = logs_.entries.rbegin();
  auto frequent = events_.entries.rbegin();
  while (log != logs_.entries.rend() || frequent != events_.entries.rend()) {
    bool take_log =
        frequent == events_.entries.rend() || (log != logs_.entries.rend() && log->number > frequent->number);
    if (take_log) {
      add_log((log++)->item);
      continue;
    }
    const StoredEvent& item = (frequent++)->item;
    if (const StepReport* report = std::get_if<StepReport>(&item)) {
      add_step(*report);
    } else {
      add_log(std::get<StoredLog>(item));
    }
  }
  return page;
}

void MemoryStepStore::visit_rare_logs(const std::function<bool(const StoredLog&)>& visit) const {
  SharedLock lock(records_mutex_);
  for (auto log = logs_.entries.rbegin(); log != logs_.entries.rend(); ++log) {
    if (!visit(log->item)) return;
  }
}

}  // namespace lockstep
