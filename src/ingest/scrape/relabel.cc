#include "ingest/scrape/relabel.h"

#include <re2/re2.h>

#include <algorithm>
#include <map>

#include "base/md5.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr int64_t kRegexMemoryMax = 8 << 20;
constexpr int kGroupsMax = 100;

constexpr std::pair<std::string_view, RelabelAction> kActions[] = {
    {"replace", RelabelAction::kReplace},     {"keep", RelabelAction::kKeep},
    {"drop", RelabelAction::kDrop},           {"keepequal", RelabelAction::kKeepEqual},
    {"dropequal", RelabelAction::kDropEqual}, {"hashmod", RelabelAction::kHashMod},
    {"labelmap", RelabelAction::kLabelMap},   {"labeldrop", RelabelAction::kLabelDrop},
    {"labelkeep", RelabelAction::kLabelKeep}, {"lowercase", RelabelAction::kLowercase},
    {"uppercase", RelabelAction::kUppercase},
};

using Values = std::map<std::string, std::string>;

// A regex with the groups of its last match.
class Match {
 public:
  explicit Match(const RE2& regex) : regex_(regex), groups_(static_cast<size_t>(regex.NumberOfCapturingGroups()) + 1) {}

  bool of(std::string_view text) {
    const re2::StringPiece piece(text.data(), text.size());
    return regex_.Match(piece, 0, piece.size(), RE2::ANCHOR_BOTH, groups_.data(), static_cast<int>(groups_.size()));
  }

  // `text` with its $1, ${name} and $$ replaced. A $ that begins nothing stays.
  std::string expanded(std::string_view text) const {
    std::string result;
    while (!text.empty()) {
      const size_t dollar = text.find('$');
      result.append(text.substr(0, dollar));
      if (dollar == std::string_view::npos) break;
      text.remove_prefix(dollar + 1);
      if (text.starts_with('$')) {
        result += '$';
        text.remove_prefix(1);
        continue;
      }
      const bool in_braces = text.starts_with('{');
      std::string_view name = text.substr(in_braces ? 1 : 0);
      size_t size = 0;
      while (size < name.size() && (std::isalnum(static_cast<unsigned char>(name[size])) != 0 || name[size] == '_'))
        ++size;
      const bool is_closed = !in_braces || (size < name.size() && name[size] == '}');
      if (size == 0 || !is_closed) {
        result += '$';
        continue;
      }
      name = name.substr(0, size);
      text.remove_prefix(size + (in_braces ? 2 : 0));
      result.append(group(name));
    }
    return result;
  }

 private:
  std::string_view group(std::string_view name) const {
    size_t number = groups_.size();
    if (const std::optional<uint64_t> given = parse_uint(name)) {
      number = *given < groups_.size() ? static_cast<size_t>(*given) : groups_.size();
    } else if (const auto found = regex_.NamedCapturingGroups().find(std::string(name));
               found != regex_.NamedCapturingGroups().end()) {
      number = static_cast<size_t>(found->second);
    }
    if (number >= groups_.size()) return {};
    return {groups_[number].data(), groups_[number].size()};
  }

  const RE2& regex_;
  std::vector<re2::StringPiece> groups_;
};

void set(Values& values, const std::string& name, std::string value) {
  if (value.empty()) {
    values.erase(name);
  } else {
    values[name] = std::move(value);
  }
}

std::string in_case(std::string text, bool upper) {
  for (char& c : text) {
    if (upper ? (c >= 'a' && c <= 'z') : (c >= 'A' && c <= 'Z')) c = static_cast<char>(c ^ 0x20);
  }
  return text;
}

std::string share_of(std::string_view value, uint64_t modulus) {
  const std::array<uint8_t, 16> digest = md5(value);
  uint64_t number = 0;
  for (size_t i = 8; i < 16; ++i) number = number << 8 | digest[i];
  return std::to_string(number % modulus);
}

std::string value_of(const Values& values, const std::string& name) {
  const auto found = values.find(name);
  return found == values.end() ? std::string() : found->second;
}

// false: dropped.
bool apply(const RelabelRule& rule, Values& values) {
  std::string joined;
  for (size_t i = 0; i < rule.source_labels.size(); ++i) {
    if (i > 0) joined += rule.separator;
    joined += value_of(values, rule.source_labels[i]);
  }
  Match match(*rule.regex);
  switch (rule.action) {
    case RelabelAction::kKeep:
      return match.of(joined);
    case RelabelAction::kDrop:
      return !match.of(joined);
    case RelabelAction::kKeepEqual:
      return value_of(values, rule.target_label) == joined;
    case RelabelAction::kDropEqual:
      return value_of(values, rule.target_label) != joined;
    case RelabelAction::kReplace: {
      if (!match.of(joined)) return true;
      const std::string target = match.expanded(rule.target_label);
      if (!target.empty() && is_utf8(target)) set(values, target, match.expanded(rule.replacement));
      return true;
    }
    case RelabelAction::kLowercase:
    case RelabelAction::kUppercase:
      set(values, rule.target_label, in_case(std::move(joined), rule.action == RelabelAction::kUppercase));
      return true;
    case RelabelAction::kHashMod:
      set(values, rule.target_label, share_of(joined, rule.modulus));
      return true;
    case RelabelAction::kLabelMap: {
      const Values before = values;
      for (const auto& [name, value] : before) {
        if (!match.of(name)) continue;
        const std::string target = match.expanded(rule.replacement);
        if (!target.empty()) set(values, target, value);
      }
      return true;
    }
    case RelabelAction::kLabelDrop:
    case RelabelAction::kLabelKeep: {
      const bool keeps = rule.action == RelabelAction::kLabelKeep;
      std::erase_if(values, [&](const auto& label) { return match.of(label.first) != keeps; });
      return true;
    }
  }
  return true;
}

}  // namespace

Result<RelabelAction> parse_relabel_action(std::string_view word) {
  const std::string lower = in_case(std::string(word), false);
  std::vector<std::string> known;
  for (const auto& [name, action] : kActions) {
    if (name == lower) return action;
    known.emplace_back(name);
  }
  const std::optional<std::string> near = did_you_mean(lower, known);
  return Error{format("there is no action \"%s\"%s", as_one_line(word.substr(0, 40)).c_str(),
                      near ? ("; did you mean " + *near + "?").c_str() : "")};
}

Result<void> RelabelRule::compile(std::string_view pattern) {
  RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(kRegexMemoryMax);
  auto compiled = std::make_shared<const RE2>("(?s:" + std::string(pattern) + ")", options);
  if (!compiled->ok()) return Error{as_one_line(compiled->error())};
  if (compiled->NumberOfCapturingGroups() > kGroupsMax) return Error{format("more than %d groups", kGroupsMax)};
  regex = std::move(compiled);
  return {};
}

bool relabel(std::span<const RelabelRule> rules, Labels& labels) {
  Values values;
  for (auto& [name, value] : labels) {
    if (!value.empty()) values[std::move(name)] = std::move(value);
  }
  for (const RelabelRule& rule : rules) {
    if (!apply(rule, values)) return false;
  }
  labels.assign(std::make_move_iterator(values.begin()), std::make_move_iterator(values.end()));
  return true;
}

}  // namespace lockstep
