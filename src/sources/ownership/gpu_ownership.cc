#include "sources/ownership/gpu_ownership.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/files.h"
#include "base/text.h"
#include "recorder/identity_variables.h"
#include "sources/ownership/gpu_ownership_metrics.h"
#include "sources/ownership/recorder_process.h"

namespace lockstep {
namespace {

constexpr size_t kSlurmJobsPerGpuMax = 64;

std::string described(const Owner& owner) {
  std::string text = owner.job_id.empty() ? "no job" : "job " + owner.job_id;
  if (owner.rank != kNoRank) text += format(" rank %d", owner.rank.value());
  if (!owner.user.empty()) text += ", user " + owner.user;
  if (!owner.pod.empty()) text += ", pod " + owner.pod_namespace + "/" + owner.pod;
  return text;
}

LabelSet info_labels(const std::string& uuid, const Owner& owner, bool further) {
  Labels labels{{"gpu_uuid", uuid}};
  auto add = [&](const char* name, std::string value) {
    if (!value.empty()) labels.push_back({name, std::move(value)});
  };
  add("job_id", owner.job_id);
  if (!owner.job_id.empty()) add("attempt", std::to_string(owner.attempt));
  if (owner.rank != kNoRank) add("rank", std::to_string(owner.rank.value()));
  add("user", owner.user);
  add("namespace", owner.pod_namespace);
  add("pod", owner.pod);
  add("container", owner.container);
  add("source", owner.source);
  if (further) add("further", "true");
  return std::make_shared<const Labels>(std::move(labels));
}

// It is on a GPU for others.
bool is_gpu_service(const ProcessFacts& facts) {
  return facts.name.starts_with("nvidia-cuda-mps");
}

}  // namespace

void GpuOwnershipInputs::take(const GpuSnapshot& snapshot) {
  gpus.clear();
  energy_joules.clear();
  for (const GpuState& gpu : snapshot.gpus) {
    gpus.push_back(gpu.info);
    for (const GpuValue& value : gpu.values) {
      if (std::strcmp(value.metric->name, "hw.energy") == 0) energy_joules[gpu.info.uuid] = value.value;
    }
  }
  processes = snapshot.processes;
  processes_read = snapshot.processes_read;
}

GpuOwnership::GpuOwnership(GpuOwnershipOptions options)
    : options_(std::move(options)),
      processes_(options_.root, options_.read_environment),
      pods_(options_.root, options_.kubelet_socket, options_.kubelet_call) {}

OwnerTable GpuOwnership::poll(const GpuOwnershipInputs& inputs) {
  processes_.begin_look(inputs.slow);
  const bool somebody_new = take_processes(inputs);
  find_recorders(inputs);
  if (inputs.slow || somebody_new) pods_.refresh(inputs.now_ns, notes_);
  if (inputs.slow) read_slurm_folder(inputs.gpus);
  const std::map<std::string, std::vector<Owner>> given = allocated(inputs.gpus);
  const std::vector<Claimant> all = claimants(inputs);
  make_owners(inputs, all);
  holders_ = find_gpu_holders(inputs.gpus, owners_.gpu_processes, all, given);
  for (auto& [pid, owner] : owners_.processes) {
    if (const auto rank = holders_.rank_of.find(pid); rank != holders_.rank_of.end()) owner.rank = rank->second;
  }
  for (const auto& [uuid, holder] : holders_.by_gpu) owners_.by_gpu[uuid] = holder.owners.front();
  remember_recorders(inputs);
  watch_foreign(inputs);
  make_rows();
  energy_.add(inputs.energy_joules, owners_.by_gpu, inputs.now_ns);
  processes_.end_look();
  return owners_;
}

bool GpuOwnership::take_processes(const GpuOwnershipInputs& inputs) {
  std::set<std::pair<int32_t, uint64_t>> before;
  for (const OnGpu& one : on_gpus_) before.insert({one.process.pid, one.start_ticks});
  if (inputs.processes_read) {
    on_gpus_.clear();
    for (const GpuProcess& process : inputs.processes) on_gpus_.push_back({process, 0});
    on_gpus_known_ = true;
    if (on_gpus_.size() > kProcessesMax) {
      note_once("processes", format("who: more than %zu processes on GPUs; the rest is left out", kProcessesMax));
      on_gpus_.resize(kProcessesMax);
    }
  }
  bool somebody_new = false;
  std::erase_if(on_gpus_, [&](OnGpu& one) {
    const ProcessFacts* facts = processes_.find(one.process.pid);
    if (one.start_ticks != 0) return facts == nullptr || facts->start_ticks != one.start_ticks;
    if (facts != nullptr) one.start_ticks = facts->start_ticks;
    somebody_new |= !before.contains({one.process.pid, one.start_ticks});
    return false;
  });
  return somebody_new;
}

void GpuOwnership::find_recorders(const GpuOwnershipInputs& inputs) {
  if (inputs.recorders.size() > kRecordersMax)
    note_once("recorders", format("who: more than %zu flight recorders; the rest is left out", kRecordersMax));
  std::set<std::string_view> there;
  std::vector<int32_t> candidates;
  for (const OnGpu& one : on_gpus_) candidates.push_back(one.process.pid);
  for (size_t i = 0; i < inputs.recorders.size() && i < kRecordersMax; ++i) {
    const RecorderOwner& recorder = inputs.recorders[i];
    there.insert(recorder.path);
    auto [at, is_new] = recorders_.try_emplace(recorder.path);
    Recorder& known = at->second;
    const std::string& gpu = recorder.identity.gpu_uuid;
    known.reported_gpu |= !gpu.empty() && !known.answers.contains(gpu);
    if (known.pid > 0) {
      const ProcessFacts* facts = recorder.alive ? processes_.find(known.pid) : nullptr;
      if (facts == nullptr || facts->start_ticks != known.start_ticks) known.pid = -1;
    }
    if (known.pid > 0 || !recorder.alive || (!is_new && !inputs.slow)) continue;
    const int32_t pid = process_of_recorder({.name = recorder.path.substr(recorder.path.rfind('/') + 1),
                                             .pid = recorder.pid,
                                             .user = recorder.user,
                                             .folder = recorder.folder.get()},
                                            processes_, candidates);
    if (const ProcessFacts* facts = processes_.find(pid)) {
      known.pid = pid;
      known.start_ticks = facts->start_ticks;
    }
  }
  std::erase_if(recorders_, [&](const auto& known) { return !there.contains(known.first); });
}

void GpuOwnership::read_slurm_folder(const std::vector<GpuInfo>& gpus) {
  if (options_.slurm_gpu_folder.empty()) return;
  const std::string folder = options_.root + options_.slurm_gpu_folder;
  slurm_holders_.clear();
  slurm_folder_read_ = ::access(folder.c_str(), R_OK | X_OK) == 0;
  if (!slurm_folder_read_)
    return note_once("slurm", format("Slurm: cannot read %s: %s", folder.c_str(), std::strerror(errno)));
  for (const GpuInfo& gpu : gpus) {
    if (!gpu.parent_uuid.empty() || gpu.index < 0) continue;
    const Result<std::string> text = read_file(folder + format("/%d", gpu.index), 65'536);
    if (!text.ok()) continue;  // nobody has it
    std::vector<Owner> owners;
    for (std::string_view line : split(*text, '\n')) {
      const std::string_view job = trim(line);
      if (!job.empty() && owners.size() < kSlurmJobsPerGpuMax) owners.push_back(owner_from_slurm(job));
    }
    if (!owners.empty()) slurm_holders_[gpu.uuid] = std::move(owners);
  }
}

std::map<std::string, std::vector<Owner>> GpuOwnership::allocated(const std::vector<GpuInfo>& gpus) {
  std::map<std::string, std::vector<Owner>> given = slurm_holders_;
  pod_holders_ = pods_.holders(gpus);
  for (const auto& [uuid, pods] : pod_holders_) {
    for (const PodRef& pod : pods) given[uuid].push_back(owner_from_pod(pod));
  }
  return given;
}

Claimant GpuOwnership::claimant_of(const ProcessFacts& facts) {
  std::vector<PodRef> on_its_gpus;
  for (const OnGpu& one : on_gpus_) {
    if (one.process.pid != facts.pid) continue;
    if (const auto pods = pod_holders_.find(one.process.gpu_uuid); pods != pod_holders_.end())
      on_its_gpus.insert(on_its_gpus.end(), pods->second.begin(), pods->second.end());
  }
  Claimant claimant;
  claimant.pid = facts.pid;
  claimant.start_ticks = facts.start_ticks;
  claimant.who = owner_from_process(facts, pods_.of_process(facts, on_its_gpus));
  claimant.service = is_gpu_service(facts);
  claimant.slurm_job = facts.cgroup.slurm_job;
  claimant.pod_uid = facts.cgroup.pod_uid;
  if (facts.environment_denied)
    note_once(
        "environment",
        format("who: the environment of process %d (user %s) may not be read; without a flight recorder, rank and "
               "job of such processes come from their cgroup alone (CAP_SYS_PTRACE would show them)",
               facts.pid, facts.user.c_str()));
  return claimant;
}

// The driver shows processes on it, and all of them are other users': a word in a file does not outweigh that.
bool GpuOwnership::is_anothers_gpu(const std::string& uuid, int64_t user) {
  bool anothers = false;
  for (const OnGpu& one : on_gpus_) {
    if (one.process.gpu_uuid != uuid) continue;
    const ProcessFacts* facts = processes_.find(one.process.pid);
    if (facts == nullptr || is_gpu_service(*facts)) continue;
    if (facts->owner_uid == user) return false;
    anothers = true;
  }
  return anothers;
}

std::vector<Claimant> GpuOwnership::claimants(const GpuOwnershipInputs& inputs) {
  std::vector<Claimant> all;
  std::map<int32_t, size_t> by_pid;
  auto of = [&](const ProcessFacts& facts) -> Claimant& {
    auto [place, is_new] = by_pid.try_emplace(facts.pid, all.size());
    if (is_new) all.push_back(claimant_of(facts));
    return all[place->second];
  };
  std::set<int32_t> on_gpu;
  for (const OnGpu& one : on_gpus_) {
    on_gpu.insert(one.process.pid);
    if (const ProcessFacts* facts = processes_.find(one.process.pid)) of(*facts);
  }
  for (const RecorderOwner& recorder : inputs.recorders) {
    const auto known = recorders_.find(recorder.path);
    if (known == recorders_.end() || !recorder.alive) continue;
    const ProcessFacts* facts = processes_.find(known->second.pid);
    if (facts == nullptr) all.emplace_back();  // lives where it cannot be seen: what it says is all there is
    Claimant& claimant = facts != nullptr ? of(*facts) : all.back();
    claimant.who = with_recorder(std::move(claimant.who), recorder.identity);
    claimant.recorded = true;
    known->second.believed = known->second.reported_gpu && !is_anothers_gpu(recorder.identity.gpu_uuid, recorder.user);
    if (known->second.believed) claimant.reported_gpu = recorder.identity.gpu_uuid;
  }
  for (Claimant& claimant : all) {
    if (!claimant.reported_gpu.empty() || on_gpu.contains(claimant.pid)) continue;
    if (const ProcessFacts* facts = processes_.find(claimant.pid))
      claimant.reported_gpu = gpu_from_environment(*facts, claimant.who.local_rank, inputs.gpus);
  }
  return all;
}

void GpuOwnership::make_owners(const GpuOwnershipInputs& inputs, const std::vector<Claimant>& all) {
  owners_ = {};
  owners_.gpus = inputs.gpus;
  for (const OnGpu& one : on_gpus_) owners_.gpu_processes.push_back(one.process);
  for (const Claimant& claimant : all) {
    if (claimant.pid > 0) owners_.processes[claimant.pid] = claimant.who.owner;
  }
}

void GpuOwnership::remember_recorders(const GpuOwnershipInputs& inputs) {
  for (const RecorderOwner& recorder : inputs.recorders) {
    const auto known = recorders_.find(recorder.path);
    if (known == recorders_.end()) continue;
    const std::string gpu = known->second.believed ? recorder.identity.gpu_uuid : gpu_of(known->second.pid);
    if (!gpu.empty() && gpu != known->second.gpu_uuid) {
      known->second.gpu_uuid = gpu;
      if (!known->second.reported_gpu) known->second.answers.insert(gpu);
    }
    if (const Owner* owner = owners_.of_process(known->second.pid)) known->second.job_id = owner->job_id;
  }
}

std::string GpuOwnership::gpu_of(int32_t pid) const {
  const auto found = holders_.gpu_of.find(pid);
  return found == holders_.gpu_of.end() ? "" : found->second;
}

Identity GpuOwnership::completed(const std::string& path, Identity identity) const {
  const auto known = recorders_.find(path);
  if (known == recorders_.end()) return identity;
  if (identity.gpu_uuid.empty()) identity.gpu_uuid = known->second.gpu_uuid;
  const bool unnamed = identity.job_id.empty() || identity.job_id.starts_with(identity_variables::kUnknownJobPrefix);
  if (unnamed && !known->second.job_id.empty()) identity.job_id = known->second.job_id;
  return identity;
}

int32_t GpuOwnership::pid_of_recorder(const std::string& path) const {
  const auto known = recorders_.find(path);
  return known == recorders_.end() ? -1 : known->second.pid;
}

void GpuOwnership::watch_foreign(const GpuOwnershipInputs& inputs) {
  std::map<std::pair<std::string, int32_t>, Foreign> now;
  for (const auto& [uuid, holder] : holders_.by_gpu) {
    for (const int32_t pid : holder.foreign) {
      const auto before = foreign_.find({uuid, pid});
      Foreign& foreign = now[{uuid, pid}];
      foreign = before == foreign_.end() ? Foreign{inputs.now_ns, false} : before->second;
      if (foreign.reported || inputs.now_ns - foreign.since_ns < kForeignAfterNs) continue;
      foreign.reported = true;
      const auto& allowed = holder.foreign_allowed;
      report_foreign(inputs, uuid, pid, std::find(allowed.begin(), allowed.end(), pid) != allowed.end());
    }
  }
  foreign_ = std::move(now);
}

void GpuOwnership::report_foreign(const GpuOwnershipInputs& inputs, const std::string& uuid, int32_t pid,
                                  bool allowed) {
  const Owner& holder = owners_.by_gpu.at(uuid);
  const Owner* stranger = owners_.of_process(pid);
  const ProcessFacts* facts = processes_.find(pid);
  NodeEvent& event = events_.emplace_back();
  event.name = "gpu.foreign_process";
  event.time_unix_ns = inputs.now_unix_ns;
  event.severity = allowed ? EventSeverity::kInfo : EventSeverity::kWarn;
  event.gpu_uuid = uuid;
  event.pid = pid;
  if (facts != nullptr) event.process = facts->name;
  event.job_id = holder.job_id;
  event.rank = holder.rank;
  event.text = format("process %d (%s; %s) is on a GPU held by %s", pid, event.process.c_str(),
                      stranger != nullptr ? described(*stranger).c_str() : "?", described(holder).c_str());
  event.meaning = allowed ? "the scheduler shares this GPU out: its jobs slow each other down"
                          : "a process of somebody else, or of an earlier attempt, uses this rank's GPU";
  event.action = allowed ? "none, or ask for a GPU of its own" : "end that process, or keep it off this GPU";
  event.source = "agent";
}

void GpuOwnership::make_rows() {
  std::map<std::string, std::vector<Row>> rows;
  for (const auto& [uuid, holder] : holders_.by_gpu) {
    std::vector<Row>& before = rows_[uuid];
    for (size_t i = 0; i < holder.owners.size(); ++i) {
      const Owner& owner = holder.owners[i];
      const bool further = i > 0;
      auto same = std::find_if(before.begin(), before.end(),
                               [&](const Row& row) { return row.further == further && row.owner == owner; });
      rows[uuid].push_back({owner, further, same != before.end() ? same->labels : info_labels(uuid, owner, further)});
    }
  }
  rows_ = std::move(rows);
}

LabelSet GpuOwnership::gpu_labels(const std::string& uuid) {
  LabelSet& labels = gpu_labels_[uuid];
  if (labels == nullptr) labels = std::make_shared<const Labels>(Labels{{"gpu_uuid", uuid}});
  return labels;
}

void GpuOwnership::report(NodeReadings& out) {
  for (const auto& [uuid, rows] : rows_) {
    for (const Row& row : rows) out.add(descriptor_of(GpuOwnershipMetric::kJobGpuInfo), row.labels, 1);
  }
  struct Use {
    int64_t processes = 0;
    uint64_t memory_bytes_max = 0;
  };
  std::map<std::string, Use> uses;
  std::set<std::string> taken;
  for (const GpuProcess& process : owners_.gpu_processes) {
    Use& use = uses[process.gpu_uuid];
    ++use.processes;
    use.memory_bytes_max = std::max(use.memory_bytes_max, process.memory_bytes);
    taken.insert(process.gpu_uuid);
  }
  for (const auto& [uuid, owner] : owners_.by_gpu) taken.insert(uuid);
  for (const GpuInfo& gpu : owners_.gpus) {
    if (taken.contains(gpu.uuid) && !gpu.parent_uuid.empty()) taken.insert(gpu.parent_uuid);
  }
  for (const GpuInfo& gpu : owners_.gpus) {
    const LabelSet labels = gpu_labels(gpu.uuid);
    if (on_gpus_known_ || pods_.answered() || slurm_folder_read_)
      out.add(descriptor_of(GpuOwnershipMetric::kAllocated), labels, taken.contains(gpu.uuid) ? 1 : 0);
    if (!on_gpus_known_) continue;
    const Use use = uses[gpu.uuid];
    out.add(descriptor_of(GpuOwnershipMetric::kProcesses), labels, static_cast<double>(use.processes));
    out.add(descriptor_of(GpuOwnershipMetric::kProcessMemory), labels, static_cast<double>(use.memory_bytes_max));
    const auto holder = holders_.by_gpu.find(gpu.uuid);
    out.add(descriptor_of(GpuOwnershipMetric::kForeignProcesses), labels,
            holder == holders_.by_gpu.end() ? 0 : static_cast<double>(holder->second.foreign.size()));
  }
  for (const auto& [job_id, job] : energy_.jobs()) {
    LabelSet& labels = job_labels_[job_id];
    if (labels == nullptr) labels = std::make_shared<const Labels>(Labels{{"job_id", job_id}});
    out.add(descriptor_of(GpuOwnershipMetric::kJobEnergy), labels, job.joules);
  }
  std::erase_if(job_labels_, [&](const auto& one) { return !energy_.jobs().contains(one.first); });
  if (gpu_labels_.size() > 2 * owners_.gpus.size()) gpu_labels_.clear();  // MIG instances come and go

  std::move(events_.begin(), events_.end(), std::back_inserter(out.events));
  std::move(notes_.begin(), notes_.end(), std::back_inserter(out.notes));
  events_.clear();
  notes_.clear();
  out.failures += pods_.failures() - failures_reported_;
  failures_reported_ = pods_.failures();
}

void GpuOwnership::note_once(const char* topic, std::string line) {
  if (noted_.insert(topic).second) notes_.push_back(std::move(line));
}

std::vector<SourceCheck> GpuOwnership::check() {
  std::vector<SourceCheck> checks;
  // The first pid namespace of a machine has this number on every kernel.
  char target[64] = {};
  const std::string link = options_.root + "/proc/self/ns/pid";
  const ssize_t length = ::readlink(link.c_str(), target, sizeof target - 1);
  const bool all_pids = length > 0 && std::string_view(target) == "pid:[4026531836]";
  checks.push_back({"processes of the whole node", all_pids,
                    all_pids ? "/proc shows all of them" : "/proc shows those of this container only",
                    all_pids ? "" : "run the agent with the node's pids (Kubernetes: hostPID: true)"});

  const std::string environ = options_.root + "/proc/1/environ";
  const UniqueFd file(::open(environ.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const std::string problem = file.valid() ? "" : std::strerror(errno);
  checks.push_back({"environment of other users' processes", options_.read_environment && file.valid(),
                    !options_.read_environment ? "switched off"
                    : file.valid()             ? "can be read"
                                               : environ + ": " + problem,
                    options_.read_environment && !file.valid()
                        ? "give the agent CAP_SYS_PTRACE (and run it as root), or "
                          "let jobs load the plugin"
                        : ""});

  struct stat found {};
  const bool there = ::stat(pods_.socket().c_str(), &found) == 0;
  std::vector<std::string> lines;
  const bool answers = there && pods_.ask(lines) && pods_.answered();
  checks.push_back({"pods (kubelet)", answers,
                    answers          ? pods_.socket() + " answers"
                    : !lines.empty() ? lines.front()
                    : there          ? pods_.socket() + " is there, and is not asked"
                                     : pods_.socket() + " is not there",
                    answers ? "" : "on a Kubernetes node, mount /var/lib/kubelet/pod-resources"});
  return checks;
}

}  // namespace lockstep
