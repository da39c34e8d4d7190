// What is asked of the ledger: minutes of a scope and a time, by SLE, classifier and bucket of time; who was hurt, and
// who is charged. Everything is a sum of minutes, so any two answers add up to that of both together.
//
// Thread rule: Immutable values.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "analysis/cost/gpu_peak.h"
#include "analysis/cost/gpu_prices.h"
#include "sle/ledger.h"

namespace lockstep::sle {

struct Minutes {
  int64_t good = 0, degraded = 0, unknown = 0;
  int64_t idle = 0;  // by plan: nothing was expected of them, and they are no part of the others
  int64_t total() const { return good + degraded + unknown; }
  // Of what is known; NaN where nothing is.
  double success() const;
  // All that is unknown taken for degraded, and for good.
  double success_least() const;
  double success_most() const;
  double coverage() const;
  bool operator==(const Minutes&) const = default;
  Minutes& operator+=(const Minutes& other);
};

// Whose minutes. All that is set must hold.
struct Scope {
  std::optional<std::string> job_id;
  std::optional<RankSpans> ranks;  // of that job
  std::set<std::string> hosts;     // empty: all
  std::optional<std::set<std::string>> gpus;
  bool whole_jobs() const { return !ranks && hosts.empty() && !gpus; }
};

struct SleQuery {
  Scope scope;
  int32_t from = 0, end = 0;   // minutes, [from, end)
  int32_t bucket_minutes = 0;  // 0: no trend
  // Which degraded minutes are meant by `chosen` below; empty: all.
  std::function<bool(const Owner&)> charged_to = {};
  const GpuPrices* prices = nullptr;
  std::shared_ptr<const GpuModels> models = {};  // of GPUs by uuid; what is not in it is of its job's model
  std::optional<Sle> only = {};                  // else all
};

struct SleTotals {
  // Degraded minutes by what they are charged to.
  struct Part {
    std::string classifier, sub;
    int64_t minutes = 0;
  };
  Minutes minutes;
  int64_t chosen = 0;                 // degraded, and charged_to holds
  GpuCost chosen_cost = {};           // of these GPU-minutes; nothing without prices
  std::vector<Minutes> trend;         // by bucket
  std::vector<int64_t> trend_chosen;  // likewise
  std::vector<Part> parts;            // by name; they add up to the degraded minutes
};

// Degraded minutes that charged_to holds for, by who was hurt and by who is charged; the most first.
struct Affected {
  struct One {
    std::string name;    // a job, host, GPU or culprit
    std::string job_id;  // of a rank or culprit
    std::string host;    // likewise
    int64_t degraded = 0;
    int64_t total = 0;    // all minutes of it in the scope; 0 of culprits
    Rank rank = kNoRank;  // of a GPU
    Owner owner = {};     // of a culprit
  };
  std::vector<One> jobs, hosts, gpus, models, culprits;
  size_t jobs_in_all = 0, hosts_in_all = 0, gpus_in_all = 0, culprits_in_all = 0;
};

}  // namespace lockstep::sle
