#include "agent/export/command_poll.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "agent/export/other_port.h"
#include "agent/export/otlp_sender.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/secret_file.h"
#include "base/text.h"
#include "wire/commands.h"

namespace lockstep {

Result<OtlpTarget> command_target(const OtlpTargets& targets) {
  OtlpTarget target = targets.of(Signal::kSpans);
  if (target.protocol != OtlpProtocol::kHttp)
    return Error{"commands come over OTLP/HTTP, and this agent sends by gRPC (--commands URL names the HTTP receiver)"};
  constexpr std::string_view kTraces = "/v1/traces";
  if (!target.path.ends_with(kTraces))
    return Error{"spans go to " + target.text() +
                 ", which is no receiver of a Lockstep server (--commands URL names one)"};
  target.path.replace(target.path.size() - kTraces.size(), kTraces.size(), kCommandsPath);
  return target;
}

CommandPoll::CommandPoll(CommandPollOptions options, Counters& counters)
    : options_(std::move(options)),
      counters_(counters),
      wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      token_(options_.target.token),
      target_(options_.target) {
  connect();
  thread_ = std::thread([this] { run(); });
}

void CommandPoll::connect() {
  client_.emplace(Url{target_.address.host, target_.address.port, "", target_.tls}, options_.timeout_ms,
                  kCommandsBytesMax, target_.tls_options);
  client_->interrupt_by(wake_.get());
}

bool CommandPoll::find_right_port() {
  connect();        // a new connection: some servers take one at a time
  std::string why;  // said by whoever sends telemetry there
  std::optional<OtlpTarget> right = at_right_port(target_, why);
  if (!right) return false;
  target_ = std::move(*right);
  connect();
  return true;
}

void CommandPoll::interrupt() {
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
  changed_.notify_all();
}

void CommandPoll::set_hosts(std::vector<std::string> hosts) {
  if (hosts.size() > kHostsMax) hosts.resize(kHostsMax);
  std::sort(hosts.begin(), hosts.end());  // the same ones in another order are no change
  hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
  MutexLock lock(mutex_);
  if (hosts == hosts_) return;
  hosts_ = std::move(hosts);
  interrupt();
}

std::vector<DetailRequest> CommandPoll::take() {
  MutexLock lock(mutex_);
  return std::exchange(arrived_, {});
}

std::vector<StackRequest> CommandPoll::take_stacks() {
  MutexLock lock(mutex_);
  return std::exchange(stacks_arrived_, {});
}

std::vector<ProfileRequest> CommandPoll::take_profiles() {
  MutexLock lock(mutex_);
  return std::exchange(profiles_arrived_, {});
}

std::vector<SampleRequest> CommandPoll::take_samples() {
  MutexLock lock(mutex_);
  return std::exchange(samples_arrived_, {});
}

void CommandPoll::stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    interrupt();
  }
  if (thread_.joinable()) thread_.join();
}

CommandPoll::Outcome CommandPoll::poll_once(const std::vector<std::string>& hosts) {
  const OtlpTarget& target = target_;
  HttpRequest request;
  request.path = target.path;
  for (const std::string& host : hosts)
    request.path += (request.path.find('?') == std::string::npos ? "?host=" : "&host=") + url_part(host);
  if (!cursor_.empty()) request.path += "&after=" + cursor_;
  // X-Lockstep: no web page can send it here from a browser (net/cross_site.h).
  request.headers = {{"Accept", "text/plain"}, {"X-Lockstep", "1"}};
  if (!target.token_file.empty()) {
    if (Result<std::string> token = read_private_file(target.token_file); token.ok()) token_ = std::move(*token);
  }
  if (!token_.empty()) request.headers.emplace_back("Authorization", "Bearer " + token_);
  request.headers.insert(request.headers.end(), target.headers.begin(), target.headers.end());

  Result<HttpResponse> answer = client_->send(request);
  if (!answer.ok()) return {"failed", -1, answer.error(), answer.code() == ErrorCode::kOtherProtocol};
  switch (answer->status) {
    case 204:
      return {"empty", 0, {}};
    case 404:
    case 405:
    case 501:
      return {"unknown_path", options_.unknown_wait_ms, format("it answers %d", answer->status), true};
    case 200:
      break;
    default: {
      const int64_t retry_ms = parse_retry_after(answer->header("retry-after"), SystemClock().unix_ns());
      return {"refused", retry_ms > 0 ? retry_ms : -1,
              format("server answered %d: %s", answer->status,
                     std::string(trim(as_one_line(answer->body.substr(0, 200)))).c_str())};
    }
  }
  // Pages that people look at answer every path: it is not the receiver.
  if (answer->header("content-type").starts_with("text/html"))
    return {"unknown_path", options_.unknown_wait_ms, "it answers with a page", true};
  Result<CommandList> list = parse_commands(answer->body);
  if (!list.ok()) return {"malformed", -1, list.error()};
  cursor_ = list->cursor;
  if (list->unknown > 0) counters_.add("lockstep_agent_commands_total", "result=\"unknown\"", list->unknown);
  MutexLock lock(mutex_);
  auto arrive = [&](auto& requests, auto& arrived) {
    for (auto& one : requests) {
      const bool fits = arrived.size() < kWaitingMax;
      counters_.add("lockstep_agent_commands_total", fits ? "result=\"taken\"" : "result=\"too_many\"");
      if (fits) arrived.push_back(std::move(one));
    }
  };
  arrive(list->details, arrived_);
  arrive(list->stacks, stacks_arrived_);
  arrive(list->profiles, profiles_arrived_);
  arrive(list->samples, samples_arrived_);
  return {"answered", 0, {}};
}

void CommandPoll::run() {
  int64_t backoff_ms = 0;
  bool said = false, moved = false;
  const std::string where = options_.target.text();
  while (true) {
    std::vector<std::string> hosts;
    {
      MutexLock lock(mutex_);
      changed_.wait(mutex_, [&]() LOCKSTEP_REQUIRES(mutex_) { return stopping_ || !hosts_.empty(); });
      if (stopping_) return;
      uint64_t ignored = 0;
      (void)!read(wake_.get(), &ignored, sizeof ignored);  // what changes from here on ends the poll
      hosts = hosts_;
    }
    Outcome outcome = poll_once(hosts);
    if (outcome.wrong_place && !moved && find_right_port()) {
      moved = true;
      continue;
    }
    MutexLock lock(mutex_);
    if (stopping_) return;
    if (!outcome.why.empty() && hosts != hosts_) outcome = {"renewed", 0, {}};
    counters_.add("lockstep_agent_commands_polls_total", format("result=\"%s\"", outcome.result));
    if (outcome.why.empty()) {
      moved = false;
      if (said && hosts == hosts_) {
        LOCKSTEP_LOG_INFO("agent", "%s: commands can be asked for again", where.c_str());
        said = false;
        backoff_ms = 0;
      }
      continue;
    }
    if (!said)
      LOCKSTEP_LOG_WARN("agent", "no commands from %s: %s; detail is sent as sampled, not as asked", where.c_str(),
                        outcome.why.c_str());
    said = true;
    backoff_ms = std::min(options_.backoff_most_ms, std::max(options_.backoff_first_ms, backoff_ms * 2));
    int64_t wait_ms = outcome.wait_ms;
    if (wait_ms < 0) {
      // Spread: a fleet of agents must not come back all at once.
      const auto seed = static_cast<uint64_t>(SystemClock().monotonic_ns());
      wait_ms = backoff_ms / 2 + static_cast<int64_t>(seed * 2654435761u % static_cast<uint64_t>(backoff_ms / 2 + 1));
    }
    changed_.wait_for(mutex_, std::chrono::milliseconds(wait_ms),
                      [&]() LOCKSTEP_REQUIRES(mutex_) { return stopping_; });
  }
}

}  // namespace lockstep
