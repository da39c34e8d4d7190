// What follows a job from one analyzer to the next.
#include "server/shared_state.h"

#include <gtest/gtest.h>

#include <map>

#include "access/token_store.h"
#include "base/clock.h"
#include "ingest/counters_table.h"
#include "server/shared_tokens.h"
#include "store/sqlite_state_store.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

struct Board final : SharedRows {
  std::map<std::string, std::string> all;
  bool is_down = false;
  Result<void> put(const std::string& tenant, std::span<const SharedRow> rows) override {
    if (is_down) return Error{"down"};
    for (const SharedRow& row : rows) {
      if (row.value.empty())
        all.erase(tenant + "/" + row.id);
      else
        all[tenant + "/" + row.id] = row.value;
    }
    return {};
  }
  std::string find(const std::string& tenant, const std::string& id) const override {
    const auto found = all.find(tenant + "/" + id);
    return found == all.end() ? "" : found->second;
  }
  uint64_t version() const override { return all.size(); }
  std::vector<SharedRow> rows(const std::string& tenant) const override {
    std::vector<SharedRow> list;
    for (const auto& [name, value] : all) {
      if (name.starts_with(tenant + "/")) list.push_back({name.substr(tenant.size() + 1), value});
    }
    return list;
  }
};

TEST(SharedState, IsSavedHereAndWhatIsAnothersNowGoesHereAlone) {
  const testing::TemporaryFolder folder;
  Board board;
  std::unique_ptr<StateStore> own = open_sqlite_state_store(folder.path() + "/state.sqlite").value();
  const std::unique_ptr<StateStore> state = share_state(std::move(own), "team", board);
  const std::vector<StoredAlertRow> rows{{AlertRowKind::kAlert, "f/1", "{1}"},
                                         {AlertRowKind::kDelivery, "hook/f/1/firing", "{2}"},
                                         {AlertRowKind::kAction, "a/v", "{3}"}};
  ASSERT_TRUE(state->save_alert_rows(rows).ok());
  const std::vector<StoredIncident> incidents{{"i-1", "{4}"}, {"i-2", "{5}"}};
  ASSERT_TRUE(state->save_incidents(incidents).ok());
  EXPECT_EQ(state->alert_rows()->size(), 3u);

  const SharedState shared = shared_state(board, "team");
  ASSERT_EQ(shared.alerts.size(), 3u);
  EXPECT_EQ(shared.alerts[0].id, "f/1");
  EXPECT_EQ(shared.alerts[1].kind, AlertRowKind::kDelivery);
  EXPECT_EQ(shared.alerts[1].id, "hook/f/1/firing");
  EXPECT_EQ(shared.alerts[1].json, "{2}");
  EXPECT_EQ(shared.incidents.size(), 2u);
  EXPECT_EQ(shared_alert(board, "team", "f/1"), "{1}");
  EXPECT_EQ(shared_alert(board, "team", "f/2"), "");
  EXPECT_TRUE(shared_state(board, "").alerts.empty()) << "another tenant's";

  const StoredAlertRow over{AlertRowKind::kDelivery, "hook/f/1/firing", ""},
      moved{AlertRowKind::kAlert, "f/1", "", true};
  ASSERT_TRUE(state->save_alert_rows({{over, moved}}).ok());
  EXPECT_EQ(state->alert_rows()->size(), 1u);
  EXPECT_EQ(shared_state(board, "team").alerts.size(), 2u) << "whoever has the job has its alert";
  const StoredIncident gone{"i-2", ""}, handed{"i-1", "", true};
  ASSERT_TRUE(state->save_incidents({{gone, handed}}).ok());
  EXPECT_TRUE(state->incidents()->empty());
  EXPECT_EQ(shared_state(board, "team").incidents.size(), 1u);

  board.is_down = true;
  EXPECT_FALSE(state->save_incidents(incidents).ok()) << "whoever saves tries again";
  EXPECT_EQ(state->incidents()->size(), 2u);
}

TEST(SharedState, RowsOfOtherKindsArePassedOver) {
  Board board;
  board.all = {{"/alert/9/x", "v"}, {"/alert/", "v"}, {"/alert/1", "v"}, {"/newer/1", "v"}, {"/incident/", "v"}};
  const SharedState shared = shared_state(board, "");
  EXPECT_TRUE(shared.alerts.empty());
  EXPECT_EQ(shared.incidents.size(), 1u);
}

TEST(SharedTokens, AreKnownEverywhereAndNobodyMakesOneWithoutTheSecret) {
  const testing::TemporaryFolder folder;
  SystemClock clock;
  Counters counters{kServerCounters};
  Board board;
  const auto process = [&](const char* name) {
    return share_state(open_sqlite_state_store(folder.path() + "/" + name).value(), "", board, "the secret of all");
  };
  const std::unique_ptr<StateStore> here = process("a"), there = process("b");
  const std::unique_ptr<TokenStore> maker = TokenStore::open(*here, "", clock, counters).value();
  const std::unique_ptr<TokenStore> other = TokenStore::open(*there, "", clock, counters).value();
  TokensHeard heard(board, "the secret of all");
  const auto hear = [&] { heard.tick([&](const std::vector<StoredToken>& rows) { other->take_over(rows); }); };
  const TokenMade made =
      maker->create({.name = "first", .roles = *parse_roles("admin"), .tenants = {"*"}, .owner = {}}).value();
  hear();
  ASSERT_TRUE(other->find(made.secret));
  EXPECT_EQ(other->find(made.secret)->name, "first");
  EXPECT_TRUE(other->in_use());
  EXPECT_EQ(there->tokens()->size(), 1u) << "it is there after a start without a broker";
  EXPECT_EQ(board.all.begin()->second.find(made.secret), std::string::npos);

  const auto signed_before = board.all;
  ASSERT_TRUE(maker->revoke(made.token.id).ok());
  board.all["/more"] = "x";  // the version is another one
  hear();
  EXPECT_FALSE(other->find(made.secret));
  other->take_over(std::vector{shared_tokens(board, "the secret of all")});
  board.all = signed_before;  // who has kept an old row
  other->take_over(std::vector{shared_tokens(board, "the secret of all")});
  EXPECT_FALSE(other->find(made.secret)) << "what is revoked stays so";

  const StoredToken forged{
      .id = "0badc0de", .name = "x", .digest = std::string(32, 'd'), .roles = "admin", .tenants = "*"};
  const SharedRow row = token_row(forged, "another secret");
  board.all = {{"/" + row.id, row.value}, {"/token/0badc0df", "no row"}, {"/token/0badc0da", std::string(80, 'f')}};
  EXPECT_TRUE(shared_tokens(board, "the secret of all").empty());
  SharedRow moved = token_row(forged, "the secret of all");
  board.all = {{"/token/0badc0df", moved.value}};
  EXPECT_TRUE(shared_tokens(board, "the secret of all").empty()) << "a row is of its own token alone";
}

}  // namespace
}  // namespace lockstep
