#include "sle/sle_watch.h"

#include <algorithm>
#include <utility>

#include "base/clock_witness.h"
#include "base/log.h"
#include "model/telemetry.h"

namespace lockstep::sle {
namespace {

constexpr int64_t kStepNsMax = 86'400'000'000'000;
constexpr int64_t kTimeNsMax = 4'000'000'000'000'000'000;  // the year 2096
constexpr int64_t kStandingNs = 20'000'000'000;            // without a callback: it does not move
constexpr int64_t kLookEveryNs = 5'000'000'000;
constexpr int64_t kEventLastsNs = 5 * kMinuteNs;

}  // namespace

SleWatch::SleWatch(Ledger& ledger, Reads reads, Thresholds thresholds, Counters& counters)
    : ledger_(ledger),
      reads_(std::move(reads)),
      thresholds_(thresholds),
      received_(counters.at("lockstep_sle_rows_total", "result=\"received\"")),
      taken_(counters.at("lockstep_sle_rows_total", "result=\"taken\"")),
      repeated_(counters.at("lockstep_sle_rows_total", "result=\"repeated\"")),
      late_(counters.at("lockstep_sle_rows_total", "result=\"late\"")),
      future_(counters.at("lockstep_sle_rows_total", "result=\"future\"")),
      left_out_(counters.at("lockstep_sle_rows_total", "result=\"left_out\"")),
      counters_(counters) {}

SleWatch::Job& SleWatch::job_of(const std::string& job_id) {
  if (newest_ == nullptr || newest_->first != job_id) {
    auto found = jobs_.find(job_id);
    if (found == jobs_.end()) {
      if (jobs_.size() >= kJobsMax) {
        forget(std::min_element(jobs_.begin(), jobs_.end(),
                                [](const auto& a, const auto& b) { return a.second.heard < b.second.heard; }));
      }
      found = jobs_.try_emplace(job_id).first;
    }
    newest_ = &*found;
  }
  newest_->second.heard = ++records_;
  return newest_->second;
}

void SleWatch::forget(std::map<std::string, Job, std::less<>>::iterator job) {
  for (const MeasuredMinute& minute : job->second.minutes) rows_ -= minute.ranks.room();
  rows_ -= job->second.seats.room() + job->second.seen.room();
  ranks_ -= job->second.world_size;
  newest_ = nullptr;
  jobs_.erase(job);
}

void SleWatch::on_attempt_back(const std::string& job_id, int64_t attempt) {
  MutexLock lock(mutex_);
  const auto found = jobs_.find(job_id);
  if (found != jobs_.end()) found->second.attempt = std::min(found->second.attempt, attempt);
}

SleWatch::Job* SleWatch::job_for(const Identity& identity, int64_t received_unix_ns) {
  if (identity.rank < 0_rank || identity.rank.value() >= kRanksMax) return nullptr;
  Job& job = job_of(identity.job_id);
  if (identity.attempt < job.attempt) return nullptr;
  const bool begins = identity.attempt > job.attempt || job.first_unix_ns == 0;
  int32_t world_size = std::max(identity.world_size, identity.rank.value() + 1);
  if (!begins) world_size = std::max(world_size, job.world_size);
  if (!make_room(job, world_size, begins ? 0 : job.seated, minute_of(received_unix_ns))) return nullptr;
  if (begins) {
    // Other ranks on other hosts; fewer or more of them take another time for a step.
    if (job.world_size != 0 && job.world_size != world_size) job.baselines = Baselines{};
    job.attempt = identity.attempt;
    job.first_unix_ns = received_unix_ns;
    rows_ -= job.seats.room();
    job.seats = {};
    job.ended = job.seated = 0;
    job.placement.reset();
    job.gpu_model.clear();
    job.model_asked_minute = 0;
  }
  ranks_ += world_size - job.world_size;
  job.world_size = world_size;
  job.heard_minute = std::max(job.heard_minute, minute_of(received_unix_ns));
  return take_seat(job, identity) ? &job : nullptr;
}

bool SleWatch::make_room(Job& job, int32_t world_size, int32_t seated, int32_t minute) {
  const auto fits = [&] {
    mutex_.assert_held();
    return ranks_ - job.world_size + world_size <= kRanksMax;
  };
  if (fits()) return true;
  if (std::exchange(job.no_room_minute, minute) == minute) return false;  // one look at all jobs in a minute
  const auto claimed = [](const auto& one) { return one.second.world_size - one.second.seated; };
  while (!fits()) {
    auto most = jobs_.end();
    for (auto one = jobs_.begin(); one != jobs_.end(); ++one)
      if (&one->second != &job && (most == jobs_.end() || claimed(*one) > claimed(*most))) most = one;
    if (most == jobs_.end() || claimed(*most) <= world_size - seated) return false;
    forget(most);
  }
  return true;
}

int64_t SleWatch::believed(int64_t received_unix_ns) const {
  const bool is_ahead = credible_unix_ns_ != 0 && received_unix_ns > credible_unix_ns_ + ClockWitness::kToleranceNs;
  return is_ahead ? credible_unix_ns_ : received_unix_ns;
}

template <typename Row>
Row* SleWatch::row_at(SparseRows<Row, 64>& rows, Rank rank) {
  const size_t needed = rows.room_needed(index_of(rank));
  if (rows_ + needed > kRowsMax) return nullptr;
  rows_ += needed;
  return &rows.at(index_of(rank));
}

bool SleWatch::take_seat(Job& job, const Identity& identity) {
  Seat* seat = row_at(job.seats, identity.rank);
  if (seat == nullptr) return false;
  if (seat->known && seat->host == identity.host && seat->gpu_uuid == identity.gpu_uuid) return true;
  seat->host = identity.host;
  seat->gpu_uuid = identity.gpu_uuid;
  if (!std::exchange(seat->known, true)) ++job.seated;
  job.placement.reset();
  return true;
}

MeasuredMinute* SleWatch::measured_minute(Job& job, int32_t minute) {
  // Not by the newest it has: that may be of a clock that was ahead.
  const bool looked = looked_minute_ != 0 || job.minutes.empty();
  if (minute <= (looked ? looked_minute_ : job.minutes.back().minute) - Ledger::kOpenMinutes) return nullptr;
  auto place = job.minutes.end();
  while (place != job.minutes.begin() && std::prev(place)->minute >= minute) --place;
  if (place == job.minutes.end() || place->minute != minute) {
    MeasuredMinute fresh;
    fresh.minute = minute;
    place = job.minutes.insert(place, std::move(fresh));
  }
  return &*place;
}

RankMinute* SleWatch::row_of(MeasuredMinute* measured, Rank rank) {
  RankMinute* row = measured == nullptr ? nullptr : row_at(measured->ranks, rank);
  if (row != nullptr) measured->dirty = true;
  return row;
}

// A rank's steps do not overlap. One that is known and begins before the newest ended was delivered again; one that is
// known and begins after it is work that is done again, from a checkpoint.
SleWatch::Seen SleWatch::see(RankSeen& seen, const StepSummary& summary) {
  const int64_t back = seen.newest == kNoStep ? -1 : seen.newest - summary.step;
  const bool is_after = summary.start_unix_ns >= seen.newest_end_unix_ns;
  const bool is_known = back >= 64 || (back >= 0 && (seen.mask >> back & 1u) != 0);
  if (is_known && !is_after) return Seen::kAgain;
  if (back < 0) {
    const int64_t ahead = seen.newest == kNoStep ? 64 : -back;
    seen.mask = ahead >= 64 ? 1 : seen.mask << ahead | 1;
    seen.newest = summary.step;
  } else if (is_after) {
    seen.mask = 1;
    seen.newest = summary.step;
  } else {
    seen.mask |= uint64_t{1} << back;
  }
  seen.newest_end_unix_ns = std::max(seen.newest_end_unix_ns, summary.start_unix_ns + summary.duration_ns);
  const bool is_repeated = is_after && seen.highest != kNoStep && summary.step <= seen.highest;
  seen.highest = std::max(seen.highest, summary.step);
  return is_repeated ? Seen::kRepeatedWork : Seen::kNew;
}

void SleWatch::note_steps(Job& job, int32_t minute, StepNumber step) {
  auto place = job.steps.end();
  while (place != job.steps.begin() && std::prev(place)->minute >= minute) --place;
  if (place == job.steps.end() || place->minute != minute) {
    job.steps.insert(place, {minute, job.attempt, step, step});
    while (job.steps.front().minute <= looked_minute_ - Ledger::kOpenMinutes) job.steps.pop_front();
    return;
  }
  if (place->attempt != job.attempt) *place = {minute, job.attempt, step, step};
  place->first = std::min(place->first, step);
  place->last = std::max(place->last, step);
}

void SleWatch::on_step(const Identity& identity, const StepSummary& summary, int64_t received_unix_ns) {
  ++received_;
  const bool is_absurd = summary.duration_ns <= 0 || summary.duration_ns > kStepNsMax || summary.start_unix_ns <= 0 ||
                         summary.start_unix_ns > kTimeNsMax;
  MutexLock lock(mutex_);
  Job* job = is_absurd ? nullptr : job_for(identity, believed(received_unix_ns));
  RankSeen* of_rank = job == nullptr ? nullptr : row_at(job->seen, identity.rank);
  if (of_rank == nullptr) {
    ++left_out_;
    return;
  }
  const int64_t end_unix_ns = summary.start_unix_ns + summary.duration_ns;
  if (end_unix_ns > received_unix_ns + kAheadNs) {
    ++future_;
    return;
  }
  job->first_unix_ns = std::min(job->first_unix_ns, summary.start_unix_ns);
  const Seen seen = see(*of_rank, summary);
  if (seen == Seen::kAgain) {
    ++repeated_;
    return;
  }
  const int32_t last = minute_of(end_unix_ns - 1);
  const int32_t first = std::max(minute_of(summary.start_unix_ns), last - kMeasuredMinutes);
  bool taken = false;
  for (int32_t minute = first; minute <= last; ++minute) {
    MeasuredMinute* measured = measured_minute(*job, minute);
    RankMinute* row = row_of(measured, identity.rank);
    if (row == nullptr) continue;
    const int64_t from_ns = minute * kMinuteNs;
    add_step(*row, summary, from_ns, from_ns + kMinuteNs, seen == Seen::kRepeatedWork);
    ++measured->rows;
    note_steps(*job, minute, summary.step);
    taken = true;
  }
  ++(taken ? taken_ : late_);
}

void SleWatch::on_status(const Identity& identity, const RankStatus& status, int64_t received_unix_ns) {
  MutexLock lock(mutex_);
  const int64_t heard_unix_ns = believed(received_unix_ns);
  Job* job = job_for(identity, heard_unix_ns);
  if (job == nullptr) return;
  RankMinute* row = row_of(measured_minute(*job, minute_of(heard_unix_ns)), identity.rank);
  if (row == nullptr) return;
  row->flags |= RankMinute::kStatus;
  if (status.quiet_ns >= kStandingNs && !status.finished) row->flags |= RankMinute::kStanding;
}

void SleWatch::on_rank_started(const Identity& identity, int64_t received_unix_ns) {
  MutexLock lock(mutex_);
  Job* job = job_for(identity, believed(received_unix_ns));
  if (job == nullptr) return;
  Seat& seat = job->seats.at(index_of(identity.rank));
  if (seat.ended) --job->ended;
  seat.ended = false;
}

void SleWatch::on_rank_ended(const Identity& identity, const RankEnd&, int64_t received_unix_ns) {
  MutexLock lock(mutex_);
  const int64_t heard_unix_ns = believed(received_unix_ns);
  Job* job = job_for(identity, heard_unix_ns);
  if (job == nullptr) return;
  Seat& seat = job->seats.at(index_of(identity.rank));
  if (!seat.ended) ++job->ended;
  seat.ended = true;
  job->ended_unix_ns = heard_unix_ns;
}

void SleWatch::on_records_lost(const Identity& identity, int64_t /*records*/, int64_t received_unix_ns) {
  MutexLock lock(mutex_);
  const int64_t heard_unix_ns = believed(received_unix_ns);
  Job* job = job_for(identity, heard_unix_ns);
  if (job == nullptr) return;
  RankMinute* row = row_of(measured_minute(*job, minute_of(heard_unix_ns)), identity.rank);
  if (row != nullptr) row->flags |= RankMinute::kLost;
}

void SleWatch::hear_host(std::string_view host, int64_t received_unix_ns) {
  if (host.empty() || host.size() > kIdentityTextMax) return;
  auto found = hosts_.find(host);
  if (found == hosts_.end()) {
    if (hosts_.size() >= kHostsMax) return;
    found = hosts_.emplace(std::string(host), HostHeard{}).first;
  }
  HostHeard& heard = found->second;
  const int32_t minute = minute_of(believed(received_unix_ns));
  if (minute > heard.newest) {
    heard.mask = minute - heard.newest >= 64 ? 1 : heard.mask << (minute - heard.newest) | 1;
    heard.newest = minute;
  } else if (heard.newest - minute < 64) {
    heard.mask |= uint64_t{1} << (heard.newest - minute);
  }
}

void SleWatch::on_metrics(const Attributes& resource, std::span<const MetricPoint>, int64_t received_unix_ns) {
  const std::string_view host = find_string(resource, "host.name");
  MutexLock lock(mutex_);
  hear_host(host, received_unix_ns);
}

void SleWatch::on_node_event(std::string_view host, const NodeEvent& event, int64_t received_unix_ns) {
  MutexLock lock(mutex_);
  hear_host(host, received_unix_ns);
  const bool is_bad = event.severity >= EventSeverity::kWarn && !event.secondary;
  if (!is_bad || host.empty() || host.size() > kIdentityTextMax) return;
  if (!event.name.starts_with("host.") && !event.name.starts_with("storage.")) return;
  const int64_t heard_unix_ns = believed(received_unix_ns);
  events_.push_back({.sle = Sle::kHost,
                     .host = std::string(host),
                     .what = event.name,
                     .from_unix_ns = heard_unix_ns,
                     .to_unix_ns = heard_unix_ns + kEventLastsNs});
  if (events_.size() > kEventsMax) events_.pop_front();
}

void SleWatch::make_placement(Job& job) {
  if (job.placement && job.placement->ranks() == job.world_size &&
      (!job.placement->gpu_model.empty() || job.gpu_model.empty()))
    return;
  auto placement = std::make_shared<Placement>();
  placement->gpu_model = job.gpu_model;
  placement->gpus.resize(static_cast<size_t>(job.world_size));
  for (const Rank rank : lockstep::all_ranks(job.world_size)) {
    const Seat* seat = job.seats.find(index_of(rank));
    if (seat == nullptr || !seat->known) continue;
    placement->gpus[index_of(rank)] = seat->gpu_uuid;
    std::vector<Placement::HostRun>& hosts = placement->hosts;
    if (!hosts.empty() && hosts.back().end() == rank && hosts.back().host == seat->host) {
      ++hosts.back().ranks;
    } else {
      hosts.push_back({rank, 1, seat->host});
    }
  }
  job.placement = std::move(placement);
}

bool SleWatch::acts_in(const Verdict& verdict, const Job& job, int32_t minute) const {
  if (verdict.state == VerdictState::kSuspected) return false;
  const bool open = verdict.state == VerdictState::kConfirmed;
  if (is_standstill(verdict.kind)) {
    const auto cleared = cleared_unix_ns_.find(verdict.id);
    if (!open && cleared == cleared_unix_ns_.end()) return false;
    return minute_of(verdict.since_unix_ns) <= minute && (open || minute <= minute_of(cleared->second));
  }
  const auto steps =
      std::find_if(job.steps.begin(), job.steps.end(), [&](const Steps& one) { return one.minute == minute; });
  if (steps == job.steps.end() || steps->attempt != verdict.attempt) return false;
  return verdict.since_step <= steps->last && (open || verdict.through_step >= steps->first);
}

std::optional<SleWatch::Charge> SleWatch::charge_of(const Verdict& verdict) {
  const auto found = jobs_.find(verdict.job_id);
  if (found == jobs_.end() || verdict.state == VerdictState::kSuspected) return std::nullopt;
  Job& job = found->second;
  Charge charge{.owner = owner_of(verdict), .minutes = {}, .sles = {}};
  for (const SleRow& row : sle_rows())
    if (relevance(row.sle, verdict) > 0) charge.sles.push_back(row.sle);
  const int32_t newest = std::max(job.judged_through, job.restored_through);
  for (int32_t minute = newest - Ledger::kOpenMinutes + 1; minute <= newest; ++minute)
    if (acts_in(verdict, job, minute)) charge.minutes.push_back(minute);
  // What is still measured is judged again: the verdict may say that a minute is bad that looked good.
  for (MeasuredMinute& minute : job.minutes) minute.dirty = minute.dirty || acts_in(verdict, job, minute.minute);
  return charge;
}

void SleWatch::note(std::span<const Verdict> changed, int64_t now_unix_ns) {
  std::vector<Charge> charges;
  {
    MutexLock lock(mutex_);
    for (const Verdict& verdict : changed) {
      if (verdict.state == VerdictState::kCleared) cleared_unix_ns_.try_emplace(verdict.id, now_unix_ns);
      if (verdict.state == VerdictState::kConfirmed) cleared_unix_ns_.erase(verdict.id);
      if (std::optional<Charge> charge = charge_of(verdict)) charges.push_back(std::move(*charge));
    }
    std::erase_if(cleared_unix_ns_,
                  [&](const auto& one) { return now_unix_ns - one.second > 2 * Ledger::kOpenMinutes * kMinuteNs; });
  }
  for (const Charge& one : charges) ledger_.charge(one.owner.job_id, one.minutes, one.sles, one.owner);
}

JudgedMinute SleWatch::judge_minute(Job& job, MeasuredMinute& measured, const Due& due, const Others& others) {
  std::vector<Verdict> acting;
  for (const Verdict& verdict : due.verdicts)
    if (acts_in(verdict, job, measured.minute)) acting.push_back(verdict);
  const int64_t from_ns = measured.minute * kMinuteNs, to_ns = from_ns + kMinuteNs;
  const int64_t gone_ns = is_over(job) ? std::min(to_ns, job.ended_unix_ns) : to_ns;
  const int64_t present_ns =
      std::clamp<int64_t>(gone_ns - std::max(from_ns, job.first_unix_ns), 1'000'000'000, kMinuteNs);
  const MinuteContext context{.measured = measured,
                              .world_size = job.world_size,
                              .placement = job.placement,
                              .present_s = static_cast<int32_t>(present_ns / 1'000'000'000),
                              .is_starting = measured.minute < minute_of(job.first_unix_ns) + kStartMinutes,
                              .verdicts = acting,
                              .faults = others.faults,
                              .node_reported =
                                  [&](const std::string& host) {
                                    mutex_.assert_held();
                                    const auto heard = hosts_.find(host);
                                    const int64_t back =
                                        heard == hosts_.end() ? -1 : heard->second.newest - measured.minute;
                                    return back >= 0 && back < 64 && (heard->second.mask >> back & 1u) != 0;
                                  },
                              .node_ever_reported =
                                  [&](const std::string& host) {
                                    mutex_.assert_held();
                                    return hosts_.contains(host);
                                  },
                              .thresholds = thresholds_};
  const RankSpans planned = planned_ranks(others.planned, measured.minute, due.job_id, *job.placement);
  const bool learning = measured.minute > job.learned_through && measured.rows > 0 && planned.empty();
  JudgedMinute judged = judge(context, *job.baselines, learning);
  for (RankCells& cells : judged.cells) cells = with(cells, planned, Cell::idle());
  if (learning && judged.baselines != *job.baselines) job.learned_through = measured.minute;
  job.baselines = judged.baselines;
  judged.only_if_more = measured.minute <= job.restored_through;
  measured.dirty = false;
  return judged;
}

// Not judged yet, or changed since.
bool SleWatch::is_due(const Job& job, const MeasuredMinute& minute, int32_t last) {
  return minute.minute <= last && (minute.dirty || minute.minute > job.judged_through);
}

std::vector<SleWatch::Due> SleWatch::due_jobs(int32_t through) {
  std::vector<Due> due;
  for (auto& [job_id, job] : jobs_) {
    const int32_t last = std::min(through, job.heard_minute + (is_over(job) ? 0 : kSilentMinutes));
    if (job.judged_through == 0) job.judged_through = job.minutes.empty() ? last : job.minutes.front().minute - 1;
    // What is silent has minutes too.
    for (int32_t minute = std::max(job.judged_through + 1, last - kSilentMinutes); minute <= last; ++minute)
      (void)measured_minute(job, minute);
    if (std::none_of(job.minutes.begin(), job.minutes.end(),
                     [&, &job = job](const MeasuredMinute& minute) { return is_due(job, minute, last); })) {
      let_go(job, last);
      continue;
    }
    due.push_back({.job_id = job_id, .last = last, .asks_ledger = job.restored_through < 0});
    const Seat* seat = job.seats.find(0);
    if (!job.gpu_model.empty() || seat == nullptr || job.model_asked_minute == through) continue;
    due.back().gpu_uuid = seat->gpu_uuid;
    job.model_asked_minute = through;
  }
  return due;
}

void SleWatch::ask(Due& due) const {
  due.verdicts = reads_.diagnosis.verdicts(due.job_id);
  if (reads_.gpu_model && !due.gpu_uuid.empty()) due.gpu_model = reads_.gpu_model(due.gpu_uuid);
  if (!due.asks_ledger) return;
  due.baselines = ledger_.baselines(due.job_id);
  due.newest_minute = ledger_.newest_minute(due.job_id);
}

void SleWatch::judge_job(const Due& due, Job& job, const Others& others, Judged& judged) {
  if (job.restored_through < 0) {
    // Made anew since it was found due: the next look asks for it.
    if (!due.asks_ledger) return;
    job.restored_through = job.learned_through = due.newest_minute;
  }
  if (!job.baselines) job.baselines = due.baselines;
  const Seat* seat = job.seats.find(0);
  if (seat != nullptr && seat->gpu_uuid == due.gpu_uuid && !due.gpu_model.empty()) job.gpu_model = due.gpu_model;
  make_placement(job);
  for (MeasuredMinute& minute : job.minutes)
    if (is_due(job, minute, due.last)) judged.emplace_back(due.job_id, judge_minute(job, minute, due, others));
  job.judged_through = std::max(job.judged_through, due.last);
  let_go(job, due.last);
}

void SleWatch::let_go(Job& job, int32_t last) {
  while (!job.minutes.empty() && job.minutes.front().minute <= last - kMeasuredMinutes) {
    rows_ -= job.minutes.front().ranks.room();
    job.minutes.pop_front();  // what comes of it later begins anew, and counts where it is more
  }
}

void SleWatch::tick(int64_t now_unix_ns, int64_t credible_unix_ns) {
  const int32_t through = minute_of(now_unix_ns - kGraceNs) - 1;
  const int64_t over_since_unix_ns = now_unix_ns - kMeasuredMinutes * kMinuteNs;
  Others others;
  std::vector<Due> due;
  {
    MutexLock lock(mutex_);
    credible_unix_ns_ = credible_unix_ns;
    const int64_t since_ns = now_unix_ns - looked_unix_ns_;
    if (through == looked_minute_ && since_ns >= 0 && since_ns < kLookEveryNs) return;
    looked_minute_ = through;
    looked_unix_ns_ = now_unix_ns;
    std::erase_if(events_, [&](const HardwareFault& event) { return event.to_unix_ns < over_since_unix_ns; });
    for (const HardwareFault& event : events_) others.faults[event.host].push_back(event);
    due = due_jobs(through);
  }
  if (reads_.faults)
    for (HardwareFault& fault : reads_.faults(over_since_unix_ns))
      others.faults[fault.host].push_back(std::move(fault));
  if (reads_.planned && !due.empty()) others.planned = reads_.planned();
  for (Due& one : due) ask(one);
  Judged judged;
  {
    MutexLock lock(mutex_);
    for (const Due& one : due)
      if (const auto job = jobs_.find(one.job_id); job != jobs_.end()) judge_job(one, job->second, others, judged);
    // Its seats and what was done of its steps are needed where it comes back, while there is room.
    const int32_t kept = 2 * ranks_ > kRanksMax ? kSilentMinutes : 24 * 60;
    for (auto job = jobs_.begin(); job != jobs_.end();) {
      const auto one = job++;
      if (one->second.heard_minute < through - kept) forget(one);
    }
  }
  for (auto& [job_id, minute] : judged) ledger_.put(job_id, std::move(minute));
  if (through / 10 != std::exchange(expired_, through / 10)) ledger_.expire(through);
  counters_.set("lockstep_sle_runs", "", static_cast<int64_t>(ledger_.run_count()));
}

void SleWatch::flush() {
  const Result<void> flushed = ledger_.flush();
  if (!flushed.ok() && !std::exchange(failing_, true))
    LOCKSTEP_LOG_WARN("sle", "%s; the ledger is kept in memory and written later", flushed.error().c_str());
  if (flushed.ok()) failing_ = false;
}

}  // namespace lockstep::sle
