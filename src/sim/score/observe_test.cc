#include "sim/score/observe.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/text.h"
#include "model/events.h"
#include "wire/otlp.h"

namespace lockstep::sim {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kStartNs = 1'000 * kSecondNs;

std::string verdict_json(const char* state, int rank, const char* layer, int lost) {
  return format(
      R"([{"id":"v","state":"%s","kind":"slow","lost":%d,"sentence":"s","culprit":{"rank":[%d],"layer":"%s","cause":"c"},)"
      R"("alternatives":[{"culprit":"rank 9"}]}])",
      state, lost, rank, layer);
}

// Steps of one rank, one a second.
NextSent steps(int64_t count) {
  auto step = std::make_shared<int64_t>(0);
  return [=]() -> std::optional<Sent> {
    if (*step == count) return std::nullopt;
    Identity identity;
    identity.job_id = "job";
    identity.rank = 0_rank;
    identity.world_size = 1;
    identity.host = "node-0";
    StepSummary summary;
    summary.step = StepNumber{*step};
    summary.duration_ns = kSecondNs;
    Sent sent;
    sent.at_unix_ns = kStartNs + *step * kSecondNs;
    ResourceGroup& group = sent.batch.groups.emplace_back();
    group.resource = to_resource(identity);
    group.logs.push_back(to_record(summary));
    ++*step;
    return sent;
  };
}

// Accuses rank 3 from the fifth request on; keeps what it was given.
struct FakeSubject : Subject {
  std::vector<std::string> given;
  std::vector<int64_t> ticks, arrivals;
  void receive(Signal signal, std::string_view otlp, int64_t now_unix_ns) override {
    EXPECT_EQ(signal, Signal::kLogs);
    EXPECT_TRUE(otlp::decode(signal, otlp).ok());
    given.emplace_back(otlp);
    arrivals.push_back(now_unix_ns);
  }
  void tick(int64_t now_unix_ns) override { ticks.push_back(now_unix_ns); }
  std::string verdicts(std::string_view job_id) override {
    EXPECT_EQ(job_id, "job");
    if (given.size() < 5) return "[]";
    return verdict_json(given.size() < 8 ? "suspected" : "confirmed", 3, "gpu", static_cast<int>(given.size()));
  }
};

TEST(Observe, SeesAVerdictAtTheFirstTickAfterTheBytesCame) {
  FakeSubject subject;
  Subject* const subjects[] = {&subject};
  const ObserveOptions options{.network_delay_ns = 100'000'000, .tick_ns = 250'000'000, .linger_ns = 2 * kSecondNs};
  const std::vector<Observed> seen = observe(steps(10), subjects, options);
  ASSERT_EQ(seen.size(), 1u);
  ASSERT_EQ(seen[0].sightings.size(), 2u);  // its numbers change at every step and are no news
  EXPECT_EQ(seen[0].sightings[0].verdict.state, VerdictState::kSuspected);
  // Ticks fall on the arrivals, before what arrives then: the fifth request is seen a tick later.
  EXPECT_EQ(seen[0].sightings[0].at_unix_ns, kStartNs + 4 * kSecondNs + 100'000'000 + 250'000'000);
  EXPECT_EQ(seen[0].sightings[0].newest_step, 4_step);
  EXPECT_EQ(seen[0].sightings[1].verdict.state, VerdictState::kConfirmed);
  EXPECT_EQ(seen[0].sightings[1].verdict.ranks, std::vector<Rank>{3_rank});
  EXPECT_EQ(seen[0].sightings[1].verdict.alternatives, std::vector<std::string>{"rank 9"});
  EXPECT_EQ(seen[0].requests, 10);
  EXPECT_EQ(seen[0].jobs.at("job").newest_step, 9_step);
  EXPECT_EQ(subject.arrivals.front(), kStartNs + 100'000'000);
  EXPECT_GE(subject.ticks.back(), subject.arrivals.back() + kSecondNs);
}

TEST(Observe, GivesEverySubjectTheSameBytes) {
  FakeSubject one, other;
  Subject* const subjects[] = {&one, &other};
  const std::vector<Observed> seen = observe(steps(6), subjects, {});
  EXPECT_EQ(one.given, other.given);
  EXPECT_EQ(one.ticks, other.ticks);
  ASSERT_EQ(seen[0].sightings.size(), seen[1].sightings.size());
}

TEST(Observe, SaysSoWhereAnAnswerCannotBeRead) {
  struct Broken : FakeSubject {
    std::string verdicts(std::string_view) override { return "<html>"; }
  } subject;
  Subject* const subjects[] = {&subject};
  const std::vector<Observed> seen = observe(steps(3), subjects, {});
  EXPECT_NE(seen[0].problem.find("not an array of verdicts"), std::string::npos);
}

TEST(Observe, EndsEarlyWhenAsked) {
  FakeSubject subject;
  Subject* const subjects[] = {&subject};
  int left = 3;
  EXPECT_EQ(observe(steps(100), subjects, {}, [&] { return --left > 0; })[0].requests, 3);
}

TEST(ReadVerdicts, ReadsAWhyAnswerAsWell) {
  const std::string why = R"({"health":"slow","verdicts":)" + verdict_json("confirmed", 7, "link", 1) + "}";
  const Result<std::vector<ReadVerdict>> read = read_verdicts(why);
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read->size(), 1u);
  EXPECT_EQ((*read)[0].layer, Layer::kLink);
  EXPECT_FALSE(read_verdicts("[{\"id\":\"a\"}]").ok());
  EXPECT_FALSE(read_verdicts("{}").ok());
}

}  // namespace
}  // namespace lockstep::sim
