// A queue of what happens next, ordered by time: a host's request, the next step of a job, a look at quiet ranks, a
// reading of a node. What a host sends is put together only when its turn comes, from the job's present step.
#include "sim/scenario/scenario_run.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <queue>
#include <utility>

#include "base/text.h"
#include "model/events.h"
#include "sim/fleet/fleet.h"
#include "sim/fleet/random.h"
#include "sim/node/node_telemetry.h"
#include "sim/node/switch_telemetry.h"
#include "sim/scenario/conditions.h"

namespace lockstep::sim {

namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kDrainNs = 50'000'000;         // an agent looks into its recorders every 50 ms
constexpr int64_t kQuietNs = 2 * kSecondNs;      // from here on an agent tells of a quiet rank
constexpr int64_t kNoticeDeathNs = kSecondNs;    // that a process is gone
constexpr int64_t kNoticeEventNs = 200'000'000;  // what the kernel log says
constexpr int64_t kRestartNs = 8 * kSecondNs;
// A hang at the end of a run is watched at least so long.
constexpr int64_t kWatchHangNs = 20 * kSecondNs;
constexpr const char* kScope = "lockstep.agent";

// So many of `count`, chosen by the seed.
std::vector<bool> chosen(size_t count, double share, uint64_t seed) {
  std::vector<bool> out(count, false);
  const auto wanted = static_cast<size_t>(std::llround(share * static_cast<double>(count)));
  if (wanted == 0) return out;
  std::vector<std::pair<uint64_t, size_t>> order;
  for (size_t i = 0; i < count; ++i) order.emplace_back(mix(seed ^ mix(i)), i);
  std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(std::min(wanted, count) - 1),
                   order.end());
  for (size_t i = 0; i < std::min(wanted, count); ++i) out[order[i].second] = true;
  return out;
}

}  // namespace

class ScenarioRun::Impl {
 public:
  Impl(Scenario scenario, int64_t start_unix_ns)
      : scenario_(std::move(scenario)),
        onsets_(scenario_.faults.size()),
        hang_over_(scenario_.faults.size()),
        now_ns_(start_unix_ns),
        read_every_ns_(static_cast<int64_t>(scenario_.telemetry.metrics_every_s * 1e9)) {
    const JobPlan& first = scenario_.jobs.front();
    for (size_t i = 0; i < scenario_.jobs.size(); ++i) {
      const JobPlan& plan = scenario_.jobs[i];
      Job& job = jobs_.emplace_back();
      job.plan = &plan;
      job.dp = plan.dp;
      job.steps =
          std::max<int64_t>(1, std::llround(static_cast<double>(scenario_.steps) * first.step_ms / plan.step_ms));
      job.first_host = hosts_.size();
      const JobShape shape = shape_of(scenario_, plan, 0, plan.dp);
      for (int32_t host = 0; host < shape.hosts(); ++host)
        hosts_.push_back({.job = i, .local = host, .index = shape.first_host + host});
      job.no_plugin = chosen(static_cast<size_t>(shape.world_size()), scenario_.telemetry.no_plugin,
                             scenario_.seed ^ 0x4E0000ull ^ i);
    }
    lose_agents();
    double heat = 0;
    for (const Oddity& oddity : scenario_.oddities) {
      if (oddity.kind == OddityKind::kDailyHeat) heat = std::max(heat, oddity.amount);
    }
    for (size_t i = 0; i < hosts_.size(); ++i) {
      Host& host = hosts_[i];
      if (!host.read) continue;
      host.telemetry = std::make_unique<NodeTelemetry>(format("node-%02d", host.index), host.index, scenario_.topology,
                                                       node_seed(scenario_), heat, scenario_.telemetry.all_series);
      push(start_unix_ns + static_cast<int64_t>(mix(scenario_.seed ^ mix(i)) % static_cast<uint64_t>(read_every_ns_)),
           Kind::kRead, 0, i);
    }
    if (scenario_.topology.switches) {
      switches_.emplace(scenario_.topology, fleet_hosts(scenario_), node_seed(scenario_));
      push(start_unix_ns + static_cast<int64_t>(mix(scenario_.seed ^ 0x5F10ull) % SwitchTelemetry::kReadEveryNs),
           Kind::kSwitches, 0);
    }
    for (size_t i = 0; i < jobs_.size(); ++i) start(i, start_unix_ns, 0_step);
  }

  std::optional<Sent> next() {
    while (!items_.empty()) {
      const Item item = items_.top();
      items_.pop();
      if ((item.kind == Kind::kRead || item.kind == Kind::kSwitches) && jobs_over_ == jobs_.size()) continue;
      std::optional<Batch> batch = happen(item);
      if (!batch || batch->record_count() == 0) continue;
      if (item.kind != Kind::kHeld) {
        const uint64_t luck = mix(scenario_.seed ^ 0x1A7Eull ^ mix(item.order));
        if (uniform(mix(luck)) < scenario_.telemetry.duplicated)
          keep(item.at_ns + kSecondNs / 2 + static_cast<int64_t>(luck % kSecondNs), *batch);
        if (scenario_.telemetry.late_ms > 0 && uniform(luck) < scenario_.telemetry.late_share) {
          keep(item.at_ns + static_cast<int64_t>(scenario_.telemetry.late_ms * 1e6), std::move(*batch));
          continue;
        }
      }
      now_ns_ = std::max(now_ns_, item.at_ns);
      return Sent{now_ns_, std::move(*batch)};
    }
    return std::nullopt;
  }

  const std::vector<Onset>& onsets() const { return onsets_; }
  int64_t now_unix_ns() const { return now_ns_; }

 private:
  enum class Kind : uint8_t {
    kStart,
    kStep,
    kDeath,
    kStatus,
    kEnd,
    kEvents,
    kRead,
    kSwitches,
    kHeld,
    kLook,
    kRelease,
    kPlay,
  };
  struct Item {
    int64_t at_ns = 0;
    uint64_t order = 0;  // of equal times the first pushed is first
    Kind kind = Kind::kPlay;
    uint32_t job = 0;
    size_t which = 0;  // a host, or what is kept
    bool operator<(const Item& other) const { return at_ns != other.at_ns ? at_ns > other.at_ns : order > other.order; }
  };
  struct Host {
    size_t job = 0;
    int32_t local = 0;  // of the job
    int32_t index = 0;  // of the fleet
    bool lost = false, read = true;
    int64_t read_ns = 0;
    std::unique_ptr<NodeTelemetry> telemetry = nullptr;
  };
  struct Job {
    const JobPlan* plan = nullptr;
    int64_t steps = 0;
    size_t first_host = 0;
    int32_t dp = 1;
    int64_t attempt = 0;
    int64_t version = 1;
    JobShape shape;
    std::unique_ptr<Fleet> fleet;
    std::unique_ptr<JobConditions> conditions;
    std::vector<Attributes> resources;  // by rank
    std::vector<Fleet::Activity> activity;
    std::vector<bool> no_plugin;
    StepNumber restarted_for = kNoStep;   // the step before which it was restarted last
    StepNumber begin_again_at = kNoStep;  // the step with which the next attempt begins; -1: none is due
    LongStop stop;
    int64_t stuck_ns = 0, release_ns = 0;  // of a stop; release 0: not by itself
    bool reported_quiet = false, released = false, over = false;
  };

  void push(int64_t at_ns, Kind kind, size_t job, size_t which = 0) {
    items_.push({at_ns, order_++, kind, static_cast<uint32_t>(job), which});
  }
  void keep(int64_t at_ns, Batch batch) {
    kept_.push_back(std::move(batch));
    push(at_ns, Kind::kHeld, 0, kept_first_ + kept_.size() - 1);
  }

  void lose_agents() {
    const TelemetryDamage& damage = scenario_.telemetry;
    std::vector<bool> lost = chosen(hosts_.size(), damage.lost_agents, scenario_.seed ^ 0x105Eull);
    if (damage.guilty_agent_lost && !scenario_.faults.empty()) {
      const ScenarioFault& fault = scenario_.faults.front();
      for (const Job& job : jobs_) {
        if (job.plan->job_id != fault.target.job) continue;
        const JobShape shape = shape_of(scenario_, *job.plan, 0, job.plan->dp);
        const size_t guilty =
            job.first_host + static_cast<size_t>(shape.host_of(ranks_of(fault.target, shape).front()));
        // Among them, not besides them.
        if (!lost[guilty]) {
          auto other = std::find(lost.begin(), lost.end(), true);
          if (other != lost.end()) *other = false;
          lost[guilty] = true;
        }
      }
    }
    const std::vector<bool> unread = chosen(hosts_.size(), damage.no_metrics, scenario_.seed ^ 0x3E7ull);
    for (size_t i = 0; i < hosts_.size(); ++i) {
      hosts_[i].lost = lost[i];
      hosts_[i].read = !lost[i] && !unread[i];
    }
  }

  // When a host's request leaves, of what happened at this time.
  int64_t leaves_at(int64_t at_ns, const Job& job, size_t host) const {
    const auto spread = static_cast<uint64_t>(std::min(60e6, job.plan->step_ms * 1e5));
    return at_ns + kDrainNs + static_cast<int64_t>(mix(scenario_.seed ^ mix(host ^ 0x5E4Dull)) % spread);
  }
  size_t hosts_of(const Job& job) const { return static_cast<size_t>(job.shape.hosts()); }
  // For every host of the job whose agent is there; the last one's time.
  int64_t push_hosts(size_t index, Kind kind, int64_t at_ns) {
    const Job& job = jobs_[index];
    int64_t last = at_ns;
    for (size_t host = job.first_host; host < job.first_host + hosts_of(job); ++host) {
      if (hosts_[host].lost) continue;
      const int64_t leaves = leaves_at(at_ns, job, host);
      push(leaves, kind, index, host);
      last = std::max(last, leaves);
    }
    return last;
  }

  void start(size_t index, int64_t at_ns, StepNumber first_step) {
    Job& job = jobs_[index];
    job.shape = shape_of(scenario_, *job.plan, job.attempt, job.dp);
    job.fleet = std::make_unique<Fleet>(job.shape, at_ns, first_step);
    job.conditions = std::make_unique<JobConditions>(scenario_, *job.plan, job.shape);
    for (size_t fault = 0; fault < scenario_.faults.size(); ++fault) {
      if (hang_over_[fault]) job.conditions->over(fault);
    }
    job.resources.clear();
    for (Rank rank : all_ranks(job.shape.world_size())) job.resources.push_back(to_resource(job.fleet->identity(rank)));
    job.activity.assign(static_cast<size_t>(job.shape.world_size()), {});
    job.stop = {};
    job.reported_quiet = job.released = false;
    const int64_t last = push_hosts(index, Kind::kStart, at_ns);
    push(last, Kind::kPlay, index);
  }

  // Something happens; a batch where a host sends something.
  std::optional<Batch> happen(const Item& item) {
    switch (item.kind) {
      case Kind::kPlay:
        play(item.job, item.at_ns);
        return std::nullopt;
      case Kind::kLook:
        look(item.job, item.at_ns);
        return std::nullopt;
      case Kind::kRelease:
        release(item.job, item.at_ns);
        return std::nullopt;
      case Kind::kHeld: {
        Batch batch = std::exchange(kept_[item.which - kept_first_], {});
        for (; !kept_.empty() && kept_.front().groups.empty(); ++kept_first_) kept_.pop_front();
        return batch;
      }
      case Kind::kRead:
      case Kind::kEvents:
        return read(item.which, item.at_ns, item.kind == Kind::kRead);
      case Kind::kSwitches:
        return read_switches(item.at_ns);
      default:
        return report(item);
    }
  }

  // What the agent of a host reports of the job's ranks on it.
  Batch report(const Item& item) {
    Job& job = jobs_[item.job];
    const Host& host = hosts_[item.which];
    Batch batch{.signal = Signal::kLogs};
    const int32_t gpus = scenario_.topology.gpus_per_host;
    const Rank first{host.local * gpus}, end = std::min(first + gpus, Rank{job.shape.world_size()});
    for (Rank rank = first; rank < end; ++rank) {
      if (job.no_plugin[index_of(rank)]) continue;
      std::vector<LogRecord> records = records_of(job, rank, item);
      if (records.empty()) continue;
      ResourceGroup& group = batch.groups.emplace_back();
      group.resource = job.resources[index_of(rank)];
      group.scope_name = kScope;
      group.logs = std::move(records);
    }
    return batch;
  }

  std::vector<LogRecord> records_of(Job& job, Rank rank, const Item& item) {
    std::vector<LogRecord> records;
    const Fleet& fleet = *job.fleet;
    const bool dead = job.fleet->hung() && !fleet.status(rank, item.at_ns).process_alive;
    switch (item.kind) {
      case Kind::kStart: {
        const int64_t at = fleet.ended_unix_ns(rank);
        LogRecord begun = job_start_record(at);
        begun.attributes.push_back({"version", format("v%lld", static_cast<long long>(job.version))});
        records.push_back(std::move(begun));
        for (const CommInit& comm : fleet.comm_inits(rank)) records.push_back(to_record(comm, at));
        for (const CommGroup& group : fleet.comm_groups(rank)) records.push_back(to_record(group, at));
        break;
      }
      case Kind::kStep:
        if (job.released) {  // an agent that has told of a standstill tells when it is over
          RankStatus moving = fleet.status(rank, fleet.ended_unix_ns(rank));
          moving.quiet_ns = 0;
          records.push_back(to_record(moving));
        }
        records.push_back(to_record(fleet.summary(rank)));
        break;
      case Kind::kDeath:
        if (dead) {
          records.push_back(to_record(fleet.status(rank, item.at_ns)));
          records.push_back(job_end_record({.time_unix_ns = item.at_ns, .clean = false, .exit = {}}));
        }
        break;
      case Kind::kStatus: {
        const RankStatus status = fleet.status(rank, item.at_ns);
        if (!dead && status.quiet_ns >= kQuietNs) records.push_back(to_record(status));
        break;
      }
      case Kind::kEnd: {
        if (dead) break;  // told already
        const bool clean = !fleet.hung();
        const int64_t at = std::max(fleet.ended_unix_ns(rank), clean ? 0 : item.at_ns);
        RankStatus last = fleet.status(rank, at);
        last.process_alive = false;
        last.finished = clean;
        if (!clean) records.push_back(to_record(last));
        records.push_back(job_end_record({.time_unix_ns = at, .clean = clean, .exit = {}}));
        break;
      }
      default:
        break;
    }
    return records;
  }

  // The operator restarts the job: another version, another size, or because it hangs.
  bool restarts_before(Job& job, StepNumber step) {
    if (step == 0_step || job.restarted_for == step) return false;
    bool restart = false;
    for (const ScenarioFault& fault : scenario_.faults) {
      if (fault.cause != Cause::kCodeRegression || fault.target.job != job.plan->job_id) continue;
      if (step == fault.from_step || (fault.steps > 0 && step == fault.from_step + fault.steps)) {
        job.version += step == fault.from_step ? 1 : -1;
        restart = true;
      }
    }
    for (const Oddity& oddity : scenario_.oddities) {
      if (oddity.kind != OddityKind::kResize || oddity.job != job.plan->job_id || step % oddity.every_steps != 0)
        continue;
      job.dp = job.dp == job.plan->dp ? resized_dp(*job.plan, oddity.amount) : job.plan->dp;
      restart = true;
    }
    if (restart) job.restarted_for = step;
    return restart;
  }

  void play(size_t index, int64_t at_ns) {
    Job& job = jobs_[index];
    if (job.begin_again_at != kNoStep) {
      ++job.attempt;
      start(index, at_ns, std::exchange(job.begin_again_at, kNoStep));
      return;
    }
    Fleet& fleet = *job.fleet;
    const StepNumber step = fleet.step() + 1;
    for (size_t rank = 0; rank < job.activity.size(); ++rank) job.activity[rank] = fleet.activity(rank_at(rank));
    job.released = false;
    if (step >= StepNumber{job.steps}) {
      end(index, at_ns);
      return;
    }
    if (restarts_before(job, step)) {
      restart(index, at_ns, step);
      return;
    }
    JobStep now = job.conditions->at(step);
    note_onsets(job, step);
    if (!now.stop.stops.empty()) now.conditions.stops = now.stop.stops;
    if (fleet.play_under(now.conditions)) {
      push_step(index);
      return;
    }
    job.stop = now.stop;
    job.stuck_ns = fleet.now_unix_ns();
    job.reported_quiet = false;
    job.release_ns = now.stop.length_ns > 0 ? job.stuck_ns + now.stop.length_ns : 0;
    const bool for_good = now.stop.fault >= 0;
    if (for_good) {
      Onset& onset = onsets_[static_cast<size_t>(now.stop.fault)];
      onset.acted_unix_ns = onset.began_unix_ns = job.stuck_ns;
      onset.harmed = {step};
      for (const Stop& stop : now.stop.stops)
        push_host_of(index, stop.rank, Kind::kDeath, job.stuck_ns + kNoticeDeathNs);
      for (const Stop& stop : now.stop.stops)
        push_host_of(index, stop.rank, Kind::kEvents, job.stuck_ns + kNoticeEventNs);
      if (job.release_ns == 0) {
        const auto rest = static_cast<int64_t>(static_cast<double>(job.steps - step.value()) * job.plan->step_ms * 1e6);
        job.release_ns = job.stuck_ns + std::max(rest, kWatchHangNs);
        job.over = true;
      }
    }
    const int64_t look_ns = job.stuck_ns + kQuietNs;
    push(std::min(look_ns, job.release_ns), look_ns < job.release_ns ? Kind::kLook : Kind::kRelease, index);
  }

  void push_host_of(size_t index, Rank rank, Kind kind, int64_t at_ns) {
    const Job& job = jobs_[index];
    const size_t host = job.first_host + static_cast<size_t>(job.shape.host_of(rank));
    if (hosts_[host].lost || (kind == Kind::kEvents && !hosts_[host].read)) return;
    push(at_ns, kind, index, host);
  }

  void push_step(size_t index) {
    Job& job = jobs_[index];
    const Fleet& fleet = *job.fleet;
    const int32_t gpus = scenario_.topology.gpus_per_host;
    int64_t last = 0;
    for (size_t host = job.first_host; host < job.first_host + hosts_of(job); ++host) {
      const Rank first{hosts_[host].local * gpus};
      int64_t ended = 0;
      for (Rank rank = first; rank < std::min(first + gpus, Rank{job.shape.world_size()}); ++rank)
        ended = std::max(ended, fleet.ended_unix_ns(rank));
      const int64_t leaves = leaves_at(ended, job, host);
      last = std::max(last, leaves);
      if (!hosts_[host].lost) push(leaves, Kind::kStep, index, host);
    }
    push(last, Kind::kPlay, index);
  }

  // A round of statuses while nothing moves.
  void look(size_t index, int64_t at_ns) {
    Job& job = jobs_[index];
    job.reported_quiet = true;
    push_hosts(index, Kind::kStatus, at_ns);
    // As often as the agent does.
    const int64_t next = at_ns + std::clamp((at_ns - job.stuck_ns) / 4, kSecondNs, 30 * kSecondNs);
    push(std::min(next, job.release_ns), next < job.release_ns ? Kind::kLook : Kind::kRelease, index);
  }

  void release(size_t index, int64_t at_ns) {
    Job& job = jobs_[index];
    if (job.over) {
      end(index, at_ns);
      return;
    }
    const StopKind kind = job.stop.stops.front().kind;
    if (job.stop.fault >= 0) {
      onsets_[static_cast<size_t>(job.stop.fault)].ended_unix_ns = at_ns;
      hang_over_[static_cast<size_t>(job.stop.fault)] = true;
      job.conditions->over(static_cast<size_t>(job.stop.fault));
    }
    // What is dead or entangled does not come back: the job is restarted.
    if (kind == StopKind::kDead || kind == StopKind::kMismatch || kind == StopKind::kDeadlock) {
      restart(index, at_ns, job.fleet->step());
      return;
    }
    job.fleet->release(at_ns);
    job.released = job.reported_quiet;
    push_step(index);
  }

  void restart(size_t index, int64_t at_ns, StepNumber step) {
    const int64_t last = push_hosts(index, Kind::kEnd, at_ns);
    push(std::max(last, at_ns + kRestartNs), Kind::kPlay, index);
    jobs_[index].begin_again_at = step;
  }

  void end(size_t index, int64_t at_ns) {
    jobs_[index].over = true;
    ++jobs_over_;
    push_hosts(index, Kind::kEnd, at_ns);
  }

  void note_onsets(const Job& job, StepNumber step) {
    const int64_t at_ns = job.fleet->now_unix_ns();
    for (size_t i = 0; i < scenario_.faults.size(); ++i) {
      const ScenarioFault& fault = scenario_.faults[i];
      Onset& onset = onsets_[i];
      if (fault.target.job != job.plan->job_id || is_hang(fault.cause)) continue;
      if (onset.began_unix_ns != 0 && onset.ended_unix_ns == 0 && fault.steps > 0 &&
          step >= fault.from_step + fault.steps)
        onset.ended_unix_ns = at_ns;
      const double amount = amount_at(scenario_, i, step);
      if (amount <= 0) continue;
      if (fault.cause == Cause::kCheckpoint && !job.conditions->at(step).conditions.checkpoint) continue;
      if (onset.acted_unix_ns == 0) onset.acted_unix_ns = at_ns;
      // A ramp does no harm at its very beginning.
      if (amount < std::min(fault.severity, std::max(0.05, 0.25 * fault.severity)) * 0.999) continue;
      onset.harmed.push_back(step);
      if (onset.began_unix_ns != 0) continue;
      onset.began_unix_ns = at_ns;
      for (Rank rank : job.conditions->fault_ranks()[i]) {
        if (fault.target.rank != kNoRank)
          push_host_of(static_cast<size_t>(&job - jobs_.data()), rank, Kind::kEvents, at_ns + kNoticeEventNs);
      }
    }
  }

  std::optional<Batch> read(size_t which, int64_t at_ns, bool metrics) {
    Host& host = hosts_[which];
    const Job& job = jobs_[host.job];
    const int32_t gpus = scenario_.topology.gpus_per_host;
    const double elapsed_ns =
        host.read_ns > 0 ? static_cast<double>(at_ns - host.read_ns) : static_cast<double>(read_every_ns_);
    activity_.assign(static_cast<size_t>(gpus), {});
    const bool stuck = job.fleet->hung() && at_ns >= job.stuck_ns;
    for (int32_t gpu = 0; gpu < gpus; ++gpu) {
      const Rank rank{host.local * gpus + gpu};
      if (rank >= Rank{job.shape.world_size()} || (job.over && !job.fleet->hung())) continue;
      GpuActivity& out = activity_[static_cast<size_t>(gpu)];
      out.identity = job.fleet->identity(rank);
      const Fleet::Activity did = stuck ? job.fleet->activity(rank) : job.activity[index_of(rank)];
      out.busy = did.busy;
      out.communicating = did.communicating;
      out.input = did.input;
      const double steps = did.duration_ns > 0 ? elapsed_ns / static_cast<double>(did.duration_ns) : 0;
      out.sent_bytes = static_cast<int64_t>(static_cast<double>(did.sent_bytes) * steps);
      out.received_bytes = static_cast<int64_t>(static_cast<double>(did.received_bytes) * steps);
      out.nvlink_bytes = static_cast<int64_t>(static_cast<double>(did.nvlink_bytes) * steps);
    }
    find_acting(host, job, at_ns);
    if (!metrics) return host.telemetry->events(at_ns, activity_, acting_);
    host.read_ns = at_ns;
    push(at_ns, Kind::kEvents, host.job, which);  // healthy nodes have their harmless events too
    push(at_ns + read_every_ns_, Kind::kRead, 0, which);
    return host.telemetry->read(at_ns, activity_, acting_);
  }

  Batch read_switches(int64_t at_ns) {
    const int64_t elapsed_ns = switches_read_ns_ > 0 ? at_ns - switches_read_ns_ : SwitchTelemetry::kReadEveryNs;
    switches_read_ns_ = at_ns;
    for (const Job& job : jobs_) {
      if (job.fleet->hung() || job.over || job.fleet->step() < 0_step) continue;
      for (Rank rank : all_ranks(job.shape.world_size())) {
        const int64_t duration_ns = job.fleet->activity(rank).duration_ns;
        if (duration_ns <= 0) continue;
        const double steps = static_cast<double>(elapsed_ns) / static_cast<double>(duration_ns);
        for (const Fleet::Sent& sent : job.fleet->sent(rank))
          switches_->carry(adapter_of(job, rank), adapter_of(job, sent.to), job.shape.spine_of(rank, sent.to),
                           static_cast<double>(sent.bytes) * steps);
      }
    }
    std::vector<SwitchFault> acting;
    for (size_t i = 0; i < scenario_.faults.size(); ++i) {
      const ScenarioFault& fault = scenario_.faults[i];
      if (!acts_at(i, at_ns)) continue;
      for (const Job& job : jobs_) {
        if (fault.target.job != job.plan->job_id) continue;
        acting.push_back({&fault, amount_at(scenario_, i, job.fleet->step()),
                          fault.target.rank != kNoRank ? adapter_of(job, fault.target.rank) : AdapterPlace{-1, -1}});
      }
    }
    push(at_ns + SwitchTelemetry::kReadEveryNs, Kind::kSwitches, 0);
    return switches_->read(at_ns, static_cast<double>(elapsed_ns) / 1e9, acting);
  }

  static AdapterPlace adapter_of(const Job& job, Rank rank) {
    return {job.shape.first_host + job.shape.host_of(rank), rank % job.shape.topology.gpus_per_host};
  }

  bool acts_at(size_t fault, int64_t at_ns) const {
    const Onset& onset = onsets_[fault];
    return onset.acted_unix_ns != 0 && at_ns >= onset.acted_unix_ns &&
           (onset.ended_unix_ns == 0 || at_ns < onset.ended_unix_ns);
  }

  void find_acting(const Host& host, const Job& job, int64_t at_ns) {
    acting_.clear();
    const int32_t gpus = scenario_.topology.gpus_per_host;
    for (size_t i = 0; i < scenario_.faults.size(); ++i) {
      const ScenarioFault& fault = scenario_.faults[i];
      const Target& target = fault.target;
      const Onset& onset = onsets_[i];
      if (target.job != job.plan->job_id) continue;
      if (onset.acted_unix_ns == 0) {
        add_sign(fault, sign_at(scenario_, i, job.fleet->step()), host, job);
        continue;
      }
      if (!acts_at(i, at_ns)) continue;
      const bool stopped = fault.cause == Cause::kProcessPaused && fault.steps == 0 && fault.shape == Shape::kConstant;
      const double amount =
          is_hang(fault.cause) || stopped ? fault.severity : amount_at(scenario_, i, job.fleet->step());
      if (target.spine >= 0) {  // adapters whose flows cross it
        for (Rank rank : job.conditions->fault_ranks()[i]) {
          if (job.shape.host_of(rank) == host.local)
            acting_.push_back({&fault, amount, rank % gpus, onset.acted_unix_ns});
        }
        continue;
      }
      int32_t gpu = -1;
      if (target.rank != kNoRank) {
        if (job.shape.host_of(target.rank) != host.local) continue;
        gpu = target.rank % gpus;
      } else if (target.host >= 0) {
        if (host.index != target.host) continue;
      } else if (target.leaf >= 0) {
        bool on_leaf = false;
        for (int32_t each = 0; each < gpus; ++each) {
          if (scenario_.topology.leaf_of(host.index, each) != target.leaf) continue;
          on_leaf = true;
          if (scenario_.topology.rails) gpu = each;
        }
        if (!on_leaf && fault.cause != Cause::kCongestion) continue;  // its marks are counted where packets arrive
      } else if (target.stage >= 0 || target.expert >= 0) {
        continue;  // nothing on a node
      }
      acting_.push_back({&fault, amount, gpu, onset.acted_unix_ns});
    }
    for (const FalseSign& sign : scenario_.signs) {
      if (sign.of.target.job == job.plan->job_id) add_sign(sign.of, sign_at(sign, job.fleet->step()), host, job);
    }
  }
  void add_sign(const ScenarioFault& fault, double sign, const Host& host, const Job& job) {
    if (sign <= 0 || fault.target.rank >= Rank{job.shape.world_size()} ||
        job.shape.host_of(fault.target.rank) != host.local)
      return;
    acting_.push_back({&fault, 0, fault.target.rank % scenario_.topology.gpus_per_host, 0, sign});
  }

  const Scenario scenario_;
  std::vector<Onset> onsets_;
  std::vector<bool> hang_over_;  // by fault: it was released or restarted
  std::vector<Job> jobs_;
  std::vector<Host> hosts_;
  std::priority_queue<Item> items_;
  uint64_t order_ = 0;
  std::deque<Batch> kept_;  // late and repeated requests; empty: sent
  size_t kept_first_ = 0;
  int64_t now_ns_ = 0;
  const int64_t read_every_ns_;
  size_t jobs_over_ = 0;
  std::optional<SwitchTelemetry> switches_;
  int64_t switches_read_ns_ = 0;
  std::vector<GpuActivity> activity_;
  std::vector<ActingFault> acting_;
};

ScenarioRun::ScenarioRun(const Scenario& scenario, int64_t start_unix_ns)
    : impl_(std::make_unique<Impl>(scenario, start_unix_ns)) {}
ScenarioRun::~ScenarioRun() = default;

std::optional<Sent> ScenarioRun::next() {
  return impl_->next();
}

const std::vector<ScenarioRun::Onset>& ScenarioRun::onsets() const {
  return impl_->onsets();
}

int64_t ScenarioRun::now_unix_ns() const {
  return impl_->now_unix_ns();
}

}  // namespace lockstep::sim
