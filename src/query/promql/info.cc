#include <re2/re2.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "base/text.h"
#include "query/promql/evaluator.h"
#include "query/promql/parser.h"

namespace lockstep::promql {
namespace {

bool matches(const LabelMatcher& matcher, std::string_view text) {
  switch (matcher.op) {
    case LabelMatcher::Op::kEqual:
      return text == matcher.value;
    case LabelMatcher::Op::kNotEqual:
      return text != matcher.value;
    default:
      break;
  }
  RE2::Options options;
  options.set_log_errors(false);
  options.set_dot_nl(true);
  return RE2::FullMatch(re2::StringPiece(text.data(), text.size()), RE2(matcher.value, options)) ==
         (matcher.op == LabelMatcher::Op::kRegex);
}

const Expr* first_selector(const Expr& expr) {
  if (expr.kind == Expr::Kind::kSelector) return &expr;
  for (const auto& child : expr.children) {
    if (const Expr* found = first_selector(*child)) return found;
  }
  return nullptr;
}

}  // namespace

// info(v, {labels}): adds labels of info metrics that share job and instance with a series.
class Evaluator::InfoJoin {
 public:
  InfoJoin(Evaluator& evaluator, const Expr& expr, const Grid& grid)
      : evaluator_(evaluator), labels_(evaluator.labels_), expr_(expr), grid_(grid) {}

  Block run() {
    base_ = evaluator_.eval(expr_.child(), grid_);
    sort_matchers();
    find_info_rows();
    infos_.steps = grid_.count;
    if (!values_[0].empty() || !values_[1].empty()) select_infos();
    for (size_t i = 0; i < infos_.rows.size(); ++i)
      by_metric_[labels_.get(infos_.rows[i].labels, LabelTable::kName)].push_back(i);
    all_match_empty_ = std::all_of(data_matchers_.begin(), data_matchers_.end(), [](const auto& entry) {
      return std::all_of(entry.second.begin(), entry.second.end(), matches_empty);
    });
    out_.steps = grid_.count;
    LabelSetIds ids(base_.rows.size());
    for (size_t s = 0; s < grid_.count; ++s) {
      evaluator_.check();
      find_newest(s);
      for (size_t i = 0; i < base_.rows.size(); ++i) {
        if (!is_absent(base_.row(i)[s])) join(i, s, ids);
      }
    }
    evaluator_.charge_block(out_);
    return std::move(out_);
  }

 private:
  // Those of the name say which info metrics, the others which of their labels.
  void sort_matchers() {
    if (expr_.children.size() > 1) {
      for (const LabelMatcher& matcher : unwrapped(expr_.child(1)).matchers) {
        if (matcher.name == "__name__") {
          name_matchers_.push_back(matcher);
        } else {
          data_matchers_[matcher.name].push_back(matcher);
        }
      }
    }
    const bool positive = std::any_of(name_matchers_.begin(), name_matchers_.end(), [](const LabelMatcher& m) {
      return m.op == LabelMatcher::Op::kEqual || m.op == LabelMatcher::Op::kRegex;
    });
    if (positive) return;
    if (name_matchers_.empty()) {
      name_matchers_.push_back({"__name__", LabelMatcher::Op::kEqual, "target_info"});
    } else {
      name_matchers_.insert(name_matchers_.begin(), {"__name__", LabelMatcher::Op::kRegex, ".+_info"});
    }
  }

  // Which rows are info metrics themselves, and by what the others are identified.
  void find_info_rows() {
    is_info_.resize(base_.rows.size());
    identifying_[0] = labels_.intern("instance");
    identifying_[1] = labels_.intern("job");
    for (size_t i = 0; i < base_.rows.size(); ++i) {
      const std::string_view name = labels_.text(labels_.get(base_.rows[i].labels, LabelTable::kName));
      is_info_[i] = std::all_of(name_matchers_.begin(), name_matchers_.end(),
                                [&](const LabelMatcher& m) { return matches(m, name); });
      if (is_info_[i]) continue;
      for (int k = 0; k < 2; ++k) {
        const uint32_t value = labels_.get(base_.rows[i].labels, identifying_[k]);
        if (value != LabelTable::kEmpty) values_[k].insert(labels_.text(value));
      }
    }
  }

  void select_infos() {
    std::vector<LabelMatcher> matchers = name_matchers_;
    for (int k = 0; k < 2; ++k) {
      if (values_[k].empty()) continue;
      std::string any;
      for (std::string_view value : values_[k])
        any += (any.empty() ? "" : "|") + RE2::QuoteMeta(re2::StringPiece(value.data(), value.size()));
      matchers.push_back({std::string(labels_.text(identifying_[k])), LabelMatcher::Op::kRegex, any});
    }
    for (const auto& [name, list] : data_matchers_) matchers.insert(matchers.end(), list.begin(), list.end());
    // Info series are read at the time that the first selector is.
    const int64_t lookback = evaluator_.options_.lookback_ms;
    const Expr* selector = first_selector(expr_.child());
    const int64_t offset = selector != nullptr ? selector->offset_ms : 0;
    const bool fixed = selector != nullptr && selector->at != AtModifier::kNone;
    const int64_t from = (fixed ? selector->at_ms : grid_.start) - offset - lookback + 1;
    const int64_t to = (fixed ? selector->at_ms : grid_.last()) - offset;
    const MetricSelection* selection =
        evaluator_.select(matchers, std::min(from, grid_.start - lookback + 1), std::max(to, grid_.last()), 0);
    infos_ = evaluator_.selected(*selection, grid_, nullptr, 0, Take::kTime);
  }

  // At a step: the newest info row of each metric, by job and instance.
  void find_newest(size_t s) {
    newest_.clear();
    for (const auto& [metric, rows] : by_metric_) {
      newest_.emplace_back();
      for (size_t i : rows) {
        if (is_absent(infos_.row(i)[s])) continue;
        const auto [entry, fresh] = newest_.back().emplace(identity(infos_.rows[i].labels), i);
        if (fresh) continue;
        const double known = infos_.row(entry->second)[s];
        const double now = infos_.row(i)[s];
        if (known == now)
          fail_execution(format("found duplicate series for info metric: existing %s @ %lld, new %s @ %lld",
                                labels_.shown(infos_.rows[entry->second].labels).c_str(), static_cast<long long>(known),
                                labels_.shown(infos_.rows[i].labels).c_str(), static_cast<long long>(now)));
        if (known < now) entry->second = i;
      }
    }
  }

  void join(size_t i, size_t s, LabelSetIds& ids) {
    LabelSpan labels = base_.rows[i].labels;
    if (!is_info_[i]) {
      LabelSpan added;
      if (!find_added(labels, added) && !all_match_empty_) return;
      for (const LabelSymbols& label : added) labels = labels_.with(labels, label.name, label.value);
    }
    const uint32_t id = ids.id(labels);
    if (id == out_.rows.size()) out_.add_row(labels, base_.rows[i].drop_name);
    if (!is_absent(out_.row(id)[s])) fail_execution("vector cannot contain metrics with the same labelset");
    if (HistogramPtr histogram = base_.histogram_ptr(i, s)) {
      out_.set_histogram(id, s, std::move(histogram));
    } else {
      out_.row(id)[s] = base_.row(i)[s];
    }
  }

  // Which labels info metrics have for this series; false: there is no info metric for it.
  bool find_added(LabelSpan labels, LabelSpan& added) {
    bool any = false;
    for (const auto& of_metric : newest_) {
      const auto hit = of_metric.find(identity(labels));
      if (hit == of_metric.end()) continue;
      any = true;
      for (const LabelSymbols& label : infos_.rows[hit->second].labels) {
        if (label.name == LabelTable::kName) continue;
        if (!data_matchers_.empty() && !data_matchers_.contains(std::string(labels_.text(label.name)))) continue;
        const uint32_t known = labels_.get(added, label.name);
        if (known != LabelTable::kEmpty && known != label.value)
          fail_execution("conflicting label: " + std::string(labels_.text(label.name)));
        if (labels_.get(labels, label.name) != LabelTable::kEmpty) continue;
        added = labels_.with(added, label.name, label.value);
      }
    }
    return any;
  }

  uint64_t identity(LabelSpan labels) const {
    return static_cast<uint64_t>(labels_.get(labels, identifying_[0])) << 32 | labels_.get(labels, identifying_[1]);
  }

  Evaluator& evaluator_;
  LabelTable& labels_;
  const Expr& expr_;
  const Grid& grid_;
  std::vector<LabelMatcher> name_matchers_;
  std::map<std::string, std::vector<LabelMatcher>> data_matchers_;
  bool all_match_empty_ = false;  // of data_matchers_
  Block base_;                    // what gets labels
  std::vector<uint8_t> is_info_;  // of its rows
  uint32_t identifying_[2] = {0, 0};
  std::unordered_set<std::string_view> values_[2];  // of the identifying labels
  Block infos_;
  std::map<uint32_t, std::vector<size_t>> by_metric_;         // info rows
  std::vector<std::unordered_map<uint64_t, size_t>> newest_;  // info rows at a step, per metric
  Block out_;
};

Block Evaluator::info(const Expr& expr, const Grid& grid) {
  return InfoJoin(*this, expr, grid).run();
}

}  // namespace lockstep::promql
