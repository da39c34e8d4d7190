#include "base/clock_witness.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "testing/fake_clock.h"

namespace lockstep {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kHour = 3600 * kSecond;
constexpr int64_t kDay = 24 * kHour;

class ClockWitnessTest : public ::testing::Test {
 protected:
  // Everybody sends what has just happened, by the true time.
  void all_send(int senders) {
    for (int i = 0; i < senders; ++i) witness_.note(format("host-%d", i), clock_.true_unix_ns());
  }
  void expect_plain() {
    const CredibleTime now = witness_.now();
    EXPECT_EQ(now.earliest_unix_ns, clock_.unix_ns());
    EXPECT_EQ(now.latest_unix_ns, clock_.unix_ns());
    EXPECT_EQ(witness_.report().line, "");
  }
  testing::FakeClock clock_;
  ClockWitness witness_{clock_};
};

TEST_F(ClockWitnessTest, WhereAllAgreeTheServersClockIsTheTime) {
  expect_plain();
  all_send(5);
  clock_.advance(60 * kSecond);
  expect_plain();
}

TEST_F(ClockWitnessTest, OneSenderFromTheFutureMovesNothing) {
  all_send(3);
  witness_.note("host-from-the-future", clock_.true_unix_ns() + 365 * kDay);
  expect_plain();
  witness_.note("host-0", clock_.true_unix_ns() + 365 * kDay);  // nor two of four
  expect_plain();
}

TEST_F(ClockWitnessTest, ASenderAloneIsNoMajority) {
  witness_.note("only", clock_.true_unix_ns() + 30 * kDay);
  witness_.note("only", clock_.true_unix_ns() + 30 * kDay);
  expect_plain();
}

TEST_F(ClockWitnessTest, SendersThatDisagreeAmongEachOtherSayNothing) {
  for (int i = 0; i < 9; ++i) witness_.note(format("liar-%d", i), clock_.true_unix_ns() + (i + 1) * 30 * kDay);
  expect_plain();
}

TEST_F(ClockWitnessTest, ThatTheServerIsBehindIsSaidByMostSendersAndWidensWhatIsCredible) {
  clock_.set_ahead(-30 * kDay);
  ClockWitness witness(clock_);  // behind from the start: no jump is seen
  for (int i = 0; i < 3; ++i) witness.note(format("host-%d", i), clock_.true_unix_ns());
  EXPECT_EQ(witness.now().latest_unix_ns, clock_.true_unix_ns());
  EXPECT_EQ(witness.now().earliest_unix_ns, clock_.unix_ns());
  EXPECT_EQ(witness.report().senders_ns, 30 * kDay);
  EXPECT_NE(witness.report().line.find("most of 3 senders are 720 h ahead of this server's clock"), std::string::npos)
      << witness.report().line;
  clock_.set_ahead(0);  // somebody has set it
  EXPECT_EQ(witness.now().earliest_unix_ns, clock_.true_unix_ns());
  EXPECT_EQ(witness.now().latest_unix_ns, clock_.true_unix_ns());
  EXPECT_EQ(witness.report().line, "");
}

TEST_F(ClockWitnessTest, AJumpAheadIsNotBelievedWhileSendersStayWhereTheyAre) {
  all_send(3);
  clock_.set_ahead(30 * kDay);
  EXPECT_EQ(witness_.now().earliest_unix_ns, clock_.true_unix_ns());
  for (int minute = 0; minute < 180; ++minute) {  // however long it lasts
    clock_.advance(60 * kSecond);
    all_send(3);
    ASSERT_EQ(witness_.now().earliest_unix_ns, clock_.true_unix_ns());
  }
  EXPECT_NE(witness_.report().line.find("behind this server's clock"), std::string::npos) << witness_.report().line;
  clock_.set_ahead(0);
  expect_plain();
}

TEST_F(ClockWitnessTest, AJumpThatNobodySpeaksOfIsBelievedAfterAnHour) {
  clock_.set_ahead(30 * kDay);
  EXPECT_EQ(witness_.now().earliest_unix_ns, clock_.true_unix_ns());
  EXPECT_NE(witness_.report().line.find("has jumped ahead by 720 h"), std::string::npos) << witness_.report().line;
  clock_.advance(kHour - kSecond);
  EXPECT_EQ(witness_.now().earliest_unix_ns, clock_.true_unix_ns());
  clock_.advance(2 * kSecond);
  expect_plain();
}

TEST_F(ClockWitnessTest, AJumpThatGoesBackIsForgotten) {
  clock_.set_ahead(30 * kDay);
  (void)witness_.now();
  clock_.advance(kHour / 2);
  clock_.set_ahead(0);
  expect_plain();
  clock_.advance(kHour);
  clock_.set_ahead(30 * kDay);  // the hour begins anew
  EXPECT_EQ(witness_.now().earliest_unix_ns, clock_.true_unix_ns());
}

TEST_F(ClockWitnessTest, AJumpThatMostSendersAgreeWithIsBelievedAtOnce) {
  clock_.set_ahead(-3 * kDay);
  ClockWitness witness(clock_);
  for (int i = 0; i < 3; ++i) witness.note(format("host-%d", i), clock_.true_unix_ns());
  clock_.set_ahead(0);
  EXPECT_EQ(witness.now().earliest_unix_ns, clock_.unix_ns());
  EXPECT_EQ(witness.now().latest_unix_ns, clock_.unix_ns());
}

TEST_F(ClockWitnessTest, WhoDeliversWhatItKeptDoesNotPullTheTimeBack) {
  all_send(3);
  for (int i = 0; i < 3; ++i) witness_.note(format("host-%d", i), clock_.true_unix_ns() - kDay);
  expect_plain();
}

TEST_F(ClockWitnessTest, SendersThatAreNotHeardAnyMoreDoNotCount) {
  for (int i = 0; i < 3; ++i) witness_.note(format("host-%d", i), clock_.true_unix_ns() + 30 * kDay);
  EXPECT_EQ(witness_.now().latest_unix_ns, clock_.true_unix_ns() + 30 * kDay);
  clock_.advance(ClockWitness::kWindowNs + kSecond);
  expect_plain();
}

TEST_F(ClockWitnessTest, SendersAreBounded) {
  for (size_t i = 0; i < ClockWitness::kSendersMax + 100; ++i)
    witness_.note(format("host-%zu", i), clock_.true_unix_ns());
  EXPECT_EQ(witness_.report().senders, ClockWitness::kSendersMax);
  clock_.advance(ClockWitness::kWindowNs + kSecond);
  for (int i = 0; i < 5; ++i) witness_.note(format("other-%d", i), clock_.true_unix_ns());  // those before are gone
  EXPECT_EQ(witness_.report().senders, 5u);
  witness_.note("other-0", -1);  // beyond the signed range
  expect_plain();
}

TEST(RetentionPace, TakesNoMoreThanADayInAnHour) {
  RetentionPace pace;
  const int64_t oldest = 100 * kDay;
  EXPECT_EQ(pace.cutoff(137 * kDay, 7 * kDay, oldest, 0), oldest);  // a clock that has jumped by thirty days
  EXPECT_EQ(pace.cutoff(137 * kDay, 7 * kDay, oldest, kHour), oldest + kDay);
  EXPECT_EQ(pace.cutoff(137 * kDay, 7 * kDay, oldest + 3 * kDay, 2 * kHour), oldest + 2 * kDay);  // files are rare
  EXPECT_EQ(pace.cutoff(107 * kDay, 7 * kDay, oldest + 3 * kDay, 3 * kHour), oldest);             // it is back
  EXPECT_EQ(pace.cutoff(137 * kDay, 7 * kDay, oldest + 3 * kDay, 3 * kHour), oldest);
}

TEST(RetentionPace, DoesNotHoldUpWhatAgesAsTimeGoesBy) {
  RetentionPace pace;
  for (int64_t hour = 0; hour < 100; ++hour) {
    const int64_t now = 100 * kDay + hour * kHour;
    EXPECT_EQ(pace.cutoff(now, 7 * kDay, now - 7 * kDay + kHour, hour * kHour), now - 7 * kDay);
    EXPECT_EQ(pace.cutoff(now, 7 * kDay, now - 7 * kDay - kHour, hour * kHour), now - 7 * kDay);
  }
}

TEST(RetentionPace, PassesAGapThatIsLongerThanWhatIsKept) {
  RetentionPace pace;
  // Received before the clock was set at all.
  EXPECT_EQ(pace.cutoff(20'000 * kDay, 7 * kDay, 10 * kSecond, 0), 10 * kSecond);
  EXPECT_EQ(pace.cutoff(20'000 * kDay, 7 * kDay, 10 * kSecond, kSecond), 34 * kSecond);
  EXPECT_EQ(pace.cutoff(20'000 * kDay, 7 * kDay, 19'992 * kDay, 2 * kSecond), 19'992 * kDay + 24 * kSecond);
  EXPECT_EQ(pace.cutoff(20'000 * kDay, 7 * kDay, INT64_MAX, 2 * kSecond), 19'993 * kDay);
}

}  // namespace
}  // namespace lockstep
