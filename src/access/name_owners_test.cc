#include "access/name_owners.h"

#include <gtest/gtest.h>

#include "access/access_counters.h"
#include "access/audit_log.h"
#include "store/sqlite_state_store.h"
#include "store/testing/failing_access.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

Caller of_owner(std::string owner, std::string tenant = "") {
  Caller caller;
  caller.owner = std::move(owner);
  caller.tenant = std::move(tenant);
  return caller;
}

class NameOwnersTest : public ::testing::Test {
 protected:
  void SetUp() override { reopen(); }
  void reopen() {
    names_.reset();
    state_.reset();
    Result<std::unique_ptr<StateStore>> state = open_sqlite_state_store(folder_.path() + "/state.sqlite");
    ASSERT_TRUE(state.ok());
    state_ = std::move(*state);
    Result<std::unique_ptr<NameOwners>> names = NameOwners::open(*state_, clock_, counters_);
    ASSERT_TRUE(names.ok());
    names_ = std::move(*names);
  }
  bool may(const std::string& owner, const std::string& name, OwnedKind kind = OwnedKind::kHost,
           const std::string& tenant = "") {
    return names_->check(of_owner(owner, tenant), kind, name).ok();
  }

  testing::TemporaryFolder folder_;
  testing::FakeClock clock_;
  Counters counters_{kAccessCounters};
  std::unique_ptr<StateStore> state_;
  std::unique_ptr<NameOwners> names_;
};

TEST_F(NameOwnersTest, TheFirstToUseANameHasItAndOthersAreRefusedByName) {
  EXPECT_TRUE(may("farm", "node-1"));
  EXPECT_TRUE(may("farm", "node-1"));
  const Result<void> refused = names_->check(of_owner("lab"), OwnedKind::kHost, "node-1");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().find("host \"node-1\" belongs to another"), std::string::npos);
  EXPECT_EQ(refused.error().find("farm"), std::string::npos);
  EXPECT_TRUE(may("lab", "node-1", OwnedKind::kJob));                // another kind
  EXPECT_TRUE(may("lab", "node-1", OwnedKind::kHost, "elsewhere"));  // another tenant
  EXPECT_EQ(counters_.value("lockstep_name_owner_checks_total", "result=\"refused_owner\""), 1);
}

TEST_F(NameOwnersTest, WhoHasNoOwnerIsNotCheckedAndBindsNothing) {
  EXPECT_TRUE(may("", "node-1"));
  EXPECT_TRUE(may("farm", "node-1"));
  EXPECT_TRUE(may("", "node-1"));
  EXPECT_TRUE(may("lab", ""));
}

TEST_F(NameOwnersTest, OwnersSurviveARestart) {
  EXPECT_TRUE(may("farm", "node-1"));
  names_->tick();
  reopen();
  EXPECT_FALSE(may("lab", "node-1"));
  EXPECT_TRUE(may("farm", "node-1"));
}

TEST_F(NameOwnersTest, ATakeoverHoldsAtOnceAndAfterARestart) {
  EXPECT_EQ(names_->take_over("", OwnedKind::kHost, "node-1", "lab").code(), ErrorCode::kNotFound);
  EXPECT_TRUE(may("farm", "node-1"));
  ASSERT_TRUE(names_->take_over("", OwnedKind::kHost, "node-1", "lab").ok());
  EXPECT_FALSE(may("farm", "node-1"));
  EXPECT_TRUE(may("lab", "node-1"));
  names_->tick();
  reopen();
  EXPECT_TRUE(may("lab", "node-1"));
  EXPECT_EQ(names_->list("", 10).size(), 1u);
  EXPECT_TRUE(names_->list("elsewhere", 10).empty());
}

TEST_F(NameOwnersTest, AnOwnerHasABoundedNumberOfNamesAndIdleOnesGiveWay) {
  for (size_t i = 0; i < NameOwners::kNamesPerOwnerMax; ++i)
    ASSERT_TRUE(may("farm", "job-" + std::to_string(i), OwnedKind::kJob));
  EXPECT_FALSE(may("farm", "one more", OwnedKind::kJob));
  EXPECT_TRUE(may("lab", "one more", OwnedKind::kJob));
  clock_.advance(NameOwners::kIdleNs);
  EXPECT_TRUE(may("farm", "job-7", OwnedKind::kJob));
  EXPECT_TRUE(may("farm", "another", OwnedKind::kJob));
  EXPECT_FALSE(may("lab", "job-7", OwnedKind::kJob));
  EXPECT_TRUE(may("lab", "job-0", OwnedKind::kJob));  // it gave way
  EXPECT_FALSE(may("farm", std::string(1000, 'x')));
}

class AuditLogTest : public NameOwnersTest {};

TEST_F(AuditLogTest, ARowIsThereBeforeTheActAndHasItsResultAfterwards) {
  AuditLog log(*state_, clock_, counters_);
  Caller caller = of_owner("farm");
  caller.name = "token 3f9a1c (n)";
  const Result<int64_t> number = log.begin(caller, Role::kAdmin, "::1", "POST /api/tokens", "");
  ASSERT_TRUE(number.ok());
  EXPECT_EQ(log.read({})->at(0).status, 0);
  log.finish(*number, "id\nof a token", 200);
  const AuditRow row = log.read({})->at(0);
  EXPECT_EQ(row.who, "token 3f9a1c (n)");
  EXPECT_EQ(row.object, "id of a token");
  EXPECT_EQ(row.status, 200);
}

// A state that is full, and was read while it was not.
struct FailingState final : testing::WithFailingAccess<AccessState> {
  Result<std::vector<StoredOwner>> owners() const override { return std::vector<StoredOwner>(); }
};

TEST_F(AuditLogTest, WhereItCannotBeWrittenWhatNeedsAdminIsRefusedAndTheRestGoesOn) {
  FailingState full;
  AuditLog log(full, clock_, counters_);
  EXPECT_FALSE(log.begin({}, Role::kAdmin, "", "POST /x", "").ok());
  const Result<int64_t> operate = log.begin({}, Role::kOperate, "", "POST /x", "");
  ASSERT_TRUE(operate.ok());
  log.finish(*operate, "", 200);
  EXPECT_EQ(counters_.value("lockstep_audit_rows_total", "result=\"failed\""), 2);
}

TEST_F(NameOwnersTest, WhatCannotBeSavedHoldsInMemoryAndIsTriedAgain) {
  FailingState full;
  Result<std::unique_ptr<NameOwners>> opened = NameOwners::open(full, clock_, counters_);
  ASSERT_TRUE(opened.ok());
  NameOwners* names = opened->get();
  EXPECT_TRUE(names->check(of_owner("farm"), OwnedKind::kHost, "node-1").ok());
  names->tick();
  names->tick();
  EXPECT_FALSE(names->check(of_owner("lab"), OwnedKind::kHost, "node-1").ok());
  EXPECT_EQ(counters_.value("lockstep_name_owner_failures_total"), 2);
}

}  // namespace
}  // namespace lockstep
