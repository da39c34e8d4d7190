// The profile taker on threads of its own: one answers the processes at once (they wait a tenth of a second), one
// uploads what they have written.
//
// Processes of this network namespace find us by Kineto's abstract name, where no other daemon has it; those that were
// told their user's folder of recorders (`lockstep run` does) find us there, in every folder whose recorders are read.
// A process asks on a thread of its profiler's and does not wait for who is not there: an agent that is gone costs a
// job nothing.
//
// Limits: kFoldersMax folders, kAskedMax requests that wait.
// Thread rule: Thread-safe. Two threads, joined by the destructor.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "agent/heartbeat.h"
#include "agent/profile/kineto_socket.h"
#include "agent/profile/profile_taker.h"
#include "base/mutex.h"

namespace lockstep {

struct ProfileWatchOptions {
  ProfileOptions taker;
  std::string recorders;  // our own folder; a socket is there from the start
  std::string abstract_name = kKinetoDaemonName;
  Heartbeat* heartbeat = nullptr;  // of the thread that answers
};

class ProfileWatch {
 public:
  static constexpr size_t kFoldersMax = 256;
  static constexpr size_t kAskedMax = 256;

  // uploader: borrowed; nullptr: there is nowhere to upload to, and every order fails with that reason.
  ProfileWatch(ProfileWatchOptions options, Uploader* uploader, const Clock& clock, Counters& counters);
  ~ProfileWatch();

  void set_ranks(std::vector<RecorderOwner> owners);
  void ask(ProfileRequest request);
  // What was reported since.
  std::vector<ResourceGroup> take();
  std::vector<ProfileTaker::Profiled> profiled();
  // Ends the threads. False: one did not come back within that time, from an upload, say.
  bool stop(int64_t within_ms);

 private:
  void run();
  void upload();
  void wake();
  void open_sockets(const std::vector<RecorderOwner>& owners);
  // Whether one of them may have sent more than is taken at once.
  bool answer_all();
  bool answer_from(KinetoSocket& socket);
  void wait(bool is_busy);

  const ProfileWatchOptions options_;
  Uploader* const uploader_;
  const Clock& clock_;
  Counters& counters_;
  UniqueFd wake_;

  // The answering thread's own.
  ProfileTaker taker_;
  std::unique_ptr<KinetoSocket> abstract_;
  int64_t next_abstract_ns_ = 0, next_leftovers_ns_ = 0;
  bool abstract_reported_ = false;
  struct FolderSocket {
    std::shared_ptr<const UserFolder> folder;
    std::unique_ptr<KinetoSocket> socket;  // nullptr: it could not be made
  };
  std::map<std::string, FolderSocket> folders_;  // by path

  Mutex mutex_;
  ConditionVariable changed_;
  std::vector<RecorderOwner> owners_ LOCKSTEP_GUARDED_BY(mutex_);
  bool owners_new_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::vector<ProfileRequest> asked_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<ResourceGroup> fetched_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<ProfileTaker::Profiled> profiled_ LOCKSTEP_GUARDED_BY(mutex_);
  std::optional<ProfileTaker::Upload> upload_ LOCKSTEP_GUARDED_BY(mutex_);  // given to the uploading thread
  std::vector<std::pair<uint64_t, Result<Uploaded>>> uploaded_ LOCKSTEP_GUARDED_BY(mutex_);
  bool stopping_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  int ended_ LOCKSTEP_GUARDED_BY(mutex_) = 0;

  std::thread answers_, uploads_;
};

}  // namespace lockstep
