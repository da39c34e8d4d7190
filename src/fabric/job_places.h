// Where the ranks of every job run, now and in their last attempts: what joins a job with the topology.
//
// Limits: kJobsMax jobs and kRanksMax ranks over all of them (a further job takes the place of the one that was silent
//         longest; a further rank is left out), kAttemptsMax attempts of each job, text_bytes_max of names of hosts and
//         GPUs, of which those that no rank needs any more make room.
// Hot: called for every step of every rank; a rank that is where it was costs a look into a table.
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "apply/subscriber.h"
#include "base/mutex.h"
#include "fabric/symbol.h"
#include "model/ids.h"

namespace lockstep::fabric {

struct RankPlace {
  Rank rank = kNoRank;
  int64_t attempt = 0;
  int32_t local_rank = 0;
  std::string host;
  std::string gpu_uuid;
};

class JobPlaces final : public StoreSubscriber {
 public:
  static constexpr size_t kJobsMax = 10'000;
  static constexpr size_t kRanksMax = 1'000'000;
  static constexpr size_t kAttemptsMax = 4;
  static constexpr size_t kTextBytesMax = 512u << 20;

  explicit JobPlaces(size_t text_bytes_max = kTextBytesMax) : text_bytes_max_(text_bytes_max) {}

  void on_step(const Identity& identity, const StepSummary&, int64_t received_unix_ns) override {
    note(identity, received_unix_ns);
  }
  void on_status(const Identity& identity, const RankStatus&, int64_t received_unix_ns) override {
    note(identity, received_unix_ns);
  }
  void on_rank_started(const Identity& identity, int64_t received_unix_ns) override {
    note(identity, received_unix_ns);
  }

  void on_attempt_back(const std::string& job_id, int64_t attempt) override;

  bool has_job(std::string_view job) const;
  std::vector<std::string> jobs() const;
  int32_t rank_count(std::string_view job, int64_t at_unix_ns) const;
  std::optional<RankPlace> find(std::string_view job, Rank rank, int64_t at_unix_ns) const;

  // Of all jobs, or of one where it is not empty, as they are now: called without the lock. Places of one job come
  // together.
  struct View {
    std::string_view job;
    Rank rank;
    int32_t local_rank;
    std::string_view host;
    std::string_view gpu_uuid;
  };
  void visit(std::string_view job, int64_t at_unix_ns, const std::function<void(const View&)>& visit) const;

 private:
  struct Place {
    Symbol host = kNoText;  // kNoText: not heard of
    Symbol gpu = kNoText;
    int32_t local_rank = 0;
  };
  struct Attempt {
    int64_t number = 0;
    int64_t since_unix_ns = 0;
    std::vector<Place> ranks;
  };
  struct Job {
    std::deque<Attempt> attempts;  // oldest first
    int64_t heard_unix_ns = 0;
  };

  void note(const Identity& identity, int64_t received_unix_ns);
  void forget_one() LOCKSTEP_REQUIRES(mutex_);
  bool has_room_for_texts() LOCKSTEP_REQUIRES(mutex_);
  void count_out(const Attempt& attempt) LOCKSTEP_REQUIRES(mutex_);
  static const Attempt* attempt_at(const Job& job, int64_t at_unix_ns);
  const Job* find_job(std::string_view job) const LOCKSTEP_REQUIRES(mutex_);

  const size_t text_bytes_max_;
  mutable Mutex mutex_;
  TextTable texts_ LOCKSTEP_GUARDED_BY(mutex_);
  size_t compact_bytes_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // of texts_ when all in it was needed
  // texts_ as visit() hands it on; nullptr: it has changed since.
  mutable std::shared_ptr<const TextTable> shared_texts_ LOCKSTEP_GUARDED_BY(mutex_);
  std::unordered_map<std::string, std::unique_ptr<Job>> jobs_ LOCKSTEP_GUARDED_BY(mutex_);
  size_t ranks_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  size_t forgotten_ranks_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // since texts_ was compact
};

}  // namespace lockstep::fabric
