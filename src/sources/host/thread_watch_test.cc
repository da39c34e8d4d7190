#include "sources/host/thread_watch.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "sources/host/testing.h"

namespace lockstep::host {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

const char* kWait = "lockstep_thread_runqueue_wait_seconds_total";

class HostThreads : public ::testing::Test {
 protected:
  HostThreads() { owners_.processes[100] = {}; }

  void open(size_t threads_max = 4096, size_t kept_files_max = 64) {
    HostSourceOptions options;
    options.root = tree_.root();
    options.threads_max = threads_max;
    options.kept_files_max = kept_files_max;
    options.proxy_threads = [this](int32_t) { return proxies_; };
    source_ = open_host_source(options);
  }
  const NodeReadings& tick(bool slow) {
    if (!source_) open();
    out_ = {};
    now_ns_ += kSecond;
    source_->read({now_ns_, now_ns_ + 5 * kSecond, slow, &owners_, nullptr}, out_);
    return out_;
  }
  std::optional<double> wait(const std::string& kind, const std::string& gpu = "GPU-a") {
    return value_of(out_, kWait, "gpu_uuid=" + gpu + ",thread_class=" + kind);
  }
  void on_gpu() {
    owners_.gpus = {{"GPU-a", 0, "nvidia", "", "0000:1b:00.0"}, {"GPU-b", 1, "nvidia", "", "0000:43:00.0"}};
    owners_.gpu_processes = {{100, "GPU-b", 1 << 20}, {100, "GPU-a", 1 << 30}};
  }

  TestTree tree_;
  OwnerTable owners_;
  std::vector<int32_t> proxies_;
  std::unique_ptr<NodeSource> source_;
  NodeReadings out_;
  int64_t now_ns_ = 1000 * kSecond;
};

TEST(HostThreadClass, FollowsTheNamesThatNcclAndPyTorchGive) {
  auto kind = [](const char* comm) { return classify_thread(comm, "python3", false); };
  EXPECT_EQ(kind("NCCL Progress 0"), ThreadClass::kNccl);
  EXPECT_EQ(kind("NCCL Service  7"), ThreadClass::kNccl);
  EXPECT_EQ(kind("NCCL UDS Servic"), ThreadClass::kNccl);
  EXPECT_EQ(kind("pt_autograd_0"), ThreadClass::kTrainer);
  EXPECT_EQ(kind("pt_data_pin"), ThreadClass::kDataloader);
  EXPECT_EQ(kind("pt_nccl_watchdg"), ThreadClass::kOther);
  EXPECT_EQ(kind("cuda-EvtHandlr"), ThreadClass::kOther);
  EXPECT_EQ(kind("python3"), ThreadClass::kUnnamed);
  EXPECT_EQ(classify_thread("python3", "python3", true), ThreadClass::kTrainer);
}

TEST_F(HostThreads, AStarvedProxyThreadIsSeenWithinATick) {
  on_gpu();
  tree_.thread(100, 100, "python3", 5, 9 * kSecond, kSecond);
  tree_.thread(100, 101, "NCCL Progress 0", 6, 9 * kSecond, 2 * kSecond);
  tree_.thread(100, 102, "NCCL Progress 0", 6, 9 * kSecond, 2 * kSecond);
  tick(true);
  EXPECT_EQ(wait("nccl"), 0) << "what was before we came is not ours";
  tree_.thread(100, 101, "NCCL Progress 0", 6, 9 * kSecond, 2 * kSecond + kSecond / 2);
  tick(false);
  EXPECT_EQ(wait("nccl"), 0.5);
  EXPECT_EQ(wait("trainer"), 0);
  EXPECT_EQ(value_of(out_, "lockstep_thread_runqueue_wait_worst", "gpu_uuid=GPU-a,thread_class=nccl"), 0.5);
}

TEST_F(HostThreads, SumsStayWhenThreadsEndAndCountNewOnesFromTheirStart) {
  on_gpu();
  tree_.thread(100, 100, "python3", 5, 0, 0);
  tree_.thread(100, 101, "NCCL Progress 0", 6, 0, 0);
  tick(true);
  tree_.thread(100, 101, "NCCL Progress 0", 6, 0, 3 * kSecond);
  tick(false);
  EXPECT_EQ(wait("nccl"), 3);
  tree_.remove("/proc/100/task/101");
  tree_.thread(100, 102, "NCCL Progress 0", 70, 0, 2 * kSecond);
  tick(true);
  EXPECT_EQ(wait("nccl"), 5);
}

TEST_F(HostThreads, AThreadIdGivenOutAnewNeitherFallsNorJumps) {
  on_gpu();
  for (size_t kept_files_max : {0, 64}) {
    tree_.thread(100, 100, "python3", 5, 0, 0);
    tree_.thread(100, 101, "NCCL Progress 0", 6, 0, 100 * kSecond, 50);
    open(4096, kept_files_max);
    tick(true);
    // The same id with another start: less time than the old one had ...
    tree_.thread(100, 101, "NCCL Progress 0", 90, 0, 1 * kSecond, 2);
    tick(true);
    EXPECT_EQ(wait("nccl"), 1);
    // ... and then one that has more.
    tree_.thread(100, 101, "NCCL Progress 0", 95, 0, 4 * kSecond, 3);
    for (int i = 0; i < 4; ++i) tick(true);
    EXPECT_EQ(wait("nccl"), 5);
    EXPECT_EQ(value_of(out_, "lockstep_thread_involuntary_switches_total", "gpu_uuid=GPU-a,thread_class=nccl"), 3)
        << "switches are asked every fourth slow tick; the thread between had none that we saw";
  }
}

TEST_F(HostThreads, AProcessIdGivenOutAnewStartsAtZero) {
  on_gpu();
  tree_.thread(100, 100, "python3", 5, 0, 100 * kSecond);
  tick(true);
  owners_.processes.clear();
  tick(true);
  EXPECT_FALSE(wait("trainer")) << "nobody is on the GPU";
  owners_.processes[100] = {};
  tree_.thread(100, 100, "python3", 500, 0, 900 * kSecond);
  tick(true);
  EXPECT_EQ(wait("trainer"), 0);
}

TEST_F(HostThreads, WorkerProcessesOfADataLoaderCountForTheGpuOfTheirTrainer) {
  on_gpu();
  tree_.thread(100, 100, "python3", 5, 0, 0);
  tree_.thread(200, 200, "pt_data_worker", 9, 0, 0, 0, 'S', 100);
  tree_.thread(300, 300, "wandb-core", 9, 0, 0, 0, 'S', 100);
  tick(true);
  tree_.thread(200, 200, "pt_data_worker", 9, 0, 7 * kSecond, 0, 'S', 100);
  tree_.thread(300, 300, "wandb-core", 9, 0, 2 * kSecond, 0, 'S', 100);
  tick(true);
  EXPECT_EQ(wait("dataloader"), 7);
  EXPECT_EQ(wait("other"), 2);
  EXPECT_EQ(value_of(out_, "lockstep_process_threads", "gpu_uuid=GPU-a"), 3);
}

TEST_F(HostThreads, ProxiesThatTheRecorderKnowsNeedNoName) {
  on_gpu();
  proxies_ = {102};
  tree_.thread(100, 100, "python3", 5, 0, 0);
  tree_.thread(100, 101, "python3", 6, 0, 0);
  tree_.thread(100, 102, "python3", 6, 0, 0);
  tick(true);
  tree_.thread(100, 101, "python3", 6, 0, 1 * kSecond);
  tree_.thread(100, 102, "python3", 6, 0, 2 * kSecond);
  tick(false);
  EXPECT_EQ(wait("unnamed"), 1);
  EXPECT_EQ(wait("nccl"), 2);
}

TEST_F(HostThreads, SaysOnceThatNcclsThreadsHaveNoNames) {
  on_gpu();
  tree_.thread(100, 100, "python3", 5, 0, 0);
  tree_.thread(100, 101, "python3", 6, 0, 0);
  tree_.thread(100, 102, "pt_nccl_watchdg", 6, 0, 0);
  size_t notes = 0;
  for (int i = 0; i < 6; ++i) notes += tick(true).notes.size();
  EXPECT_EQ(notes, 1u);
}

TEST_F(HostThreads, MoreThreadsThanTheLimitAreReadInTurn) {
  on_gpu();
  auto write_all = [&](uint64_t wait_ns) {
    tree_.thread(100, 100, "python3", 5, 0, 0);
    for (int tid = 101; tid <= 120; ++tid) tree_.thread(100, tid, "NCCL Progress 0", 6, 0, wait_ns);
  };
  write_all(0);
  open(7);
  for (int i = 0; i < 4; ++i) tick(true);
  write_all(kSecond);
  double before = wait("nccl").value_or(-1);
  for (int i = 0; i < 4; ++i) {
    tick(true);
    EXPECT_GE(wait("nccl").value_or(-1), before);
    before = wait("nccl").value_or(-1);
  }
  EXPECT_EQ(wait("nccl"), 20);
}

TEST_F(HostThreads, PinnedToTheWrongSocketShows) {
  on_gpu();
  tree_.write("/sys/bus/pci/devices/0000:1b:00.0/local_cpulist", "0-31\n");
  tree_.thread(100, 100, "python3", 5, 0, 0, 0, 'S', 1, "24-55");
  tick(true);
  EXPECT_EQ(value_of(out_, "lockstep_process_numa_remote", "gpu_uuid=GPU-a"), 0.75);
  EXPECT_FALSE(value_of(out_, "lockstep_process_numa_remote", "gpu_uuid=GPU-b"));
}

TEST_F(HostThreads, TrainersWithoutAGpuAreSummedUnderNone) {
  tree_.thread(100, 100, "python3", 5, 0, 0);
  owners_.processes[110] = {};
  tree_.thread(110, 110, "python3", 5, 0, 0);
  tick(true);
  tree_.thread(100, 100, "python3", 5, 0, kSecond);
  tree_.thread(110, 110, "python3", 5, 0, kSecond);
  tick(false);
  EXPECT_EQ(wait("trainer", ""), 2);
}

TEST_F(HostThreads, AProcessThatIsGoneIsNoFailure) {
  tick(true);
  EXPECT_EQ(out_.failures, 0);
  EXPECT_TRUE(out_.notes.empty());
}

TEST_F(HostThreads, StuckTasksAreToldByKindAndByWhatTheyWaitFor) {
  on_gpu();
  tree_.thread(100, 100, "python3", 5, 0, 0);
  tree_.thread(100, 101, "python3", 5, 0, 0, 0, 'D');
  tree_.write("/proc/100/task/101/wchan", "nfs_wait_bit_killable");
  tree_.thread(400, 400, "sync", 5, 0, 0, 0, 'D');
  tree_.write("/proc/400/wchan", "io_schedule");
  tick(true);
  const char* by_kind = "lockstep_host_tasks_uninterruptible";
  const char* by_wait = "lockstep_host_tasks_uninterruptible_wait";
  EXPECT_EQ(value_of(out_, by_kind, "kind=training"), 1);
  EXPECT_EQ(value_of(out_, by_kind, "kind=other"), 1);
  EXPECT_EQ(value_of(out_, by_kind, "kind=kernel"), 0);
  EXPECT_EQ(value_of(out_, by_wait, "wait=nfs"), 1);
  EXPECT_EQ(value_of(out_, by_wait, "wait=block"), 1);
  EXPECT_FALSE(value_of(out_, by_wait, "wait=gpu"));
}

TEST(HostWalk, KernelThreadsAreLookedAtInEveryThirdRound) {
  TestTree tree;
  auto kernel_thread = [&](char state) {
    tree.write("/proc/7/stat", format("7 (kworker/0:1) %c 2 0 0 0 -1 2097152 0 0 0 0 0 0 0 0 20 0 1 0 9 0 0", state));
  };
  kernel_thread('I');
  HostFiles files(tree.root());
  ProcessWalk walk(files);
  auto stuck = [&] {
    walk.start();
    EXPECT_TRUE(walk.go(1'000'000'000));
    return walk.processes().size() == 2 && walk.processes()[0].stuck;
  };
  tree.thread(9, 9, "sh", 5, 0, 0);
  EXPECT_FALSE(stuck());
  kernel_thread('D');
  EXPECT_FALSE(stuck());
  EXPECT_FALSE(stuck());
  EXPECT_TRUE(stuck());
  tree.remove("/proc/7");
  walk.start();
  EXPECT_TRUE(walk.go(1'000'000'000));
  EXPECT_EQ(walk.processes().size(), 1u) << "one that ended is not kept";
}

TEST(HostWalk, GoesOnWhereItsBudgetEnded) {
  TestTree tree;
  for (int pid = 2; pid <= 60; ++pid) tree.thread(pid, pid, "x", 5, 0, 0);
  HostFiles files(tree.root());
  ProcessWalk walk(files);
  walk.start();
  int calls = 1;
  while (!walk.go(-1)) {
    ASSERT_TRUE(walk.processes().empty()) << "half a walk is no answer";
    ASSERT_LT(++calls, 100);
  }
  EXPECT_GT(calls, 2);
  EXPECT_EQ(walk.processes().size(), 59u);
}

}  // namespace
}  // namespace lockstep::host
