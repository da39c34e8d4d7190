// Takes files from agents, part by part, into the tenant's store of blobs (docs/formats/blobs.md):
//
//     POST /v1/lockstep/uploads            begins or goes on
//     PUT  /v1/lockstep/uploads/ID/parts/N
//     POST /v1/lockstep/uploads/ID/finish
//
// ID is the blob's path, so that nothing has to be remembered: a server that was restarted goes on.
// Answers: 400 with one line for what is malformed, 403 for another's job (access/name_owners.h), 404 no such upload
//          (begin again), 409 parts are missing or differ (begin again), 413 over a limit, 503 not now, 507 no room.
// Limits: a part is at most kBlobPartBytes, held in memory within the listener's and the process's budget; UploadSlots
//         requests at a time, because each waits for the disk on a thread that telemetry needs too (503 beyond).
// Counts: lockstep_upload_requests_total, and those of the store. Thread rule: Thread-safe.
#pragma once

#include <atomic>
#include <string>

#include "access/name_owners.h"
#include "base/clock.h"
#include "base/counters.h"
#include "base/rate_limited_log.h"
#include "net/http_server.h"
#include "store/blobs/blob_store.h"

namespace lockstep {

// How many uploads of all tenants may wait for the disk at a time. Thread rule: Thread-safe.
class UploadSlots {
 public:
  explicit UploadSlots(int most) : free_(most) {}
  bool take() {
    if (free_.fetch_sub(1) > 0) return true;
    ++free_;
    return false;
  }
  void give_back() { ++free_; }

 private:
  std::atomic<int> free_;
};

class UploadReceiver {
 public:
  // tenant: as in keys, "default". owners: whose jobs a caller may send files of; nullptr: anybody's.
  UploadReceiver(BlobStore& store, std::string tenant, UploadSlots& slots, const Clock& clock, Counters& counters,
                 NameOwners* owners)
      : store_(store),
        tenant_(std::move(tenant)),
        slots_(slots),
        counters_(counters),
        owners_(owners),
        log_(clock, "uploads") {}

  static bool is_for(const ServerRequest& request);
  // Anything a peer can send is answered.
  HttpResponse handle(const ServerRequest& request);

 private:
  struct Asked;
  HttpResponse answer(const ServerRequest& request, const Asked& asked);
  HttpResponse begin(const ServerRequest& request);
  HttpResponse put_part(const ServerRequest& request, const Asked& asked, const BlobKey& key);
  HttpResponse finish(const ServerRequest& request, const BlobKey& key);
  HttpResponse failed(const Error& error);
  std::string full_key(const std::string& path) const { return tenant_ + "/" + path; }
  void count_part(const char* result);

  BlobStore& store_;
  const std::string tenant_;
  UploadSlots& slots_;
  Counters& counters_;
  NameOwners* const owners_;
  RateLimitedLog log_;
};

}  // namespace lockstep
