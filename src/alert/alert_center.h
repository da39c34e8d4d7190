// All of src/alert for one tenant: the registry, what raises alerts, the user's rules, and the threads that evaluate and
// send. What the server makes and the API reads.
//
// Order: made, go_live() once what is stored was read back, tick() a few times a second, stop().
// Thread rule: note(), go_live(), tick() and stop() are for one thread; the rest is Thread-safe.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "alert/actions/action_runner.h"
#include "alert/alert_registry.h"
#include "alert/alert_watch.h"
#include "alert/notification_sender.h"
#include "alert/notify_config.h"
#include "alert/rules/rule_manager.h"
#include "base/clock.h"
#include "base/clock_witness.h"
#include "base/counters.h"

namespace lockstep {

struct AlertSettings {
  std::vector<Url> alertmanagers = {};
  NotifyConfig notify = {};
  std::vector<ActionConfig> actions = {};
  std::string external_url = {};  // where people reach the server; empty: links are paths
  std::vector<RuleGroup> rules = {};
};

// "http://am-1:9093,https://am-2/base": what --alertmanager takes.
Result<std::vector<Url>> parse_alertmanagers(const std::string& text);

class AlertCenter {
 public:
  struct Receiver {
    std::string name;
    std::string type;
    AlertSeverity least = AlertSeverity::kInfo;
    size_t waiting = 0;
  };

  // push: where what rules record is stored.
  AlertCenter(AlertSettings settings, StateStore& state, AlertWatch::Reads reads, RuleManager::Push push,
              const Clock& clock, const ClockWitness& witness, Counters& counters);
  ~AlertCenter();

  AlertRegistry& registry() { return registry_; }
  const AlertRegistry& registry() const { return registry_; }
  AlertWatch& watch() { return watch_; }
  RuleManager& rules() { return rules_; }
  const RuleManager& rules() const { return rules_; }
  ActionRunner& actions() { return actions_; }
  const ActionRunner& actions() const { return actions_; }
  const std::string& external_url() const { return settings_.external_url; }

  void note(std::span<const Verdict> changed) { watch_.note(changed); }
  void go_live();
  void tick(bool is_behind = false);  // as AlertWatch::tick()
  void stop();
  // As AlertRegistry::take_over() and ActionRunner::take_over().
  void take_over(std::span<const StoredAlertRow> rows, const std::function<bool(const Alert&)>& is_ours) {
    registry_.take_over(rows, is_ours);
    actions_.take_over(rows);
  }

  std::vector<AlertmanagerState> alertmanagers() const;
  std::vector<Receiver> receivers() const;

 private:
  // What may take long, off the thread that looks at jobs.
  class Evaluator final : public SenderThread {
   public:
    explicit Evaluator(AlertCenter& center) : center_(center) {}
    ~Evaluator() override { stop(); }

    void round() override {
      center_.evaluate([this] { return stopping(); });
    }

   private:
    AlertCenter& center_;
  };
  void evaluate(const std::function<bool()>& give_up);

  const AlertSettings settings_;
  AlertRegistry registry_;
  ActionRunner actions_;
  AlertWatch watch_;
  RuleManager rules_;
  bool live_ = false;
  std::vector<std::unique_ptr<NotificationSender>> senders_;
  std::vector<std::unique_ptr<AlertmanagerSender>> alertmanagers_;
  Evaluator evaluator_{*this};
};

}  // namespace lockstep
