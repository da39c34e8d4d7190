// RecorderWatch: what is told of a rank, from what was read of it.
#include <algorithm>

#include "agent/evidence/evidence_taker.h"
#include "agent/ranks/recorder_watch.h"
#include "agent/ranks/user_limits.h"
#include "agent/ranks/watched_rank.h"
#include "base/log.h"
#include "base/text.h"
#include "model/events.h"

namespace lockstep {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
// A rank is in a few groups per dimension of its mesh; what makes more of them is no mesh.
constexpr size_t kGroupsPerRankMax = 256;
// The hook leaves a few short lines.
constexpr size_t kLeftFailureBytesMax = 4096;

}  // namespace

void RecorderWatch::announce(WatchedRank& rank, RankPoll& seen) {
  if (!rank.announced) {
    seen.records.push_back(job_start_record(rank.header.anchor_unix_ns));
    if (rank.code_version && !rank.code_version->empty())
      seen.records.back().attributes.push_back({"version", *rank.code_version});
    rank.announced = true;
  }
  size_t reported = 0;
  for (const InFlightComm& comm : seen.in_flight) {
    if (!comm.live || rank.announced_comms.contains(CommId{comm.comm_id})) continue;
    if (rank.announced_comms.size() >= user_limits::kCommsPerRankMax) {
      user_limits::count_over(counters_, "communicators", rank.folder->owner());
      break;
    }
    if (++reported > user_limits::kCommsPerPollMax) {
      rank.unread = true;  // the others in the next poll
      break;
    }
    if (rank.announced_comms.insert(CommId{comm.comm_id}).second) {
      seen.records.push_back(to_record(
          CommInit{CommId{comm.comm_id}, comm.size, comm.rank_in_comm, comm.nodes, comm.name}, clock_.unix_ns()));
    }
  }
  for (const CommGroup& group : rank.assembler->take_groups()) {
    // A framework may tell a group again and again; once is enough.
    if (rank.announced_groups.size() < kGroupsPerRankMax &&
        rank.announced_groups.emplace(group.name, group.ranks).second)
      seen.records.push_back(to_record(group, clock_.unix_ns()));
  }
  if (rank.header.switched_off != 0 && !rank.switched_off_reported) {
    rank.switched_off_reported = true;
    const auto reason = static_cast<unsigned long long>(rank.header.switched_off);
    seen.records.push_back(to_record(Gap{format("plugin_switched_off_%llu", reason), 0}, clock_.unix_ns()));
    LOCKSTEP_LOG_WARN("agent", "rank %d: the plugin switched itself off (reason %llu)", rank.identity.rank.value(),
                      reason);
  }
}

void RecorderWatch::report_status(WatchedRank& rank, RankPoll& seen, bool alive, int64_t quiet_ns) {
  RankStatus status = rank.assembler->status(rank.reader->in_flight(), clock_.unix_ns(), quiet_ns);
  status.process_alive = alive;
  status.process_stopped = alive && seen.stopped;
  const auto last_call = static_cast<int64_t>(rank.reader->last_activity_ns());
  if (last_call != 0)
    status.last_call_unix_ns = last_call + rank.header.anchor_unix_ns - rank.header.anchor_monotonic_ns;
  // What a rank had launched before it last moved is not where it stands.
  const auto answer = ras_ != nullptr ? ras_->answer() : nullptr;
  rank.suspected = false;
  for (CommStatus& comm : status.comms) {
    rank.suspected |= alive && quiet_ns > 0 && (comm.collective.is_in_flight() || comm.p2p.is_in_flight());
    if (answer && answer->asked_ns >= rank.moved_ns)
      comm.launched = launched_by(answer->report, comm.comm_id, comm.rank_in_comm);
  }
  seen.records.push_back(to_record(status));
  seen.urgent = true;
}

void RecorderWatch::report_progress(WatchedRank& rank, RankPoll& seen) {
  const int64_t quiet = seen.now_ns - rank.moved_ns;
  const bool finished = rank.assembler->shut_down();
  if (seen.alive && !finished) {
    if (seen.moved && rank.reported_quiet) {
      report_status(rank, seen, true, 0);  // it moves again
      rank.reported_quiet = false;
      seen.silence = true;
    }
    if (seen.moved) rank.next_status_ns = options_.quiet_status_ns;
    if (seen.moved && seen.records.empty() && seen.now_ns - rank.reported_ns >= options_.moving_status_ns)
      seen.records.push_back(to_record(rank.assembler->status(rank.reader->in_flight(), clock_.unix_ns(), 0)));
    if (quiet >= rank.next_status_ns && rank.next_status_ns > 0) {
      report_status(rank, seen, true, quiet);
      rank.reported_quiet = true;
      rank.next_status_ns = quiet + std::max(kSecondNs, std::min(30 * kSecondNs, quiet / 4));
      seen.silence = true;
    }
  } else {
    rank.suspected = false;
  }
  if (!rank.ended && (finished || seen.over)) {
    RankEnd end{.time_unix_ns = clock_.unix_ns()};
    if (seen.over && rank.process_exit) end.exit = rank.process_exit->status();
    end.clean = rank.assembler->status(rank.reader->in_flight(), clock_.unix_ns(), quiet).finished;
    // What ended the main thread ended the process, whatever was tidied up behind it.
    const UserFile left = rank.folder->open_file(hook_failed_path(rank.name), {.bytes_max = kLeftFailureBytesMax});
    if (left.ok()) {
      LeftFailure failure = parse_left_failure_untrusted(left.read(kLeftFailureBytesMax));
      if (!failure.thread) end.clean &= failure.reason.empty();
      if (!end.clean) {
        end.reason = std::move(failure.reason);
        end.reason_unix_ns = failure.time_unix_ns;
      }
    }
    rank.unclean = !end.clean;
    if (!end.clean) report_status(rank, seen, false, quiet);
    seen.records.push_back(job_end_record(end));
    rank.ended = true;
    seen.urgent = true;
  }
}

void RecorderWatch::report_metrics(WatchedRank& rank, const RankPoll& seen, CollectedBatch& batch) {
  rank.metrics_at_ns = (seen.now_ns / options_.metrics_every_ns + 1) * options_.metrics_every_ns;
  const RecorderCost cost = rank.reader->cost();
  if (cost.events > rank.cost_seen.events)
    counters_.add("lockstep_plugin_events_total", "", static_cast<int64_t>(cost.events - rank.cost_seen.events));
  if (cost_ != nullptr) cost_->add(rank.cost_seen, cost);
  rank.cost_seen = cost;
  std::vector<MetricPoint> points =
      rank.metrics.take({.header = rank.header,
                         .cost = cost,
                         .records = rank.records,
                         .assembler = *rank.assembler,
                         .channels_apart = full_detail_asked(rank.header.control, seen.now_ns),
                         .last = seen.over || seen.flush,
                         .gpu_info_reported = rank.completion.gpu_info_reported},
                        seen.now_ns, clock_.unix_ns());
  if (rank.metrics.held_back() > rank.held_back_seen) {
    counters_.add("lockstep_agent_points_held_back_total", "reason=\"network\"",
                  static_cast<int64_t>(rank.metrics.held_back() - rank.held_back_seen));
    rank.held_back_seen = rank.metrics.held_back();
  }
  batch.metrics.push_back({.resource = rank.resource, .scope_name = kAgentScope, .points = std::move(points)});
  rank.ticket_pending = true;
}

void RecorderWatch::ask_ras() {
  if (ras_ == nullptr) return;
  bool any = false, suspected = false, safe = true;
  for (const auto& [name, rank] : ranks_) {
    if (rank->dead || rank->death_noticed) continue;
    any = true;
    suspected |= rank->suspected;
    safe &= ras_is_safe(rank->header);  // all processes of a node share the port: nobody knows who answers
  }
  if (any) ras_->consider(suspected, safe);
}

void RecorderWatch::report_ras(CollectedBatch& batch) {
  const auto answer = ras_ != nullptr ? ras_->answer() : nullptr;
  if (!answer || answer->number == ras_reported_) return;
  ras_reported_ = answer->number;
  for (const RasComm& comm : answer->report.comms) {
    const std::optional<CommRas> trouble = fault_class_of(comm, answer->suspected);
    if (!trouble) continue;
    // One of its ranks here speaks for it; the rest of the job, and other jobs, have agents of their own.
    for (auto& [name, rank] : ranks_) {
      if (rank->dead || !rank->announced_comms.contains(CommId{comm.hash})) continue;
      batch.logs.push_back(
          {.resource = rank->resource, .scope_name = kAgentScope, .logs = {to_record(*trouble, clock_.unix_ns())}});
      batch.urgent = true;
      rank->ticket_pending = true;
      break;
    }
  }
}

}  // namespace lockstep
