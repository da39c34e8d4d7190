#include "agent/export/command_poll.h"

#include <gtest/gtest.h>

#include "agent/counters_table.h"
#include "agent/export/otlp_sender_testing.h"
#include "testing/eventually.h"

namespace lockstep {
namespace {

using testing::eventually;
using testing::OneThreadServer;

// Answers the polls with these texts, one each; an empty text, and everything after the last, is never answered.
class CommandServer final : public OneThreadServer {
 public:
  explicit CommandServer(std::vector<std::string> answers) : answers_(std::move(answers)) { begin(); }
  ~CommandServer() { end(); }
  std::vector<std::string> polls() const {
    MutexLock lock(mutex_);
    return polls_;
  }
  static std::string with_body(const std::string& body, int status = 200) {
    return format("HTTP/1.1 %d Told\r\nContent-Length: %zu\r\n\r\n", status, body.size()) + body;
  }

 private:
  void serve(int fd) override {
    std::string text;
    while (read_more(fd, text)) {
      const size_t end = text.find("\r\n\r\n");
      if (end == std::string::npos) continue;
      std::string answer;
      {
        MutexLock lock(mutex_);
        polls_.push_back(text.substr(0, end));
        if (polls_.size() <= answers_.size()) answer = answers_[polls_.size() - 1];
      }
      text.erase(0, end + 4);
      if (!answer.empty()) (void)write_all(fd, answer).ok();
    }
  }
  const std::vector<std::string> answers_;
  mutable Mutex mutex_;
  std::vector<std::string> polls_ LOCKSTEP_GUARDED_BY(mutex_);
};

struct CommandPollTest : ::testing::Test {
  Counters counters{kAgentCounters};

  CommandPollOptions options(const CommandServer& server) const {
    CommandPollOptions chosen;
    chosen.target.address = {.host = "127.0.0.1", .port = server.port()};
    chosen.target.path = "/base/v1/lockstep/commands";
    chosen.target.token = "secret";
    chosen.backoff_first_ms = 10;
    chosen.backoff_most_ms = 20;
    return chosen;
  }
  int64_t polls(const char* result) const {
    return counters.value("lockstep_agent_commands_polls_total", std::string("result=\"") + result + "\"");
  }
};

const char* const kTwo =
    "lockstep-commands 1\ncursor 1a-2\ndetail job%201 0 5 6 0-3\nfetch later\nstacks job%201 0 3\ndetail job%201 0 9 "
    "9 *\n";

TEST_F(CommandPollTest, TakesCommandsAndSaysUpToWhereItHasThem) {
  CommandServer server({CommandServer::with_body(kTwo), ""});
  CommandPoll poll(options(server), counters);
  poll.set_hosts({"node b", "node-a", "node b"});
  std::vector<DetailRequest> all;
  ASSERT_TRUE(eventually([&] {
    for (DetailRequest& one : poll.take()) all.push_back(std::move(one));
    return all.size() == 2 && server.polls().size() == 2;
  }));
  EXPECT_EQ(all[0], (DetailRequest{"job 1", 0, 5_step, 6_step, {0_rank, 1_rank, 2_rank, 3_rank}}));
  EXPECT_EQ(all[1], (DetailRequest{"job 1", 0, 9_step, 9_step, {}}));
  EXPECT_TRUE(server.polls()[0].starts_with("GET /base/v1/lockstep/commands?host=node%20b&host=node-a HTTP/1.1\r\n"))
      << server.polls()[0];
  EXPECT_NE(server.polls()[0].find("Authorization: Bearer secret"), std::string::npos);
  EXPECT_TRUE(server.polls()[1].starts_with(
      "GET /base/v1/lockstep/commands?host=node%20b&host=node-a&after=1a-2 HTTP/1.1\r\n"));
  EXPECT_EQ(poll.take_stacks(), (std::vector<StackRequest>{{"job 1", 0, {3_rank}}}));
  EXPECT_EQ(counters.value("lockstep_agent_commands_total", "result=\"taken\""), 3);
  EXPECT_EQ(counters.value("lockstep_agent_commands_total", "result=\"unknown\""), 1);
}

TEST_F(CommandPollTest, AsksAgainAtOnceWhenThereWasNothing) {
  CommandServer server({CommandServer::with_body("", 204), CommandServer::with_body("", 204)});
  CommandPoll poll(options(server), counters);
  poll.set_hosts({"a"});
  EXPECT_TRUE(eventually([&] { return server.polls().size() == 3; }));
  EXPECT_EQ(polls("empty"), 2);
}

TEST_F(CommandPollTest, NewHostsDoNotWaitForTheAnswerToTheOldQuestion) {
  CommandServer server({});
  CommandPoll poll(options(server), counters);
  poll.set_hosts({"a"});
  ASSERT_TRUE(eventually([&] { return server.polls().size() == 1; }));
  poll.set_hosts({"a", "b"});
  ASSERT_TRUE(eventually([&] { return server.polls().size() == 2; }));
  EXPECT_NE(server.polls()[1].find("host=a&host=b"), std::string::npos);
  poll.set_hosts({"a", "b"});
  EXPECT_EQ(polls("failed"), 0);
}

TEST_F(CommandPollTest, StoppingDoesNotWaitForTheServer) {
  CommandServer server({});
  auto poll = std::make_unique<CommandPoll>(options(server), counters);
  poll->set_hosts({"a"});
  ASSERT_TRUE(eventually([&] { return server.polls().size() == 1; }));
  poll.reset();  // and comes back, though the server never answers
}

TEST_F(CommandPollTest, APlainCollectorIsLeftAloneForAWhileAndThenAskedAgain) {
  for (int status : {404, 405, 501}) {
    // The second is the answer to whether it is another port of a Lockstep server.
    CommandServer server({CommandServer::with_body("no such path", status), CommandServer::with_body("no", 404),
                          CommandServer::with_body(kTwo)});
    CommandPollOptions chosen = options(server);
    chosen.unknown_wait_ms = 300;
    CommandPoll poll(chosen, counters);
    const int64_t began_ns = SystemClock().monotonic_ns();
    poll.set_hosts({"a"});
    ASSERT_TRUE(eventually([&] { return poll.take().size() == 2; })) << status;
    EXPECT_GE(SystemClock().monotonic_ns() - began_ns, 300'000'000) << status;
  }
  EXPECT_EQ(polls("unknown_path"), 3);
}

TEST_F(CommandPollTest, OutlivesWhateverAServerAnswers) {
  CommandServer server({"nonsense\r\n\r\n", CommandServer::with_body("is it another port?", 404),
                        CommandServer::with_body("lockstep-commands 1\ncursor ?\n"),
                        CommandServer::with_body("down", 503), CommandServer::with_body(kTwo)});
  CommandPoll poll(options(server), counters);
  poll.set_hosts({"a"});
  EXPECT_TRUE(eventually([&] { return poll.take().size() == 2; }));
  EXPECT_EQ(polls("malformed"), 1);
  EXPECT_EQ(polls("refused"), 1);
  EXPECT_GE(polls("failed"), 1);
}

TEST_F(CommandPollTest, ComesFromTheDoorThatSpansGoTo) {
  OtlpTargets http = *choose_otlp_targets({.server = "http://gpu-server/base/"}, {});
  Result<OtlpTarget> target = command_target(http);
  ASSERT_TRUE(target.ok()) << target.error();
  EXPECT_EQ(target->text(), "http://gpu-server:4318/base/v1/lockstep/commands");
  EXPECT_FALSE(command_target(*choose_otlp_targets({.server = "http://s", .protocol = "grpc"}, {})).ok());
  EXPECT_FALSE(
      command_target(*choose_otlp_targets({}, {{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://s/other"}})).ok());
}

}  // namespace
}  // namespace lockstep
