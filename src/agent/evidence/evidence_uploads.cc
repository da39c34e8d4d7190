#include "agent/evidence/evidence_uploads.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr int64_t kHourNs = 3'600'000'000'000;

}  // namespace

EvidenceUploads::EvidenceUploads(Uploader& uploader, const Clock& clock, Counters& counters)
    : uploader_(uploader), clock_(clock), counters_(counters) {
  thread_ = std::thread([this] { run(); });
}

EvidenceUploads::~EvidenceUploads() {
  stop(0);
  thread_.join();
}

void EvidenceUploads::counted(const char* result) {
  counters_.add("lockstep_agent_evidence_files_total", format("result=\"%s\"", result));
}

bool EvidenceUploads::add(const Identity& identity, uid_t user, EvidenceFileKind kind, UniqueFd file, int64_t unix_s) {
  struct stat info {};
  if (identity.rank < 0_rank || !file.valid() || ::fstat(file.get(), &info) != 0 || info.st_size <= 0) {
    counted("failed");
    return false;
  }
  const auto bytes = static_cast<uint64_t>(info.st_size);
  MutexLock lock(mutex_);
  const auto of_user =
      std::count_if(waiting_.begin(), waiting_.end(), [&](const Waiting& waiting) { return waiting.user == user; });
  if (stopping_ || waiting_.size() >= kWaitingMax || static_cast<size_t>(of_user) >= kWaitingPerUserMax) {
    counted("busy");
    return false;
  }
  const int64_t now_ns = clock_.monotonic_ns();
  if (spent_.files == 0 || now_ns - hour_since_ns_ >= kHourNs) {
    hour_since_ns_ = now_ns;
    spent_ = {};
    spent_by_user_.clear();
  }
  const auto by_user = spent_by_user_.find(user);
  if (!spent_.has_room(bytes, 1) ||
      !(by_user == spent_by_user_.end() ? Spent{} : by_user->second).has_room(bytes, kUserShare)) {
    counted("budget");
    return false;
  }
  spent_.add(bytes);
  spent_by_user_[user].add(bytes);
  waiting_.push_back({{.job = identity.job_id,
                       .capture = evidence_id(identity.job_id, identity.attempt),
                       .file = to_text(EvidenceFileName{kind, identity.rank, unix_s}),
                       .bytes_max = bytes},
                      user,
                      identity.rank,
                      std::move(file)});
  changed_.notify_all();
  return true;
}

bool EvidenceUploads::drain(int64_t within_ms) {
  MutexLock lock(mutex_);
  return changed_.wait_for(mutex_, std::chrono::milliseconds(within_ms),
                           [this]() LOCKSTEP_REQUIRES(mutex_) { return waiting_.empty() && !is_sending_; });
}

bool EvidenceUploads::stop(int64_t within_ms) {
  MutexLock lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
  return changed_.wait_for(mutex_, std::chrono::milliseconds(within_ms),
                           [this]() LOCKSTEP_REQUIRES(mutex_) { return ended_; });
}

void EvidenceUploads::run() {
  ReleasableMutexLock lock(mutex_);
  while (true) {
    changed_.wait(mutex_, [this]() LOCKSTEP_REQUIRES(mutex_) { return stopping_ || !waiting_.empty(); });
    if (stopping_) break;
    const Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    is_sending_ = true;
    lock.unlock();
    const Result<Uploaded> sent = uploader_.upload(next.file.get(), next.order, [](uint64_t) {});
    counted(sent.ok() ? "done" : "failed");
    if (sent.ok())
      LOCKSTEP_LOG_INFO("agent", "rank %d: %s is stored", next.rank.value(), as_one_line(sent->key).c_str());
    else
      LOCKSTEP_LOG_WARN("agent", "rank %d: %s is not stored: %s", next.rank.value(), next.order.file.c_str(),
                        as_one_line(sent.error()).c_str());
    lock.lock();
    is_sending_ = false;
    changed_.notify_all();
  }
  ended_ = true;
  changed_.notify_all();
}

}  // namespace lockstep
