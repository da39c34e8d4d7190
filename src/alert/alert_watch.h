// Raises the built-in alerts: from verdicts, node events, metrics of GPUs, steps, silent agents, early warnings and
// inference services (builtin_alerts.h has the table).
//
// Verdicts, agents and warnings are looked at as they stand, so what was missed while the server was down is found by the
// first look. Until go_live() nothing is looked at: half a history would end what still lasts.
// Clocks: ages are by what the clock witness believes, and how long an agent is silent is counted here: a wall clock that is
// set makes nobody silent.
// Thread rule: as StoreSubscriber; note() and tick() are for one thread, poll_services() for one (another may be).
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "alert/actions/action_runner.h"
#include "alert/agent_watch.h"
#include "alert/alert_registry.h"
#include "alert/gpu_watch.h"
#include "alert/mfu_watch.h"
#include "analysis/cost/gpu_prices.h"
#include "apply/agent_registry.h"
#include "apply/subscriber.h"
#include "base/clock.h"
#include "base/clock_witness.h"
#include "diagnosis/verdict_source.h"
#include "store/metric_reader.h"
#include "store/span_store.h"

namespace lockstep {

class AlertWatch final : public StoreSubscriber {
 public:
  static constexpr int64_t kSecondNs = 1'000'000'000;
  static constexpr int64_t kLookEveryNs = 5 * kSecondNs;
  static constexpr int64_t kFailedNs = 3'600 * kSecondNs;  // so long a job that failed is an alert
  static constexpr int64_t kServicesEveryNs = 60 * kSecondNs;
  static constexpr size_t kServicesMax = 50;

  struct Reads {
    const VerdictSource& diagnosis;
    const AgentRegistry& agents;
    const SpanStore& spans;
    const MetricReader& metrics;
    std::function<GpuCost(const Verdict&)> cost_of = {};  // what its lost time is worth; empty: no money is named
  };
  AlertWatch(AlertRegistry& alerts, ActionRunner& actions, Reads reads, const Clock& clock,
             const ClockWitness& witness);

  void on_step(const Identity& identity, const StepSummary& summary, int64_t received_unix_ns) override;
  bool hears_metric(std::string_view name) const override { return GpuWatch::hears_metric(name); }
  void on_metrics(const Attributes& resource, std::span<const MetricPoint> points, int64_t received_unix_ns) override;
  void on_node_event(std::string_view host, const NodeEvent& event, int64_t received_unix_ns) override;

  void note(std::span<const Verdict> changed);
  void go_live();
  // is_behind: history is being read; whoever is not heard of yet is not missed, and a verdict that is not found again yet
  // is not over.
  void tick(bool is_behind = false);
  void poll_services();

 private:
  struct Service {
    std::deque<double> ttft_s;  // p90 of each look, the last hour's
    int bad = 0;
    int64_t looked_unix_ns = 0;
  };
  void poll_verdicts(int64_t now_unix_ns, bool is_behind);
  void poll_agents(int64_t now_unix_ns, int64_t monotonic_ns);
  void poll_jobs(int64_t now_unix_ns);
  void poll_warnings();
  bool is_slow(Service& service, double ttft_s) const;

  AlertRegistry& alerts_;
  ActionRunner& actions_;
  const Reads reads_;
  const Clock& clock_;
  const ClockWitness& witness_;
  AgentWatch agents_;
  GpuWatch gpus_;
  MfuWatch mfu_;
  std::atomic<bool> live_{false};
  bool verdicts_changed_ = false;
  int64_t live_since_ns_ = 0, looked_ns_ = 0;  // monotonic
  int64_t services_looked_ns_ = 0;
  std::map<std::string, Service> services_;
};

}  // namespace lockstep
