#include "sle/sle_terms.h"

#include <algorithm>

#include "base/text.h"

namespace lockstep::sle {
namespace {

constexpr double kAny = 1e300;
constexpr Threshold kEvents{};

// clang-format off
constexpr SleRow kRows[kSles] = {
    {Sle::kProgress, "progress", "Training progress", "the median rank's step takes at most 1.05 x the job's own baseline, and no confirmed verdict says that the job loses more",
     "steps", {Against::kBaseline, Direction::kBelow, "s", 1.05, 0, kAny}},
    {Sle::kMfu, "mfu", "Model FLOP/s", "model FLOP/s of a GPU are at least 0.97 x the job's own baseline",
     "FLOPs that steps report", {Against::kBaseline, Direction::kAbove, "FLOP/s", 0.97, 0, kAny}},
    {Sle::kBandwidth, "bandwidth", "Collective bandwidth", "bytes per second on the wire are at least 0.9 x the job's own baseline",
     "network transfers of steps", {Against::kBaseline, Direction::kAbove, "B/s", 0.9, 0, kAny}},
    {Sle::kSkew, "skew", "Arrival skew", "own time of the slowest rank beyond the median rank's is at most twice the job's baseline, and at most 2 % of a step counts as none",
     "own time of steps", {Against::kBaseline, Direction::kBelow, "share of a step", 2, 0.02, 1}},
    {Sle::kInput, "input", "Input", "the rank waits for its input for at most twice the job's baseline, and at most 1 % of a step counts as none",
     "input phase of steps", {Against::kBaseline, Direction::kBelow, "share of a step", 2, 0.01, 1}},
    {Sle::kGpu, "gpu", "GPU health", "no XID, uncorrected memory error or throttling of the GPU, and no verdict that blames it",
     "hardware alerts and verdicts", kEvents},
    {Sle::kNvlink, "nvlink", "NVLink", "all links of the GPU are up, and no verdict blames them", "hardware alerts and verdicts", kEvents},
    {Sle::kNic, "nic", "NIC path", "no port of the host is down, and no verdict blames its adapters or links", "hardware alerts and verdicts", kEvents},
    {Sle::kFabric, "fabric", "Fabric", "no verdict blames the fabric between hosts", "verdicts", kEvents},
    {Sle::kHost, "host", "Host", "no OOM kill, hung task or machine check, and no verdict that blames the host", "node events and verdicts", kEvents},
    {Sle::kCorrectness, "correctness", "Correctness", "loss and gradient norm are finite, and no verdict says that they jump",
     "scalars that steps report", kEvents},
    {Sle::kGoodput, "goodput", "Goodput", "at least 0.9 of the minute went into steps that are progress, at the job's baseline pace",
     "steps and rank statuses", {Against::kFixed, Direction::kAbove, "share of the minute", 0.9, 0, 1}},
    {Sle::kCoverage, "coverage", "Telemetry coverage", "the rank reported and lost no records, and its node reported",
     "steps, rank statuses and node metrics", kEvents},
    {Sle::kTtft, "ttft", "Time to first token", "nine of ten first tokens come within twice the service's own baseline",
     "spans or metrics of an inference service", {Against::kBaseline, Direction::kBelow, "s", 2, 0.05, kAny}},
    {Sle::kTpot, "tpot", "Time per output token", "nine of ten requests stay within 1.5 x the service's own baseline",
     "spans or metrics of an inference service", {Against::kBaseline, Direction::kBelow, "s", 1.5, 0.005, kAny}},
    {Sle::kQueue, "queue", "Queue", "nine of ten requests wait for at most twice the service's own baseline",
     "spans or metrics of an inference service", {Against::kBaseline, Direction::kBelow, "s", 2, 0.05, kAny}},
};
// clang-format on

}  // namespace

double Threshold::effective(double baseline) const {
  return std::clamp(against == Against::kBaseline ? value * baseline : value, minimum, maximum);
}

bool Threshold::is_good(double measured, double baseline) const {
  return direction == Direction::kBelow ? measured <= effective(baseline) : measured >= effective(baseline);
}

std::span<const SleRow, kSles> sle_rows() {
  return kRows;
}

const SleRow& row_of(Sle sle) {
  return kRows[static_cast<size_t>(sle)];
}

std::optional<Sle> sle_of(std::string_view name) {
  for (const SleRow& row : kRows)
    if (name == row.name) return row.sle;
  return std::nullopt;
}

Thresholds default_thresholds() {
  Thresholds all;
  for (const SleRow& row : kRows) all[static_cast<size_t>(row.sle)] = row.threshold;
  return all;
}

Result<Thresholds> parse_thresholds(std::string_view text) {
  Thresholds all = default_thresholds();
  if (text.empty()) return all;
  for (std::string_view part : split(text, ',')) {
    const size_t equals = part.find('=');
    const std::optional<Sle> sle = sle_of(part.substr(0, equals));
    const std::optional<double> value =
        equals == std::string_view::npos ? std::nullopt : parse_double(part.substr(equals + 1));
    if (!sle || !value)
      return Error{format("\"%.*s\": an SLE's threshold is NAME=NUMBER, such as progress=1.1",
                          static_cast<int>(part.size()), part.data())};
    Threshold& threshold = all[static_cast<size_t>(*sle)];
    if (threshold.against == Against::kNone)
      return Error{format("%s has no threshold: events decide", row_of(*sle).name)};
    const bool fits = threshold.against == Against::kFixed ? *value >= threshold.minimum && *value <= threshold.maximum
                                                           : *value > 0 && *value <= 1000;
    if (!fits) return Error{format("%s=%g is out of range", row_of(*sle).name, *value)};
    threshold.value = *value;
  }
  return all;
}

}  // namespace lockstep::sle
