// By what an OTLP request is keyed on the bus: every resource in it by its job, so that all ranks of a job, and what their
// nodes say, meet where it is diagnosed. The request is cut between resources, as bytes: nothing inside one is read but
// its attributes, nothing is decoded or encoded again.
//
// A node says what it measures of itself once, without a job. It is known by its host: to whose jobs that belongs is
// learned from resources that name both, which agents send with every step. Of a host with several jobs each gets a copy,
// kJobsOfHostMax at most.
// Keys: JOB; "host/HOST" of a host without a job; "service/NAME" where there is neither; empty: nothing is known.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"

namespace lockstep {

// Which jobs run on which hosts, of one tenant.
// Limits: kHostsMax hosts, beyond which those heard of longest ago are forgotten; a job that a host has not named for
//   kForgetAfterNs is not its any more.
// Thread rule: Thread-safe.
class HostJobs {
 public:
  static constexpr size_t kHostsMax = 200'000;
  static constexpr size_t kJobsOfHostMax = 4;
  static constexpr int64_t kForgetAfterNs = 600'000'000'000;

  void note(std::string_view host, std::string_view job_id, int64_t now_ns);
  // The one named last first.
  std::vector<std::string> jobs_of(std::string_view host, int64_t now_ns) const;

 private:
  struct Seen {
    std::string job_id;
    int64_t at_ns;
  };
  mutable Mutex mutex_;
  std::map<std::string, std::vector<Seen>, std::less<>> hosts_ LOCKSTEP_GUARDED_BY(mutex_);
};

struct RequestPart {
  std::string key;
  std::string own;         // empty: the part is the whole request
  std::string_view whole;  // the request
  std::string_view bytes() const { return own.empty() ? whole : own; }
};

// request: of any signal; what is malformed in it has no key. now_ns: of any clock that does not go back.
std::vector<RequestPart> split_request(std::string_view request, HostJobs& hosts, int64_t now_ns);

}  // namespace lockstep
