#include "sle/ledger_query.h"

#include <algorithm>
#include <limits>
#include <span>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace lockstep::sle {
namespace {

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : std::numeric_limits<double>::quiet_NaN();
}

// Calls add(bucket, minutes) for each bucket that [first, end) reaches into.
template <typename Add>
void by_bucket(const SleQuery& query, int32_t first, int32_t end, const Add& add) {
  while (first < end) {
    const int32_t bucket = (first - query.from) / query.bucket_minutes;
    const int32_t to = std::min(end, query.from + (bucket + 1) * query.bucket_minutes);
    add(static_cast<size_t>(bucket), to - first);
    first = to;
  }
}

// The first `most` of those that were hurt, in the order of `is_worse`; how many there are in all.
template <typename One, typename IsWorse>
size_t keep_worst(std::vector<One>& list, size_t most, const IsWorse& is_worse) {
  std::erase_if(list, [](const One& one) { return one.degraded == 0; });
  const size_t in_all = list.size();
  const auto end = list.begin() + static_cast<ptrdiff_t>(std::min(most, in_all));
  std::partial_sort(list.begin(), end, list.end(), is_worse);
  list.erase(end, list.end());
  return in_all;
}

bool is_worse(const Affected::One& a, const Affected::One& b) {
  return a.degraded != b.degraded ? a.degraded > b.degraded : a.name < b.name;
}

struct Sum {
  int64_t degraded = 0, total = 0;
  void operator+=(const Sum& other) {
    degraded += other.degraded;
    total += other.total;
  }
};
template <typename Names>  // name -> Sum
size_t list_worst(const Names& from, size_t most, std::vector<Affected::One>& to) {
  for (const auto& [name, sum] : from)
    if (sum.degraded > 0)
      to.push_back({.name = std::string(name), .job_id = {}, .host = {}, .degraded = sum.degraded, .total = sum.total});
  return keep_worst(to, most, is_worse);
}

}  // namespace

double Minutes::success() const {
  return share(good, good + degraded);
}
double Minutes::success_least() const {
  return share(good, total());
}
double Minutes::success_most() const {
  return share(good + unknown, total());
}
double Minutes::coverage() const {
  return share(good + degraded, total());
}
Minutes& Minutes::operator+=(const Minutes& other) {
  good += other.good;
  degraded += other.degraded;
  unknown += other.unknown;
  idle += other.idle;
  return *this;
}

// A name is looked at once for a query, however many SLEs and stretches of time its placement is of.
class Ledger::ScopedRanks {
 public:
  explicit ScopedRanks(const Scope& scope) : scope_(scope) {
    if (scope.gpus) gpus_.insert(scope.gpus->begin(), scope.gpus->end());
  }
  bool is_everybody() const { return scope_.whole_jobs(); }
  const RankSpans& of(uint32_t row, const Placement* placement) {
    const auto [found, is_new] = by_row_.try_emplace(row);
    if (is_new && placement != nullptr) found->second = spans_in(*placement);
    return found->second;
  }

 private:
  RankSpans spans_in(const Placement& placement) const {
    RankSpans spans = scope_.ranks.value_or(every_rank());
    if (!scope_.hosts.empty()) {
      RankSpans on_hosts;
      for (const Placement::HostRun& run : placement.hosts)
        if (scope_.hosts.contains(run.host)) on_hosts.push_back({run.first, run.end()});
      spans = common_of(spans, on_hosts);
    }
    if (scope_.gpus && !spans.empty()) {
      std::vector<Rank> ranks;
      for (size_t i = 0; i < placement.gpus.size(); ++i)
        if (gpus_.contains(placement.gpus[i])) ranks.push_back(rank_at(i));
      spans = common_of(spans, spans_of(std::move(ranks)));
    }
    return spans;
  }

  const Scope& scope_;
  std::unordered_set<std::string_view> gpus_;
  std::unordered_map<uint32_t, RankSpans> by_row_;
};

// Each owner is asked about once.
class Ledger::Chosen {
 public:
  Chosen(const SleQuery& query, std::span<const Owner> owners)
      : query_(query), owners_(owners), is_chosen_(owners.size(), -1) {}
  bool operator()(uint32_t owner) {
    if (!query_.charged_to) return true;
    if (is_chosen_[owner] < 0) is_chosen_[owner] = query_.charged_to(owners_[owner]) ? 1 : 0;
    return is_chosen_[owner] == 1;
  }

 private:
  const SleQuery& query_;
  const std::span<const Owner> owners_;
  std::vector<int8_t> is_chosen_;
};

// GPU-minutes by model. A GPU's model is looked up once for a query.
class Ledger::PricedRanks {
 public:
  explicit PricedRanks(const SleQuery& query) : query_(query) {}

  // placement nullptr: where the ranks are is not known.
  void add(uint32_t row, const Placement* placement, Rank first, int32_t count, int32_t minutes) {
    if (query_.prices == nullptr) return;
    const Rank end = first + count;
    if (placement != nullptr && query_.prices->by_model()) {
      const std::vector<ModelRun>& runs = runs_of(row, *placement);
      // Not from the first one: a large job has thousands of these, and as many runs of cells.
      auto run = std::upper_bound(runs.begin(), runs.end(), first,
                                  [](Rank rank, const ModelRun& one) { return rank < one.end; });
      for (; run != runs.end() && first < end; ++run) {
        const Rank until = std::min(run->end, end);
        by_model_[run->model] += static_cast<int64_t>(until - first) * minutes;
        first = until;
      }
    }
    if (first < end) by_model_[{}] += static_cast<int64_t>(end - first) * minutes;
  }
  // Of what was added since the last time.
  GpuCost take() {
    GpusByModel minutes;
    int64_t all = 0;
    for (const auto& [model, count] : by_model_) {
      minutes.emplace(model, count);
      all += count;
    }
    by_model_.clear();
    return query_.prices == nullptr || all == 0 ? GpuCost()
                                                : query_.prices->cost(60 * static_cast<double>(all), minutes);
  }

 private:
  struct ModelRun {
    Rank end;
    std::string_view model;  // in the query's models, or in the placement
  };
  const std::vector<ModelRun>& runs_of(uint32_t row, const Placement& placement) {
    const auto [found, is_new] = by_row_.try_emplace(row);
    std::vector<ModelRun>& runs = found->second;
    for (size_t i = 0; is_new && i < placement.gpus.size(); ++i) {
      std::string_view model = placement.gpu_model;
      if (query_.models) {
        const auto known = query_.models->find(placement.gpus[i]);
        if (known != query_.models->end()) model = known->second;
      }
      if (!runs.empty() && runs.back().model == model)
        runs.back().end = rank_at(i) + 1;
      else
        runs.push_back({rank_at(i) + 1, model});
    }
    return runs;
  }

  const SleQuery& query_;
  std::unordered_map<uint32_t, std::vector<ModelRun>> by_row_;
  std::map<std::string_view, int64_t> by_model_;
};

// visit(job, placement's row, first minute, end, cells' row, spans or nullptr where all ranks are meant): stretches in
// which neither cells nor placement change.
template <typename Visit>
void Ledger::visit_pieces(const SleQuery& query, Sle sle, ScopedRanks& ranks, const Visit& visit) const {
  for (const std::unique_ptr<Job>& job : jobs_) {
    if (query.scope.job_id && *query.scope.job_id != job->job_id) continue;
    const std::span<const MinuteRun> placements = job->placements.within(query.from, query.end);
    const auto has_ranks = [&](const MinuteRun& run) {
      mutex_.assert_held();
      return !ranks.of(run.value, placements_[run.value].get()).empty();
    };
    if (!ranks.is_everybody() && std::none_of(placements.begin(), placements.end(), has_ranks)) continue;
    size_t at = 0;
    for (const MinuteRun& run : job->tracks[static_cast<size_t>(sle)].within(query.from, query.end)) {
      int32_t first = std::max(run.first, query.from);
      const int32_t end = std::min(run.end, query.end);
      while (first < end) {
        while (at < placements.size() && placements[at].end <= first) ++at;
        const bool placed = at < placements.size() && placements[at].first <= first;
        int32_t to = end;
        if (at < placements.size()) to = std::min(to, placed ? placements[at].end : placements[at].first);
        const uint32_t row = placed ? placements[at].value : 0;
        const RankSpans* spans = ranks.is_everybody() ? nullptr : &ranks.of(row, placements_[row].get());
        if (spans == nullptr || !spans->empty()) visit(*job, row, first, to, run.value, spans);
        first = to;
      }
    }
  }
}

void Ledger::add_up(const SleQuery& query, Sle sle, ScopedRanks& ranks, Chosen& chosen, PricedRanks& priced,
                    std::vector<int64_t>& by_owner, SleTotals& totals) const {
  const auto take = [&](const Job&, uint32_t placement, int32_t first, int32_t end, uint32_t row,
                        const RankSpans* spans) LOCKSTEP_REQUIRES(mutex_) {
    Minutes gpus;  // in each of these minutes
    int64_t chosen_gpus = 0;
    const auto add = [&](Rank rank, int32_t count, Cell cell) {
      mutex_.assert_held();
      if (cell.is_good()) gpus.good += count;
      if (cell.is_unknown()) gpus.unknown += count;
      if (cell.is_idle()) gpus.idle += count;
      if (!cell.is_degraded()) return;
      gpus.degraded += count;
      by_owner[cell.owner()] += static_cast<int64_t>(count) * (end - first);
      if (!chosen(cell.owner())) return;
      chosen_gpus += count;
      priced.add(placement, placements_[placement].get(), rank, count, end - first);
    };
    if (spans == nullptr) {
      for (const RankRun& run : cells_[row]) add(run.first, run.ranks, run.cell);
    } else {
      visit_within(cells_[row], *spans, add);
    }
    const auto times = [&](int64_t minutes) {
      return Minutes{gpus.good * minutes, gpus.degraded * minutes, gpus.unknown * minutes, gpus.idle * minutes};
    };
    totals.minutes += times(end - first);
    totals.chosen += chosen_gpus * (end - first);
    if (totals.trend.empty()) return;
    by_bucket(query, first, end, [&](size_t bucket, int32_t minutes) {
      totals.trend[bucket] += times(minutes);
      totals.trend_chosen[bucket] += chosen_gpus * minutes;
    });
  };
  visit_pieces(query, sle, ranks, take);
  totals.chosen_cost = priced.take();
}

std::array<SleTotals, kSles> Ledger::totals(const SleQuery& query) const {
  MutexLock lock(mutex_);
  std::array<SleTotals, kSles> all;
  const auto buckets = static_cast<size_t>(
      query.bucket_minutes > 0 ? (query.end - query.from + query.bucket_minutes - 1) / query.bucket_minutes : 0);
  ScopedRanks ranks(query.scope);
  Chosen chosen(query, owners_);
  PricedRanks priced(query);
  std::vector<int64_t> by_owner(owners_.size());
  for (size_t i = 0; i < kSles; ++i) {
    if (query.only && *query.only != static_cast<Sle>(i)) continue;
    SleTotals& totals = all[i];
    totals.trend.resize(buckets);
    totals.trend_chosen.resize(buckets);
    std::fill(by_owner.begin(), by_owner.end(), 0);
    add_up(query, static_cast<Sle>(i), ranks, chosen, priced, by_owner, totals);
    std::map<std::pair<std::string_view, std::string_view>, int64_t> parts;
    for (size_t owner = 0; owner < by_owner.size(); ++owner)
      if (by_owner[owner] > 0) parts[{owners_[owner].classifier, owners_[owner].sub}] += by_owner[owner];
    for (const auto& [name, minutes] : parts)
      totals.parts.push_back({std::string(name.first), std::string(name.second), minutes});
  }
  return all;
}

struct Ledger::Hurt {
  const Job* job = nullptr;
  const Placement* placement = nullptr;
  std::vector<int64_t> degraded, total;  // by rank, each as the difference from the rank before

  void add(std::vector<int64_t>& to, Rank first, int32_t ranks, int64_t minutes) const {
    const size_t last = to.size() - 1;
    to[std::min(index_of(first), last)] += minutes;
    to[std::min(index_of(first) + static_cast<size_t>(ranks), last)] -= minutes;
  }
  const std::string& host_of(Rank rank) const {
    static const std::string nowhere;
    const auto run = std::upper_bound(placement->hosts.begin(), placement->hosts.end(), rank,
                                      [](Rank r, const Placement::HostRun& one) { return r < one.end(); });
    return run != placement->hosts.end() && run->first <= rank ? run->host : nowhere;
  }
  // each(rank, sum), and on_host(host, sum) behind the last rank of a run of ranks on one host. The sum of all.
  template <typename Each, typename OnHost>
  Sum visit(const Each& each, const OnHost& on_host) const {
    Sum now, of_host, all;
    size_t host = 0;
    const Rank last_end{placement->ranks()};
    for (const Rank rank : lockstep::all_ranks(placement->ranks())) {
      now += {degraded[index_of(rank)], total[index_of(rank)]};
      while (host < placement->hosts.size() && placement->hosts[host].end() <= rank) ++host;
      of_host += now;
      all += now;
      if (now.degraded > 0) each(rank, now);
      // The run ends here, or nobody knows where this rank is and the next is on a host.
      const bool placed = host < placement->hosts.size() && placement->hosts[host].first <= rank;
      const Rank end = host == placement->hosts.size() ? last_end
                       : placed                        ? placement->hosts[host].end()
                                                       : placement->hosts[host].first;
      if (rank + 1 != std::min(end, last_end)) continue;
      on_host(placed ? std::string_view(placement->hosts[host].host) : std::string_view(), of_host);
      of_host = {};
    }
    return all;
  }
};

// Pieces are first put down by placement as differences over its ranks, so that a minute of a large job costs a few
// steps and not one for each GPU.
std::map<std::pair<uint32_t, uint32_t>, Ledger::Hurt> Ledger::hurt_ranks(const SleQuery& query, Sle sle,
                                                                         std::vector<int64_t>& by_owner) const {
  std::map<std::pair<uint32_t, uint32_t>, Hurt> by_placement;
  const RankSpans everybody = every_rank();
  ScopedRanks in_scope(query.scope);
  Chosen chosen(query, owners_);
  visit_pieces(
      query, sle, in_scope,
      [&](const Job& job, uint32_t placement, int32_t first, int32_t end, uint32_t row, const RankSpans* spans) {
        mutex_.assert_held();
        if (placement == 0) return;
        Hurt& hurt = by_placement[{job.row, placement}];
        hurt.job = &job;
        hurt.placement = placements_[placement].get();
        hurt.degraded.resize(hurt.placement->gpus.size() + 1);
        hurt.total.resize(hurt.placement->gpus.size() + 1);
        const int64_t minutes = end - first;
        visit_within(cells_[row], spans == nullptr ? everybody : *spans, [&](Rank rank, int32_t ranks, Cell cell) {
          if (cell.is_idle()) return;
          hurt.add(hurt.total, rank, ranks, minutes);
          if (!cell.is_degraded() || !chosen(cell.owner())) return;
          by_owner[cell.owner()] += minutes * ranks;
          hurt.add(hurt.degraded, rank, ranks, minutes);
        });
      });
  return by_placement;
}

// Sums first, by numbers or by names where they lie; words are copied of those alone that are listed.
Affected Ledger::affected(const SleQuery& query, Sle sle, size_t most) const {
  MutexLock lock(mutex_);
  struct HurtRank {
    const Hurt* hurt = nullptr;  // the newest placement that it was hurt in
    Rank rank;
    int64_t degraded = 0, total = 0;
    const std::string& name() const { return hurt->placement->gpus[index_of(rank)]; }
  };
  std::vector<int64_t> by_owner(owners_.size());
  const auto by_placement = hurt_ranks(query, sle, by_owner);
  std::unordered_map<std::string_view, Sum> jobs, hosts, models;
  std::vector<HurtRank> gpus, of_job;
  const auto end_job = [&] {
    for (const HurtRank& one : of_job)
      if (one.hurt != nullptr) gpus.push_back(one);
    of_job.clear();
  };
  const Job* before = nullptr;
  for (const auto& [key, hurt] : by_placement) {
    if (before != hurt.job) end_job();
    before = hurt.job;
    if (of_job.size() < hurt.placement->gpus.size()) of_job.resize(hurt.placement->gpus.size());
    const Sum all = hurt.visit(
        [&, &hurt = hurt](Rank rank, const Sum& sum) {
          HurtRank& one = of_job[index_of(rank)];
          one = {&hurt, rank, one.degraded + sum.degraded, one.total + sum.total};
        },
        [&](std::string_view host, const Sum& sum) { hosts[host] += sum; });
    jobs[hurt.job->job_id] += all;
    models[hurt.placement->gpu_model] += all;
  }
  end_job();
  Affected answer;
  answer.jobs_in_all = list_worst(jobs, most, answer.jobs);
  answer.hosts_in_all = list_worst(hosts, most, answer.hosts);
  list_worst(models, most, answer.models);
  answer.gpus_in_all = keep_worst(gpus, most, [](const HurtRank& a, const HurtRank& b) {
    if (a.degraded != b.degraded) return a.degraded > b.degraded;
    const int names = a.name().compare(b.name());
    return names != 0 ? names < 0 : std::pair(a.hurt->job->row, a.rank) < std::pair(b.hurt->job->row, b.rank);
  });
  for (const HurtRank& one : gpus)
    answer.gpus.push_back({.name = one.name(),
                           .job_id = one.hurt->job->job_id,
                           .host = one.hurt->host_of(one.rank),
                           .degraded = one.degraded,
                           .total = one.total,
                           .rank = one.rank});
  list_culprits(by_owner, most, answer);
  return answer;
}

void Ledger::list_culprits(std::span<const int64_t> by_owner, size_t most, Affected& answer) const {
  struct Charged {
    uint32_t row = 0;
    int64_t degraded = 0;
  };
  std::vector<Charged> charged;
  for (uint32_t row = 0; row < by_owner.size(); ++row) charged.push_back({row, by_owner[row]});
  answer.culprits_in_all = keep_worst(charged, most, [&](const Charged& a, const Charged& b) {
    mutex_.assert_held();
    if (a.degraded != b.degraded) return a.degraded > b.degraded;
    const int names = owners_[a.row].culprit.compare(owners_[b.row].culprit);
    return names != 0 ? names < 0 : a.row < b.row;
  });
  for (const Charged& one : charged) {
    const Owner& owner = owners_[one.row];
    answer.culprits.push_back(
        {.name = owner.culprit, .job_id = owner.job_id, .host = owner.host, .degraded = one.degraded, .owner = owner});
  }
}

}  // namespace lockstep::sle
