#include "sim/fleet/stack_orders.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/text.h"
#include "wire/commands.h"

namespace lockstep::sim {

StackOrders::StackOrders(const Url& otlp, std::string job_id, std::vector<std::string> hosts)
    : job_id_(std::move(job_id)),
      hosts_(std::move(hosts)),
      wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      client_(otlp, 40'000, kCommandsBytesMax) {
  client_.interrupt_by(wake_.get());
  thread_ = std::jthread([this](std::stop_token stop) { run(stop); });
}

StackOrders::~StackOrders() {
  thread_.request_stop();
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
}

std::vector<Rank> StackOrders::take(int64_t attempt) {
  std::vector<Wanted> wanted;
  {
    MutexLock lock(mutex_);
    wanted = std::exchange(wanted_, {});
  }
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  std::vector<Rank> ranks;
  for (const Wanted& one : wanted) {
    if (one.attempt == attempt) ranks.push_back(one.rank);
  }
  return ranks;
}

bool StackOrders::poll(std::string& cursor) {
  HttpRequest request{.path = kCommandsPath, .headers = {{"Accept", "text/plain"}, {"X-Lockstep", "1"}}};
  for (size_t i = 0; i < hosts_.size(); ++i) request.path += (i == 0 ? "?host=" : "&host=") + url_part(hosts_[i]);
  request.path += "&answers=stacks";
  if (!cursor.empty()) request.path += "&after=" + cursor;
  Result<HttpResponse> answer = client_.send(request);
  if (!answer.ok()) return false;
  if (answer->status != 200) return answer->status == 204;
  Result<CommandList> list = parse_commands(answer->body);
  if (!list.ok()) return false;
  cursor = list->cursor;
  MutexLock lock(mutex_);
  for (const StackRequest& order : list->stacks) {
    if (order.job_id != job_id_) continue;
    for (Rank rank : order.ranks) {
      if (wanted_.size() < kRanksMax) wanted_.push_back({order.attempt, rank});
    }
  }
  return true;
}

void StackOrders::run(std::stop_token stop) {
  std::string cursor;
  while (!stop.stop_requested()) {
    if (poll(cursor) || stop.stop_requested()) continue;
    MutexLock lock(mutex_);
    pause_.wait_for(mutex_, stop, std::chrono::milliseconds(kPauseMs), [] { return false; });
  }
}

}  // namespace lockstep::sim
