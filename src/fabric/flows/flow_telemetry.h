// What becomes of the flows and counters that switches report: the table of recent flows and the series of ports.
//
// Thread rule: Thread-safe.
#pragma once

#include "base/counters.h"
#include "fabric/flows/flow_table.h"
#include "fabric/flows/port_series.h"
#include "fabric/flows/switch_directory.h"
#include "fabric/flows/table_observer.h"
#include "model/flow.h"

namespace lockstep {

class FlowTelemetry final : public FlowSubscriber {
 public:
  FlowTelemetry(SwitchNames names, PortSeries::Push push, Counters& counters);

  void on_flows(const FlowReport& report, int64_t received_unix_ns) override;
  // A few times a second, by one thread.
  void tick(int64_t now_unix_ns);

  const FlowTable& flows() const { return flows_; }
  const fabric::FlowObserver& observer() const { return observer_; }

 private:
  void name_ports(SwitchNumber number, const FlowReport& report);

  Counters& counters_;
  SwitchDirectory directory_;
  FlowTable flows_{directory_};
  TableObserver observer_{flows_};
  PortSeries ports_;
  int64_t forgot_unix_ns_ = 0;
};

}  // namespace lockstep
