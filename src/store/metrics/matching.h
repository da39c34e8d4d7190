// Matchers put to a label's dictionary of values: text is looked at once per value, never once per series.
//
// What holds a dictionary (the head's index, a block's) gives LabelDictionary; matching_series() does the rest, with
// Prometheus' meaning of a label that is not there: it counts as "".
// On error: a regular expression that RE2 does not take is one line.
// Thread rule: Immutable (CompiledMatchers); a dictionary as its owner says.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/metric_descriptor.h"
#include "store/metric_reader.h"
#include "store/metrics/postings.h"

namespace re2 {
class RE2;
}

namespace lockstep::metrics {

class CompiledMatcher {
 public:
  static Result<CompiledMatcher> compile(const LabelMatcher& matcher);

  const std::string& name() const { return matcher_.name; }
  const LabelMatcher& matcher() const { return matcher_; }
  bool matches(std::string_view value) const;
  bool matches_empty() const { return matches_empty_; }
  // Regular expressions that are a choice of plain texts ("a|b|c"): these, else empty.
  const std::vector<std::string>& choices() const { return choices_; }

 private:
  LabelMatcher matcher_;
  std::shared_ptr<const re2::RE2> regex_;
  std::vector<std::string> choices_;
  bool matches_empty_ = false;
};

using CompiledMatchers = std::vector<CompiledMatcher>;
// At least one matcher must not match "", unless anything is asked for.
Result<CompiledMatchers> compile_matchers(std::span<const LabelMatcher> matchers, bool all_may_match = false);

// One series by itself, as alerts and rules are.
bool matches_all(const CompiledMatchers& matchers, const Labels& labels);

// The values of one label name, numbered from 0.
class LabelDictionary {
 public:
  virtual ~LabelDictionary() = default;
  virtual size_t value_count() const = 0;
  virtual std::string_view value(size_t at) const = 0;
  // SIZE_MAX: there is none.
  virtual size_t find(std::string_view value) const = 0;
  // False: damage.
  virtual bool add_series(size_t at, SeriesSet& set) const = 0;
  // Which values a regular expression matches, remembered by who can; nullptr: nobody does.
  virtual std::shared_ptr<const std::vector<uint32_t>> remembered(const CompiledMatcher&) const { return nullptr; }
};

// dictionary(name): nullptr where no series has the label. False: damage.
bool matching_series(const CompiledMatchers& matchers,
                     const std::function<const LabelDictionary*(std::string_view name)>& dictionary, SeriesSet& set);

}  // namespace lockstep::metrics
