#include "diagnosis/signals/early_warning.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/median.h"
#include "base/text.h"
#include "diagnosis/signals/warning_record.h"

namespace lockstep {
namespace {

enum class Kind : uint8_t { kRises, kFalls, kSet };

struct Rule {
  const char* signal;
  Kind kind;
  Layer layer;
  Cause cause;
  double worth;  // kRises: levels below this are nobody's business; kFalls: levels above it; kSet: least value
  double limit;  // where it hurts; kFalls with limit_share: share of its first level
  bool limit_share;
  double change;       // least change over the time looked at, absolute; kSet: what was so before we looked is no news
  double relative;     // and as a share of the first level
  bool against_fleet;  // the fleet's own trend is taken off
  double horizon_s;    // kSet: how soon; else farther away is not worth a word
  double confidence;   // at best
  const char* words;
  const char* action;
  const char* command;      // ID: the GPU's uuid or the adapter
  const char* beside = "";  // only while this signal of the same thing is
  double beside_least = 0;  // so high
};

// clang-format off
constexpr Rule kRules[] = {
    {"ecc_corrected", Kind::kRises, Layer::kGpu, Cause::kEcc, 1, 60, false, 1, 0.5, false, 12 * 3600, 0.7, "corrected memory errors rise",
     "move the job off this GPU at its next checkpoint, then reset the GPU and test its memory", "nvidia-smi -q -d ECC,ROW_REMAPPER -i ID"},
    {"remap_pending", Kind::kSet, Layer::kGpu, Cause::kEcc, 0.5, 0, false, 0.5, 0, false, 24 * 3600, 0.4, "a memory row waits for a reset to be replaced",
     "reset the GPU when its job is over: the row is replaced then", "nvidia-smi -q -d ROW_REMAPPER -i ID", "ecc_corrected", 1},
    {"remap_failure", Kind::kSet, Layer::kGpu, Cause::kEcc, 0.5, 0, false, 0, 0, false, 3600, 0.8, "a memory row could not be replaced",
     "take the GPU out and have it replaced", "nvidia-smi -q -d ROW_REMAPPER -i ID"},
    {"banks_without_spares", Kind::kSet, Layer::kGpu, Cause::kEcc, 0.5, 0, false, 0, 0, false, 12 * 3600, 0.5, "a memory bank has no spare rows left",
     "plan to replace the GPU: the next bad row of that bank stops the job", "nvidia-smi -q -d ROW_REMAPPER -i ID"},
    {"thermal_throttle", Kind::kRises, Layer::kGpu, Cause::kThrottleThermal, 0.5, 15, false, 0.5, 0.5, true, 6 * 3600, 0.75, "it is slowed by heat more and more",
     "look at fans, airflow and cold plate of this node before it slows the job", "nvidia-smi -q -d TEMPERATURE,PERFORMANCE -i ID"},
    {"temperature_margin", Kind::kFalls, Layer::kGpu, Cause::kThrottleThermal, 20, 0, false, 3, 0.15, true, 4 * 3600, 0.7, "its thermal margin shrinks",
     "look at fans, airflow and cold plate of this node before it slows the job", "nvidia-smi -q -d TEMPERATURE -i ID"},
    {"power_throttle", Kind::kRises, Layer::kGpu, Cause::kThrottlePower, 5, 60, false, 5, 0.5, true, 6 * 3600, 0.5, "its power limit holds it back more and more",
     "compare its power limit with its peers, and the power supply of the node", "nvidia-smi -q -d POWER,PERFORMANCE -i ID"},
    {"sm_clock", Kind::kFalls, Layer::kGpu, Cause::kSlowCompute, 10, 0.9, true, 0.02, 0.015, true, 6 * 3600, 0.6, "its clock drifts down",
     "compare clocks, power limit and heat with its peers; reset its clocks between two jobs", "nvidia-smi -q -d CLOCK,POWER -i ID"},
    {"link_errors", Kind::kRises, Layer::kNvlink, Cause::kNvlinkDegraded, 0.05, 5, false, 0.05, 0.5, false, 12 * 3600, 0.7, "errors of its NVLinks rise",
     "find the link that has the errors; reseat the board or leave the node out of the next job", "nvidia-smi nvlink -e -i ID"},
    {"symbol_errors", Kind::kRises, Layer::kLink, Cause::kNicDegraded, 0.05, 10, false, 0.05, 0.5, false, 12 * 3600, 0.7, "symbol errors of its link rise",
     "clean or swap cable and transceiver of this port before the link fails", "mlxlink -d ID -c -e"},
    {"fec_uncorrectable", Kind::kRises, Layer::kLink, Cause::kNicDegraded, 0.01, 1, false, 0.01, 0.5, false, 12 * 3600, 0.8, "error correction of its link fails more and more",
     "swap cable or transceiver of this port before the link fails", "mlxlink -d ID -c -e"},
    {"fec_corrected", Kind::kRises, Layer::kLink, Cause::kNicDegraded, 1, 1000, false, 1, 1.0, true, 12 * 3600, 0.5, "error correction of its link has more and more to do",
     "clean or swap cable and transceiver of this port at the next chance", "mlxlink -d ID -c -e"},
};
// clang-format on
static_assert(std::ranges::all_of(kRules, [](const Rule& rule) {
  return may_emit(Emitter::kEarlyWarning, rule.layer) && may_emit(Emitter::kEarlyWarning, rule.cause);
}));

constexpr double kHoursMin = 0.2;
constexpr size_t kPointsMin = 6;
constexpr double kAgreementMin = 0.5;
constexpr size_t kFleetMax = 512;
constexpr size_t kFleetMin = 4;
constexpr size_t kFollowedMax = 4 * EarlyWarnings::kWarningsMax;
constexpr int kAgreedMin = 2, kMissedMax = 3;
constexpr int64_t kSilentNs = 300'000'000'000;  // agents tell everything once in two minutes

struct Seen {
  bool warn = false;
  double horizon_s = 0;
  double confidence = 0;
};

// `stay`: already raised, so a weaker sign keeps it.
Seen judge(const Rule& rule, const Trend& trend, double fleet_per_hour, bool stay) {
  Seen seen;
  double less = stay ? 0.6 : 1;
  if (rule.kind == Kind::kSet) {
    seen.warn = trend.now >= rule.worth && (stay || trend.now - trend.least >= rule.change);
    seen.horizon_s = rule.horizon_s;
    seen.confidence = rule.confidence;
    return seen;
  }
  if (trend.hours < kHoursMin) return seen;
  double sign = rule.kind == Kind::kRises ? 1 : -1;
  if (rule.kind == Kind::kRises ? trend.now < less * rule.worth : trend.now > rule.worth / less) return seen;
  double slope = sign * (trend.per_hour - (rule.against_fleet ? fleet_per_hour : 0));
  if (slope <= 0 || sign * trend.agreement < less * kAgreementMin) return seen;
  // Most of what is left must be its own, not the fleet's.
  if (rule.against_fleet && slope < 0.5 * sign * trend.per_hour) return seen;
  if (slope * trend.hours < less * std::max(rule.change, rule.relative * std::fabs(trend.first))) return seen;
  double limit = rule.limit_share ? rule.limit * trend.first : rule.limit;
  double left = sign * (limit - trend.now);
  seen.horizon_s = left <= 0 ? 0 : left / slope * 3600;
  if (seen.horizon_s > rule.horizon_s / less) return seen;
  seen.warn = true;
  seen.confidence =
      rule.confidence * std::min(1.0, 0.5 + 0.5 * sign * trend.agreement) * std::min(1.0, 0.6 + 0.4 * trend.hours);
  return seen;
}

std::string horizon_text(double seconds) {
  if (seconds < 60) return "at any time";
  if (seconds < 3600) return format("in about %.0f min", seconds / 60);
  return format("in about %.0f h", seconds / 3600);
}

std::string with_id(std::string command, const std::string& id) {
  const size_t at = command.find("ID");
  return at == std::string::npos ? command : command.replace(at, 2, shell_word(id));
}

// A GPU or an adapter, now.
struct Thing {
  Place place;
  const std::string& host;
  const std::string& id;
  int64_t now_unix_ns;
};

Trend trend_by(const Rule& rule, const SignalStore& signals, const Thing& thing) {
  const auto of = [&](const char* signal) {
    return trend_of(signals.history(thing.place, thing.host, thing.id, signal_index(signal)));
  };
  Trend trend = of(rule.signal);
  // A row that was replaced is everyday; one in a memory that goes on having errors is not.
  if (trend.known && rule.beside[0] != '\0' && trend.now >= rule.worth && of(rule.beside).now < rule.beside_least)
    trend.now = 0;
  return trend;
}

// The slope of the fleet, of which this one joins `slopes`; nothing where too few were seen to take it off. Who is raised
// stays without it.
std::optional<double> fleet_slope(const Rule& rule, const Trend& trend, bool raised, std::deque<float>& slopes) {
  if (!rule.against_fleet || trend.hours < kHoursMin) return 0;
  double fleet = 0;
  if (slopes.size() >= kFleetMin) fleet = median_of(std::vector<double>(slopes.begin(), slopes.end()));
  slopes.push_back(static_cast<float>(trend.per_hour));
  if (slopes.size() > kFleetMax) slopes.pop_front();
  if (slopes.size() <= kFleetMin && !raised) return std::nullopt;
  return fleet;
}

// What a rule sees.
struct Sign {
  const Rule& rule;
  const SignalRow& row;
  Trend trend;
  double fleet_per_hour = 0;
  Seen seen;
  std::string unit() const {
    return row.unit[0] == '/' || row.unit[0] == '\0' ? row.unit : std::string(" ") + row.unit;
  }
};

std::string sentence_of(const Sign& sign, const Thing& thing) {
  const Rule& rule = sign.rule;
  const bool set = rule.kind == Kind::kSet;
  const std::string pace = set ? ""
                               : format(", from %.3g to %.3g%s in %.0f min", std::max(0.0, sign.trend.first),
                                        sign.trend.now, sign.unit().c_str(), 60 * sign.trend.hours);
  const std::string horizon =
      set ? format("within %.0f h", sign.seen.horizon_s / 3600) : horizon_text(sign.seen.horizon_s);
  return format("%s of %s: %s%s; %s expected %s.", thing.id.c_str(), thing.host.c_str(), rule.words, pace.c_str(),
                to_text(rule.cause), horizon.c_str());
}

Claim claim_of(const Sign& sign, const Thing& thing) {
  const Trend& trend = sign.trend;
  Claim claim;
  claim.kind = ClaimKind::kCounter;
  claim.subject = thing.id + " of " + thing.host;
  claim.claim = sign.rule.kind == Kind::kSet
                    ? format("%s: %.3g.", sign.row.words, trend.now)
                    : format("%s: %.3g%s now, %+.3g an hour over %.1f h; the fleet %+.3g.", sign.row.words, trend.now,
                             sign.unit().c_str(), trend.per_hour, trend.hours, sign.fleet_per_hour);
  claim.value = trend.now;
  claim.unit = sign.row.unit;
  claim.baseline = trend.first;
  claim.query = signal_query(signal_index(sign.rule.signal), thing.host, {&thing.id, 1},
                             thing.now_unix_ns - 7'200'000'000'000, thing.now_unix_ns);
  return claim;
}

void word(const Sign& sign, const Thing& thing, EarlyWarning& warning) {
  const Rule& rule = sign.rule;
  warning.updated_unix_ns = thing.now_unix_ns;
  warning.signal = rule.signal;
  warning.host = thing.host;
  (thing.place == Place::kGpu ? warning.gpu_uuid : warning.device) = thing.id;
  warning.layer = rule.layer;
  warning.cause = rule.cause;
  warning.horizon_s = sign.seen.horizon_s;
  warning.confidence = sign.seen.confidence;
  warning.sentence = sentence_of(sign, thing);
  warning.next = {rule.action, with_id(rule.command, thing.id)};
  for (const WarningRecord& record : kWarningRecords) {
    if (std::string_view(record.signal) != rule.signal) continue;
    warning.record_raised = record.raised;
    warning.record_came_true = record.came_true;
  }
  warning.claims = {claim_of(sign, thing)};
}

}  // namespace

Trend trend_of(const std::vector<HistoryValue>& values) {
  Trend trend;
  struct Point {
    double hours;
    double value;
  };
  std::vector<Point> points;
  double fine = 0, fine_at = 0;
  size_t fine_count = 0;
  for (const HistoryValue& value : values) {
    double at = (static_cast<double>(value.from) + 0.5 * value.buckets) * static_cast<double>(kBucketNs) / 3.6e12;
    if (value.buckets > 1) {
      points.push_back({at, value.value});
    } else {
      // The last minute is one point: it must not outvote the hour.
      fine += value.value;
      fine_at += at;
      ++fine_count;
    }
  }
  if (fine_count > 0)
    points.push_back({fine_at / static_cast<double>(fine_count), fine / static_cast<double>(fine_count)});
  if (points.empty()) return trend;
  trend.known = true;
  trend.now = points.back().value;
  trend.first = points.front().value;
  trend.least = std::min_element(points.begin(), points.end(), [](const Point& a, const Point& b) {
                  return a.value < b.value;
                })->value;
  if (points.size() < kPointsMin) return trend;
  trend.hours = points.back().hours - points.front().hours;
  // Most error counters have never moved.
  if (std::all_of(points.begin(), points.end(), [&](const Point& point) { return point.value == trend.now; }))
    return trend;
  std::vector<double> slopes;
  double signs = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    for (size_t j = i + 1; j < points.size(); ++j) {
      double rise = points[j].value - points[i].value;
      slopes.push_back(rise / (points[j].hours - points[i].hours));
      signs += rise > 0 ? 1 : rise < 0 ? -1 : 0;
    }
  }
  trend.agreement = signs / static_cast<double>(slopes.size());
  trend.per_hour = median_of(slopes);
  trend.first = trend.now - trend.per_hour * trend.hours;
  return trend;
}

void EarlyWarnings::evaluate(const SignalStore& signals, Place place, const std::string& host, const std::string& id,
                             int64_t now_unix_ns) {
  const Thing thing{place, host, id, now_unix_ns};
  for (size_t i = 0; i < std::size(kRules); ++i) {
    Sign sign{.rule = kRules[i], .row = signal_row(signal_index(kRules[i].signal))};
    if (sign.row.place != place) continue;
    sign.trend = trend_by(sign.rule, signals, thing);
    if (!sign.trend.known) continue;
    const std::string key = format("%s/%s/%s", host.c_str(), id.c_str(), sign.rule.signal);
    auto found = followed_.find(key);
    const bool raised = found != followed_.end() && found->second.raised;
    const std::optional<double> fleet = fleet_slope(sign.rule, sign.trend, raised, fleet_[i]);
    if (!fleet) continue;
    sign.fleet_per_hour = *fleet;
    sign.seen = judge(sign.rule, sign.trend, *fleet, raised);
    if (found == followed_.end()) {
      if (!sign.seen.warn) continue;
      if (followed_.size() >= kFollowedMax) {
        ++left_out_;
        continue;
      }
      found = followed_.emplace(key, Followed{}).first;
      found->second.warning.id = key;
      found->second.looked_unix_ns = now_unix_ns - kAgainNs;
    }
    Followed& followed = found->second;
    if (now_unix_ns - followed.looked_unix_ns < kAgainNs) continue;
    followed.looked_unix_ns = now_unix_ns;
    if (!sign.seen.warn) {
      followed.agreed = 0;
      if (++followed.missed >= kMissedMax || !followed.raised) {
        end(followed, now_unix_ns);
        followed_.erase(found);
      }
      continue;
    }
    followed.missed = 0;
    EarlyWarning& warning = followed.warning;
    if (++followed.agreed >= kAgreedMin && !followed.raised) {
      followed.raised = true;
      warning.raised_unix_ns = now_unix_ns;
      std::erase_if(gone_, [&](const EarlyWarning& old) { return old.id == warning.id; });  // it is back
    }
    word(sign, thing, warning);
  }
}

void EarlyWarnings::update(const SignalStore& signals, int64_t now_unix_ns, size_t hosts_max) {
  fleet_.resize(std::size(kRules));
  std::vector<std::string> hosts = signals.hosts(next_host_, hosts_max);
  next_host_ = hosts.size() < hosts_max ? 0 : next_host_ + hosts.size();
  for (const std::string& host : hosts) {
    if (now_unix_ns - signals.last_heard_unix_ns(host) > kSilentNs) continue;
    for (const std::string& gpu : signals.gpus_of(host)) evaluate(signals, Place::kGpu, host, gpu, now_unix_ns);
    for (const std::string& device : signals.adapters_of(host, ""))
      evaluate(signals, Place::kNic, host, device, now_unix_ns);
  }
  // A host that is gone takes its warnings along.
  std::erase_if(followed_, [&](const auto& entry) {
    if (now_unix_ns - entry.second.looked_unix_ns <= kGoneNs) return false;
    end(entry.second, now_unix_ns);
    return true;
  });
  while (!gone_.empty() && now_unix_ns - gone_.front().gone_unix_ns > kGoneNs) gone_.pop_front();
}

void EarlyWarnings::end(const Followed& followed, int64_t now_unix_ns) {
  if (!followed.raised) return;
  if (gone_.size() >= kWarningsMax) gone_.pop_front();
  EarlyWarning& over = gone_.emplace_back(followed.warning);
  over.gone_unix_ns = now_unix_ns;
}

int64_t EarlyWarnings::raised() const {
  return std::count_if(followed_.begin(), followed_.end(), [](const auto& entry) { return entry.second.raised; });
}

std::vector<EarlyWarning> EarlyWarnings::warnings() const {
  std::vector<EarlyWarning> raised;
  for (const auto& [key, followed] : followed_) {
    if (followed.raised) raised.push_back(followed.warning);
  }
  std::stable_sort(raised.begin(), raised.end(),
                   [](const EarlyWarning& a, const EarlyWarning& b) { return a.horizon_s < b.horizon_s; });
  if (raised.size() > kWarningsMax) raised.resize(kWarningsMax);
  return raised;
}

}  // namespace lockstep
