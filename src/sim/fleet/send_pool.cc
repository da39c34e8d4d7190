#include "sim/fleet/send_pool.h"

#include <utility>

#include "sim/fleet/random.h"

namespace lockstep::sim {

SendPool::SendPool(const Url& server, size_t connections) {
  for (size_t i = 0; i < connections; ++i) {
    Connection& connection = *connections_.emplace_back(std::make_unique<Connection>(server));
    connection.thread = std::jthread([&connection](std::stop_token stop) {
      ReleasableMutexLock lock(connection.mutex);
      while (connection.changed.wait(
          connection.mutex, stop, [&]() LOCKSTEP_REQUIRES(connection.mutex) { return !connection.waiting.empty(); })) {
        Batch batch = std::move(connection.waiting.front());
        connection.waiting.pop_front();
        connection.busy = true;
        lock.unlock();
        connection.changed.notify_all();
        connection.sender.send(batch, stop);
        lock.lock();
        connection.busy = false;
        connection.changed.notify_all();
      }
    });
  }
}

SendPool::~SendPool() {
  for (auto& connection : connections_) connection->thread.request_stop();
}

void SendPool::send(Batch batch, std::stop_token stop) {
  const std::string_view host =
      batch.groups.empty() ? std::string_view() : find_string(batch.groups.front().resource, "host.name");
  Connection& connection = *connections_[hash_of(host) % connections_.size()];
  MutexLock lock(connection.mutex);
  if (!connection.changed.wait(connection.mutex, stop, [&]() LOCKSTEP_REQUIRES(connection.mutex) {
        return connection.waiting.size() < kWaitingMax;
      }))
    return;
  connection.waiting.push_back(std::move(batch));
  connection.changed.notify_all();
}

void SendPool::drain() {
  for (auto& connection : connections_) {
    MutexLock lock(connection->mutex);
    connection->changed.wait(connection->mutex, [&]() LOCKSTEP_REQUIRES(connection->mutex) {
      return connection->waiting.empty() && !connection->busy;
    });
  }
}

SendTotals SendPool::totals() const {
  SendTotals sum;
  for (const auto& connection : connections_) {
    const SendTotals each = connection->sender.totals();
    sum.requests_sent += each.requests_sent;
    sum.requests_failed += each.requests_failed;
    sum.retries += each.retries;
    sum.records_accepted += each.records_accepted;
    sum.records_rejected += each.records_rejected;
    sum.records_failed += each.records_failed;
    sum.bytes += each.bytes;
    if (!each.last_error.empty()) sum.last_error = each.last_error;
  }
  return sum;
}

}  // namespace lockstep::sim
