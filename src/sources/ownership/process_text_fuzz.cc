// Whatever a process writes into its own files, what is taken from it is fit for a label.
#include <cstdlib>

#include "base/text.h"
#include "sources/ownership/ownership.h"
#include "sources/ownership/process_text.h"

namespace {

using namespace lockstep;

void check(bool holds) {
  if (!holds) std::abort();
}

void check_text(const std::string& text, size_t bytes_max) {
  check(text.size() <= bytes_max && !has_control_characters(text));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  ProcessFacts facts;
  for (const std::string& prefix :
       {std::string(), std::string("0::/system.slice/slurmstepd.scope/job_"), std::string("0::/kubepods/pod")}) {
    facts.cgroup = parse_cgroup(prefix + std::string(text));
    check_text(facts.cgroup.slurm_job, 20);
    check(facts.cgroup.slurm_job.find_first_not_of("0123456789") == std::string::npos);
    check_text(facts.cgroup.slurm_step, 32);
    check_text(facts.cgroup.pod_uid, 64);
    check(facts.cgroup.container_id.empty() || facts.cgroup.container_id.size() == 64);
  }
  facts.environment = parse_environment(text);
  for (const auto& [name, value] : facts.environment) {
    check(!value.empty());
    check_text(name, 64);
    check_text(value, kEnvironmentValueMax);
  }
  check_text(parse_status(text).name, 64);
  for (const auto& [uid, name] : parse_passwd(text)) {
    check(uid >= 0);
    check_text(name, 64);
  }
  const Owner owner = owner_from_process(facts, PodRef{"team", facts.variable("POD_NAME"), ""}).owner;
  check(owner.rank >= kNoRank && owner.attempt >= 0);
  check_text(owner.job_id, 127);
  std::vector<GpuInfo> gpus(1);
  gpus[0].uuid = "GPU-a";
  gpu_from_environment(facts, owner.rank.value(), gpus);
  return 0;
}
