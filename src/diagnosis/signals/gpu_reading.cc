#include "diagnosis/signals/gpu_reading.h"

#include <limits>

namespace lockstep {

std::optional<GpuReading> gpu_reading(const SignalStore& book, std::string_view host, std::string_view gpu_uuid,
                                      int64_t since_unix_ns, int64_t through_unix_ns) {
  static const SignalIndex kClock = signal_index("sm_clock"), kMax = signal_index("sm_clock_max"),
                           kHeat = signal_index("temperature");
  const std::optional<EntityReadings> all =
      book.read(Place::kGpu, host, gpu_uuid, {.since_unix_ns = since_unix_ns, .through_unix_ns = through_unix_ns});
  if (!all) return std::nullopt;
  const double unknown = std::numeric_limits<double>::quiet_NaN();
  const auto now = [&](SignalIndex signal) {
    const SignalReading reading = all->of(signal);
    return reading.known ? reading.now / signal_row(signal).scale : unknown;
  };
  const auto before = [&](SignalIndex signal) {
    const SignalReading reading = all->of(signal);
    return reading.before_known ? reading.before / signal_row(signal).scale : unknown;
  };
  return GpuReading{.clock_hz = now(kClock),
                    .clock_max_hz = now(kMax),
                    .celsius = now(kHeat),
                    .clock_before_hz = before(kClock),
                    .celsius_before = before(kHeat)};
}

}  // namespace lockstep
