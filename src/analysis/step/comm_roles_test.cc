#include "analysis/step/comm_roles.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace lockstep {
namespace {

// tp 2 x dp 2 x pp 2, rank = pp * 4 + dp * 2 + tp, four ranks a host: what NCCL tells, and no names.
class CommRolesTest : public ::testing::Test {
 protected:
  CommRolesTest() {
    job_.job_id = "job";
    job_.world_size = 8;
    for (Rank rank : all_ranks(8)) {
      RankInfo info;
      info.identity = {
          "job", 0, rank, 8, rank % 4, format("node-%d", rank.value() / 4), format("GPU-%d", rank.value())};
      job_.ranks.push_back(info);
    }
    for (int32_t other = 0; other < 4; ++other) {
      add(CommId{0x10 + static_cast<uint64_t>(other)}, {Rank{other * 2}, Rank{other * 2 + 1}}, 1);  // tp
      const Rank first{other / 2 * 4 + other % 2};
      add(CommId{0x20 + static_cast<uint64_t>(other)}, {first, first + 2}, 1);              // dp
      add(CommId{0x30 + static_cast<uint64_t>(other)}, {Rank{other}, Rank{other + 4}}, 2);  // pp
      uses_[CommId{0x10 + static_cast<uint64_t>(other)}] = {.collectives = 96, .collective_bytes = 1000};
      uses_[CommId{0x20 + static_cast<uint64_t>(other)}] = {.collectives = 4, .collective_bytes = 90'000};
      uses_[CommId{0x30 + static_cast<uint64_t>(other)}] = {.messages = 8, .peers = 1};
    }
    add(CommId{0x40}, {0_rank, 1_rank, 2_rank, 3_rank, 4_rank, 5_rank, 6_rank, 7_rank}, 2);
  }
  void add(CommId comm_id, const std::vector<Rank>& ranks, int32_t nodes, std::string name = "") {
    for (size_t i = 0; i < ranks.size(); ++i) {
      job_.ranks[index_of(ranks[i])].comms.push_back(
          {comm_id, static_cast<int32_t>(ranks.size()), static_cast<int32_t>(i), nodes, name});
    }
  }
  CommRoles roles() const { return CommRoles::of(job_, uses_); }
  JobInfo job_;
  std::map<CommId, CommUse> uses_;
};

TEST_F(CommRolesTest, AreInferredFromShapeAndUse) {
  const CommRoles made = roles();
  for (uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(made.find(CommId{0x10 + i})->kind, CommKind::kTp) << i;
    EXPECT_EQ(made.find(CommId{0x20 + i})->kind, CommKind::kDp) << i;
    EXPECT_EQ(made.find(CommId{0x30 + i})->kind, CommKind::kPp) << i;
    EXPECT_FALSE(made.find(CommId{0x10 + i})->reported);
    EXPECT_EQ(made.find(CommId{0x10 + i})->index, static_cast<int32_t>(i));
  }
  EXPECT_EQ(made.find(CommId{0x40})->kind, CommKind::kWorld);
  EXPECT_EQ(made.find(CommId{0x21})->label(), "dp");
  EXPECT_EQ(made.find(CommId{0x21})->members, (std::vector<Rank>{1_rank, 3_rank}));
  EXPECT_EQ(made.find(CommId{0x99}), nullptr);
}

TEST_F(CommRolesTest, AreWhatTheFrameworkToldWhereMembersAreTheSame) {
  for (RankInfo& rank : job_.ranks) {
    const Rank first = rank.identity.rank - rank.identity.rank % 2;
    rank.groups.push_back({"a description", {first, first + 1}});
    rank.groups.push_back({"mesh_ep", {first + 1, first}});  // in another order
  }
  const CommRoles made = roles();
  EXPECT_EQ(made.find(CommId{0x12})->kind, CommKind::kEp);
  EXPECT_TRUE(made.find(CommId{0x12})->reported);
  EXPECT_EQ(made.find(CommId{0x12})->label(), "mesh_ep");
  EXPECT_FALSE(made.find(CommId{0x20})->reported);
}

TEST_F(CommRolesTest, TakeNcclsNameWhereItSaysSomething) {
  add(CommId{0x50}, {0_rank, 1_rank, 2_rank}, 1, "TENSOR_MODEL_PARALLEL_GROUP");
  add(CommId{0x51}, {4_rank, 5_rank, 6_rank}, 1, "17");
  const CommRoles made = roles();
  EXPECT_EQ(made.find(CommId{0x50})->kind, CommKind::kTp);
  EXPECT_TRUE(made.find(CommId{0x50})->reported);
  EXPECT_FALSE(made.find(CommId{0x51})->reported);
}

TEST_F(CommRolesTest, CallAnExchangeOfAllWithAllExpertParallel) {
  add(CommId{0x60}, {0_rank, 1_rank, 2_rank, 3_rank}, 1);
  uses_[CommId{0x60}] = {.messages = 64, .peers = 3};
  EXPECT_EQ(roles().find(CommId{0x60})->kind, CommKind::kEp);
}

TEST_F(CommRolesTest, SayNothingOfWhatDoesNothing) {
  uses_.clear();
  EXPECT_EQ(roles().find(CommId{0x10})->kind, CommKind::kOther);
  EXPECT_EQ(roles().find(CommId{0x10})->label(), "group");
}

TEST_F(CommRolesTest, LeaveMembersThatWereNeverHeardOfOpen) {
  job_.ranks.erase(job_.ranks.begin() + 1);
  const CommRoles made = roles();
  EXPECT_EQ(made.find(CommId{0x10})->members, (std::vector<Rank>{0_rank, kNoRank}));
  EXPECT_EQ(made.find(CommId{0x10})->rank_of(1), kNoRank);
  EXPECT_EQ(made.find(CommId{0x10})->rank_of(7), kNoRank);
}

TEST(KindOfName, KnowsTheWordsOfFrameworks) {
  EXPECT_EQ(kind_of_name("mesh_tp"), CommKind::kTp);
  EXPECT_EQ(kind_of_name("DATA_PARALLEL_GROUP_WITH_CP"), CommKind::kDp);
  EXPECT_EQ(kind_of_name("EXPERT_DATA_PARALLEL_GROUP"), CommKind::kEp);
  EXPECT_EQ(kind_of_name("default_pg"), CommKind::kWorld);
  EXPECT_EQ(kind_of_name("pipeline-3"), CommKind::kPp);
  EXPECT_EQ(kind_of_name("apple"), CommKind::kOther);
  EXPECT_EQ(kind_of_name(""), CommKind::kOther);
}

}  // namespace
}  // namespace lockstep
