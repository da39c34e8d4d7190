#include "store/metrics/matching.h"

#include <re2/re2.h>

#include <algorithm>

#include "base/text.h"
#include "model/series_labels.h"

namespace lockstep::metrics {
namespace {

bool is_plain(std::string_view text) {
  return text.find_first_of("\\.+*?()[]{}^$|") == std::string_view::npos;
}

std::vector<std::string> choices_of(std::string_view pattern) {
  std::vector<std::string> list;
  for (std::string_view part : split(pattern, '|')) {
    if (!is_plain(part)) return {};
    list.emplace_back(part);
  }
  return list;
}

}  // namespace

Result<CompiledMatcher> CompiledMatcher::compile(const LabelMatcher& matcher) {
  CompiledMatcher compiled;
  compiled.matcher_ = matcher;
  if (matcher.op == LabelMatcher::Op::kRegex || matcher.op == LabelMatcher::Op::kNotRegex) {
    compiled.choices_ = choices_of(matcher.value);
    RE2::Options options;
    options.set_log_errors(false);
    options.set_dot_nl(true);
    options.set_max_mem(8 << 20);
    auto regex = std::make_shared<RE2>(matcher.value, options);
    if (!regex->ok())
      return Error{format("matcher on %s: \"%s\" is no regular expression: %s", as_one_line(matcher.name).c_str(),
                          as_one_line(matcher.value).c_str(), as_one_line(regex->error()).c_str())};
    compiled.regex_ = std::move(regex);
  }
  compiled.matches_empty_ = compiled.matches("");
  return compiled;
}

bool CompiledMatcher::matches(std::string_view value) const {
  switch (matcher_.op) {
    case LabelMatcher::Op::kEqual:
      return value == matcher_.value;
    case LabelMatcher::Op::kNotEqual:
      return value != matcher_.value;
    case LabelMatcher::Op::kRegex:
    case LabelMatcher::Op::kNotRegex: {
      const bool wanted = matcher_.op == LabelMatcher::Op::kRegex;
      if (!choices_.empty()) return (std::find(choices_.begin(), choices_.end(), value) != choices_.end()) == wanted;
      return RE2::FullMatch(re2::StringPiece(value.data(), value.size()), *regex_) == wanted;
    }
  }
  return false;
}

bool matches_all(const CompiledMatchers& matchers, const Labels& labels) {
  return std::all_of(matchers.begin(), matchers.end(), [&](const CompiledMatcher& matcher) {
    return matcher.matches(label_value(labels, matcher.name()));
  });
}

Result<CompiledMatchers> compile_matchers(std::span<const LabelMatcher> matchers, bool all_may_match) {
  CompiledMatchers list;
  bool narrows = all_may_match;
  for (const LabelMatcher& matcher : matchers) {
    CompiledMatcher compiled = LOCKSTEP_TRY(CompiledMatcher::compile(matcher));
    narrows |= !compiled.matches_empty();
    list.push_back(std::move(compiled));
  }
  if (!narrows)
    return Error{"at least one matcher must not match the empty text; all series at once are not given out"};
  return list;
}

bool matching_series(const CompiledMatchers& matchers,
                     const std::function<const LabelDictionary*(std::string_view name)>& dictionary, SeriesSet& set) {
  for (const CompiledMatcher& matcher : matchers) {
    const LabelDictionary* values = dictionary(matcher.name());
    if (values == nullptr) {
      if (!matcher.matches_empty()) set = SeriesSet(set.size());
      continue;
    }
    // Series without the label match where "" does, so then it is the values that do not match that are collected.
    const bool keep = !matcher.matches_empty();
    SeriesSet found(set.size());
    bool ok = true;
    auto one = [&](std::string_view value) {
      const size_t at = values->find(value);
      if (at != SIZE_MAX && !value.empty()) ok &= values->add_series(at, found);
    };
    if (matcher.matcher().op == LabelMatcher::Op::kEqual && keep) {
      one(matcher.matcher().value);
    } else if (matcher.matcher().op == LabelMatcher::Op::kNotEqual && !keep) {
      one(matcher.matcher().value);
    } else if (matcher.matcher().op == LabelMatcher::Op::kRegex && keep && !matcher.choices().empty()) {
      for (const std::string& choice : matcher.choices()) one(choice);
    } else if (auto known = keep ? values->remembered(matcher) : nullptr) {
      for (uint32_t at : *known) ok &= values->add_series(at, found);
    } else {
      for (size_t at = 0; at < values->value_count(); ++at) {
        if (matcher.matches(values->value(at)) == keep) ok &= values->add_series(at, found);
      }
    }
    if (!ok) return false;
    if (keep) {
      set.keep(found);
    } else {
      set.keep_out(found);
    }
  }
  return true;
}

}  // namespace lockstep::metrics
