#include "sources/kernel/kernel_lines.h"

#include "base/characters.h"
#include "sources/kernel/line_words.h"

namespace lockstep {
namespace {

constexpr int64_t kPidMost = 1 << 22;

KernelLine line_of(std::string_view name, EventSeverity severity, const char* meaning, const char* action) {
  KernelLine line;
  line.name = name;
  line.severity = severity;
  line.meaning = meaning;
  line.action = action;
  return line;
}

// "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
std::optional<KernelLine> parse_sxid(std::string_view text) {
  std::optional<std::string_view> rest = behind(text, ": SXid (");
  if (!rest) return std::nullopt;
  skip(*rest, "PCI:");
  const std::string_view device = take_until(*rest, ")");
  if (!skip(*rest, "): ")) return std::nullopt;
  const std::optional<int64_t> code = take_number(*rest, 10'000'000);
  if (!code || !skip(*rest, ", ")) return std::nullopt;
  // Two more lines with the same number follow, for the vendor only.
  if (rest->starts_with("Severity ") || rest->starts_with("Data ")) return std::nullopt;
  const bool fatal = rest->starts_with("Fatal");
  KernelLine line = fatal ? line_of("nvswitch.sxid", EventSeverity::kCritical, "NVSwitch error, fatal",
                                    "drain the node; reset its GPUs and NVSwitches together, or reboot")
                          : line_of("nvswitch.sxid", EventSeverity::kWarn, "NVSwitch error, not fatal",
                                    "watch it; if it comes again on one link, look at that link and its GPU");
  line.device = device;
  line.code = *code;
  if (std::optional<std::string_view> link = behind(*rest, "Link ")) {
    if (std::optional<int64_t> number = take_number(*link, 1000)) line.sub_code = *number;
  }
  line.alike_by_text = false;
  return line;
}

// "pcieport 0000:00:1c.0: AER: Corrected error received: 0000:01:00.0", then
// "nvidia 0000:01:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)"
std::optional<KernelLine> parse_aer(std::string_view text) {
  std::string_view rest = text;
  take_word(rest);
  std::string_view device = without_end(take_word(rest), ':');
  std::string_view how;
  bool announces = false;
  if (std::optional<std::string_view> severity = behind(rest, "PCIe Bus Error: severity=")) {
    how = take_until(*severity, ",");
  } else if (contains(rest, "DPC: containment event")) {
    how = "(Fatal)";
  } else if (contains(rest, "AER: device recovery failed")) {
    how = "failed";
  } else if (contains(rest, "error received") || contains(rest, "error message received")) {
    announces = true;
    how = rest.substr(0, rest.find("error "));
    const std::string_view who = last_word(rest.substr(0, rest.find(" (no details")));
    if (!pci_address(who).empty()) device = who;
  } else {
    return std::nullopt;
  }
  if (pci_address(device).empty()) return std::nullopt;
  KernelLine line;
  if (contains(how, "Corrected") || contains(how, "Correctable")) {
    line = line_of("pcie.aer", EventSeverity::kInfo, "PCIe error, corrected", "nothing now; watch the device's errors");
  } else if (contains(how, "Non-Fatal") || contains(how, "Nonfatal")) {
    line = line_of("pcie.aer", EventSeverity::kWarn, "PCIe error, not corrected, not fatal",
                   "look at the device, its slot and cable if it comes again");
  } else if (how == "failed") {
    line = line_of("pcie.aer", EventSeverity::kCritical, "a PCIe device did not recover from an error",
                   "drain the node and reboot it; if it comes again, replace the device");
  } else {
    line = line_of("pcie.aer", EventSeverity::kCritical, "fatal PCIe error",
                   "drain the node and reboot it; if it comes again, replace the device, its slot or cable");
  }
  line.device = device;
  line.announces = announces;
  line.alike_by_text = false;
  return line;
}

bool is_device_name(std::string_view text) {
  if (text.empty() || text.size() > 64) return false;
  for (char c : text) {
    const bool fits = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
                      c == '-' || c == '.' || c == ':' || c == '@' || c == '/' || c == '[' || c == ']';
    if (!fits) return false;
  }
  return true;
}

KernelLine link_line(bool up, std::string_view device) {
  KernelLine line = up ? line_of("link.up", EventSeverity::kInfo, "network link up", "nothing")
                       : line_of("link.down", EventSeverity::kWarn, "network link down",
                                 "look at cable, transceiver and switch port");
  line.device = device;
  line.alike_by_text = false;
  line.is_state = true;
  return line;
}

// "mlx5_core 0000:5e:00.0 eth4: Link down", "igb 0000:01:00.0 eno1: igb: eno1 NIC Link is Up 1000 Mbps"
std::optional<KernelLine> parse_link(std::string_view text) {
  if (std::optional<std::string_view> slave = behind(text, "(slave ")) {
    const bool down = contains(*slave, "link status definitely down");
    if (!down && !contains(*slave, "link status definitely up")) return std::nullopt;
    const std::string_view device = take_until(*slave, ")");
    if (!is_device_name(device)) return std::nullopt;
    return link_line(!down, device);
  }
  const size_t at = text.find("Link ");
  if (at == 0 || at == std::string_view::npos || text[at - 1] != ' ') return std::nullopt;
  std::string_view rest = text.substr(at + 5);
  skip(rest, "is ");
  const std::string_view state = take_until(rest, " ,.;:\n");
  const bool up = state == "up" || state == "Up";
  if (!up && state != "down" && state != "Down") return std::nullopt;
  std::string_view before = text.substr(0, at);
  if (contains(before, "pciehp")) {
    std::string_view words = text;
    take_word(words);
    KernelLine line =
        line_of(up ? "pcie.link_up" : "pcie.link_down", up ? EventSeverity::kInfo : EventSeverity::kWarn,
                up ? "PCIe link up" : "PCIe link down: a device has gone from its slot", "look at what is in the slot");
    line.device = without_end(take_word(words), ':');
    line.alike_by_text = false;
    line.is_state = true;
    return line;
  }
  std::string_view device = last_word(before);
  if (device == "NIC") device = last_word(text.substr(0, static_cast<size_t>(device.data() - text.data())));
  device = without_end(device, ':');
  if (!is_device_name(device)) return std::nullopt;
  return link_line(up, device);
}

// "mlx5_core 0000:0d:00.0: poll_health:801:(pid 0): device's health compromised - reached miss count"
std::optional<KernelLine> parse_mlx5(std::string_view text) {
  if (std::optional<KernelLine> link = parse_link(text)) return link;
  std::string_view rest = text;
  take_word(rest);
  const std::string_view device = without_end(take_word(rest), ':');
  KernelLine line;
  if (contains(rest, "Port module event")) {
    if (contains(rest, "error")) {
      line = line_of("nic.module", EventSeverity::kWarn, "the cable or transceiver reports an error",
                     "look at the cable or transceiver of this port");
    } else if (contains(rest, "unplugged")) {
      line = line_of("nic.module", EventSeverity::kWarn, "the cable or transceiver was pulled",
                     "plug it in again if nobody meant it");
    } else {
      line = line_of("nic.module", EventSeverity::kInfo, "the cable or transceiver changed", "nothing");
    }
    line.is_state = true;
  } else if (contains(rest, "insufficient power on the PCIe slot")) {
    line = line_of("nic.health", EventSeverity::kWarn, "the slot gives the network card too little power",
                   "check the slot's power and the BIOS settings of the slot");
  } else if (contains(rest, "igh temperature")) {
    line = line_of("nic.health", EventSeverity::kWarn, "the network card is too hot", "check the cooling of the node");
  } else if (contains(rest, "health compromised") || contains(rest, "Fatal error") ||
             contains(rest, "Health issue observed") || contains(rest, "firmware internal error") ||
             contains(rest, "health recovery flow aborted") || contains(rest, "health recovery failed") ||
             contains(rest, "device in error state")) {
    line = line_of("nic.health", EventSeverity::kCritical, "the network card or its firmware has failed",
                   "drain the node, power cycle it; if it comes again, update the firmware or replace the card");
  } else if (contains(rest, "recovered after timeout")) {
    line = line_of("nic.health", EventSeverity::kInfo, "a firmware command of the network card was late",
                   "nothing now; update the firmware if it comes often");
  } else if (contains(rest, "No done completion") ||
             (contains(rest, "timeout") && (contains(rest, "leak of a command") || contains(rest, "wait_func")))) {
    line = line_of("nic.health", EventSeverity::kWarn, "a firmware command of the network card timed out",
                   "watch the card; if it comes again, drain the node and power cycle it");
  } else {
    return std::nullopt;
  }
  line.device = device;
  return line;
}

// "oom-kill:constraint=CONSTRAINT_MEMCG,…,task_memcg=/slurm/…,task=python,pid=12345,uid=1000", then
// "Memory cgroup out of memory: Killed process 12345 (python) total-vm:…"
std::optional<KernelLine> parse_oom(std::string_view text) {
  constexpr const char* kGroup = "killed: its group was at its memory limit";
  constexpr const char* kGroupAction = "give the job more memory, or look for what grew";
  constexpr const char* kNode = "killed: the node was out of memory";
  constexpr const char* kNodeAction = "look for what takes the node's memory; limit it by cgroup";
  KernelLine line;
  std::string_view rest = text;
  if (skip(rest, "oom-kill:")) {
    const bool group = contains(rest, "CONSTRAINT_MEMCG");
    line = line_of("host.oom_kill", group ? EventSeverity::kApp : EventSeverity::kCritical, group ? kGroup : kNode,
                   group ? kGroupAction : kNodeAction);
    if (std::optional<std::string_view> cgroup = behind(rest, ",task_memcg=")) line.cgroup = take_until(*cgroup, ",");
    // A task's name may hold a comma: its end is the last ",pid=".
    const size_t name = rest.find(",task=");
    const size_t pid = rest.rfind(",pid=");
    if (pid == std::string_view::npos) return std::nullopt;
    if (name != std::string_view::npos && name + 6 <= pid) line.process = rest.substr(name + 6, pid - name - 6);
    rest.remove_prefix(pid + 5);
  } else {
    std::optional<std::string_view> killed = behind(text, "Killed process ");
    if (!killed) killed = behind(text, "Kill process ");
    if (!killed || !contains(text, "ut of memory")) return std::nullopt;
    const bool group = contains(text, "emory cgroup out of memory");
    line = line_of("host.oom_kill", group ? EventSeverity::kApp : EventSeverity::kCritical, group ? kGroup : kNode,
                   group ? kGroupAction : kNodeAction);
    line.announces = true;  // older kernels write this line alone
    rest = *killed;
  }
  const std::optional<int64_t> pid = take_number(rest, kPidMost);
  if (!pid) return std::nullopt;
  line.pid = static_cast<int32_t>(*pid);
  if (line.announces && skip(rest, " (")) line.process = rest.substr(0, std::min(rest.find(") "), rest.size()));
  line.alike_by_text = false;
  return line;
}

// "INFO: task kworker/13:2:4055883 blocked for more than 120 seconds."
std::optional<KernelLine> parse_hung_task(std::string_view text) {
  const size_t end = text.find(" blocked ");
  if (end == std::string_view::npos || !contains(text.substr(end), "for more than ")) return std::nullopt;
  std::string_view task = text.substr(0, end);
  skip(task, "INFO: task ");
  const size_t colon = task.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string_view number = task.substr(colon + 1);
  const std::optional<int64_t> pid = take_number(number, kPidMost);
  if (!pid || !number.empty()) return std::nullopt;
  KernelLine line = line_of("host.hung_task", EventSeverity::kWarn, "a task waits in the kernel and does not come back",
                            "look at its stack (/proc/PID/stack): a file system, a driver or a device hangs");
  line.process = task.substr(0, colon);
  line.pid = static_cast<int32_t>(*pid);
  return line;
}

std::optional<KernelLine> parse_machine_check(std::string_view text) {
  constexpr const char* kCorrected = "hardware error, corrected";
  constexpr const char* kWatch = "watch its counts; plan to replace the part if they grow";
  constexpr const char* kUncorrected = "hardware error, not corrected";
  constexpr const char* kReplace = "drain the node; find and replace the part";
  if (contains(text, "clock throttled")) {
    return line_of("host.cpu_throttled", EventSeverity::kWarn, "CPUs are slowed down because they are too hot",
                   "check the cooling of the node");
  }
  if (text.starts_with("Memory failure: 0x")) {
    return line_of("host.mce", EventSeverity::kCritical, "a page of memory was taken out of use", kReplace);
  }
  if (text.starts_with("EDAC ")) {
    std::string_view rest = text.substr(5);
    const std::string_view device = without_end(take_word(rest), ':');
    const bool uncorrected = contains(rest, " UE ");
    if (!uncorrected && !contains(rest, " CE ")) return std::nullopt;
    KernelLine line = uncorrected ? line_of("host.mce", EventSeverity::kCritical, "memory error, not corrected",
                                            "drain the node; replace the memory module")
                                  : line_of("host.mce", EventSeverity::kWarn, "memory error, corrected",
                                            "watch its counts; plan to replace the memory module if they grow");
    line.device = device;
    return line;
  }
  if (!contains(text, "[Hardware Error]")) return std::nullopt;
  if (contains(text, "Machine Check Exception") || contains(text, "severity: fatal") || contains(text, "Uncorrected") ||
      contains(text, "severity: recoverable"))
    return line_of("host.mce", EventSeverity::kCritical, kUncorrected, kReplace);
  if (contains(text, "Machine check events logged") || contains(text, "Machine Check:") ||
      contains(text, "severity: corrected") || contains(text, "Corrected error"))
    return line_of("host.mce", EventSeverity::kWarn, kCorrected, kWatch);
  return std::nullopt;
}

// "nfs: server 10.0.0.5 not responding, still trying", "nfs: server 10.0.0.5 OK"
std::optional<KernelLine> parse_nfs(std::string_view text) {
  std::optional<std::string_view> rest = behind(text, "server ");
  if (!rest) return std::nullopt;
  const std::string_view server = take_word(*rest);
  KernelLine line;
  if (rest->starts_with(" not responding")) {
    line = line_of("storage.nfs", EventSeverity::kWarn, "the file server does not answer",
                   "look at the server and the network to it; whatever uses its files waits");
  } else if (rest->starts_with(" OK")) {
    line = line_of("storage.nfs", EventSeverity::kInfo, "the file server answers again", "nothing");
  } else {
    return std::nullopt;
  }
  if (!is_device_name(server)) return std::nullopt;
  line.device = server;
  line.alike_by_text = false;
  line.is_state = true;
  return line;
}

// Lines that were copied into the log by hand have their time in front.
std::string_view without_stamp(std::string_view text) {
  if (!text.starts_with('[')) return text;
  const size_t end = text.find("] ");
  if (end == std::string_view::npos ||
      text.substr(1, end - 1).find_first_not_of("0123456789. ") != std::string_view::npos)
    return text;
  return text.substr(end + 2);
}

}  // namespace

std::optional<KernelLine> KernelLineParser::parse(std::string_view text) {
  text = without_stamp(text.substr(0, kKernelLineMax));
  if (named_pci_lines_ > 0) --named_pci_lines_;
  if (text.starts_with("NVRM: ")) return parse_nvrm(text);
  if (text.starts_with("nvidia-nvswitch")) return parse_sxid(text);
  if (text.starts_with("mlx5_core ") && !contains(text, "PCIe Bus Error") && !contains(text, "AER: "))
    return parse_mlx5(text);
  if (text.starts_with("nfs: ") || text.starts_with("NFS: ")) return parse_nfs(text);
  if (text.starts_with("INFO: task ")) return parse_hung_task(text);
  if (text.starts_with("EDAC ") || text.starts_with("mce: ") || text.starts_with("Memory failure: ") ||
      contains(text, "[Hardware Error]") || contains(text, "clock throttled"))
    return parse_machine_check(text);
  if (text.starts_with("oom-kill:") || contains(text, "ut of memory: Kill")) return parse_oom(text);
  if (contains(text, "AER: ") || contains(text, "PCIe Bus Error") || contains(text, "DPC: containment"))
    return parse_aer(text);
  return parse_link(text);
}

std::string pci_address(std::string_view text) {
  skip(text, "PCI:");
  const auto hex = [](std::string_view part, size_t least, size_t most) {
    if (part.size() < least || part.size() > most) return false;
    for (char c : part) {
      if (hex_digit(c) < 0) return false;
    }
    return true;
  };
  std::string_view function = "0";
  if (const size_t dot = text.find('.'); dot != std::string_view::npos) {
    function = text.substr(dot + 1);
    text = text.substr(0, dot);
  }
  std::string_view domain = "0000";
  const size_t first = text.find(':');
  const size_t last = text.rfind(':');
  if (first == std::string_view::npos) return {};
  if (first != last) {
    domain = text.substr(0, first);
    text.remove_prefix(first + 1);
  }
  const size_t colon = text.find(':');
  const std::string_view bus = text.substr(0, colon);
  const std::string_view slot = text.substr(colon + 1);
  if (!hex(domain, 4, 8) || !hex(bus, 2, 2) || !hex(slot, 2, 2) || !hex(function, 1, 1)) return {};
  // Eight digits of domain, as NVML writes it, are four with zeros before; a larger one keeps its digits.
  while (domain.size() > 4 && domain.front() == '0') domain.remove_prefix(1);
  std::string address;
  for (std::string_view part : {domain, bus, slot}) {
    address += part;
    address += ':';
  }
  address.back() = '.';
  address += function;
  return lower_case(address);
}

uint64_t hash_without_numbers(std::string_view text, uint64_t seed) {
  constexpr uint64_t kPrime = 0x100000001b3;
  uint64_t hash = seed ^ 0xcbf29ce484222325;
  const auto mix = [&](char c) { hash = (hash ^ static_cast<unsigned char>(c)) * kPrime; };
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  for (size_t at = 0; at < text.size();) {
    if (!is_digit(text[at]) && !is_letter(text[at])) {
      mix(text[at++]);
      continue;
    }
    size_t end = at;
    bool digits = false;
    bool all_hex = true;
    for (; end < text.size() && (is_digit(text[end]) || is_letter(text[end])); ++end) {
      digits |= is_digit(text[end]);
      all_hex &= hex_digit(text[end]) >= 0 || (end == at + 1 && text[end] == 'x' && text[at] == '0');
    }
    if (digits && all_hex) {  // 42, 0x1f, 0000001d
      mix('#');
      at = end;
      continue;
    }
    for (; at < end; ++at) {  // words keep their letters: "GPC7" is "GPC#"
      if (!is_digit(text[at])) {
        mix(text[at]);
      } else if (at + 1 == end || !is_digit(text[at + 1])) {
        mix('#');
      }
    }
  }
  return hash;
}

}  // namespace lockstep
