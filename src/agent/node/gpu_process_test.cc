// Children here are small shell scripts that play the reader, so that each way of going wrong can be had at will.
#include "agent/node/gpu_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <functional>

#include "agent/testing.h"
#include "sources/gpu/gpu_own_metrics.h"
#include "testing/eventually.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

using testing::FakeClock;
using testing::TemporaryFolder;

constexpr int64_t kMs = 1'000'000;
const char* const kReady = "echo '{\"ready\":\"a script\"}'; ";
const char* const kAnswers =
    "while read verb number rest; do "
    "echo "
    "'{\"request\":'$number',\"unix_ns\":5,\"gpus\":[{\"uuid\":\"GPU-0\",\"info\":{},\"values\":{\"hw.power\":3}}]}'; "
    "done";

bool is_there(pid_t pid) {
  return kill(pid, 0) == 0;
}

class GpuProcessTest : public ::testing::Test {
 protected:
  void use(const std::string& script) {
    options_.command = {"/bin/sh", "-c", script};
    process_.emplace(options_, clock_);
  }
  GpuReaderProcess& process() { return *process_; }
  GpuReaderState state() const { return process_->status().state; }

  // In real time, while the process's clock stands.
  bool until(const std::function<bool()>& holds) {
    return testing::eventually([&] {
      if (std::optional<GpuSnapshot> snapshot = process_->poll()) answers_.push_back(std::move(*snapshot));
      return holds();
    });
  }
  bool until(GpuReaderState wanted) {
    return until([&] { return state() == wanted; });
  }
  void pass(int64_t ms) { clock_.advance(ms * kMs); }
  NodeReadings report() {
    NodeReadings out;
    process_->report(out);
    return out;
  }
  static double value_of(const NodeReadings& out, GpuOwnMetric metric) {
    for (const Reading& reading : out.readings) {
      if (reading.metric == &own_metric(metric)) return reading.value;
    }
    return -1;
  }

  TemporaryFolder folder_;
  FakeClock clock_;
  GpuReaderOptions options_;
  std::optional<GpuReaderProcess> process_;
  std::vector<GpuSnapshot> answers_;
};

TEST_F(GpuProcessTest, AnswersWhatItIsAsked) {
  use(std::string(kReady) + kAnswers);
  process().start();
  EXPECT_EQ(state(), GpuReaderState::kStarting);
  EXPECT_FALSE(process().request({}));  // its library is not open yet
  ASSERT_TRUE(until(GpuReaderState::kRunning));
  for (size_t i = 1; i <= 3; ++i) {
    EXPECT_TRUE(process().request({}));
    ASSERT_TRUE(until([&] { return answers_.size() == i; }));
  }
  ASSERT_EQ(answers_[0].gpus.size(), 1u);
  EXPECT_EQ(answers_[0].gpus[0].values[0].value, 3);
  const NodeReadings out = report();
  EXPECT_EQ(value_of(out, GpuOwnMetric::kReaderUp), 1);
  EXPECT_EQ(value_of(out, GpuOwnMetric::kReaderHungSeconds), 0);
  EXPECT_TRUE(out.events.empty());
}

TEST_F(GpuProcessTest, HasOneRequestUnderWayAtMostAndCountsTheOthers) {
  use(std::string(kReady) + "read line; exec sleep 100");
  process().start();
  ASSERT_TRUE(until(GpuReaderState::kRunning));
  EXPECT_TRUE(process().request({}));
  EXPECT_FALSE(process().request({}));
  EXPECT_FALSE(process().request({}));
  EXPECT_EQ(process().status().skipped_requests, 2);
}

TEST_F(GpuProcessTest, AsksForEverythingFirstAndForWhatWasSkippedNext) {
  const std::string asked = folder_.path() + "/asked", go = folder_.path() + "/go";
  use(std::string(kReady) + "while read line; do echo \"$line\" >> " + asked + "; set -- $line; while [ ! -e " + go +
      " ]; do sleep 0.01; done; echo '{\"request\":'$2',\"unix_ns\":5,\"gpus\":[]}'; done");
  process().start();
  ASSERT_TRUE(until(GpuReaderState::kRunning));
  EXPECT_TRUE(process().request({}));
  EXPECT_FALSE(process().request({.slow = true}));
  ASSERT_TRUE(write_file_atomically(go, "").ok());
  for (size_t i = 1; i <= 3; ++i) {
    ASSERT_TRUE(until([&] { return answers_.size() == i; }));
    EXPECT_TRUE(process().request({}));
  }
  ASSERT_TRUE(until([&] { return answers_.size() == 4; }));
  EXPECT_EQ(*read_file(asked, 4096),
            "read 1 slow=1 processes=1\nread 2 slow=1 processes=0\nread 3 slow=0 processes=0\n"
            "read 4 slow=0 processes=0\n");
}

TEST_F(GpuProcessTest, TellsAHangAtOnceKillsAndTriesAgainWhenTheOldOneIsGone) {
  // Hangs at its first request as long as the file is not there.
  const std::string mark = folder_.path() + "/well";
  use(std::string(kReady) + "if [ ! -e " + mark + " ]; then read line; exec sleep 100; fi; " + kAnswers);
  process().start();
  ASSERT_TRUE(until(GpuReaderState::kRunning));
  const pid_t first = process().status().pid;
  process().request({});
  pass(4'999);
  process().poll();
  EXPECT_EQ(state(), GpuReaderState::kRunning);
  pass(1);
  process().poll();
  ASSERT_EQ(state(), GpuReaderState::kHung);
  NodeReadings out = report();
  ASSERT_EQ(out.events.size(), 1u);
  EXPECT_EQ(out.events[0].name, "gpu.hung");
  EXPECT_EQ(out.events[0].severity, EventSeverity::kCritical);
  EXPECT_NE(out.events[0].text.find("not answered for 5"), std::string::npos) << out.events[0].text;
  EXPECT_EQ(value_of(out, GpuOwnMetric::kReaderHungSeconds), 5);
  EXPECT_EQ(value_of(out, GpuOwnMetric::kReaderUp), 0);

  ASSERT_TRUE(until([&] { return process().status().pid < 0; }));
  EXPECT_FALSE(is_there(first));
  pass(9'999);
  process().poll();
  EXPECT_EQ(state(), GpuReaderState::kHung);
  EXPECT_EQ(value_of(report(), GpuOwnMetric::kReaderHungSeconds), 14.999);
  ASSERT_TRUE(write_file_atomically(mark, "").ok());
  pass(1);
  ASSERT_TRUE(until(GpuReaderState::kRunning));
  // It runs, but nothing was read yet.
  EXPECT_EQ(value_of(report(), GpuOwnMetric::kReaderHungSeconds), 15);
  process().request({});
  ASSERT_TRUE(until([&] { return answers_.size() == 1; }));
  out = report();
  ASSERT_EQ(out.events.size(), 1u);
  EXPECT_EQ(out.events[0].name, "gpu.answers_again");
  EXPECT_EQ(value_of(out, GpuOwnMetric::kReaderHungSeconds), 0);
}

TEST_F(GpuProcessTest, WaitsLongerEachTimeAndTellsOneHangOnce) {
  options_.pause_first_ms = 10'000;
  options_.pause_most_ms = 35'000;
  use(std::string(kReady) + "exec sleep 100");
  process().start();
  size_t reported = 0;
  for (int64_t pause_ms : {10'000, 20'000, 35'000, 35'000}) {
    ASSERT_TRUE(until(GpuReaderState::kRunning));
    process().request({});
    pass(5'000);
    process().poll();
    ASSERT_EQ(state(), GpuReaderState::kHung);
    ASSERT_TRUE(until([&] { return process().status().pid < 0; }));
    reported += report().events.size();
    pass(pause_ms - 1);
    process().poll();
    EXPECT_EQ(state(), GpuReaderState::kHung);
    pass(1);
    process().poll();
    EXPECT_EQ(state(), GpuReaderState::kStarting);
  }
  EXPECT_EQ(reported, 1u);
  EXPECT_EQ(process().status().starts, 5);
}

// A child that is stuck in the kernel cannot be had at will, but that none starts before the old one has gone can.
TEST_F(GpuProcessTest, StartsNoOtherBeforeTheOldOneIsGone) {
  use(std::string(kReady) + "exec sleep 100");
  process().start();
  ASSERT_TRUE(until(GpuReaderState::kRunning));
  process().request({});
  pass(5'000);
  const pid_t first = process().status().pid;
  process().poll();
  ASSERT_EQ(state(), GpuReaderState::kHung);
  pass(1'000'000);  // any pause is over
  ASSERT_TRUE(until([&] {
    if (process().status().starts == 1) return false;
    EXPECT_FALSE(is_there(first));
    return true;
  }));
}

TEST_F(GpuProcessTest, AHangWhileTheLibraryOpensHasMoreTime) {
  use("exec sleep 100");
  process().start();
  pass(59'999);
  process().poll();
  EXPECT_EQ(state(), GpuReaderState::kStarting);
  pass(1);
  process().poll();
  EXPECT_EQ(state(), GpuReaderState::kHung);
  const NodeReadings out = report();
  ASSERT_EQ(out.events.size(), 1u);
  EXPECT_NE(out.events[0].text.find("has not opened"), std::string::npos) << out.events[0].text;
}

TEST_F(GpuProcessTest, StartsAgainAfterACrashAndSaysWhatItWas) {
  use(std::string(kReady) + "read line; kill -SEGV $$");
  process().start();
  ASSERT_TRUE(until(GpuReaderState::kRunning));
  process().request({});
  ASSERT_TRUE(until(GpuReaderState::kFailed));
  const NodeReadings out = report();
  ASSERT_EQ(out.events.size(), 1u);
  EXPECT_EQ(out.events[0].name, "gpu.reader_failed");
  EXPECT_NE(out.events[0].text.find("signal 11"), std::string::npos) << out.events[0].text;
  EXPECT_EQ(value_of(out, GpuOwnMetric::kReaderHungSeconds), 0);
  pass(9'999);
  process().poll();
  EXPECT_EQ(state(), GpuReaderState::kFailed);
  pass(1);
  ASSERT_TRUE(until(GpuReaderState::kRunning));
  // The second time it waits twice as long.
  process().request({});
  ASSERT_TRUE(until(GpuReaderState::kFailed));
  pass(19'999);
  process().poll();
  EXPECT_EQ(state(), GpuReaderState::kFailed);
  pass(1);
  process().poll();
  EXPECT_EQ(state(), GpuReaderState::kStarting);
}

TEST_F(GpuProcessTest, AGoodStretchForgivesEarlierCrashes) {
  use(std::string(kReady) +
      "while read verb number rest; do echo '{\"request\":'$number',\"unix_ns\":5,\"gpus\":[]}'; "
      "[ $number -lt 3 ] || exit 1; done");
  process().start();
  ASSERT_TRUE(until(GpuReaderState::kRunning));
  for (size_t i = 1; i <= 3; ++i) {
    pass(30'000);
    ASSERT_TRUE(process().request({}));
    ASSERT_TRUE(until([&] { return answers_.size() == i; }));
  }
  ASSERT_TRUE(until(GpuReaderState::kFailed));
  pass(10'000);
  process().poll();
  EXPECT_EQ(state(), GpuReaderState::kStarting);
}

TEST_F(GpuProcessTest, SaysOnceThatThereIsNothingToReadAndLooksAgainEveryMinute) {
  const std::string starts = folder_.path() + "/starts";
  use("echo x >> " + starts + "; echo '{\"error\":\"nvml: no library\",\"absent\":true}'");
  process().start();
  ASSERT_TRUE(until(GpuReaderState::kAbsent));
  EXPECT_EQ(process().status().why, "nvml: no library");
  EXPECT_EQ(process().status().pid, -1);
  NodeReadings out = report();
  EXPECT_EQ(out.notes, std::vector<std::string>{"gpu reader: nvml: no library"});
  EXPECT_TRUE(out.events.empty());
  EXPECT_EQ(value_of(out, GpuOwnMetric::kReaderUp), -1);  // not there
  pass(59'999);
  process().poll();
  EXPECT_EQ(process().status().starts, 1);
  pass(1);
  process().poll();
  EXPECT_EQ(process().status().starts, 2);
  ASSERT_TRUE(until(GpuReaderState::kAbsent));
  EXPECT_TRUE(report().notes.empty());
}

TEST_F(GpuProcessTest, AnErrorThatItGivesBeforeItEndsIsTheReason) {
  use(std::string(kReady) + "read line; echo '{\"error\":\"nvml: driver gone\",\"absent\":false}'; exit 1");
  process().start();
  ASSERT_TRUE(until(GpuReaderState::kRunning));
  process().request({});
  ASSERT_TRUE(until(GpuReaderState::kFailed));
  EXPECT_EQ(process().status().why, "nvml: driver gone");
}

TEST_F(GpuProcessTest, GoesOnAfterGarbageBetweenAnswers) {
  use(std::string(kReady) + "echo hello world; echo '{\"request\":1'; " + kAnswers);
  process().start();
  ASSERT_TRUE(until(GpuReaderState::kRunning));
  process().request({});
  ASSERT_TRUE(until([&] { return answers_.size() == 1; }));
  EXPECT_EQ(process().status().refused_lines, 2);
  EXPECT_EQ(report().notes.size(), 1u);  // said once
}

TEST_F(GpuProcessTest, NothingButGarbageIsAFailureNotAHang) {
  use(std::string(kReady) + "while read line; do echo nonsense; done");
  process().start();
  ASSERT_TRUE(until(GpuReaderState::kRunning));
  process().request({});
  ASSERT_TRUE(until([&] { return process().status().refused_lines == 1; }));
  pass(5'000);
  process().poll();
  EXPECT_EQ(state(), GpuReaderState::kFailed);
  EXPECT_EQ(process().status().hung_since_unix_ns, 0);
  ASSERT_TRUE(until([&] { return process().status().pid < 0; }));
}

TEST_F(GpuProcessTest, ALineWithoutEndIsCutOff) {
  use(std::string(kReady) +
      "while true; do echo -n '0123456789012345678901234567890123456789012345678901234567890123'; done");
  process().start();
  ASSERT_TRUE(until(GpuReaderState::kFailed));
  EXPECT_NE(process().status().why.find("bytes"), std::string::npos);
  ASSERT_TRUE(until([&] { return process().status().pid < 0; }));
}

TEST_F(GpuProcessTest, AnAnswerToAnotherRequestIsNotTaken) {
  use(std::string(kReady) +
      "while read verb number rest; do echo '{\"request\":'$((number-1))',\"unix_ns\":5,\"gpus\":[]}'; "
      "echo '{\"request\":'$number',\"unix_ns\":6,\"gpus\":[]}'; done");
  process().start();
  ASSERT_TRUE(until(GpuReaderState::kRunning));
  process().request({});
  ASSERT_TRUE(until([&] { return answers_.size() == 1; }));
  EXPECT_EQ(answers_[0].unix_ns, 6);
  EXPECT_EQ(process().status().refused_lines, 1);
}

TEST_F(GpuProcessTest, DrainedNoChildIsLeftUntilItIsResumed) {
  use(std::string(kReady) + kAnswers);
  process().start();
  ASSERT_TRUE(until(GpuReaderState::kRunning));
  const pid_t pid = process().status().pid;
  process().drain();
  EXPECT_FALSE(process().request({}));
  ASSERT_TRUE(until(GpuReaderState::kDrained));  // it ends by itself: the clock stands
  EXPECT_FALSE(is_there(pid));
  EXPECT_EQ(process().status().pid, -1);
  pass(3'600'000);
  process().poll();
  EXPECT_EQ(state(), GpuReaderState::kDrained);
  process().resume();
  ASSERT_TRUE(until(GpuReaderState::kRunning));
  process().request({});
  EXPECT_TRUE(until([&] { return answers_.size() == 1; }));
}

TEST_F(GpuProcessTest, OneThatDoesNotEndWhenAskedIsKilledAfterTwoSeconds) {
  use(std::string(kReady) + "exec sleep 100");
  process().start();
  ASSERT_TRUE(until(GpuReaderState::kRunning));
  const pid_t pid = process().status().pid;
  process().drain();
  pass(1'999);
  for (int i = 0; i < 10; ++i) process().poll();
  EXPECT_EQ(state(), GpuReaderState::kDraining);
  EXPECT_TRUE(is_there(pid));
  pass(1);
  ASSERT_TRUE(until(GpuReaderState::kDrained));
  EXPECT_FALSE(is_there(pid));
}

TEST_F(GpuProcessTest, DrainedForATimeItComesBackByItself) {
  use(std::string(kReady) + kAnswers);
  process().start();
  ASSERT_TRUE(until(GpuReaderState::kRunning));
  process().drain(60'000);
  ASSERT_TRUE(until(GpuReaderState::kDrained));
  pass(59'999);
  process().poll();
  EXPECT_EQ(state(), GpuReaderState::kDrained);
  pass(1);
  EXPECT_TRUE(until(GpuReaderState::kRunning));
}

TEST_F(GpuProcessTest, ResumedWhileItDrainsItStartsAnewOnceTheOldOneIsGone) {
  use(std::string(kReady) + kAnswers);
  process().start();
  ASSERT_TRUE(until(GpuReaderState::kRunning));
  const pid_t pid = process().status().pid;
  process().drain();
  process().resume();
  ASSERT_TRUE(until(GpuReaderState::kRunning));
  EXPECT_NE(process().status().pid, pid);
  EXPECT_FALSE(is_there(pid));
}

TEST_F(GpuProcessTest, AProgramThatIsNotThereIsAFailureWithABackOff) {
  options_.command = {"/no/such/program"};
  process_.emplace(options_, clock_);
  process().start();
  EXPECT_EQ(state(), GpuReaderState::kFailed);
  EXPECT_NE(process().status().why.find("/no/such/program"), std::string::npos);
  EXPECT_EQ(report().events.size(), 1u);
  pass(10'000);
  process().poll();
  EXPECT_EQ(process().status().starts, 2);
  EXPECT_TRUE(report().events.empty());  // the same again
}

TEST_F(GpuProcessTest, StoppedItLeavesNoChild) {
  use(std::string(kReady) + "trap '' TERM; exec sleep 1000");
  process().start();
  ASSERT_TRUE(until(GpuReaderState::kRunning));
  const pid_t pid = process().status().pid;
  process().stop();
  EXPECT_FALSE(is_there(pid));
  EXPECT_EQ(state(), GpuReaderState::kStopped);
}

TEST_F(GpuProcessTest, TheChildIsNicerThanWeAndHasNoFileOfOurs) {
  // Without O_CLOEXEC, and above those that a shell takes for itself.
  const int leaked = fcntl(STDERR_FILENO, F_DUPFD, 200);
  ASSERT_GE(leaked, 200);
  const std::string seen = folder_.path() + "/seen";
  use("ls /proc/$$/fd | tr '\\n' ' ' > " + seen + "; nice >> " + seen + "; " + std::string(kReady) + kAnswers);
  process().start();
  ASSERT_TRUE(until(GpuReaderState::kRunning));
  close(leaked);
  const Result<std::string> content = read_file(seen, 4096);
  ASSERT_TRUE(content.ok());
  const std::vector<std::string_view> words = split(trim(*content), ' ');
  for (std::string_view word : words) EXPECT_NE(word, std::to_string(leaked)) << *content;
  EXPECT_GE(parse_int(words.back()).value_or(0), 5) << *content;
}

}  // namespace
}  // namespace lockstep
