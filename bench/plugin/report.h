// The report: what every plugin's parts said, side by side, as Markdown; and whether ours kept its promises.
//
// Thread rule: Confined.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::plugin_bench {

inline constexpr const char* kOurs = "lockstep";
inline constexpr const char* kSpin = "spin";  // only under load: spin:NS with the mean of ours

struct Plugin {
  std::string name;
  std::string path;
  std::vector<std::pair<std::string, std::string>> environment;

  std::map<std::string, double> values;         // by the names that parts emit
  std::map<std::string, std::string> failures;  // part -> "crashed (signal 11)"

  bool ours() const { return name == kOurs; }
  bool spin() const { return name == kSpin; }
};

// Machine, compiler, date.
std::string machine_line();

std::string report(const std::vector<Plugin>& plugins);

// What ours may never do, in words; empty: nothing of it happened.
std::vector<std::string> broken_promises(const Plugin& ours);

}  // namespace lockstep::plugin_bench
