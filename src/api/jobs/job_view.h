// A job as the API shows it: what the store knows joined with what diagnosis says.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api/context.h"
#include "base/json_writer.h"
#include "net/http_server.h"

namespace lockstep {

// Nothing heard for so long: a rank or job is silent. Agents report a quiet process every few seconds.
inline constexpr int64_t kSilentAfterNs = 30'000'000'000;

// "ended" (every rank has), "silent", "running".
const char* job_state(const JobInfo& job, int64_t now_unix_ns);

struct JobView {
  JobInfo info;
  std::string state;     // job_state()
  std::string health;    // ok slow hang suspected unknown
  std::string sentence;  // the worst open verdict, else the summary of diagnosis
  std::string summary;
  size_t verdicts_open = 0;
  double lost_share = 0;     // of the worst open verdict
  double step_ms = 0;        // NaN where no step is known
  std::string cause, layer;  // of the worst open verdict; empty: none is open
};
JobView view_of(const ApiContext& context, JobInfo info);
void write_job(JsonWriter& json, const JobView& job);
// Worst first: hang, slow, suspected, unknown, ok; then by lost share; then by id.
bool is_worse(const JobView& a, const JobView& b);

// The job, also one of which only verdicts of an earlier run are left.
std::optional<JobInfo> find_job(const ApiContext& context, const std::string& job_id);
// "answers": what can be asked of some of its ranks; what no agent would answer is not offered. "answers_unknown": what of it
// may be asked without anybody here knowing whether it is answered.
void write_answers(JsonWriter& json, const ApiContext& context, const JobInfo& job);
// 404, with a suggestion where one is near.
HttpResponse unknown_job(const ApiContext& context, const std::string& job_id);

// ok, quiet (a status newer than its last step), silent, ended, failed (ended without saying so), dead.
std::string rank_state(const RankInfo& rank, int64_t now_unix_ns);

struct VerdictView {
  std::string id;
  std::string job_id;
  bool is_open = false;
  int64_t found_unix_ns = 0;
  std::string json;  // its own fields alone
};
// As an answer shows it: with what it costs in money ("lost_money", null where nothing has a price, and "money" in words)
// and with what was said of it: "feedback", null where nothing was. For those that are shown, not for all that are looked
// through.
std::string shown_json(const ApiContext& context, VerdictView verdict);
// Live verdicts of diagnosis first, as it orders them, then those of earlier runs that it no longer holds, newest
// first. The latter are never open: nothing that is heard now supports them. Their JSON says "cleared".
std::vector<VerdictView> verdicts_of(const ApiContext& context, const std::string& job_id);
// Of all jobs, newest first.
std::vector<VerdictView> all_verdicts(const ApiContext& context);
// Those that are open, and what has cleared of those that diagnosis still holds; likewise.
std::vector<VerdictView> live_verdicts(const ApiContext& context);
std::optional<VerdictView> find_verdict(const ApiContext& context, const std::string& id);
// What the ranks of a hang or a crash have left and is stored, for the verdicts of one answer: the store is asked once for
// each attempt of a job. Thread rule: Confined.
class VerdictFiles {
 public:
  explicit VerdictFiles(const ApiContext& context) : context_(context) {}
  // The same JSON with "files" and "files_total"; of another kind than a hang or a crash: unchanged.
  std::string added_to(std::string verdict_json);

 private:
  const ApiContext& context_;
  std::map<std::string, std::string> known_;  // by evidence_id(): the members; "": the store does not answer
};

// The same JSON with "incident": {"id", "state"}, the one that the verdict belongs to; null where there is none.
std::string with_incident(const ApiContext& context, const std::string& verdict_id, std::string verdict_json);

}  // namespace lockstep
