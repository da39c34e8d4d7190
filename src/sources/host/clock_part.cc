#include "sources/host/clock_part.h"

#include <sys/timex.h>

#include <cstdlib>

#include "base/text.h"
#include "sources/host/host_metrics.h"

namespace lockstep::host {
namespace {

constexpr const char* kRecorded = "/run/lockstep-recorded/adjtimex";

}  // namespace

ClockPart::ClockPart(HostFiles& files)
    : files_(files), none_(labels({})), estimated_(labels({{"of", "estimated"}})), most_(labels({{"of", "most"}})) {}

void ClockPart::read_fast(const Tick& tick, NodeReadings& out) {
  int64_t difference_ns = tick.unix_ns - tick.monotonic_ns;
  int64_t moved_ns = known_ ? difference_ns - difference_ns_ : 0;
  known_ = true;
  difference_ns_ = difference_ns;
  if (moved_ns <= kClockStepNs && moved_ns >= -kClockStepNs) return;
  ++steps_;
  NodeEvent event;
  event.name = "clock.step";
  event.time_unix_ns = tick.unix_ns;
  event.severity = EventSeverity::kWarn;
  event.text = format("the clock jumped by %+.3f s", static_cast<double>(moved_ns) / 1e9);
  event.meaning = "The host's clock was set while training ran; times across it do not compare";
  event.action = "look why the time daemon stepped (chronyc tracking, journalctl -u chronyd) and let it slew instead";
  event.source = "agent";
  out.events.push_back(std::move(event));
  out.add(row(HostMetric::kClockSteps), none_, static_cast<double>(steps_));
}

std::optional<ClockState> ClockPart::state() {
  if (!files_.root().empty()) {
    auto text = files_.read(kRecorded);
    return text ? parse_adjtimex(*text) : std::nullopt;
  }
  timex now{};
  if (adjtimex(&now) < 0) return std::nullopt;
  ClockState state;
  state.offset_ns = (now.status & STA_NANO) != 0 ? now.offset : now.offset * 1000;
  state.maxerror_us = now.maxerror;
  state.esterror_us = now.esterror;
  state.status = now.status;
  return state;
}

void ClockPart::read_slow(NodeReadings& out) {
  out.add(row(HostMetric::kClockSteps), none_, static_cast<double>(steps_));
  auto now = state();
  if (!now) return;
  out.add(row(HostMetric::kClockOffset), none_, static_cast<double>(now->offset_ns) / 1e9);
  out.add(row(HostMetric::kClockError), estimated_, static_cast<double>(now->esterror_us) / 1e6);
  out.add(row(HostMetric::kClockError), most_, static_cast<double>(now->maxerror_us) / 1e6);
  out.add(row(HostMetric::kClockSynchronized), none_, (now->status & STA_UNSYNC) == 0 ? 1 : 0);
}

}  // namespace lockstep::host
