#include "alert/notification_sender.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "alert/builtin_alerts.h"
#include "base/text.h"
#include "ingest/counters_table.h"
#include "net/testing/raw_socket.h"
#include "store/sqlite_state_store.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

using testing::ScriptedServer;

constexpr int64_t kSecond = 1'000'000'000;

std::string answer_of(int status, const std::string& body = "", const std::string& header = "") {
  return format("HTTP/1.1 %d X\r\n%sContent-Length: %zu\r\n\r\n", status, header.c_str(), body.size()) + body;
}

class Sender : public ::testing::Test {
 protected:
  // Rounds are the test's: no thread, and the clock stands still in between.
  void start(ScriptedServer& server, const std::string& path = "/hook") {
    config_.url = "http://" + server.address() + path;
    sender_ = std::make_unique<NotificationSender>(config_, "", registry_, clock_, counters_);
    registry_.set_receivers({{.name = "hook"}});
  }
  void fire(const std::string& gpu) {
    RaisedAlert alert = gpu_alert(alert_names::kGpuFault, Cause::kXid, AlertSource::kEvent, "node-1", gpu);
    alert.lasts_ns = 86'400 * kSecond;
    registry_.raise(std::move(alert));
    registry_.tick();
    pass(3);  // so long it waits for others of its name
  }
  void pass(int64_t seconds) {
    clock_.advance(seconds * kSecond);
    registry_.tick();
  }
  DeliveryState state() { return registry_.alerts().at(0).deliveries.at(0); }

  testing::TemporaryFolder folder_;
  testing::FakeClock clock_;
  ClockWitness witness_{clock_};
  Counters counters_{kServerCounters};
  std::unique_ptr<StateStore> state_ = open_sqlite_state_store(folder_.path() + "/state.sqlite").value();
  AlertRegistry registry_{*state_, clock_, witness_, counters_};
  ReceiverConfig config_{.name = "hook", .type = ReceiverType::kWebhook};
  std::unique_ptr<NotificationSender> sender_;
};

TEST_F(Sender, AReceiverThatAsksForAPauseGetsIt) {
  ScriptedServer server({{answer_of(429, "", "Retry-After: 120\r\n")}, {answer_of(200)}});
  start(server);
  fire("GPU-1");
  sender_->round();
  EXPECT_EQ(state().state, "waiting");
  fire("GPU-2");
  pass(110);
  sender_->round();
  EXPECT_EQ(server.requests().size(), 1u) << "what is new waits too";
  pass(10);
  sender_->round();
  EXPECT_EQ(server.requests().size(), 2u);
  EXPECT_EQ(registry_.waiting("hook"), 0u) << "both in one message";
}

TEST_F(Sender, AReceiverThatIsDownIsTriedLessAndLessOften) {
  ScriptedServer server(std::vector<std::vector<std::string>>(10, {answer_of(503)}));
  start(server);
  for (int i = 0; i < 60; ++i) {
    fire("GPU-" + std::to_string(i));  // each of them is due at once
    sender_->round();
  }
  EXPECT_LE(server.requests().size(), 9u);
}

TEST_F(Sender, TheStatusDecidesHoweverLongTheAnswerIs) {
  const std::string endless(kNotifyAnswerBytesMax + 100, 'x');
  ScriptedServer server({{answer_of(500, endless)}, {answer_of(200, endless)}});
  start(server);
  fire("GPU-1");
  sender_->round();
  EXPECT_EQ(state().state, "waiting");
  pass(5);
  sender_->round();
  EXPECT_EQ(state().state, "delivered");
}

TEST_F(Sender, WhatAReceiverRepeatsShowsNoPartOfASecret) {
  const std::string file = folder_.path() + "/token";
  std::ofstream(file) << "a-very-secret-token";
  ::chmod(file.c_str(), 0600);
  config_.bearer_token_file = file;
  // The token would be cut in the middle; path and query are secrets of theirs, whole or not.
  const std::string echo = std::string(190, 'x') + "a-very-secret-token";
  ScriptedServer server({{answer_of(500, echo)}, {answer_of(500, "no /T0123456789?key=abcdefgh here")}});
  start(server, "/services/T0123456789/?key=abcdefgh");
  fire("GPU-1");
  sender_->round();
  EXPECT_EQ(state().error.find("a-very"), std::string::npos) << state().error;
  EXPECT_NE(server.requests().at(0).find("POST /services/T0123456789/?key=abcdefgh HTTP"), std::string::npos);
  pass(5);
  sender_->round();
  EXPECT_EQ(state().error.find("T0123456789"), std::string::npos) << state().error;
  EXPECT_EQ(state().error.find("abcdefgh"), std::string::npos) << state().error;
  EXPECT_NE(state().error.find("answers 500: no"), std::string::npos) << state().error;
}

TEST_F(Sender, ASecretThatEverybodyCanReadIsNotUsed) {
  config_.bearer_token_file = folder_.path() + "/token";
  std::ofstream(config_.bearer_token_file) << "a-very-secret-token";
  ::chmod(config_.bearer_token_file.c_str(), 0644);
  ScriptedServer server({{answer_of(200)}});
  start(server);
  fire("GPU-1");
  sender_->round();
  EXPECT_EQ(server.requests().size(), 0u);
  EXPECT_NE(state().error.find("open to every user"), std::string::npos) << state().error;
}

}  // namespace
}  // namespace lockstep
