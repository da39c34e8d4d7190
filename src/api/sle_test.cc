// What /api/sle answers, over a ledger that the test fills.
#include <gtest/gtest.h>
#include <simdjson.h>

#include "api/routes.h"
#include "fabric/fabric.h"
#include "fabric/topology_file.h"
#include "sle/ledger.h"
#include "store/memory_span_store.h"
#include "store/memory_step_store.h"
#include "store/sle_counters.h"
#include "store/sqlite_state_store.h"
#include "store/store_counters.h"
#include "store/testing/memory_metric_reader.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

using sle::Cell;
using sle::CulpritKind;
using sle::Owner;

struct NobodyIsGuilty final : VerdictSource {
  std::vector<Verdict> verdicts(std::string_view) const override { return {}; }
  std::string summary(std::string_view) const override { return ""; }
};

class SleApi : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<StateStore>> state = open_sqlite_state_store(folder_.path() + "/state.sqlite");
    Result<std::unique_ptr<sle::Ledger>> ledger = sle::Ledger::open({}, clock_, sle_counters_);
    ASSERT_TRUE(state.ok() && ledger.ok());
    state_ = std::move(*state);
    ledger_ = std::move(*ledger);
  }
  static fabric::Declared two_leaves() {
    fabric::Declared declared;
    const Result<void> parsed = fabric::parse_topology(
        "hosts:\n- {name: node-1, gpus: 2, nics: [{device: mlx5_0, gpu: 0}, {device: mlx5_1, gpu: 1}]}\n"
        "switches:\n- {name: leaf-1, tier: leaf}\n- {name: leaf-10, tier: leaf}\n"
        "links:\n- [node-1:mlx5_0, leaf-1:p0]\n- [node-1:mlx5_1, leaf-10:p0]\n",
        "two.yaml", declared);
    EXPECT_TRUE(parsed.ok()) << (parsed.ok() ? "" : parsed.error());
    return declared;
  }
  // A minute of one GPU that is charged to the owner.
  void charge(const Owner& owner) {
    const int32_t minute = sle::minute_of(clock_.unix_ns());
    sle::JudgedMinute judged{.minute = minute, .evidence = 1};
    judged.placement = std::make_shared<sle::Placement>(
        sle::Placement{.hosts = {{0_rank, 1, "node-1"}}, .gpus = {std::string("node-1:gpu0")}});
    judged.owners = {owner};
    judged.cells[static_cast<size_t>(sle::Sle::kProgress)] = sle::all_ranks(1, Cell::degraded(1));
    ledger_->put(owner.key, judged);
  }
  simdjson::dom::element progress(const std::string& query) {
    ApiContext context{steps_, spans_, traces_, metrics_, *state_, agents_, diagnosis_, counters_, clock_, ready_, ""};
    context.sle = ledger_.get();
    context.fabric = &fabric_;
    ServerRequest request;
    request.method = "GET";
    request.path = "/api/sle/progress";
    request.query = query;
    const HttpResponse response = answer(context, request);
    EXPECT_EQ(response.status, 200) << query << ": " << response.body;
    simdjson::dom::element document;
    EXPECT_FALSE(parser_.parse(response.body).get(document)) << response.body;
    return document;
  }
  int64_t charged(const std::string& query) {
    return progress("ledger=culprit&" + query)["chosen_minutes"].get_int64().value();
  }
  int64_t degraded(const std::string& query) { return progress(query)["minutes"]["degraded"].get_int64().value(); }

  testing::TemporaryFolder folder_;
  Counters counters_{kStoreCounters};
  Counters sle_counters_{kSleCounters};
  MemoryStepStore steps_{{}, counters_};
  MemorySpanStore spans_{{}, counters_};
  MemoryMetricReader metrics_;
  std::unique_ptr<StateStore> state_;
  std::unique_ptr<sle::Ledger> ledger_;
  AgentRegistry agents_;
  NobodyIsGuilty diagnosis_;
  testing::FakeClock clock_;
  fabric::Fabric fabric_{two_leaves(), clock_};
  StepTraceCache traces_{steps_, spans_, clock_};
  std::atomic<bool> ready_{true};
  simdjson::dom::parser parser_;
};

TEST_F(SleApi, ACulpritIsThatPartAndNoneWithALongerName) {
  charge({.key = "v1", .kind = CulpritKind::kSwitch, .culprit = "leaf leaf-1", .place = "leaf:leaf-1"});
  charge({.key = "v2", .kind = CulpritKind::kSwitch, .culprit = "leaf leaf-10", .place = "leaf:leaf-10"});
  charge({.key = "v3",
          .kind = CulpritKind::kNic,
          .culprit = "network adapter mlx5_0 of node-1",
          .place = "nic:node-1:mlx5_0"});
  charge({.key = "v4",
          .kind = CulpritKind::kLink,
          .culprit = "link leaf-3:up1 - spine-1:down3",
          .place = "link:leaf-3:up1"});
  charge({.key = "v5", .kind = CulpritKind::kLink, .culprit = "link rank 1 -> rank 2"});
  EXPECT_EQ(charged("switch=leaf-1"), 1);
  EXPECT_EQ(charged("switch=leaf"), 0);
  EXPECT_EQ(charged("nic=node-1:mlx5_0"), 1);
  EXPECT_EQ(charged("nic=node-1:mlx5_1"), 0);
  EXPECT_EQ(charged("link=leaf-3:up1"), 1);
  EXPECT_EQ(charged("link=spine-1:down3"), 1);
  EXPECT_EQ(charged("link=spine-1:down"), 0);
  EXPECT_EQ(charged("link=link rank 1 -> rank 2"), 1);
}

TEST_F(SleApi, PartsThatAreAskedForTogetherMustAllHold) {
  charge({.key = "v1"});
  EXPECT_EQ(degraded("switch=leaf-1"), 1);
  EXPECT_EQ(degraded("switch=leaf-1&gpu=node-1:gpu0"), 1);
  EXPECT_EQ(degraded("switch=leaf-1&gpu=node-1:gpu1"), 0);
  EXPECT_EQ(degraded("switch=leaf-10&nic=node-1:mlx5_0"), 0);
  EXPECT_EQ(degraded("switch=leaf-1&host=node-2"), 0);
}

}  // namespace
}  // namespace lockstep
