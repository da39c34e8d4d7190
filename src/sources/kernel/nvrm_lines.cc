// Lines of NVIDIA's kernel driver. The same XID has been written in many ways over the years:
//   NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
//   NVRM: Xid (0000:03:00): 31, Ch 0000001d, engmask 00000101, intr 10000000
//   NVRM: Xid (PCI:0000:9b:00 GPU-I:05): 94, pid=7194, Contained: SM (0x1). RST: No, D-RST: No
//   NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 ...)
#include "sources/kernel/kernel_lines.h"
#include "sources/kernel/line_words.h"

namespace lockstep {
namespace {

constexpr int64_t kXidMost = 1'000'000;
constexpr int64_t kPidMost = 1 << 22;
constexpr int kNamedPciLines = 4;
constexpr std::string_view kOffTheBus = "fallen off the bus";

std::string_view unquoted(std::string_view text) {
  if (text.size() >= 2 && text.front() == '\'' && text.back() == '\'') text = text.substr(1, text.size() - 2);
  return text == "<unknown>" ? std::string_view() : text;
}

// "UNIT Fatal XC0 i0 Link 13 (0x… 0x…": nullopt where it is not of that form.
std::optional<NvLinkReport> parse_nvlink(std::string_view detail) {
  NvLinkReport report;
  report.unit = take_word(detail);
  const std::string_view how = take_word(detail);
  if (how != "Fatal" && how != "Nonfatal" && how != "Non-fatal") return std::nullopt;
  report.fatal = how == "Fatal";
  std::optional<std::string_view> link = behind(detail, "Link ");
  if (!link) return std::nullopt;
  link->remove_prefix(std::min(link->find_first_not_of(' '), link->size()));
  // "Link -1": the whole unit, no single link.
  if (std::optional<int64_t> number = take_number(*link, 1000)) report.link = static_cast<int32_t>(*number);
  std::optional<std::string_view> words = behind(*link, "(");
  if (!words) return std::nullopt;
  const std::optional<uint32_t> info = take_hex(*words);
  skip(*words, " ");
  const std::optional<uint32_t> status = take_hex(*words);
  if (!info || !status) return std::nullopt;
  report.intr_info = *info;
  report.error_status = *status;
  return report;
}

std::optional<KernelLine> parse_xid(std::string_view rest) {
  KernelLine line;
  line.name = "gpu.xid";
  line.pci = take_until(rest, ") ");
  take_until(rest, ")");
  if (!skip(rest, "):")) return std::nullopt;
  skip(rest, " ");
  const std::optional<int64_t> code = take_number(rest, kXidMost);
  if (!code || (!rest.empty() && rest.front() != ',' && rest.front() != ' ' && rest.front() != '.'))
    return std::nullopt;
  line.code = *code;
  while (skip(rest, ",") || skip(rest, " ")) {
  }
  if (skip(rest, "pid=")) {
    std::string_view value = unquoted(take_until(rest, ","));
    if (std::optional<int64_t> pid = take_number(value, kPidMost); pid && value.empty())
      line.pid = static_cast<int32_t>(*pid);
    skip(rest, ", ");
  }
  if (skip(rest, "name=")) {
    const size_t end = std::min(rest.find(", "), rest.size());
    line.process = unquoted(rest.substr(0, end));
    rest.remove_prefix(end);
    skip(rest, ", ");
  }
  const XidRow& row = xid_row(line.code);
  line.severity = row.severity;
  line.meaning = row.meaning;
  line.action = row.action;
  line.alike_by_text = line.code != kXidOffTheBus;
  if (line.code >= 144 && line.code <= 150) {
    line.nvlink = parse_nvlink(rest);
    if (line.nvlink) line.severity = nvlink_advice(line.code, *line.nvlink, 0).severity;
  }
  if (line.code == kXidRecoveryAction) {
    if (std::optional<std::string_view> to = behind(rest, " to ")) {
      if (std::optional<uint32_t> value = take_hex(*to)) line.recovery = *value;
    }
    if (const RecoveryRow* recovery = recovery_row(line.recovery)) {
      line.severity = recovery->severity;
      line.meaning = recovery->meaning;
      line.action = recovery->action;
    }
  }
  return line;
}

// The first word that is a PCI address, as it stands there.
std::string_view find_pci(std::string_view text) {
  while (true) {
    std::string_view word = take_word(text);
    if (word.empty()) return {};
    word = without_end(without_end(word, ','), ':');
    skip(word, "PCI:");
    if (!pci_address(word).empty()) return word;
  }
}

}  // namespace

std::optional<KernelLine> KernelLineParser::parse_nvrm(std::string_view text) {
  std::string_view rest = text;
  skip(rest, "NVRM: ");
  if (skip(rest, "Xid (")) return parse_xid(rest);
  if (contains(text, kOffTheBus)) {
    KernelLine line;
    const XidRow& row = xid_row(kXidOffTheBus);
    line.name = "gpu.xid";
    line.code = kXidOffTheBus;
    line.severity = row.severity;
    line.meaning = row.meaning;
    line.action = row.action;
    line.announces = true;  // newer drivers write the XID as well
    line.alike_by_text = false;
    line.pci = find_pci(rest);
    if (line.pci.empty() && named_pci_lines_ > 0) line.pci = named_pci_;
    return line;
  }
  if (skip(rest, "The NVIDIA GPU ")) {
    named_pci_ = find_pci(rest);
    named_pci_lines_ = kNamedPciLines;
    return std::nullopt;
  }
  if (skip(rest, "GPU at ")) {
    KernelLine line;
    line.pci = without_end(take_word(rest), ':');
    line.gpu_uuid = take_word(rest);
    if (!line.gpu_uuid.starts_with("GPU-") || line.gpu_uuid.size() > 64) return std::nullopt;
    return line;
  }
  return std::nullopt;
}

}  // namespace lockstep
