// Finds flight recorders and follows each from birth to the end of its process: drains it, assembles steps, notices
// silence and death, and lets go of the file only when everything read from it is safe.
//
// A recorder outlives a crashed process: it is drained, a last rank.status says the process is gone, and the file is
// removed once the exporter has settled what came out of it.
//
// Whoever owns a folder is trusted with nothing: files are opened by base/user_files.h, a pid counts only where its
// process is the folder's owner's (sources/ownership/process_handle.h), and a poll gives every user the same share of
// its time (user_limits.h has this and all other limits).
//
// Of a process only its stat and status are read here, which need no lock of its memory: one that hangs in the kernel
// with that lock held must not hold up what is told of all the others. Its environment is read elsewhere
// (set_code_version).
//
// recorder_watch.cc finds and drains, rank_report.cc makes of it what is told.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "agent/detail/step_traces.h"
#include "agent/evidence/ras_watch.h"
#include "agent/heartbeat.h"
#include "agent/ranks/callback_cost.h"
#include "agent/ranks/kept_recorders.h"
#include "agent/ranks/poll_plan.h"
#include "agent/ranks/user_limits.h"
#include "base/clock.h"
#include "base/counters.h"
#include "base/files.h"
#include "base/user_files.h"
#include "model/step.h"
#include "model/telemetry.h"
#include "recorder/reader.h"
#include "sources/nccl/rank_assembler.h"
#include "sources/ownership/gpu_ownership.h"

namespace lockstep {

class EvidenceUploads;

struct WatchOptions {
  std::string folder;
  // Where set: the folders of every user there, lockstep-UID, each its user's own ("/dev/shm"); for an agent that may
  // read them all. `folder` is watched besides.
  std::string users_folder;
  std::string kept_folder;  // where recorders of processes that died are kept; empty: nowhere
  // A rank that makes no callback for this long while it has communicators tells where it stands. Well above any pause
  // of a healthy step loop that syncs each step, well below the five seconds in which a hang must be named.
  int64_t quiet_status_ns = 2'000'000'000;
  // A rank that moves but has nothing else to tell (a long step) says so this often: it is alive, not missing.
  int64_t moving_status_ns = 5'000'000'000;
  int64_t metrics_every_ns = 5'000'000'000;
  int64_t metrics_profiled_ns = 1'000'000'000;  // of a rank that is being profiled
  // A process that cannot name its job is told of only after so long, because complete() may name it: a job must not
  // change its name. 0: nobody completes.
  int64_t completion_wait_ns = 0;
  // Likewise, because set_code_version() may say which code it runs. 0: nobody says.
  int64_t code_version_wait_ns = 0;
  Heartbeat* keeper = nullptr;         // of the thread that keeps recorders
  EvidenceUploads* uploads = nullptr;  // takes what is kept; nullptr: it stays on the node
  size_t memory_per_user = user_limits::kMemoryPerUser;
};

// What one poll of all recorders gave.
struct CollectedBatch {
  std::vector<ResourceGroup> logs;  // one group per rank
  std::vector<ResourceGroup> metrics;
  std::vector<ResourceGroup> spans;
  bool urgent = false;  // a status or an end is among them: send now
};

struct Completion {
  std::string gpu_uuid;            // empty: not known
  std::string job_id;              // likewise
  bool gpu_info_reported = false;  // whose GPU it is, is told by the node's own series
  bool operator==(const Completion&) const = default;
};

class RecorderWatch {
 public:
  // cost: where the callbacks' cost is summed up; ras: whom to ask about a hang; traces: what becomes of the steps'
  // detail. Each may be nobody.
  RecorderWatch(WatchOptions options, const Clock& clock, Counters& counters, CallbackCost* cost = nullptr,
                RasWatch* ras = nullptr, StepTraces* traces = nullptr);
  ~RecorderWatch();

  // Looks once at the folder and at every recorder. Cheap when nothing moves.
  CollectedBatch poll();
  // The batch was submitted under this ticket; recorders of dead processes wait for it.
  void submitted(uint64_t ticket);
  // Removes recorders of dead processes whose ticket is settled: everything up to it was delivered or is on disk.
  void release(const std::function<bool(uint64_t)>& settled);
  // The last poll of an ending agent: drains, closes ended steps.
  CollectedBatch final_poll();
  // Waits until the next poll is due (poll_plan.h) or a new recorder appears; no longer than a poll may take
  // (user_limits.h) where the last poll could not get to everybody. Whoever makes files without end shortens every
  // other wait at most.
  void wait();
  // How long it is until then, as of the last poll.
  int64_t next_poll_ns() const { return plan_.due_ns() - clock_.monotonic_ns(); }

  // Whether the node's cores are all taken (agent/node/node_idle.h), from now on.
  void set_crowded(bool crowded) { crowded_ = crowded; }

  // Whose kernels are being profiled, by path: these are recorded whole, and their metrics come more often.
  void set_profiled(std::set<std::string> paths) { profiled_ = std::move(paths); }

  // Who records here now: for the owners, which knows the GPU of each.
  std::vector<RecorderOwner> owners() const;
  // What a recorder does not say itself and was found elsewhere (the GPU of the process: NCCL does not tell its plugin;
  // the job, where its environment has none). Told with everything from now on.
  void complete(const std::string& path, const Completion& completion);
  // A rank is kept back until it is said which code its process runs; empty: nobody knows.
  bool awaits_code_versions() const;
  void set_code_version(const std::string& path, const std::string& version);

 private:
  struct WatchedRank;
  struct RankPoll;
  struct Folder {
    std::shared_ptr<const UserFolder> held;
    std::unique_ptr<FolderScan> scan;
    int watch = -1;
    UniqueFd shown;                          // that we read it (recorder/folder_reader.h)
    std::map<std::string, int64_t> refused;  // files that are no recorders: when to try again
    bool full_said = false;
  };
  CollectedBatch poll_all(bool flush);
  void find_folders();
  void add_folder(std::shared_ptr<const UserFolder> held);
  void find_new();
  void find_new_in(Folder& folder);
  bool try_recorder(Folder& folder, const std::string& name, int64_t now_ns);
  bool poll_users(std::map<uid_t, std::vector<WatchedRank*>>& users, bool flush, CollectedBatch& batch);
  void share_memory(uid_t user, const std::vector<WatchedRank*>& ranks);
  bool let_go(WatchedRank& rank);
  void poll_rank(WatchedRank& rank, bool flush, CollectedBatch& batch);
  void look_at_process(WatchedRank& rank, RankPoll& seen);
  void read_identity(WatchedRank& rank);
  bool belongs_to_job(const WatchedRank& rank, const RankPoll& seen) const;
  void report_steps(WatchedRank& rank, RankPoll& seen);
  void plan_metrics(WatchedRank& rank, const RankPoll& seen) const;
  void drain(WatchedRank& rank, RankPoll& seen);
  void announce(WatchedRank& rank, RankPoll& seen);
  void report_status(WatchedRank& rank, RankPoll& seen, bool alive, int64_t quiet_ns);
  void report_progress(WatchedRank& rank, RankPoll& seen);
  void report_metrics(WatchedRank& rank, const RankPoll& seen, CollectedBatch& batch);
  void adjust_detail(WatchedRank& rank, const RankPoll& seen);
  void count_refused(WatchedRank& rank);
  void ask_ras();
  void report_ras(CollectedBatch& batch);

  const WatchOptions options_;
  const Clock& clock_;
  Counters& counters_;
  CallbackCost* const cost_;
  RasWatch* const ras_;
  StepTraces* const traces_;
  uint64_t ras_reported_ = 0;  // number of the last answer that was told
  PollPlan plan_;
  bool crowded_ = false;
  std::set<std::string> profiled_;
  double fullest_ = 0;  // ring of this poll
  int64_t late_most_ms_ = 0;
  UniqueFd inotify_;
  bool woken_ = false;                     // the last wait ended early
  bool behind_ = false;                    // the last poll did not get to everybody
  std::map<std::string, Folder> folders_;  // by path
  std::shared_ptr<const UserFolder> users_held_;
  std::unique_ptr<FolderScan> users_scan_;
  int64_t folders_at_ns_ = 0;                                  // when to look for further ones
  std::map<std::string, std::unique_ptr<WatchedRank>> ranks_;  // by path
  std::map<uid_t, std::string> resume_;                        // whose poll goes on at which path
  std::unique_ptr<KeptRecorders> kept_;
};

}  // namespace lockstep
