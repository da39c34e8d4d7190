#include "sources/host/pressure_part.h"

#include <utility>

#include "sources/host/host_metrics.h"
#include "sources/host/proc_text.h"

namespace lockstep::host {

PressurePart::PressurePart(HostFiles& files) : files_(files) {
  for (const char* name : {"cpu", "memory", "io", "irq"}) {
    Resource resource;
    resource.file.path = std::string("/proc/pressure/") + name;
    resource.some_only = std::string_view(name) == "cpu";
    resource.some = labels({{"resource", name}, {"scope", "some"}});
    resource.full = labels({{"resource", name}, {"scope", "full"}});
    resources_.push_back(std::move(resource));
  }
}

void PressurePart::read(bool slow, NodeReadings& out) {
  for (Resource& resource : resources_) {
    if (resource.absent && !slow) continue;
    auto text = files_.read(resource.file);
    resource.absent = !text;
    if (!text) continue;
    Pressure pressure = parse_pressure(*text);
    auto add = [&](const std::optional<PressureLine>& line, const LabelSet& set) {
      if (!line) return;
      works_ = true;
      out.add(row(HostMetric::kPressure), set, static_cast<double>(line->total_us) / 1e6);
      out.add(row(HostMetric::kPressureRatio), set, line->avg10 / 100);
    };
    add(pressure.some, resource.some);
    if (!resource.some_only) add(pressure.full, resource.full);
  }
}

}  // namespace lockstep::host
