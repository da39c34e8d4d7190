#include "profile/ranks/verdict.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_map>

#include "base/median.h"
#include "base/text.h"
#include "profile/rank/host_time.h"
#include "profile/rank/roofline.h"

namespace lockstep::profile {
namespace {

constexpr double kShareLeast = 0.03;    // of a step: what others wait less than that for is not worth a name
constexpr double kExplainsLeast = 0.4;  // of the cost: a difference that explains less of it is not its reason
constexpr double kStepsLeast = 0.7;     // of the steps, in which a slow rank waits less than half of what the others do
constexpr double kSlowerLeast = 1.05;
constexpr double kCountLeast = 1.2;  // calls per step over the peers'
constexpr double kMainShare = 0.2;   // of all time: where no rank stands out, what is worth a name
constexpr double kHiddenLeast =
    1.2;  // of the others' computing: who computes so much more is named, though nobody waits

// What a rank does with its time, per step.
struct RankTimes {
  double busy_ns = 0;  // computing or copying
  double idle_ns = 0;  // nothing at all
  double wait_ns = 0;  // for other ranks
  double own_ns() const { return busy_ns + idle_ns; }
};

RankTimes times_of(const RankProfile& rank, const RankWaits& waits) {
  const TimeSplit& time = rank.breakdown.time;
  const double steps = rank.steps();
  return {static_cast<double>(time.busy_ns() - time.alone(KernelClass::kCommunication)) / steps,
          static_cast<double>(time.idle_ns()) / steps, static_cast<double>(waits.wait_ns) / steps};
}

std::string rank_names(const std::vector<Rank>& ranks) {
  std::vector<int> numbers;
  for (Rank rank : ranks) numbers.push_back(rank.value());
  return (ranks.size() == 1 ? "Rank " : "Ranks ") + human_numbers(std::move(numbers));
}

std::string cost_text(double ns, double share) {
  return format("%s a step (%.0f %%)", human_duration(ns).c_str(), 100 * share);
}

// How a replaced kernel lies to the one that the others run.
const KernelDifference* replaced_by(const KernelDifference& kernel, const std::vector<KernelDifference>& all) {
  const KernelDifference* best = nullptr;
  for (const KernelDifference& other : all) {
    const bool is_gone = other.peers_ns > 0 && other.own_count < 0.8 * other.peers_count;
    const bool is_kin = other.traits.family == kernel.traits.family || (!other.op.empty() && other.op == kernel.op);
    if (!is_gone || !is_kin || other.name == kernel.name) continue;
    const bool same_op = !other.op.empty() && other.op == kernel.op;
    const bool best_same_op = best != nullptr && !best->op.empty() && best->op == kernel.op;
    if (best == nullptr || (same_op && !best_same_op) || (same_op == best_same_op && other.peers_ns > best->peers_ns)) {
      best = &other;
    }
  }
  return best;
}

// Sizes of an operator's operands that tensor cores cannot take eight at a time. "": all can.
std::string unaligned_dims(const RankProfile& rank, std::string_view kernel) {
  for (const KernelRow& row : rank.breakdown.kernels) {
    if (rank.events->texts[row.name] != kernel) continue;
    const Activity& activity = rank.index.activities[row.example];
    if (activity.op == kNoEvent) return {};
    const OpDetail* op = rank.events->op(activity.op);
    if (op == nullptr || op->dims == 0) return {};
    for (const std::vector<int64_t>& dims : parse_dims(rank.events->texts[op->dims])) {
      if (dims.size() < 2) continue;
      if (dims.back() % 8 != 0 || dims[dims.size() - 2] % 8 != 0) return rank.events->texts[op->dims].substr(0, 60);
    }
    return {};
  }
  return {};
}

// Where nearly all kernels that both have, as often, take longer on one side, by how much; 1: they do not.
double common_ratio(const std::vector<KernelDifference>& differences) {
  std::vector<double> ratios;
  double all = 0, own_sum = 0, peers_sum = 0;
  for (const KernelDifference& one : differences) {
    if (one.traits.kernel_class == KernelClass::kCompute) all += one.peers_ns;
  }
  for (const KernelDifference& one : differences) {
    if (one.traits.kernel_class != KernelClass::kCompute || one.own_ns <= 0 || one.peers_ns < 0.003 * all) continue;
    if (std::fabs(one.own_count - one.peers_count) > 0.05 * one.peers_count) continue;
    ratios.push_back(one.own_ns / one.peers_ns);
    own_sum += one.own_ns;
    peers_sum += one.peers_ns;
  }
  if (ratios.size() < 3) return 1;
  const double overall = own_sum / peers_sum;
  std::sort(ratios.begin(), ratios.end());
  return ratios[ratios.size() / 4] >= 1 + 0.5 * (overall - 1) ? overall : 1;
}

class Judge {
 public:
  Judge(std::span<const RankProfile> ranks, const CollectiveAnalysis& collectives)
      : ranks_(ranks), collectives_(collectives) {}

  ProfileVerdict judge() {
    for (size_t i = 0; i < ranks_.size(); ++i) times_.push_back(times_of(ranks_[i], collectives_.waits[i]));
    std::vector<double> steps;
    for (const RankProfile& rank : ranks_) steps.push_back(static_cast<double>(rank.step_ns()));
    step_ns_ = median_or_zero(std::move(steps));
    if (!find_slow()) {
      say_where_time_goes();
      if (find_hidden()) say_hidden();
      verdict_.differences = std::move(differences_);
      return std::move(verdict_);
    }
    explain();
    verdict_.differences = std::move(differences_);
    return std::move(verdict_);
  }

 private:
  // Who waits least, where the others wait for somebody.
  bool find_slow() {
    if (ranks_.size() < 2 || !collectives_.is_aligned || step_ns_ <= 0) return false;
    double least = times_[0].wait_ns;
    for (const RankTimes& one : times_) least = std::min(least, one.wait_ns);
    std::vector<double> waits;
    for (const RankTimes& one : times_) waits.push_back(one.wait_ns);
    // Half of the ranks at most are slow: the upper middle is of one that waits.
    const double usual = upper_median_in_place(waits);
    const double limit = least + 0.3 * (usual - least);
    for (size_t i = 0; i < ranks_.size(); ++i) (times_[i].wait_ns <= limit ? slow_ : peers_).push_back(&ranks_[i]);
    std::vector<double> waiting, own, others;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      const bool is_slow = times_[i].wait_ns <= limit;
      if (!is_slow) waiting.push_back(times_[i].wait_ns);
      (is_slow ? own : others).push_back(times_[i].own_ns());
    }
    const double cost = std::min(median_or_zero(waiting) - least, median_or_zero(own) - median_or_zero(others));
    const double error = collectives_.clocks.error_ns();
    if (peers_.empty() || cost < kShareLeast * step_ns_ || cost < 2 * error || !waits_each_step(limit)) {
      slow_.clear();
      peers_.clear();
      return false;
    }
    std::sort(slow_.begin(), slow_.end(), [](const RankProfile* a, const RankProfile* b) { return a->rank < b->rank; });
    for (const RankProfile* one : slow_) verdict_.ranks.push_back(one->rank);
    verdict_.cost_ns = static_cast<int64_t>(cost);
    verdict_.share = cost / step_ns_;
    lead_ = format("%s hold%s the others up by %s", rank_names(verdict_.ranks).c_str(), slow_.size() == 1 ? "s" : "",
                   cost_text(cost, verdict_.share).c_str());
    return true;
  }

  // One rank that computes clearly longer than all the others, which are alike.
  bool find_hidden() {
    if (ranks_.size() < 3) return false;
    std::vector<double> busy;
    for (const RankTimes& one : times_) busy.push_back(one.busy_ns);
    const size_t longest = static_cast<size_t>(std::max_element(busy.begin(), busy.end()) - busy.begin());
    const double own = busy[longest];
    busy.erase(busy.begin() + static_cast<ptrdiff_t>(longest));
    const double others = median_or_zero(busy), most = *std::max_element(busy.begin(), busy.end());
    if (others <= 0 || own < kHiddenLeast * others || most - others > 0.3 * (own - others)) return false;
    for (size_t i = 0; i < ranks_.size(); ++i) (i == longest ? slow_ : peers_).push_back(&ranks_[i]);
    verdict_.hidden = HiddenRank{.rank = ranks_[longest].rank, .extra_ns = static_cast<int64_t>(own - others)};
    return true;
  }

  // The same words as for a slow rank, behind what is said already.
  void say_hidden() {
    ProfileVerdict whole = std::move(verdict_);
    HiddenRank& hidden = *whole.hidden;
    verdict_ = {};
    verdict_.ranks = {hidden.rank};
    lead_ = format("Hidden behind that: rank %d computes %s a step more than the others", hidden.rank.value(),
                   human_duration(static_cast<double>(hidden.extra_ns)).c_str());
    differences_ = kernel_differences(slow_, peers_);
    explain_kernels();
    hidden.reason = verdict_.reason;
    hidden.kernel = std::move(verdict_.kernel);
    hidden.instead_of = std::move(verdict_.instead_of);
    hidden.op = std::move(verdict_.op);
    whole.sentence += " " + verdict_.sentence;
    whole.evidence = std::move(verdict_.evidence);
    verdict_ = std::move(whole);
  }

  // Chance makes some rank wait least; who is slow waits less than the others step after step.
  bool waits_each_step(double limit) const {
    size_t steps = SIZE_MAX, agreeing = 0;
    for (const RankWaits& waits : collectives_.waits) steps = std::min(steps, waits.by_step_ns.size());
    if (steps < 3 || steps == SIZE_MAX) return true;
    for (size_t step = 0; step < steps; ++step) {
      double slowest = 0;
      std::vector<double> others;
      for (size_t i = 0; i < ranks_.size(); ++i) {
        const auto wait = static_cast<double>(collectives_.waits[i].by_step_ns[step]);
        if (times_[i].wait_ns > limit) {
          others.push_back(wait);
        } else {
          slowest = std::max(slowest, wait);
        }
      }
      agreeing += slowest < 0.5 * median_or_zero(others) ? 1 : 0;
    }
    return static_cast<double>(agreeing) >= kStepsLeast * static_cast<double>(steps);
  }

  double over_peers(double RankTimes::*part) const {
    std::vector<double> own, others;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      const bool is_slow = std::find(slow_.begin(), slow_.end(), &ranks_[i]) != slow_.end();
      (is_slow ? own : others).push_back(times_[i].*part);
    }
    return median_or_zero(own) - median_or_zero(others);
  }

  void explain() {
    const double busy = over_peers(&RankTimes::busy_ns);
    const double idle = over_peers(&RankTimes::idle_ns);
    const auto cost = static_cast<double>(verdict_.cost_ns);
    verdict_.evidence.push_back(
        format("the others wait %s a step in collectives for %s; it computes %s more and is idle %s more",
               human_duration(cost).c_str(), slow_.size() == 1 ? "it" : "them",
               human_duration(std::max(0.0, busy)).c_str(), human_duration(std::max(0.0, idle)).c_str()));
    differences_ = kernel_differences(slow_, peers_);
    if (busy >= idle && busy >= kExplainsLeast * cost) {
      explain_kernels();
    } else if (idle > busy && idle >= kExplainsLeast * cost) {
      explain_host();
    } else {
      verdict_.reason = Reason::kUnknown;
      verdict_.sentence = format("%s, but neither %s kernels nor gaps between them differ enough to say why.",
                                 lead_.c_str(), slow_.size() == 1 ? "its" : "their");
    }
  }

  void explain_kernels() {
    const auto worst = std::find_if(differences_.begin(), differences_.end(), [](const KernelDifference& one) {
      return one.traits.kernel_class != KernelClass::kCommunication;
    });
    if (worst == differences_.end() || worst->extra_ns() <= 0) {
      verdict_.reason = Reason::kUnknown;
      verdict_.sentence = lead_ + ", in no single kernel.";
      return;
    }
    KernelDifference kernel = *worst;
    // A class of copies may be many kernels, each less than the largest.
    double copies = 0;
    const KernelDifference* largest_copy = nullptr;
    for (const KernelDifference& one : differences_) {
      if (one.traits.family != KernelFamily::kCopy || one.own_count <= kCountLeast * one.peers_count ||
          one.extra_ns() <= 0)
        continue;
      copies += one.extra_ns();
      if (largest_copy == nullptr) largest_copy = &one;
    }
    if (largest_copy != nullptr && copies > kernel.extra_ns()) kernel = *largest_copy;
    name_kernel(kernel);
    const KernelDifference* before =
        kernel.own_count > kCountLeast * kernel.peers_count ? replaced_by(kernel, differences_) : nullptr;
    const double ratio = common_ratio(differences_);
    if (before != nullptr && is_less_exact(before->traits, kernel.traits)) {
      say_precision(kernel, *before);
    } else if (before != nullptr && is_unaligned(kernel, *before)) {
      say_unaligned(kernel, *before);
    } else if (kernel.own_count > kCountLeast * kernel.peers_count && kernel.traits.family == KernelFamily::kCopy) {
      say(Reason::kExtraCopies, format("makes %s copies a step that the other ranks do not make",
                                       count_text(kernel.own_count - kernel.peers_count).c_str()));
    } else if (before != nullptr) {
      verdict_.instead_of = before->name;
      say(Reason::kOtherKernel,
          format("runs another kernel than the other ranks, which run %s", short_kernel_name(before->name).c_str()));
    } else if (kernel.own_count > kCountLeast * kernel.peers_count) {
      say(Reason::kExtraCalls,
          format("calls it %s times a step, the other ranks %s", count_text(kernel.own_count).c_str(),
                 kernel.peers_count < 0.05 ? "never" : (count_text(kernel.peers_count) + " times").c_str()));
    } else if (ratio >= kSlowerLeast && kernel.own_ns / std::max(1.0, kernel.peers_ns) < 1 + 2 * (ratio - 1)) {
      say(Reason::kAllSlower,
          format("runs all kernels %.2f times as long as the other ranks at the same work: clocks, power, or somebody "
                 "else on the GPU",
                 ratio));
    } else if (works_on_more(kernel)) {
      say(Reason::kLargerShapes, format("runs it on larger shapes than the other ranks (%.2f times the time)",
                                        kernel.own_ns / kernel.peers_ns));
    } else {
      say(Reason::kSlowerKernel,
          format("takes %.2f times as long in it as the other ranks, at as many calls and the same grid",
                 kernel.own_ns / std::max(1.0, kernel.peers_ns)));
    }
  }

  static std::string count_text(double count) { return count < 10 ? format("%.1f", count) : format("%.0f", count); }

  void name_kernel(const KernelDifference& kernel) {
    verdict_.kernel = kernel.name;
    verdict_.op = kernel.op;
    for (size_t i = 0; i < std::min<size_t>(3, differences_.size()); ++i) {
      const KernelDifference& one = differences_[i];
      if (one.extra_ns() <= 0) break;
      verdict_.evidence.push_back(format("%s: %s a step in %s calls, the others %s in %s",
                                         short_kernel_name(one.name).c_str(), human_duration(one.own_ns).c_str(),
                                         count_text(one.own_count).c_str(), human_duration(one.peers_ns).c_str(),
                                         count_text(one.peers_count).c_str()));
    }
  }
  void say(Reason reason, const std::string& what) {
    verdict_.reason = reason;
    const std::string where = verdict_.op.empty() || verdict_.op == verdict_.kernel ? "" : " (" + verdict_.op + ")";
    verdict_.sentence = format("%s, mostly in %s%s: it %s.", lead_.c_str(), short_kernel_name(verdict_.kernel).c_str(),
                               where.c_str(), what.c_str());
  }

  static bool is_less_exact(const KernelTraits& peers, const KernelTraits& own) {
    const int own_bits = bits_of(own.precision), peers_bits = bits_of(peers.precision);
    if (own_bits > 0 && peers_bits > 0 && own_bits > peers_bits) return true;
    return own.tensor_cores == TensorCores::kNo && peers.tensor_cores == TensorCores::kYes;
  }
  void say_precision(const KernelDifference& kernel, const KernelDifference& before) {
    verdict_.instead_of = before.name;
    const std::string own =
        kernel.traits.precision == Precision::kUnknown ? "full precision" : to_text(kernel.traits.precision);
    say(Reason::kPrecision, format("computes in %s%s, the other ranks in %s%s", own.c_str(),
                                   kernel.traits.tensor_cores == TensorCores::kNo ? " without tensor cores" : "",
                                   to_text(before.traits.precision),
                                   before.traits.tensor_cores == TensorCores::kYes ? " on tensor cores" : ""));
  }

  bool is_unaligned(const KernelDifference& kernel, const KernelDifference& before) const {
    const int own = kernel.traits.alignment, peers = before.traits.alignment;
    if (own > 0 && own < 8 && (peers == 0 || peers > own)) return true;
    return kernel.traits.family == KernelFamily::kGemm && !unaligned_dims(*slow_.front(), kernel.name).empty() &&
           unaligned_dims(*peers_.front(), before.name).empty();
  }
  void say_unaligned(const KernelDifference& kernel, const KernelDifference& before) {
    verdict_.instead_of = before.name;
    const std::string dims = unaligned_dims(*slow_.front(), kernel.name);
    const std::string align = kernel.traits.alignment > 0
                                  ? format("a kernel for operands aligned to %d element%s", kernel.traits.alignment,
                                           kernel.traits.alignment == 1 ? "" : "s")
                                  : std::string("another kernel");
    say(Reason::kUnaligned,
        format("has shapes that are no multiple of 8%s and gets %s, the other ranks run %s",
               dims.empty() ? "" : (" " + dims).c_str(), align.c_str(), short_kernel_name(before.name).c_str()));
  }

  // Blocks launched per call, against the peers'.
  bool works_on_more(const KernelDifference& kernel) const {
    const auto blocks = [&](const RankProfile& rank) {
      const uint32_t name = rank.events->texts.find(kernel.name);
      double sum = 0, count = 0;
      for (const Activity& activity : rank.index.activities) {
        if (rank.events->name[activity.event] != name) continue;
        const KernelDetail* detail = rank.events->kernel(activity.event);
        if (detail == nullptr) continue;
        sum += static_cast<double>(detail->grid[0]) * detail->grid[1] * detail->grid[2];
        ++count;
      }
      return count == 0 ? 0 : sum / count;
    };
    return blocks(*slow_.front()) > 1.05 * blocks(*peers_.front());
  }

  // Launching what the others do not launch keeps the host busy and the GPU waiting for it. False: it launches as much.
  bool explain_calls() {
    double own = 0, peers = 0, extra = 0, copies = 0;
    const KernelDifference* most = nullptr;
    for (const KernelDifference& one : differences_) {
      own += one.own_count;
      peers += one.peers_count;
      const double more = one.own_count - one.peers_count;
      if (more <= 0) continue;
      extra += more;
      if (one.traits.family == KernelFamily::kCopy) copies += more;
      if (most == nullptr || more > most->own_count - most->peers_count) most = &one;
    }
    if (most == nullptr || own < kCountLeast * peers) return false;
    name_kernel(*most);
    if (copies >= 0.6 * extra) {
      say(Reason::kExtraCopies,
          format("makes %s copies a step that the other ranks do not make, and its GPU waits for their launches",
                 count_text(copies).c_str()));
    } else {
      say(Reason::kExtraCalls,
          format("launches %s times a step, the other ranks %s times, and its GPU waits for the launches",
                 count_text(own).c_str(), count_text(peers).c_str()));
    }
    return true;
  }

  void explain_host() {
    if (slow_.front()->index.has_gpu && explain_calls()) return;
    // What the host did in the gaps, more than in the others'.
    std::unordered_map<std::string, double> own, others;
    const auto add = [](std::unordered_map<std::string, double>& sums, const std::vector<const RankProfile*>& list) {
      for (const RankProfile* rank : list) {
        for (const GapRow& gap : rank->breakdown.gaps) {
          sums[gap.what] += static_cast<double>(gap.sum_ns) / rank->steps() / static_cast<double>(list.size());
        }
      }
    };
    add(own, slow_);
    add(others, peers_);
    std::string what;
    double most = 0;
    for (const auto& [name, ns] : own) {
      const double extra = ns - others[name];
      if (extra > most) {
        most = extra;
        what = name;
      }
    }
    verdict_.op = what;
    verdict_.reason = is_data_loading(what) ? Reason::kDataLoading : Reason::kHost;
    const LaunchStats& launches = slow_.front()->breakdown.launches;
    if (verdict_.reason == Reason::kHost && !what.starts_with("host code") && !what.starts_with("between") &&
        launches.call_ns.count > 0 && launches.short_work * 2 > launches.call_ns.count) {
      verdict_.reason = Reason::kLaunchBound;
    }
    const bool has_gpu = slow_.front()->index.has_gpu;
    const std::string waits = has_gpu ? "its GPU waits for the host" : "it is outside operators";
    verdict_.sentence = format(
        "%s: %s%s.", lead_.c_str(), waits.c_str(),
        what.empty()
            ? ""
            : (verdict_.reason == Reason::kDataLoading ? ", which loads data (" + what + ")" : ", mostly in " + what)
                  .c_str());
    if (!what.empty()) {
      verdict_.evidence.push_back(format("idle while the host is in %s: %s a step, the others %s", what.c_str(),
                                         human_duration(own[what]).c_str(), human_duration(others[what]).c_str()));
    }
  }

  // No slow rank: what all of them spend most on that is not work.
  void say_where_time_goes() {
    double total = 0, idle = 0, exposed = 0, host = 0;
    std::unordered_map<std::string, double> gaps;
    for (const RankProfile& rank : ranks_) {
      total += static_cast<double>(rank.breakdown.time.total_ns);
      idle += static_cast<double>(rank.breakdown.time.idle_ns());
      exposed += static_cast<double>(rank.breakdown.time.exposed_communication_ns());
      host += static_cast<double>(rank.breakdown.gaps_waiting_for_host_ns);
      for (const GapRow& gap : rank.breakdown.gaps) gaps[gap.what] += static_cast<double>(gap.sum_ns);
    }
    const std::string who = ranks_.size() == 1 ? "One rank alone" : "No rank stands out";
    if (total <= 0) {
      verdict_.sentence = who + ": nothing ran in this trace.";
      return;
    }
    if (host >= kMainShare * total && host >= exposed) {
      const auto most =
          std::max_element(gaps.begin(), gaps.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
      verdict_.op = most->first;
      verdict_.share = host / total;
      verdict_.reason = is_data_loading(most->first) ? Reason::kDataLoading : Reason::kLaunchBound;
      verdict_.sentence =
          format("%s: the GPU is idle %.0f %% of the time, %.0f %% because it waits for the host, mostly in %s.",
                 who.c_str(), 100 * idle / total, 100 * host / total, most->first.c_str());
      return;
    }
    if (exposed >= kMainShare * total) {
      verdict_.reason = Reason::kCommunication;
      verdict_.share = exposed / total;
      verdict_.sentence = format("%s: %.0f %% of the time is communication that no computation hides%s.", who.c_str(),
                                 100 * exposed / total, largest(KernelClass::kCommunication).c_str());
      return;
    }
    say_largest_kernel(who, total);
  }

  std::string largest(KernelClass one) {
    for (const RankProfile& rank : ranks_) {
      for (const KernelRow& row : rank.breakdown.kernels) {
        if (row.traits.kernel_class != one) continue;
        verdict_.kernel = rank.events->texts[row.name];
        return ", most of it in " + short_kernel_name(verdict_.kernel);
      }
    }
    return {};
  }

  void say_largest_kernel(const std::string& who, double total) {
    const RankProfile& rank = ranks_.front();
    const std::vector<Roofline> roofs = rooflines(rank.index, rank.breakdown);
    for (size_t i = 0; i < rank.breakdown.kernels.size(); ++i) {
      const KernelRow& row = rank.breakdown.kernels[i];
      if (row.traits.kernel_class == KernelClass::kCommunication) continue;
      verdict_.kernel = rank.events->texts[row.name];
      if (row.op != 0) verdict_.op = rank.events->texts[row.op];
      verdict_.share =
          static_cast<double>(row.sum_ns) / static_cast<double>(std::max<int64_t>(1, rank.breakdown.time.total_ns));
      const Bound bound = roofs[i].bound;
      verdict_.reason = bound == Bound::kMemory    ? Reason::kMemoryBound
                        : bound == Bound::kCompute ? Reason::kComputeBound
                        : bound == Bound::kLaunch  ? Reason::kLaunchBound
                                                   : Reason::kNone;
      const std::string how =
          bound == Bound::kUnknown ? "what bounds it is not known" : std::string(to_text(bound)) + " bound";
      const bool no_tensor_cores =
          row.traits.family == KernelFamily::kGemm && row.traits.tensor_cores == TensorCores::kNo;
      if (no_tensor_cores) verdict_.reason = Reason::kPrecision;
      verdict_.sentence =
          format("%s: the GPU is busy %.0f %% of the time; the largest kernel is %s with %.0f %% (%s%s).", who.c_str(),
                 100 * busy_share(total), short_kernel_name(verdict_.kernel).c_str(), 100 * verdict_.share,
                 no_tensor_cores ? "fp32 without tensor cores, " : "", how.c_str());
      if (!rank.index.has_gpu) {
        verdict_.sentence =
            format("%s: no GPU in this trace; operators run %.0f %% of the time, most of it %s with %.0f %%.",
                   who.c_str(), 100 * busy_share(total), verdict_.kernel.c_str(), 100 * verdict_.share);
      }
      return;
    }
    verdict_.sentence = who + ": only communication ran in this trace.";
  }
  double busy_share(double total) const {
    double busy = 0;
    for (const RankProfile& rank : ranks_) busy += static_cast<double>(rank.breakdown.time.busy_ns());
    return busy / total;
  }

  std::span<const RankProfile> ranks_;
  const CollectiveAnalysis& collectives_;
  std::vector<RankTimes> times_;
  double step_ns_ = 0;
  std::vector<const RankProfile*> slow_, peers_;
  std::vector<KernelDifference> differences_;
  std::string lead_;  // who, and what it does to the others: how sentences about a rank begin
  ProfileVerdict verdict_;
};

}  // namespace

const char* to_text(Reason reason) {
  switch (reason) {
    case Reason::kNone:
      return "none";
    case Reason::kPrecision:
      return "higher_precision";
    case Reason::kUnaligned:
      return "unaligned_shapes";
    case Reason::kExtraCopies:
      return "extra_copies";
    case Reason::kExtraCalls:
      return "extra_calls";
    case Reason::kLargerShapes:
      return "larger_shapes";
    case Reason::kOtherKernel:
      return "other_kernel";
    case Reason::kSlowerKernel:
      return "slower_kernel";
    case Reason::kAllSlower:
      return "all_kernels_slower";
    case Reason::kLaunchBound:
      return "launch_bound";
    case Reason::kDataLoading:
      return "data_loading";
    case Reason::kHost:
      return "host";
    case Reason::kCommunication:
      return "communication";
    case Reason::kMemoryBound:
      return "memory_bound";
    case Reason::kComputeBound:
      return "compute_bound";
    case Reason::kUnknown:
      return "unknown";
  }
  return "unknown";
}

int64_t RankProfile::step_ns() const {
  if (index.steps.empty()) return breakdown.time.total_ns;
  std::vector<int64_t> lengths;
  for (const ProfileStep& step : index.steps) lengths.push_back(step.end_ns - step.start_ns);
  return upper_median_in_place(lengths);
}

std::vector<KernelDifference> kernel_differences(std::span<const RankProfile* const> ones,
                                                 std::span<const RankProfile* const> others) {
  struct Sums {
    KernelDifference difference;
    std::vector<double> ns[2], count[2];
  };
  std::unordered_map<std::string, Sums> by_name;
  for (int side : {0, 1}) {
    for (const RankProfile* rank : side == 0 ? ones : others) {
      for (const KernelRow& row : rank->breakdown.kernels) {
        Sums& sums = by_name[rank->events->texts[row.name]];
        sums.difference.traits = row.traits;
        if (row.op != 0) sums.difference.op = rank->events->texts[row.op];
        sums.ns[side].push_back(static_cast<double>(row.sum_ns) / rank->steps());
        sums.count[side].push_back(static_cast<double>(row.count) / rank->steps());
      }
    }
  }
  // The middle over all ranks of a side, those without the kernel included.
  const auto middle = [](std::vector<double>& values, size_t ranks) {
    values.resize(std::max(ranks, values.size()), 0);
    return median_or_zero(std::move(values));
  };
  std::vector<KernelDifference> out;
  for (auto& [name, sums] : by_name) {
    KernelDifference& one = sums.difference;
    one.name = name;
    one.own_ns = middle(sums.ns[0], ones.size());
    one.own_count = middle(sums.count[0], ones.size());
    one.peers_ns = middle(sums.ns[1], others.size());
    one.peers_count = middle(sums.count[1], others.size());
    out.push_back(std::move(one));
  }
  std::sort(out.begin(), out.end(), [](const KernelDifference& a, const KernelDifference& b) {
    return a.extra_ns() != b.extra_ns() ? a.extra_ns() > b.extra_ns() : a.name < b.name;
  });
  return out;
}

ProfileVerdict judge(std::span<const RankProfile> ranks, const CollectiveAnalysis& collectives) {
  return Judge(ranks, collectives).judge();
}

}  // namespace lockstep::profile
