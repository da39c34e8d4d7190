// The flows that switches saw in the last minutes: who sent to whom through which ports of which switch, about how much
// of it, and when last. What the path finder asks which ports a five-tuple crossed, and GET /api/fabric/flows shows.
//
// Kept by windows of kWindowNs in memory alone, one row for each flow, switch, port in and port out; a window is full at
// rows_max rows. Then a new flow takes the place of the smallest of a few others: sampling finds the large ones again
// and again, so what is lost are small ones. Windows older than kWindows of them are dropped as new ones begin, and so are
// those of a future that a clock which was set back has left. All but the newest no longer change, so who asks for many
// rows keeps the decoder waiting only while those of the newest are copied.
// Bytes are estimates (model/flow.h). A switch may see a packet where it comes in and where it goes out: the larger of
// the two counts.
// Cost:  about 100 ns a sample; 128 bytes a row, so at most 135 MB.
// Thread rule: Thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "fabric/flows/switch_directory.h"
#include "model/flow.h"

namespace lockstep {

// One flow at one switch, over the time that was asked for.
struct FlowSighting {
  FlowKey key;
  std::string switch_name, in_port, out_port;
  uint32_t in_number = kPortUnknown, out_number = kPortUnknown;
  uint64_t bytes = 0, packets = 0;  // estimated
  uint64_t marked_packets = 0;      // of them with the mark of congestion (ECN), likewise
  uint64_t samples = 0;             // that it is estimated from
  int64_t first_unix_ns = 0, last_unix_ns = 0;
  uint16_t vlan = 0;
  uint8_t traffic_class = 0;  // the newest
};

struct FlowQuery {
  std::optional<IpPrefix> source, destination;
  uint8_t protocol = 0;  // 0: any, as of the ports of TCP and UDP
  uint16_t source_port = 0, destination_port = 0;
  uint32_t queue_pair = kNoQueuePair;      // kNoQueuePair: any
  std::vector<IpAddress> either_end = {};  // sorted; one of them sends or is sent to; empty: any
  std::string switch_name, port;           // empty: any. port: in or out, by name or number
  int64_t from_unix_ns = 0, to_unix_ns = INT64_MAX;
};

class FlowTable {
 public:
  static constexpr int64_t kWindowNs = 60'000'000'000;
  static constexpr size_t kWindows = 30;
  static constexpr size_t kRowsMax = 32'768;
  // Rows of one five-tuple (and those that share its place): whoever sends to ever new queue pairs slows nobody down.
  static constexpr size_t kChainMax = 128;

  explicit FlowTable(const SwitchDirectory& directory, size_t rows_max = kRowsMax)
      : directory_(directory), rows_max_(rows_max) {}

  void add(SwitchNumber number, std::span<const FlowSample> samples, int64_t received_unix_ns);

  struct Found {
    std::vector<FlowSighting> flows;  // the largest, largest first
    size_t total = 0;
  };
  Found find(const FlowQuery& query, size_t limit) const;
  // Where one flow was seen; queue_pair of the key kNoQueuePair: any. Oldest first, so about in the order of its path.
  // Costs a look into a hash table for each window, not a walk over the rows.
  std::vector<FlowSighting> crossed(const FlowKey& key, int64_t from_unix_ns, int64_t to_unix_ns) const;

  size_t rows() const;
  uint64_t replaced() const;  // rows that gave way

 private:
  static constexpr uint32_t kEnd = 0xffffffff;
  struct Row {
    FlowKey key;
    SwitchNumber number = kNoSwitch;
    uint32_t in_port = kPortUnknown, out_port = kPortUnknown;
    uint32_t next = kEnd;                  // of the same hash
    uint64_t in_bytes = 0, out_bytes = 0;  // seen where it comes in (or who knows), and where it goes out
    uint64_t in_packets = 0, out_packets = 0, marked = 0;
    uint32_t samples = 0;
    uint16_t vlan = 0;
    uint8_t traffic_class = 0;
    int64_t first_unix_ns = 0, last_unix_ns = 0;

    uint64_t bytes() const { return std::max(in_bytes, out_bytes); }
  };
  struct Window {
    int64_t begin_unix_ns = 0;
    std::vector<Row> rows;
    std::vector<uint32_t> heads;  // by hash of the five-tuple; a power of two
  };
  struct Places {
    void add(const Row& row);
    void add_found(std::span<const Row> found, const FlowQuery& query, SwitchNumber number);
    std::vector<Row> rows;
    std::unordered_multimap<uint64_t, size_t> by_hash;
  };
  static uint64_t hash_of(const FlowKey& key);
  void add(Window& window, SwitchNumber number, const FlowSample& sample, int64_t received_unix_ns)
      LOCKSTEP_REQUIRES(mutex_);
  Window& window_at(int64_t unix_ns) LOCKSTEP_REQUIRES(mutex_);
  Row* row_of(Window& window, const FlowKey& key, SwitchNumber number, uint32_t in_port, uint32_t out_port)
      LOCKSTEP_REQUIRES(mutex_);
  Row* smallest_of_some(Window& window) LOCKSTEP_REQUIRES(mutex_);
  static void unlink(Window& window, uint32_t index);
  static void grow(Window& window);
  FlowSighting sighting(const Row& row) const;

  const SwitchDirectory& directory_;
  const size_t rows_max_;
  mutable Mutex mutex_;
  // Newest at the back; the others are Immutable.
  std::deque<std::shared_ptr<Window>> windows_ LOCKSTEP_GUARDED_BY(mutex_);
  uint64_t replaced_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  uint64_t dice_ LOCKSTEP_GUARDED_BY(mutex_) = 0x9e3779b97f4a7c15;
};

}  // namespace lockstep
