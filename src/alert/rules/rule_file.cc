#include "alert/rules/rule_file.h"

#include <glob.h>

#include "alert/yaml_reader.h"
#include "base/duration.h"
#include "base/files.h"
#include "query/promql/parser.h"

namespace lockstep {
namespace {

using yaml::line_of;
using yaml::scalar;
using yaml::Wrong;

bool is_label_name(std::string_view name) {
  if (name.empty() || (name[0] >= '0' && name[0] <= '9')) return false;
  for (const char one : name) {
    if (std::isalnum(static_cast<unsigned char>(one)) == 0 && one != '_') return false;
  }
  return true;
}

bool is_metric_name(std::string_view name) {
  std::string without(name);
  std::erase(without, ':');
  return !name.empty() && (without.empty() || is_label_name(without)) && !(name[0] >= '0' && name[0] <= '9');
}

int64_t duration(const YAML::Node& node, const char* what) {
  int64_t ms = 0;
  const std::string& text = scalar(node, what);
  if (text == "0") return 0;
  if (const std::string wrong = parse_duration_ms(text, &ms); !wrong.empty())
    throw Wrong{line_of(node), format("%s: %s", what, wrong.c_str())};
  return ms;
}

// plain: what stands there is no template.
std::vector<std::pair<std::string, RuleTemplate>> templates(const YAML::Node& node, const char* what, bool are_labels) {
  std::vector<std::pair<std::string, RuleTemplate>> all;
  if (node.IsNull()) return all;
  yaml::each_key(node, what, {}, [&](const std::string& name, const YAML::Node& value) {
    if (!is_label_name(name))
      throw Wrong{line_of(value), format("\"%s\" is no name in %s", yaml::shown(name).c_str(), what)};
    if (are_labels && name == "__name__") throw Wrong{line_of(value), "a rule's labels cannot have __name__"};
    Result<RuleTemplate> parsed = RuleTemplate::parse(value.IsNull() ? "" : yaml::any_scalar(value, "a template"));
    if (!parsed.ok())
      throw Wrong{line_of(value), format("%s of %s: %s", yaml::shown(name).c_str(), what, parsed.error().c_str())};
    all.emplace_back(name, std::move(*parsed));
  });
  return all;
}

void take_query(Rule& rule, const YAML::Node& node) {
  rule.query = yaml::any_scalar(node, "expr");
  const Result<std::unique_ptr<promql::Expr>> parsed = promql::parse(rule.query);
  if (!parsed.ok()) throw Wrong{line_of(node), "expr: " + as_one_line(parsed.error())};
  if ((*parsed)->type != promql::ValueType::kVector && (*parsed)->type != promql::ValueType::kScalar)
    throw Wrong{line_of(node), "expr must be an instant vector or a scalar"};
}

Rule rule_of(const YAML::Node& node) {
  Rule rule;
  bool records = false;
  std::string only_alerts;
  std::optional<YAML::Node> labels;
  yaml::each_key(node, "a rule", {"record", "alert", "expr", "for", "keep_firing_for", "labels", "annotations"},
                 [&](const std::string& key, const YAML::Node& value) {
                   if (key == "record" || key == "alert") {
                     (key == "record" ? records : rule.alerting) = true;
                     rule.name = scalar(value, key);
                   } else if (key == "expr") {
                     take_query(rule, value);
                   } else if (key == "labels") {
                     labels = value;
                   } else {
                     only_alerts = key;
                     if (key == "for") rule.for_ms = duration(value, "for");
                     if (key == "keep_firing_for") rule.keep_firing_ms = duration(value, "keep_firing_for");
                     if (key == "annotations") rule.annotations = templates(value, "annotations", false);
                   }
                 });
  if (records == rule.alerting) throw Wrong{line_of(node), "a rule has record or alert, one of them"};
  if (rule.name.empty()) throw Wrong{line_of(node), "a rule needs a name"};
  if (rule.query.empty()) throw Wrong{line_of(node), format("rule %s needs an expr", yaml::shown(rule.name).c_str())};
  if (records && !only_alerts.empty())
    throw Wrong{line_of(node), format("%s is for alerting rules", only_alerts.c_str())};
  if (records && !is_metric_name(rule.name))
    throw Wrong{line_of(node), format("\"%s\" is no metric's name", yaml::shown(rule.name).c_str())};
  if (labels) rule.labels = templates(*labels, "labels", true);
  return rule;
}

RuleGroup group_of(const YAML::Node& node, const std::string& file, size_t& rules) {
  RuleGroup group{.file = file};
  std::vector<std::pair<std::string, RuleTemplate>> of_all;
  yaml::each_key(node, "a group", {"name", "interval", "query_offset", "limit", "labels", "rules"},
                 [&](const std::string& key, const YAML::Node& value) {
                   if (key == "name") group.name = scalar(value, "name");
                   if (key == "interval") group.interval_ms = duration(value, "interval");
                   if (key == "query_offset") group.offset_ms = duration(value, "query_offset");
                   if (key == "labels") of_all = templates(value, "labels", true);
                   if (key == "limit") {
                     const std::optional<uint64_t> limit = parse_uint(scalar(value, "limit"));
                     if (!limit) throw Wrong{line_of(value), "limit must be a whole number"};
                     group.limit = *limit;
                   }
                   if (key == "rules" && !value.IsNull()) {
                     yaml::each_item(value, "rules", [&](const YAML::Node& item) {
                       if (++rules > kRulesMax) throw Wrong{line_of(item), format("more than %zu rules", kRulesMax)};
                       group.rules.push_back(rule_of(item));
                     });
                   }
                 });
  if (group.name.empty()) throw Wrong{line_of(node), "a group needs a name"};
  // The rule's own label counts before the group's.
  for (Rule& rule : group.rules) {
    for (const auto& label : of_all) {
      const bool own = std::any_of(rule.labels.begin(), rule.labels.end(),
                                   [&](const auto& one) { return one.first == label.first; });
      if (!own) rule.labels.push_back(label);
    }
  }
  return group;
}

}  // namespace

Result<std::vector<RuleGroup>> parse_rule_file(std::string_view text, const std::string& file) {
  std::vector<RuleGroup> groups;
  size_t rules = 0;
  const auto take = [&](const YAML::Node& root) {
    if (root.IsNull()) return;
    yaml::each_key(root, "the file", {"groups"}, [&](const std::string&, const YAML::Node& list) {
      if (list.IsNull()) return;
      std::set<std::string> names;
      yaml::each_item(list, "groups", [&](const YAML::Node& item) {
        groups.push_back(group_of(item, file, rules));
        if (!names.insert(groups.back().name).second)
          throw Wrong{line_of(item), format("two groups are called \"%s\"", yaml::shown(groups.back().name).c_str())};
      });
    });
  };
  LOCKSTEP_TRY(yaml::read(text, take));
  return groups;
}

Result<std::vector<RuleGroup>> read_rule_files(const std::vector<std::string>& patterns) {
  std::vector<RuleGroup> groups;
  size_t rules = 0;
  for (const std::string& pattern : patterns) {
    std::vector<std::string> files;
    glob_t found{};
    if (::glob(pattern.c_str(), 0, nullptr, &found) == 0) files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    ::globfree(&found);
    // A pattern may fit nothing yet; a file that is named has to be there.
    if (files.empty() && pattern.find_first_of("*?[") == std::string::npos) files.push_back(pattern);
    for (const std::string& file : files) {
      const Result<std::string> text = read_file(file, kRuleFileBytesMax);
      if (!text.ok()) return prefixed(text.failure(), "--rules: ");
      Result<std::vector<RuleGroup>> read = parse_rule_file(*text, file);
      if (!read.ok()) return prefixed(read.failure(), format("--rules %s: ", file.c_str()));
      for (RuleGroup& group : *read) {
        rules += group.rules.size();
        groups.push_back(std::move(group));
      }
      if (rules > kRulesMax) return Error{format("--rules: more than %zu rules", kRulesMax)};
    }
  }
  return groups;
}

}  // namespace lockstep
