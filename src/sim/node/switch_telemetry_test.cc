#include "sim/node/switch_telemetry.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

namespace lockstep::sim {
namespace {

constexpr int64_t kStart = 1'700'000'000'000'000'000;
const Topology kTopology{.gpus_per_host = 4, .hosts_per_leaf = 2, .rails = true, .spines = 2, .switches = true};
constexpr int32_t kFleetHosts = 4;

// The increase of a counter, or the last value of a gauge, by "leaf-1:up0 NAME DIRECTION".
std::map<std::string, double> play(const ScenarioFault* fault, AdapterPlace adapter = {-1, -1}) {
  SwitchTelemetry switches(kTopology, kFleetHosts, 7);
  std::map<std::string, double> first, increase;
  for (int reading = 0; reading < 10; ++reading) {
    for (int32_t gpu = 0; gpu < 4; ++gpu) switches.carry({0, gpu}, {3, gpu}, gpu % 2, 5e9);
    const SwitchFault acting{fault, fault != nullptr ? fault->severity : 0, adapter};
    const Batch batch = switches.read(kStart + reading * SwitchTelemetry::kReadEveryNs, 10,
                                      fault != nullptr ? std::span(&acting, 1) : std::span<const SwitchFault>());
    for (const ResourceGroup& group : batch.groups) {
      for (const MetricPoint& point : group.points) {
        const std::string key = std::string(find_string(point.attributes, "switch")) + ":" +
                                std::string(find_string(point.attributes, "port")) + " " + point.name + " " +
                                std::string(find_string(point.attributes, "direction"));
        if (point.kind == MetricKind::kGauge) {
          increase[key] = point.value;
        } else if (!first.contains(key)) {
          first[key] = point.value;
        } else {
          EXPECT_GE(point.value - first[key], increase[key]) << key << " counts back";
          increase[key] = point.value - first[key];
        }
      }
    }
  }
  return increase;
}

ScenarioFault fault_of(Cause cause, int32_t leaf, int32_t spine, double severity = 2) {
  ScenarioFault fault;
  fault.cause = cause;
  fault.target.job = "job";
  fault.target.leaf = leaf;
  fault.target.spine = spine;
  fault.severity = severity;
  return fault;
}

// Ports whose series is more than 50 above that of the same fleet without the fault.
std::set<std::string> more_than_healthy(const std::map<std::string, double>& faulty, const std::string& name) {
  const std::map<std::string, double> healthy = play(nullptr);
  std::set<std::string> ports;
  for (const auto& [key, value] : faulty) {
    if (key.find(" " + name) != std::string::npos && value > healthy.at(key) + 50)
      ports.insert(key.substr(0, key.find(' ')));
  }
  return ports;
}

TEST(SwitchTelemetry, CarriesWhatTheFlowsCarryOverEveryPortOnTheirWay) {
  const std::map<std::string, double> healthy = play(nullptr);
  EXPECT_NEAR(healthy.at("leaf-1:Ethernet1/1 lockstep_port_bytes_total in"), 9 * 5e9, 1);
  EXPECT_NEAR(healthy.at("leaf-1:up1 lockstep_port_bytes_total out"), 9 * 5e9, 1);
  EXPECT_NEAR(healthy.at("spine-1:down5 lockstep_port_bytes_total out"), 9 * 5e9, 1);
  EXPECT_NEAR(healthy.at("leaf-5:Ethernet1/2 lockstep_port_bytes_total out"), 9 * 5e9, 1);
  EXPECT_EQ(healthy.at("leaf-1:up0 lockstep_port_bytes_total out"), 0);
}

TEST(SwitchTelemetry, ABadLinkIsCountedAtItsTwoEndsAlone) {
  const ScenarioFault fault = fault_of(Cause::kLinkDegraded, 5, 1);
  EXPECT_EQ(more_than_healthy(play(&fault), "lockstep_port_fcs_errors_total"),
            (std::set<std::string>{"leaf-5:up1", "spine-1:down5"}));
}

TEST(SwitchTelemetry, CongestionMarksPacketsOnTheLinksThatItIsOn) {
  const ScenarioFault fault = fault_of(Cause::kCongestion, 1, 1);
  const std::set<std::string> marked = more_than_healthy(play(&fault), "lockstep_port_ecn_marked_packets_total");
  EXPECT_TRUE(marked.contains("leaf-1:up1"));
  for (const std::string& port : marked) EXPECT_TRUE(port == "leaf-1:up1" || port == "spine-1:down1") << port;
}

TEST(SwitchTelemetry, ASwitchThatIsDownIsSilentAndItsNeighboursSeeThePortsDown) {
  const ScenarioFault fault = fault_of(Cause::kSwitchDown, 5, -1);
  const std::map<std::string, double> faulty = play(&fault);
  for (const auto& [key, value] : faulty) EXPECT_FALSE(key.starts_with("leaf-5:")) << key;
  EXPECT_EQ(faulty.at("spine-0:down5 lockstep_port_up "), 0);
  EXPECT_EQ(faulty.at("spine-0:down4 lockstep_port_up "), 1);
}

TEST(SwitchTelemetry, FaultsOfRanksThatNoWireSeesShowNowhere) {
  ScenarioFault fault = fault_of(Cause::kSlowCompute, -1, -1);
  fault.target.rank = 3_rank;
  EXPECT_EQ(play(&fault, {0, 3}), play(nullptr));
}

}  // namespace
}  // namespace lockstep::sim
