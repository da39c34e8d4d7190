#include "diagnosis/detectors/rotating_stall/busy_hosts.h"

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/evenly.h"
#include "base/text.h"
#include "diagnosis/measure.h"
#include "diagnosis/phrasing.h"
#include "diagnosis/signals/signals.h"

namespace lockstep {
namespace {

constexpr int64_t kLookNs = 60'000'000'000;
constexpr size_t kHostsMax = 16;
// Some task waits for a CPU this part of the time, in per cent. A few per cent are there wherever data is loaded.
constexpr double kBusy = 30;

struct Pressure {
  size_t reported = 0, busy = 0;
  std::string most_host;
  double most = 0;
  int64_t through_unix_ns = 0;
};

Pressure pressure_of(const std::set<std::string>& all, const SignalStore& signals, int64_t since_unix_ns) {
  const SignalIndex cpu = signal_index("cpu_pressure");
  const std::vector<std::string> hosts(all.begin(), all.end());
  Pressure pressure;
  for (const size_t at : evenly(hosts.size(), kHostsMax)) {
    const std::optional<EntityReadings> host =
        signals.read(Place::kHost, hosts[at], "", {.since_unix_ns = since_unix_ns});
    const SignalReading reading = host ? host->of(cpu) : SignalReading{};
    if (!reading.known) continue;
    ++pressure.reported;
    pressure.busy += reading.now >= kBusy ? 1 : 0;
    if (reading.now <= pressure.most) continue;
    pressure.most = reading.now;
    pressure.most_host = hosts[at];
    pressure.through_unix_ns = host->through_unix_ns;
  }
  return pressure;
}

}  // namespace

void blame_busy_hosts(const JobWindow& window, const SignalStore& signals, int64_t now_unix_ns, Finding& finding) {
  if (finding.cause != Cause::kGc) return;
  std::set<std::string> hosts;
  for (const auto& [rank, identity] : window.ranks()) hosts.insert(identity.host);
  const int64_t since_unix_ns = now_unix_ns - kLookNs;
  const Pressure pressure = pressure_of(hosts, signals, since_unix_ns);
  if (pressure.busy == 0 || 2 * pressure.busy < pressure.reported) return;
  finding.layer = emits<Emitter::kRotatingStall, Layer::kHost>;
  finding.cause = emits<Emitter::kRotatingStall, Cause::kCpuContention>;
  finding.component = "CPUs of its hosts";
  finding.chain.insert(
      finding.chain.begin(),
      claim(ClaimKind::kCounter, pressure.most_host,
            format("On %zu of %zu hosts tasks wait for a CPU; on %s %.0f %% of the time.", pressure.busy,
                   pressure.reported, pressure.most_host.c_str(), pressure.most),
            {.value = pressure.most, .unit = "%"}, finding.since_step, finding.through_step,
            signal_query(signal_index("cpu_pressure"), pressure.most_host, {}, since_unix_ns,
                         pressure.through_unix_ns)));
  finding.alternatives = {{"garbage collection of the ranks", 0.2, "tasks of their hosts wait for CPUs",
                           "a stack of a rank while it stalls"}};
  finding.next = {{"find what else runs on these CPUs: other processes, a CPU quota, wrong pinning, more threads than cores",
                   "cat /proc/pressure/cpu; top -H"}};
}

}  // namespace lockstep
