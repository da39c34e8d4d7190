// What can be judged of a job with what is heard of it, and why not the rest: one row per question that diagnosis answers.
//
// A tired reader is to see in one look whether silence means health. Each row says what is there in numbers, and where
// something is missing, how to switch it on.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/ids.h"

namespace lockstep {

enum class Judged : uint8_t { kYes, kPartly, kNo };
const char* to_text(Judged judged);  // "judged", "partly", "not"

struct CoverageRow {
  std::string_view key;       // "links"
  std::string_view question;  // "which link is slow"
  Judged judged = Judged::kNo;
  std::string why;   // one line, with numbers
  std::string todo;  // how to switch it on; empty where nothing is missing
};

// How many of the job's hosts sent a metric of a kind lately.
struct HeardOnHosts {
  std::string_view key;
  std::string_view question;
  std::string_view what;  // "GPU clocks"
  std::string_view todo;
  size_t hosts = 0;
  std::vector<std::string> without;  // hosts of the job that sent none, the first few
};

// What is heard of a job: counted once, worded by coverage_of_job().
struct JobSeen {
  size_t ranks_expected = 0, ranks_heard = 0, ranks_reporting = 0;
  std::vector<Rank> missing;  // of those expected, never heard of or silent; the first few
  // Over the newest steps:
  size_t steps = 0, steps_complete = 0;    // complete: of every rank that was heard of
  size_t rows = 0, rows_inferred = 0;      // a rank's step each; inferred: its boundaries are guessed
  size_t rows_unseen = 0;                  // GPU times are missing
  size_t rows_lost = 0;                    // because records were lost
  size_t ranks_with_comms = 0, comms = 0;  // by the plugin
  size_t rows_with_comms = 0, steps_with_flows = 0;
  size_t ranks_with_input = 0, ranks_with_checkpoint = 0, ranks_with_phases = 0;
  size_t ranks_with_loss = 0, ranks_with_work = 0;  // work: tokens or FLOPs
  int64_t records_lost = 0;
  int64_t steps_stored = 0;  // of this job, all of its attempts that are stored
  bool ended = false;
  size_t hosts = 0, hosts_with_agent = 0;
  size_t hosts_with_stacks = 0;          // whose agent would take stacks
  size_t hosts_with_stacks_unknown = 0;  // whose agent may: it reports to a gateway
  std::vector<HeardOnHosts> signals;     // in the order in which they are shown
  size_t clocks_known = 0;
  double clock_error_us = 0;
  size_t ranks_with_stacks = 0, ranks_with_dumps = 0, ranks_with_ras = 0;
};

std::vector<CoverageRow> coverage_of_job(const JobSeen& seen);
// "judged: 14 of 18; not: links, storage"
std::string coverage_sentence(const std::vector<CoverageRow>& rows);

}  // namespace lockstep
