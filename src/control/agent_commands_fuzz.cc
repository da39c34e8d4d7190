// Any bytes as the query of an agent that asks for commands: answered with a known status, or it waits.
#include <algorithm>
#include <cstdlib>
#include <optional>

#include "control/agent_commands.h"
#include "ingest/counters_table.h"
#include "wire/commands.h"

namespace {

using namespace lockstep;

struct MovingClock final : Clock {
  int64_t now = 1;
  int64_t unix_ns() const override { return now; }
  int64_t monotonic_ns() const override { return now; }
};

struct OneResponder final : HttpResponder {
  std::optional<HttpResponse> answered;
  void answer(HttpResponse response) override { answered = std::move(response); }
  bool defer() override { return true; }
  bool gone() const override { return false; }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static MovingClock clock;
  static Counters counters(kServerCounters);
  static AgentCommands commands({.waiting_max = 8}, clock, counters);
  clock.now += 1'000'000'000;
  commands.ask("a", DetailRequest{"job", 0, clock.now & 7, clock.now & 7, {0}});
  commands.ask("a", StackRequest{"job", clock.now & 7, {0}});
  auto responder = std::make_shared<OneResponder>();
  ServerRequest request;
  request.method = "GET";
  request.query.assign(reinterpret_cast<const char*>(data), size);
  commands.poll(request, responder);
  if (responder->answered) {
    static constexpr int kKnown[] = {200, 400, 503};
    const int status = responder->answered->status;
    if (std::find(std::begin(kKnown), std::end(kKnown), status) == std::end(kKnown)) std::abort();
    if (status == 200 && !parse_commands(responder->answered->body).ok()) std::abort();
  }
  commands.tick();
  return 0;
}
