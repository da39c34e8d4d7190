// The bus between machines: gateways write requests, analyzers read them (decision 0025). Three topics, one for each
// signal, with the same number of partitions; a key is in the same partition of each, so that whoever reads a partition
// number of all three has all that is keyed so.
//
// The contract (bus_contract_test.cc): what write() has confirmed is read, whole, with its kind, tenant and time, and
// records of one key in the order in which they were written. What write() refused may have arrived all the same: the
// brokers' answer was lost. So a reader may see a request twice, with the same bytes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/counters.h"
#include "base/result.h"
#include "bus/log.h"
#include "model/data_value.h"

namespace lockstep {

struct BusOptions {
  std::string brokers;                  // "host:port,host:port"
  std::vector<std::string> properties;  // "name=value" of librdkafka: TLS, SASL
  int32_t partitions = 12;              // of topics that are not there yet; of those that are, theirs
};

struct BusRecord {
  RecordKind kind = RecordKind::kOtlpLogs;  // one of the first three
  std::string tenant;                       // empty: the default one
  std::string key;                          // empty: any partition
  int64_t received_unix_ns = 0;             // kept to the millisecond
  std::string_view payload;
  DataValue value = DataValue::kEvents;  // what is refused first where there is no room for all
};

// Thread rule: Thread-safe.
class BusWriter {
 public:
  static constexpr uint64_t kRecordBytesMax = 33ull << 20;  // the longest request, and its envelope
  static constexpr uint64_t kQueueBytesMax = 64ull << 20;   // of all records on their way
  enum class Refused { kNone, kFull, kDown, kTooLarge };
  struct Outcome {
    Refused refused = Refused::kNone;
    std::string line;  // why
  };

  // Returns once all brokers that must have them have all of them, or one of them could not be brought there within
  // seconds. kFull: too much is on its way. kTooLarge: will never be taken.
  virtual Outcome write(std::span<const BusRecord> records) = 0;
  // One line while no broker can be reached; nullopt: well. Answers at once.
  virtual std::optional<std::string> trouble() const = 0;
  virtual ~BusWriter() = default;
};

// A topic and a partition of it.
struct BusPlace {
  int32_t partition = 0;
  RecordKind kind = RecordKind::kOtlpLogs;
  auto operator<=>(const BusPlace&) const = default;
};

struct TakenRecord {
  BusPlace place;
  int64_t offset = 0;
  int64_t received_unix_ns = 0;
  std::string tenant;
  std::string payload;
  uint32_t cluster = 0;  // as in LogOrigin
};

struct BusReaderOptions {
  std::string group = "lockstep-analyzers";
  std::string instance;  // who comes back under this name within the session finds its partitions as it left them
  std::chrono::milliseconds session{10'000};  // who is not heard of for so long has lost its partitions
  // How far back whoever gets a partition begins, where start_at says nothing; 0: at the oldest record there is.
  std::chrono::seconds rewind{3600};
  uint64_t buffer_bytes_max = 64ull << 20;
  // The first record of a place that is not in the stores here; nullopt: none ever was.
  std::function<std::optional<int64_t>(const BusPlace&)> start_at = {};
  // A place ends before start_at: the topic was made anew, its offsets too, and is read from its beginning.
  std::function<void(const BusPlace&)> anew = {};
  // So many records were deleted from the bus before they were read here.
  std::function<void(const BusPlace&, int64_t records)> missing = {};
};

// What a reader has. partition_count is the same for as long as it reads.
struct BusAssignment {
  int32_t partition_count = 0;
  std::vector<int32_t> partitions;  // in order
};

// Thread rule: take() and applied() Confined to one thread; the rest Thread-safe.
class BusReader {
 public:
  // The next records, of all places in the order of their time as far as it is known; waits for the first of them.
  virtual std::vector<TakenRecord> take(std::chrono::milliseconds longest) = 0;
  // Everything before these offsets is on disk here: told to the group, for whoever watches how far it is.
  virtual void applied(const std::map<BusPlace, int64_t>& next_offsets) = 0;
  // Nothing that was there when it was last asked is waiting to be taken.
  virtual bool is_at_end() const = 0;
  virtual BusAssignment assignment() const = 0;
  virtual std::optional<std::string> trouble() const = 0;
  // Tells this bus from another, for LogOrigin.
  virtual uint32_t cluster() const = 0;
  virtual ~BusReader() = default;
};

// In which of so many partitions a key is: what the writer's partitioner does.
int32_t partition_of(std::string_view key, int32_t partition_count);

// Make the topics where they are not there. Counters: rows of kBusCounters. may_wait: where no broker answers it is down
// for now, and the topics are looked at when one does; false: that is an error.
Result<std::unique_ptr<BusWriter>> open_kafka_writer(const BusOptions& options, Counters& counters,
                                                     bool may_wait = false);
Result<std::unique_ptr<BusReader>> open_kafka_reader(const BusOptions& options, BusReaderOptions reader,
                                                     const Clock& clock, Counters& counters);

}  // namespace lockstep
