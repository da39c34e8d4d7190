// What makes incidents: looks at verdicts and hardware alerts as they stand, hears events of the nodes, and asks the
// dependency graph who else is hit.
//
// A verdict counts once it is confirmed; that ranks died is news for kFailedNs. An event counts where it is an alert
// (alert/builtin_alerts.h); early warnings and the user's rules do not: nothing is broken, or they say so themselves.
// Order: made, note() and on_node_event() also while the log is read back, then go_live() and tick().
// Limits: kRadiiPerTick questions to the graph a tick: each looks at every rank.
// Thread rule: as a StoreSubscriber; note(), go_live() and tick() are for one thread. path_of() is Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "alert/alert_registry.h"
#include "analysis/cost/gpu_pricing.h"
#include "apply/subscriber.h"
#include "base/clock.h"
#include "diagnosis/verdict_source.h"
#include "incident/fault_place.h"
#include "incident/incident_registry.h"

namespace lockstep::incident {

class IncidentWatch final : public StoreSubscriber {
 public:
  static constexpr int64_t kSecondNs = 1'000'000'000;
  static constexpr int64_t kLookEveryNs = 5 * kSecondNs;
  static constexpr int64_t kFailedNs = 3'600 * kSecondNs;
  static constexpr size_t kRadiiPerTick = 2;

  struct Reads {
    const VerdictSource& diagnosis;
    const AlertRegistry& alerts;
    const fabric::Fabric& fabric;
    const GpuPricing* pricing = nullptr;  // nullptr: which GPUs a job has is not known
  };
  IncidentWatch(IncidentRegistry& incidents, Reads reads, const Clock& clock);

  void on_node_event(std::string_view host, const NodeEvent& event, int64_t received_unix_ns) override;
  void note(std::span<const Verdict> changed);
  void go_live();
  // is_behind: history is being read; what is not found again yet is not over.
  void tick(bool is_behind = false);

  // The page of the incident that an alert belongs to; empty: none is known yet.
  std::string path_of(const Alert& alert) const;

 private:
  void take(const Verdict& verdict, bool was_confirmed, int64_t now_unix_ns);
  void poll_verdicts(int64_t now_unix_ns, bool is_behind);
  void look_at_alerts(int64_t now_unix_ns, bool is_behind);
  void ask_the_graph(int64_t now_unix_ns);

  IncidentRegistry& incidents_;
  const Reads reads_;
  const Clock& clock_;
  bool live_ = false;
  int64_t looked_ns_ = 0;  // monotonic
};

}  // namespace lockstep::incident
