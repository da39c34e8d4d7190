#include "model/prometheus_name.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(PrometheusName, SaysUnitAndKindOnce) {
  struct Case {
    const char *name, *unit;
    NameKind kind;
    const char* wanted;
  };
  for (const Case& each :
       {Case{"hw.energy", "J", NameKind::kCounter, "hw_energy_joules_total"},
        {"hw.gpu.utilization", "1", NameKind::kGauge, "hw_gpu_utilization_ratio"},
        {"hw.network.packets", "{packet}", NameKind::kCounter, "hw_network_packets_total"},
        {"hw.network.bandwidth.limit", "By/s", NameKind::kGauge, "hw_network_bandwidth_limit_bytes_per_second"},
        {"http.server.duration", "ms", NameKind::kOther, "http_server_duration_milliseconds"},
        {"queue_seconds", "s", NameKind::kGauge, "queue_seconds"},
        {"requests.total", "1", NameKind::kCounter, "requests_total"},
        {"bytes", "By", NameKind::kGauge, "bytes"},
        {"vllm:num_requests_running", "", NameKind::kGauge, "vllm:num_requests_running"},
        {"3d.load", "", NameKind::kGauge, "_3d_load"},
        {"a..b--c", "", NameKind::kOther, "a_b_c"},
        {"flips", "1/s", NameKind::kGauge, "flips_per_second"},
        {"errors", "{error}/s", NameKind::kGauge, "errors_per_second"}}) {
    EXPECT_EQ(prometheus_name(each.name, each.unit, each.kind), each.wanted) << each.name;
    EXPECT_TRUE(may_be_prometheus_name(each.wanted, each.name)) << each.name;
  }
}

TEST(PrometheusName, OfAnotherMetricIsNotTakenForIt) {
  for (const char* stored : {"hw_temperature_limit_celsius", "hw_temperatures", "hw_temperature_celsius_max", "hw_temp",
                             "hw_temperature_", "hw_temperature_per_celsius", "temperature_celsius"})
    EXPECT_FALSE(may_be_prometheus_name(stored, "hw.temperature")) << stored;
}

TEST(PrometheusName, LeavesOurOwnNamesAlone) {
  EXPECT_EQ(prometheus_name("lockstep_gpu_sm_active", "1", NameKind::kGauge), "lockstep_gpu_sm_active");
  EXPECT_EQ(prometheus_name("lockstep_gpu_xid_total", "1", NameKind::kCounter), "lockstep_gpu_xid_total");
}

TEST(PrometheusName, LeavesNamesOfOtherToolsAlone) {
  EXPECT_EQ(prometheus_name("ifHCInOctets", "By", NameKind::kCounter), "ifHCInOctets");
  EXPECT_EQ(prometheus_name("interfaces/interface/state/counters/in-octets", "", NameKind::kCounter),
            "interfaces_interface_state_counters_in_octets");
  EXPECT_EQ(prometheus_name("ifHCInTurnips", "", NameKind::kCounter), "ifHCInTurnips_total");
}

TEST(PrometheusName, LabelsAreLettersDigitsAndUnderscores) {
  EXPECT_EQ(prometheus_label("hw.gpu.task"), "hw_gpu_task");
  EXPECT_EQ(prometheus_label("gpu_uuid"), "gpu_uuid");
  EXPECT_EQ(prometheus_label("0th"), "key_0th");
  EXPECT_EQ(prometheus_label("__name__"), "__name__");
}

}  // namespace
}  // namespace lockstep
