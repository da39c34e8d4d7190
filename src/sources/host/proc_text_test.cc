#include "sources/host/proc_text.h"

#include <gtest/gtest.h>

#include "sources/host/storage_text.h"

namespace lockstep::host {
namespace {

TEST(HostText, AnOddLineOfProcStatDoesNotLoseTheRest) {
  ProcStat stat;
  parse_proc_stat(
      "cpu  10 1 20 1000 5 2 3 4 0 0\ncpu0 5 0 10 500 2 1 1 2 0 0\ncpu1 what is this\ncpuX 1 2 3 4\n"
      "cpu2 5 1 10 500 3\nintr 77 1 2 3\n\n\x01\x02\nctxt 99\nprocs_running 3\nprocs_blocked x\nsoftirq 55 1 1\n",
      stat);
  ASSERT_TRUE(stat.all);
  EXPECT_EQ((*stat.all)[7], 4u);
  ASSERT_EQ(stat.cpus.size(), 2u);
  EXPECT_EQ(stat.cpus[1].number, 2);
  EXPECT_EQ(stat.cpus[1].ticks[4], 3u);
  EXPECT_EQ(stat.cpus[1].ticks[5], 0u) << "columns that an old kernel has not are zero";
  EXPECT_EQ(stat.interrupts, 77u);
  EXPECT_EQ(stat.context_switches, 99u);
  EXPECT_EQ(stat.running, 3u);
  EXPECT_FALSE(stat.blocked);
  EXPECT_EQ(stat.softirqs, 55u);
}

TEST(HostText, CpuListsKeepWhatMakesSense) {
  CpuSet cpus = parse_cpulist("0-2,8,x,5-4,9999999-99999999,16-17\n");
  EXPECT_EQ(cpus.count(), 6u);
  EXPECT_TRUE(cpus.test(17));
  EXPECT_TRUE(parse_cpulist("").none());
  EXPECT_EQ(parse_cpulist("0-99999999999").count(), static_cast<size_t>(kCpusMax));
}

TEST(HostText, PressureHasSomeAndFullEachOnItsOwn) {
  Pressure pressure = parse_pressure("full avg10=1.50 avg60=0.00 avg300=0.00 total=123\n");
  EXPECT_FALSE(pressure.some);
  ASSERT_TRUE(pressure.full);
  EXPECT_DOUBLE_EQ(pressure.full->avg10, 1.5);
  EXPECT_EQ(pressure.full->total_us, 123u);
  EXPECT_FALSE(parse_pressure("some avg10=nan total=5\nfull avg10=1").some);
}

TEST(HostText, TheNameOfATaskMayLookLikeItsNumbers) {
  auto task = parse_task_stat(
      "12 (a) R 9 (b) D 7 1 1 0 -1 2097152 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0 1 1 1 0 0 0 0 0 0 0 0 0 0 17 5 0 0\n");
  ASSERT_TRUE(task);
  EXPECT_EQ(task->comm, "a) R 9 (b");
  EXPECT_EQ(task->state, 'D');
  EXPECT_EQ(task->parent, 7);
  EXPECT_TRUE(task->kernel_thread);
  EXPECT_EQ(task->start_ticks, 4242u);
  EXPECT_EQ(task->processor, 5);
  EXPECT_FALSE(parse_task_stat("12 )x("));
  EXPECT_FALSE(parse_task_stat(""));
}

TEST(HostText, ATableOfTheNetworkIsReadByItsHeads) {
  const char* text =
      "Ip: Forwarding DefaultTTL\nIp: 1 64\nTcp: RtoAlgorithm MaxConn RetransSegs\nTcp: 1 -1 4711\nUdp: A\nUdp: 1\n";
  EXPECT_EQ(parse_net_table(text, "Tcp", "RetransSegs"), 4711u);
  EXPECT_FALSE(parse_net_table(text, "Tcp", "MaxConn")) << "minus one is no count";
  EXPECT_FALSE(parse_net_table(text, "Tcp", "NoSuch"));
  EXPECT_FALSE(parse_net_table("Tcp: RetransSegs\n", "Tcp", "RetransSegs"));
}

TEST(HostText, SoftnetIsHexadecimalAndSummed) {
  Softnet all = parse_softnet("0013457d 00000010 00000001 0\nodd\n001290f8 00000001 0000000f 0\n");
  EXPECT_EQ(all.dropped, 17u);
  EXPECT_EQ(all.squeezed, 16u);
  EXPECT_EQ(all.cpus, 2u);
}

TEST(HostText, CgroupPathsOfBothVersionsAndNoneThatClimbs) {
  CgroupPaths paths = parse_cgroup("4:memory:/slurm/job_7\n2:cpu,cpuacct:/slurm\n0::/user.slice\nrubbish\n");
  EXPECT_EQ(paths.v2, "/user.slice");
  EXPECT_EQ(paths.cpu, "/slurm");
  EXPECT_EQ(paths.memory, "/slurm/job_7");
  EXPECT_TRUE(parse_cgroup("0::/../../etc\n").v2.empty());
}

TEST(HostText, WholeDisksArePickedFromDiskstats) {
  auto disks = parse_diskstats(
      " 259 0 nvme0n1 100 1 2048 50 200 2 4096 80 3 90 130\n259 1 nvme0n1p1 1 0 1 1 1 0 1 1 0 1 1\nodd line\n"
      "   8 0 sda 1 2 3 4 5 6 7 8 9 10 11 0 0 0 0\n",
      10);
  ASSERT_EQ(disks.size(), 3u);
  EXPECT_EQ(disks[0].write_sectors, 4096u);
  EXPECT_EQ(disks[0].in_flight, 3u);
  EXPECT_EQ(disks[0].io_ms, 90u);
  for (const char* name : {"nvme0n1", "nvme12n3", "sda", "sdaa", "vdb", "xvda", "md127", "dm-3"})
    EXPECT_TRUE(is_whole_disk(name)) << name;
  for (const char* name : {"nvme0n1p1", "nvme0c1n1", "sda1", "loop0", "ram1", "zram0", "sr0", "md", "dm-", "nvme", ""})
    EXPECT_FALSE(is_whole_disk(name)) << name;
}

constexpr const char* kMountstats =
    "device proc mounted on /proc with fstype proc\n"
    "device nas:/data mounted on /data with fstype nfs4 statvers=1.1\n"
    "\topts:\trw,vers=4.2\n\tage:\t7\n\tbytes:\t1 2 3 4 5 6 7 8\n\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)\n"
    "\txprt:\ttcp 0 0 2 0 10 9 9 0 9 0 2 0 0\n\tper-op statistics\n"
    "\t        NULL: 1 1 0 44 24 0 0 0 0\n\t        READ: 100 103 1 20000 1000000 500 2500 3200 0\n"
    "\t       WRITE: 10 10 0 90000 1000 50 100 200 0\n\t     GETATTR: 40 40 0 4 4 1 2 3\n\t     BROKEN: 1 2\n"
    "\t      ACCESS: 60 60 0 4 4 1 2 3\n\n"
    "device nas:/data mounted on /again with fstype nfs4 statvers=1.1\n\tper-op statistics\n"
    "\t        READ: 100 103 1 20000 1000000 500 2500 3200 0\n"
    "device nas:/home mounted on /with fstype x with fstype nfs statvers=1.1\n\tper-op statistics\n"
    "\t        READ: 7 7 0 1 1 1 1 1\n";

TEST(HostText, MountstatsAreOfNfsAloneAndEachExportOnce) {
  auto mounts = parse_mountstats(kMountstats, 8);
  ASSERT_EQ(mounts.size(), 2u);
  const StorageStat& data = mounts[0];
  EXPECT_EQ(data.device, "nas:/data");
  EXPECT_EQ(data.ops[0].operations, 100u);
  EXPECT_EQ(data.ops[0].bytes, 1000000u);
  EXPECT_DOUBLE_EQ(data.ops[0].queue_s, 0.5);
  EXPECT_DOUBLE_EQ(data.ops[0].rtt_s, 2.5);
  EXPECT_DOUBLE_EQ(data.ops[0].execute_s, 3.2);
  EXPECT_EQ(data.ops[1].bytes, 90000u);
  EXPECT_EQ(data.ops[2].operations, 101u);
  EXPECT_EQ(data.retransmissions, 3u);
  EXPECT_EQ(data.timeouts, 1u);
  EXPECT_EQ(mounts[1].device, "nas:/home");
  EXPECT_EQ(parse_mountstats(kMountstats, 1).size(), 1u);
}

TEST(HostText, LustreCountsBytesAndTimesApart) {
  StorageStat stat;
  parse_llite_stats(
      "snapshot_time 1.2 secs.nsecs\nread_bytes 12 samples [bytes] 0 4096 9000\nwrite_bytes 2 samples [bytes] 1 1 77\n"
      "read 12 samples [usecs] 1 9 5000000\nopen 3 samples [usecs] 1 2 1500000\ngetattr 4 samples [regs]\nodd\n",
      stat);
  EXPECT_EQ(stat.ops[0].operations, 12u);
  EXPECT_EQ(stat.ops[0].bytes, 9000u);
  EXPECT_DOUBLE_EQ(stat.ops[0].execute_s, 5);
  EXPECT_EQ(stat.ops[1].bytes, 77u);
  EXPECT_EQ(stat.ops[2].operations, 7u);
  EXPECT_DOUBLE_EQ(stat.ops[2].execute_s, 1.5);
}

}  // namespace
}  // namespace lockstep::host
