// Several connections to an OTLP server, as a fleet of agents has: what one host sends stays in its order, hosts do not
// wait for each other.
//
// Capacity: kWaitingMax batches per connection; send() waits while the one it needs is full, so nothing is dropped.
// Thread rule: Confined, but totals() may be read from anywhere. The destructor sends what waits, unless stopped.
#pragma once

#include <deque>
#include <memory>
#include <stop_token>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "model/telemetry.h"
#include "sim/fleet/otlp_sender.h"

namespace lockstep::sim {

class SendPool {
 public:
  SendPool(const Url& server, size_t connections);
  ~SendPool();
  SendPool(const SendPool&) = delete;
  SendPool& operator=(const SendPool&) = delete;

  void send(Batch batch, std::stop_token stop);
  void drain();  // returns when all of it has been sent or given up
  SendTotals totals() const;

  static constexpr size_t kWaitingMax = 64;

 private:
  struct Connection {
    explicit Connection(const Url& server) : sender(server) {}
    OtlpSender sender;
    Mutex mutex;
    StoppableConditionVariable changed;
    std::deque<Batch> waiting LOCKSTEP_GUARDED_BY(mutex);
    bool busy LOCKSTEP_GUARDED_BY(mutex) = false;
    std::jthread thread;  // last: it uses the others
  };
  std::vector<std::unique_ptr<Connection>> connections_;
};

}  // namespace lockstep::sim
