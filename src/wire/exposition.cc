#include "wire/exposition.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/text.h"
#include "model/series_labels.h"
#include "wire/remote_write.h"

namespace lockstep::exposition {
namespace {

bool is_blank(char c) {
  return c == ' ' || c == '\t';
}
std::string_view without_blanks(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}
// Up to the next blank; what is left begins after the blanks.
std::string_view next_word(std::string_view& text) {
  const size_t end = std::min(text.find_first_of(" \t"), text.size());
  const std::string_view word = text.substr(0, end);
  text = without_blanks(text.substr(end));
  return word;
}

std::optional<double> number_of(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || text.starts_with('+')) return std::nullopt;
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (end != text.data() + text.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) {  // too large, or too small to tell from nothing
    const bool is_small = text.find("e-") != std::string_view::npos || text.find("E-") != std::string_view::npos;
    const double size = is_small ? 0 : std::numeric_limits<double>::infinity();
    return text.starts_with('-') ? -size : size;
  }
  if (error != std::errc()) return std::nullopt;
  // Prometheus' own NaN is the quiet one with payload 1; stale markers are not for exporters to send.
  return std::isnan(number) ? std::bit_cast<double>(uint64_t{0x7FF8000000000001}) : number;
}

// Where the braces that open at text[0] close; npos: nowhere.
size_t closing_brace(std::string_view text) {
  bool quoted = false;
  for (size_t i = 1; i < text.size(); ++i) {
    if (quoted && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      quoted = !quoted;
    } else if (!quoted && text[i] == '}') {
      return i;
    }
  }
  return std::string_view::npos;
}

std::string unescaped(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) {
      ++i;
      result += text[i] == 'n' ? '\n' : text[i];
    } else {
      result += text[i];
    }
  }
  return result;
}

// Text in quotes at the beginning of `text`, which then begins after it.
std::optional<std::string> take_quoted(std::string_view& text) {
  if (!text.starts_with('"')) return std::nullopt;
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      std::string value = unescaped(text.substr(1, i - 1));
      text.remove_prefix(i + 1);
      return value;
    }
  }
  return std::nullopt;
}

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == ':' || c == '.';
}

// What stands between braces. *metric: a name in quotes, alone.
Result<void> read_labels(std::string_view text, Labels& labels, std::string* metric) {
  for (text = without_blanks(text); !text.empty(); text = without_blanks(text)) {
    std::string name;
    if (text.starts_with('"')) {
      std::optional<std::string> quoted = take_quoted(text);
      if (!quoted) return Error{"a label name in quotes that does not end"};
      name = std::move(*quoted);
      text = without_blanks(text);
      if (metric != nullptr && metric->empty() && (text.empty() || text.starts_with(','))) {
        *metric = std::move(name);
        if (text.starts_with(',')) text.remove_prefix(1);
        continue;
      }
    } else {
      size_t end = 0;
      while (end < text.size() && is_name_char(text[end])) ++end;
      name = text.substr(0, end);
      text = without_blanks(text.substr(end));
    }
    if (name.empty() || !text.starts_with('=')) return Error{"labels that are not name=\"value\""};
    text = without_blanks(text.substr(1));
    std::optional<std::string> value = take_quoted(text);
    if (!value) return Error{format("label \"%.60s\" has no value in quotes", as_one_line(name).c_str())};
    if (labels.size() > kLabelsMax) return Error{format("more than %zu labels", kLabelsMax)};
    labels.emplace_back(std::move(name), std::move(*value));
    text = without_blanks(text);
    if (text.empty()) break;
    if (!text.starts_with(',')) return Error{"labels without a comma between them"};
    text.remove_prefix(1);
  }
  return {};
}

}  // namespace

Format format_of(std::string_view content_type) {
  return trim(content_type).starts_with("application/openmetrics-text") ? Format::kOpenMetrics : Format::kText;
}

std::string target_prefix(const Labels& target_labels, bool honor_labels) {
  const std::string raw = remote_write::raw_labels_of(target_labels);
  std::string prefix = honor_labels ? "TH" : "TE";
  const uint32_t size = static_cast<uint32_t>(raw.size());
  char bytes[4];
  std::memcpy(bytes, &size, 4);
  return prefix.append(bytes, 4) + raw;
}

Result<void> Walk::walk(Format format, std::string_view text, std::string_view prefix, int64_t now_ms,
                        uint64_t samples_max) {
  entries_.clear();
  series_.clear();
  times_.clear();
  values_.clear();
  exemplars_.clear();
  metadata_.clear();
  raw_.clear();
  ended_ = false;
  size_t number = 0;
  auto wrong = [&](const std::string& what) {
    entries_.clear();
    metadata_.clear();
    return Error{lockstep::format("line %zu: %s", number, what.c_str())};
  };
  while (!text.empty()) {
    ++number;
    const size_t end = text.find('\n');
    std::string_view one = text.substr(0, end);
    if (end == std::string_view::npos && format == Format::kText && !without_blanks(one).empty()) {
      return wrong("the last line does not end: the page is cut short");
    }
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (one.size() > kLineBytesMax) {
      return wrong(lockstep::format("%zu bytes in one line (limit %zu)", one.size(), kLineBytesMax));
    }
    if (one.ends_with('\r')) one.remove_suffix(1);
    one = without_blanks(one);
    if (ended_ && !one.empty()) return wrong("something after # EOF");
    if (one.empty()) continue;
    if (one.starts_with('#')) {
      comment(one, format);
      continue;
    }
    if (entries_.size() >= samples_max) {
      return wrong(lockstep::format("more than %llu samples", static_cast<unsigned long long>(samples_max)));
    }
    if (Result<void> read = line(one, format, prefix, now_ms); !read.ok()) return wrong(read.error());
  }
  if (format == Format::kOpenMetrics && !ended_) return wrong("# EOF is missing: the page is cut short");
  series_.resize(entries_.size());
  for (size_t k = 0; k < entries_.size(); ++k) {
    const Entry& entry = entries_[k];
    series_[k] = {
        .raw_labels = std::string_view(raw_).substr(entry.raw_at, entry.raw_size),
        .times_ms = {&times_[k], 1},
        .values = {&values_[k], 1},
        .histograms = {},
        .exemplars = std::span<const PushedExemplar>(exemplars_).subspan(entry.first_exemplar, entry.exemplars)};
  }
  return {};
}

namespace {

std::optional<int64_t> milliseconds_of(std::string_view seconds_text) {
  const std::optional<double> seconds = number_of(seconds_text);
  if (!seconds || !(std::fabs(*seconds) < 9e15)) return std::nullopt;
  return static_cast<int64_t>(std::llround(*seconds * 1000));
}

Result<int64_t> time_of(std::string_view text, Format format) {
  const bool is_seconds = format == Format::kOpenMetrics;
  const std::optional<int64_t> time_ms = is_seconds ? milliseconds_of(text) : parse_int(text);
  if (!time_ms)
    return Error{is_seconds ? "a time that is no number of seconds" : "a time that is no number of milliseconds"};
  return *time_ms;
}

}  // namespace

// `text`: behind the "#". time_ms: of the sample, where it has none of its own.
Result<void> Walk::exemplar(std::string_view text, int64_t time_ms) {
  std::string_view rest = without_blanks(text);
  const size_t close = rest.starts_with('{') ? closing_brace(rest) : std::string_view::npos;
  if (close == std::string_view::npos) return Error{"an exemplar without labels in braces"};
  PushedExemplar exemplar;
  Result<void> labels = read_labels(rest.substr(1, close - 1), exemplar.labels, nullptr);
  rest = without_blanks(rest.substr(close + 1));
  const std::optional<double> value = number_of(next_word(rest));
  if (!value) return Error{"an exemplar without a value"};
  exemplar.value = *value;
  exemplar.time_ms = time_ms;
  if (!rest.empty()) {
    const std::optional<int64_t> own_ms = milliseconds_of(next_word(rest));
    if (!own_ms || !rest.empty()) return Error{"an exemplar whose time is no number of seconds"};
    exemplar.time_ms = *own_ms;
  }
  bool good = labels.ok();
  for (const auto& [name, label] : exemplar.labels) good = good && is_utf8(name) && is_utf8(label);
  if (good) exemplars_.push_back(std::move(exemplar));
  return {};
}

Result<void> Walk::line(std::string_view line, Format format, std::string_view prefix, int64_t now_ms) {
  size_t end = line.find_first_of(" \t{");
  if (end == std::string_view::npos) return Error{"a series without a value"};
  if (line[end] != '{') {  // a blank may stand before the braces
    const size_t next = line.find_first_not_of(" \t", end);
    if (next != std::string_view::npos && line[next] == '{') end = next;
  }
  if (line[end] == '{') {
    const size_t close = closing_brace(line.substr(end));
    if (close == std::string_view::npos) return Error{"braces that do not close"};
    end += close + 1;
  }
  std::string_view rest = without_blanks(line.substr(end));
  const std::string_view value_text = next_word(rest);
  const std::optional<double> value = number_of(value_text);
  if (!value) {
    return Error{lockstep::format("\"%.60s\" is not a value", as_one_line(value_text).c_str())};
  }
  Entry entry{.raw_at = raw_.size(), .first_exemplar = exemplars_.size()};
  int64_t time = now_ms;
  if (!rest.empty() && !rest.starts_with('#')) {
    time = LOCKSTEP_TRY(time_of(next_word(rest), format));
    entry.has_own_time = true;
  }
  if (!rest.empty()) {
    if (format != Format::kOpenMetrics || !rest.starts_with('#')) return Error{"more than a value and a time"};
    LOCKSTEP_TRY(exemplar(rest.substr(1), time));
  }
  entry.exemplars = exemplars_.size() - entry.first_exemplar;
  raw_.append(prefix).append(line.substr(0, end));
  entry.raw_size = raw_.size() - entry.raw_at;
  entries_.push_back(entry);
  times_.push_back(time);
  values_.push_back(*value);
  return {};
}

void Walk::comment(std::string_view line, Format format) {
  line = without_blanks(line.substr(1));
  const std::string_view keyword = next_word(line);
  if (keyword == "EOF" && line.empty() && format == Format::kOpenMetrics) {
    ended_ = true;
    return;
  }
  if (keyword != "HELP" && keyword != "TYPE" && keyword != "UNIT") return;
  std::string_view name = next_word(line);
  if (name.size() >= 2 && name.starts_with('"') && name.ends_with('"')) name = name.substr(1, name.size() - 2);
  if (name.empty() || name.size() > kLabelValueBytesMax || !is_utf8(name) || line.size() > 4096 || !is_utf8(line)) {
    return;
  }
  if (metadata_.empty() || metadata_.back().name != name) metadata_.push_back({name, "unknown", "", ""});
  if (keyword == "HELP") {
    metadata_.back().help = unescaped(line);
  } else if (keyword == "UNIT") {
    metadata_.back().unit = line;
  } else {
    static constexpr std::string_view kTypes[] = {"counter",        "gauge", "histogram", "summary",
                                                  "gaugehistogram", "info",  "stateset"};
    for (std::string_view type : kTypes) {
      if (line == type) metadata_.back().type = type;
    }
  }
}

Result<Labels> Walk::labels_of(std::string_view raw) {
  if (raw.size() < 6 || raw[0] != 'T') return Error{"not labels of a page"};
  const bool honor_labels = raw[1] == 'H';
  uint32_t size = 0;
  std::memcpy(&size, raw.data() + 2, 4);
  raw.remove_prefix(6);
  if (size > raw.size()) return Error{"not labels of a page"};
  Labels target;
  const std::string_view prefix = raw.substr(0, size);
  raw.remove_prefix(size);

  Labels labels;
  const size_t brace = raw.find('{');
  std::string name(without_blanks(raw.substr(0, brace)));
  for (char c : name) {
    if (!is_name_char(c)) return Error{format("\"%.60s\" is no name", as_one_line(name).c_str())};
  }
  if (brace != std::string_view::npos) {
    LOCKSTEP_TRY(read_labels(raw.substr(brace + 1, raw.size() - brace - 2), labels, &name));
  }
  if (name.empty()) return Error{"a series without a name"};
  labels.emplace_back(kMetricNameLabel, std::move(name));
  if (!prefix.empty()) {
    // The target's own labels were checked when it was configured; they need no name here.
    target = LOCKSTEP_TRY(remote_write::Walk::labels_of(std::string(prefix) +
                                                        remote_write::raw_labels_of({{kMetricNameLabel, "target"}})));
  }
  // A label that is there and empty takes away the target's where the page's win, and is nothing otherwise.
  if (!honor_labels) std::erase_if(labels, [](const auto& label) { return label.second.empty(); });
  const auto is_there = [](const Labels& in, const std::string& wanted) {
    return std::any_of(in.begin(), in.end(), [&](const auto& label) { return label.first == wanted; });
  };
  for (auto& [key, value] : target) {
    if (key == kMetricNameLabel || (honor_labels && is_there(labels, key))) continue;
    for (auto& label : labels) {
      if (label.first != key) continue;
      std::string other = "exported_" + key;
      while (is_there(labels, other) || is_there(target, other)) other.insert(0, "exported_");
      label.first = std::move(other);
    }
    labels.emplace_back(key, value);
  }
  return canonical_labels(std::move(labels));
}

}  // namespace lockstep::exposition
