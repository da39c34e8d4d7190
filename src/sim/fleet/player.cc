#include "sim/fleet/player.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "sim/fleet/rank_stacks.h"

namespace lockstep::sim {

namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kQuietStatusNs = 2 * kSecondNs;
constexpr int64_t kMetricsEveryNs = 5 * kSecondNs;
constexpr int64_t kNodeSideEveryNs = kSecondNs / 4;  // while no step ends
constexpr StepNumber kNextStep{-1};
constexpr const char* kScope = "lockstep.sim";

// Backdated for a job played faster than real time, so that no step ends in the server's future. Compilation in the
// first steps and faults make a job longer than this; a few seconds ahead harm nobody.
int64_t start_of(const JobShape& shape, const PlayerOptions& options) {
  const double length_ns = static_cast<double>(options.steps) * shape.step_ms * 1e6;
  return SystemClock().unix_ns() - static_cast<int64_t>(options.speed > 1 ? length_ns * (1 - 1 / options.speed) : 0);
}

bool same(const Fault& left, const Fault& right) {
  return left.kind == right.kind && left.rank == right.rank;
}

}  // namespace

Player::Player(JobShape shape, PlayerOptions options)
    : options_(std::move(options)),
      fleet_(shape, start_of(shape, options_)),
      start_job_ns_(fleet_.now_unix_ns()),
      faults_(options_.faults) {
  collectives_.resize(static_cast<size_t>(shape.world_size()));
}

void Player::inject(Fault fault) {
  MutexLock lock(mutex_);
  fault.from_step = kNextStep;
  faults_.push_back(fault);
}

void Player::clear() {
  MutexLock lock(mutex_);
  faults_.clear();
  cleared_ = true;
  wake_.notify_all();
}

std::vector<Fault> Player::faults_of(StepNumber step) {
  MutexLock lock(mutex_);
  cleared_ = false;
  std::vector<Fault> active;
  for (Fault& waiting : faults_) {
    if (waiting.from_step == kNextStep) waiting.from_step = step;
    Fault fault = waiting;
    if (step < fault.from_step || (fault.steps > 0 && step >= fault.from_step + fault.steps)) continue;
    // A missing rank is missing once; when it has entered after all, it goes on like the others.
    if (fault.kind == FaultKind::kMissingRank && fault.steps > 0 && step > fault.from_step) continue;
    if (fault.severity <= 0) fault.severity = default_severity(fault.kind, fleet_.shape().step_ms);
    active.push_back(fault);
  }
  return active;
}

void Player::announce(const std::vector<Fault>& active, StepNumber step) {
  if (options_.on_fault) {
    auto in = [](const std::vector<Fault>& list, const Fault& fault) {
      return std::any_of(list.begin(), list.end(), [&](const Fault& other) { return same(other, fault); });
    };
    for (const Fault& fault : announced_) {
      if (!in(active, fault)) options_.on_fault({fault, false, step});
    }
    for (const Fault& fault : active) {
      if (!in(announced_, fault)) options_.on_fault({fault, true, step});
    }
  }
  announced_ = active;
}

int64_t Player::job_now_ns() const {
  return start_job_ns_ +
         static_cast<int64_t>(static_cast<double>(SystemClock().monotonic_ns() - start_wall_ns_) * options_.speed);
}

bool Player::wait_until(int64_t job_ns, std::stop_token stop, bool wake_on_clear) {
  const auto wall_ns = static_cast<int64_t>(static_cast<double>(job_ns - job_now_ns()) / options_.speed);
  if (wall_ns <= 0) return !stop.stop_requested();
  MutexLock lock(mutex_);
  wake_.wait_for(mutex_, stop, std::chrono::nanoseconds(wall_ns),
                 [&]() LOCKSTEP_REQUIRES(mutex_) { return wake_on_clear && cleared_; });
  return !stop.stop_requested();
}

void Player::deliver_by_host(Signal signal, const std::function<void(Rank rank, ResourceGroup&)>& fill,
                             std::stop_token stop) {
  const JobShape& shape = fleet_.shape();
  for (Rank first = 0_rank; first < Rank{shape.world_size()}; first += shape.topology.gpus_per_host) {
    Batch batch{.signal = signal};
    for (Rank rank = first; rank < std::min(first + shape.topology.gpus_per_host, Rank{shape.world_size()}); ++rank) {
      ResourceGroup& group = batch.groups.emplace_back();
      group.resource = to_resource(fleet_.identity(rank));
      group.scope_name = kScope;
      fill(rank, group);
    }
    options_.deliver(batch, stop);
  }
}

void Player::deliver_logs(const std::function<std::vector<LogRecord>(Rank)>& records_of, std::stop_token stop) {
  deliver_by_host(
      Signal::kLogs, [&](Rank rank, ResourceGroup& group) { group.logs = records_of(rank); }, stop);
}

void Player::count_collectives() {
  for (Rank rank : all_ranks(fleet_.shape().world_size())) {
    std::vector<CollectiveTotals>& totals = collectives_[index_of(rank)];
    const StepSummary summary = fleet_.summary(rank);
    for (const CommStep& comm : summary.comms) {
      if (comm.p2p) continue;
      auto at = std::find_if(totals.begin(), totals.end(),
                             [&](const CollectiveTotals& other) { return other.size == comm.size; });
      if (at == totals.end()) at = totals.insert(totals.end(), {.size = comm.size});
      at->operations += comm.count;
      at->bytes += comm.bytes;
      at->gpu_ns += comm.gpu_ns;
      at->bus_bytes += static_cast<double>(comm.bytes) * 2 * (comm.size - 1) / comm.size;
    }
  }
}

void Player::deliver_metrics(int64_t job_ns, std::stop_token stop) {
  deliver_by_host(
      Signal::kMetrics,
      [&](Rank rank, ResourceGroup& group) {
        auto point = [&](const char* name, const char* unit, bool sum, Attributes attributes, double value) {
          MetricPoint& out = group.points.emplace_back();
          out.name = name;
          out.unit = unit;
          out.kind = sum ? MetricKind::kSum : MetricKind::kGauge;
          out.temporality = sum ? Temporality::kCumulative : Temporality::kUnspecified;
          out.monotonic = sum;
          out.attributes = std::move(attributes);
          out.start_unix_ns = sum ? start_job_ns_ : 0;
          out.time_unix_ns = job_ns;
          out.value = value;
        };
        point("lockstep_job_gpu_info", "1", false, {}, 1);
        for (const CollectiveTotals& totals : collectives_[index_of(rank)]) {
          const Attributes attributes{{"function", "AllReduce"}, {"comm_size", static_cast<int64_t>(totals.size)}};
          point("lockstep_collective_operations_total", "1", true, attributes, static_cast<double>(totals.operations));
          point("lockstep_collective_bytes_total", "By", true, attributes, static_cast<double>(totals.bytes));
          point("lockstep_collective_gpu_seconds_total", "s", true, attributes,
                static_cast<double>(totals.gpu_ns) / 1e9);
          if (totals.gpu_ns > 0)
            point("lockstep_collective_bus_bandwidth", "By/s", false, attributes,
                  totals.bus_bytes / (static_cast<double>(totals.gpu_ns) / 1e9));
        }
      },
      stop);
}

void Player::deliver_node_side(int64_t job_ns, std::stop_token stop) {
  if (options_.nodes) options_.nodes(fleet_, announced_, job_ns, stop);
  if (!options_.stacks_wanted) return;
  const std::vector<Rank> wanted = options_.stacks_wanted();
  if (wanted.empty()) return;
  Batch batch{.signal = Signal::kLogs};
  for (Rank rank : wanted) {
    if (rank < 0_rank || rank >= Rank{fleet_.shape().world_size()}) continue;
    ResourceGroup& group = batch.groups.emplace_back();
    group.resource = to_resource(fleet_.identity(rank));
    group.scope_name = kScope;
    group.logs = {to_record(stack_of(fleet_, rank, job_ns))};
  }
  if (!batch.groups.empty()) options_.deliver(batch, stop);
}

// Everyone is stuck: tells so until the missing rank enters (true), or the run is over (false).
bool Player::hold(std::stop_token stop) {
  const int64_t stuck_ns = fleet_.now_unix_ns();
  const auto step_ns = static_cast<int64_t>(fleet_.shape().step_ms * 1e6);
  int64_t enters_ns = INT64_MAX;
  for (const Fault& fault : announced_) {
    if (fault.kind == FaultKind::kMissingRank && fault.steps > 0)
      enters_ns = std::min(enters_ns, stuck_ns + fault.steps * step_ns);
  }
  const int64_t over_ns =
      options_.steps > 0 ? stuck_ns + (options_.steps - fleet_.step().value()) * step_ns : INT64_MAX;
  int64_t status_ns = stuck_ns + kQuietStatusNs;
  const bool has_node_side = options_.nodes || options_.stacks_wanted;
  hung_ = true;
  while (
      wait_until(std::min({status_ns, enters_ns, over_ns, has_node_side ? job_now_ns() + kNodeSideEveryNs : INT64_MAX}),
                 stop, true)) {
    const int64_t now = job_now_ns();
    deliver_node_side(now, stop);
    {
      MutexLock lock(mutex_);
      if (cleared_) enters_ns = now;
    }
    if (now >= enters_ns) {
      fleet_.release(enters_ns);
      hung_ = false;
      return true;
    }
    if (now >= over_ns) return false;
    if (now < status_ns) continue;
    deliver_logs([&](Rank rank) { return std::vector<LogRecord>{to_record(fleet_.status(rank, now))}; }, stop);
    status_ns = now + std::clamp((now - stuck_ns) / 2, kSecondNs, 30 * kSecondNs);
  }
  return false;
}

void Player::deliver_start(std::stop_token stop) {
  deliver_logs(
      [&](Rank rank) {
        std::vector<LogRecord> records{job_start_record(start_job_ns_)};
        for (const CommInit& comm : fleet_.comm_inits(rank)) records.push_back(to_record(comm, start_job_ns_));
        for (const CommGroup& group : fleet_.comm_groups(rank)) records.push_back(to_record(group, start_job_ns_));
        return records;
      },
      stop);
}

void Player::deliver_step(bool released, bool traced, std::stop_token stop) {
  deliver_logs(
      [&](Rank rank) {
        std::vector<LogRecord> records;
        if (released) {  // an agent that has told of a standstill tells when it is over
          RankStatus moving = fleet_.status(rank, fleet_.now_unix_ns());
          moving.quiet_ns = 0;
          records.push_back(to_record(moving));
        }
        records.push_back(to_record(fleet_.summary(rank)));
        return records;
      },
      stop);
  if (!traced) return;
  deliver_by_host(
      Signal::kSpans,
      [&](Rank rank, ResourceGroup& group) {
        group.spans = to_spans(fleet_.identity(rank), fleet_.detail(rank), SampledFor::kPeriodic);
      },
      stop);
}

void Player::deliver_end(std::stop_token stop) {
  const bool clean = !fleet_.hung();
  const int64_t end_ns = std::max(fleet_.now_unix_ns(), clean ? 0 : job_now_ns());
  deliver_logs(
      [&](Rank rank) {
        RankStatus last = fleet_.status(rank, end_ns);
        last.process_alive = false;
        last.finished = clean;
        std::vector<LogRecord> records;
        if (!clean) records.push_back(to_record(last));
        records.push_back(job_end_record({.time_unix_ns = end_ns, .clean = clean, .exit = {}}));
        return records;
      },
      stop);
}

void Player::run(std::stop_token stop) {
  start_wall_ns_ = SystemClock().monotonic_ns();
  deliver_start(stop);
  metrics_due_ns_ = start_job_ns_ + kMetricsEveryNs;
  while (!stop.stop_requested() && (options_.steps == 0 || fleet_.step() + 1 < StepNumber{options_.steps})) {
    const StepNumber step = fleet_.step() + 1;
    const std::vector<Fault> active = faults_of(step);
    announce(active, step);
    const bool traced = options_.trace_every > 0 && step % options_.trace_every == 0;
    const bool released = !fleet_.play_step(active, traced);
    if (released && !hold(stop)) break;
    if (!wait_until(fleet_.now_unix_ns(), stop, false)) break;
    deliver_step(released, traced, stop);
    step_ = step;
    deliver_node_side(fleet_.now_unix_ns(), stop);
    count_collectives();
    if (fleet_.now_unix_ns() >= metrics_due_ns_) {
      deliver_metrics(fleet_.now_unix_ns(), stop);
      metrics_due_ns_ = fleet_.now_unix_ns() + kMetricsEveryNs;
    }
  }
  deliver_end(stop);
  hung_ = false;
}

}  // namespace lockstep::sim
