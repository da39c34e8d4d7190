// Copies and deletions of metrics are bounded: whoever may ask for them may not fill the disk, or make every question
// slow, or leave a list behind that the next start cannot read.
#include <gtest/gtest.h>

#include "store/metrics/engine_world.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep::metrics {
namespace {

class MetricAdminLimits : public ::testing::Test {
 protected:
  MetricAdminLimits() {
    options_.folder = folder_.path();
    options_.background = false;
  }
  void open() {
    engine_.reset();
    Result<std::unique_ptr<MetricEngine>> engine = MetricEngine::open(options_, clock_, counters_);
    ASSERT_TRUE(engine.ok()) << engine.error();
    engine_ = std::move(*engine);
  }
  void push() { ASSERT_TRUE(TestPush().add("m", ++time_ms_, 1).to(*engine_).ok()); }
  Result<void> remove(const std::string& value) {
    return engine_->remove(std::vector{label_is("h", value)}, INT64_MIN, INT64_MAX);
  }
  int64_t refused(const char* labels) const { return counters_.value("lockstep_metric_admin_refused_total", labels); }
  size_t copies() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_.path() + "/snapshots"), {}));
  }

  testing::TemporaryFolder folder_;
  testing::FakeClock clock_{kStartNs};
  Counters counters_{kStoreCounters};
  MetricEngineOptions options_;
  std::unique_ptr<MetricEngine> engine_;
  int64_t time_ms_ = 1'800'000'000'000;
};

TEST_F(MetricAdminLimits, CopiesBeyondTheirNumberAreRefusedUntilOneIsDeleted) {
  options_.snapshots_max = 3;
  open();
  std::string name;
  for (int i = 0; i < 3; ++i) {
    push();
    Result<std::string> made = engine_->snapshot();
    ASSERT_TRUE(made.ok()) << made.error();
    name = *made;
  }
  const Result<std::string> over = engine_->snapshot();
  ASSERT_FALSE(over.ok());
  EXPECT_NE(over.error().find("holds 3 copies (limit 3); delete one there"), std::string::npos) << over.error();
  EXPECT_EQ(refused("what=\"snapshot\",reason=\"limit\""), 1);
  EXPECT_EQ(copies(), 3u);
  std::filesystem::remove_all(folder_.path() + "/snapshots/" + name);
  EXPECT_TRUE(engine_->snapshot().ok());
}

TEST_F(MetricAdminLimits, CopiesBeyondTheirBytesAreRefusedAndSharedBlocksCountOnce) {
  open();
  push();
  ASSERT_TRUE(engine_->seal().ok());
  options_.snapshot_bytes_max = engine_->disk_bytes() + 1;
  open();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(engine_->snapshot().ok());  // the same block three times
  push();
  const Result<std::string> over = engine_->snapshot();
  ASSERT_FALSE(over.ok());
  EXPECT_NE(over.error().find("would take"), std::string::npos) << over.error();
  EXPECT_EQ(refused("what=\"snapshot\",reason=\"bytes\""), 1);
  EXPECT_EQ(copies(), 3u);
}

TEST_F(MetricAdminLimits, DeletionsBeyondTheirNumberAreRefusedUntilTheyAreMergedAway) {
  options_.tombstones_max = 5;
  open();
  push();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(remove(std::to_string(i)).ok());
  const Result<void> over = remove("one too many");
  ASSERT_FALSE(over.ok());
  EXPECT_NE(over.error().find("5 deletions are not merged away yet (limit 5)"), std::string::npos) << over.error();
  EXPECT_EQ(refused("what=\"deletion\",reason=\"limit\""), 1);
  ASSERT_TRUE(engine_->clean().ok());
  EXPECT_TRUE(remove("again").ok());
}

TEST_F(MetricAdminLimits, DeletionsWhoseListCouldNotBeReadAgainAreRefused) {
  open();
  push();
  const std::string large(33u << 20, 'x');
  ASSERT_TRUE(remove(large).ok());
  const Result<void> over = remove(large);
  ASSERT_FALSE(over.ok());
  EXPECT_NE(over.error().find("(limit 67108864)"), std::string::npos) << over.error();
  EXPECT_EQ(refused("what=\"deletion\",reason=\"bytes\""), 1);
  open();  // and the next start reads it
}

}  // namespace
}  // namespace lockstep::metrics
