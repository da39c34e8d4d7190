// Takes profiles of ranks, without a restart and without a change to the job, in one of two ways:
//
// Kineto. The daemon protocol of PyTorch's profiler: what each capture's ranks are to do is handed out when their
// processes next ask (every five seconds), and what becomes of it is read from how they go on asking and from the file
// that they write.
//
// torch.profiler. Where a process does not ask and its Python hook takes orders ("profiler torch" in <recorder>.hook), the
// order is sent to the hook's socket <recorder>.orders, again until it is taken; where it stands the hook writes to
// <recorder>.hook. Nothing waits on either side.
//
//   armed      its process has not asked yet, or is busy with another trace
//   waiting    it has its order and waits for its step
//   tracing    it does not take orders now, or the file is being written
//   uploading  the file has its name: it is whole
//   done, failed (with a reason)
//
// Steps. The hook counts steps of the job. Kineto counts optimizer steps from the start of the process; what that is in steps of the job, the process's
// hook reports (<recorder>.hook: "kineto OFFSET EACH"). Where it does not, or there is no optimizer, the trace is taken
// by time: the same moment on every rank.
//
// Files. Kineto writes FILE.tmp and renames it. The folder is the user's own folder of recorders where the process was
// told it (KINETO_ONDEMAND_TRACE_DIR, as `lockstep run` does), else /tmp. Files are opened by base/user_files.h, only as
// the user's own; one that grows past its limit, or leaves the file system less than kRoomBytes, is cut to nothing while
// it is written; each is removed once it is uploaded or given up. A pipe would need no room, but its opening waits for
// us, on the thread that trains: it is not used.
//
// Whoever asks is known by the kernel's word, and gets an order only where he is the very process of the recorder.
//
// Limits: kActiveMax ranks at a time; a process has one capture. An order that was handed out cannot be taken back: its
//   file is waited for and removed for kAbandonedNs.
// Counts: lockstep_agent_profiles_total by result; lockstep_agent_kineto_messages_total by result.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/evidence/evidence_taker.h"
#include "agent/profile/kineto_messages.h"
#include "agent/upload/uploader.h"
#include "base/clock.h"
#include "base/counters.h"
#include "base/user_files.h"
#include "model/profile_capture.h"
#include "model/telemetry.h"
#include "sources/ownership/gpu_ownership.h"
#include "sources/ownership/process_handle.h"
#include "sources/ownership/processes.h"

namespace lockstep {

struct ProfileOptions {
  bool can_upload = true;        // else there is nowhere to: every order fails with that reason
  bool read_environment = true;  // of processes; else traces go to /tmp
  int64_t bytes_max = int64_t{4} << 30;
  // Processes ask every five seconds: one that has not within this time does not ask at all.
  int64_t asks_within_ns = 13'000'000'000;
  // From the end of a trace to its file's name: Kineto writes gigabytes in a minute.
  int64_t written_within_ns = 120'000'000'000;
  // An uploader tries again by itself as long as that may help.
  int upload_tries_max = 3;
  int64_t upload_again_ns = 5'000'000'000;
};

class ProfileTaker {
 public:
  static constexpr size_t kActiveMax = 256;
  static constexpr size_t kPollersMax = 4'096;
  static constexpr int64_t kPollerNs = 60'000'000'000;
  static constexpr int64_t kAbandonedNs = 900'000'000'000;
  static constexpr uint64_t kRoomBytes = 64u << 20;

  ProfileTaker(ProfileOptions options, const Clock& clock, Counters& counters);
  ~ProfileTaker();

  // Whose recorders are read here now.
  void set_ranks(std::vector<RecorderOwner> owners) { owners_ = std::move(owners); }
  // The same capture of a rank again is taken as asked.
  void ask(const ProfileRequest& request);
  // What a process is to be answered: the text of its order, mostly none. pid, user: the kernel's word.
  std::string on_request(int32_t pid, uid_t user, const KinetoMessage& message);
  size_t pollers() const { return pollers_.size(); }

  // Looks at files and at deadlines; a few times a second while busy().
  std::vector<ResourceGroup> poll();
  bool busy() const { return !active_.empty() || !abandoned_.empty(); }

  // What is to be uploaded next; the descriptor is good until uploaded() was called. nullopt: nothing waits.
  struct Upload {
    uint64_t number = 0;
    int fd = -1;
    UploadOrder order;
  };
  std::optional<Upload> next_upload();
  void uploaded(uint64_t number, const Result<Uploaded>& result);

  // Recorders of the ranks that are being profiled, until their traces are written: for who looks closer meanwhile.
  struct Profiled {
    std::string recorder;
    std::string job_id;
    int64_t attempt = 0;
    Rank rank;
    StepNumber first_step;
    int64_t steps = 0;
    bool operator==(const Profiled&) const = default;
  };
  std::vector<Profiled> profiled() const;

 private:
  struct Capture;
  struct Poller {
    uid_t user = 0;
    int32_t type = 0;
    int64_t at_ns = 0;
  };
  const RecorderOwner* find_owner(const ProfileRequest& request, Rank rank) const;
  bool find_process(Capture& capture);
  void choose_folder(Capture& capture) const;
  std::string hand_out(Capture& capture, int32_t inner_pid);
  HookConfig read_hook(const Capture& capture) const;
  bool has_room(const Capture& capture) const;
  bool asks(const Capture& capture, int64_t now_ns) const;
  void order_hook(Capture& capture, int64_t now_ns);
  void follow_hook(Capture& capture, const HookConfig& hook, int64_t now_ns);
  void report(Capture& capture, ProfileState state, std::string reason = "");
  void fail(Capture& capture, const std::string& reason);
  void poll(Capture& capture, int64_t now_ns);
  bool look_for_file(Capture& capture);
  std::string why_silent(const Capture& capture) const;
  std::string why_no_file(const Capture& capture) const;
  UserFile open_trace(const Capture& capture, const std::string& name, int access) const;
  void remove(const Capture& capture, const std::string& name) const;
  // Of one that was given up; true: nothing of it can come any more.
  bool clean_up(const Capture& capture, int64_t now_ns) const;

  const ProfileOptions options_;
  const Clock& clock_;
  Counters& counters_;
  Processes known_;
  std::vector<RecorderOwner> owners_;
  std::map<int32_t, Poller> pollers_;  // by pid
  std::list<std::unique_ptr<Capture>> active_, abandoned_;
  std::vector<ResourceGroup> out_;
  uint64_t last_number_ = 0;
};

}  // namespace lockstep
