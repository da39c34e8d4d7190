// Where a tenant's files of captures are kept: a folder of --blobs, or of a bucket (docs/formats/blobs.md).
//
// On error: one line that names --blobs. Thread rule: open_blobs() Thread-safe; BlobUpkeep Confined.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/clock_witness.h"
#include "base/counters.h"
#include "base/mutex.h"
#include "base/result.h"
#include "server/options.h"
#include "store/blobs/blob_store.h"

namespace lockstep {

// The first part of a key: "default" for the default tenant, whose name is empty elsewhere.
std::string blob_tenant(const std::string& name);

// options: of the process; all tenants' are below one place. witness, clock and counters must outlive the store.
Result<std::unique_ptr<BlobStore>> open_blobs(const ServerOptions& options, const std::string& tenant,
                                              const ClockWitness& witness, const Clock& clock, Counters& counters);

// Looks after a store once a minute, on a thread of its own, because a bucket may take its time.
class BlobUpkeep {
 public:
  explicit BlobUpkeep(BlobStore& store);

 private:
  void run(const std::stop_token& stop);

  BlobStore& store_;
  Mutex mutex_;
  StoppableConditionVariable ends_;
  std::jthread thread_;
};

}  // namespace lockstep
