#include "model/prometheus_name.h"

#include <algorithm>
#include <iterator>

#include "model/metric_aliases.h"

namespace lockstep {
namespace {

struct UnitWord {
  std::string_view unit;
  std::string_view word;
};
constexpr UnitWord kUnitWords[] = {
    {"By", "bytes"},       {"s", "seconds"},       {"W", "watts"},         {"J", "joules"},       {"Cel", "celsius"},
    {"Hz", "hertz"},       {"ms", "milliseconds"}, {"us", "microseconds"}, {"ns", "nanoseconds"}, {"min", "minutes"},
    {"h", "hours"},        {"d", "days"},          {"KiBy", "kibibytes"},  {"MiBy", "mebibytes"}, {"GiBy", "gibibytes"},
    {"TiBy", "tibibytes"}, {"kBy", "kilobytes"},   {"MBy", "megabytes"},   {"GBy", "gigabytes"},  {"TBy", "terabytes"},
    {"m", "meters"},       {"V", "volts"},         {"A", "amperes"},       {"g", "grams"},        {"%", "percent"},
    {"bit", "bits"},
};
constexpr UnitWord kPerWords[] = {{"s", "second"}, {"min", "minute"}, {"h", "hour"}, {"d", "day"}, {"m", "meter"}};

bool is_plain(char c, bool colon) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (colon && c == ':');
}

// Letters, digits and single underscores.
std::string plain(std::string_view text, bool colon) {
  std::string result;
  for (char c : text) {
    if (is_plain(c, colon)) {
      result += c;
    } else if (result.empty() || result.back() != '_') {
      result += '_';
    }
  }
  return result;
}

// What stands in braces is a remark, not a unit.
std::string without_remarks(std::string_view unit) {
  std::string result;
  int depth = 0;
  for (char c : unit) {
    if (c == '{') ++depth;
    if (depth == 0) result += c;
    if (c == '}' && depth > 0) --depth;
  }
  return result;
}

std::string unit_words(std::string_view ucum_unit) {
  const std::string unit = without_remarks(ucum_unit);
  const size_t slash = std::min(unit.find('/'), unit.size());
  auto word_of = [](std::string_view one, const auto& words) {
    for (const UnitWord& each : words) {
      if (each.unit == one) return std::string(each.word);
    }
    return plain(one, false);
  };
  const std::string above = unit.substr(0, slash);
  std::string words = above == "1" ? "" : word_of(above, kUnitWords);
  if (slash < unit.size()) words += (words.empty() ? "per_" : "_per_") + word_of(unit.substr(slash + 1), kPerWords);
  while (!words.empty() && words.back() == '_') words.pop_back();
  return words;
}

// "bytes", "bytes_per_second", "per_second".
bool is_unit_in_words(std::string_view words) {
  const auto is_one_of = [](std::string_view word, const auto& table) {
    return std::any_of(std::begin(table), std::end(table), [&](const UnitWord& each) { return each.word == word; });
  };
  if (words.starts_with("per_")) return is_one_of(words.substr(4), kPerWords);
  const size_t per = words.find("_per_");
  if (per == std::string_view::npos) return is_one_of(words, kUnitWords);
  return is_one_of(words.substr(0, per), kUnitWords) && is_one_of(words.substr(per + 5), kPerWords);
}

bool ends_with_word(std::string_view name, std::string_view word) {
  return name == word || (name.ends_with(word) && name[name.size() - word.size() - 1] == '_');
}

}  // namespace

std::string prometheus_name(std::string_view given, std::string_view ucum_unit, NameKind kind) {
  if (given.starts_with("lockstep_") && given.find_first_of(".-/ ") == std::string_view::npos) {
    return std::string(given);
  }
  std::string name = plain(given, true);
  while (!name.empty() && name.back() == '_') name.pop_back();
  if (alias_of_other(name) != nullptr) return name;  // a collector hands on what an exporter called so
  if (!name.empty() && name[0] >= '0' && name[0] <= '9') name.insert(0, 1, '_');
  if (kind == NameKind::kCounter && name.ends_with("_total")) name.resize(name.size() - 6);
  if (ucum_unit == "1") {
    if (kind == NameKind::kGauge && !ends_with_word(name, "ratio")) name += "_ratio";
  } else if (const std::string words = unit_words(ucum_unit); !words.empty() && !ends_with_word(name, words)) {
    name += "_" + words;
  }
  if (kind == NameKind::kCounter) name += "_total";
  return name;
}

bool may_be_prometheus_name(std::string_view stored, std::string_view sent) {
  const std::string bare = prometheus_name(sent, "", NameKind::kOther);
  if (!stored.starts_with(bare)) return false;
  std::string_view rest = stored.substr(bare.size());
  if (rest.ends_with("_total")) rest.remove_suffix(6);
  return rest.empty() || rest == "_ratio" || (rest.front() == '_' && is_unit_in_words(rest.substr(1)));
}

std::string prometheus_label(std::string_view key) {
  std::string label = plain(key, false);
  if (key.starts_with("__") && label.starts_with('_')) label.insert(0, 1, '_');  // __name__ and the like
  if (key.size() > 2 && key.ends_with("__")) label += '_';
  if (!label.empty() && label[0] >= '0' && label[0] <= '9') label.insert(0, "key_");
  return label;
}

}  // namespace lockstep
