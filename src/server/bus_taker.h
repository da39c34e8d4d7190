// Who takes what is read from a bus between machines, as the feed knows them: the tenants.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/counters.h"
#include "bus/telemetry_bus.h"
#include "model/telemetry.h"
#include "server/durable_sink.h"

namespace lockstep {

// One of them.
class BusTaker {
 public:
  virtual ~BusTaker() = default;
  // Records of the bus, in its order; as DurableSink::take(). By one thread.
  virtual DurableSink::FromBus take(std::span<const TakenRecord> records, Counters& counters,
                                    const std::function<void(int64_t received_unix_ns)>& before) = 0;
  // Events of the server's own, as a receiver would take them. False: not now.
  virtual bool keep(Batch events) = 0;
};

// All of them.
class BusTakers {
 public:
  // Nothing: one line says why not now.
  struct Found {
    BusTaker* taker = nullptr;
    std::string line = {};
    bool is_none = false;  // and will not be there by waiting
  };
  virtual ~BusTakers() = default;
  // Whose records these are: begun where it is not there, because a gateway has let them in.
  virtual Found find_for_bus(const std::string& name) = 0;
  // Some jobs are another process's from now on (JobOwnership).
  virtual void let_go_of_jobs() = 0;
  // Some jobs are this process's from now on; what is on the bus of them comes after it.
  virtual void take_over_jobs() = 0;
  // All that are open look at what was applied, as of this time (Tenant::look_as_of).
  virtual void look_as_of(int64_t unix_ns) = 0;
};

}  // namespace lockstep
