#include "agent/profile/profile_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/log.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr int kIdleMs = 1'000, kBusyMs = 100;
constexpr int kMessagesAtOnce = 256;  // of one socket: who sends without end makes nobody else wait
constexpr int kFloodedMs = 20;
constexpr int64_t kAbstractAgainNs = 30'000'000'000;
constexpr int64_t kLeftoversNs = 60'000'000'000;
constexpr size_t kNamesLooked = 4'096;

// What is left of others: traces that an agent before us has not removed (what is still written to has changed
// lately), and sockets of clients that were killed.
void remove_leftovers(const UserFolder& folder, int64_t now_unix_ns) {
  FolderScan scan(folder);
  for (const std::string& name : scan.next(kNamesLooked).names) {
    if (name.starts_with(kKinetoClientName) && KinetoSocket::is_dead(folder, name)) folder.remove(name);
    struct stat info {};
    if (!name.starts_with("lockstep-p-") || ::fstatat(folder.fd(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
      continue;
    if (S_ISREG(info.st_mode) &&
        now_unix_ns / 1'000'000'000 - info.st_mtim.tv_sec > ProfileTaker::kAbandonedNs / 1'000'000'000)
      folder.remove(name);
  }
}

}  // namespace

ProfileWatch::ProfileWatch(ProfileWatchOptions options, Uploader* uploader, const Clock& clock, Counters& counters)
    : options_(std::move(options)),
      uploader_(uploader),
      clock_(clock),
      counters_(counters),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      taker_(
          [&] {
            ProfileOptions taker = options_.taker;
            taker.can_upload = uploader != nullptr;
            return taker;
          }(),
          clock, counters) {
  answers_ = std::thread([this] { run(); });
  uploads_ = std::thread([this] { upload(); });
}

ProfileWatch::~ProfileWatch() {
  stop(0);
  answers_.join();
  uploads_.join();
}

void ProfileWatch::wake() {
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

void ProfileWatch::set_ranks(std::vector<RecorderOwner> owners) {
  MutexLock lock(mutex_);
  owners_ = std::move(owners);
  owners_new_ = true;
}

void ProfileWatch::ask(ProfileRequest request) {
  MutexLock lock(mutex_);
  if (asked_.size() >= kAskedMax) {
    counters_.add("lockstep_agent_profiles_total", "result=\"busy\"", static_cast<int64_t>(request.ranks.size()));
    return;
  }
  asked_.push_back(std::move(request));
  wake();
}

std::vector<ResourceGroup> ProfileWatch::take() {
  MutexLock lock(mutex_);
  return std::exchange(fetched_, {});
}

std::vector<ProfileTaker::Profiled> ProfileWatch::profiled() {
  MutexLock lock(mutex_);
  return profiled_;
}

bool ProfileWatch::stop(int64_t within_ms) {
  MutexLock lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
  wake();
  return changed_.wait_for(mutex_, std::chrono::milliseconds(within_ms),
                           [this]() LOCKSTEP_REQUIRES(mutex_) { return ended_ == 2; });
}

void ProfileWatch::open_sockets(const std::vector<RecorderOwner>& owners) {
  const int64_t now_ns = clock_.monotonic_ns();
  if (abstract_ == nullptr && now_ns >= next_abstract_ns_) {
    next_abstract_ns_ = now_ns + kAbstractAgainNs;
    Result<KinetoSocket> opened = KinetoSocket::open_abstract(options_.abstract_name);
    if (opened.ok())
      abstract_ = std::make_unique<KinetoSocket>(std::move(*opened));
    else if (!std::exchange(abstract_reported_, true))
      LOCKSTEP_LOG_INFO("agent", "%s; jobs under lockstep run can be profiled all the same", opened.error().c_str());
  }
  std::erase_if(folders_, [](const auto& entry) { return !entry.second.folder->is_in_place(); });
  const auto open_in = [&](std::shared_ptr<const UserFolder> folder) {
    if (folder == nullptr || folders_.size() >= kFoldersMax || folders_.contains(folder->path())) return;
    Result<KinetoSocket> opened = KinetoSocket::open_in(folder);
    if (!opened.ok()) LOCKSTEP_LOG_INFO("agent", "%s", as_one_line(opened.error()).c_str());
    const std::string path = folder->path();
    folders_[path] = {std::move(folder), opened.ok() ? std::make_unique<KinetoSocket>(std::move(*opened)) : nullptr};
  };
  if (!options_.recorders.empty() && !folders_.contains(options_.recorders)) {
    if (Result<std::shared_ptr<const UserFolder>> own = UserFolder::open(options_.recorders); own.ok()) open_in(*own);
  }
  for (const RecorderOwner& owner : owners) open_in(owner.folder);
  if (now_ns < next_leftovers_ns_) return;
  next_leftovers_ns_ = now_ns + kLeftoversNs;
  for (const auto& [path, folder] : folders_) remove_leftovers(*folder.folder, clock_.unix_ns());
}

bool ProfileWatch::answer_from(KinetoSocket& socket) {
  const auto counted = [&](const char* result) {
    counters_.add("lockstep_agent_kineto_messages_total", format("result=\"%s\"", result));
  };
  KinetoSocket::Received received;
  int taken = 0;
  for (; taken < kMessagesAtOnce && socket.receive(received); ++taken) {
    const Result<KinetoMessage> message = parse_kineto_untrusted(received.bytes);
    if (!message.ok() || received.pid < 0) {
      counted("refused");
      continue;
    }
    std::string reply;
    bool has_order = false;
    if (message->kind == KinetoMessage::Kind::kContext) {
      const auto known = static_cast<int32_t>(taker_.pollers() + 1);
      reply = encode_kineto("ctxt", {reinterpret_cast<const char*>(&known), sizeof known});
    } else {
      const std::string order = taker_.on_request(received.pid, received.user, *message);
      has_order = !order.empty();
      reply = encode_kineto("req", order);
    }
    counted(!socket.answer(received, reply) ? "unanswered" : has_order ? "ordered" : "answered");
  }
  return taken == kMessagesAtOnce;
}

bool ProfileWatch::answer_all() {
  bool is_flooded = abstract_ != nullptr && answer_from(*abstract_);
  for (auto& [path, folder] : folders_) {
    if (folder.socket != nullptr) is_flooded |= answer_from(*folder.socket);
  }
  return is_flooded;
}

void ProfileWatch::wait(bool is_busy) {
  std::vector<pollfd> entries{{wake_.get(), POLLIN, 0}};
  if (abstract_ != nullptr) entries.push_back({abstract_->fd(), POLLIN, 0});
  for (const auto& [path, folder] : folders_) {
    if (folder.socket != nullptr) entries.push_back({folder.socket->fd(), POLLIN, 0});
  }
  ::poll(entries.data(), entries.size(), is_busy ? kBusyMs : kIdleMs);
  uint64_t woken = 0;
  (void)!::read(wake_.get(), &woken, sizeof woken);
}

void ProfileWatch::run() {
  std::vector<RecorderOwner> owners;
  ReleasableMutexLock lock(mutex_);
  while (!stopping_) {
    const std::vector<ProfileRequest> asked = std::exchange(asked_, {});
    const auto uploaded = std::exchange(uploaded_, {});
    if (std::exchange(owners_new_, false)) owners = owners_;
    const bool may_upload = !upload_;
    lock.unlock();
    if (options_.heartbeat != nullptr) options_.heartbeat->beat();
    open_sockets(owners);
    taker_.set_ranks(owners);
    for (const ProfileRequest& request : asked) taker_.ask(request);
    for (const auto& [number, result] : uploaded) taker_.uploaded(number, result);
    const bool is_flooded = answer_all();
    std::vector<ResourceGroup> fetched = taker_.poll();
    std::optional<ProfileTaker::Upload> next = may_upload ? taker_.next_upload() : std::nullopt;
    std::vector<ProfileTaker::Profiled> profiled = taker_.profiled();
    const bool is_busy = taker_.busy();
    lock.lock();
    profiled_ = std::move(profiled);
    std::move(fetched.begin(), fetched.end(), std::back_inserter(fetched_));
    if (next) {
      upload_ = std::move(next);
      changed_.notify_all();
    }
    if (stopping_) break;
    lock.unlock();
    if (options_.heartbeat != nullptr) options_.heartbeat->waits();
    // Whoever sends without end takes little of a core.
    if (is_flooded) ::poll(nullptr, 0, kFloodedMs);
    wait(is_busy);
    lock.lock();
  }
  ++ended_;
  changed_.notify_all();
}

void ProfileWatch::upload() {
  ReleasableMutexLock lock(mutex_);
  while (!stopping_) {
    if (!upload_) {
      changed_.wait_for(mutex_, std::chrono::milliseconds(kIdleMs));
      continue;
    }
    const ProfileTaker::Upload order = *upload_;
    lock.unlock();
    const Result<Uploaded> result = uploader_->upload(order.fd, order.order, [](uint64_t) {});
    lock.lock();
    upload_.reset();
    uploaded_.emplace_back(order.number, result);
    wake();
  }
  ++ended_;
  changed_.notify_all();
}

}  // namespace lockstep
