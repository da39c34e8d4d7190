// What each XID of NVIDIA's driver means and asks for: the one table that events, docs/guide/xid.md and tests share.
//
// Two rules stand above it. The driver's own word goes first: a recovery action that it tells (XID 154, or the
// recovery action that NVML shows) raises the severity of the event that it came with. And an XID that only
// tells of another (45 above all) never names the culprit where that other is there.
//
// Thread rule: Immutable.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "model/node_event.h"

namespace lockstep {

// The immediate action in the words of NVIDIA's catalog.
enum class XidBucket : uint8_t {
  kIgnore,
  kRestartApp,
  kResetGpu,
  kRestartVm,
  kRestartBm,
  kCheckMechanicals,
  kCheckUvm,
  kUpdateSwFw,
  kWorkflow,  // depends on what else is there
  kDecode,    // depends on the words in the line
  kObey,      // depends on the value told
  kInfo,
  kUnset,  // the catalog gives none
};
const char* to_text(XidBucket bucket);

enum class XidRole : uint8_t {
  kCause,
  kFollows,       // primary only where nothing else is near
  kNeverPrimary,  // 45: the channels of a process that something else has ended
};

struct XidRow {
  int16_t first;
  int16_t last;  // the same for one number
  const char* meaning;
  XidBucket bucket;
  EventSeverity severity;
  const char* action;
  XidRole role = XidRole::kCause;
};

inline constexpr int64_t kXidOffTheBus = 79;
inline constexpr int64_t kXidRecoveryAction = 154;
inline constexpr int64_t kXidSmoothingBack = 162;
inline constexpr int64_t kXidSmoothingOff = 163;

// Ordered by number; where two rows hold a number, the narrower one counts.
inline constexpr XidRow kXidTable[] = {
    {8, 8, "channel idle timeout", XidBucket::kRestartApp, EventSeverity::kApp,
     "restart the job; if it comes again on the same GPU, run a diagnosis of that GPU"},
    {13, 13, "SM or graphics exception", XidBucket::kRestartApp, EventSeverity::kApp,
     "look for the bug in the program; if the same GPC and TPC come again under other jobs, run a diagnosis"},
    {31, 31, "MMU fault: an access to an address that is not mapped", XidBucket::kRestartApp, EventSeverity::kApp,
     "the program's bug if it follows the job, the hardware's fault if it follows the GPU"},
    {32, 32, "bad push buffer (PBDMA)", XidBucket::kRestartApp, EventSeverity::kApp,
     "restart the job; look at the PCIe errors of this GPU"},
    {43, 43, "the process was stopped for a fault of its own", XidBucket::kIgnore, EventSeverity::kApp,
     "nothing: the GPU is well; see the XID before it", XidRole::kFollows},
    {45, 45, "channels torn down, because of something else", XidBucket::kWorkflow, EventSeverity::kInfo,
     "follow the other XID; if there is none, restart the fabric manager", XidRole::kNeverPrimary},
    {46, 46, "GPU stopped working (timeout)", XidBucket::kResetGpu, EventSeverity::kCritical,
     "drain the GPU and reset it"},
    {48, 48, "uncorrectable ECC error", XidBucket::kWorkflow, EventSeverity::kCritical,
     "drain the GPU and reset it; in SRAM with the threshold flag set, have it replaced"},
    {54, 54, "auxiliary power is not connected", XidBucket::kCheckMechanicals, EventSeverity::kCritical,
     "check the power cables and the seating of the board"},
    {62, 62, "PMU (power controller) halted", XidBucket::kResetGpu, EventSeverity::kCritical,
     "drain the GPU and reset it; if it comes again, go to the vendor"},
    {63, 63, "row remapping recorded", XidBucket::kIgnore, EventSeverity::kWarn,
     "reset the GPU when it is next idle, if a remapping is pending", XidRole::kFollows},
    {64, 64, "row remapping failed", XidBucket::kResetGpu, EventSeverity::kCritical,
     "drain the GPU and reset it; if the failure flag stays, have it replaced", XidRole::kFollows},
    {68, 73, "error in a video, copy, JPEG or optical flow engine", XidBucket::kRestartApp, EventSeverity::kApp,
     "restart the job"},
    {69, 69, "graphics class error", XidBucket::kRestartApp, EventSeverity::kApp, "restart the job"},
    {74, 74, "NVLink error (A100, H100)", XidBucket::kWorkflow, EventSeverity::kCritical,
     "find the first link that failed, drain and reset; the GPU or switch at the other end may be the culprit"},
    {75, 77, "error in a video, copy, JPEG or optical flow engine", XidBucket::kRestartApp, EventSeverity::kApp,
     "restart the job"},
    {78, 78, "vGPU did not start", XidBucket::kUpdateSwFw, EventSeverity::kWarn,
     "bring the drivers of host and guest to versions that fit"},
    {79, 79, "GPU fell off the bus", XidBucket::kRestartBm, EventSeverity::kCritical,
     "drain the node, cold reboot; if it comes again, have the GPU or its PCIe path replaced"},
    {82, 89, "error in a video, copy, JPEG or optical flow engine", XidBucket::kRestartApp, EventSeverity::kApp,
     "restart the job"},
    {92, 92, "very many single-bit ECC errors", XidBucket::kIgnore, EventSeverity::kWarn,
     "watch the trend; if it lasts, go to the vendor"},
    {93, 93, "InfoROM has been written very often", XidBucket::kIgnore, EventSeverity::kInfo, "nothing"},
    {94, 94, "memory error, contained to its process", XidBucket::kRestartApp, EventSeverity::kWarn,
     "restart the job; reset the GPU when it is idle"},
    {95, 95, "memory error, not contained", XidBucket::kResetGpu, EventSeverity::kCritical,
     "end what runs on the GPU, drain it and reset it (an A100 without MIG: reboot the node)"},
    {96, 105, "error in a video, copy, JPEG or optical flow engine", XidBucket::kRestartApp, EventSeverity::kApp,
     "restart the job"},
    {109, 109, "context switch timeout", XidBucket::kResetGpu, EventSeverity::kCritical, "drain the GPU and reset it"},
    {110, 110, "security fault", XidBucket::kResetGpu, EventSeverity::kCritical,
     "drain the node, switch it off and on again"},
    {119, 119, "GSP (GPU firmware) did not answer", XidBucket::kResetGpu, EventSeverity::kCritical,
     "drain the GPU and reset it, often a reboot; collect nvidia-bug-report first"},
    {120, 120, "GSP (GPU firmware) failed", XidBucket::kResetGpu, EventSeverity::kCritical,
     "drain the GPU and reset it, often a reboot; collect nvidia-bug-report first"},
    {121, 121, "C2C link error, corrected", XidBucket::kIgnore, EventSeverity::kInfo,
     "nothing now; a reset at the next maintenance trains the link anew"},
    {122, 125, "SPI or InfoROM cannot be read or written", XidBucket::kUnset, EventSeverity::kWarn, "go to the vendor"},
    {126, 135, "error in a video, copy, JPEG or optical flow engine", XidBucket::kRestartApp, EventSeverity::kApp,
     "restart the job"},
    {136, 136, "NVLink training failed (H100)", XidBucket::kResetGpu, EventSeverity::kCritical,
     "drain the GPU and reset it; if it comes again, look at the link's signal and seating"},
    {137, 137, "NVLink access that is not allowed", XidBucket::kIgnore, EventSeverity::kApp,
     "look for an illegal peer-to-peer access in the program"},
    {139, 139, "error in a video, copy, JPEG or optical flow engine", XidBucket::kRestartApp, EventSeverity::kApp,
     "restart the job"},
    {140, 140, "ECC error that could not be recovered from", XidBucket::kResetGpu, EventSeverity::kCritical,
     "drain the GPU and reset it"},
    {141, 141, "CUDA fast path error", XidBucket::kIgnore, EventSeverity::kInfo, "nothing"},
    {143, 143, "GPU did not initialise", XidBucket::kResetGpu, EventSeverity::kCritical, "reset the GPU"},
    {144, 144, "NVLink5 SAW error", XidBucket::kDecode, EventSeverity::kWarn,
     "as the line says: fatal, drain and reset; nonfatal, watch"},
    {145, 145, "NVLink5 RLW error", XidBucket::kDecode, EventSeverity::kWarn,
     "as the line says: fatal, drain and reset; nonfatal, follow XID 154, else restart the job or watch"},
    {146, 146, "NVLink5 TLW error", XidBucket::kDecode, EventSeverity::kWarn,
     "as the line says: fatal, drain and reset; nonfatal, watch"},
    {147, 147, "NVLink5 TREX error", XidBucket::kDecode, EventSeverity::kWarn,
     "as the line says: fatal, drain and reset; nonfatal, watch"},
    {148, 148, "NVLink5 NVLPW error", XidBucket::kDecode, EventSeverity::kWarn,
     "as the line says: fatal, drain and reset; nonfatal, watch"},
    {149, 149, "NVLink5 link event", XidBucket::kDecode, EventSeverity::kCritical,
     "drain and reset; look at what the cause in the line names: cable and signal, software, or the peer"},
    {150, 150, "NVLink5 MSE error", XidBucket::kDecode, EventSeverity::kWarn,
     "as the line says: fatal, drain and reset; nonfatal, watch"},
    {151, 151, "key rotation failed (confidential computing)", XidBucket::kRestartVm, EventSeverity::kCritical,
     "restart the virtual machine"},
    {154, 154, "recovery action changed", XidBucket::kObey, EventSeverity::kWarn, "do what the line asks for",
     XidRole::kFollows},
    {155, 155, "NVLink taken down on purpose", XidBucket::kResetGpu, EventSeverity::kWarn,
     "reset the GPU if nobody meant it"},
    {156, 156, "a faulty resource was retired", XidBucket::kResetGpu, EventSeverity::kWarn,
     "reset the GPU when it is next idle", XidRole::kFollows},
    {157, 157, "a faulty resource could not be retired", XidBucket::kIgnore, EventSeverity::kWarn,
     "it will come again: plan to have the GPU replaced", XidRole::kFollows},
    {158, 158, "GPU fatal timeout", XidBucket::kResetGpu, EventSeverity::kCritical, "drain the GPU and reset it"},
    {159, 159, "CHI error without data (C2C)", XidBucket::kCheckUvm, EventSeverity::kWarn,
     "reset the GPU if managed memory (UVM) is in use, else nothing"},
    {160, 160, "a memory channel was retired", XidBucket::kIgnore, EventSeverity::kWarn, "watch the GPU",
     XidRole::kFollows},
    {161, 161, "a memory channel could not be retired", XidBucket::kIgnore, EventSeverity::kWarn, "watch the GPU",
     XidRole::kFollows},
    {162, 162, "power smoothing works again", XidBucket::kInfo, EventSeverity::kInfo, "nothing: it ends XID 163",
     XidRole::kFollows},
    {163, 163, "power smoothing is off", XidBucket::kInfo, EventSeverity::kWarn,
     "look at temperatures; reset the GPU if power smoothing is needed and does not come back"},
    {164, 164, "power smoothing: little lifetime left", XidBucket::kInfo, EventSeverity::kWarn,
     "plan to have the GPU replaced if power smoothing is needed"},
    {165, 165, "power smoothing: lifetime used up", XidBucket::kInfo, EventSeverity::kWarn,
     "plan to have the GPU replaced if power smoothing is needed"},
    {166, 166, "NVLink in confidential computing: traffic before encryption", XidBucket::kUnset, EventSeverity::kWarn,
     "look at the set-up of confidential computing"},
    {167, 167, "PCIe fatal timeout", XidBucket::kUnset, EventSeverity::kCritical,
     "treat it as 79: drain the node, cold reboot"},
    {168, 168, "less memory than there should be (ECC is off)", XidBucket::kUnset, EventSeverity::kWarn,
     "switch ECC on, or boot again"},
    {169, 169, "SEC2 (security controller) halted", XidBucket::kUnset, EventSeverity::kCritical,
     "drain the GPU and reset it; if it comes again, go to the vendor"},
    {170, 170, "NVLink in confidential computing: interrupt", XidBucket::kUnset, EventSeverity::kWarn,
     "look at the set-up of confidential computing"},
    {171, 171, "uncorrectable DRAM error, beside XID 48", XidBucket::kUnset, EventSeverity::kCritical,
     "as XID 48: drain the GPU and reset it", XidRole::kFollows},
    {172, 172, "uncorrectable SRAM error, beside XID 48", XidBucket::kUnset, EventSeverity::kCritical,
     "as XID 48: drain the GPU and reset it; with the threshold flag set, have it replaced", XidRole::kFollows},
};

// For every number: one that is not in the table is a warning that says so.
inline constexpr XidRow kXidUnknown = {-1,
                                       -1,
                                       "XID that is not in the table",
                                       XidBucket::kUnset,
                                       EventSeverity::kWarn,
                                       "look it up in NVIDIA's XID catalog of the driver's version"};
const XidRow& xid_row(int64_t code);

// The driver's recovery action, as XID 154 and NVML number it.
struct RecoveryRow {
  int8_t value;
  const char* meaning;
  EventSeverity severity;
  const char* action;
};
inline constexpr RecoveryRow kRecoveryTable[] = {
    {0, "no recovery needed any more", EventSeverity::kInfo, "nothing"},
    {1, "GPU reset required", EventSeverity::kCritical, "drain the GPU and reset it"},
    {2, "node reboot required", EventSeverity::kCritical, "drain the node and reboot it"},
    {3, "peer-to-peer work must end", EventSeverity::kCritical, "drain the jobs that use peer-to-peer with this GPU"},
    {4, "drain and reset required", EventSeverity::kCritical, "let what runs on the GPU end, then reset it"},
    {5, "IMEX domain must recover", EventSeverity::kCritical, "restart the IMEX domain of this node"},
};
// nullptr: not a value we know.
const RecoveryRow* recovery_row(int64_t value);

// The part of an NVLink5 line (XID 144 to 150) that decides.
struct NvLinkReport {
  std::string_view unit;  // "RLW_REMAP"
  bool fatal = false;
  int32_t link = -1;
  uint32_t intr_info = 0;
  uint32_t error_status = 0;
};
// driver_major: 0 where it is not known; then the layout of the newer drivers (575 and later) counts.
int64_t nvlink_sub_unit(const NvLinkReport& report, int driver_major);
struct NvLinkAdvice {
  EventSeverity severity = EventSeverity::kWarn;
  std::string meaning;
  const char* action = "";
};
NvLinkAdvice nvlink_advice(int64_t code, const NvLinkReport& report, int driver_major);

}  // namespace lockstep
