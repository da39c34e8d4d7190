#include "sources/host/host_source.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <set>

#include "base/clock.h"
#include "sources/host/host_metrics.h"
#include "sources/host/testing.h"

namespace lockstep::host {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

class HostSourceTest : public ::testing::Test {
 protected:
  const NodeReadings& tick(bool slow = true) {
    if (!source_) source_ = open_host_source({.root = tree_.root()});
    out_ = {};
    now_ns_ += kSecond;
    source_->read({now_ns_, now_ns_ + unix_offset_ns_, slow, &owners_, nullptr}, out_);
    return out_;
  }
  std::optional<double> value(const std::string& name, const std::string& wanted = "") {
    return value_of(out_, name, wanted);
  }

  TestTree tree_;
  OwnerTable owners_;
  std::unique_ptr<NodeSource> source_;
  NodeReadings out_;
  int64_t now_ns_ = 1000 * kSecond;
  int64_t unix_offset_ns_ = 1'700'000'000 * kSecond;
};

TEST_F(HostSourceTest, AnEmptyMachineGivesNoFailureAndNoNoise) {
  tick();
  EXPECT_EQ(out_.failures, 0);
  EXPECT_TRUE(out_.notes.empty());
  for (const Reading& reading : out_.readings) EXPECT_NE(reading.labels, nullptr);
  for (const SourceCheck& check : source_->check()) {
    EXPECT_TRUE(check.works || !check.todo.empty()) << check.what;
  }
}

TEST_F(HostSourceTest, CpuTimeIsInSecondsByModeAndByNode) {
  tree_.write("/sys/devices/system/node/node0/cpulist", "0\n");
  tree_.write("/sys/devices/system/node/node1/cpulist", "1-2\n");
  tree_.write("/proc/stat", "cpu 300 0 0 900 0 0 0 50\ncpu0 100 0 0 0\ncpu1 100 0 0 0\ncpu2 100 0 0 900\n");
  tick();
  EXPECT_EQ(value("system.cpu.time", "cpu.mode=user"), 3);
  EXPECT_EQ(value("system.cpu.time", "cpu.mode=steal"), 0.5);
  EXPECT_EQ(value("system.cpu.logical.count"), 3);
  EXPECT_EQ(value("lockstep_host_numa_cpu_seconds_total", "node=1,mode=user"), 0);
  tree_.write("/proc/stat", "cpu 600 0 0 900 0 0 0 50\ncpu0 200 0 0 0\ncpu1 300 0 0 0\ncpu2 200 0 0 900\n");
  tick();
  EXPECT_EQ(value("lockstep_host_numa_cpu_seconds_total", "node=0,mode=user"), 1);
  EXPECT_EQ(value("lockstep_host_numa_cpu_seconds_total", "node=1,mode=user"), 3);
}

TEST_F(HostSourceTest, ACpuTakenOutDoesNotMakeItsNodeFall) {
  tree_.write("/sys/devices/system/node/node0/cpulist", "0-1\n");
  tree_.write("/proc/stat", "cpu 200 0 0 0\ncpu0 100 0 0 0\ncpu1 100 0 0 0\n");
  tick();
  tree_.write("/proc/stat", "cpu 400 0 0 0\ncpu0 200 0 0 0\ncpu1 200 0 0 0\n");
  tick();
  EXPECT_EQ(value("lockstep_host_numa_cpu_seconds_total", "node=0,mode=user"), 2);
  tree_.write("/sys/devices/system/node/node0/cpulist", "0\n");
  tree_.write("/proc/stat", "cpu 500 0 0 0\ncpu0 300 0 0 0\n");
  tick();
  EXPECT_EQ(value("lockstep_host_numa_cpu_seconds_total", "node=0,mode=user"), 3);
  tree_.write("/sys/devices/system/node/node0/cpulist", "0-1\n");
  tree_.write("/proc/stat", "cpu 500 0 0 0\ncpu0 300 0 0 0\ncpu1 10 0 0 0\n");
  tick();
  EXPECT_EQ(value("lockstep_host_numa_cpu_seconds_total", "node=0,mode=user"), 3) << "its counter began anew";
}

TEST_F(HostSourceTest, IowaitThatSlipsBackIsNoReset) {
  tree_.write("/proc/stat", "cpu 0 0 0 0 500\n");
  tick();
  tree_.write("/proc/stat", "cpu 0 0 0 0 499\n");
  tick();
  EXPECT_EQ(value("system.cpu.time", "cpu.mode=iowait"), 5);
}

TEST_F(HostSourceTest, FrequencyIsOfTheCpusThatTrainingRunsOn) {
  owners_.processes[100] = {};
  tree_.thread(100, 100, "python3", 5, 0, 0);  // last ran on CPU 2
  tree_.write("/proc/stat", "cpu 1 1 1 1\ncpu0 1 1 1 1\ncpu2 1 1 1 1\n");
  tree_.write("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "800000\n");
  tree_.write("/sys/devices/system/cpu/cpu2/cpufreq/scaling_cur_freq", "3500000\n");
  tick();
  EXPECT_EQ(value("lockstep_host_cpu_frequency_hertz", "of=slowest"), 3.5e9);
  owners_.processes.clear();
  tick();
  EXPECT_EQ(value("lockstep_host_cpu_frequency_hertz", "of=slowest"), 0.8e9);
}

TEST_F(HostSourceTest, PressureIsReadEveryTick) {
  tree_.write("/proc/pressure/io", "some avg10=12.50 avg60=0 avg300=0 total=2000000\nfull avg10=1.00 total=1000000\n");
  tree_.write("/proc/pressure/irq", "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n");
  tick(false);
  EXPECT_EQ(value("lockstep_host_pressure_seconds_total", "resource=io,scope=some"), 2);
  EXPECT_EQ(value("lockstep_host_pressure", "resource=io,scope=some"), 0.125);
  EXPECT_EQ(value("lockstep_host_pressure_seconds_total", "resource=irq,scope=full"), 0);
  EXPECT_FALSE(value("lockstep_host_pressure_seconds_total", "resource=irq,scope=some"));
  EXPECT_FALSE(value("system.memory.limit")) << "a fast tick reads little";
}

TEST_F(HostSourceTest, MemoryIsInBytesAndItsPartsAddUp) {
  tree_.write("/proc/meminfo",
              "MemTotal: 1000 kB\nMemFree: 300 kB\nMemAvailable: 600 kB\nBuffers: 50 kB\nCached: 200 kB\nodd\n"
              "SReclaimable: 50 kB\nShmem: 7 kB\nDirty: 3 kB\nHugePages_Free: 2\nHugepagesize: 2048 kB\n"
              "SwapTotal: 10 kB\nSwapFree: 4 kB\n");
  tree_.write("/proc/vmstat",
              "pgmajfault 5\nallocstall_dma 1\nallocstall_normal 2\noom_kill 3\nnuma_miss x\npswpout 9\n");
  tick();
  EXPECT_EQ(value("system.memory.usage", "system.memory.state=used"), 400 * 1024);
  EXPECT_EQ(value("system.memory.usage", "system.memory.state=cached"), 250 * 1024);
  EXPECT_EQ(value("system.memory.linux.available"), 600 * 1024);
  EXPECT_EQ(value("lockstep_host_memory_bytes", "kind=hugepages_free"), 2.0 * 2048 * 1024);
  EXPECT_EQ(value("system.paging.usage", "system.paging.state=used"), 6 * 1024);
  EXPECT_EQ(value("system.paging.faults", "system.paging.fault.type=major"), 5);
  EXPECT_EQ(value("lockstep_host_vm_events_total", "event=allocstall"), 3);
  EXPECT_EQ(value("lockstep_host_vm_events_total", "event=oom_kill"), 3);
  EXPECT_FALSE(value("lockstep_host_vm_events_total", "event=numa_miss"));
}

TEST_F(HostSourceTest, DiskLatencyIsTheMeanSinceTheLastReading) {
  tree_.write("/proc/diskstats", "259 0 nvme0n1 100 0 2000 500 10 0 80 40 2 90 0\n8 0 sdb 0 0 0 0 0 0 0 0 0 0 0\n");
  tick();
  EXPECT_EQ(value("system.disk.io", "system.device=nvme0n1,disk.io.direction=read"), 2000 * 512);
  EXPECT_FALSE(value("lockstep_host_disk_latency_seconds", "system.device=nvme0n1,disk.io.direction=read"));
  EXPECT_FALSE(value("system.disk.io_time", "system.device=sdb")) << "an idle disk has no series";
  tree_.write("/proc/diskstats", "259 0 nvme0n1 200 0 2000 1500 10 0 80 40 2 90 0\n");
  tick();
  EXPECT_EQ(value("lockstep_host_disk_latency_seconds", "system.device=nvme0n1,disk.io.direction=read"), 0.01);
  EXPECT_FALSE(value("lockstep_host_disk_latency_seconds", "system.device=nvme0n1,disk.io.direction=write"));
  tree_.write("/proc/diskstats", "259 0 nvme0n1 5 0 2 1 1 0 1 1 0 1 0\n");
  tick();
  EXPECT_FALSE(value("lockstep_host_disk_latency_seconds", "system.device=nvme0n1,disk.io.direction=read"))
      << "counters that began anew have no mean";
}

TEST_F(HostSourceTest, ASlowFileServerShowsInItsRoundTrips) {
  auto stats = [](int ops, int rtt_ms) {
    return format(
        "device nas:/d mounted on /d with fstype nfs4 statvers=1.1\n\tper-op statistics\n"
        "\tREAD: %d %d 0 1 4096 0 %d %d\n",
        ops, ops + 2, rtt_ms, rtt_ms);
  };
  tree_.write("/proc/self/mountstats", stats(10, 10));
  tick();
  tree_.write("/proc/self/mountstats", stats(20, 510));
  tick();
  EXPECT_EQ(value("lockstep_storage_rtt_seconds", "mount=nas:/d,op=read"), 0.05);
  EXPECT_EQ(value("lockstep_storage_retransmissions_total", "mount=nas:/d"), 2);
  EXPECT_FALSE(value("lockstep_storage_rtt_seconds", "mount=nas:/d,op=write"));
}

TEST_F(HostSourceTest, QuotaAndStallsOfAJobsCgroupCarryItsGpu) {
  owners_.processes[100] = {};
  owners_.processes[101] = {};
  owners_.gpu_processes = {{100, "GPU-a", 1}, {101, "GPU-b", 1}};
  for (int pid : {100, 101}) {
    tree_.thread(pid, pid, "python3", 5, 0, 0);
    tree_.write(format("/proc/%d/cgroup", pid), "0::/pods/one/main\n");
  }
  std::string folder = "/sys/fs/cgroup/pods/one/main";
  auto write = [&](int throttled_us, int oom) {
    tree_.write(folder + "/cpu.stat", format("usage_usec 5\nnr_throttled 3\nthrottled_usec %d\n", throttled_us));
    tree_.write(folder + "/memory.events", format("low 0\noom_kill %d\n", oom));
  };
  write(1'000'000, 7);
  tree_.write(folder + "/memory.current", "4096\n");
  tree_.write(folder + "/memory.max", "max\n");
  tree_.write("/sys/fs/cgroup/pods/one/memory.max", "8192\n");
  tree_.write(folder + "/memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n");
  tick();
  write(3'500'000, 8);
  tick();
  for (const char* gpu : {"gpu_uuid=GPU-a", "gpu_uuid=GPU-b"}) {
    EXPECT_EQ(value("lockstep_cgroup_cpu_throttled_seconds_total", gpu), 2.5);
    EXPECT_EQ(value("lockstep_cgroup_oom_kills_total", gpu), 1);
    EXPECT_EQ(value("lockstep_cgroup_memory_bytes", gpu), 4096);
    EXPECT_EQ(value("lockstep_cgroup_memory_limit_bytes", gpu), 8192);
  }
  // The next job's cgroup has counters of its own.
  tree_.write("/proc/100/cgroup", "0::/pods/two\n");
  tree_.write("/sys/fs/cgroup/pods/two/cpu.stat", "nr_throttled 900\nthrottled_usec 90000000\n");
  tick();
  EXPECT_EQ(value("lockstep_cgroup_cpu_throttled_seconds_total", "gpu_uuid=GPU-a"), 2.5);
}

TEST_F(HostSourceTest, CgroupsOfTheFirstVersionAreReadToo) {
  owners_.processes[100] = {};
  owners_.gpu_processes = {{100, "GPU-a", 1}};
  tree_.thread(100, 100, "python3", 5, 0, 0);
  tree_.write("/proc/100/cgroup", "3:cpu,cpuacct:/slurm/job_1\n2:memory:/slurm/job_1\n");
  tree_.write("/sys/fs/cgroup/cpu/slurm/job_1/cpu.stat", "nr_periods 9\nnr_throttled 1\nthrottled_time 1000000000\n");
  tree_.write("/sys/fs/cgroup/memory/slurm/job_1/memory.limit_in_bytes", "9223372036854771712\n");
  tree_.write("/sys/fs/cgroup/memory/slurm/job_1/memory.usage_in_bytes", "777\n");
  tick();
  tree_.write("/sys/fs/cgroup/cpu/slurm/job_1/cpu.stat", "nr_periods 9\nnr_throttled 3\nthrottled_time 1500000000\n");
  tick();
  EXPECT_EQ(value("lockstep_cgroup_cpu_throttled_seconds_total", "gpu_uuid=GPU-a"), 0.5);
  EXPECT_EQ(value("lockstep_cgroup_cpu_throttled_periods_total", "gpu_uuid=GPU-a"), 2);
  EXPECT_EQ(value("lockstep_cgroup_memory_bytes", "gpu_uuid=GPU-a"), 777);
  EXPECT_FALSE(value("lockstep_cgroup_memory_limit_bytes", "gpu_uuid=GPU-a"));
}

TEST_F(HostSourceTest, AJumpOfTheClockIsAnEvent) {
  tick(false);
  unix_offset_ns_ += 400'000'000;
  EXPECT_TRUE(tick(false).events.empty());
  unix_offset_ns_ -= 3 * kSecond;
  tick(false);
  ASSERT_EQ(out_.events.size(), 1u);
  EXPECT_EQ(out_.events[0].name, "clock.step");
  EXPECT_EQ(out_.events[0].text, "the clock jumped by -3.000 s");
  tick();
  EXPECT_TRUE(out_.events.empty());
  EXPECT_EQ(value("lockstep_host_clock_steps_total"), 1);
}

TEST_F(HostSourceTest, ARecordedClockStandsForTheKernels) {
  tree_.write("/run/lockstep-recorded/adjtimex",
              "offset_ns: -1500000\nmaxerror_us: 250000\nesterror_us: 10\nstatus: 64\n");
  tick();
  EXPECT_EQ(value("lockstep_host_clock_offset_seconds"), -0.0015);
  EXPECT_EQ(value("lockstep_host_clock_error_seconds", "of=most"), 0.25);
  EXPECT_EQ(value("lockstep_host_clock_synchronized"), 0);
}

TEST_F(HostSourceTest, EnergyGoesOnWhereItsCounterGoesRound) {
  tree_.write("/sys/class/powercap/intel-rapl:0/name", "package-0\n");
  tree_.write("/sys/class/powercap/intel-rapl:0/max_energy_range_uj", "1000000\n");
  tree_.write("/sys/class/powercap/intel-rapl:0/energy_uj", "900000\n");
  tree_.write("/sys/class/powercap/intel-rapl:0:0/name", "core\n");
  tree_.write("/sys/class/hwmon/hwmon3/name", "coretemp\n");
  tree_.write("/sys/class/hwmon/hwmon3/temp1_input", "61000\n");
  tree_.write("/sys/class/hwmon/hwmon4/name", "nvme\n");
  tree_.write("/sys/class/hwmon/hwmon4/temp1_input", "99000\n");
  tree_.write("/sys/devices/system/edac/mc/mc0/ce_count", "4\n");
  tree_.write("/sys/devices/system/edac/mc/mc1/ce_count", "5\n");
  tick();
  tree_.write("/sys/class/powercap/intel-rapl:0/energy_uj", "400000\n");
  tick();
  EXPECT_DOUBLE_EQ(value("lockstep_host_cpu_energy_joules_total", "package=0").value_or(0), 0.5);
  EXPECT_EQ(value("lockstep_host_cpu_temperature", "package=0"), 61);
  EXPECT_FALSE(value("lockstep_host_cpu_temperature", "package=1")) << "a disk's sensor asks the disk";
  EXPECT_EQ(value("lockstep_host_memory_errors_total", "kind=corrected"), 9);
}

TEST_F(HostSourceTest, HugeFilesAreCutNotSwallowed) {
  std::string text = "device nas:/d mounted on /d with fstype nfs4\n\tper-op statistics\n\tREAD: 1 1 0 1 1 1 1 1\n";
  while (text.size() < 6 << 20)
    text += "device overlay mounted on /very/long/path/of/a/container with fstype overlay\n";
  tree_.write("/proc/self/mountstats", text);
  tick();
  EXPECT_EQ(value("lockstep_storage_operations_total", "mount=nas:/d,op=read"), 1);
}

TEST_F(HostSourceTest, AFileThatCannotBeReadIsSaidOnceAndCounted) {
  tree_.write("/proc/stat/odd", "a folder where a file should be");
  tree_.write("/proc/loadavg", "0.50 0.40 0.30 1/100 7\n");
  tick();
  EXPECT_EQ(out_.failures, 1);
  ASSERT_EQ(out_.notes.size(), 1u);
  EXPECT_NE(out_.notes[0].find("/proc/stat"), std::string::npos);
  EXPECT_EQ(value("lockstep_host_load_1m"), 0.5);
  tick();
  EXPECT_EQ(out_.failures, 1);
  EXPECT_TRUE(out_.notes.empty());
}

TEST(HostMetrics, RowsAreWholeAndNamesOurs) {
  std::set<std::string> names;
  for (const MetricDescriptor& metric : kHostMetrics) {
    std::string name = metric.name;
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_TRUE(name.starts_with("lockstep_") || name.starts_with("system.")) << name;
    EXPECT_EQ(name.starts_with("lockstep_") ? name.ends_with("_total") : metric.kind == MetricKind::kSum,
              metric.kind == MetricKind::kSum)
        << name;
    EXPECT_FALSE(std::string(metric.help).empty()) << name;
  }
}

// The readings of this very machine: every label that a row promises, in its order, and no failures.
TEST(HostMetrics, ThisMachinesReadingsKeepToTheTable) {
  OwnerTable owners;
  owners.processes[getpid()] = {};
  auto source = open_host_source({});
  std::set<const MetricDescriptor*> rows;
  for (const MetricDescriptor& metric : kHostMetrics) rows.insert(&metric);
  SystemClock clock;
  for (bool slow : {true, false, true}) {
    NodeReadings out;
    source->read({clock.monotonic_ns(), clock.unix_ns(), slow, &owners, nullptr}, out);
    std::set<std::pair<std::string, Labels>> series;
    for (const Reading& reading : out.readings) {
      EXPECT_TRUE(rows.count(reading.metric));
      std::string names;
      for (auto& [key, label] : *reading.labels) names += (names.empty() ? "" : ", ") + key;
      EXPECT_EQ(names, reading.metric->labels) << reading.metric->name;
      EXPECT_TRUE(series.insert({reading.metric->name, *reading.labels}).second) << reading.metric->name << " twice";
    }
    EXPECT_TRUE(value_of(out, "lockstep_thread_runqueue_wait_seconds_total", "gpu_uuid=,thread_class=trainer"));
    for (const std::string& note : out.notes) ADD_FAILURE() << note;
  }
}

}  // namespace
}  // namespace lockstep::host
