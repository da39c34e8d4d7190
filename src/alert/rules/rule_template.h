// Templates in the labels and annotations of rules: the part of Go's text/template, with Prometheus's functions, that rules
// are written in.
//
//   {{ $labels.host }} is at {{ $value | humanize1024 }}B{{ if gt $value 1e9 }}, far above{{ end }}
//
// Known: $labels, $value, $externalLabels, $externalURL (and .Labels, .Value, .ExternalLabels, .ExternalURL), pipelines,
// brackets, if / else if / else / end, comments, trimming ({{- -}}), text and numbers, and the functions of functions().
// Not known: range, with, define, variables of one's own and functions that ask the database (query, first, ...): each is an
// error when the file is read, never a text that a person gets at night.
// Limits: kTemplateBytesMax of a template, of nesting kTemplateDepthMax, of what it makes kExpandedBytesMax.
// Thread rule: Immutable.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/metric_descriptor.h"

namespace lockstep {

inline constexpr size_t kTemplateBytesMax = 64u << 10;
inline constexpr int kTemplateDepthMax = 32;
inline constexpr size_t kExpandedBytesMax = 64u << 10;

struct TemplateData {
  const Labels& labels;
  double value = 0;
  std::string_view external_url = {};
};

class RuleTemplate {
 public:
  // On error: one line that says what is not known.
  static Result<RuleTemplate> parse(std::string_view text);
  // An error of the moment (a text where a number has to be) is in the text, as Prometheus has it:
  // "<error expanding template: ...>".
  std::string expand(const TemplateData& data) const;
  const std::string& text() const { return text_; }

  struct Node;

 private:
  std::string text_;
  std::shared_ptr<const std::vector<Node>> nodes_;
};

std::vector<std::string> template_functions();
// A float as Go prints it: 0.5, 1e+06, +Inf.
std::string go_number(double value);

}  // namespace lockstep
