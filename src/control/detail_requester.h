// The way from whoever wants to see steps in detail, or stacks (diagnosis, a person), to the agents that have them.
//
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "model/detail_request.h"
#include "model/profile_capture.h"
#include "store/step_store.h"

namespace lockstep {

class DetailRequester {
 public:
  virtual ~DetailRequester() = default;
  // For the agent that has ranks of this host. False: refused, too much is asked already.
  virtual bool ask(const std::string& host, const DetailRequest& request) = 0;
};

class StackRequestSender {
 public:
  virtual ~StackRequestSender() = default;
  // Likewise.
  virtual bool ask(const std::string& host, const StackRequest& request) = 0;
};

class ProfileRequestSender {
 public:
  virtual ~ProfileRequestSender() = default;
  // Likewise.
  virtual bool ask(const std::string& host, const ProfileRequest& request) = 0;
};

class SampleRequestSender {
 public:
  virtual ~SampleRequestSender() = default;
  // Likewise.
  virtual bool ask(const std::string& host, const SampleRequest& request) = 0;
};

struct DetailAsked {
  int64_t hosts = 0;          // that were asked
  int64_t ranks = 0;          // on these
  int64_t ranks_refused = 0;  // on hosts of which too much is asked already
  int64_t ranks_unknown = 0;  // wanted, but nobody has heard of them
};
// One request for every host that has some of the ranks, with those alone.
DetailAsked ask_hosts(const JobInfo& job, const DetailRequest& request, DetailRequester& asker);
DetailAsked ask_hosts(const JobInfo& job, const StackRequest& request, StackRequestSender& asker);
DetailAsked ask_hosts(const JobInfo& job, const SampleRequest& request, SampleRequestSender& asker);

}  // namespace lockstep
