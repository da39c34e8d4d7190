// Follows findings over time as verdicts: suspected when first found, confirmed once a finding is sure, cleared when
// enough healthy steps have passed.
//
// A verdict keeps its id while its numbers change. Findings of one key (kind, fault class, subject or ranks) are one
// verdict; one that is found again soon after it was cleared is open again. A standstill, or a failure, is one verdict,
// and who is to blame for it is corrected as more is heard; what is sure by what is sure. A suspicion that does not last
// is withdrawn and leaves no trace; a verdict that was confirmed stays, cleared, when the trouble is over.
// Limits: kVerdictsMax verdicts a job; beyond, the oldest is forgotten.
// Thread rule: Confined (the engine calls it under its lock).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "diagnosis/finding.h"
#include "diagnosis/window.h"
#include "model/verdict.h"

namespace lockstep {

// A verdict that was kept before a restart.
struct KnownVerdict {
  std::string id;
  std::string job_id;
  StepNumber since_step = kNoStep;
  StepNumber through_step = kNoStep;
};

struct TrackedVerdict {
  Verdict verdict;
  Finding finding;  // the newest of its key
  std::string key;
  bool was_confirmed = false;
  StepNumber found_at_step = kNoStep;  // newest complete step at which it was last found
  double lost_ns = 0;                  // summed over the steps since
  StepNumber priced_through = kNoStep;
  std::vector<StepNumber> late_in;  // steps in which the culprit was late, the newest kLateStepsMax of them
  StepNumber looked_through = kNoStep;

  bool open() const { return verdict.state != VerdictState::kCleared; }
};

// What a detector points at before anybody explains it: "net" for links, adapters and switches, else "own". Findings of
// one rank with one of these are one verdict, whatever layer the newest numbers point at.
const char* fault_class_of(const Finding& finding);

class VerdictTracker {
 public:
  static constexpr size_t kLateStepsMax = 512;
  static constexpr size_t kVerdictsMax = 1000;  // per job: a job that flaps for weeks keeps its newest

  // The job as it stands when its findings come.
  struct JobState {
    const std::string& id;
    int64_t attempt = 0;
    const JobWindow& window;
    bool over = false;   // every rank has ended
    bool quiet = false;  // some rank is quiet or dead
  };
  enum class Findings { kSteps, kHangs };  // kHangs: and failures

  // The same trouble, found again in the same steps, gets its old id; a new one gets an id that none of these has.
  void restore(std::vector<KnownVerdict> known);

  // All findings of one sort that there are now: opens, confirms and updates their verdicts, and clears or withdraws
  // those of that sort which are no longer found.
  void follow(const JobState& job, Findings sort, const std::vector<Finding>& findings, int64_t now_unix_ns);

  // A restart begins anew: every verdict of the job is cleared, and only what was confirmed is kept.
  void begin_attempt(const std::string& job_id);
  void forget(const std::string& job_id);

  std::span<const TrackedVerdict> of(std::string_view job_id) const;  // oldest first; until the next change
  // Since when the open verdict on the same trouble has been there; 0: none.
  int64_t open_since_unix_ns(std::string_view job_id, const Finding& finding) const;
  std::vector<Finding> confirmed_hangs(std::string_view job_id) const;
  // Steps in which a rank was slow in every step and has a verdict for it.
  std::vector<AttributedRange> attributed_ranges(std::string_view job_id) const;

  // Open ones first, the newest first; of every job if job_id is empty.
  std::vector<Verdict> verdicts(std::string_view job_id) const;
  // Verdicts that changed since the last call.
  std::vector<Verdict> take_changed();

 private:
  struct JobVerdicts {
    std::vector<TrackedVerdict> tracked;
    std::map<std::string, int> serial;  // how many verdicts of a key there have been
  };

  TrackedVerdict& open(const JobState& job, JobVerdicts& verdicts, const Finding& finding, StepNumber newest_step,
                       int64_t now_unix_ns);
  void clear_healthy(const JobState& job, Findings sort, std::vector<TrackedVerdict>& tracked,
                     const std::set<std::string>& found, StepNumber newest_step);
  std::string id_of(const JobState& job, JobVerdicts& verdicts, const std::string& key, const Finding& finding);

  std::map<std::string, JobVerdicts, std::less<>> jobs_;
  std::map<std::string, Verdict> changed_;                               // by id
  std::map<std::string, std::vector<KnownVerdict>, std::less<>> known_;  // by job; those not found again yet
};

}  // namespace lockstep
