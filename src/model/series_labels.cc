#include "model/series_labels.h"

#include <algorithm>

#include "base/text.h"

namespace lockstep {
namespace {

// For a line that a person reads: whatever a peer sent.
std::string shown(std::string_view text) {
  const std::string line = as_one_line(text.substr(0, 60));
  std::string result;
  for (size_t at = 0; at < line.size();) {
    const size_t length = utf8_length(line, at);
    result += length == 0 ? "?" : line.substr(at, length);
    at += std::max<size_t>(1, length);
  }
  return result;
}

}  // namespace

std::string in_label_quotes(std::string_view text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '\n') {
      result += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

Result<Labels> canonical_labels(Labels labels) {
  std::erase_if(labels, [](const auto& label) { return label.second.empty(); });
  if (labels.size() > kLabelsMax) return Error{format("%zu labels (limit %zu)", labels.size(), kLabelsMax)};
  auto by_name = [](const auto& a, const auto& b) { return a.first < b.first; };
  if (!std::is_sorted(labels.begin(), labels.end(), by_name)) std::sort(labels.begin(), labels.end(), by_name);
  bool has_name = false;
  size_t bytes = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto& [name, value] = labels[i];
    bytes += name.size() + value.size();
    if (name.empty()) return Error{format("a label without a name (value \"%s\")", shown(value).c_str())};
    if (name.size() > kLabelNameBytesMax) {
      return Error{format("label name \"%s...\" has %zu bytes (limit %zu)", shown(name).c_str(), name.size(),
                          kLabelNameBytesMax)};
    }
    if (value.size() > kLabelValueBytesMax) {
      return Error{format("label \"%s\" has a value of %zu bytes (limit %zu)", shown(name).c_str(), value.size(),
                          kLabelValueBytesMax)};
    }
    if (!is_utf8(name) || !is_utf8(value)) return Error{format("label \"%s\" is not UTF-8", shown(name).c_str())};
    if (i > 0 && labels[i - 1].first == name) return Error{format("label \"%s\" twice", shown(name).c_str())};
    has_name |= name == kMetricNameLabel;
  }
  if (bytes > kLabelsBytesMax) return Error{format("labels of %zu bytes (limit %zu)", bytes, kLabelsBytesMax)};
  if (!has_name) return Error{"no label __name__"};
  return labels;
}

}  // namespace lockstep
