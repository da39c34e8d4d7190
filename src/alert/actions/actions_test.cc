#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <functional>

#include "alert/actions/action_runner.h"
#include "alert/actions/command_run.h"
#include "alert/builtin_alerts.h"
#include "base/files.h"
#include "base/process.h"
#include "ingest/counters_table.h"
#include "net/testing/raw_socket.h"
#include "store/forwarding_state.h"
#include "store/sqlite_state_store.h"
#include "testing/eventually.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

std::string script(const std::string& path, const std::string& text) {
  std::ofstream(path) << "#!/bin/sh\n" << text;
  ::chmod(path.c_str(), 0700);
  return path;
}

TEST(ActionConfig, EachCauseIsSwitchedOnByName) {
  const Result<std::vector<ActionConfig>> actions = parse_actions(
      "actions:\n  - {name: cordon, causes: {xid: run, ecc: dry-run}, command: /x/cordon, timeout: 5s, limit: 3, "
      "every: 1d}\n");
  ASSERT_TRUE(actions.ok()) << actions.error();
  EXPECT_EQ(actions->at(0).causes.at(Cause::kXid), ActionMode::kRun);
  EXPECT_EQ(actions->at(0).causes.at(Cause::kEcc), ActionMode::kDryRun);
  EXPECT_EQ(actions->at(0).every_ms, 86'400'000);
  struct Case {
    const char *text, *line;
  };
  for (const Case& one : std::initializer_list<Case>{
           {"actions:\n  - {name: a, command: /x}\n", "needs causes"},
           {"actions:\n  - {name: a, causes: {all: run}, command: /x}\n", "\"all\" is no cause"},
           {"actions:\n  - {name: a, causes: {xid: yes}, command: /x}\n", "must be run or dry-run"},
           {"actions:\n  - {name: a, causes: {xid: run}, command: x}\n", "absolute path"},
           {"actions:\n  - {name: a, causes: {xid: run}}\n", "needs a command, a url or a url_file"},
           {"actions:\n  - {name: a, causes: {xid: run}, command: /x, url: 'http://x'}\n", "one of them"},
           {"actions:\n  - {name: a, causes: {xid: run}, command: /x, limit: 0}\n", "limit must be"},
           {"actions:\n  - {name: a, causes: {xid: run}, command: /x, timeout: 1h}\n", "timeout must be"},
           {"actions:\n  - {name: a/b, causes: {xid: run}, command: /x}\n", "name must be"}}) {
    const Result<std::vector<ActionConfig>> wrong = parse_actions(one.text);
    ASSERT_FALSE(wrong.ok()) << one.text;
    EXPECT_TRUE(wrong.error().starts_with("line 2: ")) << wrong.error();
    EXPECT_NE(wrong.error().find(one.line), std::string::npos) << wrong.error();
  }
}

TEST(CommandRun, FilesThatOthersCanChangeAreNotRun) {
  testing::TemporaryFolder folder;
  const std::string file = script(folder.path() + "/file", "true\n");
  EXPECT_TRUE(checked_command_file(file).ok());
  ASSERT_EQ(::symlink(file.c_str(), (folder.path() + "/link").c_str()), 0);
  EXPECT_EQ(*checked_command_file(folder.path() + "/link"), *checked_command_file(file));
  for (const mode_t mode : {0702, 0722, 0600}) {
    ::chmod(file.c_str(), mode);
    EXPECT_FALSE(checked_command_file(file).ok()) << mode;
  }
  ::chmod(file.c_str(), 0700);
  ::chmod(folder.path().c_str(), 0777);
  EXPECT_FALSE(checked_command_file(file).ok()) << "somebody could put another file there";
  ::chmod(folder.path().c_str(), 0700);
  EXPECT_FALSE(checked_command_file("file").ok());
  EXPECT_FALSE(checked_command_file(folder.path()).ok());
  EXPECT_FALSE(checked_command_file(folder.path() + "/none").ok());
}

TEST(CommandRun, LinksOnTheWayAreTheOperatorsToo) {
  testing::TemporaryFolder folder;
  const std::string file = script(folder.path() + "/file", "true\n"), open = folder.path() + "/open";
  ASSERT_EQ(::mkdir(open.c_str(), 0700), 0);
  ASSERT_EQ(::symlink("../open/../file", (open + "/link").c_str()), 0);
  ASSERT_EQ(::symlink("open", (folder.path() + "/folder").c_str()), 0);
  const std::string way = folder.path() + "/folder/link";
  EXPECT_EQ(*checked_command_file(way), *checked_command_file(file));
  ::chmod(open.c_str(), 0777);
  EXPECT_FALSE(checked_command_file(way).ok()) << "anybody could point the link elsewhere";
  ::chmod(open.c_str(), 0700);
  ASSERT_EQ(::symlink("loop", (folder.path() + "/loop").c_str()), 0);
  EXPECT_FALSE(checked_command_file(folder.path() + "/loop").ok());
  if (::geteuid() != 0) return;  // only root gives things away
  ASSERT_EQ(::lchown((open + "/link").c_str(), 12'345, 12'345), 0);
  EXPECT_FALSE(checked_command_file(way).ok());
}

TEST(ActionConfig, AFileThatOthersCanChangeIsNotRead) {
  testing::TemporaryFolder folder;
  const std::string file = folder.path() + "/actions.yml";
  std::ofstream(file) << "actions: []\n";
  ::chmod(file.c_str(), 0600);
  EXPECT_TRUE(read_actions_file(file).ok());
  ::chmod(file.c_str(), 0606);
  const Result<std::vector<ActionConfig>> read = read_actions_file(file);
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().find("can be written by"), std::string::npos) << read.error();
}

TEST(CommandRun, HasTheGivenEnvironmentAloneAndNoInput) {
  testing::TemporaryFolder folder;
  ::setenv("LOCKSTEP_TEST_SECRET", "ours", 1);
  const std::string file =
      script(folder.path() + "/file", "cat; echo \"$A\"; echo \"secret: $LOCKSTEP_TEST_SECRET\" >&2; exit 7\n");
  const Result<CommandResult> done = run_command(file, {{"A", "$(touch x); b"}}, 60'000, -1);
  ASSERT_TRUE(done.ok()) << done.error();
  EXPECT_EQ(done->exit_code, 7);
  EXPECT_TRUE(done->in_time);
  EXPECT_EQ(done->output, "$(touch x); b\nsecret: \n");
}

TEST(CommandRun, WhatTakesTooLongEndsWithAllThatItStarted) {
  testing::TemporaryFolder folder;
  const std::string file = script(folder.path() + "/file",
                                  "sleep 1000 & echo $! > " + folder.path() + "/child\nyes | head -c 100000\nwait\n");
  const Result<CommandResult> done = run_command(file, {}, 300, -1);
  ASSERT_TRUE(done.ok()) << done.error();
  EXPECT_FALSE(done->in_time);
  EXPECT_EQ(done->output.size(), kCommandOutputBytesMax);
  const std::string child = *read_file(folder.path() + "/child", 100);
  EXPECT_TRUE(testing::eventually([&] { return process_state(std::atoi(child.c_str())).start_ticks == 0; }));
}

// A state whose alerts cannot be read while it is broken.
struct Disk final : ForwardingState {
  using ForwardingState::ForwardingState;
  bool is_broken = false;
  Result<std::vector<StoredAlertRow>> alert_rows() const override {
    if (is_broken) return Error{"disk: broken"};
    return ForwardingState::alert_rows();
  }
};

class Actions : public ::testing::Test {
 protected:
  void SetUp() override {
    command_ =
        script(folder_.path() + "/cordon", "echo \"$LOCKSTEP_HOST $LOCKSTEP_CAUSE\" >> " + folder_.path() + "/runs\n");
    actions_ = {{.name = "cordon", .causes = {{Cause::kXid, ActionMode::kRun}, {Cause::kEcc, ActionMode::kDryRun}}}};
    actions_[0].command = command_;
    actions_[0].limit = 2;
    start();
  }
  // As after a kill.
  void start() {
    runner_.reset();
    registry_ = std::make_unique<AlertRegistry>(*state_, clock_, witness_, counters_);
    runner_ = std::make_unique<ActionRunner>(actions_, "https://l", disk_, *registry_, clock_, counters_);
  }
  // meanwhile: what happens while it waits for its turn.
  ActionRun act(const std::string& id, Cause cause = Cause::kXid, const std::string& host = "node-1",
                const std::function<void()>& meanwhile = {}) {
    registry_->raise(note(id, cause, host));
    registry_->tick();
    runner_->release();
    if (meanwhile) meanwhile();
    runner_->round();
    for (const ActionRun& run : runner_->runs()) {
      if (run.verdict_id == id) return run;
    }
    return {};
  }
  RaisedAlert note(const std::string& id, Cause cause = Cause::kXid, const std::string& host = "node-1") {
    Verdict verdict;
    verdict.id = id;
    verdict.job_id = "llm";
    verdict.found_unix_ns = clock_.unix_ns();
    verdict.sentence = "GPU 3 of node-1 is lost.";
    verdict.culprit.host = host;
    verdict.culprit.cause = cause;
    const RaisedAlert alert = alert_of(verdict);
    runner_->note(verdict, alert.fingerprint, alert.path, clock_.unix_ns());
    return alert;
  }
  int64_t left_out() const {
    return counters_.value("lockstep_actions_total", "action=\"cordon\",result=\"left_out\"");
  }
  std::string runs() {
    const Result<std::string> text = read_file(folder_.path() + "/runs", 10'000);
    return text.ok() ? *text : "";
  }

  testing::TemporaryFolder folder_;
  testing::FakeClock clock_;
  ClockWitness witness_{clock_};
  Counters counters_{kServerCounters};
  std::unique_ptr<StateStore> state_ = open_sqlite_state_store(folder_.path() + "/state.sqlite").value();
  Disk disk_{*state_};
  std::unique_ptr<AlertRegistry> registry_;
  std::string command_;
  std::vector<ActionConfig> actions_;
  std::unique_ptr<ActionRunner> runner_;
};

TEST_F(Actions, AVerdictRunsTheCommandOnceAndItIsInTheAuditLog) {
  EXPECT_EQ(act("v1").state, ActionState::kDone) << act("v1").line;
  EXPECT_EQ(act("v1").state, ActionState::kDone);
  start();
  EXPECT_EQ(act("v1").state, ActionState::kDone);
  EXPECT_EQ(runs(), "node-1 xid\n");
  const std::vector<AuditRow> rows = *state_->audit({.all_tenants = true});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].action, "run action cordon");
  EXPECT_EQ(rows[0].object, "node-1 v1");
  EXPECT_EQ(rows[0].status, 200);
  EXPECT_EQ(counters_.value("lockstep_actions_total", "action=\"cordon\",result=\"done\""), 1);
}

TEST_F(Actions, ADryRunSaysWhatWouldBeDoneAndOtherCausesDoNothing) {
  const ActionRun run = act("v1", Cause::kEcc);
  EXPECT_EQ(run.state, ActionState::kDryRun);
  EXPECT_EQ(run.line, "would run " + command_);
  EXPECT_EQ(act("v2", Cause::kCongestion).id, "");
  EXPECT_EQ(runs(), "");
  EXPECT_EQ(state_->audit({.all_tenants = true})->size(), 1u);
}

TEST_F(Actions, NoMoreThanTheLimitAlsoAfterARestart) {
  EXPECT_EQ(act("v1").state, ActionState::kDone);
  EXPECT_EQ(act("v2").state, ActionState::kDone);
  EXPECT_EQ(act("v3").state, ActionState::kLimited);
  start();
  clock_.set_ahead(30 * 86'400 * kSecond);
  EXPECT_EQ(act("v4").state, ActionState::kLimited) << "a clock that is set gives no more of them";
  clock_.set_ahead(0);
  clock_.advance(3'600 * kSecond);
  EXPECT_EQ(act("v5").state, ActionState::kDone);
}

TEST_F(Actions, NothingIsDoneWhereSomebodyWorksOrAHostHasAnOddName) {
  Silence window{.matchers = R"({host="node-1"})",
                 .starts_unix_ns = clock_.unix_ns(),
                 .ends_unix_ns = clock_.unix_ns() + 100 * kSecond};
  ASSERT_TRUE(registry_->add_silence(*checked_silence(window)).ok());
  EXPECT_EQ(act("v1").state, ActionState::kSilenced);
  for (const char* host : {"a b", "-n", "a;b", "a\nb", "$(x)"})
    EXPECT_EQ(act(std::string("v-") + host, Cause::kXid, host).state, ActionState::kRefused) << host;
  EXPECT_EQ(runs(), "");
}

TEST_F(Actions, OneThatACrashInterruptedIsNotRunAgain) {
  ASSERT_EQ(act("v1").state, ActionState::kDone);
  std::vector<StoredAlertRow> rows = *state_->alert_rows();
  for (StoredAlertRow& row : rows) {
    if (row.kind != AlertRowKind::kAction) continue;
    row.json.replace(row.json.find("\"done\""), 6, "\"running\"");
    ASSERT_TRUE(state_->save_alert_rows({&row, 1}).ok());
  }
  start();
  EXPECT_EQ(act("v1").state, ActionState::kInterrupted);
  EXPECT_EQ(runs(), "node-1 xid\n");
}

TEST_F(Actions, NothingIsDoneUntilWhatWasDoneCanBeRead) {
  ASSERT_EQ(act("v1").state, ActionState::kDone);
  disk_.is_broken = true;
  start();
  for (int look = 0; look < 3; ++look) EXPECT_EQ(act("v1").id, "");
  EXPECT_EQ(left_out(), 1) << "one verdict";
  disk_.is_broken = false;
  EXPECT_EQ(act("v1").id, "") << "it is not read again at once";
  clock_.advance(ActionRunner::kReadAgainNs);
  EXPECT_EQ(act("v1").state, ActionState::kDone);
  EXPECT_EQ(act("v2").state, ActionState::kDone);
  EXPECT_EQ(runs(), "node-1 xid\nnode-1 xid\n");
}

TEST_F(Actions, WhatCannotBeReadOfARunCountsAsRun) {
  const StoredAlertRow row{AlertRowKind::kAction, "cordon/v1", "{\"id\":"};
  ASSERT_TRUE(state_->save_alert_rows({&row, 1}).ok());
  for (int restart = 0; restart < 2; ++restart) {
    start();
    const ActionRun run = act("v1");
    EXPECT_EQ(run.state, ActionState::kInterrupted);
    EXPECT_EQ(run.line, "what is kept of it cannot be read");
    EXPECT_EQ(run.action, "cordon");
  }
  EXPECT_EQ(act("v2").state, ActionState::kDone);
  EXPECT_EQ(act("v3").state, ActionState::kLimited) << "it counts towards the limit";
  EXPECT_EQ(runs(), "node-1 xid\n");
}

TEST_F(Actions, AVerdictWhoseIdIsNoTextIsActedOnOnceToo) {
  const std::string id = "v\xff/1";
  EXPECT_EQ(act(id).state, ActionState::kDone);
  start();
  act(id);
  EXPECT_EQ(runs(), "node-1 xid\n");
}

TEST_F(Actions, WhatIsSwitchedOffOrOverByTheTimeOfItsTurnIsNotRun) {
  const ActionRun over = act("v1", Cause::kXid, "node-1", [&] { registry_->sync(AlertSource::kVerdict, {}); });
  EXPECT_EQ(over.state, ActionState::kRefused);
  EXPECT_EQ(over.line, "the verdict is over");
  const auto only = [&](std::map<Cause, ActionMode> causes) {
    std::vector<ActionConfig> actions = actions_;
    actions[0].causes = std::move(causes);
    return [this, actions] { runner_->reload(actions); };
  };
  EXPECT_EQ(act("v2", Cause::kXid, "node-1", only({{Cause::kXid, ActionMode::kDryRun}})).state, ActionState::kDryRun);
  for (const std::function<void()>& off : {std::function<void()>(only({{Cause::kEcc, ActionMode::kRun}})),
                                           std::function<void()>([&] { runner_->reload({}); })}) {
    runner_->reload(actions_);
    const ActionRun run = act("v" + std::to_string(runner_->runs().size() + 1), Cause::kXid, "node-1", off);
    EXPECT_EQ(run.state, ActionState::kRefused);
    EXPECT_EQ(run.line, "it was switched off meanwhile");
  }
  EXPECT_EQ(runs(), "");
}

TEST_F(Actions, AVerdictThatThereIsNoRoomForIsCountedOnce) {
  for (int look = 0; look < 3; ++look) {
    for (size_t i = 0; i <= ActionRunner::kPendingMax; ++i) note("v" + std::to_string(i), Cause::kEcc);
  }
  EXPECT_EQ(left_out(), 1);
}

TEST_F(Actions, OfTooManyRunsTheOldestGoesFromDiskToo) {
  std::vector<StoredAlertRow> rows;
  for (size_t i = 0; i < ActionRunner::kRunsMax; ++i)
    rows.push_back({AlertRowKind::kAction, "cordon/old" + std::to_string(1'000 + i),
                    "{\"state\":\"dry-run\",\"at_unix_ns\":" + std::to_string(1'000 + i) + "}"});
  ASSERT_TRUE(state_->save_alert_rows(rows).ok());
  start();
  EXPECT_EQ(act("new", Cause::kEcc).state, ActionState::kDryRun);
  size_t kept = 0;
  for (const StoredAlertRow& row : *state_->alert_rows()) {
    kept += row.kind == AlertRowKind::kAction ? 1 : 0;
    EXPECT_NE(row.id, "cordon/old1000");
  }
  EXPECT_EQ(kept, ActionRunner::kRunsMax);
}

TEST_F(Actions, ACommandThatSomebodyElseCanChangeMeanwhileIsNotRun) {
  ::chmod(command_.c_str(), 0777);
  const ActionRun run = act("v1");
  EXPECT_EQ(run.state, ActionState::kFailed);
  EXPECT_NE(run.line.find("can be written by"), std::string::npos) << run.line;
  EXPECT_EQ(runs(), "");
}

TEST_F(Actions, AWebhookGetsTheVerdictOnce) {
  testing::ScriptedServer server({{"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n"}});
  actions_[0].command.clear();
  actions_[0].url = "http://" + server.address() + "/cordon?key=1";
  start();
  EXPECT_EQ(act("v1").state, ActionState::kFailed);
  EXPECT_EQ(act("v1").state, ActionState::kFailed);
  ASSERT_EQ(server.requests().size(), 1u);
  EXPECT_NE(server.requests()[0].find("POST /cordon?key=1 "), std::string::npos);
  EXPECT_NE(server.requests()[0].find("\"host\":\"node-1\""), std::string::npos);
}

}  // namespace
}  // namespace lockstep
