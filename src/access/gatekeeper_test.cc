#include "access/gatekeeper.h"

#include <gtest/gtest.h>

#include "access/access_counters.h"
#include "access/credentials.h"
#include "base/base64.h"
#include "net/http_server.h"
#include "store/sqlite_state_store.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

using Headers = std::vector<std::pair<std::string, std::string>>;

class GatekeeperTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<StateStore>> state = open_sqlite_state_store(folder_.path() + "/state.sqlite");
    ASSERT_TRUE(state.ok());
    state_ = std::move(*state);
    Result<std::unique_ptr<TokenStore>> tokens = TokenStore::open(*state_, "", clock_, counters_);
    ASSERT_TRUE(tokens.ok());
    tokens_ = std::move(*tokens);
    sessions_.emplace(clock_, counters_);
    // "/operate" needs operate, and so on.
    gate_.emplace(
        *tokens_, *sessions_,
        [](const ServerRequest& request) {
          for (const RoleRow& row : kRoles) {
            if (request.path == "/" + std::string(row.name)) return row.role;
          }
          return request.path == "/" ? Role::kAnyone : Role::kUnset;
        },
        [](const ServerRequest&) { return "GET an endpoint"; }, clock_, counters_);
  }
  TokenMade make(const char* roles, std::vector<std::string> tenants = {"*"}, std::string owner = "") {
    Result<TokenMade> made = tokens_->create(
        {.name = "n", .roles = *parse_roles(roles), .tenants = std::move(tenants), .owner = std::move(owner)});
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error());
    return made.ok() ? *made : TokenMade{};
  }
  Admission ask(const std::string& path, Headers headers = {}, const std::string& peer = "203.0.113.9:5123") {
    ServerRequest request;
    request.method = "GET";
    request.path = path;
    request.headers = std::move(headers);
    request.peer = peer;
    return gate_->admit(request, {});
  }
  static Headers bearer(const TokenMade& token) { return {{"authorization", "Bearer " + token.secret}}; }

  testing::TemporaryFolder folder_;
  testing::FakeClock clock_;
  Counters counters_{kAccessCounters};
  std::unique_ptr<StateStore> state_;
  std::unique_ptr<TokenStore> tokens_;
  std::optional<Sessions> sessions_;
  std::optional<TokenGatekeeper> gate_;
};

TEST_F(GatekeeperTest, WithoutTokensEverybodyMayDoEverythingInTheDefaultTenant) {
  const Admission admitted = ask("/admin", {{"x-scope-orgid", "anything"}, {"authorization", "Bearer nonsense"}});
  EXPECT_EQ(admitted.refused, 0);
  EXPECT_EQ(admitted.caller.roles, kAllRoles);
  EXPECT_EQ(admitted.caller.tenant, "");
  EXPECT_EQ(admitted.caller.owner, "");
}

TEST_F(GatekeeperTest, EveryRoleIsLetInWhereItMayAndNowhereElse) {
  const TokenMade admin = make("admin"), ingest = make("ingest"), read = make("read"), operate = make("operate");
  const std::pair<const TokenMade*, std::string> kLetIn[] = {
      {&admin, "/read /operate /admin"}, {&operate, "/read /operate"}, {&read, "/read"}, {&ingest, "/ingest"}};
  for (const auto& [token, paths] : kLetIn) {
    for (const char* path : {"/ingest", "/read", "/operate", "/admin"}) {
      const Admission admitted = ask(path, bearer(*token));
      const bool is_in = (" " + paths + " ").find(" " + std::string(path) + " ") != std::string::npos;
      EXPECT_EQ(admitted.refused, is_in ? 0 : 403) << paths << " at " << path;
      EXPECT_EQ(admitted.line.find('\n'), std::string::npos);
    }
    EXPECT_EQ(ask("/", bearer(*token)).refused, 0);
    EXPECT_EQ(ask("/forgot its role", bearer(*token)).refused, 403);
  }
}

TEST_F(GatekeeperTest, WhoShowsNothingIsAskedForATokenAndMaySeeThePage) {
  make("admin");
  const Admission refused = ask("/read");
  EXPECT_EQ(refused.refused, 401);
  EXPECT_EQ(refused.headers, (Headers{{"www-authenticate", "Bearer realm=\"lockstep\""}}));
  const Admission page = ask("/");
  EXPECT_EQ(page.refused, 0);
  EXPECT_EQ(page.caller.roles, bit_of(Role::kAnyone));
  EXPECT_EQ(ask("/", {{"authorization", "Bearer wrong"}}).refused, 0);
}

TEST_F(GatekeeperTest, ATokenMayComeAsTheBearersOrAsAPassword) {
  const TokenMade token = make("admin");
  EXPECT_EQ(ask("/read", {{"authorization", "bearer  " + token.secret}}).refused, 0);
  EXPECT_EQ(ask("/read", {{"authorization", "Basic " + base64("anybody:" + token.secret)}}).refused, 0);
  for (const std::string& odd :
       {"Basic " + base64(token.secret), std::string("Basic !!!!"), token.secret, std::string("Bearer "),
        "Digest " + token.secret, "Bearer " + token.secret + "x", std::string("Bearer")})
    EXPECT_EQ(ask("/read", {{"authorization", odd}}).refused, 401) << odd;
  EXPECT_EQ(ask("/read", {{"authorization", "Bearer " + token.secret}, {"authorization", "Bearer other"}}).refused,
            401);
}

TEST_F(GatekeeperTest, ACallerEndsWithItsTokenWhetherShownOrSignedInWith) {
  const TokenMade endless = make("admin");
  const int64_t end_ns = clock_.unix_ns() + 3'600'000'000'000;
  const Result<TokenMade> made =
      tokens_->create({.name = "", .roles = roles_of(Role::kAdmin), .tenants = {"*"}, .expires_unix_ns = end_ns});
  ASSERT_TRUE(made.ok()) << made.error();
  EXPECT_EQ(ask("/read", {{"authorization", "Bearer " + made->secret}}).caller.expires_unix_ns, end_ns);
  const SignedIn signed_in = gate_->sign_in(made->secret, "127.0.0.1:1");
  EXPECT_EQ(ask("/read", {{"cookie", "lockstep_session=" + signed_in.secret}}).caller.expires_unix_ns, end_ns);
  EXPECT_EQ(ask("/read", {{"authorization", "Bearer " + endless.secret}}).caller.expires_unix_ns, 0);
}

TEST_F(GatekeeperTest, XScopeOrgIdChoosesAmongTheTokensTenantsAlone) {
  const TokenMade all = make("admin"), one = make("read", {"lab"}), two = make("read", {"a", "default"});
  const auto tenant = [&](const TokenMade& token, const std::string& wanted) {
    Headers headers = bearer(token);
    if (!wanted.empty()) headers.emplace_back("x-scope-orgid", wanted);
    const Admission admitted = ask("/read", headers);
    return admitted.refused == 0 ? "[" + admitted.caller.tenant + "]" : std::to_string(admitted.refused);
  };
  EXPECT_EQ(tenant(all, ""), "[]");
  EXPECT_EQ(tenant(all, "anything"), "[anything]");
  EXPECT_EQ(tenant(all, "default"), "[]");
  EXPECT_EQ(tenant(all, "../x"), "403");
  EXPECT_EQ(tenant(one, ""), "[lab]");
  EXPECT_EQ(tenant(one, "lab"), "[lab]");
  EXPECT_EQ(tenant(one, "a"), "403");
  EXPECT_EQ(tenant(one, "*"), "403");
  EXPECT_EQ(tenant(two, ""), "[a]");
  EXPECT_EQ(tenant(two, "default"), "[]");
}

TEST_F(GatekeeperTest, TheCallerIsNamedWithoutItsSecret) {
  make("admin");
  const TokenMade token = make("ingest", {"lab"}, "farm");
  const Caller caller = ask("/ingest", bearer(token)).caller;
  EXPECT_EQ(caller.name, "token " + token.token.id + " (n)");
  EXPECT_EQ(caller.owner, "farm");
  EXPECT_EQ(caller.tenants, (std::vector<std::string>{"lab"}));
}

TEST_F(GatekeeperTest, ASessionIsItsTokenUntilThatIsRevokedOrTheSessionEnds) {
  make("admin");
  const TokenMade token = make("operate");
  const auto cookie = [&] {
    return Headers{{"cookie", "a=b; lockstep_session=" + sessions_->begin(token.token.id, caller_of(token.token))}};
  };
  const Headers first = cookie(), second = cookie();
  const Admission admitted = ask("/operate", first);
  EXPECT_EQ(admitted.refused, 0);
  EXPECT_FALSE(admitted.caller.session.empty());
  EXPECT_EQ(ask("/admin", first).refused, 403);
  sessions_->end(admitted.caller.session);
  EXPECT_EQ(ask("/operate", first).refused, 401);
  EXPECT_EQ(ask("/operate", second).refused, 0);
  ASSERT_TRUE(tokens_->revoke(token.token.id).ok());
  EXPECT_EQ(ask("/operate", second).refused, 401);

  const TokenMade other = make("read");
  const Headers third = {{"cookie", "lockstep_session=" + sessions_->begin(other.token.id, caller_of(other.token))}};
  EXPECT_EQ(ask("/read", third).refused, 0);
  clock_.advance(kSessionNs);
  EXPECT_EQ(ask("/read", third).refused, 401);
  EXPECT_EQ(ask("/read", {{"cookie", "lockstep_session="}}).refused, 401);
}

TEST_F(GatekeeperTest, TooManyWrongTokensFromOneAddressAreToldToWaitAndRightOnesAreLetIn) {
  const TokenMade admin = make("admin");
  int unauthorized = 0;
  Admission last;
  for (int i = 0; i < FailedAttempts::kAttemptsMax + 5; ++i) {
    last = ask("/read", {{"authorization", "Bearer guess" + std::to_string(i)}});
    unauthorized += last.refused == 401 ? 1 : 0;
  }
  EXPECT_EQ(unauthorized, FailedAttempts::kAttemptsMax);
  EXPECT_EQ(last.refused, 429);
  EXPECT_EQ(last.headers, (Headers{{"retry-after", "60"}}));
  EXPECT_EQ(ask("/read", bearer(admin)).refused, 0);
  EXPECT_EQ(ask("/read", {{"authorization", "Bearer x"}}, "203.0.113.10:9").refused, 401);
  EXPECT_EQ(ask("/read").refused, 401);  // nothing shown, nothing guessed
  clock_.advance(FailedAttempts::kWindowNs);
  EXPECT_EQ(ask("/read", {{"authorization", "Bearer x"}}).refused, 401);
}

TEST(FailedAttempts, RemembersABoundedNumberOfAddressesAndOfIpv6TheNetwork) {
  FailedAttempts failed;
  for (int i = 0; i < 10'000; ++i) failed.note("10.0." + std::to_string(i / 256) + "." + std::to_string(i % 256), i);
  EXPECT_EQ(failed.addresses(), FailedAttempts::kAddressesMax);
  EXPECT_EQ(address_of_peer("203.0.113.9:80"), "203.0.113.9");
  EXPECT_EQ(address_of_peer("[::ffff:203.0.113.9]:80"), "203.0.113.9");
  EXPECT_EQ(address_of_peer("[2001:db8:1:2:3::4]:80"), address_of_peer("[2001:db8:1:2:ffff::1]:90"));
  EXPECT_NE(address_of_peer("[2001:db8:1:2::4]:80"), address_of_peer("[2001:db8:1:3::4]:80"));
}

TEST_F(GatekeeperTest, WhoIsRefusedIsARowAtOnceAndThenOneAMinuteWithHowOften) {
  make("admin");
  const TokenMade reader = make("read", {"blue"});
  EXPECT_TRUE(gate_->take_refusals().empty());
  ask("/admin", bearer(reader));
  for (int i = 0; i < 3; ++i) ask("/read");
  std::vector<AuditRow> rows = gate_->take_refusals();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].tenant, "blue");
  EXPECT_EQ(rows[0].who, "token " + reader.token.id + " (n)");
  EXPECT_EQ(rows[0].peer, "203.0.113.9");
  EXPECT_EQ(rows[0].action, "refused GET an endpoint");
  EXPECT_EQ(rows[0].object, "once");
  EXPECT_EQ(rows[0].status, 403);
  EXPECT_EQ(rows[1].tenant, "*");  // nobody's, so the operator's
  EXPECT_EQ(rows[1].who, "unknown");
  EXPECT_EQ(rows[1].object, "3 times in 1 s, the last time this");
  EXPECT_EQ(rows[1].status, 401);

  for (int i = 0; i < 59; ++i) {
    clock_.advance(1'000'000'000);
    ask("/read", {{"x-scope-orgid", "green"}, {"authorization", "Bearer " + reader.secret}}, "198.51.100.7:1");
    EXPECT_TRUE(gate_->take_refusals().empty()) << i;
  }
  clock_.advance(1'000'000'000);
  rows = gate_->take_refusals();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].object, "59 times in 59 s, the last time this");
  EXPECT_EQ(rows[0].peer, "198.51.100.7");
  EXPECT_EQ(rows[0].tenant, "blue");  // whose token it is, not what it asked for
}

TEST_F(GatekeeperTest, ASecretIsInNoRowOfWhoWasRefusedNorAnythingElseThatWasSent) {
  make("admin");
  const std::string secret = "lst_0123456789abcdef0123456789abcdef0123456789";
  ask("/read/" + secret, {{"authorization", "Bearer " + secret}, {"cookie", "lockstep_session=" + secret}});
  EXPECT_EQ(gate_->sign_in(secret, "192.0.2.1:1").admission.refused, 401);
  const std::vector<AuditRow> rows = gate_->take_refusals();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].action, "refused POST /api/session");
  for (const AuditRow& row : rows)
    EXPECT_EQ((row.who + row.peer + row.action + row.object + row.tenant).find("0123456789"), std::string::npos);
}

TEST_F(GatekeeperTest, AFloodFromManyAddressesIsAFewRowsAndHidesNoToken) {
  make("admin");
  const TokenMade reader = make("read");
  for (int i = 0; i < 5'000; ++i)
    ask("/read", {}, "10.0." + std::to_string(i / 250) + "." + std::to_string(i % 250) + ":1");
  ask("/admin", bearer(reader));
  const std::vector<AuditRow> rows = gate_->take_refusals();
  ASSERT_EQ(rows.size(), 1 + Refusals::kSourcesMax + 1);
  EXPECT_EQ(rows[0].status, 403);
  EXPECT_EQ(rows[1].peer, "other addresses");
  EXPECT_TRUE(rows[1].object.starts_with("4936 times in ")) << rows[1].object;
}

}  // namespace
}  // namespace lockstep
