// What the server wants of agents, until they come and fetch it: agents only dial out, so each keeps one request open
// here (GET /v1/lockstep/commands, docs/formats/commands.md). It is answered the moment there is something for one of
// its hosts, else with 204 after hold_ns.
//
// A command is there until an agent says by its cursor that it has it (an answer may be lost on the way), or until it
// expires: detail is kept for minutes, so an order that nobody fetched is worth nothing after one. The cursor begins
// with an epoch, this process's own: one of an earlier server means that everything here is new to that agent.
// Where hosts have owners (access/name_owners.h), others' polls for them get 403.
//
// Limits: per_host_max commands for a host and commands_max in all; waiting_max requests held open (503 beyond).
// Counts: lockstep_commands_total = acknowledged + expired + refused[reason] + forwarded + pending.
// Thread rule: Thread-safe. Somebody calls tick() a few times a second.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "access/name_owners.h"
#include "base/clock.h"
#include "base/counters.h"
#include "base/mutex.h"
#include "control/detail_requester.h"
#include "model/command_kind.h"
#include "net/http_server.h"
#include "wire/commands.h"

namespace lockstep {

struct AgentCommandsOptions {
  size_t per_host_max = 64;
  size_t commands_max = 100'000;
  size_t waiting_max = 32'768;
  int64_t hold_ns = 25'000'000'000;
  int64_t expire_ns = 60'000'000'000;
  // Where agents ask other processes (gateways): brings a command to all of these, at once, and keeps nothing here. False:
  // it cannot. Empty: agents ask here.
  std::function<bool(const std::string& host, const CommandList& one)> forward = {};
};

class AgentCommands final : public DetailRequester,
                            public StackRequestSender,
                            public ProfileRequestSender,
                            public SampleRequestSender {
 public:
  static constexpr size_t kHostsMax = 64;  // of one agent
  static constexpr int64_t kHeardNs = 120'000'000'000;
  static constexpr size_t kHeardMax = 500'000;  // hosts whose polls are remembered; of further ones nothing is known

  // owners: whose hosts' commands a caller may fetch; nullptr: anybody's.
  AgentCommands(AgentCommandsOptions options, const Clock& clock, Counters& counters, NameOwners* owners = nullptr);
  ~AgentCommands() override { close(); }

  // The same request again while the first is pending is taken as asked.
  bool ask(const std::string& host, const DetailRequest& request) override;
  bool ask(const std::string& host, const StackRequest& request) override;
  bool ask(const std::string& host, const ProfileRequest& request) override;
  bool ask(const std::string& host, const SampleRequest& request) override;
  // All that is in it, as another process forwarded it.
  void ask_all(const std::string& host, const CommandList& list);
  // Whether the agent of this host answers such commands: by its last poll, for kHeardNs. Where commands are forwarded, others
  // hear the polls: kUnknown.
  Answers answers(const std::string& host, CommandKind kind);
  // Answers now or later. Anything a peer can send is answered.
  void poll(const ServerRequest& request, const std::shared_ptr<HttpResponder>& responder);
  // Ends what has waited long enough, and what nobody fetched.
  void tick();
  // Everybody who waits is sent away (503), and from now on everybody who comes.
  void close();

 private:
  using Request = std::variant<DetailRequest, StackRequest, ProfileRequest, SampleRequest>;
  struct Command {
    uint64_t number;
    bool delivered;  // at least once; whether it arrived, the cursor tells
    Request request;
  };
  struct Waiting {
    std::vector<std::string> hosts;
    uint64_t after;
    int64_t until_ns;
    std::shared_ptr<HttpResponder> responder;
  };
  using WaitingList = std::list<Waiting>;
  struct Heard {
    uint8_t kinds = 0;
    int64_t at_ns = 0;
  };
  struct Expiry {
    int64_t at_ns;
    std::string host;
    uint64_t number;
  };
  struct Poll {
    std::vector<std::string> hosts;
    uint64_t after = 0;    // of this epoch
    uint8_t kinds = 0xff;  // that are answered there, a bit each: all, where it says nothing
    std::string wrong;     // one line where it is malformed
  };

  bool add(const std::string& host, Request request, bool too_large);
  Poll parse_untrusted(const ServerRequest& request) const;
  void acknowledge(const Poll& poll) LOCKSTEP_REQUIRES(mutex_);
  // Commands for these hosts as an answer; false: there are none.
  bool answer_if_any(const std::vector<std::string>& hosts, uint64_t after,
                     const std::shared_ptr<HttpResponder>& responder) LOCKSTEP_REQUIRES(mutex_);
  void answer(const std::shared_ptr<HttpResponder>& responder, const char* result, HttpResponse response);
  void forget(WaitingList::iterator waiting) LOCKSTEP_REQUIRES(mutex_);
  void note() LOCKSTEP_REQUIRES(mutex_);
  void hear(const Poll& poll) LOCKSTEP_REQUIRES(mutex_);

  const AgentCommandsOptions options_;
  const Clock& clock_;
  Counters& counters_;
  NameOwners* const owners_;
  const std::string epoch_;

  Mutex mutex_;
  std::map<std::string, std::deque<Command>, std::less<>> by_host_ LOCKSTEP_GUARDED_BY(mutex_);  // each by number
  std::deque<Expiry> expiries_ LOCKSTEP_GUARDED_BY(mutex_);                                      // by time
  size_t pending_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  uint64_t last_number_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  WaitingList waiting_ LOCKSTEP_GUARDED_BY(mutex_);  // by time, the first to end first
  std::multimap<std::string, WaitingList::iterator> waiting_of_host_ LOCKSTEP_GUARDED_BY(mutex_);
  std::unordered_map<std::string, Heard> heard_ LOCKSTEP_GUARDED_BY(mutex_);
  int64_t heard_swept_ns_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  bool closed_ LOCKSTEP_GUARDED_BY(mutex_) = false;
};

}  // namespace lockstep
