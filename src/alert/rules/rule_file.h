// Rule files of Prometheus: groups of recording and alerting rules.
//
//   groups:
//     - name: gpu
//       interval: 30s
//       rules:
//         - record: job:mfu:avg
//           expr: avg by (job_id) (lockstep_job_mfu_ratio)
//         - alert: LowMfu
//           expr: job:mfu:avg < 0.3
//           for: 10m
//           annotations: {summary: "MFU of {{ $labels.job_id }} is {{ $value | humanizePercentage }}"}
//
// Queries, templates, names and labels are checked when the file is read: what is taken can be evaluated.
// Limits:   kRulesMax rules in all, kRuleFileBytesMax of a file.
// On error: one line with the file's line.
// Thread rule: Immutable once read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "alert/rules/rule_template.h"
#include "base/result.h"
#include "model/metric_descriptor.h"

namespace lockstep {

inline constexpr size_t kRulesMax = 10'000;
inline constexpr size_t kRuleFileBytesMax = 16u << 20;
inline constexpr int64_t kRuleIntervalMs = 60'000;  // where a group names none

struct Rule {
  bool alerting = false;  // else it records
  std::string name;
  std::string query;
  int64_t for_ms = 0;
  int64_t keep_firing_ms = 0;
  std::vector<std::pair<std::string, RuleTemplate>> labels;  // a recording rule's are plain text
  std::vector<std::pair<std::string, RuleTemplate>> annotations;
};

struct RuleGroup {
  std::string name;
  std::string file;
  int64_t interval_ms = 0;  // 0: kRuleIntervalMs
  int64_t offset_ms = 0;    // query_offset: it looks so far back
  uint64_t limit = 0;       // of series or alerts that a rule may make; 0: none
  std::vector<Rule> rules;
};

// file: as it is shown.
Result<std::vector<RuleGroup>> parse_rule_file(std::string_view text, const std::string& file);
// Every file of FILE_OR_GLOB, in the order of names; one that is named and not there is an error.
Result<std::vector<RuleGroup>> read_rule_files(const std::vector<std::string>& patterns);

}  // namespace lockstep
