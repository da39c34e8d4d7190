#include "agent/evidence/stack_sampler.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/counters_table.h"
#include "model/rank_samples.h"
#include "testing/eventually.h"

namespace lockstep {
namespace {

// Sleeps in a function of its own; fd: readable once it does.
pid_t start(const char* const arguments[], int* out) {
  int ends[2];
  if (::pipe(ends) != 0) return -1;
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], 1);
    ::execv(arguments[0], const_cast<char* const*>(arguments));
    ::_exit(127);
  }
  ::close(ends[1]);
  *out = ends[0];
  return child;
}

class StackSamplerTest : public ::testing::Test {
 protected:
  Result<RankSamples> sampled(pid_t pid) {
    StackSampler sampler(clock_, counters_);
    EXPECT_TRUE(
        sampler.order({{.identity = {.job_id = "job", .rank = 3_rank}, .pid = pid, .owner = ::getuid()}}, 1, 100));
    std::vector<ResourceGroup> groups;
    EXPECT_TRUE(testing::eventually([&] { return !(groups = sampler.take()).empty(); }));
    EXPECT_TRUE(sampler.stop(5000));
    if (groups.empty()) return Error{"nothing came"};
    return rank_samples_from_record(groups[0].logs.at(0));
  }
  SystemClock clock_;
  Counters counters_{kAgentCounters};
};

TEST_F(StackSamplerTest, CountsWhereARealPythonSpendsItsTime) {
  const char* const arguments[] = {"/usr/bin/python3", "-c",
                                   // What is sampled sleeps.
                                   "import time\ndef load():\n    time.sleep(60)\nprint('in', flush=True)\nload()\n",
                                   nullptr};
  if (::access(arguments[0], X_OK) != 0) GTEST_SKIP() << "no /usr/bin/python3";
  int out = -1;
  const pid_t child = start(arguments, &out);
  char in[3];
  ASSERT_GT(::read(out, in, sizeof in), 0);
  Result<RankSamples> samples = sampled(child);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(out);
  ASSERT_TRUE(samples.ok()) << samples.error();
  if (samples->note.find("may not be read") != std::string::npos) GTEST_SKIP() << samples->note;
  EXPECT_EQ(samples->note, "");
  EXPECT_GE(samples->duration_ms, 900);
  EXPECT_GT(samples->looks, 5);
  ASSERT_FALSE(samples->stacks.empty());
  EXPECT_EQ(samples->frames[samples->stacks[0].frames[0]], (StackFrame{"load", "<string>", 3}));
  EXPECT_EQ(samples->threads[0].role, ThreadRole::kMain);
  EXPECT_EQ(samples->threads[0].tid, child);
  EXPECT_LT(samples->threads[0].running, samples->looks / 2 + 1) << "it sleeps";
  EXPECT_EQ(counters_.value("lockstep_agent_samples_total", "result=\"told\""), 1);
}

TEST_F(StackSamplerTest, AProcessWithoutPythonIsOneLine) {
  const char* const arguments[] = {"/bin/sleep", "60", nullptr};
  int out = -1;
  const pid_t child = start(arguments, &out);
  Result<RankSamples> samples = sampled(child);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(out);
  ASSERT_TRUE(samples.ok()) << samples.error();
  EXPECT_EQ(samples->looks, 0);
  EXPECT_EQ(samples->note, "no Python is loaded in it");
  EXPECT_EQ(counters_.value("lockstep_agent_samples_total", "result=\"failed\""), 1);
}

}  // namespace
}  // namespace lockstep
