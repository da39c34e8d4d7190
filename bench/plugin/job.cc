#include "bench/plugin/job.h"

namespace lockstep::plugin_bench {

void emit_histogram(const Emit& emit, const std::string& name, const Histogram& ticks, const Timer& timer) {
  emit(name + "/p50", timer.ns(as_double(ticks.quantile(0.5))));
  emit(name + "/p99", timer.ns(as_double(ticks.quantile(0.99))));
  emit(name + "/p999", timer.ns(as_double(ticks.quantile(0.999))));
  emit(name + "/worst", timer.ns(as_double(ticks.worst())));
  emit(name + "/count", as_double(ticks.count()));
}

void emit_meter(const Emit& emit, const std::string& part, const Meter& meter, const Timer& timer) {
  for (size_t i = 0; i < kCallRows; ++i) {
    if (meter.rows[i].count() == 0) continue;
    const std::string name = part + "/" + kCallRowNames[i];
    emit_histogram(emit, name, meter.rows[i], timer);
    if (meter.declined[i] * 2 > meter.rows[i].count()) emit(name + "/declined", 1);
  }
  emit_histogram(emit, part + "/all", meter.all(), timer);
  constexpr auto kColl = static_cast<size_t>(CallRow::kCollStart);
  if (meter.rows[kColl].count() > 0) {
    emit(part + "/declined_percent", 100 * as_double(meter.declined[kColl]) / as_double(meter.rows[kColl].count()));
  }
}

void warm_up(Job& job, Shapes& shapes, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) job.play_next<false>(shapes.alternating(i), shapes.handles, nullptr);
}

}  // namespace lockstep::plugin_bench
