// The captures of a tenant: who ordered which ranks of which job to be profiled, and where each rank stands.
//
// An order is planned here: one first step for all ranks, so far ahead that every agent has fetched it and every
// process has asked for it (they do so every five seconds) before the first rank gets there. Its ranks' agents are asked
// through AgentCommands; what becomes of it they report as events, which arrive through the Applier. A rank of which
// no agent has said anything after kSilentNs is failed with that reason, until one does.
//
// Captures outlive a restart: each is kept in the state store, a moment after it changed.
//
// Once a capture has ended somebody may take it for analysis, newest first, and say what became of it; again where a
// trace comes late. Of those from before a start the newest kAnalyzedAtStart are given out, the others say that they are
// not analysed.
//
// By itself: on a verdict that is confirmed, of the culprits and one who waits for them; off unless is_automatic, or
// switched on for that job, and kAutomaticPerJob times an hour and job, kAutomaticPerHour in all.
// Limits: CaptureLimits. What is over is refused with one line and counted.
// Counts: lockstep_captures_total by reason, lockstep_captures_refused_total by reason.
// Thread rule: Thread-safe. Somebody calls tick() a few times a second.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "apply/subscriber.h"
#include "base/clock.h"
#include "base/counters.h"
#include "base/json_writer.h"
#include "base/mutex.h"
#include "base/result.h"
#include "control/detail_requester.h"
#include "model/profile_capture.h"
#include "model/verdict.h"
#include "store/state_store.h"
#include "store/step_store.h"

namespace lockstep {

struct CaptureLimits {
  size_t kept_max = 1'000;  // the oldest that has ended goes first
  size_t kept_ranks_max = 50'000;
  size_t ranks_per_capture = 256;
  size_t running_per_job = 1;  // a process takes one order at a time
  size_t running_max = 16;
  size_t running_ranks_max = 1'024;
  size_t per_job_and_hour = 30;
  int64_t bytes_per_rank = int64_t{1} << 30;       // where the order says nothing
  int64_t running_bytes_max = int64_t{512} << 30;  // of all ranks' limits together
};

struct CaptureRank {
  Rank rank;
  std::string host;
  bool is_reported = false;  // by its agent
  ProfileState state = ProfileState::kArmed;
  std::string reason;
  int64_t at_unix_ns = 0;  // of the last change
  // Once it is there; empty until then.
  std::string key;
  int64_t bytes = 0;
  std::string sha256;
  StepNumber first_step = kNoStep;
  int64_t steps = 0;
  bool operator==(const CaptureRank&) const = default;
};

// What the server has found in its traces (server/captures/capture_analyzer.h).
enum class SummaryState : uint8_t { kNone, kAnalysing, kReady, kFailed };
const char* to_text(SummaryState state);  // "none", "analysing", "ready", "failed"

struct CaptureSummary {
  SummaryState state = SummaryState::kNone;
  std::string error = {};  // why it failed: one line
  int64_t traces = 0;      // that it was made from
  bool operator==(const CaptureSummary&) const = default;
};

struct Capture {
  ProfileRequest order;  // its ranks: all of them
  int64_t begun_unix_ns = 0;
  std::string by;                  // "person", or "verdict v-..."
  std::vector<CaptureRank> ranks;  // by rank
  CaptureSummary summary = {};
  bool ended() const;
  size_t traces() const;  // that are stored
  bool operator==(const Capture&) const = default;
};
void write_capture(JsonWriter& json, const Capture& capture);
Result<Capture> capture_from_json(std::string_view text);

struct CaptureOrder {
  std::vector<Rank> ranks;  // sorted, each once
  int64_t steps = 5;
  int64_t limit_s = 0;    // 0: as long as the plan takes, and a minute
  int64_t bytes_max = 0;  // 0: CaptureLimits
  bool shapes = false;
  bool stacks = false;
  std::string by = "person";
};

class Captures final : public StoreSubscriber {
 public:
  // Processes ask every five seconds; the order takes a moment to its agent, and what the server knows of steps is old
  // by as much.
  static constexpr int64_t kLeadNs = 12'000'000'000;
  static constexpr int64_t kSilentNs = 30'000'000'000;
  static constexpr int64_t kUploadNs = 1'000'000'000'000;  // beyond the order's limit
  static constexpr size_t kAutomaticPerJob = 2;
  static constexpr size_t kAutomaticPerHour = 10;
  static constexpr size_t kAutomaticRanksMax = 4;
  static constexpr size_t kAnalyzedAtStart = 100;

  Captures(CaptureLimits limits, bool is_automatic, const StepStore& steps, StateStore& state,
           ProfileRequestSender& agents, const Clock& clock, Counters& counters);

  // Plans it and asks the agents. On error: one line, nothing was asked.
  Result<Capture> begin(const JobInfo& job, const CaptureOrder& order);
  std::vector<Capture> of_job(std::string_view job_id) const;  // newest first
  std::optional<Capture> find(std::string_view job_id, std::string_view id) const;

  bool has_for_analysis() const;
  // From then on it is being analysed, until set_summary().
  std::optional<Capture> take_for_analysis();
  void set_summary(const std::string& id, CaptureSummary summary);

  // Until the server is started again.
  void set_automatic(const std::string& job_id, bool on);
  bool is_automatic(std::string_view job_id) const;
  // Verdicts as they changed. Nothing happens before go_live(): what is read back asks nobody.
  void note(const std::vector<Verdict>& changed);
  void go_live() { live_ = true; }
  void tick();

  void on_profile_state(const Identity& identity, const ProfileProgress& progress, int64_t received_unix_ns) override;
  void on_profile_ready(const Identity& identity, const ProfileReady& ready, int64_t received_unix_ns) override;

 private:
  struct Entry {
    Capture capture;
    bool is_saved = false;
    bool wants_analysis = false;
  };
  static bool wants_analysis(const Capture& capture);
  void changed(Entry& entry) LOCKSTEP_REQUIRES(mutex_);
  ProfileRequest plan(const JobInfo& job, const CaptureOrder& order) const;
  std::string refused_by_limits(const JobInfo& job, const CaptureOrder& order) const LOCKSTEP_REQUIRES(mutex_);
  void ask_agents(Capture& capture);
  CaptureRank* find_rank(const Identity& identity, std::string_view id, Entry** entry) LOCKSTEP_REQUIRES(mutex_);
  void make_room() LOCKSTEP_REQUIRES(mutex_);
  void poll(Entry& entry, int64_t now_unix_ns) LOCKSTEP_REQUIRES(mutex_);
  void save_changed() LOCKSTEP_REQUIRES(mutex_);

  const CaptureLimits limits_;
  const bool automatic_everywhere_;
  const StepStore& steps_;
  StateStore& state_;
  ProfileRequestSender& agents_;
  const Clock& clock_;
  Counters& counters_;
  bool live_ = false;  // of the thread that looks

  mutable Mutex mutex_;
  std::map<std::string, Entry, std::less<>> by_id_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<std::string, bool, std::less<>> automatic_ LOCKSTEP_GUARDED_BY(mutex_);  // by job, where somebody chose
  std::set<std::string> verdicts_seen_ LOCKSTEP_GUARDED_BY(mutex_);
  bool failing_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  int64_t next_save_ns_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep
