// Which queries run now: at most running_max at a time, each on the thread that brought it or one that has just become
// free; the others wait their turn in the order they came, and hold no thread while they do. One whose client has gone
// leaves the queue, and is cancelled where it runs; the server's end is everybody's.
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

#include "base/counters.h"
#include "base/mutex.h"
#include "net/http_server.h"

namespace lockstep {

struct QuerySchedulerOptions {
  size_t running_max = 8;
  size_t waiting_max = 256;
};

class QueryScheduler {
 public:
  using Answer = std::function<HttpResponse(const ServerRequest&)>;

  // `answer` is what a turn is for; the request it gets says whether its client is still there, and how long it waited.
  QueryScheduler(QuerySchedulerOptions options, Answer answer, Counters& counters)
      : options_(options), answer_(std::move(answer)), counters_(counters) {}

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
  std::optional<Query> next();  // or the turn is given back

  const QuerySchedulerOptions options_;
  const Answer answer_;
  Counters& counters_;
  Mutex mutex_;
  size_t running_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::deque<Query> waiting_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
