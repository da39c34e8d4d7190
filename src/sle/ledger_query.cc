#include "sle/ledger_query.h"

#include <algorithm>
#include <limits>

namespace lockstep::sle {
namespace {

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : std::numeric_limits<double>::quiet_NaN();
}

// Of a placement, the ranks that are in the scope.
RankSpans spans_in(const Scope& scope, const Placement& placement) {
  RankSpans spans = scope.ranks.value_or(RankSpans{{0, INT32_MAX}});
  if (!scope.hosts.empty()) {
    RankSpans on_hosts;
    for (const Placement::HostRun& run : placement.hosts)
      if (scope.hosts.contains(run.host)) on_hosts.push_back({run.first, run.end()});
    spans = common_of(spans, on_hosts);
  }
  if (scope.gpus) {
    std::vector<int32_t> ranks;
    for (size_t i = 0; i < placement.gpus.size(); ++i)
      if (scope.gpus->contains(placement.gpus[i])) ranks.push_back(static_cast<int32_t>(i));
    spans = common_of(spans, spans_of(std::move(ranks)));
  }
  return spans;
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

void worst_first(std::vector<Affected::One>& list, size_t most, size_t* in_all) {
  std::erase_if(list, [](const Affected::One& one) { return one.degraded == 0; });
  if (in_all != nullptr) *in_all = list.size();
  std::sort(list.begin(), list.end(), [](const Affected::One& a, const Affected::One& b) {
    return a.degraded != b.degraded ? a.degraded > b.degraded : a.name < b.name;
  });
  if (list.size() > most) list.resize(most);
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
  return *this;
}

// visit(job, placement's row, first minute, end, cells' row, spans or nullptr where all ranks are meant): stretches in
// which neither cells nor placement change.
template <typename Visit>
void Ledger::visit_pieces(const SleQuery& query, Sle sle, const Visit& visit) const {
  std::unordered_map<uint32_t, RankSpans> spans_of_placement;
  for (const std::unique_ptr<Job>& job : jobs_) {
    if (query.scope.job_id && *query.scope.job_id != job->job_id) continue;
    const std::span<const MinuteRun> placements = job->placements.within(query.from, query.end);
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
        const RankSpans* spans = nullptr;
        if (!query.scope.whole_jobs()) {
          const auto [found, is_new] = spans_of_placement.try_emplace(row);
          if (is_new && row != 0) found->second = spans_in(query.scope, *placements_[row]);
          spans = &found->second;
        }
        if (spans == nullptr || !spans->empty()) visit(*job, row, first, to, run.value, spans);
        first = to;
      }
    }
  }
}

std::array<SleTotals, kSles> Ledger::totals(const SleQuery& query) const {
  MutexLock lock(mutex_);
  std::array<SleTotals, kSles> all;
  const auto buckets = static_cast<size_t>(
      query.bucket_minutes > 0 ? (query.end - query.from + query.bucket_minutes - 1) / query.bucket_minutes : 0);
  std::vector<int8_t> is_chosen(owners_.size(), -1);
  const auto chosen = [&](uint32_t owner) LOCKSTEP_REQUIRES(mutex_) {
    if (is_chosen[owner] < 0) is_chosen[owner] = !query.charged_to || query.charged_to(owners_[owner]) ? 1 : 0;
    return is_chosen[owner] == 1;
  };
  std::vector<int64_t> by_owner(owners_.size());
  for (size_t i = 0; i < kSles; ++i) {
    if (query.only && *query.only != static_cast<Sle>(i)) continue;
    SleTotals& totals = all[i];
    totals.trend.resize(buckets);
    totals.trend_chosen.resize(buckets);
    std::fill(by_owner.begin(), by_owner.end(), 0);
    const auto take = [&](const Job&, uint32_t placement, int32_t first, int32_t end, uint32_t row,
                          const RankSpans* spans) LOCKSTEP_REQUIRES(mutex_) {
      Minutes gpus;  // in each of these minutes
      int64_t chosen_gpus = 0;
      const auto add = [&](int32_t, int32_t ranks, Cell cell) {
        mutex_.assert_held();
        if (cell.is_good()) gpus.good += ranks;
        if (cell.is_unknown()) gpus.unknown += ranks;
        if (!cell.is_degraded()) return;
        gpus.degraded += ranks;
        by_owner[cell.owner()] += static_cast<int64_t>(ranks) * (end - first);
        if (chosen(cell.owner())) chosen_gpus += ranks;
      };
      if (spans == nullptr) {
        for (const RankRun& run : cells_[row]) add(run.first, run.ranks, run.cell);
      } else {
        visit_within(cells_[row], *spans, add);
      }
      const auto times = [&](int64_t minutes) {
        return Minutes{gpus.good * minutes, gpus.degraded * minutes, gpus.unknown * minutes};
      };
      totals.minutes += times(end - first);
      totals.chosen += chosen_gpus * (end - first);
      if (query.prices != nullptr && placement != 0)
        totals.chosen_money +=
            static_cast<double>(chosen_gpus * (end - first)) / 60 * query.prices->of(placements_[placement]->gpu_model);
      if (buckets == 0) return;
      by_bucket(query, first, end, [&](size_t bucket, int32_t minutes) {
        totals.trend[bucket] += times(minutes);
        totals.trend_chosen[bucket] += chosen_gpus * minutes;
      });
    };
    visit_pieces(query, static_cast<Sle>(i), take);
    for (size_t owner = 0; owner < by_owner.size(); ++owner)
      if (by_owner[owner] > 0) totals.owners.emplace_back(owners_[owner], by_owner[owner]);
    std::stable_sort(totals.owners.begin(), totals.owners.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
  }
  return all;
}

struct Ledger::Hurt {
  const Job* job = nullptr;
  const Placement* placement = nullptr;
  std::vector<int64_t> degraded, total;  // by rank, each as the difference from the rank before

  void add(std::vector<int64_t>& to, int32_t first, int32_t ranks, int64_t minutes) const {
    const size_t last = to.size() - 1;
    to[std::min(static_cast<size_t>(first), last)] += minutes;
    to[std::min(static_cast<size_t>(first) + static_cast<size_t>(ranks), last)] -= minutes;
  }
  // visit(rank, host, degraded, total)
  template <typename Visit>
  void visit(const Visit& each) const {
    size_t host = 0;
    int64_t degraded_minutes = 0, total_minutes = 0;
    const std::string nowhere;
    for (int32_t rank = 0; rank < placement->ranks(); ++rank) {
      degraded_minutes += degraded[static_cast<size_t>(rank)];
      total_minutes += total[static_cast<size_t>(rank)];
      while (host < placement->hosts.size() && placement->hosts[host].end() <= rank) ++host;
      const bool placed = host < placement->hosts.size() && placement->hosts[host].first <= rank;
      if (total_minutes > 0)
        each(rank, placed ? placement->hosts[host].host : nowhere, degraded_minutes, total_minutes);
    }
  }
};

// Pieces are first put down by placement as differences over its ranks, so that a minute of a large job costs a few
// steps and not one for each GPU.
std::map<std::pair<uint32_t, uint32_t>, Ledger::Hurt> Ledger::hurt_ranks(
    const SleQuery& query, Sle sle, std::unordered_map<uint32_t, int64_t>& by_owner) const {
  std::map<std::pair<uint32_t, uint32_t>, Hurt> by_placement;
  const RankSpans everybody = {{0, INT32_MAX}};
  visit_pieces(
      query, sle,
      [&](const Job& job, uint32_t placement, int32_t first, int32_t end, uint32_t row, const RankSpans* spans) {
        mutex_.assert_held();
        if (placement == 0) return;
        Hurt& hurt = by_placement[{job.row, placement}];
        hurt.job = &job;
        hurt.placement = placements_[placement].get();
        hurt.degraded.resize(hurt.placement->gpus.size() + 1);
        hurt.total.resize(hurt.placement->gpus.size() + 1);
        const int64_t minutes = end - first;
        visit_within(cells_[row], spans == nullptr ? everybody : *spans, [&](int32_t rank, int32_t ranks, Cell cell) {
          mutex_.assert_held();
          hurt.add(hurt.total, rank, ranks, minutes);
          if (!cell.is_degraded() || (query.charged_to && !query.charged_to(owners_[cell.owner()]))) return;
          by_owner[cell.owner()] += minutes * ranks;
          hurt.add(hurt.degraded, rank, ranks, minutes);
        });
      });
  return by_placement;
}

Affected Ledger::affected(const SleQuery& query, Sle sle, size_t most) const {
  MutexLock lock(mutex_);
  std::unordered_map<uint32_t, int64_t> by_owner;
  std::map<std::string, Affected::One> jobs, hosts, models;
  std::map<std::pair<std::string_view, int32_t>, Affected::One> gpus;
  for (const auto& [key, hurt] : hurt_ranks(query, sle, by_owner)) {
    Affected::One& job = jobs[hurt.job->job_id];
    Affected::One& model = models[hurt.placement->gpu_model];
    hurt.visit([&, &hurt = hurt](int32_t rank, const std::string& host, int64_t degraded, int64_t total) {
      for (Affected::One* one : {&job, &model, &hosts[host]}) {
        one->degraded += degraded;
        one->total += total;
      }
      if (degraded == 0) return;
      Affected::One& gpu = gpus[{hurt.job->job_id, rank}];
      gpu = {.name = hurt.placement->gpus[static_cast<size_t>(rank)],
             .job_id = hurt.job->job_id,
             .host = host,
             .degraded = gpu.degraded + degraded,
             .total = gpu.total + total,
             .rank = rank};
    });
  }
  Affected answer;
  const auto list = [](std::map<std::string, Affected::One>& from, std::vector<Affected::One>& to) {
    for (auto& [name, one] : from) {
      one.name = name;
      to.push_back(std::move(one));
    }
  };
  list(jobs, answer.jobs);
  list(hosts, answer.hosts);
  list(models, answer.models);
  for (auto& [key, one] : gpus) answer.gpus.push_back(std::move(one));
  for (const auto& [row, minutes] : by_owner) {
    const Owner& owner = owners_[row];
    answer.culprits.push_back(
        {.name = owner.culprit, .job_id = owner.job_id, .host = owner.host, .degraded = minutes, .owner = owner});
  }
  worst_first(answer.jobs, most, &answer.jobs_in_all);
  worst_first(answer.hosts, most, &answer.hosts_in_all);
  worst_first(answer.gpus, most, &answer.gpus_in_all);
  worst_first(answer.models, most, nullptr);
  worst_first(answer.culprits, most, &answer.culprits_in_all);
  return answer;
}

}  // namespace lockstep::sle
