#include "sources/kernel/xid_table.h"

#include "base/text.h"

namespace lockstep {
namespace {

constexpr int kNewLayoutDriver = 575;
bool new_layout(int driver_major) {
  return driver_major == 0 || driver_major >= kNewLayoutDriver;
}

// Why a link went down (XID 149), bits 25 to 20 of the first word.
struct LinkCause {
  uint8_t cause;
  const char* meaning;
  const char* action;
};
constexpr const char* kSignal = "drain and reset; look at the link's signal and seating";
constexpr const char* kCables = "drain and reset; look at cable, transceiver, seating and temperature of the link";
constexpr const char* kSoftware = "drain and reset; find out which software or person took the link down";
constexpr const char* kBoth = "drain and reset; find out who took the link down, else look at its signal";
constexpr const char* kPeer = "drain and reset; look at the device at the other end of the link, the fault began there";
constexpr LinkCause kLinkCauses[] = {
    {2, "signal", kSignal},
    {4, "signal", kSignal},
    {10, "signal", kSignal},
    {15, "software", kSoftware},
    {16, "software or signal", kBoth},
    {17, "software", kSoftware},
    {18, "software or signal", kBoth},
    {21, "peer", kPeer},
    {22, "software", kSoftware},
    {32, "peer", kPeer},
    {33, "peer", kPeer},
    {34, "peer", kPeer},
    {35, "peer", kPeer},
    {36, "peer", kPeer},
    {37, "peer", kPeer},
    {42, "signal or cable", kCables},
    {43, "signal or cable", kCables},
};
// Down for a reason that asks nothing of this GPU.
constexpr uint32_t kCauseSoftwareIgnored = 38;
constexpr uint32_t kCauseHost = 40;

}  // namespace

const char* to_text(XidBucket bucket) {
  switch (bucket) {
    case XidBucket::kIgnore:
      return "IGNORE";
    case XidBucket::kRestartApp:
      return "RESTART_APP";
    case XidBucket::kResetGpu:
      return "RESET_GPU";
    case XidBucket::kRestartVm:
      return "RESTART_VM";
    case XidBucket::kRestartBm:
      return "RESTART_BM";
    case XidBucket::kCheckMechanicals:
      return "CHECK_MECHANICALS";
    case XidBucket::kCheckUvm:
      return "CHECK_UVM";
    case XidBucket::kUpdateSwFw:
      return "UPDATE_SWFW";
    case XidBucket::kWorkflow:
      return "workflow";
    case XidBucket::kDecode:
      return "decode";
    case XidBucket::kObey:
      return "obey the value";
    case XidBucket::kInfo:
      return "info";
    case XidBucket::kUnset:
      return "-";
  }
  return "-";
}

const XidRow& xid_row(int64_t code) {
  const XidRow* best = &kXidUnknown;
  for (const XidRow& row : kXidTable) {
    if (code < row.first || code > row.last) continue;
    if (best == &kXidUnknown || row.last - row.first < best->last - best->first) best = &row;
  }
  return *best;
}

const RecoveryRow* recovery_row(int64_t value) {
  for (const RecoveryRow& row : kRecoveryTable) {
    if (row.value == value) return &row;
  }
  return nullptr;
}

int64_t nvlink_sub_unit(const NvLinkReport& report, int driver_major) {
  return new_layout(driver_major) ? report.intr_info & 0x7F : (report.intr_info >> 5) & 0x1F;
}

NvLinkAdvice nvlink_advice(int64_t code, const NvLinkReport& report, int driver_major) {
  NvLinkAdvice advice;
  const std::string_view unit = report.unit;
  advice.meaning = format("%s: %.*s, %s", xid_row(code).meaning, static_cast<int>(unit.size()), unit.data(),
                          report.fatal ? "fatal" : "nonfatal");
  if (report.link >= 0) advice.meaning += format(", link %d", report.link);
  advice.severity = report.fatal ? EventSeverity::kCritical : EventSeverity::kWarn;
  advice.action = report.fatal ? "drain the GPU and reset it" : "nothing now; watch this link";

  if (code == 149 && report.fatal) {
    const uint32_t cause = (report.intr_info >> 20) & 0x3F;
    advice.meaning += format(", cause %u", cause);
    if (cause == kCauseSoftwareIgnored || cause == kCauseHost) {
      advice.severity = EventSeverity::kWarn;
      advice.meaning += cause == kCauseHost ? " (host)" : " (software)";
      advice.action = "no reset needed; find out what took the link down, if nobody meant it";
    }
    for (const LinkCause& row : kLinkCauses) {
      if (row.cause != cause) continue;
      advice.meaning += format(" (%s)", row.meaning);
      advice.action = row.action;
    }
    return advice;
  }
  if (report.fatal) return advice;
  // Nonfatal, and yet not without consequences.
  const bool remap = unit == "RLW_REMAP" && report.error_status >= 0x1 && report.error_status <= 0x20;
  const bool track = unit == "RLW_SRC_TRACK" && (report.error_status == 0x4 || report.error_status == 0x8);
  if (remap || track) {
    advice.action = "do what an XID 154 beside it asks for; without one, restart the job";
  } else if (unit == "RLW_RXPIPE" && report.error_status >= 0x1 && report.error_status <= 0x4) {
    // One bit above the sub-unit says that packets are lost for good.
    const uint32_t lost = new_layout(driver_major) ? 1u << 7 : 1u << 10;
    if ((report.intr_info & lost) != 0) {
      advice.severity = EventSeverity::kCritical;
      advice.action = "drain the GPU and reset it";
    }
  } else if (unit == "NETIR_BER_EVENT") {
    advice.action = "look at cable, transceiver, seating and temperature of the link";
  }
  return advice;
}

}  // namespace lockstep
