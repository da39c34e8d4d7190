// From slow flows to a place in the network: the adapter, link or switch that explains which flows of the job are slow
// and which are not (suspects.h), with what its ports report (port_evidence.h) and what changed there shortly before.
//
// A finding of an adapter, a link or "the fabric" gets its place: component, layer and cause where the network's side
// tells them apart, claims, who else depends on it, what else it could be. What cannot be told apart is said to be so:
// the place stays empty and the component names those that are left. Findings of anything else, and jobs of whose
// topology nothing is known, are left as they are.
//
// The answer of a look is kept for kLookAgainNs: detectors look at every step, switches report every ten seconds.
// Limits: kFindingsMax answers are kept, the oldest forgotten first; flows of at most kRanksMax ranks are asked, besides
//         those of the finding's own, and kFlowsMax of them weighed; whoever samples packets is asked for kPairsObserved
//         slow ones, evenly chosen.
// Thread rule: Thread-safe once look_at() was called.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "diagnosis/finding.h"
#include "diagnosis/network/port_evidence.h"
#include "diagnosis/network/seen_flows.h"
#include "diagnosis/network/suspects.h"
#include "diagnosis/window.h"
#include "fabric/fabric.h"
#include "store/metric_reader.h"

namespace lockstep {

// Both outlive the locator; nullptr: there is none.
struct NetworkView {
  const fabric::Fabric* fabric = nullptr;
  const MetricReader* metrics = nullptr;  // with the series of switch ports
};

class NetworkLocator {
 public:
  static constexpr int64_t kLookAgainNs = 2'000'000'000;
  static constexpr size_t kFindingsMax = 1'000;
  static constexpr size_t kRanksMax = 4'096;
  static constexpr size_t kFlowsMax = 65'536;
  static constexpr size_t kPairsObserved = 16;

  // Before anything is located.
  void look_at(NetworkView view) { view_ = view; }

  struct Moment {
    const std::string& job_id;
    const JobWindow& window;
    int64_t since_unix_ns = 0;  // when the finding began
    int64_t now_unix_ns = 0;
  };
  void locate(const Moment& moment, Finding& finding) const;

 private:
  // What a look found out.
  struct Located {
    int64_t looked_unix_ns = 0;
    std::string component;  // empty: nothing was found out
    std::string place;      // empty: it is not one place
    Layer layer = Layer::kUnknown;
    Cause cause = Cause::kNone;
    Rank rank = kNoRank;         // of an adapter
    bool in_the_fabric = false;  // switches and links between them alone
    std::vector<Claim> claims;
    std::vector<Alternative> alternatives;
    std::vector<NextAction> next;
  };
  struct Question;  // of one look

  Located search(const Moment& moment, const Finding& finding) const;
  void weigh(Question& question) const;
  static void add_flow_claims(const Question& question, Located& located);
  void add_changes(const Question& question, Located& located) const;
  void add_affected(const Question& question, Located& located) const;
  static void apply(const Located& located, const JobWindow& window, Finding& finding);

  NetworkView view_;
  mutable Mutex mutex_;
  mutable std::map<std::string, Located> known_ LOCKSTEP_GUARDED_BY(mutex_);  // by job and what is found
};

}  // namespace lockstep
