// The server's side of the process that reads traces: whatever becomes of that, it is one line; and what it found is kept,
// in a folder or a bucket. The process itself is in tests/system/test_profile_analysis.py.
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "base/text.h"
#include "ingest/counters_table.h"
#include "s3/testing/fake_s3.h"
#include "server/captures/analyzer_run.h"
#include "server/captures/blob_writer.h"
#include "server/s3_blob_store.h"
#include "store/blobs/directory_blob_store.h"
#include "testing/eventually.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

using State = AnalyzerOutcome::State;

class Bytes final : public BlobReader {
 public:
  Bytes(std::string bytes, uint64_t failing_from) : bytes_(std::move(bytes)), failing_from_(failing_from) {}
  uint64_t bytes() const override { return bytes_.size(); }
  Result<std::string> read(uint64_t from, size_t bytes_max) override {
    if (from >= failing_from_) return Error{"the bucket does not answer"};
    return bytes_.substr(from, bytes_max);
  }

 private:
  const std::string bytes_;
  const uint64_t failing_from_;
};

struct Ran {
  AnalyzerOutcome outcome;
  std::string summary;
};

// script: what plays the process.
Ran run(const std::string& script, uint64_t failing_from = UINT64_MAX, const std::stop_token& stop = {}) {
  Ran ran;
  std::vector<AnalyzerInput> inputs;
  const std::string trace(3u << 20, 't');
  inputs.push_back({{17_rank, 1241, trace.size(), "rank-17.json.gz"}, std::make_unique<Bytes>(trace, failing_from)});
  ran.outcome = run_analyzer(
      {{"/bin/sh", "-c", script}, 1 << 30, 60}, std::move(inputs),
      [&ran](AnalyzerFrame frame, std::string_view bytes) -> Result<void> {
        if (frame != AnalyzerFrame::kSummary) return Error{"the disk is full"};
        ran.summary += bytes;
        return {};
      },
      stop);
  return ran;
}

TEST(AnalyzerRun, HandsOverTheTracesAndTakesWhatWasFound) {
  ::setenv("LOCKSTEP_TEST_SECRET", "key of a bucket", 1);
  const Ran ran = run(R"(read count; read line; rest=$(wc -c); text="$count $line $rest $LOCKSTEP_TEST_SECRET."
                         printf "S\\$(printf '%03o' ${#text})\\000\\000\\000%s" "$text"; printf 'D\000\000\000\000')");
  EXPECT_EQ(ran.outcome.state, State::kDone) << ran.outcome.line;
  EXPECT_EQ(ran.summary, format("1 17 1241 %d rank-17.json.gz %d .", 3 << 20, 3 << 20));
}

TEST(AnalyzerRun, SaysInOneLineHowTheProcessEnded) {
  for (const auto& [script, line] : {std::pair{"exit 3", "exit code 3"},
                                     {"kill -SEGV $$", "signal 11"},
                                     {"kill -XCPU $$", "60 s of CPU time"},
                                     {"cat > /dev/null; printf 'E\\005\\000\\000\\000a\\nbcd'", "a bcd"},
                                     {"cat > /dev/null; printf 'Z\\005\\000\\000\\000'", "a frame is none"},
                                     {"cat > /dev/null; printf 'S\\377\\377\\377\\377'", "a frame is none"},
                                     {"cat > /dev/null; printf 'S\\005\\000'", "exit code 0"}}) {
    const Ran ran = run(script);
    EXPECT_EQ(ran.outcome.state, State::kFailed) << script;
    EXPECT_NE(ran.outcome.line.find(line), std::string::npos) << ran.outcome.line;
    EXPECT_EQ(ran.outcome.line.find('\n'), std::string::npos);
  }
}

TEST(AnalyzerRun, IsTriedAgainForWhatIsNoFaultOfTheTraces) {
  EXPECT_EQ(run("cat > /dev/null", 1 << 20).outcome.line, "the bucket does not answer");
  EXPECT_EQ(run("cat > /dev/null", 1 << 20).outcome.state, State::kNotNow);
  const Ran kept = run("cat > /dev/null; printf 'T\\001\\000\\000\\000x'");
  EXPECT_EQ(kept.outcome.state, State::kNotNow);
  EXPECT_EQ(kept.outcome.line, "the disk is full");
}

TEST(AnalyzerRun, EndsWithTheServer) {
  testing::TemporaryFolder folder;
  const std::string running = folder.path() + "/running";
  std::stop_source stop;
  std::thread stopper([&] {
    EXPECT_TRUE(testing::eventually([&] { return std::filesystem::exists(running); }));
    stop.request_stop();
  });
  EXPECT_EQ(run("touch " + running + "; exec sleep 600", UINT64_MAX, stop.get_token()).outcome.state, State::kStopped);
  stopper.join();
}

class BlobWriterTest : public ::testing::Test {
 protected:
  // Written, and written once more: the second is there.
  void check_writing(BlobStore& store, size_t first_bytes) {
    const BlobKey key{"team/job", "p-0123456789ab", "analysis-timeline.bin"};
    for (const size_t bytes : {first_bytes, size_t{11}}) {
      const std::string content(bytes, bytes > 100 ? 'a' : 'b');
      Result<BlobWriter> writer = BlobWriter::begin(store, key);
      ASSERT_TRUE(writer.ok()) << writer.error();
      for (size_t at = 0; at < bytes; at += 1 << 20) {
        const Result<void> added = writer->add(std::string_view(content).substr(at, 1 << 20));
        ASSERT_TRUE(added.ok()) << added.error();
      }
      const Result<void> finished = writer->finish();
      ASSERT_TRUE(finished.ok()) << finished.error();
      const Result<std::unique_ptr<BlobReader>> reader = store.open(key);
      ASSERT_TRUE(reader.ok()) << reader.error();
      EXPECT_EQ(*(*reader)->read(0, 10 << 20), content);
    }
  }

  testing::TemporaryFolder folder_;
  testing::FakeClock clock_;
  Counters counters_{kServerCounters};
};

TEST_F(BlobWriterTest, WritesToAFolder) {
  check_writing(*open_directory_blob_store({folder_.path() + "/blobs"}, clock_, counters_).value(), 9u << 20);
}

TEST_F(BlobWriterTest, WritesToABucket) {
  s3::FakeS3 s3;
  check_writing(*open_s3_blob_store({{"kept", "fleet/default"}, s3.settings()}, clock_, counters_).value(), 2u << 20);
}

}  // namespace
}  // namespace lockstep
