#include "query/export/series_text.h"

#include <algorithm>
#include <set>

#include "base/characters.h"
#include "model/series_labels.h"

namespace lockstep {
namespace {

bool is_plain(char c, bool colon) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' || (colon && c == ':');
}

bool is_plain_name(std::string_view name, bool colon) {
  return !name.empty() && !is_digit(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return is_plain(c, colon); });
}

std::string with_underscores(std::string_view name, bool colon) {
  std::string plain;
  for (size_t i = 0; i < name.size(); ++i) {
    // One _ for a letter of several bytes.
    if ((static_cast<unsigned char>(name[i]) & 0xC0) == 0x80) continue;
    const bool kept = is_plain(name[i], colon) && (i > 0 || !is_digit(name[i]));
    plain += kept ? name[i] : '_';
  }
  return plain.empty() ? "_" : plain;
}

}  // namespace

std::string metric_name_text(std::string_view name, NameForm form) {
  if (is_plain_name(name, true)) return std::string(name);
  return form == NameForm::kQuoted ? in_label_quotes(name) : with_underscores(name, true);
}

std::string series_text(std::string_view name, std::span<const std::pair<std::string, std::string>> labels,
                        NameForm form) {
  std::string inside;
  std::set<std::string> used;
  for (const auto& [key, value] : labels) {
    std::string label = key;
    if (form == NameForm::kUnderscores) {
      label = with_underscores(key, false);
      while (!used.insert(label).second) label += '_';
    } else if (!is_plain_name(key, false)) {
      label = in_label_quotes(key);
    }
    inside += (inside.empty() ? "" : ",") + label + "=" + in_label_quotes(value);
  }
  const std::string written = metric_name_text(name, form);
  if (written.starts_with('"')) return "{" + written + (inside.empty() ? "" : "," + inside) + "}";
  return written + (inside.empty() ? "" : "{" + inside + "}");
}

}  // namespace lockstep
