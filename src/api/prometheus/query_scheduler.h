// Which queries run now: at most running_max at a time, each on the thread that brought it or one that has just become
// free; the others wait their turn in the order they came, and hold no thread while they do. One whose client has gone
// leaves the queue, and is cancelled where it runs; the server's end is everybody's.
//
// Several schedulers, one for each tenant, may share the number that runs (QuerySlots). Each has a queue of its own; a
// slot that becomes free goes to the one of those who wait that runs the fewest, of these to the one that was given one
// longest ago. While there are several, none has all slots, so that another's first query finds one.
//
// Limits: running_max and waiting_max (503 beyond both); who has waited as long as its timeout allows gets 503.
// Counts: lockstep_queries_total{result} = those that came - lockstep_queries{state="running"} - {state="waiting"}.
// Thread rule: Thread-safe. Somebody calls tick() a few times a second.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/counters.h"
#include "base/mutex.h"
#include "net/http_server.h"

namespace lockstep {

struct QuerySchedulerOptions {
  size_t running_max = 8;
  size_t waiting_max = 256;
};

class QueryScheduler;

// How many queries run at a time, for one or several schedulers. Must outlive them.
// Thread rule: Thread-safe.
class QuerySlots {
 public:
  explicit QuerySlots(size_t running_max) : running_max_(running_max) {}

 private:
  friend class QueryScheduler;
  size_t running_max_of_one() const LOCKSTEP_REQUIRES(mutex_) {
    return schedulers_.size() > 1 && running_max_ > 1 ? running_max_ - 1 : running_max_;
  }

  const size_t running_max_;
  Mutex mutex_;  // of the schedulers' queues as well
  size_t running_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::vector<QueryScheduler*> schedulers_
      LOCKSTEP_GUARDED_BY(mutex_);  // the one that was given a slot last comes last
};

class QueryScheduler {
 public:
  using Handler = std::function<HttpResponse(const ServerRequest&)>;

  // `handler` is what a turn is for; the request it gets says whether its client is still there, and how long it waited.
  // slots: those it shares with others, instead of running_max; nullptr: it has its own.
  QueryScheduler(QuerySchedulerOptions options, Handler handler, Counters& counters, QuerySlots* slots = nullptr);
  QueryScheduler(const QueryScheduler&) = delete;
  QueryScheduler& operator=(const QueryScheduler&) = delete;
  // Where nobody runs or waits any more.
  ~QueryScheduler();

  void run(const ServerRequest& request, const std::shared_ptr<HttpResponder>& responder);
  // Sends away who has waited too long, and forgets who has gone.
  void tick();

 private:
  struct Query {
    ServerRequest request;
    std::shared_ptr<HttpResponder> responder;
    std::chrono::steady_clock::time_point came;
    int64_t timeout_ms = 0;
    int64_t waited_ms() const;
  };
  void give_turn(Query query);
  // True: it is over without a turn.
  bool is_over(const Query& query);
  void end(const Query& query, HttpResponse response);
  struct Turn {
    QueryScheduler* of;
    Query query;
  };
  // Of any scheduler, or the slot is given back.
  std::optional<Turn> next();
  bool has_slot() const LOCKSTEP_REQUIRES(slots_.mutex_);
  void note() LOCKSTEP_REQUIRES(slots_.mutex_);

  const QuerySchedulerOptions options_;
  const Handler handler_;
  Counters& counters_;
  const std::unique_ptr<QuerySlots> own_slots_;
  QuerySlots& slots_;
  size_t running_ LOCKSTEP_GUARDED_BY(slots_.mutex_) = 0;
  std::deque<Query> waiting_ LOCKSTEP_GUARDED_BY(slots_.mutex_);
};

}  // namespace lockstep
