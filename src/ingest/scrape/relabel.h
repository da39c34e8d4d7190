// Relabelling as Prometheus does it: rules that read, write, keep and drop by labels, one after the other. A label with
// an empty value counts as not there.
//
//   action     replace (the default), keep, drop, keepequal, dropequal, hashmod, labelmap, labeldrop, labelkeep,
//              lowercase, uppercase (of ASCII letters)
//   regex      matches from beginning to end, a dot also a line's end; RE2
//   $1, ${1}, ${name}, $$ in target_label and replacement; what is no group is empty
// Thread rule: Immutable once made; relabel() is thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/metric_descriptor.h"

namespace re2 {
class RE2;
}

namespace lockstep {

enum class RelabelAction {
  kReplace,
  kKeep,
  kDrop,
  kKeepEqual,
  kDropEqual,
  kHashMod,
  kLabelMap,
  kLabelDrop,
  kLabelKeep,
  kLowercase,
  kUppercase,
};

struct RelabelRule {
  RelabelAction action = RelabelAction::kReplace;
  std::vector<std::string> source_labels;
  std::string separator = ";";
  std::shared_ptr<const re2::RE2> regex;  // set by compile()
  uint64_t modulus = 0;
  std::string target_label;
  std::string replacement = "$1";

  Result<void> compile(std::string_view pattern);
};

Result<RelabelAction> parse_relabel_action(std::string_view word);

// Sorted by name afterwards. false: what has these labels is dropped, and they are worth nothing.
bool relabel(std::span<const RelabelRule> rules, Labels& labels);

}  // namespace lockstep
