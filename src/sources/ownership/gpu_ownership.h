// Who: which job, rank, user and pod each GPU of this node works for.
//
// Asked once a tick, it puts together the processes on the GPUs (driver), what they are (/proc), what the schedulers
// gave out (kubelet, Slurm) and what the ranks tell of themselves (flight recorders). A process is looked at once in
// its life; every further look costs one small file of each.
//
// Never asks NSS, the network or a driver. The kubelet is asked through a call that is handed in, on slow ticks and
// when a new process is on a GPU.
// Limits: kProcessesMax processes and kRecordersMax recorders; what is over is left out and said once.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/user_files.h"
#include "model/owner_table.h"
#include "model/step.h"
#include "sources/node_source.h"
#include "sources/ownership/gpu_holders.h"
#include "sources/ownership/job_energy.h"
#include "sources/ownership/pods.h"
#include "sources/ownership/processes.h"

namespace lockstep {

struct RecorderOwner {
  int32_t pid = -1;   // as its header has it
  std::string path;   // of the file; names the recorder from look to look
  Identity identity;  // as its header has it; what completed() filled in may be there
  bool alive = true;
  std::vector<int32_t> proxy_threads;  // that drive its network, numbered as pid is
  // Whose folder it is in: what it says of processes and GPUs counts for those of this user alone. -1: for none.
  int64_t user = -1;
  std::shared_ptr<const UserFolder> folder;  // held; none in tests that have no files
};

struct GpuOwnershipInputs {
  std::vector<GpuInfo> gpus;
  std::vector<GpuProcess> processes;
  bool processes_read = false;                  // else those of the look before stand, as long as they live
  std::map<std::string, double> energy_joules;  // counters by GPU uuid; may be empty
  std::vector<RecorderOwner> recorders;
  bool slow = false;
  int64_t now_ns = 0;  // monotonic
  int64_t now_unix_ns = 0;

  // GPUs, processes and energy ("hw.energy") of a snapshot.
  void take(const GpuSnapshot& snapshot);
};

struct GpuOwnershipOptions {
  std::string root;
  std::string kubelet_socket = "/var/lib/kubelet/pod-resources/kubelet.sock";
  UnaryCall kubelet_call;        // none: the kubelet is not asked
  std::string slurm_gpu_folder;  // a file for each GPU's index, each line a job's id, as prolog and epilog write it for
                                 // dcgm-exporter; empty: there is none
  bool read_environment = true;
};

class GpuOwnership {
 public:
  static constexpr size_t kProcessesMax = 4096;
  static constexpr size_t kRecordersMax = 4096;
  // An old job may take so long to go while the next is starting.
  static constexpr int64_t kForeignAfterNs = 10'000'000'000;

  explicit GpuOwnership(GpuOwnershipOptions options);

  OwnerTable poll(const GpuOwnershipInputs& inputs);
  // Metrics of the last look; events and notes since the last call.
  void report(NodeReadings& out);

  // A process's own GPU as of the last look; pids as this machine numbers them. "": not known.
  std::string gpu_of(int32_t pid) const;
  // What a recorder's identity leaves open, filled in: its GPU, and the job where the rank itself could not name it.
  // Stays as it was once known, also when the process has ended, until a look comes without that recorder.
  Identity completed(const std::string& path, Identity identity) const;
  // -1: it cannot be seen from here.
  int32_t pid_of_recorder(const std::string& path) const;

  std::vector<SourceCheck> check();

 private:
  struct OnGpu {
    GpuProcess process;
    uint64_t start_ticks = 0;  // 0: it cannot be seen from here
  };
  struct Recorder {
    int32_t pid = -1;
    uint64_t start_ticks = 0;
    bool reported_gpu = false;      // it named its GPU itself
    bool believed = false;          // and no other user's processes alone are on that GPU
    std::set<std::string> answers;  // GPUs that we found for it: one that comes back as its own word is ours
    std::string gpu_uuid;
    std::string job_id;
  };
  struct Foreign {
    int64_t since_ns = 0;
    bool reported = false;
  };
  struct Row {
    Owner owner;
    bool further = false;
    LabelSet labels;
  };

  bool take_processes(const GpuOwnershipInputs& inputs);  // true: one of them was not there at the last look
  void find_recorders(const GpuOwnershipInputs& inputs);
  void read_slurm_folder(const std::vector<GpuInfo>& gpus);
  std::map<std::string, std::vector<Owner>> allocated(const std::vector<GpuInfo>& gpus);
  Claimant claimant_of(const ProcessFacts& facts);
  bool is_anothers_gpu(const std::string& uuid, int64_t user);
  std::vector<Claimant> claimants(const GpuOwnershipInputs& inputs);
  void make_owners(const GpuOwnershipInputs& inputs, const std::vector<Claimant>& all);
  void remember_recorders(const GpuOwnershipInputs& inputs);
  void watch_foreign(const GpuOwnershipInputs& inputs);
  void report_foreign(const GpuOwnershipInputs& inputs, const std::string& uuid, int32_t pid, bool allowed);
  void make_rows();
  LabelSet gpu_labels(const std::string& uuid);
  void note_once(const char* topic, std::string line);

  GpuOwnershipOptions options_;
  Processes processes_;
  Pods pods_;
  JobEnergy energy_;

  std::vector<OnGpu> on_gpus_;
  bool on_gpus_known_ = false;
  std::map<std::string, std::vector<PodRef>> pod_holders_;
  std::map<std::string, std::vector<Owner>> slurm_holders_;
  bool slurm_folder_read_ = false;
  std::map<std::string, Recorder> recorders_;
  std::map<std::pair<std::string, int32_t>, Foreign> foreign_;

  OwnerTable owners_;
  GpuHolders holders_;
  std::map<std::string, std::vector<Row>> rows_;
  std::map<std::string, LabelSet> gpu_labels_;  // of this look and the last, no more
  std::map<std::string, LabelSet> job_labels_;
  std::vector<NodeEvent> events_;
  std::vector<std::string> notes_;
  std::set<std::string> noted_;
  int64_t failures_reported_ = 0;
};

}  // namespace lockstep
