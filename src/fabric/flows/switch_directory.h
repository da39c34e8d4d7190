// Which switch an exporter is, and what its ports are called: the labels of port series and the names in the table of
// flows come from here.
//
// A switch is called by the name that --flow-switch gave its address, or its address and domain; else by its address as
// text. Domains of one address that have no name of their own are one switch: line cards share the numbers of ports. A
// port is called by the name that its switch reports, else by its number.
// Limits: kSwitchesMax switches, kPortsPerSwitchMax names of ports of one and kPortsMax of all of them; kNameBytesMax of a
//         name, which is one line of text. A switch that was not heard of for kForgetNs is forgotten, and its number is
//         never another's.
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "model/flow.h"

namespace lockstep {

using SwitchNumber = uint32_t;
inline constexpr SwitchNumber kNoSwitch = 0xffffffff;

// Names that were given: "10.0.0.1" or "10.0.0.1/7" (its domain 7) to a name.
using SwitchNames = std::map<std::string, std::string, std::less<>>;
// ADDRESS[/DOMAIN]=NAME each.
// On error: one line that names what is wrong.
Result<SwitchNames> parse_switch_names(const std::vector<std::string>& given);

class SwitchDirectory {
 public:
  static constexpr size_t kSwitchesMax = 16'384;
  static constexpr size_t kPortsMax = 1'000'000;
  static constexpr size_t kPortsPerSwitchMax = 8'192;
  static constexpr int64_t kForgetNs = 3'600'000'000'000;
  static constexpr size_t kNameBytesMax = 128;

  explicit SwitchDirectory(SwitchNames names = {}) : names_(std::move(names)) {}

  // kNoSwitch: there are too many.
  SwitchNumber find_or_add(const Exporter& exporter, int64_t now_unix_ns);
  void set_port_name(SwitchNumber number, uint32_t port, std::string_view name);

  // Now and then.
  void forget_silent(int64_t now_unix_ns);

  std::string switch_name(SwitchNumber number) const;
  SwitchNumber find(std::string_view switch_name) const;  // kNoSwitch: there is none
  // A number is written as such; "" where the port is not known, "many" and "dropped" as it says.
  std::string port_name(SwitchNumber number, uint32_t port) const;
  // By its name or its number.
  bool is_port_called(SwitchNumber number, uint32_t port, std::string_view name) const;

 private:
  struct Switch {
    std::string name;
    std::unordered_map<uint32_t, std::string> ports;
    int64_t heard_unix_ns = 0;
  };
  const std::string* given_name(SwitchNumber number, uint32_t port) const LOCKSTEP_REQUIRES(mutex_);

  const SwitchNames names_;
  mutable Mutex mutex_;
  std::unordered_map<Exporter, SwitchNumber, ExporterHash> exporters_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<std::string, SwitchNumber, std::less<>> by_name_ LOCKSTEP_GUARDED_BY(mutex_);
  std::unordered_map<SwitchNumber, Switch> switches_ LOCKSTEP_GUARDED_BY(mutex_);
  SwitchNumber next_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  size_t ports_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep
