// Fetches what tells why a rank hangs, without harming it: the stacks of its threads when somebody asks for them, and
// the dumps that PyTorch's Flight Recorder writes, whenever it does.
//
// Stacks. What the kernel tells of every thread (sources/stacks/thread_stacks.h), at once. Python's stacks come from
// the process itself: its hook has said by which signal it may be asked (<recorder>.hook) and writes to
// <recorder>.stacks. The signal is sent only where the hook said so, the kernel agrees that somebody catches it, and
// the process runs. Where that is not so, or no answer comes within python_wait_ns, Python's frames are read from outside
// (sources/stacks/rank_sampler.h); where that fails too, the event says why in one line. LOCKSTEP_STACKS=0 in the
// process's environment, or told by its hook: nothing is taken. Once a process in per_process_ns.
//
// Samples. Which processes they may be taken of is decided here, by the same rules; StackSampler takes them.
//
// Dumps. <prefix><rank> by the process's environment, by what its hook tells, or where PyTorch puts it unreported;
// taken once it is whole and does not change for settled_ns, if it is of this process's life and of its user. Also for
// linger_ns after the process ended: a watchdog writes it and then ends the process. Where the job has a pipe for it
// (TORCH_NCCL_DEBUG_INFO_PIPE_FILE), asking for stacks writes a byte to it, without ever waiting.
//
// A recorder, its hook and the paths in it are words of whoever owns the folder. So every file is opened by
// base/user_files.h (no link anywhere in its path, nothing but the owner's own plain files and pipes), and the process
// is asked only where it is the owner's (sources/ownership/process_handle.h). Each user's dumps get the same time in a
// round (agent/ranks/user_limits.h).
//
// Code. Which version of it a process runs, by its environment: read as soon as the rank is known, because its start
// is told with it.
//
// Counts: lockstep_agent_stacks_total by result: told, again (asked before within a minute), off, gone,
//           busy (EvidenceWatch: too many wait).
//         lockstep_agent_samples_total by result: again, off, gone, busy likewise; StackSampler's.
//         lockstep_agent_dumps_total by result: told, refused (no dump, or too large), asked (by the pipe).
//         lockstep_agent_user_files_refused_total by reason, once for each file of a process.
// May wait for a file system or a kernel that does not answer: EvidenceWatch runs it on a thread of its own.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/evidence/stack_sampler.h"
#include "agent/heartbeat.h"
#include "base/clock.h"
#include "base/counters.h"
#include "base/user_files.h"
#include "model/detail_request.h"
#include "model/rank_evidence.h"
#include "model/telemetry.h"
#include "sources/ownership/gpu_ownership.h"
#include "sources/ownership/processes.h"

namespace lockstep {

class EvidenceUploads;

struct EvidenceOptions {
  bool stacks = true;
  bool read_environment = true;  // of processes; else only what their hooks tell is known
  int64_t python_wait_ns = 2'000'000'000;
  int64_t python_settled_ns = 100'000'000;  // faulthandler writes thread after thread
  int64_t per_process_ns = 60'000'000'000;
  int64_t samples_per_process_ns = 10'000'000'000;  // from the end of one to the next
  int64_t dumps_every_ns = 1'000'000'000;
  int64_t settled_ns = 1'000'000'000;
  int64_t linger_ns = 60'000'000'000;
  Heartbeat* heartbeat = nullptr;      // of the thread that EvidenceWatch runs it on
  EvidenceUploads* uploads = nullptr;  // takes the dumps themselves; nullptr: they stay where they are
};

// What a process's hook tells in <recorder>.hook; 0 and empty: not told. A line each: "signal 57", "main 0x7f..",
// "dump PREFIX", "pipe STEM", "stacks off", "kineto OFFSET EACH", "profiler torch", "profile CAPTURE STATE [REASON]".
struct HookConfig {
  bool off = false;
  int signal = 0;
  uint64_t main_ident = 0;
  std::string dump_prefix;
  std::string pipe_stem;
  // Kineto's count when step N of the job begins is OFFSET + EACH * N; EACH 0: not known.
  int64_t kineto_offset = 0;
  int64_t kineto_each = 0;
  // It takes orders for torch.profiler at <recorder>.orders; of the newest: which, and where it stands.
  bool takes_orders = false;
  std::string ordered;
  std::string order_state;
  std::string order_reason;
  bool operator==(const HookConfig&) const = default;
};
HookConfig parse_hook_word_untrusted(std::string_view text);

// The files that a hook may leave beside a recorder; to be removed with it.
std::string hook_word_path(const std::string& recorder);
std::string hook_stacks_path(const std::string& recorder);
std::string hook_failed_path(const std::string& recorder);  // model/rank_end.h
std::string hook_orders_path(const std::string& recorder);  // a socket: agent/profile

class EvidenceTaker {
 public:
  EvidenceTaker(EvidenceOptions options, const Clock& clock, Counters& counters);
  ~EvidenceTaker();

  // Whose recorders are read here now.
  void set_ranks(const std::vector<RecorderOwner>& owners);
  void ask(const StackRequest& request);
  // The processes of these ranks that may be sampled now: for StackSampler.
  std::vector<SampleTarget> sample_targets(const SampleRequest& request);
  // What the processes of these ranks say of the code that they run (LOCKSTEP_CODE_VERSION), by recorder; empty: it says
  // nothing, or may not be read.
  std::map<std::string, std::string> code_versions() const;
  // What is ready by now; a few times a second.
  std::vector<ResourceGroup> poll();
  bool busy() const;  // somebody is waited for: look again soon

 private:
  struct FileSeen;
  struct Process;
  Process* find_rank(const std::string& job_id, int64_t attempt, Rank rank);
  void read_python(Process& process);
  void begin(Process& process);
  void ask_python(Process& process);
  void finish_python(Process& process, std::vector<ResourceGroup>& out);
  void find_process(Process& process);
  void read_hook(Process& process);
  void read_environment(Process& process);
  void make_room(int64_t user);
  void count_refused(Process& process, const std::string& file, UserFileRefused refused);
  UserFile open_for(Process& process, const std::string& path, UserFileWanted wanted);
  void look_for_dumps(Process& process, std::vector<ResourceGroup>& out);
  void look_at_dump(Process& process, const std::string& file, std::vector<ResourceGroup>& out);
  void ask_for_dump(Process& process);

  const EvidenceOptions options_;
  const Clock& clock_;
  Counters& counters_;
  Processes known_;
  std::map<std::string, std::unique_ptr<Process>> processes_;  // by recorder
  int64_t next_dumps_ns_ = 0;
  std::map<int64_t, std::deque<std::string>> dumps_due_;  // recorders by user
};

}  // namespace lockstep
