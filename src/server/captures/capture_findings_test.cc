// What becomes of a capture once it has ended: whose turn it is, what is kept of a failed analysis, and how often what was
// found is read. Played by a shell script instead of the process that reads traces.
#include "server/captures/capture_findings.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/text.h"
#include "ingest/counters_table.h"
#include "model/capture_results.h"
#include "server/captures/blob_writer.h"
#include "server/captures/capture_analyzer.h"
#include "store/blobs/directory_blob_store.h"
#include "store/memory_step_store.h"
#include "store/sqlite_state_store.h"
#include "store/testing/counting_blob_store.h"
#include "testing/eventually.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

using testing::eventually;

struct NoAgents final : ProfileRequestSender {
  bool ask(const std::string&, const ProfileRequest&) override { return true; }
};

class CaptureFindingsTest : public ::testing::Test {
 protected:
  // A capture that has ended, with a stored trace of its one rank.
  void add_capture(const std::string& id, SummaryState summary = SummaryState::kNone) {
    Capture capture{.order = {.job_id = "job", .capture = id, .steps = 5, .limit_s = 60, .bytes_max = 1 << 20},
                    .begun_unix_ns = begun_unix_ns_ += 1'000'000'000,
                    .by = "person"};
    capture.order.ranks = {1_rank};
    capture.order.duration_ms = 1'000;
    capture.ranks = {{.rank = 1_rank, .state = ProfileState::kDone, .key = "default/job/f"}};
    if (summary != SummaryState::kNone) capture.summary = {summary, "", 1};
    JsonWriter json;
    write_capture(json, capture);
    ASSERT_TRUE(state_->save_capture({id, capture.begun_unix_ns, json.text()}).ok());
    write(id, "rank-1.json.gz", "trace");
  }
  void write(const std::string& id, std::string_view file, std::string_view content) {
    Result<BlobWriter> writer = BlobWriter::begin(*blobs_, {"job", id, std::string(file)});
    ASSERT_TRUE(writer.ok() && writer->add(content).ok() && writer->finish().ok());
  }
  void open() { captures_.emplace(CaptureLimits{}, false, steps_, *state_, agents_, clock_, counters_); }

  testing::TemporaryFolder folder_;
  testing::FakeClock clock_;
  Counters counters_{kServerCounters};
  MemoryStepStore steps_{{}, counters_};
  std::unique_ptr<StateStore> state_ = open_sqlite_state_store(folder_.path() + "/state.sqlite").value();
  std::unique_ptr<BlobStore> blobs_ = open_directory_blob_store({folder_.path() + "/blobs"}, clock_, counters_).value();
  NoAgents agents_;
  int64_t begun_unix_ns_ = 1;
  std::optional<Captures> captures_;
};

constexpr const char* kNewer = R"({"ranks":[{"by_bound_us":{"memory":10},"by_family_us":{"copy":40}}]})";
constexpr const char* kOlder = R"({"ranks":[{"by_bound_us":{"memory":10},"by_family_us":{"copy":30}}]})";

TEST_F(CaptureFindingsTest, WhatTheNewestCaptureSaysOfKernelsIsReadOnce) {
  add_capture("p-000000000001", SummaryState::kReady);
  add_capture("p-000000000002", SummaryState::kReady);
  add_capture("p-000000000003", SummaryState::kReady);  // its files have gone
  write("p-000000000001", kSummaryFile, kOlder);
  write("p-000000000002", kSummaryFile, kNewer);
  open();
  testing::CountingBlobStore counting(*blobs_);
  CaptureKernels kernels(*captures_, counting);
  EXPECT_EQ(kernels.newest_of("job").kernel_us, 40);
  EXPECT_EQ(counting.opened, 2);
  EXPECT_EQ(kernels.newest_of("job").kernel_us, 40);
  EXPECT_EQ(counting.opened, 2) << "neither what is there nor what is not is asked for again";
  EXPECT_EQ(kernels.newest_of("another").kernel_us, 0);
}

TEST_F(CaptureFindingsTest, WhatWasAnalysedAgainIsReadAgainOrIsTheNewOneAtOnce) {
  add_capture("p-000000000001", SummaryState::kReady);
  write("p-000000000001", kSummaryFile, kOlder);
  open();
  testing::CountingBlobStore counting(*blobs_);
  CaptureKernels kernels(*captures_, counting);
  EXPECT_EQ(kernels.newest_of("job").kernel_us, 30);
  captures_->set_summary("p-000000000001", {SummaryState::kReady, "", 2});
  write("p-000000000001", kSummaryFile, kNewer);
  EXPECT_EQ(kernels.newest_of("job").kernel_us, 40);
  EXPECT_EQ(counting.opened, 2);
  captures_->set_summary("p-000000000001", {SummaryState::kReady, "", 3});
  kernels.add(*captures_->find("job", "p-000000000001"), kOlder);
  EXPECT_EQ(kernels.newest_of("job").kernel_us, 30);
  EXPECT_EQ(counting.opened, 2);
}

TEST_F(CaptureFindingsTest, AnAnswerThatIsNoneFailsAtOnceAndLeavesNothing) {
  add_capture("p-000000000001");
  open();
  AnalysisTurn turn;
  const std::string script = R"(cat > /dev/null; printf 'S\006\000\000\000{"a": '; printf 'D\000\000\000\000')";
  const CaptureAnalyzer analyzer(
      {{"/bin/sh", "-c", script}, 1 << 30, 60}, *captures_, *blobs_, turn, [](const Capture&, std::string_view) {},
      counters_);
  ASSERT_TRUE(
      eventually([&] { return captures_->find("job", "p-000000000001")->summary.state == SummaryState::kFailed; }));
  EXPECT_EQ(captures_->find("job", "p-000000000001")->summary.error, "what was found is no JSON");
  EXPECT_EQ(counters_.value("lockstep_captures_analysed_total", "result=\"again\""), 0);
  EXPECT_EQ(counters_.value("lockstep_blob_uploads", ""), 0) << "what was begun has been given up";
}

TEST_F(CaptureFindingsTest, WhatWasFoundIsHandedOnAndNotReadBack) {
  add_capture("p-000000000001");
  open();
  AnalysisTurn turn;
  testing::CountingBlobStore counting(*blobs_);
  // In two pieces, and what comes behind it is no part of it.
  const std::string script =
      R"(cat > /dev/null; printf 'S\005\000\000\000{"a":'; printf 'S\002\000\000\0001}'; printf 'T\001\000\000\000t')"
      R"(; printf 'D\000\000\000\000')";
  std::string found;
  std::atomic<bool> is_done = false;
  const CaptureAnalyzer analyzer(
      {{"/bin/sh", "-c", script}, 1 << 30, 60}, *captures_, counting, turn,
      [&](const Capture& capture, std::string_view summary) {
        found = capture.order.capture + " " + std::string(summary);
        is_done = true;
      },
      counters_);
  ASSERT_TRUE(eventually([&] { return is_done.load(); }));
  EXPECT_EQ(found, "p-000000000001 {\"a\":1}");
  EXPECT_EQ(counting.opened, 1) << "the trace";
}

TEST(AnalysisTurn, WhoeverWaitsLongestIsNext) {
  AnalysisTurn turn;
  std::stop_source stop;
  ASSERT_TRUE(turn.take(stop.get_token()));
  std::vector<int> order;
  std::thread second([&] {
    ASSERT_TRUE(turn.take(stop.get_token()));
    order.push_back(2);
    turn.give_back();
  });
  ASSERT_TRUE(eventually([&] { return turn.waiting() == 1; }));
  turn.give_back();  // and wants it again at once, as a tenant with many captures does
  ASSERT_TRUE(turn.take(stop.get_token()));
  order.push_back(1);
  turn.give_back();
  second.join();
  EXPECT_EQ(order, (std::vector<int>{2, 1}));
}

TEST(AnalysisTurn, WhoIsToldToStopWaitsNoMoreAndHoldsUpNobody) {
  AnalysisTurn turn;
  std::stop_source stop, goes_on;
  ASSERT_TRUE(turn.take(goes_on.get_token()));
  std::thread stopped([&] { EXPECT_FALSE(turn.take(stop.get_token())); });
  ASSERT_TRUE(eventually([&] { return turn.waiting() == 1; }));
  stop.request_stop();
  stopped.join();
  turn.give_back();
  EXPECT_TRUE(turn.take(goes_on.get_token()));
}

}  // namespace
}  // namespace lockstep
