#include "base/counters.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/text.h"

namespace lockstep {
namespace {

constexpr CounterDescriptor kTable[] = {
    {"test_received_total", "counter", Severity::kInfo, "Received."},
    {"test_refused_total", "counter", Severity::kDataLoss, "Refused, by reason."},
    {"test_queue", "gauge", Severity::kInfo, "Waiting now."},
};

TEST(Counters, CountPerLabelSetAndInAll) {
  Counters counters(kTable);
  counters.add("test_refused_total", "reason=\"a\"");
  counters.add("test_refused_total", "reason=\"b\"", 4);
  counters.add("test_refused_total", "reason=\"a\"", 2);
  EXPECT_EQ(counters.value("test_refused_total", "reason=\"a\""), 3);
  EXPECT_EQ(counters.value("test_refused_total", "reason=\"b\""), 4);
  EXPECT_EQ(counters.value("test_refused_total"), 0);
  EXPECT_EQ(counters.sum("test_refused_total"), 7);
  EXPECT_EQ(counters.sum("test_received_total"), 0);
}

TEST(Counters, AGaugeIsSet) {
  Counters counters(kTable);
  counters.set("test_queue", "", 5);
  counters.set("test_queue", "", 2);
  EXPECT_EQ(counters.value("test_queue"), 2);
}

TEST(Counters, AReferenceStaysValid) {
  Counters counters(kTable);
  std::atomic<int64_t>& cell = counters.at("test_received_total");
  for (int i = 0; i < 500; ++i) counters.add("test_refused_total", format("reason=\"%d\"", i));
  ++cell;
  EXPECT_EQ(counters.value("test_received_total"), 1);
}

TEST(Counters, TooManyLabelSetsAreCountedTogether) {
  Counters counters(kTable);
  for (size_t i = 0; i < Counters::kLabelSetsMax + 50; ++i)
    counters.add("test_refused_total", format("reason=\"%zu\"", i));
  EXPECT_EQ(counters.value("test_refused_total", "labels=\"other\""), 50);
  EXPECT_EQ(counters.value("test_refused_total", "reason=\"3\""), 1);
  EXPECT_EQ(counters.sum("test_refused_total"), static_cast<int64_t>(Counters::kLabelSetsMax) + 50);
}

TEST(Counters, SpeakPrometheusTextWithEveryRowOfTheTable) {
  Counters counters(kTable);
  counters.add("test_refused_total", "reason=\"a\"", 3);
  counters.set("test_queue", "", 2);
  EXPECT_EQ(counters.prometheus_text(),
            "# HELP test_received_total Received.\n# TYPE test_received_total counter\ntest_received_total 0\n"
            "# HELP test_refused_total Refused, by reason.\n# TYPE test_refused_total "
            "counter\ntest_refused_total{reason=\"a\"} 3\n"
            "# HELP test_queue Waiting now.\n# TYPE test_queue gauge\ntest_queue 2\n");
}

TEST(Counters, AReceiverHasItsFormerLabelBesideForOneVersion) {
  Counters counters(kTable);
  counters.add("test_refused_total", "receiver=\"http\",reason=\"a\"");
  EXPECT_NE(counters.prometheus_text().find("{receiver=\"http\",reason=\"a\",door=\"http\"} 1\n"), std::string::npos);
}

TEST(Counters, OneThatWasRenamedIsSaidUnderItsFormerNameToo) {
  constexpr CounterDescriptor kRenamed[] = {
      {"test_corrupt_total", "counter", Severity::kDataLoss, "Found corrupt.", "test_bad_total"},
  };
  Counters counters(kRenamed);
  counters.add("test_corrupt_total", "table=\"a\"", 2);
  EXPECT_EQ(counters.prometheus_text(),
            "# HELP test_corrupt_total Found corrupt.\n# TYPE test_corrupt_total counter\n"
            "test_corrupt_total{table=\"a\"} 2\n"
            "# HELP test_bad_total The former name of test_corrupt_total, for one version.\n"
            "# TYPE test_bad_total counter\ntest_bad_total{table=\"a\"} 2\n");
}

TEST(Counters, LoseNothingBetweenThreads) {
  Counters counters(kTable);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) counters.add("test_received_total", format("thread=\"%d\"", i % 3));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counters.sum("test_received_total"), 4000);
}

TEST(CountersDeathTest, ANameThatIsNotInTheTableEndsTheProcess) {
  Counters counters(kTable);
  EXPECT_DEATH(counters.add("test_unknown_total"), "counter test_unknown_total is not in the table");
}

}  // namespace
}  // namespace lockstep
