#include "agent/recorder_watch.h"

#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <set>

#include "base/log.h"
#include "base/text.h"
#include "model/events.h"

namespace lockstep {
namespace {

constexpr const char* kScope = "lockstep.agent";
constexpr int64_t kSecondNs = 1'000'000'000;

struct ProcessState {
  uint64_t start_ticks = 0;  // field 22 of /proc/PID/stat: tells a reused pid from ours. 0: no such process
  bool stopped = false;      // by a signal or a debugger
};

ProcessState state_of(int32_t pid) {
  Result<std::string> stat = read_file(format("/proc/%d/stat", pid), 65536);
  if (!stat.ok()) return {};
  size_t close = stat->rfind(')');  // the name before it may contain anything
  if (close == std::string::npos) return {};
  std::vector<std::string_view> fields = split(std::string_view(*stat).substr(close + 1), ' ');
  if (fields.size() < 21) return {};
  char letter = fields[1].empty() ? '?' : fields[1][0];
  if (letter == 'Z' || letter == 'X') return {};
  return {parse_uint(fields[20]).value_or(0), letter == 'T' || letter == 't'};
}

}  // namespace

struct RecorderWatch::Rank {
  std::string path;
  std::unique_ptr<RecorderReader> reader;
  RecorderHeader header;
  Identity identity;
  Attributes resource;
  std::unique_ptr<RankAssembler> assembler;
  std::set<uint64_t> announced_comms;
  bool announced = false;
  bool ended = false;          // job.end was sent
  bool dead = false;           // the process is gone and everything was read
  bool death_noticed = false;  // one more drain after the process was found gone
  uint64_t ticket = 0;         // of the last harvest that held something of this rank
  bool ticket_pending = false;
  uint64_t written_seen = 0;
  uint64_t activity_seen = 0;
  int64_t moved_ns = 0;        // agent's clock, when it last moved
  int64_t next_status_ns = 0;  // quiet time at which the next status is due
  bool told_quiet = false;
  int64_t told_ns = 0;  // agent's clock, when anything was last told of it
  int64_t metrics_at_ns = 0;
  uint64_t orphans_seen = 0;
  uint64_t lanes_refused_seen = 0;
  uint64_t events_refused_seen = 0;
  bool switched_off_told = false;
};

RecorderWatch::RecorderWatch(WatchOptions options, const Clock& clock, Counters& counters)
    : options_(std::move(options)), clock_(clock), counters_(counters) {
  inotify_ = UniqueFd(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (inotify_.valid()) inotify_add_watch(inotify_.get(), options_.folder.c_str(), IN_MOVED_TO | IN_CREATE);
}

RecorderWatch::~RecorderWatch() = default;

void RecorderWatch::wait(int64_t timeout_ms) {
  pollfd wait_for{inotify_.get(), POLLIN, 0};
  if (poll(&wait_for, 1, static_cast<int>(timeout_ms)) > 0) {
    char events[4096];
    while (read(inotify_.get(), events, sizeof events) > 0) {
    }
  }
}

void RecorderWatch::find_new() {
  Result<std::vector<std::string>> names = list_directory(options_.folder);
  if (!names.ok()) return;
  int64_t now = clock_.monotonic_ns();
  for (const std::string& name : *names) {
    if (!name.ends_with(kRecorderSuffix) || ranks_.contains(name)) continue;
    if (auto refused = refused_.find(name); refused != refused_.end() && now < refused->second) continue;
    std::string path = options_.folder + "/" + name;
    Result<std::unique_ptr<RecorderReader>> reader = RecorderReader::open(path);
    if (!reader.ok()) {
      if (refused_.emplace(name, 0).second) {
        counters_.add("lockstep_agent_recorder_refused_total");
        LOCKSTEP_LOG_WARN("agent", "%s; not read", reader.error().c_str());
      }
      refused_[name] = now + 10 * kSecondNs;
      continue;
    }
    refused_.erase(name);
    auto rank = std::make_unique<Rank>();
    rank->path = path;
    rank->reader = std::move(reader).value();
    rank->header = rank->reader->header();
    rank->assembler = std::make_unique<RankAssembler>(rank->header.anchor_unix_ns - rank->header.anchor_monotonic_ns);
    rank->moved_ns = now;
    rank->metrics_at_ns = now + options_.metrics_every_ns;
    ranks_[name] = std::move(rank);
  }
}

void RecorderWatch::look_at(Rank& rank, bool flush, Harvest& harvest) {
  if (rank.dead) return;
  int64_t now = clock_.monotonic_ns();
  ProcessState process = state_of(rank.header.pid);
  bool alive = process.start_ticks == rank.header.process_start_ticks;

  RecorderHeader header = rank.reader->header();
  rank.header.rank = header.rank;
  rank.header.world_size = header.world_size;
  Identity identity{header.job_id,     header.attempt, header.rank,    header.world_size,
                    header.local_rank, header.host,    header.gpu_uuid};
  if (!(identity == rank.identity) || rank.resource.empty()) {
    rank.identity = identity;
    rank.resource = to_resource(identity);
  }

  std::vector<InFlightComm> in_flight;
  uint64_t written = rank.reader->written_total();
  uint64_t activity = rank.reader->last_activity_ns();
  bool moved = written != rank.written_seen || activity != rank.activity_seen;
  std::vector<LogRecord> records;
  if (moved || !rank.announced || flush || !alive) {
    in_flight = rank.reader->in_flight();
    rank.assembler->set_comms(in_flight);
    RecorderReader::Drained drained =
        rank.reader->drain([&](uint32_t, const Record& record) { rank.assembler->add(record); });
    rank.assembler->end_drain(now, drained.overwritten + drained.torn);
    counters_.add("lockstep_agent_recorder_records_total", "", static_cast<int64_t>(drained.records));
    if (drained.overwritten > 0) {
      counters_.add("lockstep_agent_recorder_lost_total", "reason=\"overwritten\"",
                    static_cast<int64_t>(drained.overwritten));
      records.push_back(
          to_record(Gap{"ring_overwritten", static_cast<int64_t>(drained.overwritten)}, clock_.unix_ns()));
    }
    if (drained.torn > 0)
      counters_.add("lockstep_agent_recorder_lost_total", "reason=\"torn\"", static_cast<int64_t>(drained.torn));
    if (rank.assembler->orphans() > rank.orphans_seen) {
      counters_.add("lockstep_agent_recorder_lost_total", "reason=\"orphan\"",
                    static_cast<int64_t>(rank.assembler->orphans() - rank.orphans_seen));
      rank.orphans_seen = rank.assembler->orphans();
    }
    if (header.lanes_refused > rank.lanes_refused_seen) {
      counters_.add("lockstep_agent_plugin_refused_total", "reason=\"no_lane\"",
                    static_cast<int64_t>(header.lanes_refused - rank.lanes_refused_seen));
      rank.lanes_refused_seen = header.lanes_refused;
    }
    if (header.events_refused > rank.events_refused_seen) {
      counters_.add("lockstep_agent_plugin_refused_total", "reason=\"no_handle\"",
                    static_cast<int64_t>(header.events_refused - rank.events_refused_seen));
      rank.events_refused_seen = header.events_refused;
    }
  }
  // A rank whose number is not known yet (no RANK in its environment, no world communicator so far) belongs to no job.
  if (identity.rank < 0) {
    if (!alive) rank.dead = true;
    return;
  }
  if (moved) {
    rank.written_seen = written;
    rank.activity_seen = activity;
    rank.moved_ns = now;
  }
  if (!rank.announced) {
    records.push_back(job_start_record(rank.header.anchor_unix_ns));
    rank.announced = true;
  }
  for (const InFlightComm& comm : in_flight) {
    if (comm.live && rank.announced_comms.insert(comm.comm_id).second) {
      records.push_back(
          to_record(CommInit{comm.comm_id, comm.size, comm.rank_in_comm, comm.nodes, comm.name}, clock_.unix_ns()));
    }
  }
  if (header.switched_off != 0 && !rank.switched_off_told) {
    rank.switched_off_told = true;
    records.push_back(
        to_record(Gap{format("plugin_switched_off_%llu", static_cast<unsigned long long>(header.switched_off)), 0},
                  clock_.unix_ns()));
    LOCKSTEP_LOG_WARN("agent", "rank %d: the plugin switched itself off (reason %llu)", identity.rank,
                      static_cast<unsigned long long>(header.switched_off));
  }

  // One drain more after death: the process may have written between our drain and our look at /proc.
  bool over = !alive && rank.death_noticed;
  rank.death_noticed = !alive;
  for (const StepSummary& step : rank.assembler->take_steps(now, over || flush || rank.assembler->shut_down()))
    records.push_back(to_record(step));

  int64_t quiet = now - rank.moved_ns;
  auto tell_status = [&](bool process_alive, int64_t quiet_ns) {
    RankStatus status = rank.assembler->status(rank.reader->in_flight(), clock_.unix_ns(), quiet_ns);
    status.process_alive = process_alive;
    status.process_stopped = process_alive && process.stopped;
    int64_t last_call = static_cast<int64_t>(rank.reader->last_activity_ns());
    if (last_call != 0) status.last_call_unix_ns = last_call + header.anchor_unix_ns - header.anchor_monotonic_ns;
    records.push_back(to_record(status));
    harvest.urgent = true;
  };
  bool finished = rank.assembler->shut_down();
  if (alive && !finished) {
    if (moved && rank.told_quiet) {
      tell_status(true, 0);  // it moves again
      rank.told_quiet = false;
    }
    if (moved) rank.next_status_ns = options_.quiet_status_ns;
    if (moved && records.empty() && now - rank.told_ns >= options_.moving_status_ns) {
      RankStatus moving = rank.assembler->status(rank.reader->in_flight(), clock_.unix_ns(), 0);
      records.push_back(to_record(moving));
    }
    if (quiet >= rank.next_status_ns && rank.next_status_ns > 0) {
      tell_status(true, quiet);
      rank.told_quiet = true;
      rank.next_status_ns = quiet + std::max(kSecondNs, std::min(30 * kSecondNs, quiet / 4));
    }
  }
  if (!rank.ended && (finished || over)) {
    RankStatus last = rank.assembler->status(rank.reader->in_flight(), clock_.unix_ns(), quiet);
    bool clean = last.finished;
    if (!clean) tell_status(false, quiet);
    records.push_back(job_end_record(clock_.unix_ns(), clean));
    rank.ended = true;
    harvest.urgent = true;
  }

  if (!records.empty()) {
    rank.told_ns = now;
    harvest.logs.push_back({.resource = rank.resource, .scope_name = kScope, .logs = std::move(records)});
    rank.ticket_pending = true;
  }

  if (now >= rank.metrics_at_ns || over || flush) {
    rank.metrics_at_ns = now + options_.metrics_every_ns;
    std::vector<MetricPoint> points;
    int64_t time = clock_.unix_ns();
    auto point = [&](const char* name, const char* unit, MetricKind kind, Attributes attributes, double value) {
      MetricPoint out;
      out.name = name;
      out.unit = unit;
      out.kind = kind;
      out.temporality = kind == MetricKind::kSum ? Temporality::kCumulative : Temporality::kUnspecified;
      out.monotonic = kind == MetricKind::kSum;
      out.attributes = std::move(attributes);
      out.start_unix_ns = kind == MetricKind::kSum ? rank.header.anchor_unix_ns : 0;
      out.time_unix_ns = time;
      out.value = value;
      points.push_back(std::move(out));
    };
    point("lockstep_job_gpu_info", "1", MetricKind::kGauge, {}, 1);
    for (const auto& [key, totals] : rank.assembler->totals()) {
      Attributes attributes{{"function", to_text(key.first)}, {"comm_size", static_cast<int64_t>(key.second)}};
      point("lockstep_collective_operations_total", "1", MetricKind::kSum, attributes,
            static_cast<double>(totals.operations));
      point("lockstep_collective_bytes_total", "By", MetricKind::kSum, attributes, static_cast<double>(totals.bytes));
      point("lockstep_collective_gpu_seconds_total", "s", MetricKind::kSum, attributes,
            static_cast<double>(totals.gpu_ns) / 1e9);
      if (totals.gpu_ns > 0) {
        point("lockstep_collective_bus_bandwidth", "By/s", MetricKind::kGauge, attributes,
              totals.bus_bytes / (static_cast<double>(totals.gpu_ns) / 1e9));
      }
    }
    harvest.metrics.push_back({.resource = rank.resource, .scope_name = kScope, .points = std::move(points)});
    rank.ticket_pending = true;
  }
  if (over) rank.dead = true;
}

Harvest RecorderWatch::look_all(bool flush) {
  find_new();
  Harvest harvest;
  for (auto& [name, rank] : ranks_) look_at(*rank, flush, harvest);
  counters_.set("lockstep_agent_recorders", "", static_cast<int64_t>(ranks_.size()));
  return harvest;
}

Harvest RecorderWatch::look() {
  return look_all(false);
}

Harvest RecorderWatch::final_look() {
  return look_all(true);
}

void RecorderWatch::submitted(uint64_t ticket) {
  for (auto& [name, rank] : ranks_) {
    if (rank->ticket_pending) rank->ticket = ticket;
    rank->ticket_pending = false;
  }
}

void RecorderWatch::release(const std::function<bool(uint64_t)>& settled) {
  for (auto at = ranks_.begin(); at != ranks_.end();) {
    Rank& rank = *at->second;
    if (rank.dead && !rank.ticket_pending && settled(rank.ticket)) {
      unlink(rank.path.c_str());
      at = ranks_.erase(at);
    } else {
      ++at;
    }
  }
}

std::vector<Identity> RecorderWatch::identities() const {
  std::vector<Identity> all;
  for (const auto& [name, rank] : ranks_) {
    if (rank->identity.rank >= 0) all.push_back(rank->identity);
  }
  return all;
}

}  // namespace lockstep
