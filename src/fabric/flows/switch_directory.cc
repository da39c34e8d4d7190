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

SwitchNumber SwitchDirectory::find_or_add(const Exporter& exporter) {
  MutexLock lock(mutex_);
  const auto known = exporters_.find(exporter);
  if (known != exporters_.end()) return known->second;
  if (exporters_.size() >= 4 * kSwitchesMax) return kNoSwitch;
  const std::string address = to_text(exporter.address);
  std::string name = address;
  if (const auto given = names_.find(format("%s/%u", address.c_str(), exporter.domain)); given != names_.end()) {
    name = given->second;
  } else if (const auto of_all = names_.find(address); of_all != names_.end()) {
    name = of_all->second;
  }
  const auto same = by_name_.find(name);
  if (same == by_name_.end() && switches_.size() >= kSwitchesMax) return kNoSwitch;
  const SwitchNumber number = same != by_name_.end() ? same->second : static_cast<SwitchNumber>(switches_.size());
  if (same == by_name_.end()) {
    switches_.push_back({name, {}});
    by_name_.emplace(name, number);
  }
  exporters_.emplace(exporter, number);
  return number;
}

void SwitchDirectory::set_port_name(SwitchNumber number, uint32_t port, std::string_view name) {
  if (!is_port(port) || !is_name(name)) return;
  MutexLock lock(mutex_);
  if (number >= switches_.size()) return;
  auto& ports = switches_[number].ports;
  const auto known = ports.find(port);
  if (known != ports.end()) {
    if (known->second == name) return;
    known->second = name;
  } else {
    if (ports_ >= kPortsMax) return;
    ++ports_;
    ports.emplace(port, name);
  }
}

std::string SwitchDirectory::switch_name(SwitchNumber number) const {
  MutexLock lock(mutex_);
  return number < switches_.size() ? switches_[number].name : std::string();
}

std::string SwitchDirectory::port_name(SwitchNumber number, uint32_t port) const {
  if (port == kPortUnknown) return "";
  if (port == kPortMany) return "many";
  if (port == kPortDropped) return "dropped";
  MutexLock lock(mutex_);
  if (number < switches_.size()) {
    const auto known = switches_[number].ports.find(port);
    if (known != switches_[number].ports.end()) return known->second;
  }
  return std::to_string(port);
}

}  // namespace lockstep
