#include "sources/kernel/kernel_source.h"

#include <gtest/gtest.h>

#include <map>

#include "base/clock.h"
#include "sources/kernel/kernel_metrics.h"
#include "sources/kernel/testing.h"

namespace lockstep {
namespace {

using kernel_test::kSecond;
using kernel_test::Machine;
using kernel_test::tick_at;

const char* const kXid31 = "NVRM: Xid (PCI:0000:1b:00): 31, pid=1, name=python, MMU Fault";

double value_of(const NodeReadings& out, const MetricDescriptor& metric) {
  for (const Reading& reading : out.readings) {
    if (reading.metric == &metric) return reading.value;
  }
  return -1;
}

TEST(KernelSource, ARestartDoesNotTellOldEventsAgain) {
  Machine machine;
  machine.append(machine.record(kXid31));
  NodeReadings out;
  open_kernel_source({machine.root(), machine.state()})->read(tick_at(0), out);
  EXPECT_EQ(out.events.size(), 1u);
  out = {};
  machine.append(machine.record("NVRM: Xid (PCI:0000:1b:00): 48, DBE"));
  open_kernel_source({machine.root(), machine.state()})->read(tick_at(10), out);
  ASSERT_EQ(out.events.size(), 1u);
  EXPECT_EQ(out.events[0].code, 48);
  // Without a state file they come again.
  out = {};
  open_kernel_source({machine.root(), ""})->read(tick_at(20), out);
  EXPECT_EQ(out.events.size(), 2u);
}

TEST(KernelSource, TheLogMayLieElsewhere) {
  Machine machine;
  machine.append(machine.record(kXid31));
  const std::string elsewhere = machine.root() + "/host-kmsg";
  ASSERT_TRUE(write_file_atomically(elsewhere, machine.record("NVRM: Xid (PCI:0000:1b:00): 48, DBE")).ok());
  auto source = open_kernel_source({.root = machine.root(), .state_file = "", .log = elsewhere});
  NodeReadings out;
  source->read(tick_at(0), out);
  ASSERT_EQ(out.events.size(), 1u);
  EXPECT_EQ(out.events[0].code, 48);
  EXPECT_EQ(source->check().front().found, elsewhere + " can be read");
}

TEST(KernelSource, WhatIsHeldBackWhenTheAgentStopsIsToldByTheNext) {
  Machine machine;
  OwnerTable owners;
  const std::vector<GpuEvent> no_events;
  auto source = open_kernel_source({machine.root(), machine.state()});
  NodeReadings out;
  source->read(tick_at(0, &owners, &no_events), out);
  machine.append(machine.record(kXid31, 1'001));
  source->read(tick_at(1, &owners, &no_events), out);
  EXPECT_TRUE(out.events.empty());  // waits for the driver
  source.reset();
  source = open_kernel_source({machine.root(), machine.state()});
  for (int second = 2; second < 5; ++second) source->read(tick_at(second, &owners, &no_events), out);
  EXPECT_EQ(out.events.size(), 1u);
}

TEST(KernelSource, TheLastXidIsShownForFiveMinutesAndTheCounterStays) {
  Machine machine;
  OwnerTable owners;
  owners.gpus.emplace_back().uuid = "GPU-a";
  owners.gpus.back().pci = "0000:1b:00.0";
  auto source = open_kernel_source({machine.root(), ""});
  NodeReadings out;
  source->read(tick_at(0, &owners), out);
  EXPECT_EQ(value_of(out, kGpuXidLast), 0);
  EXPECT_EQ(value_of(out, kGpuXidTotal), -1);
  machine.append(machine.record(kXid31, 1'001));
  for (double second : {1.0, 100.0, 290.0}) {
    out = {};
    source->read(tick_at(second, &owners), out);
    EXPECT_EQ(value_of(out, kGpuXidLast), 31) << second;
  }
  out = {};
  source->read(tick_at(302, &owners), out);
  EXPECT_EQ(value_of(out, kGpuXidLast), 0);
  EXPECT_EQ(value_of(out, kGpuXidTotal), 1);
}

TEST(KernelSource, SaysOnceWhatIsWrongAndWhatToDo) {
  Machine machine;
  std::filesystem::remove(machine.log());
  auto source = open_kernel_source({machine.root(), ""});
  NodeReadings out;
  for (int second = 0; second < 60; ++second) source->read(tick_at(second), out);
  ASSERT_EQ(out.notes.size(), 1u);
  EXPECT_NE(out.notes[0].find("No such file"), std::string::npos) << out.notes[0];
  std::vector<SourceCheck> checks = source->check();
  ASSERT_EQ(checks.size(), 1u);
  EXPECT_FALSE(checks[0].works);
  EXPECT_NE(checks[0].todo.find("mount the host's /dev/kmsg"), std::string::npos);
  machine.replace(machine.record("hello"));
  source->read(tick_at(100), out);
  EXPECT_TRUE(source->check()[0].works);
  EXPECT_EQ(source->check()[0].todo, "");
}

TEST(KernelSource, WithoutPermissionNamesTheCapability) {
  if (geteuid() == 0) {
    // root may read anything; a folder in its place fails as well.
    Machine machine;
    std::filesystem::remove(machine.log());
    std::filesystem::create_directory(machine.log());
    NodeReadings out;
    auto source = open_kernel_source({machine.root(), ""});
    source->read(tick_at(0), out);
    EXPECT_TRUE(out.events.empty());
    EXPECT_FALSE(source->check()[0].works);
    return;
  }
  Machine machine;
  ASSERT_EQ(chmod(machine.log().c_str(), 0), 0);
  auto source = open_kernel_source({machine.root(), ""});
  const SourceCheck check = source->check()[0];
  EXPECT_FALSE(check.works);
  EXPECT_NE(check.found.find("Permission denied"), std::string::npos);
  EXPECT_NE(check.todo.find("CAP_SYSLOG"), std::string::npos);
}

TEST(KernelSource, LinesThatAreNoRecordsAreSaidOnceAndCounted) {
  Machine machine;
  auto source = open_kernel_source({machine.root(), ""});
  NodeReadings out;
  for (int second = 0; second < 3; ++second) {
    machine.append("nonsense\n");
    source->read(tick_at(second), out);
  }
  EXPECT_EQ(out.notes.size(), 1u);
  EXPECT_EQ(out.failures, 3);
}

constexpr int kKinds = 29;

// XIDs of two GPUs in turn, of all these kinds.
std::string flood(int lines) {
  const char* words[kKinds] = {"alpha",  "bravo",   "charlie", "delta", "echo",    "foxtrot",  "golf",    "hotel",
                               "india",  "juliett", "kilo",    "lima",  "mike",    "november", "oscar",   "papa",
                               "quebec", "romeo",   "sierra",  "tango", "uniform", "victor",   "whiskey", "xray",
                               "yankee", "zulu",    "one",     "two",   "three"};
  std::string content;
  content.reserve(static_cast<size_t>(lines) * 160);
  for (int i = 0; i < lines; ++i) {
    content +=
        Machine::record_of(i,
                           format("NVRM: Xid (PCI:0000:%s:00): 13, pid=%d, name=python, Graphics SM Warp Exception on "
                                  "(GPC %d, TPC %d, SM %d): %s",
                                  i % 2 == 0 ? "1b" : "5d", 4000 + i % 8, i % 7, i % 9, i % 2, words[i % kKinds]),
                           1'000'000'000 + i);
  }
  return content;
}

double cpu_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

// Eight hundred thousand lines of 29 kinds, as a driver in trouble writes them: 29 events now, and the rest as counts.
TEST(KernelSource, AFloodBecomesAFewEvents) {
  constexpr int kLines = 800'000;
  Machine machine;
  machine.replace(flood(kLines));
  OwnerTable owners;
  for (const char* pci : {"0000:1b:00.0", "0000:5d:00.0"}) {
    owners.gpus.emplace_back().uuid = std::string("GPU-") + pci;
    owners.gpus.back().pci = pci;
  }
  auto source = open_kernel_source({machine.root(), machine.state()});
  SystemClock clock;
  const double began = cpu_seconds();
  std::vector<NodeEvent> events;
  double lines = 0;
  int64_t longest = 0;
  int ticks = 0;
  for (; lines < kLines && ticks < 100'000; ++ticks) {
    NodeReadings out;
    const int64_t before = clock.monotonic_ns();
    // The clock of the test stands nearly still: nothing is due to be told again yet.
    source->read(tick_at(ticks * 1e-6, &owners), out);
    longest = std::max(longest, clock.monotonic_ns() - before);
    lines = value_of(out, kKernelLinesTotal);
    for (NodeEvent& event : out.events) events.push_back(std::move(event));
  }
  const double seconds = cpu_seconds() - began;
  std::printf("%d lines in %d looks, %.2f s of CPU: %.0f lines/s; longest look %.1f ms\n", kLines, ticks, seconds,
              kLines / seconds, static_cast<double>(longest) / 1e6);
  EXPECT_EQ(lines, kLines);
  EXPECT_EQ(events.size(), 2u * kKinds);  // each of two GPUs has all of them
  EXPECT_GE(ticks, kLines / 20'000);
  int64_t count = 0;
  for (const NodeEvent& event : events) count += event.count;
  NodeReadings out;
  source->read(tick_at(61, &owners), out);
  EXPECT_EQ(out.events.size(), 2u * kKinds);
  for (const NodeEvent& event : out.events) count += event.count;
  EXPECT_EQ(count, kLines);
  double total = 0;
  for (const Reading& reading : out.readings) {
    if (reading.metric == &kGpuXidTotal) total += reading.value;
  }
  EXPECT_EQ(total, kLines);
  EXPECT_EQ(value_of(out, kKernelLinesLost), 0);
}

}  // namespace
}  // namespace lockstep
