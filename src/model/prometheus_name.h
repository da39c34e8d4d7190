// Names of OpenTelemetry as Prometheus says them: what the agent's page, the server's store and its queries all use.
//
// hw.energy in J, a counter: hw_energy_joules_total. Ours (lockstep_...) stand as they are: their units are in the name
// where they have one. So do names of other tools that we know (metric_aliases.h). docs/decisions/0009-metrics-have-one-name.md says why.
// Thread rule: Thread-safe (no state).
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

enum class NameKind { kGauge, kCounter, kOther };  // kOther: up-down sums, histograms, summaries

std::string prometheus_name(std::string_view name, std::string_view ucum_unit, NameKind kind);
// Whether it may be the name of what OTLP sends as `sent`, whatever its unit and kind are.
bool may_be_prometheus_name(std::string_view stored, std::string_view sent);
// "hw.gpu.task" -> "hw_gpu_task".
std::string prometheus_label(std::string_view key);

}  // namespace lockstep
