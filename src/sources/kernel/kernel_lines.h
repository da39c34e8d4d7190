// One line of the kernel's log -> what it tells, or nothing. Lines of NVIDIA's driver, PCIe error reporting, network
// drivers, the out-of-memory killer, the hung-task watch, machine checks and NFS.
//
// Lines come from drivers of many versions and, through process names, from whoever runs on the node: everything is
// bounded by the line, nothing is trusted to be there.
// Thread rule: Confined.
// Limits: a line is read up to kKernelLineMax bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "model/node_event.h"
#include "sources/kernel/xid_table.h"

namespace lockstep {

inline constexpr size_t kKernelLineMax = 1024;

// Views are into the line, or into the parser: until its next parse().
struct KernelLine {
  // Of the event. Empty: no event, but `gpu_uuid` is that of the GPU at `pci`.
  std::string_view name;
  EventSeverity severity = EventSeverity::kWarn;  // of an XID: as the table and the line say
  std::string_view pci;                           // of a GPU, as the line has it
  std::string_view gpu_uuid;
  std::string_view device;  // what else it is about
  int64_t code = -1;
  int64_t sub_code = -1;
  int32_t pid = -1;
  std::string_view process;
  std::string_view cgroup;  // of a process that was killed
  const char* meaning = "";
  const char* action = "";
  // Another line tells of the same thing in more words; this one counts only where that one does not come.
  bool announces = false;
  // Lines are alike when these are: else when device and code are.
  bool alike_by_text = true;
  // Says how something stands now (a link, a server): the newest matters, so it is told again soon.
  bool is_state = false;
  int64_t recovery = -1;  // XID 154: the action asked for
  std::optional<NvLinkReport> nvlink;
};

class KernelLineParser {
 public:
  std::optional<KernelLine> parse(std::string_view line);

 private:
  std::optional<KernelLine> parse_nvrm(std::string_view line);

  // "NVRM: The NVIDIA GPU 0000:07:00.0" may stand lines before what it is about.
  std::string named_pci_;
  int named_pci_lines_ = 0;
};

// "0000:1b:00.0" of "PCI:0000:1B:00", "1b:00", "00000000:1B:00.0"; empty where it is no PCI address.
std::string pci_address(std::string_view text);
// What lines have in common that differ in numbers and addresses only. As good as never the same for two that differ
// otherwise.
uint64_t hash_without_numbers(std::string_view text, uint64_t seed);

}  // namespace lockstep
