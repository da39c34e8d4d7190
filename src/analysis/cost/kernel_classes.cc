#include "analysis/cost/kernel_classes.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/json_reader.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr size_t kNameMax = 64;
constexpr double kUsMax = 1e15;

struct Words {
  std::string_view bound;
  const char* words;
};
constexpr Words kBounds[] = {
    {"compute", "kernels bound by computing: shapes and precision decide"},
    {"memory", "kernels bound by memory: fuse them, or move less"},
    {"launch", "kernels too short for their launch: fuse them, or CUDA graphs"},
    {"host link", "copies between host and GPU"},
    {"unknown", "kernels whose bound is not known: --shapes shows more"},
};

using Sums = std::map<std::string, double, std::less<>>;

// Adds the members of an object; false: one is no time.
bool add(const JsonValue& object, std::string_view left_out, Sums& sums) {
  for (const JsonValue& member : object) {
    const std::optional<double> us = member.number();
    if (!us || !std::isfinite(*us) || *us < 0 || *us > kUsMax) return false;
    std::string name = as_one_line(utf8_prefix(member.key(), kNameMax));
    if (name == left_out || *us == 0) continue;
    if (sums.size() >= kKernelClassesMax && !sums.contains(name)) name = "other";
    sums[name] += *us;
  }
  return true;
}

double total_of(const Sums& sums) {
  double total = 0;
  for (const auto& [name, us] : sums) total += us;
  return total;
}

std::vector<KernelClassShare> shares_of(const Sums& sums, bool is_bound) {
  const double total = total_of(sums);
  std::vector<KernelClassShare> shares;
  for (const auto& [name, us] : sums) {
    const auto* found = std::find_if(std::begin(kBounds), std::end(kBounds),
                                     [&, &one = name](const Words& row) { return row.bound == one; });
    shares.push_back({name, is_bound && found != std::end(kBounds) ? found->words : name, us / total});
  }
  std::stable_sort(shares.begin(), shares.end(),
                   [](const KernelClassShare& a, const KernelClassShare& b) { return a.share > b.share; });
  return shares;
}

}  // namespace

Result<KernelClasses> kernel_classes_from_summary_untrusted(std::string_view summary_json) {
  const JsonDocument document =
      LOCKSTEP_TRY(JsonDocument::parse(summary_json, {.bytes_max = 256u << 20, .values_max = 16'000'000}));
  const JsonValue ranks = document.root()["ranks"];
  if (!ranks.is_array()) return Error{"a profile's summary has no ranks"};
  KernelClasses classes;
  Sums by_bound, by_family;
  for (const JsonValue& rank : ranks) {
    const double before = total_of(by_family);
    if (!add(rank["by_bound_us"], "communication", by_bound) || !add(rank["by_family_us"], "collective", by_family))
      return Error{"a profile's summary has a time that is none"};
    if (total_of(by_family) > before) ++classes.ranks;
  }
  classes.kernel_us = total_of(by_family);
  classes.by_bound = shares_of(by_bound, true);
  classes.by_family = shares_of(by_family, false);
  return classes;
}

}  // namespace lockstep
