#include "analysis/cost/own_overhead.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "base/text.h"
#include "model/series_labels.h"

namespace lockstep {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;
constexpr double kDaySeconds = 86'400;
constexpr int64_t kPointsWanted = 60;  // of a series: a longer window is read from coarser tiers
constexpr double kCoresLeast = 0.5;    // less is a clock that stands still

// What a counter did between its first and its last sample of the window.
struct Rise {
  double increase = 0;         // counted from zero where it fell
  double seconds = 0;          // first to last sample
  double steady_increase = 0;  // without the intervals in which it fell
  double steady_seconds = 0;
};

struct Window {
  int64_t from_ms, to_ms;
};

Rise rise_of(const SampleColumns& samples) {
  Rise rise;
  const int64_t* before_ms = nullptr;
  double before = 0;
  for (size_t i = 0; i < samples.times_ms.size(); ++i) {
    const double value = samples.values[i];
    if (!std::isfinite(value)) continue;  // stale markers too
    if (before_ms != nullptr) {
      const double seconds = static_cast<double>(samples.times_ms[i] - *before_ms) / 1000;
      const bool fell = value < before;
      rise.increase += fell ? value : value - before;
      rise.seconds += seconds;
      rise.steady_increase += fell ? 0 : value - before;
      rise.steady_seconds += fell ? 0 : seconds;
    }
    before_ms = &samples.times_ms[i];
    before = value;
  }
  return rise;
}

using Visit = std::function<void(const MetricSelection& from, size_t series, const SampleColumns& samples)>;

Result<void> each_series(const MetricReader& metrics, const char* name, const Window& window, const Visit& visit) {
  const LabelMatcher matcher = label_is(kMetricNameLabel, name);
  const std::unique_ptr<MetricSelection> found =
      LOCKSTEP_TRY(metrics.select({&matcher, 1}, {.from_ms = window.from_ms,
                                                  .to_ms = window.to_ms,
                                                  .spacing_ms = (window.to_ms - window.from_ms) / kPointsWanted}));
  SampleColumns samples;
  for (size_t i = 0; i < found->size(); ++i) {
    LOCKSTEP_TRY(found->samples(i, window.from_ms, window.to_ms, samples));
    if (!samples.times_ms.empty()) visit(*found, i, samples);
  }
  return {};
}

std::string_view label_of(const MetricSelection& from, size_t series, std::string_view name) {
  for (const LabelSymbols& label : from.labels(series)) {
    if (from.text(label.name) == name) return from.text(label.value);
  }
  return {};
}

// What comes of a host twice, pushed by its agent and scraped from it, say, counts once: the larger of them.
using BySource = std::map<std::string, double, std::less<>>;

double largest(const BySource& sources) {
  double most = kUnknownCost;
  for (const auto& [source, value] : sources) most = std::isfinite(most) ? std::max(most, value) : value;
  return most;
}

struct Host {
  bool reports_cpu = false;
  BySource cpu, cores, sent;  // a second; only of what has two samples
  double cpu_count = kUnknownCost, memory_bytes = kUnknownCost;
  std::set<std::string, std::less<>> gpus;

  double agent_cores() const { return largest(cpu); }
  double whole_cores() const {
    const double most = std::isfinite(cpu_count) ? cpu_count : largest(cores);
    return most >= kCoresLeast ? std::round(most) : kUnknownCost;
  }
  double sent_per_s() const { return largest(sent); }
};
using Hosts = std::map<std::string, Host, std::less<>>;

// A series of a host.
struct OfHost {
  Host& host;
  std::string source;
  std::string_view gpu_uuid;
  const SampleColumns& samples;
};

void add_rate(BySource& sources, const OfHost& series) {
  const Rise rise = rise_of(series.samples);
  if (rise.seconds > 0) sources[series.source] += rise.increase / rise.seconds;
}

Result<Hosts> read_hosts(const MetricReader& metrics, const Window& window) {
  Hosts hosts;
  const auto each = [&](const char* name, const std::function<void(const OfHost&)>& take) {
    return each_series(metrics, name, window,
                       [&](const MetricSelection& from, size_t series, const SampleColumns& samples) {
                         const std::string_view host = label_of(from, series, "host");
                         if (host.empty()) return;
                         take({hosts[std::string(host)], std::string(label_of(from, series, "job")),
                               label_of(from, series, "gpu_uuid"), samples});
                       });
  };
  LOCKSTEP_TRY(each("lockstep_agent_cpu_seconds_total", [](const OfHost& series) {
    series.host.reports_cpu = true;
    add_rate(series.host.cpu, series);
  }));
  LOCKSTEP_TRY(each("system_cpu_logical_count", [](const OfHost& series) {
    if (std::isfinite(series.samples.values.back())) series.host.cpu_count = series.samples.values.back();
  }));
  const bool all_counted = std::all_of(hosts.begin(), hosts.end(), [](const auto& entry) {
    return !entry.second.reports_cpu || std::isfinite(entry.second.cpu_count);
  });
  if (!all_counted) {
    LOCKSTEP_TRY(each("system_cpu_time_seconds_total", [](const OfHost& series) {
      const Rise rise = rise_of(series.samples);
      if (rise.steady_seconds > 0) series.host.cores[series.source] += rise.steady_increase / rise.steady_seconds;
    }));
  }
  LOCKSTEP_TRY(
      each("lockstep_agent_sent_bytes_total", [](const OfHost& series) { add_rate(series.host.sent, series); }));
  LOCKSTEP_TRY(each("lockstep_agent_memory_bytes", [](const OfHost& series) {
    if (std::isfinite(series.samples.values.back())) series.host.memory_bytes = series.samples.values.back();
  }));
  LOCKSTEP_TRY(each("lockstep_gpu_info", [](const OfHost& series) {
    if (!series.gpu_uuid.empty()) series.host.gpus.emplace(series.gpu_uuid);
  }));
  return hosts;
}

void add(double& sum, double value) {
  if (std::isfinite(value)) sum = std::isfinite(sum) ? sum + value : value;
}

AgentOverhead agents_of(const Hosts& hosts) {
  AgentOverhead agents;
  double sent_with_gpus = 0;
  for (const auto& [name, host] : hosts) {
    if (!host.reports_cpu) continue;
    ++agents.hosts;
    const double cores = host.agent_cores(), of = host.whole_cores();
    add(agents.cpu_cores, cores);
    add(agents.memory_bytes, host.memory_bytes);
    add(agents.sent_bytes_per_s, host.sent_per_s());
    if (std::isfinite(host.sent_per_s()) && !host.gpus.empty()) {
      agents.gpus += host.gpus.size();
      sent_with_gpus += host.sent_per_s();
    }
    if (!std::isfinite(cores) || !std::isfinite(of)) continue;
    ++agents.share_hosts;
    agents.share_cpu_cores += cores;
    agents.share_of_cores += of;
    if (!agents.worst_host.empty() && cores / of <= agents.worst_share) continue;
    agents.worst_host = name;
    agents.worst_cpu_cores = cores;
    agents.worst_share = cores / of;
  }
  if (agents.share_hosts > 0) agents.cpu_share = agents.share_cpu_cores / agents.share_of_cores;
  if (agents.gpus > 0) agents.sent_bytes_per_s_per_gpu = sent_with_gpus / static_cast<double>(agents.gpus);
  return agents;
}

struct Server {
  Rise cpu;
  bool reports = false;
  double memory_bytes = kUnknownCost;
  double disk_bytes = kUnknownCost;
  double disk_growth = 0, disk_seconds = 0;
};

Result<Server> read_server(const MetricReader& metrics, const Window& window) {
  Server server;
  const auto each = [&](const char* name, const std::function<void(const SampleColumns&)>& take) {
    return each_series(metrics, name, window,
                       [&](const MetricSelection&, size_t, const SampleColumns& samples) { take(samples); });
  };
  LOCKSTEP_TRY(each("lockstep_server_cpu_seconds_total", [&](const SampleColumns& samples) {
    server.reports = true;
    server.cpu = rise_of(samples);
  }));
  LOCKSTEP_TRY(each("lockstep_server_memory_bytes",
                    [&](const SampleColumns& samples) { add(server.memory_bytes, samples.values.back()); }));
  LOCKSTEP_TRY(each("lockstep_server_disk_bytes", [&](const SampleColumns& samples) {
    add(server.disk_bytes, samples.values.back());
    server.disk_growth += samples.values.back() - samples.values.front();
    server.disk_seconds =
        std::max(server.disk_seconds, static_cast<double>(samples.times_ms.back() - samples.times_ms.front()) / 1000);
  }));
  return server;
}

ServerOverhead server_of(const Server& read, size_t gpus) {
  ServerOverhead server;
  if (read.cpu.seconds > 0) server.cpu_cores = read.cpu.increase / read.cpu.seconds;
  server.memory_bytes = read.memory_bytes;
  server.disk_bytes = read.disk_bytes;
  if (gpus == 0) return server;
  server.disk_bytes_per_gpu = read.disk_bytes / static_cast<double>(gpus);
  // Files are joined and written out in turns of hours: over less than a day the sum says when, not how much.
  if (read.disk_seconds >= 0.98 * kDaySeconds)
    server.disk_bytes_per_gpu_day = read.disk_growth / static_cast<double>(gpus) / (read.disk_seconds / kDaySeconds);
  return server;
}

// Which hosts are without something, and the row that says so.
struct Missing {
  size_t hosts = 0;
  std::string example;
  void note(const std::string& host) {
    if (hosts++ == 0) example = host;
  }
  void put(std::vector<UnknownCost>& rows, const char* what, const char* why) const {
    if (hosts == 0) return;
    const std::string who =
        hosts == 1 ? example
                   : format("%s hosts (%s, ...)", with_thousands(static_cast<int64_t>(hosts)).c_str(), example.c_str());
    rows.push_back({what, hosts, example, who + ": " + why});
  }
};

std::vector<UnknownCost> unknown_of(const Hosts& hosts, std::span<const std::string> heard) {
  Missing silent, once, cores, bytes, gpus;
  for (const std::string& name : heard) {
    const auto known = hosts.find(name);
    if (known == hosts.end() || !known->second.reports_cpu) silent.note(name);
  }
  for (const auto& [name, host] : hosts) {
    if (!host.reports_cpu) continue;
    if (!std::isfinite(host.agent_cores())) once.note(name);
    if (!std::isfinite(host.whole_cores())) cores.note(name);
    if (!std::isfinite(host.sent_per_s())) bytes.note(name);
    if (host.gpus.empty()) gpus.note(name);
  }
  std::vector<UnknownCost> rows;
  silent.put(rows, "agent", "heard, without a report of what the agent takes (no lockstep_agent_cpu_seconds_total)");
  once.put(rows, "agent_cpu", "processor time of the agent unknown, it was reported only once within the window");
  cores.put(rows, "cores",
            "number of cores unknown, so it is in no share (system.cpu.logical.count, or two samples of "
            "system.cpu.time, are needed)");
  bytes.put(
      rows, "sent_bytes",
      "bytes sent unknown (two samples of lockstep_agent_sent_bytes_total are needed; older agents do not send it)");
  gpus.put(rows, "gpus", "number of GPUs unknown (no lockstep_gpu_info)");
  return rows;
}

void add_unknown_of_server(const Server& read, const ServerOverhead& server, size_t gpus,
                           std::vector<UnknownCost>& rows) {
  if (!read.reports) {
    rows.push_back(
        {"server", 0, "", "the server: it wrote nothing of itself within the window, or it is the operator's to know"});
    return;
  }
  if (!std::isfinite(server.cpu_cores))
    rows.push_back({"server_cpu", 0, "", "processor time of the server: one sample of it within the window"});
  if (!std::isfinite(server.disk_bytes))
    rows.push_back({"server_disk", 0, "", "disk of the server: not measured within the window"});
  if (gpus == 0) {
    rows.push_back({"server_disk_per_gpu", 0, "", "disk per GPU: no GPU is reported within the window"});
  } else if (!std::isfinite(server.disk_bytes_per_gpu_day)) {
    rows.push_back(
        {"server_disk_per_gpu_day", 0, "", "disk per GPU and day: known over a day of the server's reports or longer"});
  }
}

// Two digits that count: "0.31", "12", "0.0042".
std::string cores_text(double cores) {
  return cores >= 99.5 ? with_thousands(std::llround(cores)) : format("%.2g", cores);
}
std::string share_text(double share) {
  return format("%.2g %%", 100 * share);
}

std::string agents_text(const AgentOverhead& agents) {
  if (agents.hosts == 0) return "No agent has reported what it takes.";
  const auto hosts = [](size_t count) {
    return with_thousands(static_cast<int64_t>(count)) + (count == 1 ? " host" : " hosts");
  };
  std::string text;
  if (agents.share_hosts > 0) {
    text = "Agents take " + cores_text(agents.share_cpu_cores) + " of " +
           with_thousands(std::llround(agents.share_of_cores)) + " cores on " + hosts(agents.share_hosts) + " (" +
           share_text(agents.cpu_share) + ")";
    if (agents.share_hosts > 1) text += ", most on " + agents.worst_host + " (" + share_text(agents.worst_share) + ")";
  } else if (std::isfinite(agents.cpu_cores)) {
    text =
        "Agents take " + cores_text(agents.cpu_cores) + " cores on " + hosts(agents.hosts) + ", of an unknown number";
  } else {
    text = "What agents take on " + hosts(agents.hosts) + " is not known yet";
  }
  if (std::isfinite(agents.sent_bytes_per_s)) text += "; they send " + human_bytes(agents.sent_bytes_per_s) + "/s";
  if (std::isfinite(agents.sent_bytes_per_s_per_gpu))
    text += ", " + human_bytes(agents.sent_bytes_per_s_per_gpu) + "/s a GPU";
  return text + ".";
}

std::string server_text(const ServerOverhead& server) {
  std::vector<std::string> parts;
  if (std::isfinite(server.cpu_cores)) parts.push_back(cores_text(server.cpu_cores) + " cores");
  if (std::isfinite(server.memory_bytes)) parts.push_back(human_bytes(server.memory_bytes) + " of memory");
  if (std::isfinite(server.disk_bytes)) parts.push_back(human_bytes(server.disk_bytes) + " of disk");
  if (parts.empty()) return "What the server takes is not known.";
  std::string text = "The server takes ";
  for (size_t i = 0; i < parts.size(); ++i) text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  if (std::isfinite(server.disk_bytes_per_gpu_day))
    text += (server.disk_bytes_per_gpu_day < 0 ? ", falling by " : ", growing by ") +
            human_bytes(std::fabs(server.disk_bytes_per_gpu_day)) + " a GPU and day";
  return text + ".";
}

}  // namespace

Result<Overhead> overhead_of(const MetricReader& metrics, std::span<const std::string> heard_hosts,
                             int64_t from_unix_ns, int64_t to_unix_ns) {
  const Window window{from_unix_ns / kNsPerMs, to_unix_ns / kNsPerMs};
  const Hosts hosts = LOCKSTEP_TRY(read_hosts(metrics, window));
  const Server server = LOCKSTEP_TRY(read_server(metrics, window));
  size_t gpus = 0;
  for (const auto& [name, host] : hosts) gpus += host.gpus.size();
  Overhead overhead{.from_unix_ns = from_unix_ns, .to_unix_ns = to_unix_ns};
  overhead.agents = agents_of(hosts);
  overhead.server = server_of(server, gpus);
  overhead.unknown = unknown_of(hosts, heard_hosts);
  add_unknown_of_server(server, overhead.server, gpus, overhead.unknown);
  overhead.sentence = agents_text(overhead.agents) + " " + server_text(overhead.server);
  return overhead;
}

}  // namespace lockstep
