// Which attempt of a job is the one that runs, and what becomes of records of another.
//
// An attempt is a number that senders claim, and a new one takes the place of the old in every store and in diagnosis.
// On the word of one sender that would let a single record silence a job. So the ranks decide:
//   - a rank is in the attempt of which it spoke last, twice in a row (one record moves nobody);
//   - the job's attempt is the one that most of its ranks are in; at a draw it stays;
//   - a rank that has ended, or was not heard of for kSilentNs, is in none: an attempt that gets no more data yields;
//   - of an older attempt only words count that are later, by the time of the event, than all words of the one that
//     runs: what a spool delivers late changes nothing, but a job that was taken over comes back by itself.
// Records of an attempt that may yet win are held and applied when it does: a restart loses none. They are let go when
// the job decides otherwise, after kSilentNs, and beyond kHeldBytesMax, oldest first.
//
// All of it follows from the records and the times at which they were received, so reading the log back decides the
// same again. What a store remembers of a job is where it begins, and no more than that: it has no votes.
// Limits: kJobsMax jobs, kRanksMax ranks over all of them. Beyond: the job that was silent longest is forgotten, and a
//         further rank has no vote.
// Thread rule: Confined (the applier's lock).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/step.h"
#include "model/telemetry.h"

namespace lockstep {

class JobAttempts {
 public:
  static constexpr size_t kJobsMax = 10'000;
  static constexpr size_t kRanksMax = 500'000;
  // Agents report a rank that makes no calls every few seconds: who is not heard of for so long is not there.
  static constexpr int64_t kSilentNs = 60'000'000'000;
  static constexpr size_t kHeldBytesMax = 64u << 20;        // of all jobs
  static constexpr size_t kHeldBytesPerJobMax = 16u << 20;  // so that one cannot take the room of all

  struct Known {  // of a job, before its first record here
    int64_t attempt = 0;
    int64_t last_seen_unix_ns = 0;
  };
  using Lookup = std::function<std::optional<Known>(const std::string& job_id)>;
  explicit JobAttempts(Lookup known) : known_(std::move(known)) {}

  enum class Decision {
    kApply,   // of the attempt that runs
    kSwitch,  // likewise, since this record: take_held() comes first
    kHold,    // of another that may yet run: hold()
    kOld,     // of one that is over
  };
  // is_end: the record says that the rank has ended. time_unix_ns: of the event; 0: not told.
  Decision decide(const Identity& identity, int64_t time_unix_ns, int64_t received_unix_ns, bool is_end);

  struct Held {
    std::shared_ptr<const Attributes> resource;
    LogRecord record;
    int64_t attempt = 0;
    int64_t received_unix_ns = 0;
    size_t bytes = 0;
  };
  void hold(const Identity& identity, std::shared_ptr<const Attributes> resource, const LogRecord& record,
            int64_t received_unix_ns);
  // What was held of the attempt that runs now, in order; what was held of others is let go.
  std::vector<Held> take_held(const std::string& job_id);

  size_t held() const { return held_count_; }                 // records
  size_t take_let_go() { return std::exchange(let_go_, 0); }  // records since the last call

 private:
  struct RankAttempt {
    std::optional<int64_t> in;
    int64_t said = 0;  // last
    bool said_once = false;
    int64_t heard_unix_ns = 0;  // when its last word arrived
  };
  struct Job {
    int64_t attempt = 0;
    int64_t newest_unix_ns = 0;  // word of that attempt
    std::unordered_map<Rank, RankAttempt> ranks;
    std::map<int64_t, size_t> votes;  // attempt -> ranks in it; none has 0
    std::deque<Held> held;
    size_t held_bytes = 0;
    int64_t counted_unix_ns = 0;  // silent ranks were looked for
    uint64_t heard = 0;
  };

  Job& job_of(const Identity& identity);
  void leave(Job& job, RankAttempt& rank);
  void forget_silent(Job& job, int64_t now_unix_ns);
  void let_go_front(Job& job);
  static size_t votes_of(const Job& job, int64_t attempt);

  const Lookup known_;
  std::unordered_map<std::string, Job> jobs_;
  std::pair<const std::string, Job>* latest_ = nullptr;  // a batch is of one job
  size_t ranks_ = 0;
  size_t held_count_ = 0;
  size_t held_bytes_ = 0;
  size_t let_go_ = 0;
  uint64_t heard_ = 0;
};

}  // namespace lockstep
