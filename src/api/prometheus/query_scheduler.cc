#include "api/prometheus/query_scheduler.h"

#include <algorithm>

#include "api/prometheus/prometheus_answer.h"
#include "base/contained.h"
#include "base/log.h"
#include "base/text.h"

namespace lockstep {
namespace {

int64_t timeout_of(const ServerRequest& request) {
  const Result<PrometheusForm> form = PrometheusForm::read(request);
  const Result<int64_t> timeout = form.ok() ? prometheus_timeout(*form) : Result<int64_t>(kPrometheusTimeoutMs);
  return timeout.ok() ? *timeout : kPrometheusTimeoutMs;  // what is wrong with it is told when its turn comes
}

const char* result_of(const HttpResponse& response) {
  switch (const int status = response.status) {
    case 200:
      return "result=\"answered\"";
    case 499:
      return "result=\"cancelled\"";
    case 503:  // of the two only one is worth another try at once
      return std::any_of(response.headers.begin(), response.headers.end(),
                         [](const auto& header) { return header.first == "retry-after"; })
                 ? "result=\"memory\""
                 : "result=\"timeout\"";
    default:
      return status < 500 ? "result=\"refused\"" : "result=\"failed\"";
  }
}

}  // namespace

int64_t QueryScheduler::Query::waited_ms() const {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - came).count();
}

QueryScheduler::QueryScheduler(QuerySchedulerOptions options, Handler handler, Counters& counters, QuerySlots* slots)
    : options_(options),
      handler_(std::move(handler)),
      counters_(counters),
      own_slots_(slots == nullptr ? std::make_unique<QuerySlots>(options.running_max) : nullptr),
      slots_(slots == nullptr ? *own_slots_ : *slots) {
  MutexLock lock(slots_.mutex_);
  slots_.schedulers_.push_back(this);
}

QueryScheduler::~QueryScheduler() {
  MutexLock lock(slots_.mutex_);
  std::erase(slots_.schedulers_, this);
}

bool QueryScheduler::has_slot() const {
  return slots_.running_ < slots_.running_max_ && running_ < slots_.running_max_of_one();
}

void QueryScheduler::note() {
  counters_.set("lockstep_queries", "state=\"running\"", static_cast<int64_t>(running_));
  counters_.set("lockstep_queries", "state=\"waiting\"", static_cast<int64_t>(waiting_.size()));
}

void QueryScheduler::run(const ServerRequest& request, const std::shared_ptr<HttpResponder>& responder) {
  Query query{request, responder, std::chrono::steady_clock::now(), timeout_of(request)};
  query.request.is_gone = [responder] { return responder->gone(); };
  {
    MutexLock lock(slots_.mutex_);
    // Deferred also where it runs at once: only then does the server watch whether the client stays.
    if ((!has_slot() && waiting_.size() >= options_.waiting_max) || !responder->defer()) {
      counters_.add("lockstep_queries_total", "result=\"turned_away\"");
      HttpResponse full = prometheus_error(
          "unavailable",
          format("%zu queries run (limit %zu) and %zu wait (limit %zu); try again, or raise --queries-max", running_,
                 slots_.running_max_, waiting_.size(), options_.waiting_max));
      full.headers.emplace_back("retry-after", "1");
      return responder->answer(std::move(full));
    }
    if (!has_slot()) {
      waiting_.push_back(std::move(query));
      return note();
    }
    ++slots_.running_;
    ++running_;
    note();
  }
  // Whatever is thrown on the way, the turn goes on to the next one; who got no answer gets 500.
  contained("api", "a query", [&] { give_turn(std::move(query)); });
  QueryScheduler* ended = this;
  while (std::optional<Turn> turn = ended->next()) {
    ended = turn->of;
    contained("api", "a query", [&] { ended->give_turn(std::move(turn->query)); });
  }
}

std::optional<QueryScheduler::Turn> QueryScheduler::next() {
  MutexLock lock(slots_.mutex_);
  --slots_.running_;
  --running_;
  note();
  auto& all = slots_.schedulers_;
  auto chosen = all.end();
  size_t running_least = 0;
  for (auto one = all.begin(); one != all.end(); ++one) {
    const QueryScheduler& other = **one;
    other.slots_.mutex_.assert_held();  // it shares our slots, and so their mutex
    if (other.waiting_.empty() || !other.has_slot()) continue;
    if (chosen != all.end() && other.running_ >= running_least) continue;
    chosen = one;
    running_least = other.running_;
  }
  if (chosen == all.end()) return std::nullopt;
  std::rotate(chosen, chosen + 1, all.end());
  QueryScheduler& of = *all.back();
  of.slots_.mutex_.assert_held();  // likewise
  Turn turn{&of, std::move(of.waiting_.front())};
  of.waiting_.pop_front();
  ++slots_.running_;
  ++of.running_;
  of.note();
  return turn;
}

void QueryScheduler::give_turn(Query query) {
  query.request.waited_ms = query.waited_ms();
  if (is_over(query)) return;
  HttpResponse response;
  try {
    response = handler_(query.request);
  } catch (const std::exception& failure) {  // memory, most likely
    LOCKSTEP_LOG_ERROR("api", "%s failed: %s", query.request.path.c_str(), failure.what());
    response = prometheus_error("internal", "the query failed inside the server");
  }
  end(query, std::move(response));
}

bool QueryScheduler::is_over(const Query& query) {
  if (query.responder->gone()) {
    end(query, prometheus_error("canceled", "query was canceled in query queue"));
    return true;
  }
  if (query.waited_ms() < query.timeout_ms) return false;
  end(query,
      prometheus_error("timeout",
                       format("query timed out in query queue: it waited %lld ms while %zu others ran (limit %zu); "
                              "try again, or raise --queries-max",
                              static_cast<long long>(query.waited_ms()), slots_.running_max_, slots_.running_max_)));
  return true;
}

void QueryScheduler::end(const Query& query, HttpResponse response) {
  counters_.add("lockstep_queries_total", result_of(response));
  query.responder->answer(std::move(response));
}

void QueryScheduler::tick() {
  MutexLock lock(slots_.mutex_);
  if (waiting_.empty()) return;
  std::erase_if(waiting_, [&](const Query& query) { return is_over(query); });
  note();
}

}  // namespace lockstep
