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
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory_budget.h"
#include "base/mutex.h"

namespace lockstep {

// Which jobs run on which hosts, of one tenant.
// Limits: hosts_max hosts and bytes_max of names, beyond which those heard of longest ago are forgotten; they are learned
//   again with their next step. A job that a host has not named for kForgetAfterNs is not its any more. Names over
//   kNameBytesMax are nobody's.
// Thread rule: Thread-safe.
class HostJobs {
 public:
  static constexpr size_t kHostsMax = 200'000;
  static constexpr size_t kBytesMax = 64 << 20;
  static constexpr size_t kNameBytesMax = 512;
  static constexpr size_t kJobsOfHostMax = 4;
  static constexpr int64_t kForgetAfterNs = 600'000'000'000;

  explicit HostJobs(size_t hosts_max = kHostsMax, size_t bytes_max = kBytesMax)
      : hosts_max_(hosts_max), bytes_max_(bytes_max) {}
  HostJobs(const HostJobs&) = delete;
  HostJobs& operator=(const HostJobs&) = delete;

  void note(std::string_view host, std::string_view job_id, int64_t now_ns);
  // The one named last first.
  std::vector<std::string> jobs_of(std::string_view host, int64_t now_ns) const;

  size_t bytes() const;  // names and what it takes to keep them

 private:
  struct Seen {
    std::string job_id;
    int64_t at_ns;
  };
  struct Host {
    std::string name;
    std::vector<Seen> jobs;  // the one named last first
    int64_t at_ns = 0;
    size_t counted = 0;  // in bytes_
    size_t bytes() const;
  };
  using Hosts = std::list<Host>;
  void forget_oldest() LOCKSTEP_REQUIRES(mutex_);

  const size_t hosts_max_, bytes_max_;
  mutable Mutex mutex_;
  Hosts hosts_ LOCKSTEP_GUARDED_BY(mutex_);  // the one heard of longest ago first
  std::map<std::string_view, Hosts::iterator> by_name_ LOCKSTEP_GUARDED_BY(mutex_);
  size_t bytes_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

struct RequestPart {
  std::string key;
  std::string own;         // empty: the part is the whole request
  std::string_view whole;  // the request
  std::string_view bytes() const { return own.empty() ? whole : own; }
};

// request: of any signal; what is malformed in it has no key. now_ns: of any clock that does not go back. lease: where the
// memory for the parts is taken from: a request of many small resources takes many times its size; its owner keeps it as
// long as they are there. Nothing: there is no memory.
std::optional<std::vector<RequestPart>> split_request(std::string_view request, HostJobs& hosts, int64_t now_ns,
                                                      MemoryLease* lease = nullptr);

}  // namespace lockstep
