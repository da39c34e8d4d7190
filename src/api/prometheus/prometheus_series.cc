// /prometheus/api/v1/series, labels and label/NAME/values: what can be asked for.
#include <algorithm>
#include <map>

#include "api/endpoints.h"
#include "api/prometheus/prometheus_answer.h"
#include "base/characters.h"

namespace lockstep {
namespace {

struct Asked {
  std::vector<std::vector<LabelMatcher>> any;
  int64_t from_ms = 0, to_ms = 0;
  uint64_t limit = 0;
};

Result<Asked> asked_of(const PrometheusForm& form) {
  Asked asked;
  asked.any = LOCKSTEP_TRY(prometheus_matchers(form));
  const int64_t from = LOCKSTEP_TRY(prometheus_time(form, "start", kPrometheusEarliestMs));
  const int64_t to = LOCKSTEP_TRY(prometheus_time(form, "end", kPrometheusLatestMs));
  const uint64_t limit = LOCKSTEP_TRY(prometheus_limit(form));
  asked.from_ms = from;
  asked.to_ms = to;
  asked.limit = limit;
  return asked;
}

HttpResponse list_of(std::vector<std::string> names, uint64_t limit) {
  PrometheusNotes notes;
  if (limit > 0 && names.size() > limit) {
    names.resize(limit);
    notes.warnings.push_back("results truncated due to limit");
  }
  return prometheus_answer(
      [&](JsonWriter& json) {
        json.begin_array();
        for (const std::string& name : names) json.string(name);
        json.end_array();
      },
      notes);
}

HttpResponse cancelled() {
  return prometheus_error("canceled", "the request was canceled: its client has gone");
}

// U__a_2e_b is a.b: how clients put names into a path that may hold letters, digits and _ only.
std::string unescaped(const std::string& name) {
  if (!name.starts_with("U__")) return name;
  std::string out;
  for (size_t i = 3; i < name.size(); ++i) {
    if (name[i] != '_') {
      out += name[i];
      continue;
    }
    if (i + 1 < name.size() && name[i + 1] == '_') {
      out += '_';
      ++i;
      continue;
    }
    const size_t end = name.find('_', i + 1);
    if (end == std::string::npos || end - i - 1 > 6 || end == i + 1) return name;
    uint32_t code = 0;
    for (size_t k = i + 1; k < end; ++k) {
      const int digit = hex_digit(name[k]);
      if (digit < 0) return name;
      code = code << 4 | static_cast<uint32_t>(digit);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return name;
    append_utf8(out, code);
    i = end;
  }
  return out;
}

}  // namespace

HttpResponse prometheus_series(const ApiContext& context, const ApiRequest& request) {
  const Result<PrometheusForm> form = PrometheusForm::read(request.http);
  if (!form.ok()) return prometheus_error("bad_data", form.error());
  const Result<Asked> asked = asked_of(*form);
  if (!asked.ok()) return prometheus_error("bad_data", asked.error());
  if (asked->any.empty()) return prometheus_error("bad_data", "no match[] parameter provided");
  using LabelList = std::vector<std::pair<std::string, std::string>>;
  std::map<LabelList, bool> found;
  PrometheusNotes notes;
  MemoryLease memory(context.memory, MemoryUse::kQueries);
  for (const std::vector<LabelMatcher>& matchers : asked->any) {
    SelectOptions options;
    options.from_ms = asked->from_ms;
    options.to_ms = asked->to_ms;
    options.give_up = [&] {
      return (request.http.is_gone && request.http.is_gone()) || (context.memory != nullptr && context.memory->spent());
    };
    auto given_up = [&] {
      return context.memory != nullptr && context.memory->spent() ? prometheus_no_memory() : cancelled();
    };
    Result<std::unique_ptr<MetricSelection>> selection = context.metrics.select(matchers, options);
    if (options.give_up()) return given_up();
    if (!selection.ok()) return prometheus_error("execution", selection.error());
    for (size_t i = 0; i < (*selection)->size(); ++i) {
      if (i % 4096 == 0 && options.give_up()) return given_up();
      LabelList labels;
      uint64_t bytes = 0;
      for (const LabelSymbols& label : (*selection)->labels(i)) {
        labels.emplace_back((*selection)->text(label.name), (*selection)->text(label.value));
        bytes += labels.back().first.size() + labels.back().second.size() + sizeof labels.back();
      }
      if (!memory.add(2 * bytes)) return prometheus_no_memory();  // here and in the answer
      found.emplace(std::move(labels), true);
      if (asked->limit == 0 || found.size() <= asked->limit) continue;
      found.erase(std::prev(found.end()));
      if (notes.warnings.empty()) notes.warnings.push_back("results truncated due to limit");
    }
  }
  return prometheus_answer(
      [&](JsonWriter& json) {
        json.begin_array();
        for (const auto& [labels, there] : found) write_prometheus_labels(json, labels);
        json.end_array();
      },
      notes);
}

HttpResponse prometheus_labels(const ApiContext& context, const ApiRequest& request) {
  const Result<PrometheusForm> form = PrometheusForm::read(request.http);
  if (!form.ok()) return prometheus_error("bad_data", form.error());
  const Result<Asked> asked = asked_of(*form);
  if (!asked.ok()) return prometheus_error("bad_data", asked.error());
  Result<std::vector<std::string>> names = context.metrics.label_names(asked->any, asked->from_ms, asked->to_ms);
  if (!names.ok()) return prometheus_error("execution", names.error());
  return list_of(std::move(*names), asked->limit);
}

HttpResponse prometheus_label_values(const ApiContext& context, const ApiRequest& request) {
  const Result<PrometheusForm> form = PrometheusForm::read(request.http);
  if (!form.ok()) return prometheus_error("bad_data", form.error());
  const Result<Asked> asked = asked_of(*form);
  if (!asked.ok()) return prometheus_error("bad_data", asked.error());
  Result<std::vector<std::string>> values =
      context.metrics.label_values(unescaped(request.name), asked->any, asked->from_ms, asked->to_ms);
  if (!values.ok()) return prometheus_error("execution", values.error());
  return list_of(std::move(*values), asked->limit);
}

}  // namespace lockstep
