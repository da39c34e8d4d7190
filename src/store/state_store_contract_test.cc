// What every StateStore promises. A new backing joins by one row in kBackings.
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <thread>

#include "base/files.h"
#include "store/sqlite_state_store.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

struct Backing {
  const char* name;
  std::function<Result<std::unique_ptr<StateStore>>(const std::string& folder)>
      open;  // the same folder: the same state
};
const Backing kBackings[] = {
    {"sqlite", [](const std::string& folder) { return open_sqlite_state_store(folder + "/state.sqlite"); }},
};

Verdict verdict_of(std::string id, std::string job_id, int64_t found_unix_ns,
                   VerdictState state = VerdictState::kConfirmed) {
  Verdict verdict;
  verdict.id = std::move(id);
  verdict.job_id = std::move(job_id);
  verdict.state = state;
  verdict.kind = VerdictKind::kSlow;
  verdict.found_unix_ns = found_unix_ns;
  verdict.sentence = "Rank 5 isn't \"fast\"; costs 12 %";
  return verdict;
}

class StateStoreContract : public ::testing::TestWithParam<Backing> {
 protected:
  std::unique_ptr<StateStore> open() {
    Result<std::unique_ptr<StateStore>> store = GetParam().open(folder_.path());
    EXPECT_TRUE(store.ok()) << (store.ok() ? "" : store.error());
    return store.ok() ? std::move(*store) : nullptr;
  }
  static std::vector<std::string> ids(const std::vector<StoredVerdict>& list) {
    std::vector<std::string> names;
    for (const StoredVerdict& verdict : list) names.push_back(verdict.id);
    return names;
  }
  testing::TemporaryFolder folder_;
};

TEST_P(StateStoreContract, ListsNewestFoundFirstOfOneJobOrOfAll) {
  auto store = open();
  ASSERT_TRUE(store->save_verdict(verdict_of("v1", "a", 100)).ok());
  ASSERT_TRUE(store->save_verdict(verdict_of("v2", "b", 300)).ok());
  ASSERT_TRUE(store->save_verdict(verdict_of("v3", "a", 200)).ok());
  EXPECT_EQ(ids(store->verdicts("")), (std::vector<std::string>{"v2", "v3", "v1"}));
  EXPECT_EQ(ids(store->verdicts("a")), (std::vector<std::string>{"v3", "v1"}));
  EXPECT_TRUE(store->verdicts("c").empty());
  StoredVerdict newest = store->verdicts("b").at(0);
  EXPECT_EQ(newest.job_id, "b");
  EXPECT_EQ(newest.state, "confirmed");
  EXPECT_EQ(newest.found_unix_ns, 300);
  EXPECT_EQ(newest.json, to_json(verdict_of("v2", "b", 300)));
}

TEST_P(StateStoreContract, FindsVerdictsByNameByTimeAndByWhatTheySay) {
  auto store = open();
  Verdict node = verdict_of("v1", "a", 100);
  node.culprit.host = "node-1";
  ASSERT_TRUE(store->save_verdict(node).ok());
  node.id = "v2";
  node.found_unix_ns = 200;
  ASSERT_TRUE(store->save_verdict(node).ok());
  ASSERT_TRUE(store->save_verdict(verdict_of("v3", "b", 300)).ok());
  EXPECT_EQ(ids(store->find_verdicts({.found_since_unix_ns = 200})), (std::vector<std::string>{"v3", "v2"}));
  EXPECT_EQ(ids(store->find_verdicts({.json_with = "\"node-1\""})), (std::vector<std::string>{"v2", "v1"}));
  EXPECT_EQ(ids(store->find_verdicts({.job_id = "a", .found_since_unix_ns = 101, .json_with = "node-"})),
            (std::vector<std::string>{"v2"}));
  EXPECT_EQ(ids(store->find_verdicts({.id = "v1"})), (std::vector<std::string>{"v1"}));
  EXPECT_TRUE(store->find_verdicts({.id = "v1", .job_id = "b"}).empty());
  EXPECT_TRUE(store->find_verdicts({.json_with = "node_1"}).empty());  // as it stands, no pattern
}

TEST_P(StateStoreContract, TheSameIdSavedAgainReplaces) {
  auto store = open();
  ASSERT_TRUE(store->save_verdict(verdict_of("v1", "a", 100)).ok());
  ASSERT_TRUE(store->save_verdict(verdict_of("v1", "a", 100, VerdictState::kCleared)).ok());
  ASSERT_EQ(store->verdicts("").size(), 1u);
  EXPECT_EQ(store->verdicts("").at(0).state, "cleared");
}

TEST_P(StateStoreContract, TakesTextAsTextWhateverIsInIt) {
  auto store = open();
  std::string odd = "x'); DROP TABLE verdicts; --\"\n";
  ASSERT_TRUE(store->save_verdict(verdict_of(odd, odd, 1)).ok());
  EXPECT_EQ(ids(store->verdicts(odd)), (std::vector<std::string>{odd}));
}

TEST_P(StateStoreContract, WhatWasSavedSurvivesACrash) {
  pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto store = open();
    for (int i = 0; i < 50; ++i) {
      if (!store->save_verdict(verdict_of("v" + std::to_string(i), "a", i)).ok()) _exit(1);
    }
    kill(getpid(), SIGKILL);  // nothing is closed
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  auto store = open();
  EXPECT_EQ(store->verdicts("a").size(), 50u);
  EXPECT_EQ(store->verdicts("a").at(0).id, "v49");
}

TEST_P(StateStoreContract, SavesAndListsFromManyThreadsAtOnce) {
  auto store = open();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        EXPECT_TRUE(store->save_verdict(verdict_of(std::to_string(t * 100 + i), "a", i)).ok());
        store->verdicts("a");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store->verdicts("").size(), 80u);
}

TEST_P(StateStoreContract, KeepsCapturesOverARestart) {
  {
    const auto store = open();
    ASSERT_TRUE(store->save_capture({"p-1", 100, "{}"}).ok());
    ASSERT_TRUE(store->save_capture({"p-2", 200, "{}"}).ok());
    ASSERT_TRUE(store->save_capture({"p-1", 100, "{\"a\":1}"}).ok());
    ASSERT_TRUE(store->save_capture({"p-3", 300, "{}"}).ok());
    ASSERT_TRUE(store->drop_capture("p-3").ok());
    ASSERT_TRUE(store->drop_capture("never there").ok());
  }
  const std::vector<StoredCapture> kept = open()->captures();
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[0].id, "p-2");
  EXPECT_EQ(kept[1].json, "{\"a\":1}");
}

TEST_P(StateStoreContract, RowsOfAlertsAreSavedTogetherAndKeptOverARestart) {
  using enum AlertRowKind;
  {
    const auto store = open();
    const StoredAlertRow first[] = {{kAlert, "a", "{}"}, {kDelivery, "a", "{\"n\":1}"}, {kSilence, "s", "{}"}};
    ASSERT_TRUE(store->save_alert_rows(first).ok());
    const StoredAlertRow second[] = {{kAlert, "a", "{\"n\":2}"}, {kDelivery, "a", ""}, {kDelivery, "none", ""}};
    ASSERT_TRUE(store->save_alert_rows(second).ok());
  }
  const Result<std::vector<StoredAlertRow>> kept = open()->alert_rows();
  ASSERT_TRUE(kept.ok());
  ASSERT_EQ(kept->size(), 2u);
  EXPECT_EQ(kept->at(0).json, "{\"n\":2}");
  EXPECT_EQ(kept->at(1).kind, kSilence);
}

TEST_P(StateStoreContract, IncidentsAreSavedTogetherAndKeptOverARestart) {
  {
    const auto store = open();
    const StoredIncident first[] = {{"i-1", "{}"}, {"i-2", "{}"}};
    ASSERT_TRUE(store->save_incidents(first).ok());
    const StoredIncident second[] = {{"i-1", "{\"n\":2}"}, {"i-2", ""}, {"none", ""}};
    ASSERT_TRUE(store->save_incidents(second).ok());
  }
  const Result<std::vector<StoredIncident>> kept = open()->incidents();
  ASSERT_TRUE(kept.ok());
  ASSERT_EQ(kept->size(), 1u);
  EXPECT_EQ(kept->at(0).json, "{\"n\":2}");
}

VerdictFeedback feedback_of(std::string id, bool right, int64_t at_unix_ns, Cause cause = Cause::kNone) {
  return {std::move(id), right, Cause::kSlowCompute, cause, "it's \"odd\"\n", at_unix_ns};
}

TEST_P(StateStoreContract, TheLastWordOnAVerdictIsKeptAndCanBeTakenBack) {
  {
    auto store = open();
    ASSERT_TRUE(store->save_feedback(feedback_of("v1", true, 100)).ok());
    ASSERT_TRUE(store->save_feedback(feedback_of("v2", true, 150)).ok());
    ASSERT_TRUE(store->save_feedback(feedback_of("v1", false, 200, Cause::kEcc)).ok());
    EXPECT_EQ(store->feedback(),
              (std::vector{feedback_of("v1", false, 200, Cause::kEcc), feedback_of("v2", true, 150)}));
    ASSERT_TRUE(store->drop_feedback("v2").ok());
    ASSERT_TRUE(store->drop_feedback("never said").ok());
  }
  EXPECT_EQ(open()->feedback(), (std::vector{feedback_of("v1", false, 200, Cause::kEcc)}));
}

TEST_P(StateStoreContract, TokensAreKeptAsTheyWereSavedLast) {
  const StoredToken first{.id = "3f9a1c20",
                          .name = "build \"farm\"",
                          .digest = std::string("\0\x01x", 3),
                          .roles = "ingest read",
                          .tenants = "*",
                          .owner = "farm",
                          .created_unix_ns = 5,
                          .expires_unix_ns = 9,
                          .revoked_unix_ns = 0,
                          .last_used_unix_ns = 7};
  StoredToken second = first;
  second.id = "a";
  second.created_unix_ns = 6;
  {
    auto store = open();
    ASSERT_TRUE(store->save_token(second).ok());
    ASSERT_TRUE(store->save_token(first).ok());
    second.revoked_unix_ns = 8;
    ASSERT_TRUE(store->save_token(second).ok());
  }
  EXPECT_EQ(*open()->tokens(), (std::vector{first, second}));
}

TEST_P(StateStoreContract, TheAuditLogIsReadNewestFirstByWhoWhatAndSinceWhen) {
  {
    auto store = open();
    for (int64_t i = 1; i <= 5; ++i) {
      const Result<int64_t> number = store->add_audit({.at_unix_ns = i * 10,
                                                       .tenant = i == 5 ? "other" : "",
                                                       .who = i % 2 == 0 ? "token even" : "token odd",
                                                       .peer = "::1",
                                                       .action = i == 3 ? "POST /api/tokens" : "GET /api/audit"});
      ASSERT_TRUE(number.ok());
      EXPECT_EQ(*number, i);
    }
    ASSERT_TRUE(store->finish_audit(3, "3f9a1c20", 200).ok());
  }
  auto store = open();
  const auto numbers = [&](const AuditFilter& filter) {
    std::vector<int64_t> list;
    const Result<std::vector<AuditRow>> rows = store->audit(filter);
    EXPECT_TRUE(rows.ok());
    for (const AuditRow& row : *rows) list.push_back(row.number);
    return list;
  };
  EXPECT_EQ(numbers({}), (std::vector<int64_t>{4, 3, 2, 1}));
  EXPECT_EQ(numbers({.tenant = "other"}), (std::vector<int64_t>{5}));
  EXPECT_EQ(numbers({.all_tenants = true, .limit = 2}), (std::vector<int64_t>{5, 4}));
  EXPECT_EQ(numbers({.who = "odd"}), (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(numbers({.since_unix_ns = 30}), (std::vector<int64_t>{4, 3}));
  EXPECT_EQ(store->audit({.action = "/api/tokens"})->at(0),
            (AuditRow{3, 30, "", "token odd", "::1", "POST /api/tokens", "3f9a1c20", 200}));
}

TEST_P(StateStoreContract, ANameHasOneOwnerInEachTenant) {
  const StoredOwner mine{"", "host", "node-1", "farm", 5}, theirs{"other", "host", "node-1", "lab", 6};
  {
    auto store = open();
    ASSERT_TRUE(store->save_owners(std::vector{mine, theirs, StoredOwner{"", "job", "node-1", "farm", 5}}).ok());
    ASSERT_TRUE(store->drop_owners(std::vector{StoredOwner{"", "job", "node-1"}}).ok());
    ASSERT_TRUE(store->save_owners(std::vector{mine}).ok());
  }
  auto owners = *open()->owners();
  std::sort(owners.begin(), owners.end(), [](const auto& a, const auto& b) { return a.tenant < b.tenant; });
  EXPECT_EQ(owners, (std::vector{mine, theirs}));
}

INSTANTIATE_TEST_SUITE_P(Backings, StateStoreContract, ::testing::ValuesIn(kBackings),
                         [](const auto& test) { return test.param.name; });

TEST(SqliteStateStore, AFileThatIsNotADatabaseIsRefusedWithOneLine) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/state.sqlite";
  ASSERT_TRUE(write_file_atomically(path, std::string(4096, 'x')).ok());
  Result<std::unique_ptr<StateStore>> store = open_sqlite_state_store(path);
  ASSERT_FALSE(store.ok());
  EXPECT_NE(store.error().find(path), std::string::npos) << store.error();
}

TEST(SqliteStateStore, RefusalsHaveRoomOfTheirOwnInTheAuditLogAndPushOutNothingElse) {
  const testing::TemporaryFolder folder;
  const std::string file = folder.path() + "/state.sqlite";
  ASSERT_TRUE((*open_sqlite_state_store(file))->add_audit({.action = "POST /api/tokens"}).ok());
  // At once: a row each by itself would take long.
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(file.c_str(), &database), SQLITE_OK);
  const std::string many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < " +
                           std::to_string(kAuditRefusalsMax + 1000) +
                           ") INSERT INTO audit(at_unix_ns, tenant, who, peer, action, object, status) SELECT i, '', "
                           "'', '', 'refused GET /api/jobs', '', 403 FROM n";
  ASSERT_EQ(sqlite3_exec(database, many.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(database);
  sqlite3_close(database);

  const std::unique_ptr<StateStore> store = open_sqlite_state_store(file).value();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(store->add_audit({.action = "POST /x refused"}).ok());
  EXPECT_EQ(store->audit({.action = "/api/tokens"})->size(), 1u);
  EXPECT_EQ(store->audit({.action = "POST /x", .limit = 1000})->size(), 100u);
  const std::vector<AuditRow> refusals = *store->audit({.action = "refused GET", .limit = 2 * kAuditRefusalsMax});
  EXPECT_EQ(refusals.size(), kAuditRefusalsMax);
  EXPECT_EQ(refusals.front().at_unix_ns, static_cast<int64_t>(kAuditRefusalsMax + 1000));  // the oldest went
}

}  // namespace
}  // namespace lockstep
