#include "fabric/flows/flow_telemetry.h"

namespace lockstep {

FlowTelemetry::FlowTelemetry(SwitchNames names, PortSeries::Push push, Counters& counters)
    : counters_(counters), directory_(std::move(names)), ports_(std::move(push), directory_, counters) {}

void FlowTelemetry::on_flows(const FlowReport& report, int64_t received_unix_ns) {
  const SwitchNumber number = directory_.find_or_add(report.exporter, received_unix_ns);
  if (number == kNoSwitch) {
    counters_.add("lockstep_flow_switches_left_out_total");
    return;
  }
  if (report.is_restarted) ports_.restarted(number);
  // Flows add up in any order. Of counters and names the newest counts, and a later datagram had it.
  if (report.late_datagrams == 0) {
    name_ports(number, report);
    ports_.add(number, report.ports, received_unix_ns);
  }
  ports_.add(number, report.flows, received_unix_ns);
  flows_.add(number, report.flows, received_unix_ns);
}

void FlowTelemetry::name_ports(SwitchNumber number, const FlowReport& report) {
  for (const PortName& name : report.names) directory_.set_port_name(number, name.port, name.name);
  for (const PortCounters& port : report.ports)
    if (!port.name.empty()) directory_.set_port_name(number, port.port, port.name);
  for (const FlowSample& sample : report.flows) {
    if (!sample.in_name.empty()) directory_.set_port_name(number, sample.in_port, sample.in_name);
    if (!sample.out_name.empty()) directory_.set_port_name(number, sample.out_port, sample.out_name);
  }
}

void FlowTelemetry::tick(int64_t now_unix_ns) {
  ports_.write(now_unix_ns);
  constexpr int64_t kForgetEveryNs = 60'000'000'000;
  if (now_unix_ns - forgot_unix_ns_ >= kForgetEveryNs || now_unix_ns < forgot_unix_ns_) {
    forgot_unix_ns_ = now_unix_ns;
    ports_.forget_silent(now_unix_ns);
    directory_.forget_silent(now_unix_ns);
  }
  counters_.set("lockstep_flow_rows", "", static_cast<int64_t>(flows_.rows()));
  counters_.set("lockstep_flow_rows_replaced_total", "", static_cast<int64_t>(flows_.replaced()));
  counters_.set("lockstep_flow_ports", "", static_cast<int64_t>(ports_.ports()));
}

}  // namespace lockstep
