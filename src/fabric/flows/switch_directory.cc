#include "fabric/flows/switch_directory.h"

#include "base/text.h"

namespace lockstep {
namespace {

// What a switch says may hold anything: a label is one line of text.
bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= SwitchDirectory::kNameBytesMax && !has_control_characters(name) &&
         is_utf8(name);
}

}  // namespace

Result<SwitchNames> parse_switch_names(const std::vector<std::string>& given) {
  SwitchNames names;
  for (const std::string& text : given) {
    const size_t equals = text.find('=');
    const std::string key = text.substr(0, equals);
    const size_t slash = key.find('/');
    const std::optional<IpAddress> address = parse_ip(key.substr(0, slash));
    const std::optional<uint64_t> domain =
        slash == std::string::npos ? std::optional<uint64_t>(0) : parse_uint(key.substr(slash + 1));
    if (equals == std::string::npos || !address || !domain || *domain > UINT32_MAX || !is_name(text.substr(equals + 1)))
      return Error{format("\"%s\" is not ADDRESS=NAME or ADDRESS/DOMAIN=NAME", as_one_line(text).c_str())};
    names[slash == std::string::npos ? to_text(*address)
                                     : format("%s/%u", to_text(*address).c_str(), static_cast<uint32_t>(*domain))] =
        text.substr(equals + 1);
  }
  return names;
}

SwitchNumber SwitchDirectory::find_or_add(const Exporter& exporter, int64_t now_unix_ns) {
  MutexLock lock(mutex_);
  const auto known = exporters_.find(exporter);
  if (known != exporters_.end()) {
    switches_.at(known->second).heard_unix_ns = now_unix_ns;
    return known->second;
  }
  if (exporters_.size() >= 4 * kSwitchesMax) return kNoSwitch;
  const std::string address = to_text(exporter.address);
  std::string name = address;
  if (const auto given = names_.find(format("%s/%u", address.c_str(), exporter.domain)); given != names_.end()) {
    name = given->second;
  } else if (const auto of_all = names_.find(address); of_all != names_.end()) {
    name = of_all->second;
  }
  const auto same = by_name_.find(name);
  if (same == by_name_.end() && (switches_.size() >= kSwitchesMax || next_ == kNoSwitch)) return kNoSwitch;
  const SwitchNumber number = same != by_name_.end() ? same->second : next_++;
  if (same == by_name_.end()) by_name_.emplace(name, number);
  Switch& one = switches_[number];
  one.name = std::move(name);
  one.heard_unix_ns = now_unix_ns;
  exporters_.emplace(exporter, number);
  return number;
}

void SwitchDirectory::forget_silent(int64_t now_unix_ns) {
  MutexLock lock(mutex_);
  const size_t before = switches_.size();
  std::erase_if(switches_, [&](const auto& entry) LOCKSTEP_REQUIRES(mutex_) {
    const auto& [number, one] = entry;
    if (now_unix_ns - one.heard_unix_ns <= kForgetNs) return false;
    ports_ -= one.ports.size();
    by_name_.erase(one.name);
    return true;
  });
  if (switches_.size() == before) return;
  std::erase_if(exporters_,
                [&](const auto& entry) LOCKSTEP_REQUIRES(mutex_) { return !switches_.contains(entry.second); });
}

void SwitchDirectory::set_port_name(SwitchNumber number, uint32_t port, std::string_view name) {
  if (!is_port(port) || !is_name(name)) return;
  MutexLock lock(mutex_);
  const auto found = switches_.find(number);
  if (found == switches_.end()) return;
  auto& ports = found->second.ports;
  const auto known = ports.find(port);
  if (known != ports.end()) {
    if (known->second == name) return;
    known->second = name;
  } else {
    if (ports_ >= kPortsMax || ports.size() >= kPortsPerSwitchMax) return;
    ++ports_;
    ports.emplace(port, name);
  }
}

std::string SwitchDirectory::switch_name(SwitchNumber number) const {
  MutexLock lock(mutex_);
  const auto found = switches_.find(number);
  return found != switches_.end() ? found->second.name : std::string();
}

SwitchNumber SwitchDirectory::find(std::string_view switch_name) const {
  MutexLock lock(mutex_);
  const auto found = by_name_.find(switch_name);
  return found != by_name_.end() ? found->second : kNoSwitch;
}

const std::string* SwitchDirectory::given_name(SwitchNumber number, uint32_t port) const {
  const auto found = switches_.find(number);
  if (found == switches_.end()) return nullptr;
  const auto known = found->second.ports.find(port);
  return known != found->second.ports.end() ? &known->second : nullptr;
}

std::string SwitchDirectory::port_name(SwitchNumber number, uint32_t port) const {
  if (port == kPortUnknown) return "";
  if (port == kPortMany) return "many";
  if (port == kPortDropped) return "dropped";
  MutexLock lock(mutex_);
  const std::string* const given = given_name(number, port);
  return given != nullptr ? *given : std::to_string(port);
}

bool SwitchDirectory::is_port_called(SwitchNumber number, uint32_t port, std::string_view name) const {
  if (port == kPortUnknown) return false;
  if (!is_port(port)) return port_name(number, port) == name;
  if (parse_uint(name) == port) return true;
  MutexLock lock(mutex_);
  const std::string* const given = given_name(number, port);
  return given != nullptr && *given == name;
}

}  // namespace lockstep
