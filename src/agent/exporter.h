// Delivers batches to an OTLP server (or writes them to a folder): batched, compressed, retried with back-off, spooled
// to disk while the server is away. A server that is away for ten minutes costs nothing but disk.
//
// Every record handed in is counted: records = passed + refused + dropped + queued.
// Limits: a few hundred requests in memory, then the spool; spool_bytes_max on disk; beyond that the oldest is dropped
// and counted, and a telemetry.gap event says so to the server once it is back. Thread rule: Thread-safe. One thread of
// its own, joined by stop().
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "agent/spool.h"
#include "base/counters.h"
#include "base/result.h"
#include "model/telemetry.h"
#include "net/http_client.h"

namespace lockstep {

struct ExporterOptions {
  std::string server;  // "http://127.0.0.1:4318", or "file:DIR"
  std::string spool_folder;
  uint64_t spool_bytes_max = 512ull << 20;
  int64_t timeout_ms = 5'000;
  int64_t backoff_first_ms = 100;
  int64_t backoff_most_ms = 10'000;
};

class Exporter {
 public:
  static Result<std::unique_ptr<Exporter>> start(ExporterOptions options, Counters& counters);
  ~Exporter();

  // Takes a batch; returns its ticket. Never blocks on the network.
  uint64_t submit(const Batch& batch);
  // True once every batch up to the ticket is acknowledged, refused, dropped, or safe on disk.
  bool settled(uint64_t ticket) const;
  // Tries to deliver what is waiting for at most `wait_ms`, moves the rest to the spool, ends the thread.
  void stop(int64_t wait_ms);

 private:
  struct Item {
    uint64_t ticket;
    Signal signal;
    int64_t records;
    std::string payload;
  };
  enum class Outcome { kDelivered, kRetry, kRefused };

  Exporter(ExporterOptions options, Counters& counters, Spool spool);
  void run();
  Outcome deliver(Signal signal, int64_t records, const std::string& payload, std::string* why);
  Outcome deliver_to_folder(Signal signal, int64_t records, const std::string& payload, std::string* why);
  void spool_away(Item item);
  void note_queue();

  const ExporterOptions options_;
  Counters& counters_;
  std::unique_ptr<HttpClient> client_;  // used by run() alone; none when writing to a folder
  Spool spool_;                         // used by run() alone once it is started
  uint64_t file_sequence_ = 0;
  int64_t gap_records_ = 0;  // dropped while the server was away; told when it is back

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Item> memory_;
  uint64_t next_ticket_ = 1;
  uint64_t settled_through_ = 0;
  int64_t memory_records_ = 0;
  bool stopping_ = false;
  int64_t stop_deadline_ns_ = 0;
  std::thread thread_;
};

}  // namespace lockstep
