#include "bench/plugin/report.h"

#include <sys/utsname.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <functional>
#include <optional>
#include <set>
#include <thread>

#include "base/text.h"
#include "base/utc_time.h"
#include "bench/plugin/calls.h"
#include "bench/plugin/parts.h"

namespace lockstep::plugin_bench {
namespace {

constexpr double kBudgetNs = 50;
constexpr double kBudgetKb = 1024;

std::optional<double> value(const Plugin& plugin, const std::string& name) {
  const auto found = plugin.values.find(name);
  return found == plugin.values.end() ? std::nullopt : std::optional(found->second);
}

// Times from nanoseconds to seconds in one column: three digits, unit where it is not ns.
std::string short_ns(double ns) {
  if (ns < 100) return format("%.1f", ns);
  if (ns < 10'000) return format("%.0f", ns);
  if (ns < 1e6) return format("%.3g us", ns / 1e3);
  if (ns < 1e9) return format("%.3g ms", ns / 1e6);
  return format("%.3g s", ns / 1e9);
}

class Table {
 public:
  Table(const std::vector<Plugin>& plugins, const std::string& corner) : plugins_(plugins) {
    text_ = "| " + corner + " |";
    std::string rule = "|---|";
    for (const Plugin& plugin : plugins) {
      text_ += " " + plugin.name + " |";
      rule += "---|";
    }
    text_ += "\n" + rule + "\n";
  }
  using Cell = std::function<std::string(const Plugin&)>;
  // part: whose failure is shown where it failed; an empty cell means that there is nothing to say.
  void row(const std::string& name, const std::string& part, const Cell& cell) {
    text_ += "| " + name + " |";
    for (const Plugin& plugin : plugins_) {
      const auto failure = plugin.failures.find(part);
      const std::string inside = failure != plugin.failures.end() ? failure->second : cell(plugin);
      text_ += " " + (inside.empty() ? "-" : inside) + " |";
    }
    text_ += "\n";
  }
  void numbers(const std::string& row_name, const std::string& part, const std::string& name, const char* pattern,
               double divisor = 1) {
    row(row_name, part, [&](const Plugin& plugin) {
      const auto found = value(plugin, name);
      char text[64] = "";
      if (found) snprintf(text, sizeof text, pattern, *found / divisor);
      return std::string(text);
    });
  }
  std::string text() const { return text_ + "\n"; }

 private:
  const std::vector<Plugin>& plugins_;
  std::string text_;
};

std::string times(const Plugin& plugin, const std::string& name, std::initializer_list<const char*> which) {
  std::string text;
  for (const char* one : which) {
    const auto found = value(plugin, name + "/" + one);
    if (!found) return "";
    text += (text.empty() ? "" : " / ") + short_ns(*found);
  }
  return value(plugin, name + "/declined") ? text + " ·" : text;
}

std::string plugins_text(const std::vector<Plugin>& plugins) {
  std::string text = "Plugins:\n\n";
  for (const Plugin& plugin : plugins) {
    const auto version = value(plugin, "interface");
    text += "- " + plugin.name;
    if (version) {
      text += format(": interface v%d, events sent 0x%x", static_cast<int>(*version),
                     static_cast<unsigned>(value(plugin, "mask").value_or(0)));
    }
    for (const auto& [key, setting] : plugin.environment) {
      // Where its files go says nothing about its cost.
      if (setting.find('/') == std::string::npos) text += ", " + key + "=" + setting;
    }
    text += "\n";
  }
  return text + "\n";
}

std::string calls_text(const std::vector<Plugin>& plugins) {
  std::string text =
      "## One call\n\nns, p50 / p99 / worst; one thread, 4 communicators in turn, flat out, the timer's own cost "
      "subtracted. `-`: not sent to this plugin; `·`: answered with NULL. The worst ones are mostly the machine's.\n\n";
  Table table(plugins, "call");
  for (size_t i = 0; i + 1 < kCallRows; ++i) {
    const std::string name = std::string("calls/") + kCallRowNames[i];
    table.row(kCallRowNames[i], "calls", [&](const Plugin& plugin) {
      return times(plugin, name, {"p50", "p99", "worst"});
    });
  }
  return text + table.text();
}

std::string batched_text(const std::vector<Plugin>& plugins) {
  std::string text;
  for (const Plugin& plugin : plugins) {
    if (!plugin.ours()) continue;
    text +=
        "## One call of " + plugin.name +
        ", in batches\n\nA timer around one call costs as much as the call; around 16 to 256 of a kind it does not. "
        "Median per call, the same loop into the null plugin subtracted. Budget: p50 <= 50 ns.\n\n"
        "| call | alone p50 | batched p50 | budget |\n|---|---|---|---|\n";
    for (size_t i = 0; i + 1 < kCallRows; ++i) {
      const std::string row = kCallRowNames[i];
      const auto batched = value(plugin, "batched/" + row + "/p50");
      const auto alone = value(plugin, "calls/" + row + "/p50");
      if (!batched) continue;
      text += "| " + row + " | " + (alone ? short_ns(*alone) : "-") + " | " + short_ns(*batched) + " | " +
              (*batched <= kBudgetNs ? "met" : "missed") + " |\n";
    }
    const auto failure = plugin.failures.find("batched");
    if (failure != plugin.failures.end()) text += "| " + failure->second + " | | | |\n";
    text += "\n";
  }
  return text;
}

std::string process_text(const std::vector<Plugin>& plugins) {
  Table table(plugins, "");
  table.numbers("us per 16-channel NVLink collective, p50", "calls", "nvlink/p50", "%.2f", 1e3);
  table.numbers("calls in it", "calls", "nvlink/calls", "%.0f");
  table.numbers("us per 4-channel x 8-step network collective, p50", "calls", "network/p50", "%.2f", 1e3);
  table.numbers("calls in it", "calls", "network/calls", "%.0f");
  table.numbers("allocations per NVLink collective, calling thread", "calls", "nvlink/allocations", "%.2f");
  table.numbers("allocations per network collective", "calls", "network/allocations", "%.2f");
  table.numbers("allocations in the first 200 collectives", "calls", "calls/allocations_warm_up", "%.0f");
  table.numbers("init of the first communicator, us", "memory", "memory/init_first_ns", "%.0f", 1e3);
  table.numbers("init of each further one, us, p50", "memory", "memory/init_ns", "%.1f", 1e3);
  table.numbers("communicators for the next rows", "memory", "memory/communicators", "%.0f");
  table.numbers("RSS of the process for the first, kB", "memory", "memory/first_kb", "%.0f");
  table.numbers("RSS for each further one, kB", "memory", "memory/further_kb", "%.0f");
  table.numbers("RSS after init over communicators, kB", "memory", "memory/init_kb", "%.0f");
  table.numbers("RSS after the run over communicators, kB", "memory", "memory/run_kb", "%.0f");
  table.numbers("CPU of the idle process, % of a core", "calls", "idle_cpu_percent", "%.1f");
  return "## Collectives, memory, background\n\n" + table.text();
}

std::string recordings_text(const std::vector<Plugin>& plugins) {
  std::set<std::string> parts;
  for (const Plugin& plugin : plugins) {
    for (const auto& [name, number] : plugin.values) {
      if (name.starts_with("recording:")) parts.insert(name.substr(0, name.find('/')));
    }
    for (const auto& [part, how] : plugin.failures) {
      if (part.starts_with("recording:")) parts.insert(part);
    }
  }
  if (parts.empty()) return "";
  Table table(plugins, "recording");
  for (const std::string& part : parts) {
    table.row(part.substr(10), part, [&](const Plugin& plugin) {
      const std::string numbers = times(plugin, part + "/all", {"p50", "p99"});
      if (numbers.empty()) return numbers;
      const double declined = value(plugin, part + "/declined_percent").value_or(0);
      return with_thousands(static_cast<int64_t>(*value(plugin, part + "/all/count"))) + ": " + numbers +
             (declined > 0 ? format(" (%.0f %% of Coll starts answered with NULL)", declined) : "");
    });
  }
  return "## Recorded calls of NCCL\n\nOne rank of each, in the recorded order, as fast as possible, second time "
         "through; the API, group and launch events that recordings leave out are put back around each operation. "
         "Calls sent: ns p50 / p99.\n\n" +
         table.text();
}

std::string threads_text(const std::vector<Plugin>& plugins) {
  Table table(plugins, "ns per call, p50 / p99 / p99.9");
  for (const int communicators : {1, 2, 4}) {
    const std::string part = "threads" + std::to_string(communicators);
    const std::string of = format("%d communicator%s, ", communicators, communicators == 1 ? "" : "s");
    for (const auto& [what, key] :
         {std::pair("enqueueing threads", "/enqueue"), std::pair("proxy threads", "/proxy")}) {
      table.row(of + what, part, [&](const Plugin& plugin) {
        return times(plugin, part + key, {"p50", "p99", "p999"});
      });
    }
    table.numbers(of + "allocations per collective", part, part + "/allocations", "%.2f");
    table.numbers(of + "Coll starts answered with NULL, %", part, part + "/declined_percent", "%.1f");
  }
  std::string text =
      "## Threads\n\nOne enqueueing and one proxy thread per communicator, NVLink and network collectives in "
      "turn.\n\n" +
      table.text();
  Table kinds(plugins, "4 communicators, ns, p50 / p99");
  for (size_t i = 0; i + 1 < kCallRows; ++i) {
    if (i == static_cast<size_t>(CallRow::kProxyStepRepeat)) continue;
    const std::string name = std::string("threads4/") + kCallRowNames[i];
    kinds.row(kCallRowNames[i], "threads4", [&](const Plugin& plugin) { return times(plugin, name, {"p50", "p99"}); });
  }
  return text + kinds.text();
}

std::string comms_text(const std::vector<Plugin>& plugins) {
  Table table(plugins, "ns per call, p50 / p99");
  for (const CallRow row :
       {CallRow::kGroupApiStart, CallRow::kCollApiStart, CallRow::kCollApiStop, CallRow::kCollStart, CallRow::kCollStop,
        CallRow::kProxyOpStart, CallRow::kKernelChStart, CallRow::kKernelChStop}) {
    const std::string name = kCallRowNames[static_cast<size_t>(row)];
    for (const int count : kCommunicatorCounts) {
      const std::string part = "comms" + std::to_string(count);
      table.row(format("%s, %d communicators", name.c_str(), count), part, [&](const Plugin& plugin) {
        return times(plugin, part + "/" + name, {"p50", "p99"});
      });
    }
  }
  return "## By number of communicators\n\nNVLink and network collectives, one communicator after the other, one "
         "thread: "
         "a communicator comes back only after all others have had their turn.\n\n" +
         table.text();
}

std::string load_text(const std::vector<Plugin>& plugins) {
  Table table(plugins, "");
  for (const auto& [part, title] : {std::pair("paced", "500/s"), std::pair("flat", "flat out")}) {
    const std::string name = part, of = std::string(title) + ", ";
    table.row(of + "calls", name, [&](const Plugin& plugin) {
      const auto count = value(plugin, name + "/all/count");
      return count ? with_thousands(static_cast<int64_t>(*count)) : "";
    });
    table.numbers(of + "mean of the calls below 20 us, ns", name, name + "/usual_mean", "%.0f");
    table.row(of + "p50 / p99 / p99.9 / worst, ns", name, [&](const Plugin& plugin) {
      return times(plugin, name + "/all", {"p50", "p99", "p999", "worst"});
    });
    table.numbers(of + "calls above 20 us", name, name + "/slow", "%.0f");
    table.numbers(of + "of these, while the thread was not preempted", name, name + "/slow_undisturbed", "%.0f");
    table.numbers(of + "page faults", name, name + "/page_faults", "%.0f");
    table.numbers(of + "allocations per collective", name, name + "/allocations", "%.2f");
    table.numbers(of + "Coll starts answered with NULL, %", name, name + "/declined_percent", "%.1f");
    table.numbers(of + "agent's CPU, % of a core", name, name + "/agent_cpu_percent", "%.1f");
    table.numbers(of + "records the agent read", name, name + "/agent_read", "%.0f");
    table.numbers(of + "records overwritten before it read them", name, name + "/agent_lost", "%.0f");
  }
  return "## Under load\n\nNVLink and network collectives in turn, 4 communicators, one thread. Beside ours runs "
         "lockstep-agent and reads what it records; beside null and spin it finds nothing to read. spin burns that "
         "mean of ours in every call and touches no memory: what happens to it is the machine's doing.\n\n" +
         table.text();
}

std::string failures_text(const std::vector<Plugin>& plugins) {
  std::string text;
  for (const Plugin& plugin : plugins) {
    for (const auto& [part, how] : plugin.failures) text += "- " + plugin.name + ", " + part + ": " + how + "\n";
  }
  return text.empty() ? "" : "## What did not run to its end\n\n" + text + "\n";
}

std::string budgets_text(const Plugin& ours) {
  std::string text = "## Budgets of " + ours.name + "\n\n";
  int met = 0;
  std::string missed;
  for (size_t i = 0; i + 1 < kCallRows; ++i) {
    const std::string row = kCallRowNames[i];
    const auto batched = value(ours, "batched/" + row + "/p50");
    if (!batched) continue;
    if (*batched <= kBudgetNs) {
      met += 1;
    } else {
      missed += (missed.empty() ? "" : ", ") + row + " " + short_ns(*batched);
    }
  }
  text += format("- p50 <= 50 ns per call (batched): %s (%d kinds of calls met%s%s)\n",
                 missed.empty() ? "met" : "missed", met, missed.empty() ? "" : "; missed: ", missed.c_str());
  for (const char* part : {"paced", "flat"}) {
    const auto worst = value(ours, std::string(part) + "/all/worst");
    if (!worst) continue;
    text +=
        format("- worst call < 20 us, %s, agent reading: %s (%s; %.0f above 20 us, %.0f of them without preemption)\n",
               part, *worst < kSlowNs ? "met" : "missed", short_ns(*worst).c_str(),
               value(ours, std::string(part) + "/slow").value_or(0),
               value(ours, std::string(part) + "/slow_undisturbed").value_or(0));
  }
  const std::vector<std::string> broken = broken_promises(ours);
  text += "- no allocation on a callback, nothing refused, every collective complete, 1 MB per communicator: ";
  text += broken.empty() ? "kept\n" : "BROKEN\n";
  for (const std::string& line : broken) text += "  - " + line + "\n";
  return text + "\n";
}

std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("model name")) return std::string(trim(line.substr(line.find(':') + 1)));
  }
  return "unknown CPU";  // arm64 does not say
}

}  // namespace

std::string machine_line() {
  utsname system{};
  uname(&system);
  const std::string date = utc_time(static_cast<int64_t>(time(nullptr)) * 1000, "%Y-%m-%d %H:%M UTC");
  return format("%s, %u cores, %s %s %s, compiler %s, %s", processor_name().c_str(),
                std::thread::hardware_concurrency(), system.sysname, system.release, system.machine, __VERSION__,
                date.c_str());
}

std::vector<std::string> broken_promises(const Plugin& ours) {
  std::vector<std::string> broken;
  for (const auto& [part, how] : ours.failures) broken.push_back(part + ": " + how);
  for (const auto& [name, number] : ours.values) {
    const auto is = [&name = name](const char* end) { return name.ends_with(end); };
    if (is("/allocations") && number > 0) broken.push_back(format("%s: %.3f", name.c_str(), number));
    if (name.find("check/refused") != std::string::npos && number > 0) {
      broken.push_back(format("%s: %.0f", name.c_str(), number));
    }
    if (is("check/incomplete") && number > 0) broken.push_back(format("%s: %.0f collectives", name.c_str(), number));
    if ((is("check/files") || is("check/enqueued")) && number == 0) broken.push_back(name + ": nothing was recorded");
    if (is("/agent_read") && number == 0) broken.push_back(name + ": the agent read nothing");
    if ((is("memory/init_kb") || is("memory/run_kb")) && number > kBudgetKb) {
      broken.push_back(format("%s: %.0f per communicator, limit %.0f", name.c_str(), number, kBudgetKb));
    }
  }
  return broken;
}

std::string report(const std::vector<Plugin>& plugins) {
  std::vector<Plugin> measured;
  for (const Plugin& plugin : plugins) {
    if (!plugin.spin()) measured.push_back(plugin);
  }
  std::string text = "# NCCL profiler plugins, side by side\n\n" + machine_line() + "\n\n" + plugins_text(measured) +
                     calls_text(measured) + batched_text(measured) + process_text(measured) +
                     recordings_text(measured) + comms_text(measured) + threads_text(measured) + load_text(plugins) +
                     failures_text(plugins);
  for (const Plugin& plugin : plugins) {
    if (plugin.ours()) text += budgets_text(plugin);
  }
  return text;
}

}  // namespace lockstep::plugin_bench
