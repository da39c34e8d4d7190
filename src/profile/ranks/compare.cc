#include "profile/ranks/compare.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "base/json_writer.h"
#include "base/text.h"
#include "profile/ranks/comparability.h"

namespace lockstep::profile {
namespace {

constexpr double kMainShape = 0.6;  // of a kernel's change: a shape that makes up so much of it is named
constexpr double kMainPart = 0.3;   // of a step's change: what makes up less of it does not explain it

template <typename Row>
void sort_by_change(std::vector<Row>& rows, std::string Row::*name) {
  std::sort(rows.begin(), rows.end(), [name](const Row& a, const Row& b) {
    const double one = std::fabs(a.extra_ns()), other = std::fabs(b.extra_ns());
    return one != other ? one > other : a.*name < b.*name;
  });
}

template <typename Time>
void add(const Time& time, bool is_before, Difference& to) {
  (is_before ? to.before_ns : to.after_ns) += time.ns;
  (is_before ? to.before_count : to.after_count) += time.count;
}

std::vector<ShapeDifference> shape_differences(const KernelTime* before, const KernelTime* after) {
  std::map<std::string, ShapeDifference> shapes;
  for (const KernelTime* side : {before, after}) {
    if (side == nullptr) continue;
    for (const ShapeTime& time : side->shapes) {
      ShapeDifference& one = shapes[time.shape];
      one.shape = time.shape;
      add(time, side == before, one);
    }
  }
  std::vector<ShapeDifference> out;
  for (auto& [shape, one] : shapes) out.push_back(std::move(one));
  sort_by_change(out, &ShapeDifference::shape);
  return out;
}

std::vector<KernelDelta> kernel_differences(const RunSummary& before, const RunSummary& after) {
  std::unordered_map<std::string, std::pair<const KernelTime*, const KernelTime*>> by_name;
  for (const KernelTime& one : before.kernels) by_name[one.name].first = &one;
  for (const KernelTime& one : after.kernels) by_name[one.name].second = &one;
  const bool with_shapes = before.has_shapes && after.has_shapes;
  std::vector<KernelDelta> out;
  for (const auto& [name, sides] : by_name) {
    const KernelTime& known = sides.second != nullptr ? *sides.second : *sides.first;
    KernelDelta one;
    one.name = name;
    one.op = known.op;
    one.kernel_class = known.kernel_class;
    if (sides.first != nullptr) add(*sides.first, true, one);
    if (sides.second != nullptr) add(*sides.second, false, one);
    if (with_shapes) one.shapes = shape_differences(sides.first, sides.second);
    out.push_back(std::move(one));
  }
  sort_by_change(out, &KernelDelta::name);
  return out;
}

void compare_gaps(const RunSummary& before, const RunSummary& after, ProfileComparison& out) {
  std::map<std::string, GapDifference> gaps;
  for (const RunSummary* side : {&before, &after}) {
    for (const GapTime& gap : side->gaps) {
      GapDifference& one = gaps[gap.what];
      one.what = gap.what;
      one.cause = gap.cause;
      add(gap, side == &before, one);
      add(gap, side == &before, out.gap_causes[static_cast<size_t>(gap.cause)]);
    }
  }
  for (auto& [what, gap] : gaps) out.gaps.push_back(std::move(gap));
  sort_by_change(out.gaps, &GapDifference::what);
}

// The shape that most of a kernel's change is on, where it is called with several.
std::string main_shape(const KernelDelta& kernel) {
  if (kernel.shapes.size() < 2) return {};
  const ShapeDifference& first = kernel.shapes.front();
  if (first.shape.empty() || first.extra_ns() / kernel.extra_ns() < kMainShape) return {};
  return " on " + std::string(utf8_prefix(as_one_line(first.shape), 60));
}

const char* more_or_less(const ProfileComparison& out) {
  return out.change() >= 0 ? "more" : "less";
}

std::string gap_text(const GapDifference& gap) {
  if (gap.cause == GapCause::kBetweenKernels) return "gaps between kernels already launched";
  return "gaps while the host is in " + std::string(utf8_prefix(as_one_line(gap.what), 100));
}

// Which kernel or gap most of the change is in.
std::string where_it_is(const ProfileComparison& out) {
  const double change = out.after_ns - out.before_ns;
  const auto is_part_of_it = [&](const Difference& one) { return one.extra_ns() / change >= kMainPart; };
  const auto kernel = std::find_if(out.kernels.begin(), out.kernels.end(), [&](const KernelDelta& one) {
    return is_part_of_it(one) && one.kernel_class != KernelClass::kCommunication;
  });
  const auto gap = std::find_if(out.gaps.begin(), out.gaps.end(), is_part_of_it);
  const double kernel_ns = kernel == out.kernels.end() ? 0 : std::fabs(kernel->extra_ns());
  const double gap_ns = gap == out.gaps.end() ? 0 : std::fabs(gap->extra_ns());
  if (kernel_ns > 0 && kernel_ns >= gap_ns) {
    return format("; most of it in %s%s (%s %s a step).", short_kernel_name(kernel->name).c_str(),
                  main_shape(*kernel).c_str(), human_duration(kernel_ns).c_str(), more_or_less(out));
  }
  if (gap_ns > 0) {
    return format("; most of it in %s (%s %s a step).", gap_text(*gap).c_str(), human_duration(gap_ns).c_str(),
                  more_or_less(out));
  }
  const Difference exposed{out.exposed_before_ns, out.exposed_after_ns};
  if (is_part_of_it(exposed)) {
    return format("; most of it in communication that nothing hides (%s %s a step).",
                  human_duration(std::fabs(exposed.extra_ns())).c_str(), more_or_less(out));
  }
  return "; in no single kernel or gap.";
}

std::string sentence_of(const ProfileComparison& out, Unlike unlike) {
  if (!out.is_comparable() && unlike == Unlike::kRefused) return "Not comparable: " + out.not_comparable.front() + ".";
  std::string text = out.is_comparable() ? "" : "Compared although it is not comparable. ";
  text += format("A step takes %s, before it was %s: %.1f %% %s", human_duration(out.after_ns).c_str(),
                 human_duration(out.before_ns).c_str(), 100 * std::fabs(out.change()),
                 out.change() >= 0 ? "slower" : "faster");
  if (out.is_within_noise()) return text + ", which is within the noise of its steps.";
  return text + where_it_is(out);
}

void write_difference(JsonWriter& json, const Difference& one) {
  json.field("us_before", one.before_ns / 1000).field("us_after", one.after_ns / 1000);
  json.field("calls_before", one.before_count).field("calls_after", one.after_count);
}

void write_kernels(JsonWriter& json, const ProfileComparison& comparison, size_t kernels_max) {
  json.key("kernels").begin_array();
  for (size_t i = 0; i < std::min(kernels_max, comparison.kernels.size()); ++i) {
    const KernelDelta& one = comparison.kernels[i];
    json.begin_object().field("name", one.name).field("class", to_text(one.kernel_class));
    if (!one.op.empty()) json.field("op", one.op);
    write_difference(json, one);
    if (!one.shapes.empty()) {
      json.key("shapes").begin_array();
      for (const ShapeDifference& shape : one.shapes) {
        json.begin_object().field("shape", shape.shape);
        write_difference(json, shape);
        json.end_object();
      }
      json.end_array();
    }
    json.end_object();
  }
  json.end_array();
}

void write_gaps(JsonWriter& json, const ProfileComparison& comparison) {
  json.key("gap_causes").begin_object();
  for (size_t i = 0; i < kGapCauses; ++i) {
    json.key(to_text(static_cast<GapCause>(i))).begin_object();
    write_difference(json, comparison.gap_causes[i]);
    json.end_object();
  }
  json.end_object().key("gaps").begin_array();
  for (size_t i = 0; i < std::min<size_t>(20, comparison.gaps.size()); ++i) {
    const GapDifference& one = comparison.gaps[i];
    json.begin_object().field("what", one.what).field("cause", to_text(one.cause));
    write_difference(json, one);
    json.end_object();
  }
  json.end_array();
}

}  // namespace

ProfileComparison compare(const RunSummary& before, const RunSummary& after, Unlike unlike) {
  ProfileComparison out;
  Comparability comparability = comparability_of(before, after);
  out.not_comparable = std::move(comparability.not_comparable);
  out.notes = std::move(comparability.notes);
  out.before_ns = before.step_ns;
  out.after_ns = after.step_ns;
  out.noise_ns = std::hypot(before.noise_ns, after.noise_ns);
  out.busy_before_ns = before.busy_ns;
  out.busy_after_ns = after.busy_ns;
  out.idle_before_ns = before.idle_ns;
  out.idle_after_ns = after.idle_ns;
  out.exposed_before_ns = before.exposed_ns;
  out.exposed_after_ns = after.exposed_ns;
  out.kernels = kernel_differences(before, after);
  if (const uint64_t left_out = before.kernels_left_out + after.kernels_left_out; left_out > 0) {
    out.notes.push_back(format("%llu kernels of little time are not compared",  // each side has a limit
                               static_cast<unsigned long long>(left_out)));
  }
  compare_gaps(before, after, out);
  out.sentence = sentence_of(out, unlike);
  return out;
}

ProfileComparison compare(const ProfileAnalysis& before, const ProfileAnalysis& after) {
  return compare(summarize(before), summarize(after));
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
  write_kernels(json, comparison, kernels_max);
  write_gaps(json, comparison);
  json.end_object();
  return json.take();
}

}  // namespace lockstep::profile
