#include "access/token_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "access/access_counters.h"
#include "base/files.h"
#include "store/sqlite_state_store.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

constexpr const char* kAdminSecret = "an-admin-token-of-32-characters!";

class TokenStoreTest : public ::testing::Test {
 protected:
  void SetUp() override { reopen(); }
  void reopen() {
    tokens_.reset();
    state_.reset();
    Result<std::unique_ptr<StateStore>> state = open_sqlite_state_store(folder_.path() + "/state.sqlite");
    ASSERT_TRUE(state.ok());
    state_ = std::move(*state);
    Result<std::unique_ptr<TokenStore>> tokens = TokenStore::open(*state_, admin_file_, clock_, counters_);
    ASSERT_TRUE(tokens.ok()) << tokens.error();
    tokens_ = std::move(*tokens);
  }
  void write_admin_file(const std::string& content, mode_t mode = 0600) {
    admin_file_ = folder_.path() + "/admin";
    ASSERT_TRUE(write_file_atomically(admin_file_, content).ok());
    ASSERT_EQ(chmod(admin_file_.c_str(), mode), 0);
  }
  TokenMade first_admin() {
    Result<TokenMade> made = tokens_->create({.name = "root", .roles = roles_of(Role::kAdmin), .tenants = {"*"}});
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error());
    return made.ok() ? *made : TokenMade{};
  }

  testing::TemporaryFolder folder_;
  testing::FakeClock clock_;
  Counters counters_{kAccessCounters};
  std::string admin_file_;
  std::unique_ptr<StateStore> state_;
  std::unique_ptr<TokenStore> tokens_;
};

TEST_F(TokenStoreTest, ATokenIsKnownByItsSecretAndTheSecretIsNowhere) {
  const TokenMade made = first_admin();
  EXPECT_TRUE(made.secret.starts_with("lst_"));
  EXPECT_EQ(made.secret.size(), 4u + 43u);
  EXPECT_EQ(tokens_->find(made.secret)->id, made.token.id);
  EXPECT_EQ(tokens_->find(made.secret)->owner, made.token.id);
  EXPECT_FALSE(tokens_->find(made.secret + "x"));
  EXPECT_FALSE(tokens_->find(""));
  EXPECT_FALSE(tokens_->find(made.token.id));
  state_.reset();
  tokens_.reset();
  for (const char* file : {"/state.sqlite", "/state.sqlite-wal"}) {
    const Result<std::string> bytes = read_file(folder_.path() + file, 1 << 24);
    if (bytes.ok()) {
      EXPECT_EQ(bytes->find(made.secret.substr(4)), std::string::npos) << file;
    }
  }
}

TEST_F(TokenStoreTest, TokensSurviveARestartAndRevocationDoesToo) {
  const TokenMade root = first_admin();
  const Result<TokenMade> other =
      tokens_->create({.name = "farm", .roles = roles_of(Role::kIngest), .tenants = {"a", "b"}, .owner = "us"});
  ASSERT_TRUE(other.ok());
  ASSERT_TRUE(tokens_->revoke(root.token.id).ok());
  EXPECT_FALSE(tokens_->find(root.secret));
  EXPECT_FALSE(tokens_->live(root.token.id));
  reopen();
  EXPECT_FALSE(tokens_->find(root.secret));
  const std::optional<Token> found = tokens_->find(other->secret);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->roles, roles_of(Role::kIngest));
  EXPECT_EQ(found->tenants, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(found->owner, "us");
  EXPECT_TRUE(tokens_->in_use());
  EXPECT_EQ(tokens_->revoke("nope").code(), ErrorCode::kNotFound);
}

TEST_F(TokenStoreTest, TheFirstTokenMustBeAbleToMakeTheOthers) {
  EXPECT_FALSE(tokens_->in_use());
  EXPECT_FALSE(tokens_->create({.roles = roles_of(Role::kIngest), .tenants = {"*"}}).ok());
  EXPECT_FALSE(tokens_->create({.roles = roles_of(Role::kAdmin), .tenants = {"a"}}).ok());
  EXPECT_FALSE(
      tokens_
          ->create(
              {.roles = roles_of(Role::kAdmin), .tenants = {"*"}, .expires_unix_ns = clock_.unix_ns() + 1'000'000'000})
          .ok());
  EXPECT_FALSE(tokens_->in_use());
  first_admin();
  EXPECT_TRUE(tokens_->in_use());
}

TEST_F(TokenStoreTest, NobodysAccessOpensByWaitingOrByRevokingTheLast) {
  const TokenMade root = first_admin();
  const int64_t end_ns = clock_.unix_ns() + 1'000'000'000;
  const Result<TokenMade> other =
      tokens_->create({.roles = roles_of(Role::kRead), .tenants = {"*"}, .expires_unix_ns = end_ns});
  ASSERT_TRUE(other.ok());
  EXPECT_TRUE(tokens_->find(other->secret));
  clock_.advance(1'000'000'000);
  EXPECT_FALSE(tokens_->find(other->secret));
  ASSERT_TRUE(tokens_->revoke(root.token.id).ok());
  EXPECT_TRUE(tokens_->in_use());
  reopen();
  EXPECT_TRUE(tokens_->in_use());  // the expired one was not revoked
}

TEST_F(TokenStoreTest, UseIsNotedToTheMinuteAndDoesNotUndoARevocation) {
  const TokenMade root = first_admin();
  tokens_->find(root.secret);
  const int64_t used_ns = clock_.unix_ns();
  tokens_->tick();
  clock_.advance(30'000'000'000);
  tokens_->find(root.secret);
  clock_.advance(40'000'000'000);
  tokens_->tick();
  EXPECT_EQ(tokens_->list()[0].last_used_unix_ns, used_ns);
  EXPECT_EQ(state_->tokens()->at(0).last_used_unix_ns, used_ns);
  tokens_->find(root.secret);
  ASSERT_TRUE(tokens_->revoke(root.token.id).ok());
  clock_.advance(100'000'000'000);
  tokens_->tick();
  EXPECT_NE(state_->tokens()->at(0).revoked_unix_ns, 0);
}

TEST_F(TokenStoreTest, TheAdminTokenFileIsAWayInAndIsReadAgainWhenItChanges) {
  write_admin_file(std::string(kAdminSecret) + "\n");
  reopen();
  EXPECT_TRUE(tokens_->in_use());
  const std::optional<Token> admin = tokens_->find(kAdminSecret);
  ASSERT_TRUE(admin);
  EXPECT_EQ(admin->roles, kAllRoles);
  EXPECT_TRUE(admin->is_of("*"));
  EXPECT_TRUE(tokens_->live(admin->id));
  EXPECT_TRUE(tokens_->list().empty());

  write_admin_file("too short\n");
  tokens_->tick();
  EXPECT_TRUE(tokens_->find(kAdminSecret));  // the old stays
  EXPECT_EQ(counters_.value("lockstep_access_admin_token_reads_total", "result=\"refused\""), 1);
  write_admin_file("another-admin-token-of-32-chars!!");
  tokens_->tick();
  EXPECT_FALSE(tokens_->find(kAdminSecret));
  EXPECT_TRUE(tokens_->find("another-admin-token-of-32-chars!!"));
}

TEST_F(TokenStoreTest, AnAdminTokenFileThatOthersMayReadOrThatCanBeGuessedIsRefused) {
  for (const auto& [content, mode] : {std::pair{kAdminSecret, 0604}, std::pair{"short", 0600}, std::pair{"", 0600}}) {
    write_admin_file(content, static_cast<mode_t>(mode));
    const Result<std::unique_ptr<TokenStore>> tokens = TokenStore::open(*state_, admin_file_, clock_, counters_);
    ASSERT_FALSE(tokens.ok());
    EXPECT_NE(tokens.error().find("--admin-token-file"), std::string::npos);
    if (*content != '\0') {
      EXPECT_EQ(tokens.error().find(content), std::string::npos) << tokens.error();
    }
  }
  EXPECT_FALSE(TokenStore::open(*state_, folder_.path() + "/none", clock_, counters_).ok());
}

TEST_F(TokenStoreTest, OddWishesAreRefusedWithOneLine) {
  first_admin();
  const TokenWanted good{.name = "n", .roles = roles_of(Role::kRead), .tenants = {"a"}};
  TokenWanted odd = good;
  odd.roles = 0;
  EXPECT_FALSE(tokens_->create(odd).ok());
  for (const char* tenant : {"", "a b", "../x", ".x", "a/b", "A", "-a"}) {
    odd = good;
    odd.tenants = {tenant};
    EXPECT_FALSE(tokens_->create(odd).ok()) << tenant;
  }
  odd = good;
  odd.name = "two\nlines";
  EXPECT_FALSE(tokens_->create(odd).ok());
  odd = good;
  odd.expires_unix_ns = clock_.unix_ns();
  EXPECT_FALSE(tokens_->create(odd).ok());
}

TEST(RoleNames, SayWhatWasGivenAndNotWhatThatIncludes) {
  EXPECT_EQ(role_names(kAllRoles), (std::vector<std::string_view>{"ingest", "admin"}));
  EXPECT_EQ(role_names(*parse_roles("read, ingest")), (std::vector<std::string_view>{"ingest", "read"}));
  EXPECT_EQ(role_names(*parse_roles("operate,read")), (std::vector<std::string_view>{"operate"}));
  EXPECT_FALSE(parse_roles("").ok());
  EXPECT_FALSE(parse_roles("root").ok());
}

}  // namespace
}  // namespace lockstep
