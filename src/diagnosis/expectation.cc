#include "diagnosis/expectation.h"

#include <algorithm>
#include <optional>

#include "base/evenly.h"
#include "base/text.h"
#include "diagnosis/phrasing.h"

namespace lockstep {
namespace {

constexpr double kMostly = 0.5;   // of a step, or of what hardware can do
constexpr size_t kStepsMin = 20;  // fewer are little to compare with
constexpr size_t kRanksMax = 64;  // looked at, evenly chosen
constexpr int64_t kLookNs = 60'000'000'000;

// What the fastest adapter near a rank's GPU carries, bytes per ns; nothing: not known.
std::optional<double> line_rate(const SignalStore& signals, const Identity& identity, int64_t now_unix_ns) {
  const SignalIndex rate = signal_index("nic_rate");
  const SignalSpan span{.since_unix_ns = now_unix_ns - kLookNs};
  std::optional<double> most;
  for (const std::string& adapter : signals.adapters_of(identity.host, identity.gpu_uuid)) {
    const std::optional<EntityReadings> readings = signals.read(Place::kNic, identity.host, adapter, span);
    if (!readings || !readings->of(rate).known || readings->of(rate).now <= 0) continue;
    most = std::max(most.value_or(0), readings->of(rate).now / 8);  // Gbit/s
  }
  return most;
}

// The median of what links between hosts do, and of what the senders' adapters carry, in GB/s. 0: not known.
struct LinkRates {
  double all = 0;  // those inside hosts as well
  double between_hosts = 0;
  double adapters = 0;
};

LinkRates link_rates(const JobWindow& window, const SignalStore& signals, const std::vector<StepNumber>& steps,
                     int64_t now_unix_ns) {
  std::vector<double> all, between, adapters;
  for (size_t slot : evenly(window.slots(), kRanksMax)) {
    const auto identity = window.ranks().find(window.rank_of(slot));
    if (identity == window.ranks().end()) continue;
    bool leaves = false;
    for (StepNumber number : steps) {
      const StepFrame& frame = *window.frame(number);
      if (!frame.knows(slot)) continue;
      for (const FlowStep& flow : frame.rows[slot].summary.flows) {
        if (!flow.send || flow.wire_ns <= 0 || flow.bytes <= 0) continue;
        const double rate = static_cast<double>(flow.bytes) / static_cast<double>(flow.wire_ns);
        all.push_back(rate);
        const auto to = window.ranks().find(window.world_rank(flow.comm_id, flow.peer));
        if (to == window.ranks().end() || to->second.host == identity->second.host) continue;
        between.push_back(rate);
        leaves = true;
      }
    }
    if (!leaves) continue;
    if (const std::optional<double> rate = line_rate(signals, identity->second, now_unix_ns)) adapters.push_back(*rate);
  }
  return {median(std::move(all)), median(std::move(between)), median(std::move(adapters))};
}

std::string against_the_network(const LinkRates& rates) {
  if (rates.between_hosts > 0 && rates.adapters > 0) {
    const std::string what = format(" at %.2f GB/s a link between hosts, where an adapter carries %.4g",
                                    rates.between_hosts, rates.adapters);
    return what + (rates.between_hosts >= kMostly * rates.adapters
                       ? ": the network is what it waits for, and does what it can"
                       : ": the network is slow for every rank alike, or carries little at a time");
  }
  const std::string what = rates.all > 0 ? format(" at %.2f GB/s a link", rates.all) : "";
  return what + ", on no rank more than on its like: whether the network could do better is not known";
}

// The share of the GPUs' peak that the job's own numbers come to; 0: it does not tell them.
double share_of_peak(const JobWindow& window, const std::vector<StepNumber>& steps) {
  std::vector<double> shares;
  for (StepNumber number : steps) {
    for (const auto& [rank, row] : *window.step(number)) {
      double flops = 0, peak = 0;
      for (const StepScalar& scalar : row.summary.scalars) {
        if (scalar.name == "flops") flops = scalar.value;
        if (scalar.name == "peak_flops") peak = scalar.value;
      }
      const double seconds = static_cast<double>(row.summary.duration_ns) / 1e9;
      if (flops > 0 && peak > 0 && seconds > 0) shares.push_back(flops / seconds / peak);
    }
  }
  return median(std::move(shares));
}

}  // namespace

std::string compared_with(const JobWindow& window, const SignalStore& signals, const std::vector<StepNumber>& steps,
                          int64_t now_unix_ns) {
  std::string text;
  const size_t known = window.facts().size();
  if (known < kStepsMin) text += format("; only %zu steps are known to compare with", known);
  if (const double share = share_of_peak(window, steps); share > 0)
    text += format("; its GPUs do %s of their peak", percent(share).c_str());
  if (window.comms().empty())
    return text + (window.world_size() < 2
                       ? "; one rank alone, so only its own past is compared"
                       : "; no communicator is reported, so a network slow for all would not be seen");
  std::vector<double> shares;
  for (size_t i = known - std::min(known, steps.size()); i < known; ++i) {
    const StepFacts& step = window.facts()[i];
    if (step.duration_ns > 0) shares.push_back(step.comm_ns / step.duration_ns);
  }
  const double share = median(std::move(shares));
  if (share < kMostly) return text;
  return text + format("; communication takes %s of a step", percent(share).c_str()) +
         against_the_network(link_rates(window, signals, steps, now_unix_ns));
}

}  // namespace lockstep
