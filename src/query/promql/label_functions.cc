// Functions that write labels.
#include <re2/re2.h>

#include <functional>
#include <unordered_map>

#include "base/text.h"
#include "query/promql/evaluator.h"
#include "query/promql/lexer.h"

namespace lockstep::promql {
namespace {

// $1, ${1}, $name and ${name}; $$ is a dollar. A group that is not there is empty. charge: told of its size before it
// grows to it.
std::string expanded(std::string_view pattern, const std::vector<re2::StringPiece>& groups, const RE2& regex,
                     const std::function<void(size_t)>& charge) {
  std::string out;
  size_t charged = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '$') {
      out += pattern[i];
      continue;
    }
    if (i + 1 < pattern.size() && pattern[i + 1] == '$') {
      out += '$';
      ++i;
      continue;
    }
    size_t begin = i + 1;
    const bool braced = begin < pattern.size() && pattern[begin] == '{';
    if (braced) ++begin;
    size_t end = begin;
    const auto is_word = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    };
    while (end < pattern.size() && is_word(pattern[end])) ++end;
    if (end == begin || (braced && (end >= pattern.size() || pattern[end] != '}'))) {
      out += '$';
      continue;
    }
    const std::string name(pattern.substr(begin, end - begin));
    size_t index = groups.size();
    if (name.find_first_not_of("0123456789") == std::string::npos) {
      if (name.size() < 9) index = static_cast<size_t>(std::stoul(name));
    } else if (const auto found = regex.NamedCapturingGroups().find(name);
               found != regex.NamedCapturingGroups().end()) {
      index = static_cast<size_t>(found->second);
    }
    if (index < groups.size() && groups[index].data() != nullptr) {
      if (const size_t size = out.size() + groups[index].size(); size > charged) {
        charged = 2 * size;  // it grows by doubling
        charge(charged);
      }
      out.append(groups[index].data(), groups[index].size());
    }
    i = braced ? end : end - 1;
  }
  return out;
}

bool valid_utf8_name(std::string_view text) {
  if (text.empty()) return false;
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace

Block Evaluator::label_replace(const Expr& expr, const Grid& grid) {
  const std::string& target = string_argument(expr, 1);
  const std::string& replacement = string_argument(expr, 2);
  const std::string& pattern = string_argument(expr, 4);
  RE2::Options options;
  options.set_log_errors(false);
  options.set_dot_nl(true);
  const RE2 regex(pattern, options);
  if (!regex.ok()) fail_execution("invalid regular expression in label_replace(): " + pattern);
  if (!valid_utf8_name(target)) fail_execution("invalid destination label name in label_replace(): " + target);
  Block block = eval(expr.child(), grid);
  const uint32_t to = labels_.intern(target);
  const uint32_t from = labels_.intern(string_argument(expr, 3));
  std::unordered_map<uint32_t, std::optional<uint32_t>> known;
  const int count = 1 + regex.NumberOfCapturingGroups();
  std::optional<Held> held(std::in_place, *this, block);
  for (Row& row : block.rows) {
    const uint32_t source = labels_.get(row.labels, from);
    auto found = known.find(source);
    if (found == known.end()) {
      const std::string_view text = labels_.text(source);
      std::vector<re2::StringPiece> groups(static_cast<size_t>(count));
      std::optional<uint32_t> made;
      if (regex.Match(re2::StringPiece(text.data(), text.size()), 0, text.size(), RE2::ANCHOR_BOTH, groups.data(),
                      count))
        made = labels_.intern(
            expanded(replacement, groups, regex, [&](size_t bytes) { charge_bytes(bytes + replacement.size()); }));
      found = known.emplace(source, made).first;
    }
    if (!found->second) continue;
    row.labels = labels_.with(row.labels, to, *found->second);
    if (to == LabelTable::kName) row.drop_name = false;
  }
  held.reset();
  block.one_name = false;
  merge_same(block);
  return block;
}

Block Evaluator::label_join(const Expr& expr, const Grid& grid) {
  const std::string& target = string_argument(expr, 1);
  const std::string& separator = string_argument(expr, 2);
  std::vector<uint32_t> sources;
  for (size_t i = 3; i < expr.children.size(); ++i) {
    const std::string& source = string_argument(expr, i);
    if (!valid_utf8_name(source)) fail_execution("invalid source label name in label_join(): " + source);
    sources.push_back(labels_.intern(source));
  }
  if (!valid_utf8_name(target)) fail_execution("invalid destination label name in label_join(): " + target);
  Block block = eval(expr.child(), grid);
  const uint32_t to = labels_.intern(target);
  std::optional<Held> held(std::in_place, *this, block);
  for (Row& row : block.rows) {
    size_t bytes = separator.size() * sources.size();
    for (uint32_t source : sources) bytes += labels_.text(labels_.get(row.labels, source)).size();
    charge_bytes(bytes);
    std::string text;
    text.reserve(bytes);
    for (size_t i = 0; i < sources.size(); ++i) {
      if (i > 0) text += separator;
      text += labels_.text(labels_.get(row.labels, sources[i]));
    }
    row.labels = labels_.with(row.labels, to, labels_.intern(text));
    if (to == LabelTable::kName) row.drop_name = false;
  }
  held.reset();
  block.one_name = false;
  merge_same(block);
  return block;
}

}  // namespace lockstep::promql
