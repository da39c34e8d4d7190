#include "control/agent_commands.h"

#include <algorithm>

#include "base/text.h"
#include "model/step.h"
#include "net/server_request.h"
#include "wire/commands.h"

namespace lockstep {
namespace {

HttpResponse line_answer(int status, const std::string& line) {
  return {status, {{"content-type", "text/plain; charset=utf-8"}}, line + "\n"};
}

HttpResponse later_answer(const std::string& line) {
  HttpResponse answer = line_answer(503, line);
  answer.headers.emplace_back("retry-after", "5");
  return answer;
}

// "stacks,detail" as bits; other words are of a newer agent.
uint8_t kinds_in(std::string_view words) {
  unsigned kinds = 0;
  for (const std::string_view word : split(words, ','))
    for (size_t i = 0; i < std::size(kCommandKinds); ++i)
      if (word == kCommandKinds[i]) kinds |= 1u << i;
  return static_cast<uint8_t>(kinds);
}

template <typename Request>
CommandList list_of(const Request& request) {
  CommandList list{.cursor = "0"};  // it is not for agents
  std::visit(
      [&list](const auto& one) {
        using Kind = std::decay_t<decltype(one)>;
        if constexpr (std::is_same_v<Kind, DetailRequest>) list.details = {one};
        if constexpr (std::is_same_v<Kind, StackRequest>) list.stacks = {one};
        if constexpr (std::is_same_v<Kind, ProfileRequest>) list.profiles = {one};
        if constexpr (std::is_same_v<Kind, SampleRequest>) list.samples = {one};
      },
      request);
  return list;
}

}  // namespace

AgentCommands::AgentCommands(AgentCommandsOptions options, const Clock& clock, Counters& counters, NameOwners* owners)
    : options_(std::move(options)),
      clock_(clock),
      counters_(counters),
      owners_(owners),
      epoch_(format("%llx", static_cast<unsigned long long>(clock.unix_ns()))) {
  note();
}

void AgentCommands::note() {
  counters_.set("lockstep_commands_pending", "", static_cast<int64_t>(pending_));
}

void AgentCommands::answer(const std::shared_ptr<HttpResponder>& responder, const char* result, HttpResponse response) {
  counters_.add("lockstep_commands_polls_total", format("result=\"%s\"", result));
  responder->answer(std::move(response));
}

void AgentCommands::forget(WaitingList::iterator waiting) {
  for (const std::string& host : waiting->hosts) {
    auto [at, end] = waiting_of_host_.equal_range(host);
    while (at != end) at = at->second == waiting ? waiting_of_host_.erase(at) : std::next(at);
  }
  waiting_.erase(waiting);
}

bool AgentCommands::ask(const std::string& host, const DetailRequest& request) {
  return add(host, request,
             request.ranks.size() > kDetailRanksMax || request.to_step < request.from_step ||
                 request.to_step - request.from_step >= kDetailStepsMax);
}

bool AgentCommands::ask(const std::string& host, const StackRequest& request) {
  return add(host, request, request.ranks.empty() || request.ranks.size() > kStackRanksMax);
}

bool AgentCommands::ask(const std::string& host, const ProfileRequest& request) {
  return add(host, request, !check(request).ok());
}

bool AgentCommands::ask(const std::string& host, const SampleRequest& request) {
  return add(host, request,
             request.ranks.empty() || request.ranks.size() > kSampleRanksMax || request.seconds < 1 ||
                 request.seconds > kSampleSecondsMax || request.hz < 1 || request.hz > kSampleHzMax);
}

void AgentCommands::ask_all(const std::string& host, const CommandList& list) {
  for (const DetailRequest& one : list.details) ask(host, one);
  for (const StackRequest& one : list.stacks) ask(host, one);
  for (const ProfileRequest& one : list.profiles) ask(host, one);
  for (const SampleRequest& one : list.samples) ask(host, one);
}

bool AgentCommands::add(const std::string& host, Request request, bool too_large) {
  MutexLock lock(mutex_);
  counters_.add("lockstep_commands_total");
  auto refuse = [&](const char* reason) {
    counters_.add("lockstep_commands_refused_total", format("reason=\"%s\"", reason));
    return false;
  };
  if (closed_) return refuse("closed");
  if (too_large) return refuse("too_large");
  if (options_.forward) {
    if (!options_.forward(host, list_of(request))) return refuse("bus");
    counters_.add("lockstep_commands_forwarded_total");
    return true;
  }
  if (auto found = by_host_.find(host); found != by_host_.end()) {
    for (const Command& command : found->second) {
      if (!(command.request == request)) continue;
      refuse("again");
      return true;
    }
    if (found->second.size() >= options_.per_host_max) return refuse("host_full");
  }
  if (pending_ >= options_.commands_max) return refuse("full");
  by_host_[host].push_back({++last_number_, false, std::move(request)});
  expiries_.push_back({clock_.monotonic_ns() + options_.expire_ns, host, last_number_});
  ++pending_;
  note();
  auto [at, end] = waiting_of_host_.equal_range(host);
  std::vector<WaitingList::iterator> due;
  for (; at != end; ++at) due.push_back(at->second);
  for (WaitingList::iterator waiting : due) {
    answer_if_any(waiting->hosts, waiting->after, waiting->responder);
    forget(waiting);
  }
  return true;
}

AgentCommands::Poll AgentCommands::parse_untrusted(const ServerRequest& request) const {
  Poll poll;
  std::string_view cursor;
  for (std::string_view pair : split(request.query, '&')) {
    const size_t equals = std::min(pair.find('='), pair.size());
    const std::string_view name = pair.substr(0, equals), value = pair.substr(std::min(equals + 1, pair.size()));
    if (name == "after") {
      cursor = value;
    } else if (name == "host") {
      std::optional<std::string> host = percent_decode(value, true);
      if (!host || host->empty() || host->size() > kIdentityTextMax)
        poll.wrong = format("a host has 1 to %zu bytes, percent-encoded", kIdentityTextMax);
      else
        poll.hosts.push_back(std::move(*host));
    } else if (name == "answers") {
      poll.kinds = kinds_in(value);
    }  // further parameters are of a newer agent
    if (poll.hosts.size() > kHostsMax) poll.wrong = format("more than %zu hosts", kHostsMax);
    if (!poll.wrong.empty()) return poll;
  }
  if (poll.hosts.empty()) poll.wrong = "host=NAME says whose commands are wanted";
  if (!cursor.empty() && !is_cursor(cursor)) poll.wrong = "after= is no cursor of ours";
  std::sort(poll.hosts.begin(), poll.hosts.end());
  poll.hosts.erase(std::unique(poll.hosts.begin(), poll.hosts.end()), poll.hosts.end());
  const size_t dash = cursor.rfind('-');
  if (dash != std::string_view::npos && cursor.substr(0, dash) == epoch_)
    poll.after = parse_uint(cursor.substr(dash + 1)).value_or(0);
  return poll;
}

void AgentCommands::acknowledge(const Poll& poll) {
  for (const std::string& host : poll.hosts) {
    auto found = by_host_.find(host);
    if (found == by_host_.end()) continue;
    // Only what was handed out: an agent may have come to this host after its cursor had gone past.
    const size_t arrived = std::erase_if(found->second, [&](const Command& command) LOCKSTEP_REQUIRES(mutex_) {
      return command.delivered && command.number <= poll.after;
    });
    pending_ -= arrived;
    if (arrived > 0) counters_.add("lockstep_commands_acknowledged_total", "", static_cast<int64_t>(arrived));
    if (found->second.empty()) by_host_.erase(found);
  }
  note();
}

bool AgentCommands::answer_if_any(const std::vector<std::string>& hosts, uint64_t after,
                                  const std::shared_ptr<HttpResponder>& responder) {
  std::vector<Command*> commands;
  for (const std::string& host : hosts) {
    auto found = by_host_.find(host);
    if (found == by_host_.end()) continue;
    for (Command& command : found->second) commands.push_back(&command);
  }
  if (commands.empty()) return false;
  std::sort(commands.begin(), commands.end(), [](const Command* a, const Command* b) { return a->number < b->number; });
  CommandList list;
  size_t ranks_left = kDetailRanksMax;
  for (Command* command : commands) {
    const size_t ranks = std::visit([](const auto& request) { return request.ranks.size(); }, command->request);
    if (list.details.size() + list.stacks.size() + list.profiles.size() + list.samples.size() == kCommandsMax ||
        ranks > ranks_left)
      break;  // the rest next time
    ranks_left -= ranks;
    command->delivered = true;
    after = std::max(after, command->number);
    if (const DetailRequest* detail = std::get_if<DetailRequest>(&command->request))
      list.details.push_back(*detail);
    else if (const StackRequest* stacks = std::get_if<StackRequest>(&command->request))
      list.stacks.push_back(*stacks);
    else if (const SampleRequest* sample = std::get_if<SampleRequest>(&command->request))
      list.samples.push_back(*sample);
    else
      list.profiles.push_back(std::get<ProfileRequest>(command->request));
  }
  list.cursor = format("%s-%llu", epoch_.c_str(), static_cast<unsigned long long>(after));
  answer(responder, "answered", {200, {{"content-type", kCommandsContentType}}, encode_commands(list)});
  return true;
}

void AgentCommands::hear(const Poll& poll) {
  for (const std::string& host : poll.hosts) {
    if (heard_.size() < kHeardMax || heard_.contains(host)) heard_[host] = {poll.kinds, clock_.monotonic_ns()};
  }
}

Answers AgentCommands::answers(const std::string& host, CommandKind kind) {
  if (options_.forward) return Answers::kUnknown;
  MutexLock lock(mutex_);
  const auto heard = heard_.find(host);
  if (heard == heard_.end() || clock_.monotonic_ns() - heard->second.at_ns > kHeardNs) return Answers::kNobody;
  return (heard->second.kinds >> static_cast<unsigned>(kind) & 1u) != 0 ? Answers::kYes : Answers::kNo;
}

void AgentCommands::poll(const ServerRequest& request, const std::shared_ptr<HttpResponder>& responder) {
  if (request.method != "GET") {
    HttpResponse refused = line_answer(405, "only GET is answered here");
    refused.headers.emplace_back("allow", "GET");
    return answer(responder, "bad", std::move(refused));
  }
  Poll poll = parse_untrusted(request);
  if (!poll.wrong.empty()) return answer(responder, "bad", line_answer(400, poll.wrong));
  for (const std::string& host : poll.hosts) {
    if (owners_ == nullptr) break;
    if (const Result<void> may = owners_->check(request.caller, OwnedKind::kHost, host); !may.ok())
      return answer(responder, "forbidden", line_answer(403, may.error()));
  }
  MutexLock lock(mutex_);
  acknowledge(poll);
  hear(poll);
  if (closed_) return answer(responder, "closed", later_answer("the server is shutting down"));
  if (answer_if_any(poll.hosts, poll.after, responder)) return;
  if (waiting_.size() >= options_.waiting_max) {
    for (auto at = waiting_.begin(); at != waiting_.end();) {
      auto next = std::next(at);
      if (at->responder->gone()) forget(at);
      at = next;
    }
  }
  if (waiting_.size() >= options_.waiting_max || !responder->defer())
    return answer(responder, "full", later_answer("too many agents wait here already, try again"));
  waiting_.push_back({std::move(poll.hosts), poll.after, clock_.monotonic_ns() + options_.hold_ns, responder});
  for (const std::string& host : waiting_.back().hosts) waiting_of_host_.emplace(host, std::prev(waiting_.end()));
}

void AgentCommands::tick() {
  MutexLock lock(mutex_);
  const int64_t now_ns = clock_.monotonic_ns();
  while (!waiting_.empty() && waiting_.front().until_ns <= now_ns) {
    answer(waiting_.front().responder, "empty", {204, {}, ""});
    forget(waiting_.begin());
  }
  if (now_ns - heard_swept_ns_ > kHeardNs) {
    heard_swept_ns_ = now_ns;
    std::erase_if(heard_, [&](const auto& one) { return now_ns - one.second.at_ns > kHeardNs; });
  }
  for (; !expiries_.empty() && expiries_.front().at_ns <= now_ns; expiries_.pop_front()) {
    auto found = by_host_.find(expiries_.front().host);
    if (found == by_host_.end()) continue;
    const size_t expired = std::erase_if(found->second, [&](const Command& command) LOCKSTEP_REQUIRES(mutex_) {
      return command.number == expiries_.front().number;
    });
    pending_ -= expired;
    if (expired > 0) counters_.add("lockstep_commands_expired_total", "", static_cast<int64_t>(expired));
    if (found->second.empty()) by_host_.erase(found);
  }
  note();
}

void AgentCommands::close() {
  MutexLock lock(mutex_);
  closed_ = true;
  for (const Waiting& waiting : waiting_)
    answer(waiting.responder, "closed", later_answer("the server is shutting down"));
  waiting_.clear();
  waiting_of_host_.clear();
}

}  // namespace lockstep
