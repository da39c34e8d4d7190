#include "ingest/flow/flow_receivers.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <thread>

#include "base/contained.h"
#include "base/mutex.h"
#include "base/rate_limited_log.h"
#include "base/text.h"
#include "ingest/flow/udp_socket.h"
#include "wire/ipfix.h"
#include "wire/sflow.h"

namespace lockstep {
namespace {

enum class Protocol : uint8_t { kSflow, kIpfix };
constexpr const char* kReceivers[] = {"sflow", "ipfix"};

// What one receiver counts, looked up once.
struct ReceiverCounters {
  ReceiverCounters(const char* receiver, Counters& counters)
      : name(receiver),
        received(at(counters, "lockstep_flow_datagrams_total")),
        decoded(at(counters, "lockstep_flow_datagrams_decoded_total")),
        stranger(at(counters, "lockstep_flow_datagrams_refused_total", "reason=\"exporter\"")),
        malformed(at(counters, "lockstep_flow_datagrams_refused_total", "reason=\"malformed\"")),
        limit(at(counters, "lockstep_flow_datagrams_refused_total", "reason=\"limit\"")),
        failed(at(counters, "lockstep_flow_datagrams_refused_total", "reason=\"failed\"")),
        dropped(at(counters, "lockstep_flow_datagrams_dropped_total")),
        kernel_drops(at(counters, "lockstep_flow_kernel_drops_total")),
        lost_datagrams(at(counters, "lockstep_flow_lost_total", "what=\"datagrams\"")),
        lost_records(at(counters, "lockstep_flow_lost_total", "what=\"records\"")),
        late(at(counters, "lockstep_flow_late_total")),
        exporter_drops(at(counters, "lockstep_flow_exporter_drops_total")),
        flows(at(counters, "lockstep_flow_samples_total", "what=\"flows\"")),
        ports(at(counters, "lockstep_flow_samples_total", "what=\"ports\"")),
        skipped(at(counters, "lockstep_flow_samples_total", "what=\"skipped\"")),
        exporters(at(counters, "lockstep_flow_exporters")) {}

  std::atomic<int64_t>& at(Counters& counters, const char* counter, const char* more = "") const {
    return counters.at(counter, format("receiver=\"%s\"%s%s", name, *more == '\0' ? "" : ",", more));
  }

  const char* name;
  std::atomic<int64_t>&received, &decoded, &stranger, &malformed, &limit, &failed, &dropped, &kernel_drops;
  std::atomic<int64_t>&lost_datagrams, &lost_records, &late, &exporter_drops, &flows, &ports, &skipped, &exporters;
};

// Datagrams that were read together, one behind the other.
struct Batch {
  struct Datagram {
    IpAddress from;
    size_t begin = 0, bytes = 0;
  };
  Protocol protocol = Protocol::kSflow;
  int64_t received_unix_ns = 0;
  std::string bytes;
  std::vector<Datagram> datagrams;

  // What it holds in memory: a datagram may be smaller than what we know of it.
  size_t cost() const { return sizeof *this + bytes.capacity() + datagrams.capacity() * sizeof(Datagram); }
};

class RunningReceivers final : public FlowReceivers {
 public:
  RunningReceivers(FlowReceiversOptions options, FlowSubscriber& subscriber, const Clock& clock, Counters& counters)
      : options_(std::move(options)),
        subscriber_(subscriber),
        clock_(clock),
        counters_{ReceiverCounters(kReceivers[0], counters), ReceiverCounters(kReceivers[1], counters)},
        sets_without_template_(counters.at("lockstep_flow_sets_without_template_total")),
        templates_changed_(counters.at("lockstep_flow_templates_changed_total")),
        templates_(counters.at("lockstep_flow_templates")),
        log_(clock, "flows") {}
  ~RunningReceivers() override { stop(); }

  Result<void> open();
  void stop() override;
  std::vector<std::string> sflow_addresses() const override { return addresses(Protocol::kSflow); }
  std::vector<std::string> ipfix_addresses() const override { return addresses(Protocol::kIpfix); }

 private:
  struct Listener {
    Protocol protocol;
    std::unique_ptr<UdpSocket> socket;
    std::thread thread;
  };
  std::vector<std::string> addresses(Protocol protocol) const;
  void receive(Listener& listener);
  void take(Listener& listener, size_t count);
  void decode_queue();
  void decode(const Batch& batch);
  void decode(Protocol protocol, const IpAddress& from, std::string_view datagram, int64_t received_unix_ns);
  bool is_exporter(const IpAddress& from) const;

  const FlowReceiversOptions options_;
  FlowSubscriber& subscriber_;
  const Clock& clock_;
  ReceiverCounters counters_[2];
  std::atomic<int64_t>&sets_without_template_, &templates_changed_, &templates_;
  RateLimitedLog log_;
  UniqueFd wake_;
  std::vector<Listener> listeners_;
  std::thread decoder_;
  // The decoder's own.
  SflowDecoder sflow_;
  IpfixDecoder ipfix_;
  FlowReport report_;

  Mutex mutex_;
  ConditionVariable arrived_;
  std::deque<Batch> queue_ LOCKSTEP_GUARDED_BY(mutex_);
  size_t queued_bytes_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  bool is_over_ LOCKSTEP_GUARDED_BY(mutex_) = false;
};

Result<void> RunningReceivers::open() {
  wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return Error{format("eventfd: %s", std::strerror(errno))};
  for (const Protocol protocol : {Protocol::kSflow, Protocol::kIpfix}) {
    const bool is_sflow = protocol == Protocol::kSflow;
    for (const ListenAddress& address : is_sflow ? options_.sflow : options_.ipfix) {
      Result<std::unique_ptr<UdpSocket>> socket = UdpSocket::bind(address);
      if (!socket.ok())
        return prefixed(socket.failure(), format("%s: ", is_sflow ? "--sflow-listen" : "--ipfix-listen"));
      listeners_.push_back({protocol, std::move(*socket), {}});
    }
  }
  decoder_ = std::thread([this] { decode_queue(); });
  for (Listener& listener : listeners_) listener.thread = std::thread([this, &listener] { receive(listener); });
  return {};
}

void RunningReceivers::stop() {
  if (!decoder_.joinable()) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
  for (Listener& listener : listeners_) listener.thread.join();
  {
    MutexLock lock(mutex_);
    is_over_ = true;
  }
  arrived_.notify_all();
  decoder_.join();
}

std::vector<std::string> RunningReceivers::addresses(Protocol protocol) const {
  std::vector<std::string> all;
  for (const Listener& listener : listeners_) {
    if (listener.protocol == protocol) all.push_back(listener.socket->bound());
  }
  return all;
}

bool RunningReceivers::is_exporter(const IpAddress& from) const {
  return std::any_of(options_.exporters.begin(), options_.exporters.end(),
                     [&](const IpPrefix& prefix) { return prefix.contains(from); });
}

void RunningReceivers::receive(Listener& listener) {
  ReceiverCounters& counters = counters_[static_cast<size_t>(listener.protocol)];
  pollfd ready[2] = {{listener.socket->fd(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
  for (;;) {
    if (::poll(ready, 2, -1) < 0 && errno != EINTR) return;
    // Until nothing is there: told to stop, what the kernel holds is still taken, for one batch.
    const size_t count = listener.socket->read();
    counters.kernel_drops += static_cast<int64_t>(listener.socket->take_kernel_drops());
    if (count > 0) contained("flows", "a batch of datagrams", [&] { take(listener, count); });
    if ((ready[1].revents & POLLIN) != 0) return;
  }
}

void RunningReceivers::take(Listener& listener, size_t count) {
  ReceiverCounters& counters = counters_[static_cast<size_t>(listener.protocol)];
  counters.received += static_cast<int64_t>(count);
  Batch batch;
  batch.protocol = listener.protocol;
  batch.received_unix_ns = clock_.unix_ns();
  batch.datagrams.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const std::string_view datagram = listener.socket->datagram(i);
    const IpAddress from = listener.socket->sender(i);
    if (!is_exporter(from)) {
      ++counters.stranger;
      log_.warn("exporter", [&] {
        return format("%s: datagrams of %s are refused: not in --flow-exporters", counters.name, to_text(from).c_str());
      });
      continue;
    }
    if (datagram.empty()) {
      ++counters.malformed;
      log_.warn("malformed", [&] {
        return format("%s: a datagram of %s without a byte is refused", counters.name, to_text(from).c_str());
      });
      continue;
    }
    batch.datagrams.push_back({from, batch.bytes.size(), datagram.size()});
    batch.bytes += datagram;
  }
  if (batch.datagrams.empty()) return;
  {
    MutexLock lock(mutex_);
    if (queued_bytes_ + batch.cost() <= options_.queue_bytes_max) {
      queued_bytes_ += batch.cost();
      queue_.push_back(std::move(batch));
      arrived_.notify_one();
      return;
    }
  }
  counters.dropped += static_cast<int64_t>(batch.datagrams.size());
  log_.warn("queue", [&] {
    return format("%s: %zu datagrams dropped: more come than are decoded", counters.name, batch.datagrams.size());
  });
}

void RunningReceivers::decode_queue() {
  for (;;) {
    Batch batch;
    {
      MutexLock lock(mutex_);
      arrived_.wait(mutex_, [this]() LOCKSTEP_REQUIRES(mutex_) { return is_over_ || !queue_.empty(); });
      if (queue_.empty()) return;
      batch = std::move(queue_.front());
      queue_.pop_front();
      queued_bytes_ -= batch.cost();
    }
    decode(batch);
  }
}

void RunningReceivers::decode(const Batch& batch) {
  for (const Batch::Datagram& one : batch.datagrams) {
    const bool is_done = contained("flows", "a datagram", [&] {
      decode(batch.protocol, one.from, std::string_view(batch.bytes).substr(one.begin, one.bytes),
             batch.received_unix_ns);
    });
    if (!is_done) ++counters_[static_cast<size_t>(batch.protocol)].failed;
  }
  counters_[0].exporters = static_cast<int64_t>(sflow_.agents());
  counters_[1].exporters = static_cast<int64_t>(ipfix_.domains());
  templates_ = static_cast<int64_t>(ipfix_.templates());
}

void RunningReceivers::decode(Protocol protocol, const IpAddress& from, std::string_view datagram,
                              int64_t received_unix_ns) {
  ReceiverCounters& counters = counters_[static_cast<size_t>(protocol)];
  const int64_t now_ns = clock_.monotonic_ns();
  const Result<void> read = protocol == Protocol::kSflow ? sflow_.decode(datagram, now_ns, report_)
                                                         : ipfix_.decode(from, datagram, now_ns, report_);
  if (!read.ok()) {
    const bool is_limit = read.code() == ErrorCode::kTooLarge;
    ++(is_limit ? counters.limit : counters.malformed);
    log_.warn(is_limit ? "limit" : "malformed", [&] {
      return format("%s: a datagram of %zu bytes of %s is refused: %s", counters.name, datagram.size(),
                    to_text(from).c_str(), read.error().c_str());
    });
    return;
  }
  counters.lost_datagrams += static_cast<int64_t>(report_.lost_datagrams);
  counters.lost_records += static_cast<int64_t>(report_.lost_records);
  counters.late += static_cast<int64_t>(report_.late_datagrams);
  counters.exporter_drops += static_cast<int64_t>(report_.exporter_drops);
  counters.flows += static_cast<int64_t>(report_.flows.size());
  counters.ports += static_cast<int64_t>(report_.ports.size());
  counters.skipped += static_cast<int64_t>(report_.skipped_records);
  sets_without_template_ += static_cast<int64_t>(report_.sets_without_template);
  templates_changed_ += static_cast<int64_t>(report_.templates_changed);
  if (report_.lost_datagrams + report_.lost_records > 0)
    log_.warn("lost", [&] {
      return format("%s: %llu datagrams and %llu records of %s (domain %u) did not arrive", counters.name,
                    static_cast<unsigned long long>(report_.lost_datagrams),
                    static_cast<unsigned long long>(report_.lost_records), to_text(report_.exporter.address).c_str(),
                    report_.exporter.domain);
    });
  subscriber_.on_flows(report_, received_unix_ns);
  ++counters.decoded;
}

}  // namespace

std::vector<IpPrefix> default_flow_exporters() {
  std::vector<IpPrefix> all;
  for (const char* text : {"127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10",
                           "169.254.0.0/16", "::1", "fc00::/7", "fe80::/10"})
    all.push_back(*parse_ip_prefix(text));
  return all;
}

Result<std::vector<IpPrefix>> parse_flow_exporters(std::string_view text) {
  if (text.empty()) return default_flow_exporters();
  std::vector<IpPrefix> all;
  for (const std::string_view part : split(text, ',')) {
    const std::optional<IpPrefix> prefix = parse_ip_prefix(trim(part));
    if (!prefix) return Error{format("\"%s\" is no address or prefix such as 10.0.0.0/8", as_one_line(part).c_str())};
    all.push_back(*prefix);
  }
  return all;
}

Result<std::unique_ptr<FlowReceivers>> FlowReceivers::start(FlowReceiversOptions options, FlowSubscriber& subscriber,
                                                            const Clock& clock, Counters& counters) {
  auto receivers = std::make_unique<RunningReceivers>(std::move(options), subscriber, clock, counters);
  LOCKSTEP_TRY(receivers->open());
  return std::unique_ptr<FlowReceivers>(std::move(receivers));
}

}  // namespace lockstep
