#include "sources/ownership/process_text.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

const std::string kId(64, 'a');

TEST(CgroupPath, KnowsSlurmJobsOfBothVersions) {
  EXPECT_EQ(parse_cgroup("0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_3\n"),
            (CgroupFacts{"4711", "0", "", ""}));
  EXPECT_EQ(parse_cgroup("0::/system.slice/gpu-017_slurmstepd.scope/job_4711/step_batch/user\n").slurm_step, "batch");
  EXPECT_EQ(parse_cgroup("12:pids:/\n11:memory:/slurm/uid_1000/job_815/step_extern/task_0\n1:name=systemd:/x\n"),
            (CgroupFacts{"815", "extern", "", ""}));
  EXPECT_EQ(parse_cgroup("4:devices:/slurm_gpu-017/uid_1000/job_815/step_0\n").slurm_job, "815");
  EXPECT_EQ(parse_cgroup("0::/../../../system.slice/slurmstepd.scope/job_9/step_0/user/task_0\n").slurm_job, "9");
}

TEST(CgroupPath, DoesNotTakeAnybodysFolderForASlurmJob) {
  EXPECT_EQ(parse_cgroup("0::/user.slice/user-1000.slice/job_7/step_0\n"), CgroupFacts{});
  EXPECT_EQ(parse_cgroup("0::/system.slice/slurmstepd.scope/job_7x/step_0\n"), CgroupFacts{});
  EXPECT_EQ(parse_cgroup("0::/system.slice/slurmstepd.scope/system\n"), CgroupFacts{});
  EXPECT_EQ(parse_cgroup("3:cpu:/uid_0/job_7\n"), CgroupFacts{});
}

TEST(CgroupPath, KnowsPodsOfEveryDriverAndRuntime) {
  const CgroupFacts pod{"", "", "0a1b2c3d-1111-2222-3333-444455556666", kId};
  EXPECT_EQ(parse_cgroup("0::/kubepods.slice/kubepods-burstable.slice/"
                         "kubepods-burstable-pod0a1b2c3d_1111_2222_3333_444455556666.slice/cri-containerd-" +
                         kId + ".scope\n"),
            pod);
  EXPECT_EQ(parse_cgroup("0::/kubelet.slice/kubelet-kubepods.slice/"
                         "kubelet-kubepods-pod0a1b2c3d_1111_2222_3333_444455556666.slice/crio-" +
                         kId + ".scope/container\n"),
            pod);
  EXPECT_EQ(parse_cgroup("5:memory:/kubepods/besteffort/pod0a1b2c3d-1111-2222-3333-444455556666/" + kId + "\n"), pod);
  EXPECT_EQ(parse_cgroup("0::/kubepods/pod0123456789abcdef0123456789abcdef/" + kId + "\n").pod_uid,
            "0123456789abcdef0123456789abcdef")
      << "a static pod's uid has no dashes";
  EXPECT_EQ(parse_cgroup("0::/system.slice/docker-" + kId + ".scope\n"), (CgroupFacts{"", "", "", kId}));
  EXPECT_EQ(parse_cgroup("0::/home/pod0a1b2c3d-1111/x\n").pod_uid, "");
}

TEST(ProcessEnvironment, KeepsWhatSaysWhoAndNothingElse) {
  const std::string text("SLURM_JOB_ID=77\0AWS_SECRET_ACCESS_KEY=hidden\0RANK=3\0RANK=4\0LOCAL_RANK=\0HALF=1", 78);
  const Environment found = parse_environment(text);
  EXPECT_EQ(found.size(), 2u);
  EXPECT_EQ(found.at("SLURM_JOB_ID"), "77");
  EXPECT_EQ(found.at("RANK"), "3") << "as getenv() has it";
}

TEST(ProcessEnvironment, HoldsNothingThatDisturbsALogAndNoHalfValue) {
  EXPECT_EQ(parse_environment(std::string("LOCKSTEP_JOB_ID=a\nb\0", 20)).at("LOCKSTEP_JOB_ID"), "a?b");
  EXPECT_TRUE(parse_environment("RANK=1").empty()) << "cut short: it may have been 12";
  const std::string longer = "LOCKSTEP_JOB_ID=" + std::string(5000, 'x') + '\0';
  EXPECT_EQ(parse_environment(longer).at("LOCKSTEP_JOB_ID").size(), kEnvironmentValueMax);
}

TEST(ProcessStatus, TellsNameUserAndTheNumberInItsOwnNamespace) {
  const StatusFacts facts =
      parse_status("Name:\tpython3\nPid:\t88123\nUid:\t1000\t1000\t1000\t1000\nNSpid:\t88123\t412\t7\n");
  EXPECT_EQ(facts.name, "python3");
  EXPECT_EQ(facts.uid, 1000);
  EXPECT_EQ(facts.inner_pid, 7);
  EXPECT_EQ(parse_status("Name:\tx\n").inner_pid, -1);
  EXPECT_EQ(parse_status("").uid, -1);
}

TEST(ProcessStatus, UsersComeFromTheFile) {
  const auto names = parse_passwd("root:x:0:0::/root:/bin/sh\n+::::\nbroken\nanna:x:1000:100::/home/anna:/bin/sh\n");
  EXPECT_EQ(names, (std::map<int64_t, std::string>{{0, "root"}, {1000, "anna"}}));
}

}  // namespace
}  // namespace lockstep
