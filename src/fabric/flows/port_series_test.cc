#include "fabric/flows/port_series.h"

#include <gtest/gtest.h>

#include <map>

#include "base/files.h"
#include "base/text.h"
#include "fabric/flows/flow_telemetry.h"
#include "model/roce.h"
#include "model/series_labels.h"

namespace lockstep {
namespace {

constexpr int64_t kNow = 1'700'000'000'000'000'000;
constexpr int64_t kSecond = 1'000'000'000;

constexpr CounterDescriptor kRows[] = {
    {"lockstep_port_samples_dropped_total", "counter", Severity::kDataLoss, "x"},
    {"lockstep_flow_switches_left_out_total", "counter", Severity::kDataLoss, "x"},
    {"lockstep_flow_rows", "gauge", Severity::kInfo, "x"},
    {"lockstep_flow_rows_replaced_total", "counter", Severity::kInfo, "x"},
    {"lockstep_flow_ports", "gauge", Severity::kInfo, "x"},
};

// The newest value of every series that was pushed, by what PromQL would call it.
struct World {
  std::map<std::string, double> values;
  bool is_broken = false;
  Counters counters{kRows};
  FlowTelemetry telemetry{*parse_switch_names({"10.1.0.1=leaf1"}),
                          [this](std::string_view stream, std::span<const PushedSeries> series,
                                 const std::function<Result<Labels>(size_t)>& canonical) -> Result<PushOutcome> {
                            if (is_broken) return Error{"disk full"};
                            EXPECT_EQ(stream, "ports/leaf1");
                            for (size_t k = 0; k < series.size(); ++k) {
                              const Result<Labels> labels = canonical(k);
                              EXPECT_TRUE(labels.ok());
                              std::string text(label_value(*labels, kMetricNameLabel));
                              EXPECT_EQ(label_value(*labels, "switch"), "leaf1");
                              text += " " + std::string(label_value(*labels, "port"));
                              text += " " + std::string(label_value(*labels, "direction"));
                              values[text] = series[k].values.back();
                            }
                            return PushOutcome{};
                          },
                          counters};
  int64_t now_ns = kNow;

  void send(FlowReport report) {
    report.exporter.address = *parse_ip("10.1.0.1");
    telemetry.on_flows(report, now_ns);
    now_ns += 10 * kSecond;
    telemetry.tick(now_ns);
  }
  void send(const PortCounters& port, bool is_restarted = false) {
    FlowReport report;
    report.is_restarted = is_restarted;
    report.ports = {port};
    send(std::move(report));
  }
  void send(const FlowSample& flow) {
    FlowReport report;
    report.flows = {flow};
    send(std::move(report));
  }
};

PortCounters port_17() {
  PortCounters port;
  port.port = 17;
  port.name = "Ethernet17";
  port.has_generic = true;
  port.speed_bits = 400'000'000'000;
  port.is_up = true;
  port.in_bytes = 1ull << 40;
  port.out_bytes = 5;
  for (uint32_t& packets : port.in_packets) packets = 100;
  port.in_errors = 7;
  port.out_discards = 9;
  return port;
}
FlowSample flow_of(uint32_t in_port, uint32_t out_port, uint64_t bytes) {
  FlowSample flow;
  flow.has_key = true;
  flow.in_port = in_port;
  flow.out_port = out_port;
  flow.bytes = bytes;
  flow.packets = 10;
  return flow;
}

TEST(PortSeries, WritesCountersOfAPortUnderItsName) {
  World world;
  world.send(port_17());
  EXPECT_EQ(world.values["lockstep_port_bytes_total Ethernet17 in"], 1099511627776.0);
  EXPECT_EQ(world.values["lockstep_port_bytes_total Ethernet17 out"], 5);
  EXPECT_EQ(world.values["lockstep_port_packets_total Ethernet17 in"], 300);
  EXPECT_EQ(world.values["lockstep_port_errors_total Ethernet17 in"], 7);
  EXPECT_EQ(world.values["lockstep_port_discards_total Ethernet17 out"], 9);
  EXPECT_EQ(world.values["lockstep_port_up Ethernet17 "], 1);
  EXPECT_EQ(world.values["lockstep_port_speed_bytes_per_second Ethernet17 "], 50e9);
  EXPECT_FALSE(world.values.contains("lockstep_port_packets_total Ethernet17 out")) << "the switch has no such counter";
  EXPECT_FALSE(world.values.contains("lockstep_port_fcs_errors_total Ethernet17 in"));
}

TEST(PortSeries, WritesPeaksOfBuffersAsShares) {
  World world;
  PortCounters port;
  port.port = 17;
  port.has_buffers = true;
  port.out_buffer_peak = 2'500;
  world.send(port);
  EXPECT_EQ(world.values["lockstep_port_buffer_peak_ratio 17 out"], 0.25);
  EXPECT_FALSE(world.values.contains("lockstep_port_buffer_peak_ratio 17 in"));
}

TEST(PortSeries, CountersGoOnAroundTheEndOf32Bits) {
  World world;
  PortCounters port = port_17();
  port.in_packets[0] = 4'294'967'000;
  world.send(port);
  EXPECT_EQ(world.values["lockstep_port_packets_total Ethernet17 in"], 4'294'967'200.0);
  port.in_packets[0] = 704;  // 1000 more
  world.send(port);
  EXPECT_EQ(world.values["lockstep_port_packets_total Ethernet17 in"], 4'294'968'200.0);
}

TEST(PortSeries, CountersBeginAnewWithTheSwitch) {
  World world;
  PortCounters port = port_17();
  port.in_errors = 4'000'000'000;
  world.send(port);
  // The restart is seen in a datagram about another port.
  PortCounters other = port_17();
  other.port = 18;
  other.name = "Ethernet18";
  world.send(other, true);
  port.in_errors = 3;
  world.send(port);
  EXPECT_EQ(world.values["lockstep_port_errors_total Ethernet17 in"], 3);
  port.in_errors = 5;
  world.send(port);
  EXPECT_EQ(world.values["lockstep_port_errors_total Ethernet17 in"], 5);
}

TEST(PortSeries, ACounterThatSomebodySetToZeroDoesNotLeapAhead) {
  World world;
  PortCounters port = port_17();
  port.in_errors = 1000;
  world.send(port);
  port.in_errors = 1;
  world.send(port);
  EXPECT_EQ(world.values["lockstep_port_errors_total Ethernet17 in"], 1);
}

TEST(PortSeries, ALateDatagramIsNoResetOfCounters) {
  World world;
  PortCounters port = port_17();
  port.in_errors = 1000;
  world.send(port);
  FlowReport late;
  late.late_datagrams = 1;
  port.name = "Ethernet17-before";
  port.in_errors = 900;
  port.in_bytes = 7;
  late.ports = {port};
  late.flows = {flow_of(1, 2, 5000)};
  world.send(late);
  EXPECT_EQ(world.values["lockstep_port_errors_total Ethernet17 in"], 1000);
  EXPECT_EQ(world.values["lockstep_port_bytes_total Ethernet17 in"], 1099511627776.0);
  EXPECT_EQ(world.values["lockstep_port_flow_bytes_total 2 out"], 5000) << "flows add up in any order";
  EXPECT_FALSE(world.values.contains("lockstep_port_errors_total Ethernet17-before in"));
}

TEST(PortSeries, OneSwitchHasABoundedNumberOfPortsAndForgetsSilentOnes) {
  World world;
  FlowReport report;
  for (uint32_t port = 1; port <= SwitchDirectory::kPortsPerSwitchMax + 10; ++port)
    report.flows.push_back(flow_of(port, kPortUnknown, 1));
  world.send(report);
  EXPECT_EQ(world.counters.sum("lockstep_flow_ports"), static_cast<int64_t>(SwitchDirectory::kPortsPerSwitchMax));
  EXPECT_EQ(world.counters.sum("lockstep_port_samples_dropped_total"), 10);
  world.now_ns += PortSeries::kForgetNs + kSecond;
  world.send(flow_of(1, kPortUnknown, 1));
  EXPECT_EQ(world.counters.sum("lockstep_flow_ports"), 1);
}

TEST(PortSeries, EstimatesFromFlows) {
  World world;
  FlowSample flow = flow_of(1, 2, 5000);
  flow.traffic_class = 3;
  flow.queue_bytes = 1'000'000;
  flow.transit_delay_ns = 2'000'000;
  flow.key.queue_pair = 5;
  flow.roce_opcode = kRoceCnp;
  world.send(flow);
  EXPECT_EQ(world.values["lockstep_port_flow_bytes_total 1 in"], 5000);
  EXPECT_EQ(world.values["lockstep_port_flow_bytes_total 2 out"], 5000);
  EXPECT_EQ(world.values["lockstep_port_flow_bytes_total 2 in"], 0);
  EXPECT_EQ(world.values["lockstep_port_ecn_marked_packets_total 1 in"], 10);
  EXPECT_EQ(world.values["lockstep_port_ecn_marked_packets_total 2 out"], 10);
  EXPECT_EQ(world.values["lockstep_port_cnp_packets_total 2 out"], 10);
  EXPECT_EQ(world.values["lockstep_port_queue_bytes 2 out"], 1e6);
  EXPECT_EQ(world.values["lockstep_port_transit_delay_seconds 2 out"], 0.002);
  flow = flow_of(1, 2, 1000);
  flow.queue_bytes = 10;
  world.send(flow);
  EXPECT_EQ(world.values["lockstep_port_flow_bytes_total 2 out"], 6000);
  EXPECT_EQ(world.values["lockstep_port_queue_bytes 2 out"], 10) << "the deepest since the sample before";
}

TEST(PortSeries, APacketThatIsReportedTwiceCountsOnceAtEachPort) {
  World world;
  FlowSample flow = flow_of(1, 2, 5000);
  flow.seen_at = SeenAt::kEgress;
  world.send(flow);
  flow.seen_at = SeenAt::kIngress;
  world.send(flow);
  EXPECT_EQ(world.values["lockstep_port_flow_bytes_total 1 in"], 5000);
  EXPECT_EQ(world.values["lockstep_port_flow_bytes_total 2 out"], 5000);
}

TEST(PortSeries, CountsDroppedPacketsAndSamplesThatWereNotWritten) {
  World world;
  FlowSample flow = flow_of(1, kPortDropped, 100);
  flow.drop_reason = 260;
  flow.packets = 1;
  world.send(flow);
  EXPECT_EQ(world.values["lockstep_port_dropped_packets_total 1 in"], 1);
  EXPECT_FALSE(world.values.contains("lockstep_port_flow_bytes_total dropped out"));
  world.is_broken = true;
  world.send(flow);
  EXPECT_GT(world.counters.sum("lockstep_port_samples_dropped_total"), 0);
}

TEST(PortSeries, ThePageHasEveryRow) {
  const Result<std::string> page = read_file(LOCKSTEP_FABRIC_PAGE, 1 << 20);
  ASSERT_TRUE(page.ok()) << page.error();
  std::string table;
  std::string_view before;
  for (const PortMetricRow& row : port_metric_rows()) {
    if (before == row.name) continue;
    before = row.name;
    table += format("| `%s` | %s | %s |\n", row.name, row.type, row.help);
  }
  EXPECT_NE(page->find(table), std::string::npos) << "docs/guide/fabric.md is to have:\n" << table;
}

}  // namespace
}  // namespace lockstep
