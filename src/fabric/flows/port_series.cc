#include "fabric/flows/port_series.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "model/roce.h"
#include "model/series_labels.h"

namespace lockstep {
namespace {

constexpr const char* kBytesHelp = "Bytes that passed the port, as the switch counts them (sFlow).";
constexpr const char* kPacketsHelp = "Packets that passed the port, as the switch counts them (sFlow).";
constexpr const char* kErrorsHelp = "Packets with errors at the port (sFlow).";
constexpr const char* kDiscardsHelp = "Packets without errors that the port dropped, for want of room mostly (sFlow).";
constexpr const char* kFlowBytesHelp = "Bytes that passed the port, estimated from flows (sFlow, NetFlow, IPFIX).";
constexpr const char* kMarkedHelp =
    "Packets with the mark of congestion (ECN), estimated from flows (sFlow, NetFlow, IPFIX).";
constexpr const char* kBufferHelp =
    "Most of the port's packet buffers that was in use since the last report, 0 to 1 (sFlow record 4413:2, Broadcom).";
constexpr PortMetricRow kRows[kPortMetrics] = {
    {"lockstep_port_bytes_total", "in", "counter", "load", kBytesHelp},
    {"lockstep_port_bytes_total", "out", "counter", "load", kBytesHelp},
    {"lockstep_port_packets_total", "in", "counter", "other", kPacketsHelp},
    {"lockstep_port_packets_total", "out", "counter", "other", kPacketsHelp},
    {"lockstep_port_errors_total", "in", "counter", "errors", kErrorsHelp},
    {"lockstep_port_errors_total", "out", "counter", "errors", kErrorsHelp},
    {"lockstep_port_discards_total", "in", "counter", "drops", kDiscardsHelp},
    {"lockstep_port_discards_total", "out", "counter", "drops", kDiscardsHelp},
    {"lockstep_port_fcs_errors_total", "in", "counter", "errors",
     "Frames with a wrong checksum: a bad cable or optic (sFlow)."},
    {"lockstep_port_symbol_errors_total", "in", "counter", "errors",
     "Symbols that are none: a bad cable or optic (sFlow)."},
    {"lockstep_port_up", "", "gauge", "up", "1: the port is up, 0: it is not (sFlow)."},
    {"lockstep_port_speed_bytes_per_second", "", "gauge", "speed", "What the port carries at most (sFlow)."},
    {"lockstep_port_flow_bytes_total", "in", "counter", "load", kFlowBytesHelp},
    {"lockstep_port_flow_bytes_total", "out", "counter", "load", kFlowBytesHelp},
    {"lockstep_port_ecn_marked_packets_total", "in", "counter", "ecn", kMarkedHelp},
    {"lockstep_port_ecn_marked_packets_total", "out", "counter", "ecn", kMarkedHelp},
    {"lockstep_port_cnp_packets_total", "out", "counter", "ecn",
     "Congestion notifications of RoCEv2 that left by the port, estimated from flows: whoever is behind it is "
     "throttled."},
    {"lockstep_port_dropped_packets_total", "in", "counter", "drops",
     "Packets that came in here and that the switch dropped, reported one by one (sFlow format 5): at least so many."},
    {"lockstep_port_queue_bytes", "out", "gauge", "queue",
     "Deepest queue that a sampled packet met in the last 10 s (sFlow record 1040)."},
    {"lockstep_port_transit_delay_seconds", "out", "gauge", "queue",
     "Longest time that a sampled packet spent in the switch in the last 10 s (sFlow record 1039)."},
    {"lockstep_port_buffer_peak_ratio", "in", "gauge", "queue", kBufferHelp},
    {"lockstep_port_buffer_peak_ratio", "out", "gauge", "queue", kBufferHelp},
};

uint32_t port_number(uint64_t key) {
  return static_cast<uint32_t>(key);
}
SwitchNumber switch_number(uint64_t key) {
  return static_cast<SwitchNumber>(key >> 32);
}

}  // namespace

std::span<const PortMetricRow, kPortMetrics> port_metric_rows() {
  return kRows;
}

PortSeries::PortSeries(Push push, const SwitchDirectory& directory, Counters& counters)
    : push_(std::move(push)), directory_(directory), dropped_(counters.at("lockstep_port_samples_dropped_total")) {}

double PortSeries::Rising::next(uint32_t value, bool is_restarted) {
  // Around the end of 32 bits too. More than half of them between two reports is somebody who has set it to 0.
  const uint32_t more = value - raw;
  if (!is_known || is_restarted || more > UINT32_MAX / 2) {
    total = value;
  } else {
    total += more;
  }
  is_known = true;
  raw = value;
  return total;
}

PortSeries::Port* PortSeries::port_of(SwitchNumber number, uint32_t port, int64_t unix_ns) {
  if (!is_port(port)) return nullptr;
  const uint64_t key = key_of(number, port);
  auto known = ports_.find(key);
  if (known == ports_.end()) {
    Switch& of = switches_[number];
    if (ports_.size() >= kPortsMax || of.ports >= SwitchDirectory::kPortsPerSwitchMax) {
      ++dropped_;
      return nullptr;
    }
    ++of.ports;
    known = ports_.try_emplace(key).first;
  }
  known->second.heard_unix_ns = unix_ns;
  return &known->second;
}

void PortSeries::forget_silent(int64_t now_unix_ns) {
  MutexLock lock(mutex_);
  std::erase_if(ports_, [&](const auto& entry) LOCKSTEP_REQUIRES(mutex_) {
    const auto& [key, port] = entry;
    if (now_unix_ns - port.heard_unix_ns <= kForgetNs) return false;
    --switches_.at(switch_number(key)).ports;
    return true;
  });
  std::erase_if(switches_, [](const auto& entry) { return entry.second.ports == 0; });
}

void PortSeries::queue(uint64_t port, PortMetric metric, int64_t unix_ns, double value) {
  if (pending_.size() >= kPendingMax) {
    ++dropped_;
    return;
  }
  pending_.push_back({port, metric, unix_ns / 1'000'000, value});
}

void PortSeries::restarted(SwitchNumber number) {
  MutexLock lock(mutex_);
  ++switches_[number].starts;
}

void PortSeries::add(SwitchNumber number, std::span<const PortCounters> ports, int64_t unix_ns) {
  if (ports.empty()) return;
  MutexLock lock(mutex_);
  for (const PortCounters& port : ports) add(number, port, unix_ns);
}

void PortSeries::add(SwitchNumber number, std::span<const FlowSample> samples, int64_t unix_ns) {
  if (samples.empty()) return;
  MutexLock lock(mutex_);
  for (const FlowSample& sample : samples) add(number, sample, unix_ns);
}

void PortSeries::add(SwitchNumber number, const PortCounters& port, int64_t unix_ns) {
  Port* state = port_of(number, port.port, unix_ns);
  if (state == nullptr) return;
  const uint64_t start = switches_[number].starts;
  const bool is_restarted = std::exchange(state->start, start) != start;
  const uint64_t key = key_of(number, port.port);
  auto counter = [&](PortMetric metric, Rising& rising, uint32_t value) LOCKSTEP_REQUIRES(mutex_) {
    if (value != PortCounters::kNone32) queue(key, metric, unix_ns, rising.next(value, is_restarted));
  };
  if (port.has_generic) {
    if (port.in_bytes != PortCounters::kNone64)
      queue(key, PortMetric::kInBytes, unix_ns, static_cast<double>(port.in_bytes));
    if (port.out_bytes != PortCounters::kNone64)
      queue(key, PortMetric::kOutBytes, unix_ns, static_cast<double>(port.out_bytes));
    for (const bool is_in : {true, false}) {
      const auto& values = is_in ? port.in_packets : port.out_packets;
      double packets = 0;
      bool is_known = false;
      for (size_t kind = 0; kind < 3; ++kind) {
        if (values[kind] == PortCounters::kNone32) continue;
        packets += (is_in ? state->in_packets : state->out_packets)[kind].next(values[kind], is_restarted);
        is_known = true;
      }
      if (is_known) queue(key, is_in ? PortMetric::kInPackets : PortMetric::kOutPackets, unix_ns, packets);
    }
    counter(PortMetric::kInErrors, state->in_errors, port.in_errors);
    counter(PortMetric::kOutErrors, state->out_errors, port.out_errors);
    counter(PortMetric::kInDiscards, state->in_discards, port.in_discards);
    counter(PortMetric::kOutDiscards, state->out_discards, port.out_discards);
    queue(key, PortMetric::kUp, unix_ns, port.is_up ? 1 : 0);
    if (port.speed_bits > 0) queue(key, PortMetric::kSpeed, unix_ns, static_cast<double>(port.speed_bits) / 8);
  }
  if (port.has_ethernet) {
    counter(PortMetric::kFcsErrors, state->fcs_errors, port.fcs_errors);
    counter(PortMetric::kSymbolErrors, state->symbol_errors, port.symbol_errors);
  }
  for (const auto& [metric, peak] :
       {std::pair(PortMetric::kInBufferPeak, port.in_buffer_peak), {PortMetric::kOutBufferPeak, port.out_buffer_peak}})
    if (peak != PortCounters::kNone32) queue(key, metric, unix_ns, peak / 10'000.0);
}

void PortSeries::add(SwitchNumber number, const FlowSample& sample, int64_t unix_ns) {
  const auto packets = static_cast<double>(sample.packets), bytes = static_cast<double>(sample.bytes);
  if (sample.drop_reason >= 0) {
    if (Port* port = port_of(number, sample.in_port, unix_ns)) {
      port->dropped += packets;
      port->seen_unix_ns = unix_ns;
    }
    return;
  }
  bool& reports_egress = switches_[number].reports_egress;
  reports_egress |= sample.seen_at == SeenAt::kEgress;
  const bool counts_in = sample.seen_at != SeenAt::kEgress;
  const bool counts_out = sample.seen_at != SeenAt::kIngress || !reports_egress;
  if (Port* port = counts_in ? port_of(number, sample.in_port, unix_ns) : nullptr) {
    port->in_flow_bytes += bytes;
    if (sample.is_marked()) port->in_marked += packets;
    port->seen_unix_ns = unix_ns;
  }
  if (Port* port = counts_out ? port_of(number, sample.out_port, unix_ns) : nullptr) {
    port->out_flow_bytes += bytes;
    if (sample.is_marked()) port->out_marked += packets;
    if (sample.key.queue_pair != kNoQueuePair && sample.roce_opcode == kRoceCnp) port->cnp += packets;
    port->queue_bytes = std::max(port->queue_bytes, sample.queue_bytes);
    port->transit_delay_ns = std::max(port->transit_delay_ns, sample.transit_delay_ns);
    port->seen_unix_ns = unix_ns;
  }
}

void PortSeries::estimate(int64_t now_unix_ns) {
  for (auto& [key, port] : ports_) {
    if (port.seen_unix_ns == 0 || now_unix_ns - port.seen_unix_ns > kQuietNs) continue;
    queue(key, PortMetric::kInFlowBytes, now_unix_ns, port.in_flow_bytes);
    queue(key, PortMetric::kOutFlowBytes, now_unix_ns, port.out_flow_bytes);
    queue(key, PortMetric::kInMarked, now_unix_ns, port.in_marked);
    queue(key, PortMetric::kOutMarked, now_unix_ns, port.out_marked);
    if (port.cnp > 0) queue(key, PortMetric::kOutCnp, now_unix_ns, port.cnp);
    if (port.dropped > 0) queue(key, PortMetric::kDropped, now_unix_ns, port.dropped);
    if (port.queue_bytes >= 0) queue(key, PortMetric::kQueueBytes, now_unix_ns, static_cast<double>(port.queue_bytes));
    if (port.transit_delay_ns >= 0)
      queue(key, PortMetric::kTransitDelay, now_unix_ns, static_cast<double>(port.transit_delay_ns) / 1e9);
    port.queue_bytes = std::min<int64_t>(port.queue_bytes, 0);
    port.transit_delay_ns = std::min<int64_t>(port.transit_delay_ns, 0);
  }
}

void PortSeries::write(int64_t now_unix_ns) {
  std::vector<Sample> samples;
  {
    MutexLock lock(mutex_);
    if (now_unix_ns - estimated_unix_ns_ >= kEstimateEveryNs || now_unix_ns < estimated_unix_ns_) {
      estimated_unix_ns_ = now_unix_ns;
      estimate(now_unix_ns);
    }
    samples.swap(pending_);
  }
  std::stable_sort(samples.begin(), samples.end(), [](const Sample& a, const Sample& b) {
    return std::tie(a.port, a.metric) < std::tie(b.port, b.metric);
  });
  for (size_t at = 0; at < samples.size();) {
    const SwitchNumber number = switch_number(samples[at].port);
    size_t end = at;
    while (end < samples.size() && switch_number(samples[end].port) == number) ++end;
    push_switch(number, std::span(samples).subspan(at, end - at));
    at = end;
  }
}

// A switch is a stream: its ports come in the same order again and again.
void PortSeries::push_switch(SwitchNumber number, std::span<const Sample> samples) {
  const std::string switch_name = directory_.switch_name(number);
  std::vector<int64_t> times_ms(samples.size());
  std::vector<double> values(samples.size());
  std::vector<std::string> raw;
  std::vector<std::pair<size_t, size_t>> ranges;  // of samples
  std::vector<std::string> ports;                 // by series
  std::string port;
  raw.reserve(samples.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    times_ms[i] = samples[i].time_ms;
    values[i] = samples[i].value;
    const bool is_new_port = i == 0 || samples[i].port != samples[i - 1].port;
    if (is_new_port) port = directory_.port_name(number, port_number(samples[i].port));
    if (!is_new_port && samples[i].metric == samples[i - 1].metric) {
      ++ranges.back().second;
      continue;
    }
    std::string labels = "F";
    labels.push_back(static_cast<char>('A' + static_cast<int>(samples[i].metric)));
    labels.append(switch_name).push_back('\0');
    labels.append(port);
    raw.push_back(std::move(labels));
    ports.push_back(port);
    ranges.emplace_back(i, 1);
  }
  std::vector<PushedSeries> series;
  series.reserve(ranges.size());
  for (size_t k = 0; k < ranges.size(); ++k) {
    const auto [first, count] = ranges[k];
    series.push_back(
        {raw[k], std::span(times_ms).subspan(first, count), std::span(values).subspan(first, count), {}, {}});
  }
  const Result<PushOutcome> done = push_("ports/" + switch_name, series, [&](size_t k) -> Result<Labels> {
    const PortMetricRow& row = kRows[static_cast<size_t>(samples[ranges[k].first].metric)];
    return canonical_labels(
        {{kMetricNameLabel, row.name}, {"switch", switch_name}, {"port", ports[k]}, {"direction", row.direction}});
  });
  if (!done.ok()) dropped_ += static_cast<int64_t>(samples.size());  // the line is the receiver's
}

size_t PortSeries::ports() const {
  MutexLock lock(mutex_);
  return ports_.size();
}

}  // namespace lockstep
