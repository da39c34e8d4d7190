// One I/O thread owns every connection (grpc_session.h); handlers run on workers. A finished call comes back through a
// list and an eventfd, named by connection id and stream id: if either is gone by then, the answer has nobody left to
// read it.
#include "net/grpc_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <thread>
#include <unordered_map>

#include "base/clock.h"
#include "base/contained.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/text.h"
#include "net/grpc_message.h"
#include "net/grpc_session.h"

namespace lockstep {
namespace {

// Calls waiting for a worker. Each is a whole request; a client that makes and cancels calls without end stops here.
constexpr size_t kWaitingMax = 10'000;
constexpr int kTickMs = 250;

struct Done {
  uint64_t connection = 0;
  int32_t stream = 0;
  uint64_t held_bytes = 0;
  GrpcServerResponse reply;
};

class Server final : public GrpcServer {
 public:
  Server(GrpcServerOptions options, GrpcHandler handler, Counters& counters, ListenSocket listener, UniqueFd epoll,
         UniqueFd wake, std::unique_ptr<TlsListener> tls)
      : options_(std::move(options)),
        handler_(std::move(handler)),
        listener_(std::move(listener)),
        address_(listener_.bound),
        epoll_(std::move(epoll)),
        wake_(std::move(wake)),
        common_{.options = options_,
                .counters = counters,
                .epoll = epoll_.get(),
                .take = [this](GrpcJob job) { return take(std::move(job)); },
                .accept_encoding = "identity"} {
    common_.tls = std::move(tls);
    for (const std::string& encoding : options_.encodings) common_.accept_encoding += "," + encoding;
    common_.watch(listener_.fd.get(), kListener, EPOLLIN, EPOLL_CTL_ADD);
    common_.watch(wake_.get(), kWake, EPOLLIN, EPOLL_CTL_ADD);
    for (size_t i = 0; i < std::max<size_t>(1, options_.http.threads); ++i) workers_.emplace_back([this] { work(); });
    io_thread_ = std::thread([this] { run(); });
  }
  ~Server() override { stop(); }

  std::string address() const override { return address_; }

  void stop() override {
    MutexLock lock(stop_mutex_);
    if (!io_thread_.joinable()) return;
    stopping_.store(true);
    wake();
    io_thread_.join();
    {
      MutexLock jobs_lock(jobs_mutex_);
      jobs_closed_ = true;
    }
    jobs_ready_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

 private:
  static constexpr uint64_t kListener = 0;
  static constexpr uint64_t kWake = 1;
  static constexpr uint64_t kFirstConnection = 2;

  // I/O thread
  void run();
  void on_event(const epoll_event& event);
  bool is_handshake(const epoll_event& event) const;
  void accept_new();
  bool close_idlest();
  void fail(GrpcSession& connection);
  void stop_listening();
  void tick();
  bool take(GrpcJob job);
  void take_done();

  // Any thread
  void wake() {
    uint64_t one = 1;
    (void)!write(wake_.get(), &one, sizeof one);
  }

  // Workers
  void work();
  GrpcServerResponse call(GrpcJob& job);

  const GrpcServerOptions options_;
  const GrpcHandler handler_;
  SystemClock clock_;

  // I/O thread only:
  ListenSocket listener_;
  const std::string address_;
  UniqueFd epoll_;
  UniqueFd wake_;
  GrpcSessionCommon common_;  // accept_encoding: never changed, read by workers too
  std::unordered_map<uint64_t, std::unique_ptr<GrpcSession>> connections_;
  uint64_t next_connection_ = kFirstConnection;
  int64_t accept_again_ns_ = 0;
  bool listening_ = true;

  Mutex jobs_mutex_;
  ConditionVariable jobs_ready_;
  std::deque<GrpcJob> jobs_ LOCKSTEP_GUARDED_BY(jobs_mutex_);
  bool jobs_closed_ LOCKSTEP_GUARDED_BY(jobs_mutex_) = false;

  Mutex done_mutex_;
  std::vector<Done> done_ LOCKSTEP_GUARDED_BY(done_mutex_);

  std::atomic<bool> stopping_{false};
  Mutex stop_mutex_;
  std::vector<std::thread> workers_;
  std::thread io_thread_;
};

// ---- handling, on the workers ----

bool Server::take(GrpcJob job) {
  {
    MutexLock lock(jobs_mutex_);
    if (jobs_.size() >= kWaitingMax) return false;
    jobs_.push_back(std::move(job));
  }
  jobs_ready_.notify_one();
  return true;
}

void Server::work() {
  for (;;) {
    GrpcJob job;
    {
      MutexLock lock(jobs_mutex_);
      jobs_ready_.wait(jobs_mutex_, [this]() LOCKSTEP_REQUIRES(jobs_mutex_) { return jobs_closed_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    Done done{job.connection, job.stream, job.frame.size(), {}};
    const bool called = contained(options_.http.name.c_str(), "a call", [&] {
      if (!job.cancelled->load(std::memory_order_relaxed)) done.reply = call(job);
    });
    if (!called) done.reply = {kGrpcInternal, "internal error"};
    // Without an answer the call would wait, and hold its bytes, for ever: as often as it takes to have the room.
    while (!contained(options_.http.name.c_str(), "an answer", [&] {
      MutexLock lock(done_mutex_);
      done_.push_back(std::move(done));
    })) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    wake();
  }
}

GrpcServerResponse Server::call(GrpcJob& job) {
  GrpcServerRequest request{std::move(job.path), {}, std::move(job.caller), std::move(job.peer)};
  std::string& message = request.body;
  std::shared_ptr<MemoryLease> memory;  // of the message
  uint8_t flag = static_cast<uint8_t>(job.frame[0]);
  std::string_view data = std::string_view(job.frame).substr(kGrpcFrameBytes);
  if (flag > 1) return {kGrpcInternal, format("the message's compressed flag is %u (0 and 1 are possible)", flag)};
  if (flag == 0) {
    message = std::move(job.frame);
    message.erase(0, kGrpcFrameBytes);
  } else {
    if (job.encoding.empty() || job.encoding == "identity")
      return {kGrpcInternal, "a compressed message without grpc-encoding"};
    bool known =
        std::find(options_.encodings.begin(), options_.encodings.end(), job.encoding) != options_.encodings.end();
    if (!known || !options_.decompress)
      return {kGrpcUnimplemented, format("grpc-encoding '%.40s' is not understood: use %s", job.encoding.c_str(),
                                         common_.accept_encoding.c_str())};
    GrpcServerResponse plain = options_.decompress(job.encoding, data, options_.http.body_bytes_max);
    if (plain.status != kGrpcOk) return plain;
    message = std::move(plain.body);
    memory = std::move(plain.memory);
  }
  return handler_(request);
}

void Server::take_done() {
  std::vector<Done> finished;
  {
    MutexLock lock(done_mutex_);
    finished.swap(done_);
  }
  for (Done& done : finished) {
    auto found = connections_.find(done.connection);
    if (found == connections_.end() || !found->second->has_stream(done.stream)) {
      common_.release(done.held_bytes);  // the call was cancelled while a worker had it
      continue;
    }
    const bool answered = contained(options_.http.name.c_str(), "an answer",
                                    [&] { found->second->finish(done.stream, std::move(done.reply)); });
    if (!answered) fail(*found->second);
  }
}

// ---- connections ----

void Server::run() {
  int64_t drain_until_ns = 0;
  int64_t next_tick_ns = 0;
  for (;;) {
    epoll_event events[64];
    int count = epoll_wait(epoll_.get(), events, 64, kTickMs);
    common_.now_ns = clock_.monotonic_ns();
    // Of handshakes one a round, behind all the others: each may sign with the server's key, and two hundred at once
    // would hold up everybody's calls. What is left is there again at once.
    auto* const handshakes = std::stable_partition(events, events + std::max(count, 0),
                                                   [this](const epoll_event& event) { return !is_handshake(event); });
    const auto* const end = std::min(handshakes + 1, events + std::max(count, 0));
    for (const epoll_event* event = events; event < end; ++event) on_event(*event);
    if (!contained(options_.http.name.c_str(), "an answer", [this] { take_done(); })) common_.count_bad("failed");
    if (stopping_.load() && drain_until_ns == 0) {
      drain_until_ns = common_.now_ns + options_.http.drain_timeout_ms * 1'000'000;
      if (listening_) stop_listening();
      listener_.fd.reset();
      for (auto& [id, connection] : connections_) connection->start_leaving();
    }
    if (common_.now_ns >= next_tick_ns) {
      next_tick_ns = common_.now_ns + kTickMs * 1'000'000ll;
      if (!contained(options_.http.name.c_str(), "a look at connections", [this] { tick(); }))
        common_.count_bad("failed");
    }
    std::erase_if(connections_, [](const auto& item) { return item.second->dead(); });
    if (drain_until_ns != 0 && (connections_.empty() || common_.now_ns >= drain_until_ns)) break;
  }
  if (!connections_.empty())
    LOCKSTEP_LOG_WARN(options_.http.name.c_str(), "stopping: %zu connections closed with a request in progress",
                      connections_.size());
  for (auto& [id, connection] : connections_) connection->close();
  connections_.clear();
}

bool Server::is_handshake(const epoll_event& event) const {
  if (common_.tls == nullptr) return false;
  const auto found = connections_.find(event.data.u64);
  return found != connections_.end() && found->second->is_in_handshake();
}

void Server::on_event(const epoll_event& event) {
  const uint64_t id = event.data.u64;
  if (id == kListener) {
    if (!contained(options_.http.name.c_str(), "a new connection", [this] { accept_new(); }))
      common_.count_bad("failed");
  } else if (id == kWake) {
    uint64_t ignored = 0;
    (void)!read(wake_.get(), &ignored, sizeof ignored);
  } else if (auto found = connections_.find(id); found != connections_.end()) {
    const bool done = contained(options_.http.name.c_str(), "a connection", [&] {
      // TLS may have to write before it can read on.
      if ((event.events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 || common_.tls != nullptr) found->second->read();
      found->second->advance();
    });
    if (!done) fail(*found->second);
  }
}

// False: all are being answered.
bool Server::close_idlest() {
  GrpcSession* idlest = nullptr;
  for (auto& [id, connection] : connections_) {
    if (connection->dead() || connection->is_answering()) continue;
    if (idlest == nullptr || connection->last_call_ns() < idlest->last_call_ns()) idlest = connection.get();
  }
  if (idlest == nullptr) return false;
  common_.count_bad("gave_way");
  idlest->start_leaving();
  idlest->close();
  const uint64_t id = idlest->id();
  connections_.erase(id);
  return true;
}

// Something was thrown on its behalf: it goes, the others stay.
void Server::fail(GrpcSession& connection) {
  common_.count_bad("failed");
  connection.close();
}

void Server::stop_listening() {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.fd.get(), nullptr);
  listening_ = false;
}

void Server::accept_new() {
  for (;;) {
    UniqueFd fd(accept4(listener_.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) {
      if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
      // Out of file descriptors: peers stay in the backlog; tick() looks again instead of this thread spinning.
      stop_listening();
      accept_again_ns_ = common_.now_ns + 100'000'000;
      return;
    }
    if (connections_.size() >= options_.http.connections_max && !close_idlest()) {
      common_.count_bad("connections_max");
      continue;
    }
    int on = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    std::unique_ptr<GrpcSession> connection = GrpcSession::make(common_, next_connection_++, std::move(fd));
    if (connection == nullptr) continue;
    GrpcSession& added = *connection;
    connections_.emplace(added.id(), std::move(connection));
    added.begin();
  }
}

void Server::tick() {
  if (!listening_ && !stopping_.load() && common_.now_ns >= accept_again_ns_) {
    listening_ = true;
    common_.watch(listener_.fd.get(), kListener, EPOLLIN, EPOLL_CTL_ADD);
  }
  for (auto& [id, connection] : connections_) connection->tick();
}

}  // namespace

Result<std::unique_ptr<GrpcServer>> GrpcServer::start(GrpcServerOptions options, GrpcHandler handler,
                                                      Counters& counters) {
  Result<ListenSocket> listener = listen_on(options.http.address);
  if (!listener) return prefixed(listener.failure(), options.http.name + ": ");
  std::unique_ptr<TlsListener> tls;
  if (options.http.tls.enabled()) {
    Result<std::unique_ptr<TlsListener>> opened =
        TlsListener::open(options.http.tls, "h2", options.http.name, counters);
    if (!opened.ok()) return prefixed(opened.failure(), options.http.name + ": TLS: ");
    tls = std::move(*opened);
  }
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll.valid() || !wake.valid())
    return Error{format("%s: cannot make an epoll: %s", options.http.name.c_str(), std::strerror(errno))};
  return std::unique_ptr<GrpcServer>(new Server(std::move(options), std::move(handler), counters, std::move(*listener),
                                                std::move(epoll), std::move(wake), std::move(tls)));
}

}  // namespace lockstep
