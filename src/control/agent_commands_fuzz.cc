// Any bytes as the query of an agent that asks for commands: answered with a known status, or it waits.
#include <algorithm>
#include <cstdlib>
#include <optional>

#include "control/agent_commands.h"
#include "ingest/counters_table.h"
#include "testing/fake_clock.h"
#include "wire/commands.h"

namespace {

using namespace lockstep;

struct OneResponder final : HttpResponder {
  std::optional<HttpResponse> answered;
  void answer(HttpResponse response) override { answered = std::move(response); }
  bool defer() override { return true; }
  bool gone() const override { return false; }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static testing::FakeClock clock;
  static Counters counters(kServerCounters);
  static AgentCommands commands({.waiting_max = 8}, clock, counters);
  clock.advance(1'000'000'000);
  commands.ask("a",
               DetailRequest{"job", 0, StepNumber{clock.unix_ns() & 7}, StepNumber{clock.unix_ns() & 7}, {0_rank}});
  commands.ask("a", StackRequest{"job", clock.unix_ns() & 7, {0_rank}});
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
