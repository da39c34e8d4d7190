#include "profile/ranks/compare.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/json_writer.h"
#include "base/median.h"
#include "base/text.h"

namespace lockstep::profile {
namespace {

constexpr double kOtherWork = 0.5;    // calls a step that differ by more: another program
constexpr double kNoteworthy = 0.02;  // calls a step that differ by more are worth a note

template <typename Value>
double over_ranks(const ProfileAnalysis& analysis, Value value) {
  std::vector<double> values;
  for (const RankProfile& rank : analysis.ranks) values.push_back(static_cast<double>(value(rank)) / rank.steps());
  return median_or_zero(std::move(values));
}

// How far single steps lie from the middle one, as a standard deviation of the middle.
double step_noise(const ProfileAnalysis& analysis) {
  std::vector<double> distances;
  for (const RankProfile& rank : analysis.ranks) {
    const auto middle = static_cast<double>(rank.step_ns());
    for (const ProfileStep& step : rank.index.steps) {
      distances.push_back(std::fabs(static_cast<double>(step.end_ns - step.start_ns) - middle));
    }
  }
  if (distances.size() < 2) return 0;
  const double steps = median_or_zero([&] {
    std::vector<double> counts;
    for (const RankProfile& rank : analysis.ranks) counts.push_back(rank.steps());
    return counts;
  }());
  return 1.48 * 1.25 * median_or_zero(distances) / std::sqrt(std::max(1.0, steps));
}

std::set<std::string> devices_of(const ProfileAnalysis& analysis) {
  std::set<std::string> names;
  for (const RankProfile& rank : analysis.ranks) {
    if (rank.index.has_gpu && !rank.events->devices.empty()) names.insert(rank.events->devices.front().name);
  }
  return names;
}

void check_comparable(const ProfileAnalysis& before, const ProfileAnalysis& after, ProfileComparison& out) {
  const bool gpu_before = before.ranks.front().index.has_gpu, gpu_after = after.ranks.front().index.has_gpu;
  if (gpu_before != gpu_after) out.not_comparable.push_back("only one of them ran on a GPU");
  const std::set<std::string> devices_before = devices_of(before), devices_after = devices_of(after);
  if (!devices_before.empty() && !devices_after.empty() && devices_before != devices_after) {
    out.not_comparable.push_back(
        format("other GPUs: %s, then %s", devices_before.begin()->c_str(), devices_after.begin()->c_str()));
  }
  if (before.world_size > 0 && after.world_size > 0 && before.world_size != after.world_size) {
    out.not_comparable.push_back(format("%lld ranks, then %lld", static_cast<long long>(before.world_size),
                                        static_cast<long long>(after.world_size)));
  }
  const bool marked_before = !before.ranks.front().index.steps.empty(),
             marked_after = !after.ranks.front().index.steps.empty();
  if (marked_before != marked_after) out.not_comparable.push_back("only one of them has marked steps");
  if (!marked_before && !marked_after) out.notes.push_back("no steps are marked: whole traces are compared");
  const auto calls = [](const RankProfile& rank) { return rank.index.activities.size(); };
  const double calls_before = over_ranks(before, calls), calls_after = over_ranks(after, calls);
  const double ratio = calls_before > 0 ? calls_after / calls_before : 1;
  if (ratio > 1 + kOtherWork || ratio < 1 / (1 + kOtherWork)) {
    out.not_comparable.push_back(format("%.0f calls a step, then %.0f: another program", calls_before, calls_after));
  } else if (std::fabs(ratio - 1) > kNoteworthy) {
    out.notes.push_back(format("%.0f calls a step, then %.0f", calls_before, calls_after));
  }
  if (before.ranks.size() != after.ranks.size()) {
    out.notes.push_back(format("traces of %zu ranks, then of %zu", before.ranks.size(), after.ranks.size()));
  }
}

std::vector<GapDifference> gap_differences(const ProfileAnalysis& before, const ProfileAnalysis& after) {
  std::map<std::string, GapDifference> gaps;
  for (const ProfileAnalysis* side : {&before, &after}) {
    for (const RankProfile& rank : side->ranks) {
      for (const GapRow& gap : rank.breakdown.gaps) {
        GapDifference& one = gaps[gap.what];
        (side == &before ? one.before_ns : one.after_ns) +=
            static_cast<double>(gap.sum_ns) / rank.steps() / static_cast<double>(side->ranks.size());
      }
    }
  }
  std::vector<GapDifference> out;
  for (auto& [what, gap] : gaps) {
    gap.what = what;
    out.push_back(gap);
  }
  std::sort(out.begin(), out.end(), [](const GapDifference& a, const GapDifference& b) {
    return std::fabs(a.after_ns - a.before_ns) > std::fabs(b.after_ns - b.before_ns);
  });
  return out;
}

std::string sentence_of(const ProfileComparison& out) {
  if (!out.is_comparable()) return "Not comparable: " + out.not_comparable.front() + ".";
  std::string text = format("A step takes %s, before it was %s: %.1f %% %s", human_duration(out.after_ns).c_str(),
                            human_duration(out.before_ns).c_str(), 100 * std::fabs(out.change()),
                            out.change() >= 0 ? "slower" : "faster");
  if (std::fabs(out.after_ns - out.before_ns) < 2 * out.noise_ns)
    return text + ", which is within the noise of its steps.";
  const auto grown = std::find_if(out.kernels.begin(), out.kernels.end(), [&](const KernelDifference& one) {
    return one.extra_ns() * out.change() > 0 && one.traits.kernel_class != KernelClass::kCommunication;
  });
  const double kernel = grown == out.kernels.end() ? 0 : std::fabs(grown->extra_ns());
  const double gap = out.gaps.empty() ? 0 : std::fabs(out.gaps.front().after_ns - out.gaps.front().before_ns);
  if (kernel > 0 && kernel >= gap) {
    text += format("; most of it in %s (%s %s a step).", short_kernel_name(grown->name).c_str(),
                   human_duration(kernel).c_str(), out.change() >= 0 ? "more" : "less");
  } else if (gap > 0) {
    text += format("; most of it in gaps while the host is in %s.", out.gaps.front().what.c_str());
  } else {
    text += ".";
  }
  return text;
}

}  // namespace

ProfileComparison compare(const ProfileAnalysis& before, const ProfileAnalysis& after) {
  ProfileComparison out;
  check_comparable(before, after, out);
  const auto step_of = [](const ProfileAnalysis& side) {
    std::vector<double> steps;
    for (const RankProfile& rank : side.ranks) steps.push_back(static_cast<double>(rank.step_ns()));
    return median_or_zero(std::move(steps));
  };
  out.before_ns = step_of(before);
  out.after_ns = step_of(after);
  out.noise_ns = std::hypot(step_noise(before), step_noise(after));
  const auto busy = [](const RankProfile& rank) { return rank.breakdown.time.busy_ns(); };
  const auto idle = [](const RankProfile& rank) { return rank.breakdown.time.idle_ns(); };
  const auto exposed = [](const RankProfile& rank) { return rank.breakdown.time.exposed_communication_ns(); };
  out.busy_before_ns = over_ranks(before, busy);
  out.busy_after_ns = over_ranks(after, busy);
  out.idle_before_ns = over_ranks(before, idle);
  out.idle_after_ns = over_ranks(after, idle);
  out.exposed_before_ns = over_ranks(before, exposed);
  out.exposed_after_ns = over_ranks(after, exposed);
  std::vector<const RankProfile*> befores, afters;
  for (const RankProfile& rank : before.ranks) befores.push_back(&rank);
  for (const RankProfile& rank : after.ranks) afters.push_back(&rank);
  out.kernels = kernel_differences(afters, befores);
  std::stable_sort(out.kernels.begin(), out.kernels.end(), [](const KernelDifference& a, const KernelDifference& b) {
    return std::fabs(a.extra_ns()) > std::fabs(b.extra_ns());
  });
  out.gaps = gap_differences(before, after);
  out.sentence = sentence_of(out);
  return out;
}

std::string comparison_json(const ProfileComparison& comparison, size_t kernels_max) {
  JsonWriter json;
  json.begin_object().field("sentence", comparison.sentence).field("comparable", comparison.is_comparable());
  for (const auto& [name, lines] :
       {std::pair("not_comparable", &comparison.not_comparable), std::pair("notes", &comparison.notes)}) {
    json.key(name).begin_array();
    for (const std::string& line : *lines) json.string(line);
    json.end_array();
  }
  json.field("step_us_before", comparison.before_ns / 1000).field("step_us_after", comparison.after_ns / 1000);
  json.field("change", comparison.change()).field("noise_us", comparison.noise_ns / 1000);
  json.field("busy_us_before", comparison.busy_before_ns / 1000)
      .field("busy_us_after", comparison.busy_after_ns / 1000);
  json.field("idle_us_before", comparison.idle_before_ns / 1000)
      .field("idle_us_after", comparison.idle_after_ns / 1000);
  json.field("exposed_communication_us_before", comparison.exposed_before_ns / 1000);
  json.field("exposed_communication_us_after", comparison.exposed_after_ns / 1000);
  json.key("kernels").begin_array();
  for (size_t i = 0; i < std::min(kernels_max, comparison.kernels.size()); ++i) {
    const KernelDifference& one = comparison.kernels[i];
    json.begin_object().field("name", one.name).field("class", to_text(one.traits.kernel_class));
    if (!one.op.empty()) json.field("op", one.op);
    json.field("us_before", one.peers_ns / 1000).field("us_after", one.own_ns / 1000);
    json.field("calls_before", one.peers_count).field("calls_after", one.own_count).end_object();
  }
  json.end_array().key("gaps").begin_array();
  for (size_t i = 0; i < std::min<size_t>(20, comparison.gaps.size()); ++i) {
    const GapDifference& one = comparison.gaps[i];
    json.begin_object().field("what", one.what).field("us_before", one.before_ns / 1000);
    json.field("us_after", one.after_ns / 1000).end_object();
  }
  json.end_array().end_object();
  return json.take();
}

}  // namespace lockstep::profile
