// The whole way, from lines and numbers to what is told.
#include "sources/kernel/event_fusion.h"

#include <gtest/gtest.h>

#include <map>

#include "sources/kernel/kernel_source.h"
#include "sources/kernel/testing.h"

namespace lockstep {
namespace {

using kernel_test::kSecond;
using kernel_test::kUnix;
using kernel_test::Machine;
using kernel_test::tick_at;

constexpr const char* kGpu0 = "GPU-00000000-aaaa";
constexpr const char* kGpu1 = "GPU-11111111-bbbb";

Owner owner(const std::string& job, Rank rank) {
  Owner of;
  of.job_id = job;
  of.rank = rank;
  return of;
}

OwnerTable two_gpus() {
  OwnerTable owners;
  GpuInfo info;
  info.uuid = kGpu0;
  info.pci = "0000:1b:00.0";
  info.driver = "580.65.06";
  owners.gpus.push_back(info);
  info.uuid = kGpu1;
  info.pci = "0000:5d:00.0";
  owners.gpus.push_back(info);
  owners.processes[1234] = owner("llama", 3_rank);
  owners.by_gpu[kGpu0] = owner("llama", 2_rank);
  owners.by_gpu[kGpu1] = owner("qwen", 7_rank);
  return owners;
}

std::string xid(const std::string& pci, int code, const std::string& rest) {
  return "NVRM: Xid (PCI:" + pci + "): " + std::to_string(code) + ", " + rest;
}

class Node {
 public:
  explicit Node(bool with_driver = true) : with_driver_(with_driver) { start(); }
  void start() { source_ = open_kernel_source({machine.root(), machine.state()}); }
  void stop() { source_.reset(); }

  // `seconds`: when it was written, as for at().
  void write(const std::string& text, double seconds = 0) { machine.append(machine.record(text, 1'000 + seconds)); }
  void number(const std::string& uuid, int64_t code, double seconds = 0, const char* kind = "xid") {
    numbers_.push_back({uuid, kind, code, kUnix + static_cast<int64_t>(seconds * 1e9)});
  }
  std::vector<NodeEvent> at(double seconds) {
    out = {};
    source_->read(tick_at(seconds, &owners, with_driver_ ? &numbers_ : nullptr), out);
    numbers_.clear();
    return out.events;
  }
  // All that is told in these seconds, one tick each.
  std::vector<NodeEvent> from_to(int begin, int end) {
    std::vector<NodeEvent> all;
    for (int second = begin; second <= end; ++second) {
      for (NodeEvent& event : at(second)) all.push_back(std::move(event));
    }
    return all;
  }
  double reading(const std::string& name, const std::string& label = "", const std::string& other = "") const {
    for (const Reading& reading : out.readings) {
      if (reading.metric->name != name) continue;
      const auto has = [&](const std::string& value) {
        if (value.empty()) return true;
        for (const auto& [key, of] : *reading.labels) {
          if (of == value) return true;
        }
        return false;
      };
      if (has(label) && has(other)) return reading.value;
    }
    return -1;
  }

  Machine machine;
  OwnerTable owners = two_gpus();
  NodeReadings out;

 private:
  bool with_driver_;
  std::vector<GpuEvent> numbers_;
  std::unique_ptr<NodeSource> source_;
};

const NodeEvent* with_code(const std::vector<NodeEvent>& events, int64_t code) {
  for (const NodeEvent& event : events) {
    if (event.code == code) return &event;
  }
  return nullptr;
}

TEST(EventFusion, ALineAndItsNumberAreOneEvent) {
  Node node;
  node.write(xid("0000:1B:00", 31, "pid=1234, name=python, Ch 0000000e. MMU Fault"));
  node.number(kGpu0, 31);
  std::vector<NodeEvent> events = node.at(0);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].source, "kmsg+driver");
  EXPECT_EQ(events[0].gpu_uuid, kGpu0);
  EXPECT_EQ(events[0].device, "0000:1b:00.0");
  EXPECT_EQ(events[0].pid, 1234);
  EXPECT_EQ(events[0].process, "python");
  EXPECT_EQ(events[0].job_id, "llama");
  EXPECT_EQ(events[0].rank, 3_rank);
  EXPECT_EQ(events[0].count, 1);
  EXPECT_EQ(events[0].severity, EventSeverity::kApp);
  EXPECT_EQ(events[0].time_unix_ns, kUnix);
  EXPECT_FALSE(events[0].secondary);
  EXPECT_TRUE(node.from_to(1, 200).empty());
  EXPECT_EQ(node.reading("lockstep_gpu_xid_total", kGpu0, "31"), 1);
}

TEST(EventFusion, EitherMayComeFirstAndTheFirstWaitsOneTickAtMost) {
  for (bool line_first : {true, false}) {
    for (int gap = 0; gap <= 3; ++gap) {
      Node node;
      const auto line = [&](int second) { node.write(xid("0000:1b:00", 31, "Ch 0000000e. MMU Fault"), second); };
      const auto number = [&](int second) { node.number(kGpu0, 31, second); };
      line_first ? line(0) : number(0);
      std::vector<NodeEvent> all = gap == 0 ? std::vector<NodeEvent>() : node.from_to(0, gap - 1);
      line_first ? number(gap) : line(gap);
      EXPECT_EQ(all.size(), gap >= 2 ? 1u : 0u) << "told within two ticks, whoever is missing";
      for (NodeEvent& event : node.from_to(gap, 100)) all.push_back(event);
      ASSERT_EQ(all.size(), 1u) << line_first << " " << gap;
      EXPECT_EQ(all[0].source, gap <= 1 ? "kmsg+driver" : line_first ? "kmsg" : "driver") << line_first << " " << gap;
      EXPECT_EQ(all[0].text.empty(), !line_first && gap >= 2);
      EXPECT_EQ(node.reading("lockstep_gpu_xid_total", kGpu0, "31"), 1) << line_first << " " << gap;
    }
  }
}

TEST(EventFusion, WithoutADriverNothingWaits) {
  Node node(false);
  node.write(xid("0000:1b:00", 31, "MMU Fault"));
  EXPECT_EQ(node.at(0).size(), 1u);
}

TEST(EventFusion, WhatTheDriverAloneTellsIsToldWithItsMeaning) {
  Node node;
  node.number(kGpu1, 62);
  std::vector<NodeEvent> events = node.from_to(0, 5);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].source, "driver");
  EXPECT_EQ(events[0].job_id, "qwen");
  EXPECT_EQ(events[0].rank, 7_rank);
  EXPECT_EQ(events[0].severity, EventSeverity::kCritical);
  EXPECT_FALSE(events[0].meaning.empty());
}

TEST(EventFusion, TwoOfTheSameSecondsApartAreCountedTwice) {
  Node node;
  node.write(xid("0000:1b:00", 31, "MMU Fault"), 0);
  node.number(kGpu0, 31, 0);
  node.at(0);
  node.write(xid("0000:1b:00", 31, "MMU Fault"), 30);
  node.number(kGpu0, 31, 30);
  std::vector<NodeEvent> events = node.from_to(30, 90);
  ASSERT_EQ(events.size(), 1u);  // the second, a minute after the first
  EXPECT_EQ(events[0].count, 1);
  EXPECT_EQ(events[0].time_unix_ns, kUnix + 30 * kSecond);
  EXPECT_EQ(node.reading("lockstep_gpu_xid_total", kGpu0, "31"), 2);
}

TEST(EventFusion, AnXidOfOneGpuLeavesTheOthersAlone) {
  Node node;
  node.write(xid("0000:5d:00", 48, "DBE"));
  node.write(xid("0000:5d:00", 45, "pid=1, name=x, Ch 00000001"));
  std::vector<NodeEvent> events = node.from_to(0, 3);
  ASSERT_EQ(events.size(), 2u);
  for (const NodeEvent& event : events) EXPECT_EQ(event.gpu_uuid, kGpu1);
  EXPECT_EQ(node.reading("lockstep_gpu_xid_total", kGpu0), -1);
  EXPECT_EQ(node.reading("lockstep_gpu_xid_last", kGpu0), 0);
  EXPECT_EQ(node.reading("lockstep_gpu_xid_last", kGpu1), 45);
}

TEST(EventFusion, ThePrimaryIsTheWorstThatIsNoConsequence) {
  Node node;
  node.write(xid("0000:1b:00", 45, "pid=1234, name=python, Ch 00000008"), 0);  // may even come first
  node.write(xid("0000:1b:00", 63, "Row Remapper: New row marked for remapping"), 0.1);
  node.write(xid("0000:1b:00", 48, "An uncorrectable double bit error (DBE) has been detected"), 0.2);
  node.write(xid("0000:1b:00", 94, "pid=1234, name=python, Contained: SM (0x1)"), 0.3);
  std::vector<NodeEvent> events = node.from_to(1, 2);
  ASSERT_EQ(events.size(), 4u);
  for (const NodeEvent& event : events) EXPECT_EQ(event.secondary, event.code != 48) << event.code;
}

TEST(EventFusion, FortyFiveIsNeverPrimary) {
  Node node;
  node.write(xid("0000:1b:00", 45, "pid=1234, name=python, Ch 00000008"));
  std::vector<NodeEvent> events = node.from_to(0, 2);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_TRUE(events[0].secondary);
  EXPECT_EQ(events[0].severity, EventSeverity::kInfo);
}

TEST(EventFusion, WhatFollowsSecondsLaterIsSecondaryUnlessItIsWorse) {
  Node node;
  node.write(xid("0000:1b:00", 94, "Contained"), 0);
  ASSERT_EQ(node.from_to(0, 1).size(), 1u);
  node.write(xid("0000:1b:00", 43, "pid=1234, Ch 00000010"), 2);
  node.write(xid("0000:1b:00", 95, "Uncontained"), 3);
  std::vector<NodeEvent> events = node.from_to(2, 5);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_TRUE(with_code(events, 43)->secondary);
  EXPECT_FALSE(with_code(events, 95)->secondary);
  node.write(xid("0000:1b:00", 8, "much later"), 60);
  events = node.from_to(60, 62);
  EXPECT_FALSE(with_code(events, 8)->secondary);
}

TEST(EventFusion, TheDriversRecoveryActionRaisesThePrimary) {
  for (bool by_line : {true, false}) {
    Node node;
    node.write(xid("0000:1b:00", 94, "pid=1234, name=python, Contained"), 0);
    if (by_line) {
      node.write(xid("0000:1b:00", 154, "GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)"), 0.1);
    } else {
      node.number(kGpu0, 4, 0.1, "recovery_action");
    }
    std::vector<NodeEvent> events = node.from_to(1, 3);
    ASSERT_EQ(events.size(), 2u) << by_line;
    EXPECT_EQ(events[0].code, 94);
    EXPECT_EQ(events[0].severity, EventSeverity::kCritical);
    EXPECT_NE(events[0].action.find("then reset it"), std::string::npos) << events[0].action;
    EXPECT_FALSE(events[0].secondary);
    EXPECT_EQ(events[1].name, by_line ? "gpu.xid" : "gpu.recovery_action");
    EXPECT_EQ(events[1].severity, EventSeverity::kCritical);
    EXPECT_TRUE(events[1].secondary);
  }
}

TEST(EventFusion, ARecoveryActionThatIsToldThreeWaysIsOneEvent) {
  for (int order = 0; order < 2; ++order) {
    Node node;
    const auto line = [&](double at) {
      node.write(xid("0000:1b:00", 154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"), at);
    };
    const auto numbers = [&](double at) {
      node.number(kGpu0, 1, at, "recovery_action");
      node.number(kGpu0, 154, at);
    };
    order == 0 ? line(0) : numbers(0);
    std::vector<NodeEvent> events = node.at(0);
    order == 0 ? numbers(1) : line(1);
    for (NodeEvent& event : node.from_to(1, 10)) events.push_back(event);
    ASSERT_EQ(events.size(), 1u) << order;
    EXPECT_EQ(events[0].name, "gpu.xid");
    EXPECT_EQ(events[0].code, 154);
    EXPECT_EQ(events[0].source, "kmsg+driver");
    EXPECT_EQ(events[0].severity, EventSeverity::kCritical);
    EXPECT_FALSE(events[0].secondary);
  }
}

TEST(EventFusion, WithoutLinesThe154OfTheDriverHasTheWordsOfItsAction) {
  Node node;
  std::filesystem::remove(node.machine.log());
  node.start();
  node.number(kGpu0, 154);
  node.number(kGpu0, 2, 0, "recovery_action");
  std::vector<NodeEvent> events = node.from_to(0, 3);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].code, 154);
  EXPECT_EQ(events[0].meaning, "node reboot required");
  EXPECT_EQ(events[0].source, "driver");
}

TEST(EventFusion, AGpuThatFellOffTheBusIsOneEventHoweverOftenItIsSaid) {
  Node node;
  node.write("NVRM: GPU 0000:1b:00.0: GPU has fallen off the bus.");
  node.write(xid("0000:1b:00", 79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."));
  node.number(kGpu0, 79);
  node.number(kGpu0, 0, 0, "lost");
  std::vector<NodeEvent> events = node.from_to(0, 100);
  ASSERT_EQ(events.size(), 2u);
  const NodeEvent* off = with_code(events, 79);
  ASSERT_NE(off, nullptr);
  EXPECT_FALSE(off->secondary);
  EXPECT_EQ(off->count, 1);
  EXPECT_EQ(off->source, "kmsg+driver");
  const NodeEvent& lost = events[0].name == "gpu.lost" ? events[0] : events[1];
  EXPECT_EQ(lost.name, "gpu.lost");
  EXPECT_TRUE(lost.secondary);
  EXPECT_EQ(node.reading("lockstep_gpu_xid_total", kGpu0, "79"), 1);
}

TEST(EventFusion, AGpuThatFellOffTheBusIsOneEventAlsoWhereTheDriverWasFirst) {
  Node node;
  node.number(kGpu0, 79);
  EXPECT_TRUE(node.at(0).empty());
  node.write("NVRM: GPU 0000:1b:00.0: GPU has fallen off the bus.", 0.5);
  node.write(xid("0000:1b:00", 79, "pid=1234, name=python, GPU has fallen off the bus."), 0.6);
  std::vector<NodeEvent> events = node.from_to(1, 100);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].source, "kmsg+driver");
  EXPECT_EQ(events[0].count, 1);
  EXPECT_EQ(events[0].pid, 1234);
  EXPECT_EQ(node.reading("lockstep_gpu_xid_total", kGpu0, "79"), 1);
}

TEST(EventFusion, SeveralNumbersFindTheirDifferentLines) {
  Node node;
  for (int i = 0; i < 3; ++i) node.number(kGpu0, 13);
  EXPECT_TRUE(node.at(0).empty());
  for (const char* text : {"Illegal Address", "Misaligned Address", "Illegal Address"})
    node.write(xid("0000:1b:00", 13, text), 0.5);
  std::vector<NodeEvent> events = node.from_to(1, 100);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].count + events[1].count, 3);
  for (const NodeEvent& event : events) EXPECT_EQ(event.source, "kmsg+driver");
  EXPECT_EQ(node.reading("lockstep_gpu_xid_total", kGpu0, "13"), 3);
}

TEST(EventFusion, ManyKindsOfNumbersAreKeptApartForEver) {
  Node node;
  for (int round = 0; round < 700; ++round) {  // each becomes an entry and is merged away again
    node.number(kGpu0, 31, round * 4);
    node.at(round * 4);
    node.write(xid("0000:1b:00", 31, "MMU Fault"), round * 4 + 1);
    node.at(round * 4 + 1);
  }
  EXPECT_EQ(node.reading("lockstep_gpu_xid_total", kGpu0, "31"), 700);
  EXPECT_EQ(node.reading("lockstep_kernel_events_total", "gpu.xid"), 700);
  node.write(xid("0000:1b:00", 13, "something new"), 2'900);
  std::vector<NodeEvent> events = node.from_to(2'900, 2'902);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].meaning, "SM or graphics exception");
}

TEST(EventFusion, AGpuThatHasLeftTheRosterKeepsItsName) {
  Node node;
  node.at(0);
  node.owners.gpus.clear();
  node.write("NVRM: GPU 0000:1b:00.0: GPU has fallen off the bus.", 1);
  std::vector<NodeEvent> events = node.from_to(1, 3);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].gpu_uuid, kGpu0);
}

TEST(EventFusion, AnUnknownGpuIsNamedByItsAddressUntilItIsKnown) {
  Node node(false);
  node.owners.gpus.clear();
  node.write(xid("0000:1b:00", 48, "DBE"));
  std::vector<NodeEvent> events = node.at(0);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].gpu_uuid, "");
  EXPECT_EQ(events[0].device, "0000:1b:00.0");
  EXPECT_EQ(node.reading("lockstep_gpu_xid_total", "0000:1b:00.0", "48"), 1);
  node.write(std::string("NVRM: GPU at PCI:0000:1b:00: ") + kGpu0, 1);
  node.at(1);
  EXPECT_EQ(node.reading("lockstep_gpu_xid_total", kGpu0, "48"), 1);
}

TEST(EventFusion, RepeatsAreToldWithTheirCountAfterGrowingTimes) {
  Node node(false);
  std::vector<std::pair<int, int64_t>> reported;
  for (int second = 0; second < 3 * 3600; ++second) {
    if (second < 2 * 3600) node.write(xid("0000:1b:00", 31, "Ch 0000000" + std::to_string(second % 10)), second);
    for (const NodeEvent& event : node.at(second)) reported.emplace_back(second, event.count);
  }
  EXPECT_EQ(reported, (std::vector<std::pair<int, int64_t>>{{0, 1}, {60, 60}, {660, 600}, {4260, 3600}, {7860, 2939}}));
  EXPECT_EQ(node.reading("lockstep_gpu_xid_total", kGpu0, "31"), 7200);
  // An hour of silence, and it is news again.
  node.at(4 * 3600);
  node.write(xid("0000:1b:00", 31, "Ch 00000001"), 4 * 3600 + 1);
  EXPECT_EQ(node.at(4 * 3600 + 1).size(), 1u);
}

TEST(EventFusion, HowALinkStandsIsToldEveryMinuteWhileItFlaps) {
  Node node(false);
  int reported = 0;
  for (int second = 0; second < 1800; ++second) {
    node.write(second % 2 == 0 ? "mlx5_core 0000:5e:00.0 eth4: Link down" : "mlx5_core 0000:5e:00.0 eth4: Link up",
               second);
    for (const NodeEvent& event : node.at(second)) {
      EXPECT_EQ(event.device, "eth4");
      ++reported;
    }
  }
  EXPECT_GE(reported, 50);
  EXPECT_LE(reported, 62);
  EXPECT_EQ(node.reading("lockstep_kernel_events_total", "link.down"), 900);
}

TEST(EventFusion, TheOtherJobsFaultIsToldAtOnceAndSuspectsTheHardware) {
  for (int code : {13, 31}) {
    Node node(false);
    node.write(xid("0000:1b:00", code, "pid=1234, name=python, fault"), 0);
    std::vector<NodeEvent> events = node.at(0);
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].severity, EventSeverity::kApp);
    node.write(xid("0000:1b:00", code, "pid=1234, name=python, fault"), 5);  // the same job again is no reason
    EXPECT_TRUE(node.at(5).empty());
    node.owners.processes[5678] = owner("qwen", 0_rank);
    node.write(xid("0000:1b:00", code, "pid=5678, name=python, fault"), 10);
    events = node.at(10);
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].job_id, "qwen");
    EXPECT_EQ(events[0].severity, EventSeverity::kWarn);
    EXPECT_NE(events[0].meaning.find("suspect the hardware"), std::string::npos);
    node.write(xid("0000:5d:00", code, "pid=1234, name=python, fault"), 20);  // another GPU is not suspected
    events = node.at(20);
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].severity, EventSeverity::kApp);
  }
}

TEST(EventFusion, PowerSmoothingThatIsBackEndsTheWarning) {
  Node node;
  node.write(xid("0000:1b:00", 163, "disengaged"), 0);
  node.write(xid("0000:1b:00", 162, "reengaged"), 0.5);
  std::vector<NodeEvent> events = node.from_to(1, 3);
  ASSERT_EQ(events.size(), 2u);
  for (const NodeEvent& event : events) EXPECT_EQ(event.severity, EventSeverity::kInfo) << event.code;
  // Told before it is over: a warning, then news that it is over; and the next is news again.
  Node other(false);
  other.write(xid("0000:1b:00", 163, "disengaged"), 0);
  EXPECT_EQ(other.at(0).at(0).severity, EventSeverity::kWarn);
  other.write(xid("0000:1b:00", 162, "reengaged"), 10);
  EXPECT_EQ(other.at(10).at(0).code, 162);
  other.write(xid("0000:1b:00", 163, "disengaged"), 20);
  EXPECT_EQ(other.at(20).at(0).code, 163);
}

TEST(EventFusion, NvLink5IsToldPerLinkWithItsSubUnit) {
  Node node(false);
  for (int link : {8, 9}) {
    node.write(xid("0000:1b:00", 149,
                   "NETIR_LINK_EVT  Fatal   XC0 i0 Link 0" + std::to_string(link) +
                       " (0x02500011 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"));
  }
  std::vector<NodeEvent> events = node.at(0);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].sub_code, 17);
  EXPECT_EQ(events[0].severity, EventSeverity::kCritical);
  EXPECT_NE(events[0].meaning.find("link 8, cause 37 (peer)"), std::string::npos) << events[0].meaning;
  EXPECT_NE(events[1].meaning.find("link 9"), std::string::npos);
  EXPECT_NE(events[0].action.find("the other end"), std::string::npos);
}

TEST(EventFusion, AnOomKillIsOneEventWithTheJobOfItsVictim) {
  Node node;
  node.owners.processes[99] = owner("4711", 5_rank);
  const auto kill = [&](int pid, const char* name) {
    node.write(
        format("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task_memcg=/slurm/uid_1/job_4711/step_0,"
               "task=%s,pid=%d,uid=1",
               name, pid));
    node.write(format("Memory cgroup out of memory: Killed process %d (%s) total-vm:1kB, anon-rss:1kB", pid, name));
  };
  kill(99, "python");
  kill(100, "loader");  // holds no GPU, but its group names the job
  std::vector<NodeEvent> events = node.from_to(0, 100);
  ASSERT_EQ(events.size(), 2u);
  const NodeEvent& python = events[0].pid == 99 ? events[0] : events[1];
  const NodeEvent& loader = events[0].pid == 99 ? events[1] : events[0];
  EXPECT_EQ(python.job_id, "4711");
  EXPECT_EQ(python.rank, 5_rank);
  EXPECT_EQ(python.count, 1);
  EXPECT_EQ(python.text.substr(0, 9), "oom-kill:");
  EXPECT_EQ(loader.job_id, "4711");
  EXPECT_EQ(loader.rank, kNoRank);
  EXPECT_EQ(node.reading("lockstep_kernel_events_total", "host.oom_kill"), 2);
}

TEST(EventFusion, APcieErrorAndItsAnnouncementAreOne) {
  Node node;
  for (int i = 0; i < 3; ++i) {
    node.write("pcieport 0000:1a:00.0: AER: Corrected error received: 0000:1b:00.0");
    node.write("nvidia 0000:1b:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)");
  }
  node.write("pcieport 0000:1a:00.0: AER: Corrected error received: 0000:5e:00.0");  // this one stays alone
  std::vector<NodeEvent> events = node.at(0);
  ASSERT_EQ(events.size(), 2u);
  const NodeEvent& gpu = events[0].device == "0000:1b:00.0" ? events[0] : events[1];
  EXPECT_EQ(gpu.gpu_uuid, kGpu0);
  EXPECT_EQ(gpu.count, 3);
  EXPECT_NE(gpu.text.find("Physical Layer"), std::string::npos);
  EXPECT_EQ(node.reading("lockstep_kernel_events_total", "pcie.aer"), 4);
}

TEST(EventFusion, MoreDifferentLinesThanAreKeptApartAreCountedTogether) {
  Node node(false);
  int64_t written = 0;
  for (char a = 'a'; a <= 'z'; ++a) {
    for (char b = 'a'; b <= 'z'; ++b) {
      node.write(xid("0000:1b:00", 13, std::string("fault ") + a + 'z' + b));
      ++written;
    }
  }
  for (int i = 0; i < 100; ++i)
    node.write(format("INFO: task python:%d blocked for more than 120 seconds.", 10'000 + i));
  // A read ends after a while on the clock: on a busy machine the lines come in more than one, and what is alike and
  // comes later is told after a minute.
  std::vector<NodeEvent> events = node.from_to(0, 70);
  std::map<std::string, int64_t> entries, counts;
  for (const NodeEvent& event : events) {
    ++entries[event.name];
    counts[event.name] += event.count;
  }
  EXPECT_GE(entries["gpu.xid"], EventFusion::kAlikeXidMax + 1);
  EXPECT_LE(entries["gpu.xid"], EventFusion::kAlikeXidMax + 6);
  EXPECT_EQ(counts["gpu.xid"], written);
  EXPECT_GE(entries["host.hung_task"], EventFusion::kAlikeMax + 1);
  EXPECT_LE(entries["host.hung_task"], EventFusion::kAlikeMax + 6);
  EXPECT_EQ(counts["host.hung_task"], 100);
  EXPECT_EQ(node.reading("lockstep_gpu_xid_total", kGpu0, "13"), static_cast<double>(written));
}

TEST(EventFusion, HistoryIsToldWithItsTimesAndItsPrimaries) {
  Node node;
  node.write(xid("0000:1b:00", 48, "DBE"), -600);
  node.write(xid("0000:1b:00", 45, "Ch 00000001"), -599);
  node.write(xid("0000:1b:00", 13, "exception"), -300);
  std::vector<NodeEvent> events = node.at(0);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].code, 48);
  EXPECT_EQ(events[0].time_unix_ns, kUnix - 600 * kSecond);
  EXPECT_FALSE(events[0].secondary);
  EXPECT_TRUE(events[1].secondary);
  EXPECT_FALSE(events[2].secondary);
}

}  // namespace
}  // namespace lockstep
