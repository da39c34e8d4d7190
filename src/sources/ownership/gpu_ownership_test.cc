#include "sources/ownership/gpu_ownership.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "sources/ownership/gpu_ownership_metrics.h"
#include "sources/ownership/test_pods.h"
#include "sources/ownership/test_tree.h"

namespace lockstep {
namespace {

using testing::pod_answer;
using testing::TestProcess;
using testing::TestTree;

constexpr int64_t kSecond = 1'000'000'000;
constexpr uint64_t kGb = 1'000'000'000;
const std::string kSlurmJob = "0::/system.slice/slurmstepd.scope/job_77/step_0/user/task_0\n";

std::string pod_cgroup(const std::string& uid) {
  return "0::/kubepods/burstable/pod" + uid + "/" + std::string(64, 'c') + "\n";
}

class GpuOwnershipTest : public ::testing::Test {
 protected:
  GpuOwnershipTest() {
    options.root = tree.root();
    for (int i = 0; i < 4; ++i) {
      inputs.gpus.emplace_back().uuid = "GPU-" + std::to_string(i);
      inputs.gpus.back().index = i;
    }
    inputs.processes_read = true;
    inputs.slow = true;
    inputs.now_ns = 100 * kSecond;
  }

  void use_kubelet() {
    tree.write("/var/lib/kubelet/pod-resources/kubelet.sock", "");
    options.kubelet_call = [this](const std::string& socket, const std::string& method, const std::string& request) {
      EXPECT_EQ(socket, tree.root() + "/var/lib/kubelet/pod-resources/kubelet.sock");
      EXPECT_EQ(method, "/v1.PodResourcesLister/List");
      EXPECT_EQ(request, "");
      ++calls;
      return answer;
    };
  }
  OwnerTable poll(GpuOwnership& who) {
    OwnerTable owners = who.poll(inputs);
    inputs.now_ns += 10 * kSecond;
    reported = {};
    who.report(reported);
    return owners;
  }
  // "job_id=77 rank=3 further=true" for each row of a GPU, without what is not asked for.
  std::vector<std::string> rows(const std::string& gpu, const std::vector<std::string>& names) const {
    std::vector<std::string> found;
    for (const Reading& reading : reported.readings) {
      if (reading.metric != &descriptor_of(GpuOwnershipMetric::kJobGpuInfo) || reading.labels->front().second != gpu)
        continue;
      std::string row;
      for (const auto& [name, value] : *reading.labels) {
        if (std::find(names.begin(), names.end(), name) != names.end())
          row += (row.empty() ? "" : " ") + name + "=" + value;
      }
      found.push_back(row);
    }
    return found;
  }
  double value(GpuOwnershipMetric metric, const std::string& label) const {
    for (const Reading& reading : reported.readings) {
      if (reading.metric == &descriptor_of(metric) && reading.labels->front().second == label) return reading.value;
    }
    return -1;
  }

  TestTree tree;
  GpuOwnershipOptions options;
  GpuOwnershipInputs inputs;
  NodeReadings reported;
  Result<std::string> answer = std::string();
  int calls = 0;
};

TEST_F(GpuOwnershipTest, ASlurmJobOwnsItsGpusWithoutAnyHelpOfItsOwn) {
  inputs.processes = {{501, "GPU-0", 60 * kGb}, {502, "GPU-1", 50 * kGb}, {502, "GPU-0", kGb}};
  tree.start({.pid = 501, .cgroup = kSlurmJob, .environment = "SLURM_JOB_ID=77;RANK=8;LOCAL_RANK=0"});
  tree.start({.pid = 502,
              .cgroup = "3:memory:/slurm/uid_1000/job_77/step_0/task_1\n",
              .environment = "SLURM_PROCID=9;SLURM_JOB_GPUS=5;SLURM_RESTART_COUNT=2"});
  GpuOwnership who(options);
  const OwnerTable owners = poll(who);
  EXPECT_EQ(*owners.of_gpu("GPU-0"), (Owner{"77", 0, 8_rank, "anna", "", "", "", "slurm"}));
  EXPECT_EQ(*owners.of_process(502), (Owner{"77", 2, 9_rank, "anna", "", "", "", "slurm"}));
  EXPECT_EQ(owners.of_gpu("GPU-2"), nullptr);
  EXPECT_EQ(rows("GPU-0", {"job_id", "rank", "user", "attempt", "source", "further"}),
            std::vector<std::string>{"job_id=77 attempt=0 rank=8 user=anna source=slurm"});
  EXPECT_EQ(rows("GPU-1", {"rank"}), std::vector<std::string>{"rank=9"});
  EXPECT_EQ(value(GpuOwnershipMetric::kAllocated, "GPU-0"), 1);
  EXPECT_EQ(value(GpuOwnershipMetric::kAllocated, "GPU-3"), 0);
  EXPECT_EQ(value(GpuOwnershipMetric::kProcesses, "GPU-0"), 2);
  EXPECT_EQ(value(GpuOwnershipMetric::kProcessMemory, "GPU-0"), 60.0 * kGb);
  EXPECT_EQ(value(GpuOwnershipMetric::kForeignProcesses, "GPU-0"), 0);
  EXPECT_EQ(who.gpu_of(502), "GPU-1");
  EXPECT_EQ(who.gpu_of(999), "");
}

TEST_F(GpuOwnershipTest, WithoutPermissionForTheEnvironmentTheCgroupStillNamesTheJob) {
  inputs.processes = {{501, "GPU-0", kGb}};
  tree.start({.pid = 501, .cgroup = kSlurmJob, .environment = "RANK=8"});
  tree.remove("/proc/501/environ");
  options.read_environment = false;
  GpuOwnership who(options);
  EXPECT_EQ(*poll(who).of_gpu("GPU-0"), (Owner{"77", 0, kNoRank, "anna", "", "", "", "slurm"}));
  EXPECT_EQ(rows("GPU-0", {"rank"}), std::vector<std::string>{""}) << "no label for what is not known";
}

TEST_F(GpuOwnershipTest, ADeniedEnvironmentIsSaidOnce) {
  inputs.processes = {{501, "GPU-0", kGb}, {502, "GPU-1", kGb}};
  for (int32_t pid : {501, 502}) {
    tree.start({.pid = pid, .cgroup = kSlurmJob});
    ASSERT_EQ(chmod((tree.root() + format("/proc/%d/environ", pid)).c_str(), 0), 0);
  }
  ASSERT_EQ(chmod(tree.root().c_str(), 0755), 0);
  const pid_t child = fork();
  if (child == 0) {  // root may read everything: be somebody else
    if (geteuid() == 0 && setuid(65534) != 0) _exit(9);
    GpuOwnership who(options);
    if (poll(who).of_gpu("GPU-0")->job_id != "77") _exit(1);
    if (reported.notes.size() != 1) _exit(2);
    poll(who);
    _exit(reported.notes.empty() ? 0 : 3);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(GpuOwnershipTest, WhenAJobEndsItsRowsVanishAndTheNextOneTakesOver) {
  inputs.processes = {{501, "GPU-0", kGb}};
  tree.start({.pid = 501, .cgroup = kSlurmJob, .environment = "RANK=8"});
  GpuOwnership who(options);
  poll(who);
  ASSERT_EQ(rows("GPU-0", {"rank"}), std::vector<std::string>{"rank=8"});

  // The list was not read again, but the process has gone.
  inputs.processes_read = false;
  tree.end(501);
  EXPECT_EQ(poll(who).of_gpu("GPU-0"), nullptr);
  EXPECT_TRUE(rows("GPU-0", {"rank"}).empty());
  EXPECT_EQ(value(GpuOwnershipMetric::kAllocated, "GPU-0"), 0);
  EXPECT_EQ(value(GpuOwnershipMetric::kProcesses, "GPU-0"), 0);

  // Its number is given out again.
  inputs.processes_read = true;
  tree.start({.pid = 501, .start_ticks = 2000, .uid = 1001, .environment = "LOCKSTEP_JOB_ID=next;RANK=1"});
  EXPECT_EQ(*poll(who).of_gpu("GPU-0"), (Owner{"next", 0, 1_rank, "bob", "", "", "", "environment"}));
}

TEST_F(GpuOwnershipTest, AReusedPidIsNotTheProcessThatWasOnTheGpu) {
  inputs.processes = {{501, "GPU-0", kGb}};
  tree.start({.pid = 501, .cgroup = kSlurmJob});
  GpuOwnership who(options);
  poll(who);
  inputs.processes_read = false;
  tree.start({.pid = 501, .start_ticks = 2000, .cgroup = kSlurmJob});
  EXPECT_EQ(poll(who).of_gpu("GPU-0"), nullptr);
}

TEST_F(GpuOwnershipTest, AProcessIsReadOnceInItsLifeButMayBeAdoptedLater) {
  inputs.processes = {{501, "GPU-0", kGb}};
  tree.start({.pid = 501, .environment = "RANK=8"});
  GpuOwnership who(options);
  EXPECT_EQ(poll(who).of_gpu("GPU-0")->job_id, "");
  EXPECT_EQ(rows("GPU-0", {"user", "source"}), std::vector<std::string>{"user=anna"});
  tree.write("/proc/501/environ", std::string("RANK=9\0", 7));
  tree.write("/proc/501/cgroup", kSlurmJob);
  EXPECT_EQ(*poll(who).of_gpu("GPU-0"), (Owner{"77", 0, 8_rank, "anna", "", "", "", "slurm"}));
}

TEST_F(GpuOwnershipTest, APodOwnsItsGpusFromTheMomentItIsGivenThem) {
  use_kubelet();
  answer = pod_answer({{"team", "llama-worker-3", "trainer", {"GPU-0", "GPU-1"}}});
  GpuOwnership who(options);
  EXPECT_EQ(*poll(who).of_gpu("GPU-1"),
            (Owner{"team/llama", 0, kNoRank, "", "team", "llama-worker-3", "trainer", "kubernetes"}));
  EXPECT_EQ(value(GpuOwnershipMetric::kAllocated, "GPU-1"), 1);
  EXPECT_EQ(value(GpuOwnershipMetric::kAllocated, "GPU-2"), 0);

  // Its process says more: rank and user. The pod's name comes from the kubelet's log folders.
  tree.write("/var/log/pods/team_llama-worker-3_0a1b2c3d-4444/x", "");
  inputs.processes = {{501, "GPU-1", kGb}};
  tree.start({.pid = 501, .cgroup = pod_cgroup("0a1b2c3d-4444"), .environment = "RANK=25;WORLD_SIZE=32"});
  EXPECT_EQ(*poll(who).of_gpu("GPU-1"),
            (Owner{"team/llama", 0, 25_rank, "anna", "team", "llama-worker-3", "trainer", "kubernetes"}));
  EXPECT_EQ(rows("GPU-1", {"job_id", "rank", "namespace", "pod", "container"}),
            std::vector<std::string>{"job_id=team/llama rank=25 namespace=team pod=llama-worker-3 container=trainer"});
}

TEST_F(GpuOwnershipTest, APodIsFoundByItsVariablesOrByItsGpuWhereTheFoldersAreNotMounted) {
  use_kubelet();
  answer = pod_answer({{"team", "one-0", "c", {"GPU-0::0"}},
                       {"team", "two-0", "c", {"GPU-0::1"}},
                       {"team", "three-0", "c", {"GPU-1"}}});
  inputs.processes = {{501, "GPU-0", kGb}, {502, "GPU-0", kGb}, {503, "GPU-1", kGb}, {504, "GPU-1", kGb}};
  tree.start({.pid = 501, .cgroup = pod_cgroup("aaaaaaaa-1"), .environment = "POD_NAME=one-0;POD_NAMESPACE=team"});
  tree.start({.pid = 502, .cgroup = pod_cgroup("aaaaaaaa-2"), .environment = "HOSTNAME=two-0"});
  tree.start({.pid = 503, .cgroup = pod_cgroup("aaaaaaaa-3")});
  tree.start({.pid = 504, .uid = 1001});
  GpuOwnership who(options);
  const OwnerTable owners = poll(who);
  EXPECT_EQ(owners.of_process(501)->pod, "one-0");
  EXPECT_EQ(owners.of_process(502)->pod, "two-0");
  EXPECT_EQ(owners.of_process(503)->pod, "three-0");
  EXPECT_EQ(owners.of_process(504)->pod, "") << "not in a pod, though on a pod's GPU";
  EXPECT_EQ(rows("GPU-0", {"pod", "further"}), (std::vector<std::string>{"pod=one-0", "pod=two-0 further=true"}));
  EXPECT_EQ(value(GpuOwnershipMetric::kForeignProcesses, "GPU-1"), 1);
}

TEST_F(GpuOwnershipTest, TheKubeletIsAskedOnSlowTicksAndWhenSomebodyIsNew) {
  use_kubelet();
  GpuOwnership who(options);
  poll(who);
  EXPECT_EQ(calls, 1);
  inputs.slow = false;
  poll(who);
  EXPECT_EQ(calls, 1);
  inputs.processes = {{501, "GPU-0", kGb}};
  tree.start({.pid = 501});
  poll(who);
  EXPECT_EQ(calls, 2);
  poll(who);
  EXPECT_EQ(calls, 2);
}

TEST_F(GpuOwnershipTest, AKubeletThatFailsIsSaidOnceAskedSeldomAndWhatItToldStands) {
  use_kubelet();
  answer = pod_answer({{"team", "llama-0", "trainer", {"GPU-0"}}});
  GpuOwnership who(options);
  poll(who);
  answer = Error{"connection refused"};
  EXPECT_NE(poll(who).of_gpu("GPU-0"), nullptr);
  EXPECT_EQ(reported.notes.size(), 1u);
  EXPECT_EQ(reported.failures, 1);
  EXPECT_EQ(calls, 2);
  poll(who);
  EXPECT_EQ(calls, 2) << "not for half a minute";
  EXPECT_EQ(reported.failures, 0);
  inputs.now_ns += Pods::kAfterErrorNs;
  answer = std::string("\x0a\x7f");
  poll(who);
  EXPECT_EQ(calls, 3);
  EXPECT_TRUE(reported.notes.empty());
  inputs.now_ns += Pods::kAfterErrorNs;
  answer = std::string();
  EXPECT_EQ(poll(who).of_gpu("GPU-0"), nullptr) << "the pod has gone";
}

TEST_F(GpuOwnershipTest, TheFilesOfAPrologTellWhoHoldsAnIdleGpu) {
  options.slurm_gpu_folder = "/run/gpu-jobs";
  tree.write("/run/gpu-jobs/0", "77\n");
  tree.write("/run/gpu-jobs/1", "\n");
  inputs.processes = {{501, "GPU-0", kGb}};
  GpuOwnership who(options);
  EXPECT_EQ(*poll(who).of_gpu("GPU-0"), (Owner{"77", 0, kNoRank, "", "", "", "", "slurm"}));
  EXPECT_EQ(value(GpuOwnershipMetric::kAllocated, "GPU-1"), 0);
  tree.start({.pid = 501, .cgroup = kSlurmJob, .environment = "RANK=3"});
  EXPECT_EQ(poll(who).of_gpu("GPU-0")->rank, 3_rank);
  EXPECT_EQ(rows("GPU-0", {"job_id", "rank"}), std::vector<std::string>{"job_id=77 rank=3"});
}

TEST_F(GpuOwnershipTest, ARecorderNamesItsRankAndLearnsItsGpu) {
  const std::string path = tree.root() + "/shm/501-1000.lsfr";
  inputs.processes = {{501, "GPU-0", 1}};  // so far it has touched the first GPU only
  tree.start({.pid = 501, .cgroup = kSlurmJob});
  inputs.recorders = {{501, path, {"llama", 1, 13_rank, 16, 2, "gpu-017", ""}, true, {}, 1000, {}}};
  GpuOwnership who(options);
  EXPECT_EQ(*poll(who).of_gpu("GPU-0"), (Owner{"llama", 1, 13_rank, "anna", "", "", "", "recorder"}));
  EXPECT_EQ(who.completed(path, inputs.recorders[0].identity).gpu_uuid, "GPU-0");
  EXPECT_EQ(who.pid_of_recorder(path), 501);

  // What was filled in comes back with the recorder: it is no word of its own.
  inputs.recorders[0].identity.gpu_uuid = "GPU-0";
  inputs.processes = {{501, "GPU-0", 1}, {501, "GPU-2", 60 * kGb}};
  EXPECT_EQ(poll(who).of_gpu("GPU-2")->rank, 13_rank);
  Identity bare = inputs.recorders[0].identity;
  bare.gpu_uuid.clear();
  EXPECT_EQ(who.completed(path, bare).gpu_uuid, "GPU-2");

  // It has ended: its last words still carry its GPU.
  tree.end(501);
  inputs.processes.clear();
  inputs.recorders[0].alive = false;
  EXPECT_EQ(poll(who).of_gpu("GPU-2"), nullptr);
  EXPECT_EQ(who.completed(path, bare).gpu_uuid, "GPU-2");
  inputs.recorders.clear();
  poll(who);
  EXPECT_EQ(who.completed(path, bare).gpu_uuid, "");
}

TEST_F(GpuOwnershipTest, ARecorderThatSaysItsGpuIsBelieved) {
  const std::string path = tree.root() + "/shm/501-1000.lsfr";
  inputs.processes = {{501, "GPU-0", 60 * kGb}};
  tree.start({.pid = 501});
  inputs.recorders = {{501, path, {"llama", 0, 3_rank, 8, 3, "gpu-017", "GPU-3"}, true, {}, 1000, {}}};
  GpuOwnership who(options);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(poll(who).of_gpu("GPU-3")->rank, 3_rank);
  EXPECT_EQ(who.gpu_of(501), "GPU-3");
}

TEST_F(GpuOwnershipTest, ARecorderOfAnotherUserNamesNobodysProcessAndNobodysGpu) {
  inputs.processes = {{501, "GPU-0", 60 * kGb}};
  tree.start({.pid = 501, .cgroup = kSlurmJob, .environment = "RANK=5"});
  const std::string theirs = tree.root() + "/shm-1001/501-1000.lsfr";
  // Bob's file: Anna's pid, her start time, and her GPU by name.
  inputs.recorders = {{501, theirs, {"bobs", 9, 0_rank, 8, 0, "gpu-017", ""}, true, {}, 1001, {}}};
  GpuOwnership who(options);
  EXPECT_EQ(poll(who).of_gpu("GPU-0")->job_id, "77");
  EXPECT_EQ(who.pid_of_recorder(theirs), -1);
  EXPECT_EQ(who.completed(theirs, inputs.recorders[0].identity).gpu_uuid, "");
  inputs.recorders[0].identity.gpu_uuid = "GPU-0";
  EXPECT_EQ(poll(who).of_gpu("GPU-0")->job_id, "77");
  EXPECT_EQ(rows("GPU-0", {"job_id", "rank"}), std::vector<std::string>{"job_id=77 rank=5"});
  // A folder whose owner nobody knows is nobody's, and not root's.
  tree.start({.pid = 502, .uid = 0});
  inputs.recorders = {
      {502, tree.root() + "/shm/502-1000.lsfr", {"x", 0, 0_rank, 1, 0, "gpu-017", ""}, true, {}, -1, {}}};
  poll(who);
  EXPECT_EQ(who.pid_of_recorder(inputs.recorders[0].path), -1);
}

TEST_F(GpuOwnershipTest, ARankInAContainerIsFoundAndAJobThatItCouldNotNameIs) {
  use_kubelet();
  answer = pod_answer({{"team", "llama-worker-3", "trainer", {"GPU-0"}}});
  const std::string path = tree.root() + "/shm/7-1000.lsfr";
  inputs.processes = {{9001, "GPU-0", kGb}};
  tree.start({.pid = 9001, .cgroup = pod_cgroup("0a1b2c3d-4444"), .inner_pid = 7});
  inputs.recorders = {
      {7, path, {"unknown-llama-worker-3-1", 0, 3_rank, 8, 0, "llama-worker-3", ""}, true, {}, 1000, {}}};
  GpuOwnership who(options);
  const OwnerTable owners = poll(who);
  EXPECT_EQ(who.pid_of_recorder(path), 9001);
  EXPECT_EQ(*owners.of_process(9001),
            (Owner{"team/llama", 0, 3_rank, "anna", "team", "llama-worker-3", "trainer", "kubernetes"}));
  const Identity completed = who.completed(path, inputs.recorders[0].identity);
  EXPECT_EQ(completed.job_id, "team/llama");
  EXPECT_EQ(completed.gpu_uuid, "GPU-0");
}

TEST_F(GpuOwnershipTest, ARecorderOfAProcessThatCannotBeSeenStillSpeaksForItself) {
  inputs.processes_read = false;
  inputs.recorders = {
      {7, tree.root() + "/shm/7-1000.lsfr", {"llama", 0, 3_rank, 8, 0, "pod", "GPU-1"}, true, {}, 1000, {}}};
  GpuOwnership who(options);
  EXPECT_EQ(poll(who).of_gpu("GPU-1")->rank, 3_rank);
  EXPECT_EQ(rows("GPU-1", {"job_id", "rank", "source"}),
            std::vector<std::string>{"job_id=llama rank=3 source=recorder"});
  EXPECT_EQ(value(GpuOwnershipMetric::kProcesses, "GPU-1"), -1) << "not known, so not told";
  EXPECT_EQ(value(GpuOwnershipMetric::kAllocated, "GPU-1"), -1);
}

TEST_F(GpuOwnershipTest, RanksThatShareAGpuHaveARowEachAndOneStandsForIt) {
  inputs.processes = {{50, "GPU-0", kGb}, {501, "GPU-0", kGb}, {502, "GPU-0", kGb}};
  tree.start({.pid = 50, .uid = 0, .name = "nvidia-cuda-mps"});
  tree.start({.pid = 501, .cgroup = kSlurmJob, .environment = "RANK=1"});
  tree.start({.pid = 502, .cgroup = kSlurmJob, .environment = "RANK=0"});
  GpuOwnership who(options);
  poll(who);
  EXPECT_EQ(rows("GPU-0", {"rank", "further"}), (std::vector<std::string>{"rank=0", "rank=1 further=true"}));
  EXPECT_EQ(value(GpuOwnershipMetric::kForeignProcesses, "GPU-0"), 0);
}

TEST_F(GpuOwnershipTest, AForeignProcessIsCountedAtOnceAndToldOnceWhenItStays) {
  inputs.processes = {{501, "GPU-0", 60 * kGb}, {600, "GPU-0", kGb}};
  inputs.now_unix_ns = 42;
  tree.start({.pid = 501, .cgroup = kSlurmJob, .environment = "RANK=8"});
  tree.start({.pid = 600, .uid = 1001, .name = "jupyter"});
  GpuOwnership who(options);
  poll(who);
  EXPECT_EQ(value(GpuOwnershipMetric::kForeignProcesses, "GPU-0"), 1);
  EXPECT_TRUE(reported.events.empty()) << "it may be on its way out";
  poll(who);
  ASSERT_EQ(reported.events.size(), 1u);
  const NodeEvent& event = reported.events[0];
  EXPECT_EQ(event.name, "gpu.foreign_process");
  EXPECT_EQ(event.severity, EventSeverity::kWarn);
  EXPECT_EQ(event.gpu_uuid, "GPU-0");
  EXPECT_EQ(event.pid, 600);
  EXPECT_EQ(event.process, "jupyter");
  EXPECT_EQ(event.job_id, "77");
  EXPECT_EQ(event.rank, 8_rank);
  EXPECT_EQ(event.time_unix_ns, 42);
  EXPECT_EQ(event.text, "process 600 (jupyter; no job, user bob) is on a GPU held by job 77 rank 8, user anna");
  poll(who);
  EXPECT_TRUE(reported.events.empty());
  EXPECT_EQ(value(GpuOwnershipMetric::kForeignProcesses, "GPU-0"), 1);
  tree.end(600);
  poll(who);
  EXPECT_EQ(value(GpuOwnershipMetric::kForeignProcesses, "GPU-0"), 0);
}

TEST_F(GpuOwnershipTest, AJobsEnergyIsThatOfItsGpus) {
  inputs.processes = {{501, "GPU-0", kGb}};
  tree.start({.pid = 501, .cgroup = kSlurmJob});
  inputs.energy_joules = {{"GPU-0", 1000}, {"GPU-1", 1000}};
  GpuOwnership who(options);
  poll(who);
  inputs.energy_joules = {{"GPU-0", 1700}, {"GPU-1", 1100}};
  poll(who);
  EXPECT_EQ(value(GpuOwnershipMetric::kJobEnergy, "77"), 700);
}

TEST_F(GpuOwnershipTest, AMigInstanceHasItsOwnerAndItsGpuIsTaken) {
  inputs.gpus.push_back({.uuid = "MIG-1", .index = 0, .parent_uuid = "GPU-3"});
  inputs.processes = {{501, "MIG-1", kGb}};
  tree.start({.pid = 501, .cgroup = kSlurmJob, .environment = "RANK=2"});
  GpuOwnership who(options);
  poll(who);
  EXPECT_EQ(rows("MIG-1", {"rank"}), std::vector<std::string>{"rank=2"});
  EXPECT_EQ(value(GpuOwnershipMetric::kAllocated, "GPU-3"), 1);
  EXPECT_EQ(value(GpuOwnershipMetric::kAllocated, "GPU-2"), 0);
}

TEST_F(GpuOwnershipTest, LabelsAreMadeOnce) {
  inputs.processes = {{501, "GPU-0", kGb}};
  tree.start({.pid = 501, .cgroup = kSlurmJob});
  GpuOwnership who(options);
  poll(who);
  const std::vector<Reading> before = reported.readings;
  poll(who);
  ASSERT_EQ(before.size(), reported.readings.size());
  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i].labels, reported.readings[i].labels);
}

TEST_F(GpuOwnershipTest, ItsReadingsAreThoseOfTheTable) {
  inputs.processes = {{501, "GPU-0", kGb}};
  inputs.energy_joules = {{"GPU-0", 1}};
  tree.start({.pid = 501, .cgroup = kSlurmJob});
  GpuOwnership who(options);
  poll(who);
  std::set<const MetricDescriptor*> seen;
  for (const Reading& reading : reported.readings) {
    seen.insert(reading.metric);
    for (const auto& [name, text] : *reading.labels) {
      const std::string listed = std::string(", ") + reading.metric->labels + ",";
      EXPECT_NE(listed.find(" " + name + ","), std::string::npos) << reading.metric->name << " " << name;
    }
  }
  EXPECT_EQ(seen.size(), std::size(kWhoMetrics));
}

TEST_F(GpuOwnershipTest, SaysWhatWorksHereAndHowToSwitchOnTheRest) {
  GpuOwnership alone(options);
  std::vector<SourceCheck> checks = alone.check();
  ASSERT_EQ(checks.size(), 3u);
  for (const SourceCheck& check : checks) EXPECT_EQ(check.works, check.todo.empty()) << check.what;
  EXPECT_FALSE(checks[2].works);
  use_kubelet();
  tree.start({.pid = 1});
  GpuOwnership on_kubernetes(options);
  checks = on_kubernetes.check();
  EXPECT_TRUE(checks[1].works);
  EXPECT_TRUE(checks[2].works);
  EXPECT_EQ(calls, 1);
}

TEST(GpuOwnershipInputs, TakesWhatASnapshotHas) {
  static constexpr MetricDescriptor kEnergy{"hw.energy", "J", MetricKind::kSum, "gpu_uuid", ""};
  GpuSnapshot snapshot;
  snapshot.gpus.emplace_back().info.uuid = "GPU-0";
  snapshot.gpus[0].values.push_back({&kEnergy, "", 12.5});
  snapshot.processes = {{501, "GPU-0", kGb}};
  snapshot.processes_read = true;
  GpuOwnershipInputs inputs;
  inputs.take(snapshot);
  EXPECT_EQ(inputs.gpus.at(0).uuid, "GPU-0");
  EXPECT_EQ(inputs.energy_joules.at("GPU-0"), 12.5);
  EXPECT_EQ(inputs.processes, snapshot.processes);
  EXPECT_TRUE(inputs.processes_read);
}

}  // namespace
}  // namespace lockstep
