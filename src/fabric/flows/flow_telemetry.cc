#include "fabric/flows/flow_telemetry.h"

namespace lockstep {

FlowTelemetry::FlowTelemetry(SwitchNames names, PortSeries::Push push, Counters& counters)
    : counters_(counters), directory_(std::move(names)), ports_(std::move(push), directory_, counters) {}

void FlowTelemetry::on_flows(const FlowReport& report, int64_t received_unix_ns) {
  const SwitchNumber number = directory_.find_or_add(report.exporter);
  if (number == kNoSwitch) {
    counters_.add("lockstep_flow_switches_left_out_total");
    return;
  }
  if (report.is_restarted) ports_.restarted(number);
  for (const PortName& name : report.names) directory_.set_port_name(number, name.port, name.name);
  for (const PortCounters& port : report.ports) {
    if (!port.name.empty()) directory_.set_port_name(number, port.port, port.name);
    ports_.add(number, port, received_unix_ns);
  }
  for (const FlowSample& sample : report.flows) {
    if (!sample.in_name.empty()) directory_.set_port_name(number, sample.in_port, sample.in_name);
    if (!sample.out_name.empty()) directory_.set_port_name(number, sample.out_port, sample.out_name);
    ports_.add(number, sample, received_unix_ns);
    flows_.add(number, sample, received_unix_ns);
  }
}

void FlowTelemetry::tick(int64_t now_unix_ns) {
  ports_.write(now_unix_ns);
  counters_.set("lockstep_flow_rows", "", static_cast<int64_t>(flows_.rows()));
  counters_.set("lockstep_flow_rows_replaced_total", "", static_cast<int64_t>(flows_.replaced()));
  counters_.set("lockstep_flow_ports", "", static_cast<int64_t>(ports_.ports()));
}

}  // namespace lockstep
