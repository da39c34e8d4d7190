// Small state that follows a job from one analyzer to the next: rows by name, of each the last that anybody wrote, on a
// topic that the brokers compact. Every process that opens it has read all of it before, and hears what the others write.
//
// The contract: what put() confirmed is there for whoever reads afterwards, also when all processes have ended. Of two who
// write one row the one whose record came last wins: only the owner of a job writes its rows.
// Limits: kRowsMax rows and kBytesMax bytes; beyond, further rows are not known here, with one line.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "bus/telemetry_bus.h"

namespace lockstep {

inline constexpr const char* kStateTopic = "lockstep_state";

struct SharedRow {
  std::string id;
  std::string value;  // empty: it goes
};

// Thread rule: Thread-safe.
class SharedRows {
 public:
  static constexpr size_t kRowsMax = 200'000;
  static constexpr uint64_t kBytesMax = 256ull << 20;
  static constexpr size_t kRowBytesMax = 900'000;  // less than brokers take by default
  virtual ~SharedRows() = default;
  // tenant: empty: the default one. Waits for the brokers for seconds at most; after a failure it fails at once for a while.
  virtual Result<void> put(const std::string& tenant, std::span<const SharedRow> rows) = 0;
  virtual std::vector<SharedRow> rows(const std::string& tenant) const = 0;  // by id
  virtual std::string find(const std::string& tenant,
                           const std::string& id) const = 0;  // its value; empty: none is there
  virtual uint64_t version() const = 0;                       // another one whenever they change
};

// Returns once all that is there has been read. may_wait: at once; it is read as soon as a broker answers.
Result<std::unique_ptr<SharedRows>> open_kafka_shared_rows(const BusOptions& options, bool may_wait = false);

}  // namespace lockstep
