// Prometheus remote write, 1.0 and 2.0: POST kRemoteWritePath. No sockets in here; src/server puts it on port 7070.
//
// Content: Content-Type application/x-protobuf, or none, is 1.0; its parameter proto= tells 1.0 from 2.0. Snappy's
// block
//   format, said or not. X-Prometheus-Remote-Write-Version is not needed to tell them apart.
// Answers: 204 all is durable; 400 malformed, or some samples refused and the rest durable (the sender must not send
//   them again); 405, 413 over body_bytes_max once decompressed, 415 content type or encoding; 429 with Retry-After
//   while there is no memory for it; 503 with Retry-After while the store cannot take anything. To 2.0 every answer
//   past the content type says how many samples, histograms and exemplars were written.
// Tenants: X-Scope-OrgID becomes the label tenant, so that two tenants' series never meet; where tokens are in use it
//   has chosen the tenant already, and is no label.
// Names: a request with a host or a job that belongs to another owner is refused as a whole, 403 with one line.
// Streams: requests of a tenant (X-Scope-OrgID) whose first series has the same job and instance (or host) are one
//   stream: a sender repeats itself target by target, whichever connection or proxy it comes through.
// Limits: body_bytes_max after decompression; kTenantBytesMax.
// Hot path: with the walk and snappy at most 0.1 CPU-s per million samples.
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "access/name_owners.h"
#include "base/memory_budget.h"
#include "ingest/metric_intake.h"
#include "model/metric_stream.h"
#include "net/http_server.h"
#include "wire/remote_write.h"

namespace lockstep {

inline constexpr std::string_view kRemoteWritePath = "/prometheus/api/v1/write";
inline constexpr uint64_t kRemoteWriteBodyBytesMax = 32ull << 20;
inline constexpr size_t kTenantBytesMax = 150;

class RemoteWriteReceiver {
 public:
  // memory: where a request's is taken from; nullptr: no limit for all together. owners: whose hosts and jobs (labels
  // host and job_id) a caller may feed; nullptr: anybody's.
  RemoteWriteReceiver(MetricIntake& intake, const Clock& clock, Counters& counters,
                      uint64_t body_bytes_max = kRemoteWriteBodyBytesMax, MemoryBudget* memory = nullptr,
                      NameOwners* owners = nullptr)
      : intake_(intake),
        counters_(counters),
        log_(clock, "ingest"),
        body_bytes_max_(body_bytes_max),
        memory_(memory),
        owners_(owners) {}

  HttpResponse handle(const ServerRequest& request);

 private:
  struct Written {  // what 2.0's answer has to say
    uint64_t samples = 0, histograms = 0, exemplars = 0;
  };
  HttpResponse post(const ServerRequest& request);
  HttpResponse take(const ServerRequest& request, remote_write::Version version, Written& written);
  HttpResponse push(remote_write::Walk& walk, std::string_view tenant, std::string& stream, Written& written);
  Result<void> check_owners(const remote_write::Walk& walk, const Caller& caller);
  HttpResponse undecodable(int status, const char* reason, const std::string& line);

  MetricIntake& intake_;
  Counters& counters_;
  RateLimitedLog log_;
  const uint64_t body_bytes_max_;
  MemoryBudget* const memory_;
  NameOwners* const owners_;
};

}  // namespace lockstep
