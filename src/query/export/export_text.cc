#include "query/export/export_text.h"

#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"
#include "base/utc_time.h"
#include "query/export/series_text.h"

namespace lockstep {
namespace {

constexpr const char* kName = "__name__";

std::string csv_cell(std::string_view text) {
  if (text.find_first_of("\",\r\n") == std::string_view::npos) return std::string(text);
  std::string cell = "\"";
  for (char c : text) {
    if (c == '"') cell += '"';
    cell += c;
  }
  return cell + "\"";
}

}  // namespace

Result<void> ExportedSeries::add(std::string_view query_range_json) {
  const Error strange{"the server's answer is no matrix of a Prometheus query"};
  simdjson::dom::parser parser;
  simdjson::dom::element document;
  simdjson::dom::array result;
  std::string_view type;
  if (parser.parse(query_range_json.data(), query_range_json.size()).get(document) ||
      document["data"]["resultType"].get_string().get(type) || type != "matrix" ||
      document["data"]["result"].get_array().get(result)) {
    return strange;
  }
  for (simdjson::dom::element one : result) {
    simdjson::dom::object metric;
    if (one["metric"].get_object().get(metric)) return strange;
    Labels labels;
    for (auto [name, value] : metric) {
      std::string_view text;
      if (value.get_string().get(text)) return strange;
      labels.emplace_back(name, text);
    }
    std::sort(labels.begin(), labels.end());
    simdjson::dom::array values;
    if (!one["histograms"].get_array().get(values)) histograms_ += values.size();
    if (one["values"].get_array().get(values)) continue;
    std::vector<Sample>& samples = series_[labels];
    for (simdjson::dom::element pair : values) {
      double time_s = 0;
      std::string_view value;
      if (pair.at(0).get_double().get(time_s) || pair.at(1).get_string().get(value)) return strange;
      if (!samples.empty() && samples.back().time_s >= time_s) continue;  // the end of one part is the next one's begin
      samples.push_back({time_s, std::string(value)});
      ++samples_;
    }
  }
  return {};
}

std::string ExportedSeries::csv() const {
  std::set<std::string> names;
  for (const auto& [labels, samples] : series_) {
    for (const auto& label : labels) names.insert(label.first);
  }
  std::string text = "time";
  for (const std::string& name : names) text += "," + csv_cell(name == kName ? "name" : name);
  text += ",value\n";
  for (const auto& [labels, samples] : series_) {
    std::string cells;
    for (const std::string& name : names) {
      cells += ',';
      for (const auto& label : labels) {
        if (label.first == name) cells += csv_cell(label.second);
      }
    }
    for (const Sample& sample : samples)
      text += utc_time(std::llround(sample.time_s * 1000)) + cells + "," + sample.value + "\n";
  }
  return text;
}

std::string ExportedSeries::openmetrics() const {
  std::map<std::string, std::string> families;  // name to lines
  for (const auto& [labels, samples] : series_) {
    std::string name = "query";
    Labels others;
    for (const auto& label : labels) {
      if (label.first == kName) {
        name = label.second;
      } else {
        others.push_back(label);
      }
    }
    const std::string series = series_text(name, others, NameForm::kQuoted);
    for (const Sample& sample : samples) {
      families[name] += series + " " + sample.value + " " + format("%.3f", sample.time_s) + "\n";
    }
  }
  std::string text;
  for (const auto& [name, lines] : families) text += lines;
  return text + "# EOF\n";
}

Result<double> parse_step(std::string_view text) {
  if (std::optional<double> seconds = parse_double(text); seconds && *seconds > 0 && std::isfinite(*seconds)) {
    return *seconds;
  }
  double total = 0;
  for (std::string_view rest = text; !rest.empty();) {
    size_t digits = 0;
    while (digits < rest.size() && ((rest[digits] >= '0' && rest[digits] <= '9') || rest[digits] == '.')) ++digits;
    const std::optional<double> number = parse_double(rest.substr(0, digits));
    size_t end = digits;
    while (end < rest.size() && rest[end] >= 'a' && rest[end] <= 'z') ++end;
    const std::string_view unit = rest.substr(digits, end - digits);
    const double scale = unit == "ms"  ? 0.001
                         : unit == "s" ? 1
                         : unit == "m" ? 60
                         : unit == "h" ? 3600
                         : unit == "d" ? 86'400
                         : unit == "w" ? 604'800
                                       : 0;
    if (!number || scale == 0) {
      return Error{format("\"%.40s\" is no length of time (15s, 1m30s, 2h, seconds)", as_one_line(text).c_str())};
    }
    total += *number * scale;
    rest = rest.substr(end);
  }
  if (!(total > 0)) return Error{"a length of time must be more than nothing"};
  return total;
}

Result<double> parse_moment(std::string_view text, double now_s) {
  if (text == "now") return now_s;
  if (text.starts_with('-')) {
    double before = LOCKSTEP_TRY(parse_step(text.substr(1)));
    return now_s - before;
  }
  if (std::optional<double> seconds = parse_double(text); seconds && std::isfinite(*seconds)) return *seconds;
  constexpr int64_t kSecond = 1'000'000'000;
  const Result<int64_t> ns = unix_ns_from_rfc3339(text);
  if (!ns.ok() || !text.ends_with('Z')) {
    return Error{
        format("\"%.40s\" is no moment (now, -2h, unix seconds, 2026-11-15T22:00:00Z)", as_one_line(text).c_str())};
  }
  // In two parts: so many nanoseconds since 1970 are more than a double holds.
  return static_cast<double>(*ns / kSecond) + static_cast<double>(*ns % kSecond) / kSecond;
}

}  // namespace lockstep
