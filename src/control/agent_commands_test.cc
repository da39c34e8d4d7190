#include "control/agent_commands.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "ingest/counters_table.h"
#include "testing/fake_clock.h"
#include "wire/commands.h"

namespace lockstep {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

struct TestResponder final : HttpResponder {
  std::optional<HttpResponse> answered;
  bool may_wait = true;
  bool waits = false;
  bool is_gone = false;
  void answer(HttpResponse response) override {
    if (!answered) answered = std::move(response);
  }
  bool defer() override { return waits = may_wait; }
  bool gone() const override { return is_gone; }
};

struct AgentCommandsTest : ::testing::Test {
  testing::FakeClock clock;
  Counters counters{kServerCounters};
  AgentCommands commands{{.per_host_max = 4, .commands_max = 6, .waiting_max = 2}, clock, counters};

  static DetailRequest request(StepNumber step) { return {"job", 0, step, step, {1_rank, 2_rank}}; }
  static std::shared_ptr<TestResponder> poll(AgentCommands& receiver, const std::string& query,
                                             const std::string& method = "GET") {
    auto responder = std::make_shared<TestResponder>();
    ServerRequest http;
    http.method = method;
    http.path = kCommandsPath;
    http.query = query;
    receiver.poll(http, responder);
    return responder;
  }
  std::shared_ptr<TestResponder> poll(const std::string& query) { return poll(commands, query); }
  static CommandList list_of(const TestResponder& responder) {
    EXPECT_TRUE(responder.answered && responder.answered->status == 200);
    Result<CommandList> list = parse_commands(responder.answered ? responder.answered->body : "");
    EXPECT_TRUE(list.ok()) << list.error();
    return list.ok() ? *list : CommandList{};
  }
  void expect_balance() const {
    EXPECT_EQ(counters.value("lockstep_commands_total"), counters.value("lockstep_commands_acknowledged_total") +
                                                             counters.value("lockstep_commands_expired_total") +
                                                             counters.sum("lockstep_commands_refused_total") +
                                                             counters.value("lockstep_commands_pending"));
  }
};

TEST_F(AgentCommandsTest, AnAgentThatWaitsIsAnsweredAtOnce) {
  auto waits = poll("host=node-a");
  EXPECT_TRUE(waits->waits);
  EXPECT_FALSE(waits->answered);
  EXPECT_TRUE(commands.ask("node-b", request(1_step)));
  EXPECT_FALSE(waits->answered) << "that was for another";
  EXPECT_TRUE(commands.ask("node-a", request(2_step)));
  EXPECT_EQ(list_of(*waits).details, std::vector<DetailRequest>{request(2_step)});
}

TEST_F(AgentCommandsTest, StacksAreAskedForOnTheSameWay) {
  const StackRequest stacks{"job", 0, {3_rank, 5_rank}};
  EXPECT_TRUE(commands.ask("node-a", stacks));
  EXPECT_TRUE(commands.ask("node-a", request(1_step)));
  EXPECT_FALSE(commands.ask("node-a", StackRequest{"job", 0, {}})) << "nobody is not everybody";
  auto given = poll("host=node-a");
  EXPECT_EQ(list_of(*given).stacks, std::vector<StackRequest>{stacks});
  EXPECT_EQ(list_of(*given).details, std::vector<DetailRequest>{request(1_step)});
}

TEST_F(AgentCommandsTest, WhereAgentsAskGatewaysACommandGoesToTheseAsItIs) {
  AgentCommands gateway{{}, clock, counters};
  bool is_down = false;
  AgentCommands analyzer{{.forward =
                              [&](const std::string& host, const CommandList& one) {
                                const Result<CommandList> travelled = parse_commands(encode_commands(one));
                                if (!is_down) gateway.ask_all(host, *travelled);
                                return !is_down;
                              }},
                         clock,
                         counters};
  const StackRequest stacks{"job", 0, {3_rank}};
  const SampleRequest samples{"job", 0, 5, 100, {3_rank}};
  EXPECT_TRUE(analyzer.ask("node-a", stacks));
  EXPECT_TRUE(analyzer.ask("node-a", request(2_step)));
  EXPECT_TRUE(analyzer.ask("node-a", samples));
  EXPECT_TRUE(poll(analyzer, "host=node-a")->waits) << "nothing is kept there";
  EXPECT_EQ(analyzer.answers("node-a", CommandKind::kStacks), Answers::kUnknown) << "gateways alone hear the polls";
  const auto given = poll(gateway, "host=node-a");
  EXPECT_EQ(list_of(*given).stacks, std::vector<StackRequest>{stacks});
  EXPECT_EQ(list_of(*given).details, std::vector<DetailRequest>{request(2_step)});
  EXPECT_EQ(list_of(*given).samples, std::vector<SampleRequest>{samples});
  is_down = true;
  EXPECT_FALSE(analyzer.ask("node-a", stacks));
  EXPECT_EQ(counters.value("lockstep_commands_forwarded_total"), 3);
  EXPECT_EQ(counters.value("lockstep_commands_refused_total", "reason=\"bus\""), 1);
}

TEST_F(AgentCommandsTest, WhatAHostAnswersIsWhatItsNewestPollSaysWhileOneIsHeard) {
  EXPECT_EQ(commands.answers("node-a", CommandKind::kSamples), Answers::kNobody);
  poll("host=node-a&host=node-b&answers=stacks,songs");
  EXPECT_EQ(commands.answers("node-b", CommandKind::kSamples), Answers::kNo);
  EXPECT_EQ(commands.answers("node-b", CommandKind::kStacks), Answers::kYes);
  EXPECT_EQ(commands.answers("node-c", CommandKind::kStacks), Answers::kNobody);
  poll("host=node-a");  // another agent, which says nothing: it answers all
  EXPECT_EQ(commands.answers("node-a", CommandKind::kSamples), Answers::kYes);
  clock.advance(AgentCommands::kHeardNs + 1);
  commands.tick();
  EXPECT_EQ(commands.answers("node-a", CommandKind::kSamples), Answers::kNobody);
}

TEST_F(AgentCommandsTest, AnAgentThatComesLaterGetsWhatWaitsForIt) {
  commands.ask("node-a", request(1_step));
  commands.ask("node b", request(2_step));
  EXPECT_EQ(list_of(*poll("host=node%20b&host=node-a")).details,
            (std::vector<DetailRequest>{request(1_step), request(2_step)}));
}

TEST_F(AgentCommandsTest, ACommandIsGivenAgainUntilTheAgentSaysThatItHasIt) {
  commands.ask("a", request(1_step));
  const CommandList first = list_of(*poll("host=a"));
  EXPECT_EQ(list_of(*poll("host=a")), first) << "the answer was lost";
  EXPECT_TRUE(poll("host=a&after=" + first.cursor)->waits);
  EXPECT_EQ(counters.value("lockstep_commands_acknowledged_total"), 1);
  expect_balance();
}

TEST_F(AgentCommandsTest, ACursorTakesNothingThatWasNotHandedOut) {
  commands.ask("b", request(1_step));
  commands.ask("a", request(2_step));
  const CommandList first = list_of(*poll("host=a"));
  const CommandList second = list_of(*poll("host=a&host=b&after=" + first.cursor));  // ranks of b came meanwhile
  EXPECT_EQ(second.details, std::vector<DetailRequest>{request(1_step)});
  EXPECT_TRUE(poll("host=a&host=b&after=" + second.cursor)->waits);
}

TEST_F(AgentCommandsTest, ACursorOfAnEarlierServerMeansThatEverythingIsNew) {
  commands.ask("a", request(1_step));
  const std::string cursor = list_of(*poll("host=a")).cursor;
  clock.advance(kSecond);
  AgentCommands next({}, clock, counters);
  next.ask("a", request(2_step));
  EXPECT_EQ(list_of(*poll(next, "host=a&after=" + cursor)).details, std::vector<DetailRequest>{request(2_step)});
}

TEST_F(AgentCommandsTest, WhoeverWaitsInVainIsToldSoAfterAWhile) {
  auto waits = poll("host=a");
  clock.advance(24 * kSecond);
  commands.tick();
  EXPECT_FALSE(waits->answered);
  clock.advance(kSecond);
  commands.tick();
  ASSERT_TRUE(waits->answered);
  EXPECT_EQ(waits->answered->status, 204);
  commands.ask("a", request(1_step));  // finds nobody, and does not answer twice
  EXPECT_EQ(waits->answered->status, 204);
}

TEST_F(AgentCommandsTest, WhatNobodyFetchesExpires) {
  commands.ask("a", request(1_step));
  clock.advance(60 * kSecond);
  commands.tick();
  EXPECT_TRUE(poll("host=a")->waits);
  EXPECT_EQ(counters.value("lockstep_commands_expired_total"), 1);
  expect_balance();
}

TEST_F(AgentCommandsTest, RefusesWhatIsTooMuchAndTakesTheSameOnce) {
  for (StepNumber step = 0_step; step < 4_step; ++step) EXPECT_TRUE(commands.ask("a", request(step)));
  EXPECT_FALSE(commands.ask("a", request(4_step))) << "for one host";
  EXPECT_TRUE(commands.ask("a", request(3_step))) << "the same is asked already";
  EXPECT_TRUE(commands.ask("b", request(1_step)));
  EXPECT_TRUE(commands.ask("b", request(2_step)));
  EXPECT_FALSE(commands.ask("c", request(1_step))) << "in all";
  EXPECT_FALSE(commands.ask("d", {"job", 0, 0_step, StepNumber{kDetailStepsMax}, {}}));
  EXPECT_EQ(list_of(*poll("host=a")).details.size(), 4u);
  expect_balance();
}

TEST_F(AgentCommandsTest, WhenTooManyWaitTheNextIsSentAwayUnlessSomebodyHasGone) {
  auto first = poll("host=a");
  auto second = poll("host=b");
  auto third = poll("host=c");
  ASSERT_TRUE(third->answered);
  EXPECT_EQ(third->answered->status, 503);
  EXPECT_EQ(third->answered->header("retry-after"), "5");
  first->is_gone = true;
  EXPECT_TRUE(poll("host=c")->waits);
}

TEST_F(AgentCommandsTest, MalformedQuestionsAreRefusedWithOneLine) {
  std::string many = "host=a";
  for (int i = 0; i < 70; ++i) many += format("&host=%d", i);
  for (const std::string& query : {std::string(), std::string("after=1"), std::string("host="), std::string("host=%zz"),
                                   std::string("host=a%00"), std::string("host=a&after=A b"),
                                   "host=" + std::string(300, 'x'), "host=a&after=" + std::string(65, '1'), many}) {
    auto answer = poll(query);
    ASSERT_TRUE(answer->answered) << query;
    EXPECT_EQ(answer->answered->status, 400) << query;
    EXPECT_EQ(answer->answered->body.find('\n'), answer->answered->body.size() - 1);
  }
  auto posted = poll(commands, "host=a", "POST");
  EXPECT_EQ(posted->answered->status, 405);
  EXPECT_TRUE(poll("host=a&after=&wait=9")->waits) << "parameters of a newer agent";
}

TEST_F(AgentCommandsTest, WhenItClosesEverybodyIsSentAway) {
  auto waits = poll("host=a");
  commands.close();
  EXPECT_EQ(waits->answered->status, 503);
  EXPECT_EQ(poll("host=a")->answered->status, 503);
  EXPECT_FALSE(commands.ask("a", request(1_step)));
  expect_balance();
}

}  // namespace
}  // namespace lockstep
