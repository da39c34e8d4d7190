#include "agent/ranks/kept_recorders.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <vector>

#include "base/log.h"
#include "base/text.h"
#include "model/ids.h"

namespace lockstep {
namespace {

constexpr const char* kKept = "lockstep_agent_recorders_kept_total";
constexpr size_t kPieceBytes = 1u << 20;

Error failed(const char* what, const std::string& path) {
  return Error{format("%s %s: %s", what, path.c_str(), std::strerror(errno))};
}

struct KeptFile {
  int64_t changed_ns;
  uint64_t bytes;
  std::string path;
};

}  // namespace

KeptRecorders::KeptRecorders(std::string folder, Counters& counters, Heartbeat* heartbeat)
    : folder_(std::move(folder)), counters_(counters), heartbeat_(heartbeat) {
  thread_ = std::thread([this] { run(); });
}

KeptRecorders::~KeptRecorders() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

std::shared_ptr<const KeptRecorders::Keeping> KeptRecorders::keep(int file, uid_t user, const std::string& name,
                                                                  Rank rank,
                                                                  std::function<void(UniqueFd copy)> on_kept) {
  Waiting waiting{
      UniqueFd(::fcntl(file, F_DUPFD_CLOEXEC, 0)), user, name, rank, std::move(on_kept), std::make_shared<Keeping>()};
  MutexLock lock(mutex_);
  const auto of_user =
      std::count_if(waiting_.begin(), waiting_.end(), [user](const Waiting& one) { return one.user == user; });
  if (!waiting.file.valid() || static_cast<size_t>(of_user) >= kWaitingPerUserMax) {
    counters_.add(kKept, "result=\"busy\"");
    return nullptr;
  }
  std::shared_ptr<const Keeping> keeping = waiting.keeping;
  waiting_.push_back(std::move(waiting));
  changed_.notify_all();
  return keeping;
}

void KeptRecorders::run() {
  ReleasableMutexLock lock(mutex_);
  while (true) {
    changed_.wait(mutex_, [this]() LOCKSTEP_REQUIRES(mutex_) { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    const Busy busy(heartbeat_);
    const Result<void> kept = copy(next.file.get(), next.user, next.name);
    counters_.add(kKept, kept.ok() ? "result=\"kept\"" : "result=\"failed\"");
    if (kept.ok()) {
      LOCKSTEP_LOG_INFO("agent", "rank %d died; its recorder is kept: lockstep postmortem %s", next.rank.value(),
                        folder_.c_str());
      if (next.on_kept)
        next.on_kept(UniqueFd(::open(path_of(next.user, next.name).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC)));
    } else {
      LOCKSTEP_LOG_WARN("agent", "rank %d died; its recorder could not be kept: %s", next.rank.value(),
                        kept.error().c_str());
    }
    next.keeping->done_.store(true);
    lock.lock();
  }
}

Result<void> KeptRecorders::make_folder() const {
  const size_t slash = folder_.rfind('/');
  if (slash != std::string::npos && slash > 0) {
    LOCKSTEP_TRY(make_directories(folder_.substr(0, slash)));
  }
  if (::mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST) return failed("cannot make folder", folder_);
  // One that an earlier agent made for all to read.
  const UniqueFd folder(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder.valid() || ::fchmod(folder.get(), 0700) != 0) return failed("cannot close to others", folder_);
  return {};
}

std::string KeptRecorders::path_of(uid_t user, const std::string& name) const {
  return format("%s/%u-%s", folder_.c_str(), static_cast<unsigned>(user), name.c_str());
}

Result<void> KeptRecorders::copy(int file, uid_t user, const std::string& name) {
  LOCKSTEP_TRY(make_folder());
  struct stat info {};
  if (::fstat(file, &info) != 0) return failed("cannot look at", name);
  const uint64_t bytes = std::min<uint64_t>(static_cast<uint64_t>(info.st_size), kFileBytesMax);
  make_room(bytes);
  const std::string path = path_of(user, name);
  const std::string beside = path + ".tmp";
  ::unlink(beside.c_str());
  {
    const UniqueFd out(::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!out.valid()) return failed("cannot create", beside);
    std::string piece(kPieceBytes, '\0');
    for (uint64_t at = 0; at < bytes;) {
      const ssize_t got =
          ::pread(file, piece.data(), std::min<uint64_t>(piece.size(), bytes - at), static_cast<off_t>(at));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return failed("cannot read", name);
      if (got == 0) break;  // its owner has cut it meanwhile
      if (Result<void> put = write_all(out.get(), std::string_view(piece).substr(0, static_cast<size_t>(got)));
          !put.ok()) {
        ::unlink(beside.c_str());
        return prefixed(put.failure(), beside + ": ");
      }
      at += static_cast<uint64_t>(got);
      if (heartbeat_ != nullptr) heartbeat_->beat();
    }
    if (::fsync(out.get()) != 0) return failed("cannot sync", beside);
  }
  if (::rename(beside.c_str(), path.c_str()) != 0) return failed("cannot rename to", path);
  return sync_directory(folder_);
}

void KeptRecorders::make_room(uint64_t bytes) const {
  Result<std::vector<std::string>> names = list_directory(folder_);
  if (!names.ok()) return;
  struct Share {
    uint64_t bytes = 0;
    std::vector<KeptFile> files;  // the oldest last
  };
  std::map<std::string, Share> users;  // by the number in front of the name
  uint64_t total = bytes;
  size_t count = 0;
  for (const std::string& name : *names) {
    const std::string path = folder_ + "/" + name;
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    Share& share = users[name.substr(0, name.find('-'))];
    share.files.push_back(
        {info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec, static_cast<uint64_t>(info.st_size), path});
    share.bytes += static_cast<uint64_t>(info.st_size);
    total += static_cast<uint64_t>(info.st_size);
    ++count;
  }
  for (auto& [user, share] : users)
    std::sort(share.files.begin(), share.files.end(),
              [](const KeptFile& a, const KeptFile& b) { return a.changed_ns > b.changed_ns; });
  while (count > 0 && (total > kBytesMax || count >= kFilesMax)) {
    const bool by_bytes = total > kBytesMax;
    Share& most = std::max_element(users.begin(), users.end(), [by_bytes](const auto& a, const auto& b) {
                    return by_bytes ? a.second.bytes < b.second.bytes : a.second.files.size() < b.second.files.size();
                  })->second;
    if (most.files.empty()) return;
    const KeptFile oldest = std::move(most.files.back());
    most.files.pop_back();
    ::unlink(oldest.path.c_str());
    most.bytes -= oldest.bytes;
    total -= oldest.bytes;
    --count;
  }
}

}  // namespace lockstep
