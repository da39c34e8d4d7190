// What the recorder watch keeps of one process, and what it carries through one poll of it.
//
// Thread rule: Confined. For recorder_watch.cc and rank_report.cc alone.
#pragma once

#include <set>

#include "agent/detail/detail_policy.h"
#include "agent/ranks/rank_metrics.h"
#include "agent/ranks/recorder_watch.h"
#include "sources/ownership/process_exit.h"

namespace lockstep {

inline constexpr const char* kAgentScope = "lockstep.agent";

struct RecorderWatch::WatchedRank {
  std::string path;
  std::string name;  // in its folder
  std::shared_ptr<const UserFolder> folder;
  std::unique_ptr<RecorderReader> reader;
  RecorderHeader header;  // as of the last poll
  Identity identity;
  Completion completion;
  int64_t found_ns = 0;
  int64_t numbered_ns = 0;  // when its rank was first known; 0: not yet
  Attributes resource;
  std::unique_ptr<RankAssembler> assembler;
  std::set<CommId> announced_comms;
  std::set<std::pair<std::string, std::vector<Rank>>> announced_groups;
  bool announced = false;
  bool unclean = false;                     // it died before it had ended its communicators or said that it was done
  bool ended = false;                       // job.end was sent
  bool dead = false;                        // the process is gone and everything was read
  bool death_noticed = false;               // one more drain after the process was found gone
  bool pid_checked = false;                 // whether the process that it names is its owner's
  bool pid_counts = false;                  // it is
  std::optional<ProcessExit> process_exit;  // where it is
  std::optional<std::string> code_version;  // empty: nobody knows; nullopt: it may still be said
  bool unread = false;                      // the last drain left something
  int64_t drains_after_death = 0;
  std::shared_ptr<const KeptRecorders::Keeping> keeping;
  uint64_t ticket = 0;  // of the last batch that held something of this rank
  bool ticket_pending = false;
  uint64_t written_seen = 0;
  uint64_t activity_seen = 0;
  int64_t moved_ns = 0;        // agent's clock, when it last moved
  int64_t next_status_ns = 0;  // quiet time at which the next status is due
  bool reported_quiet = false;
  bool suspected = false;   // quiet with an operation in flight
  int64_t reported_ns = 0;  // agent's clock, when anything was last told of it
  int64_t metrics_at_ns = 0;
  RankMetrics metrics;
  RecordCounts records;
  std::vector<bool> proxy_lanes;  // whose records are about the network
  RecorderCost cost_seen;
  std::array<uint64_t, kRefusedReasons> refused_seen{};
  int64_t looked_ns = 0;   // 0: not yet
  int64_t stopped_ns = 0;  // since the last step that was reported
  uint64_t orphans_seen = 0;
  uint64_t malformed_seen = 0;
  uint64_t held_back_seen = 0;
  bool switched_off_reported = false;
  DetailPolicy detail;
};

struct RecorderWatch::RankPoll {
  int64_t now_ns = 0;
  bool alive = false;
  bool stopped = false;  // by a signal or a debugger
  bool moved = false;
  bool over = false;  // the process is gone, and this is the drain after that was seen
  bool flush = false;
  bool overwritten = false;
  bool silence = false;                 // told as quiet, or moving again after that
  std::vector<InFlightComm> in_flight;  // where there was a reason to read it
  std::vector<LogRecord> records;
  bool urgent = false;
};

}  // namespace lockstep
