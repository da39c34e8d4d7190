#include "query/logql/metric_query.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <unordered_map>

#include "base/text.h"
#include "query/logql/pipeline.h"

namespace lockstep::logql {
namespace {

using Type = Expression::Type;
using Function = Expression::Function;
using Grouping = Expression::Grouping;
constexpr size_t kNone = SIZE_MAX;
using AllSeries = std::vector<MetricSeries>;
using Names = std::vector<std::string>;

bool is_listed(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Explore asks for detected_level too, which is `level` here, and nothing that attributes would have to be read for.
bool is_beyond_streams(const std::string& name) {
  return stream_label(name) == nullptr && name != "detected_level";
}

bool is_choice(const Expression& expression) {
  return expression.aggregate == Expression::Aggregate::kTop || expression.aggregate == Expression::Aggregate::kBottom;
}

// What records say besides, by name, that an aggregate needs of the series below it: what its `by` names, and, where it lets
// other labels through, what those around it need.
Names needed_below(const Expression& aggregate, const Names& around) {
  Names names = is_choice(aggregate) || aggregate.grouping == Grouping::kWithout ? around : Names{};
  if (aggregate.grouping != Grouping::kBy) return names;
  std::copy_if(aggregate.labels.begin(), aggregate.labels.end(), std::back_inserter(names), is_beyond_streams);
  return names;
}

Labels grouped(const Labels& labels, const Expression& by) {
  Labels group;
  if (by.grouping == Grouping::kNone) return group;
  for (const auto& label : labels) {
    if (is_listed(by.labels, label.first) == (by.grouping == Grouping::kBy)) group.push_back(label);
  }
  return group;
}

// Records of one series: what begins and what ends to count at each point.
struct Cells {
  Labels labels;
  std::vector<int64_t> records, values;
};

// Counts records of a selection into series, by point.
class RangeCounter {
 public:
  // sum: groups what it is the sum of; nullptr: a series for each stream. names: of metadata that tells series apart besides.
  RangeCounter(const Expression& range, const Expression* sum, Names names, const MetricOptions& options)
      : range_(range),
        sum_(sum),
        names_(std::move(names)),
        options_(options),
        points_(options.times.points()),
        range_ns_(range.range_ms * 1'000'000),
        is_bytes_(range.function == Function::kBytesOverTime || range.function == Function::kBytesRate),
        pipeline_(range.logs.stages, !names_.empty()) {
    for_each_line_ = is_bytes_ || !pipeline_.is_empty();
  }

  MetricFailure count(const ColumnarLogStore& store, MetricResult& result);
  AllSeries series();

 private:
  void add_rows(const logs::LogColumns& columns, std::span<const uint32_t> rows);
  void add_by_stream(const logs::LogColumns& columns, std::span<const uint32_t> rows);
  uint32_t stream_of(const logs::LogColumns& columns, const logs::LogRow& row);
  size_t cells_of_stream(uint32_t stream);
  size_t cells_of_line(const Line& line);
  size_t cells_by(const Line& line);
  size_t cells_of(Labels labels);
  void refuse_error(const Line& line);
  void add(size_t cells, int64_t time_unix_ns, int64_t value);
  void refuse(MetricFailure failure, std::string line) {
    if (failure_ == MetricFailure::kNone) error_ = std::move(line);
    if (failure_ == MetricFailure::kNone) failure_ = failure;
  }

  const Expression& range_;
  const Expression* const sum_;
  const Names names_;
  const MetricOptions& options_;
  const size_t points_;
  const int64_t range_ns_;
  const bool is_bytes_;
  bool for_each_line_ = false;  // else counted by stream, without their lines
  Pipeline pipeline_;
  StreamKeys keys_;
  std::deque<Labels> streams_;
  std::vector<size_t> cells_of_stream_;  // kNone: not known yet
  std::unordered_map<std::string, size_t> by_labels_;
  std::unordered_map<std::string, size_t> by_values_;  // of the labels that it is summed by
  std::string values_;
  size_t lines_looked_at_ = 0;
  std::vector<Cells> cells_;
  MetricFailure failure_ = MetricFailure::kNone;
  std::string error_;
};

MetricFailure RangeCounter::count(const ColumnarLogStore& store, MetricResult& result) {
  const std::optional<std::vector<LogMatch>> matches = matches_of(range_.logs.matchers);
  if (!matches) return MetricFailure::kNone;
  const int64_t begin = options_.times.start_unix_ns;
  LogQuery query{
      .matches = *matches,
      .from_unix_ns = begin > range_ns_ ? begin - range_ns_ + 1 : 0,
      .to_unix_ns = options_.times.end_unix_ns,
      .rows_max = for_each_line_ ? kLogRowsMax : kLogIndexRowsMax,
      .give_up = [&] { return failure_ != MetricFailure::kNone || (options_.give_up && options_.give_up()); }};
  const LogScan scan =
      store.scan(query, for_each_line_, [&](const logs::LogColumns& columns, std::span<const uint32_t> rows, uint64_t) {
        keys_.begin();
        for_each_line_ ? add_rows(columns, rows) : add_by_stream(columns, rows);
      });
  result.rows_looked_at += scan.rows_looked_at;
  if (failure_ == MetricFailure::kNone && scan.gave_up) failure_ = MetricFailure::kGaveUp;
  if (failure_ == MetricFailure::kNone && !scan.whole)
    refuse(MetricFailure::kRefused,
           format("the query has more than %s log records to look through; narrow it by time or labels",
                  with_thousands(static_cast<int64_t>(query.rows_max)).c_str()));
  result.error = error_;
  return failure_;
}

void RangeCounter::add_by_stream(const logs::LogColumns& columns, std::span<const uint32_t> rows) {
  for (const uint32_t at : rows) {
    const logs::LogRow& row = columns.rows[at];
    add(cells_of_stream(stream_of(columns, row)), row.time_unix_ns, 1);
    if (failure_ != MetricFailure::kNone) return;
  }
}

uint32_t RangeCounter::stream_of(const logs::LogColumns& columns, const logs::LogRow& row) {
  return keys_.of(columns, row, [&](Labels labels) {
    if (streams_.size() == kStreamsMax)
      refuse(MetricFailure::kRefused,
             format("the query counts more than %zu streams; name a job or a host", kStreamsMax));
    streams_.push_back(std::move(labels));
    cells_of_stream_.push_back(kNone);
  });
}

size_t RangeCounter::cells_of_stream(uint32_t stream) {
  size_t& cells = cells_of_stream_[stream];
  if (cells == kNone) cells = cells_of(sum_ != nullptr ? grouped(streams_[stream], *sum_) : streams_[stream]);
  return cells;
}

void RangeCounter::add_rows(const logs::LogColumns& columns, std::span<const uint32_t> rows) {
  Line line;
  for (const uint32_t at : rows) {
    if (failure_ != MetricFailure::kNone) return;
    if (++lines_looked_at_ % kLogRowsBetweenLooks == 0 && options_.give_up && options_.give_up()) {
      failure_ = MetricFailure::kGaveUp;
      return;
    }
    const logs::LogRow& row = columns.rows[at];
    const auto stream = [&](Labels&) -> const Labels& { return streams_[stream_of(columns, row)]; };
    if (!pipeline_.run(text_of(columns, row), stream, line)) continue;
    if (pipeline_.has_labels() && !line.error.empty()) return refuse_error(line);
    add(pipeline_.has_labels() ? cells_of_line(line) : cells_of_stream(stream_of(columns, row)), row.time_unix_ns,
        is_bytes_ ? static_cast<int64_t>(line.text.size()) : 1);
  }
}

void RangeCounter::refuse_error(const Line& line) {
  refuse(MetricFailure::kRefused,
         format("%s at a line of %s (%s); | __error__=\"\" leaves such lines out, | drop __error__ counts them",
                line.error.c_str(), as_one_line(to_text(*line.stream)).substr(0, 200).c_str(),
                as_one_line(line.error_details).c_str()));
}

size_t RangeCounter::cells_of_line(const Line& line) {
  if (sum_ != nullptr && sum_->grouping == Grouping::kBy) return cells_by(line);
  Labels labels = *line.stream;
  labels.insert(labels.end(), line.parsed.begin(), line.parsed.end());
  std::copy_if(line.metadata->begin(), line.metadata->end(), std::back_inserter(labels),
               [&](const auto& label) { return is_listed(names_, label.first); });
  sort_labels(labels);
  return cells_of(sum_ != nullptr ? grouped(labels, *sum_) : std::move(labels));
}

// By the values alone: most lines have those of another.
size_t RangeCounter::cells_by(const Line& line) {
  values_.clear();
  for (const std::string& name : sum_->labels) {
    const std::string_view value = line.label(name);
    values_ += std::to_string(value.size()) + ":";
    values_ += value;
  }
  const auto known = by_values_.find(values_);
  if (known != by_values_.end()) return known->second;
  Labels labels;
  for (const std::string& name : sum_->labels) {
    if (const std::string_view value = line.label(name); !value.empty()) labels.emplace_back(name, value);
  }
  sort_labels(labels);
  const size_t cells = cells_of(std::move(labels));
  by_values_.emplace(values_, cells);
  return cells;
}

size_t RangeCounter::cells_of(Labels labels) {
  const auto [known, is_new] = by_labels_.try_emplace(to_text(labels), cells_.size());
  if (!is_new || failure_ != MetricFailure::kNone) return known->second;
  if ((cells_.size() + 1) * (points_ + 1) > kCellsMax || cells_.size() == kStreamsMax) {
    refuse(
        MetricFailure::kRefused,
        format(
            "the query counts more than %zu series of %zu points each; sum by (...) fewer labels, or ask for a larger "
            "step or fewer streams",
            cells_.size(), points_));
  } else if (options_.memory != nullptr &&
             !options_.memory->add(2 * sizeof(int64_t) * (points_ + 1) + 3 * known->first.size() + sizeof(Cells))) {
    refuse(MetricFailure::kNoMemory, kMemorySpent);
  }
  const size_t points = failure_ == MetricFailure::kNone ? points_ + 1 : 0;
  cells_.push_back(
      {.labels = std::move(labels), .records = std::vector<int64_t>(points), .values = std::vector<int64_t>(points)});
  return known->second;
}

void RangeCounter::add(size_t at, int64_t time_unix_ns, int64_t value) {
  if (failure_ != MetricFailure::kNone) return;
  const auto& [start, end, step] = options_.times;
  const int64_t since = time_unix_ns - start;
  const int64_t first = since <= 0 ? 0 : (since - 1) / step + 1;
  const int64_t last = std::min((since + range_ns_ - 1) / step, static_cast<int64_t>(points_) - 1);
  if (since + range_ns_ - 1 < 0 || first > last) return;
  Cells& cells = cells_[at];
  cells.records[static_cast<size_t>(first)] += 1;
  cells.records[static_cast<size_t>(last) + 1] -= 1;
  cells.values[static_cast<size_t>(first)] += value;
  cells.values[static_cast<size_t>(last) + 1] -= value;
}

AllSeries RangeCounter::series() {
  const bool is_rate = range_.function == Function::kRate || range_.function == Function::kBytesRate;
  const double over = is_rate ? static_cast<double>(range_.range_ms) / 1000 : 1;
  AllSeries all;
  for (Cells& cells : cells_) {
    MetricSeries one{.labels = std::move(cells.labels),
                     .values = std::vector<double>(points_),
                     .exists = std::vector<uint8_t>(points_)};
    int64_t records = 0, value = 0;
    bool has_any = false;
    for (size_t at = 0; at < points_; ++at) {
      records += cells.records[at];
      value += cells.values[at];
      one.exists[at] = records > 0;
      one.values[at] = static_cast<double>(value) / over;
      has_any = has_any || records > 0;
    }
    cells = {};
    if (has_any) all.push_back(std::move(one));
  }
  return all;
}

// What is made of series, at each point.

class Folding {
 public:
  explicit Folding(Expression::Aggregate what) : what_(what) {}
  void add(double value) {
    if (count_ == 0 || (what_ == Expression::Aggregate::kMinimum ? value < best_ : value > best_)) best_ = value;
    sum_ += value;
    ++count_;
  }
  bool has_any() const { return count_ > 0; }
  double value() const {
    switch (what_) {
      case Expression::Aggregate::kSum:
        return sum_;
      case Expression::Aggregate::kAverage:
        return sum_ / static_cast<double>(count_);
      case Expression::Aggregate::kCount:
        return static_cast<double>(count_);
      default:
        return best_;
    }
  }

 private:
  Expression::Aggregate what_;
  double sum_ = 0, best_ = 0;
  size_t count_ = 0;
};

using Groups = std::map<Labels, std::vector<size_t>>;

AllSeries folded(const Expression& by, const AllSeries& all, const Groups& groups, size_t points) {
  AllSeries out;
  for (const auto& [labels, members] : groups) {
    MetricSeries one{.labels = labels, .values = std::vector<double>(points), .exists = std::vector<uint8_t>(points)};
    for (size_t at = 0; at < points; ++at) {
      Folding folding(by.aggregate);
      for (const size_t member : members) {
        if (all[member].exists[at]) folding.add(all[member].values[at]);
      }
      one.exists[at] = folding.has_any();
      one.values[at] = folding.has_any() ? folding.value() : 0;
    }
    out.push_back(std::move(one));
  }
  return out;
}

// In topk, or else in bottomk; what is no number comes last.
bool comes_before(bool is_top, double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(b) && !std::isnan(a);
  return is_top ? a > b : a < b;
}

// Of each group the most, or the least, at each point; the others have no value there.
AllSeries most_of(const Expression& by, AllSeries all, const Groups& groups, size_t points) {
  const bool is_top = by.aggregate == Expression::Aggregate::kTop;
  const auto most = static_cast<size_t>(by.most);
  for (const auto& [labels, members] : groups) {
    for (size_t at = 0; at < points; ++at) {
      std::vector<size_t> there;
      std::copy_if(members.begin(), members.end(), std::back_inserter(there),
                   [&](size_t member) { return all[member].exists[at] != 0; });
      if (there.size() <= most) continue;
      std::stable_sort(there.begin(), there.end(),
                       [&](size_t a, size_t b) { return comes_before(is_top, all[a].values[at], all[b].values[at]); });
      for (size_t i = most; i < there.size(); ++i) all[there[i]].exists[at] = 0;
    }
  }
  std::erase_if(all, [](const MetricSeries& one) {
    return std::none_of(one.exists.begin(), one.exists.end(), [](uint8_t there) { return there != 0; });
  });
  return all;
}

class Evaluator {
 public:
  Evaluator(const ColumnarLogStore& store, const MetricOptions& options, MetricResult& result)
      : store_(store), options_(options), result_(result), points_(options.times.points()) {}

  // names: of metadata that an aggregate around it asks for.
  AllSeries of(const Expression& expression, const Names& names) {
    switch (expression.type) {
      case Type::kConstant:
        return {{.labels = {},
                 .values = std::vector<double>(points_, expression.constant),
                 .exists = std::vector<uint8_t>(points_, 1)}};
      case Type::kRange:
        return counted(expression, nullptr, names);
      case Type::kAggregate:
        return aggregated(expression, names);
      case Type::kArithmetic:
        return arithmetic(expression, names);
      default:
        return {};
    }
  }

 private:
  AllSeries counted(const Expression& range, const Expression* sum, const Names& names) {
    RangeCounter counter(range, sum, names, options_);
    const MetricFailure failure = counter.count(store_, result_);
    if (failure == MetricFailure::kNone) return counter.series();
    result_.failure = failure;
    return {};
  }
  AllSeries aggregated(const Expression& expression, const Names& around) {
    const Expression& part = expression.parts[0];
    const Names names = needed_below(expression, around);
    if (expression.aggregate == Expression::Aggregate::kSum && part.type == Type::kRange)
      return counted(part, &expression, names);
    AllSeries all = of(part, names);
    Groups groups;
    for (size_t i = 0; i < all.size(); ++i) groups[grouped(all[i].labels, expression)].push_back(i);
    return expression.most > 0 ? most_of(expression, std::move(all), groups, points_)
                               : folded(expression, all, groups, points_);
  }
  AllSeries arithmetic(const Expression& expression, const Names& names) {
    const bool is_constant_left = expression.parts[0].type == Type::kConstant;
    const double constant = expression.parts[is_constant_left ? 0 : 1].constant;
    AllSeries all = of(expression.parts[is_constant_left ? 1 : 0], names);
    for (MetricSeries& one : all) {
      for (double& value : one.values)
        value =
            is_constant_left ? computed(expression.sign, constant, value) : computed(expression.sign, value, constant);
    }
    return all;
  }

  const ColumnarLogStore& store_;
  const MetricOptions& options_;
  MetricResult& result_;
  const size_t points_;
};

}  // namespace

MetricResult run_metric_query(const ColumnarLogStore& store, const Expression& expression,
                              const MetricOptions& options) {
  MetricResult result;
  AllSeries series = Evaluator(store, options, result).of(expression, {});
  if (result.failure != MetricFailure::kNone) return result;
  if (series.size() > kSeriesMax) {
    result.failure = MetricFailure::kRefused;
    result.error = format(
        "maximum of series (%zu) reached for a single query: it has %zu; sum by (...) fewer labels, or "
        "topk() them",
        kSeriesMax, series.size());
    return result;
  }
  std::sort(series.begin(), series.end(), [](const auto& a, const auto& b) { return a.labels < b.labels; });
  if (expression.type == Type::kAggregate && expression.most > 0 && options.times.points() == 1) {
    const bool is_top = expression.aggregate == Expression::Aggregate::kTop;
    std::stable_sort(series.begin(), series.end(), [&](const MetricSeries& a, const MetricSeries& b) {
      return comes_before(is_top, a.values[0], b.values[0]);
    });
  }
  result.series = std::move(series);
  return result;
}

}  // namespace lockstep::logql
