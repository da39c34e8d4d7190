// How diagnosis words things, in one place: names of ranks, hosts and groups, claims with numbers that people can say.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <string>
#include <vector>

#include "diagnosis/finding.h"
#include "diagnosis/window.h"

namespace lockstep {

// "Rank 5 (node-17, GPU 3)"
std::string name_of(const JobWindow& window, Rank rank);
// "group of ranks 4 and 5"
std::string group_name(const JobWindow& window, CommId comm_id);
// What a claim is measured by, and against what: its own past, its peers. 0: not compared.
struct ClaimNumbers {
  double value = 0;
  std::string unit;
  double baseline = 0;
  double peers = 0;
};
Claim claim(ClaimKind kind, std::string subject, std::string text, ClaimNumbers numbers, StepNumber from, StepNumber to,
            std::string query);
// The query of a claim is that of its measure (measure.h); "{job}" is filled in by the tracker. Where a claim has no
// number, these show what it is about.
std::string steps_query(StepNumber from, StepNumber to);
// How long a rank had been quiet when it reported this.
std::string quiet_query(Rank rank, const RankStatus& status);
// What to do about a process that is gone while others wait for it, and about one that is stopped.
NextAction after_death();
NextAction after_stop();
// "118 ms a step": nanoseconds per step.
std::string per_step(double ns);
std::string percent(double share);
// "one step of 3.4", or "every step".
std::string one_step_of(double every);
// So many ranks that were heard of, as a share of the job; 1 where its size is not known.
double coverage_of(const JobWindow& window, size_t ranks);
// Ranks that share a communicator with the culprit, directly or through others: everybody who waits.
std::vector<Rank> victims_of(const JobWindow& window, const std::vector<Rank>& culprits);
// Claims that walk from the victims to the culprit, communicator by communicator.
void add_wait_claims(const JobWindow& window, Rank culprit, const std::vector<StepNumber>& steps, Finding& finding);
// The culprit's network against its peers' over these steps, as an exclusion; nothing where there is no network
// traffic.
void add_network_exclusion(const JobWindow& window, Rank culprit, const std::vector<StepNumber>& steps,
                           Finding& finding);
// What to look at where the way between two ranks is slow.
NextAction look_at_path(Rank from, Rank to);

}  // namespace lockstep
