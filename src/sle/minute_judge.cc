#include "sle/minute_judge.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>

#include "base/median.h"
#include "base/text.h"

namespace lockstep::sle {
namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();
constexpr double kHeardLeast = 0.5;  // of the ranks: what fewer say is not said of the job
// What the baseline may become within a minute: it follows a job that becomes faster within an hour, and one that
// becomes slower within days, so that a creeping fault stays visible.
constexpr double kTowardsBetter = 1.0 / 20, kTowardsWorse = 1.0 / 1440;

struct Values {
  double step_s = kNothing, flops = kNothing, bandwidth = kNothing, skew = kNothing, input = kNothing;
  double repeated_s = 0, reported_s = 0, covered_s = 0;  // means over the ranks heard of
  RankSpans silent;                                      // ranks without a step
  std::vector<std::pair<Rank, double>> inputs;
  size_t heard = 0, standing = 0;
  bool loss_known = false, loss_bad = false;
};

template <typename Visit>
void for_each_rank(const MinuteContext& context, const Visit& visit) {
  static const RankMinute kNone;
  for (const Rank rank : lockstep::all_ranks(context.world_size)) {
    const RankMinute* row = context.measured.ranks.find(index_of(rank));
    visit(rank, row == nullptr ? kNone : *row);
  }
}

Values values_of(const MinuteContext& context) {
  Values values;
  std::vector<double> steps, owns, inputs;
  std::vector<Rank> silent;
  double flops = 0, flops_of_s = 0, wire_s = 0, wire_bytes = 0;
  for_each_rank(context, [&](Rank rank, const RankMinute& row) {
    values.standing += row.has(RankMinute::kStanding) ? 1 : 0;
    if (!(row.covered_s > 0)) return silent.push_back(rank);
    ++values.heard;
    steps.push_back(row.step_s());
    values.covered_s += row.covered_s;
    values.repeated_s += row.repeated_s;
    values.reported_s += row.reported_s;
    flops += row.flops;
    flops_of_s += row.flops_of_s;
    wire_s += row.wire_s;
    wire_bytes += row.wire_bytes;
    if (row.own_of_s > 0) owns.push_back(row.own_s / row.own_of_s);
    if (row.has(RankMinute::kInputKnown)) {
      inputs.push_back(row.input_s / row.covered_s);
      values.inputs.emplace_back(rank, inputs.back());
    }
    values.loss_known = values.loss_known || row.has(RankMinute::kLoss);
    values.loss_bad = values.loss_bad || row.has(RankMinute::kLossBad);
  });
  values.silent = spans_of(std::move(silent));
  if (values.heard == 0) return values;
  const auto heard = static_cast<double>(values.heard);
  values.covered_s /= heard;
  values.repeated_s /= heard;
  values.reported_s /= heard;
  values.step_s = median_of(std::move(steps));
  if (flops_of_s > 0) values.flops = flops / flops_of_s;
  if (wire_s > 0) values.bandwidth = wire_bytes / wire_s;
  if (owns.size() > 1) values.skew = *std::max_element(owns.begin(), owns.end()) - median_of(owns);
  if (!inputs.empty()) values.input = median_of(std::move(inputs));
  return values;
}

class MinuteJudge {
 public:
  MinuteJudge(const MinuteContext& context, Baselines baselines, bool learning)
      : context_(context), values_(values_of(context)), learning_(learning) {
    out_.minute = context.measured.minute;
    out_.evidence = context.measured.rows;
    out_.placement = context.placement;
    out_.baselines = baselines;
  }

  JudgedMinute run() {
    const bool stands = values_.heard == 0 && values_.standing > 0;
    const bool known = static_cast<double>(values_.heard) >= kHeardLeast * context_.world_size && values_.heard > 0;
    if (stands) {
      everybody(Sle::kProgress, Cell::degraded(charge(Sle::kProgress)));
    } else {
      of_job(Sle::kProgress, known ? values_.step_s : kNothing, true);
      of_job(Sle::kMfu, known ? values_.flops : kNothing, false);
      of_job(Sle::kBandwidth, known ? values_.bandwidth : kNothing, false);
      of_job(Sle::kSkew, known ? values_.skew : kNothing, false);
    }
    judge_goodput(known, stands);
    judge_input(known);
    judge_correctness();
    judge_components();
    judge_coverage();
    return std::move(out_);
  }

 private:
  const Threshold& threshold(Sle sle) const { return context_.thresholds[static_cast<size_t>(sle)]; }
  Baseline& baseline(Sle sle) { return out_.baselines[static_cast<size_t>(sle)]; }
  RankCells& cells(Sle sle) { return out_.cells[static_cast<size_t>(sle)]; }
  void everybody(Sle sle, Cell cell) { cells(sle) = all_ranks(context_.world_size, cell); }

  const Verdict* verdict_for(Sle sle) const {
    const Verdict* best = nullptr;
    const auto weight = [&](const Verdict& verdict) {
      return std::tuple(relevance(sle, verdict), verdict.lost_share, std::string_view(verdict.id));
    };
    for (const Verdict& verdict : context_.verdicts)
      if (relevance(sle, verdict) > 0 && (best == nullptr || weight(verdict) > weight(*best))) best = &verdict;
    return best;
  }
  uint32_t number_of(Owner owner) {
    const auto [found, is_new] = owner_numbers_.try_emplace(owner.key, static_cast<uint32_t>(out_.owners.size() + 1));
    if (is_new) out_.owners.push_back(std::move(owner));
    return found->second;
  }
  uint32_t charge(Sle sle) {
    const Verdict* verdict = verdict_for(sle);
    return verdict == nullptr ? kUnexplained : number_of(owner_of(*verdict));
  }
  uint32_t measured_owner(const char* classifier, const std::string& sub, CulpritKind kind = CulpritKind::kNobody,
                          const std::string& culprit = {}, const std::string& host = {}, const std::string& gpu = {}) {
    return number_of({.key = std::string(classifier) + "/" + sub + "/" + culprit,
                      .classifier = classifier,
                      .sub = sub,
                      .kind = kind,
                      .culprit = culprit,
                      .host = host,
                      .gpu_uuid = gpu});
  }

  // nullopt: there is no baseline to hold it against yet.
  std::optional<bool> is_good(Sle sle, double value) {
    const Threshold& limit = threshold(sle);
    const Baseline& own = baseline(sle);
    if (own.learned >= kLearnMinutes || limit.against != Against::kBaseline)
      return limit.is_good(value, static_cast<double>(own.value));
    if (limit.direction == Direction::kBelow && value <= limit.minimum) return true;
    return std::nullopt;
  }

  // One value for all ranks of the job; ranks of which nothing is heard are unknown.
  void of_job(Sle sle, double value, bool by_verdict) {
    if (std::isnan(value)) {
      // Not heard is unknown; never reported is not measured.
      if (sle == Sle::kProgress || baseline(sle).learned > 0) everybody(sle, Cell::unknown());
      return;
    }
    const Verdict* verdict = verdict_for(sle);
    const std::optional<bool> good = is_good(sle, value);
    // A job that was slow from its first step on has no better past: then the verdict says what it loses.
    const double lost = verdict != nullptr && verdict->kind == VerdictKind::kSlow ? verdict->lost_share : 0;
    const bool says_so = by_verdict && lost > 1 - 1 / threshold(sle).value;
    const bool degraded = good == false || says_so;
    Cell cell = degraded ? Cell::degraded(charge(sle)) : Cell::good();
    if (!degraded && !good) cell = Cell::unknown();
    everybody(sle, cell);
    if (!values_.silent.empty()) cells(sle) = with(cells(sle), values_.silent, Cell::unknown());
    if (!learning_) return;
    const bool first = baseline(sle).learned < kLearnMinutes;
    if (first && verdict != nullptr && !by_verdict) return;
    learn(baseline(sle), threshold(sle), first ? value * (1 - lost) : value, degraded && !first, verdict != nullptr);
  }

  // Every rank by itself; the job's median is the baseline.
  void judge_input(bool known) {
    if (!known || values_.inputs.empty()) {
      if (baseline(Sle::kInput).learned > 0) everybody(Sle::kInput, Cell::unknown());
      return;
    }
    std::vector<Rank> bad, good;
    for (const auto& [rank, share] : values_.inputs) {
      const std::optional<bool> is = is_good(Sle::kInput, share);
      if (is == true) good.push_back(rank);
      if (is == false) bad.push_back(rank);
    }
    const bool many = 2 * bad.size() > values_.inputs.size();
    everybody(Sle::kInput, Cell::unknown());
    cells(Sle::kInput) = with(cells(Sle::kInput), spans_of(std::move(good)), Cell::good());
    if (!bad.empty())
      cells(Sle::kInput) = with(cells(Sle::kInput), spans_of(std::move(bad)), Cell::degraded(charge(Sle::kInput)));
    if (learning_)
      learn(baseline(Sle::kInput), threshold(Sle::kInput), values_.input, many, verdict_for(Sle::kInput) != nullptr);
  }

  void judge_goodput(bool known, bool stands) {
    if (!known && !stands) return everybody(Sle::kGoodput, Cell::unknown());
    const Baseline& pace = baseline(Sle::kProgress);
    if (!stands && pace.learned < kLearnMinutes) return everybody(Sle::kGoodput, Cell::unknown());
    const double at_pace =
        stands ? 0 : (values_.covered_s - values_.repeated_s) * std::min(1.0, pace.value / values_.step_s);
    const double share = std::max(0.0, at_pace - values_.reported_s) / context_.present_s;
    if (threshold(Sle::kGoodput).is_good(share, 0)) {
      everybody(Sle::kGoodput, Cell::good());
    } else {
      everybody(Sle::kGoodput, Cell::degraded(goodput_owner(stands)));
    }
    if (!stands && !values_.silent.empty())
      cells(Sle::kGoodput) = with(cells(Sle::kGoodput), values_.silent, Cell::unknown());
  }

  uint32_t goodput_owner(bool stands) {
    if (verdict_for(Sle::kGoodput) != nullptr) return charge(Sle::kGoodput);
    if (stands) return kUnexplained;
    const double idle_s = context_.is_starting ? context_.present_s - values_.covered_s : 0;
    if (values_.repeated_s <= 0 && values_.reported_s <= 0 && idle_s <= 0) return kUnexplained;
    if (values_.repeated_s >= std::max(values_.reported_s, idle_s)) return measured_owner("restart", "recompute");
    if (values_.reported_s >= idle_s) return measured_owner("reported", "checkpoint");
    return measured_owner("restart", "start");
  }

  void judge_correctness() {
    if (!values_.loss_known) return;
    const bool bad = values_.loss_bad || verdict_for(Sle::kCorrectness) != nullptr;
    everybody(Sle::kCorrectness, bad ? Cell::degraded(charge(Sle::kCorrectness)) : Cell::good());
  }

  // Parts of the machine: good where the node reports and nothing is wrong with them.
  void judge_components() {
    constexpr std::array kParts = {Sle::kGpu, Sle::kNvlink, Sle::kNic, Sle::kFabric, Sle::kHost};
    RankCells healthy = all_ranks(context_.world_size, Cell::unknown());
    RankSpans reported;
    for (const Placement::HostRun& run : context_.placement->hosts)
      if (context_.node_reported(run.host)) reported.push_back({run.first, run.end()});
    healthy = with(healthy, reported, Cell::good());
    for (const Sle part : kParts) cells(part) = covered(healthy, faulty_ranks(part));
    for (const Verdict& verdict : context_.verdicts) {
      for (const Sle part : kParts) {
        if (relevance(part, verdict) == 0) continue;
        std::vector<Rank> ranks;
        for (const Rank rank : verdict.culprit.ranks)
          if (rank.value() < context_.world_size) ranks.push_back(rank);
        const RankSpans spans =
            ranks.empty() ? RankSpans{{Rank{0}, Rank{context_.world_size}}} : spans_of(std::move(ranks));
        cells(part) = with(cells(part), spans, Cell::degraded(number_of(owner_of(verdict))));
      }
    }
  }
  // Of faults of one rank the last one counts.
  RankCells faulty_ranks(Sle part) {
    RankCells faulty;
    const int64_t from_ns = context_.measured.minute * kMinuteNs, to_ns = from_ns + kMinuteNs;
    for (const Placement::HostRun& run : context_.placement->hosts) {
      const auto faults = context_.faults.find(run.host);
      if (faults == context_.faults.end()) continue;
      std::vector<Cell> here(static_cast<size_t>(run.ranks));
      for (const HardwareFault& fault : faults->second) {
        if (fault.sle != part || fault.from_unix_ns >= to_ns || fault.to_unix_ns <= from_ns) continue;
        set_faulty(run, fault, here);
      }
      for (int32_t i = 0; i < run.ranks; ++i) append(faulty, run.first + i, 1, here[static_cast<size_t>(i)]);
    }
    return faulty;
  }
  void set_faulty(const Placement::HostRun& run, const HardwareFault& fault, std::vector<Cell>& here) {
    const bool is_gpu = !fault.gpu_uuid.empty();
    for (size_t i = 0; i < here.size(); ++i) {
      if (is_gpu && context_.placement->gpus[index_of(run.first) + i] != fault.gpu_uuid) continue;
      here[i] = Cell::degraded(measured_owner(row_of(fault.sle).name, fault.what,
                                              is_gpu ? CulpritKind::kGpu : CulpritKind::kHost,
                                              is_gpu ? fault.gpu_uuid : fault.host, fault.host, fault.gpu_uuid));
    }
  }

  void judge_coverage() {
    std::vector<Rank> silent, lost;
    for_each_rank(context_, [&](Rank rank, const RankMinute& row) {
      if (!row.has(RankMinute::kStep) && !row.has(RankMinute::kStatus))
        silent.push_back(rank);
      else if (row.has(RankMinute::kLost))
        lost.push_back(rank);
    });
    RankCells& out = cells(Sle::kCoverage) = all_ranks(context_.world_size, Cell::good());
    RankCells silent_nodes;
    for (const Placement::HostRun& run : context_.placement->hosts) {
      if (context_.node_reported(run.host) || !context_.node_ever_reported(run.host)) continue;
      append(silent_nodes, run.first, run.ranks,
             Cell::degraded(measured_owner("telemetry", "node-silent", CulpritKind::kHost, run.host, run.host)));
    }
    out = covered(out, silent_nodes);
    if (!lost.empty())
      out = with(out, spans_of(std::move(lost)), Cell::degraded(measured_owner("telemetry", "records-lost")));
    if (!silent.empty())
      out = with(out, spans_of(std::move(silent)), Cell::degraded(measured_owner("telemetry", "rank-silent")));
  }

  const MinuteContext& context_;
  const Values values_;
  const bool learning_;
  JudgedMinute out_;
  std::unordered_map<std::string, uint32_t> owner_numbers_;  // of out_.owners, by key
};

CulpritKind culprit_kind(const Culprit& culprit) {
  switch (culprit.layer) {
    case Layer::kGpu:
    case Layer::kNvlink:
      return culprit.gpu_uuid.empty() ? CulpritKind::kHost : CulpritKind::kGpu;
    case Layer::kHost:
      return CulpritKind::kHost;
    case Layer::kNic:
      return CulpritKind::kNic;
    case Layer::kLink:
      return CulpritKind::kLink;
    case Layer::kSwitch:
      return CulpritKind::kSwitch;
    case Layer::kSoftware:
    case Layer::kWorkload:
      return CulpritKind::kJob;
    case Layer::kInput:
    case Layer::kUnknown:
      break;
  }
  return culprit.ranks.empty() ? CulpritKind::kJob : CulpritKind::kRank;
}

}  // namespace

JudgedMinute judge(const MinuteContext& context, Baselines baselines, bool learning) {
  return MinuteJudge(context, baselines, learning).run();
}

void learn(Baseline& baseline, const Threshold& threshold, double value, bool degraded, bool explained) {
  if (!std::isfinite(value) || value < 0 || (degraded && explained)) return;
  if (degraded) {
    if (++baseline.bad < kNewNormalMinutes) return;
    baseline = {.value = static_cast<float>(value), .learned = kLearnMinutes};
    return;
  }
  baseline.bad = 0;
  if (baseline.learned < kLearnMinutes) {
    // The best of the first minutes: a job settles.
    const bool better = threshold.direction == Direction::kBelow ? value < baseline.value : value > baseline.value;
    if (baseline.learned == 0 || better) baseline.value = static_cast<float>(value);
    ++baseline.learned;
    return;
  }
  const bool better = threshold.direction == Direction::kBelow ? value < baseline.value : value > baseline.value;
  baseline.value += static_cast<float>((better ? kTowardsBetter : kTowardsWorse) * (value - baseline.value));
}

Owner owner_of(const Verdict& verdict) {
  const Culprit& culprit = verdict.culprit;
  // Where nothing says which layer, the kind says more than "unknown".
  const char* classifier = culprit.layer == Layer::kUnknown ? to_text(verdict.kind) : to_text(culprit.layer);
  std::string name = culprit.component;
  if (name.empty()) name = culprit.host.empty() ? "job " + verdict.job_id : culprit.host;
  return {.key = verdict.id,
          .classifier = classifier,
          .sub = to_text(culprit.cause),
          .kind = culprit_kind(culprit),
          .culprit = std::move(name),
          .host = culprit.host,
          .gpu_uuid = culprit.gpu_uuid,
          .verdict_id = verdict.id,
          .job_id = verdict.job_id,
          .place = culprit.place,
          .weight = static_cast<float>(is_standstill(verdict.kind) ? 1.0 : verdict.lost_share)};
}

int relevance(Sle sle, const Verdict& verdict) {
  const Layer layer = verdict.culprit.layer;
  const bool is_network =
      layer == Layer::kNvlink || layer == Layer::kNic || layer == Layer::kLink || layer == Layer::kSwitch;
  const bool costs_time = verdict.kind != VerdictKind::kIncorrect;
  switch (sle) {
    case Sle::kProgress:
    case Sle::kGoodput:
    case Sle::kMfu:
      if (!costs_time) return 0;
      return is_standstill(verdict.kind) ? 3 : verdict.kind == VerdictKind::kSlow ? 2 : 1;
    case Sle::kBandwidth:
      return is_network || verdict.culprit.cause == Cause::kTcpFallback ? 1 : 0;
    case Sle::kSkew:
      if (!costs_time || is_standstill(verdict.kind)) return 0;
      return is_network ? 1 : 2;
    case Sle::kInput:
      return layer == Layer::kInput ? 1 : 0;
    case Sle::kGpu:
      return layer == Layer::kGpu ? 1 : 0;
    case Sle::kNvlink:
      return layer == Layer::kNvlink ? 1 : 0;
    case Sle::kNic:
      return layer == Layer::kNic || layer == Layer::kLink ? 1 : 0;
    case Sle::kFabric:
      return layer == Layer::kSwitch ? 1 : 0;
    case Sle::kHost:
      return layer == Layer::kHost ? 1 : 0;
    case Sle::kCorrectness:
      return costs_time ? 0 : 1;
    case Sle::kCoverage:
    case Sle::kTtft:
    case Sle::kTpot:
    case Sle::kQueue:
      break;
  }
  return 0;
}

}  // namespace lockstep::sle
