#include "sim/node/node_events.h"

#include "base/text.h"
#include "sim/node/noise.h"

namespace lockstep::sim {
namespace {

NodeEvent about(const NamedGpu& gpu, const char* name, EventSeverity severity, int64_t at_unix_ns) {
  NodeEvent event;
  event.name = name;
  event.severity = severity;
  event.time_unix_ns = at_unix_ns;
  event.gpu_uuid = gpu.uuid;
  event.device = gpu.pci;
  event.job_id = gpu.held_by.job_id;
  if (!event.job_id.empty()) event.rank = gpu.held_by.rank;
  return event;
}

// What the driver writes behind the number.
std::string xid_words(int32_t code, int32_t pid) {
  switch (code) {
    case 13:
      return format("pid=%d, name=python, Graphics SM Warp Exception on (GPC 2, TPC 5, SM 1): Out Of Range Address",
                    pid);
    case 31:
      return format("pid=%d, name=python, Ch 0000000e, intr 00000000. MMU Fault: ENGINE GRAPHICS faulted @ 0x7f2a",
                    pid);
    case 45:
      return format("pid=%d, name=python, Ch 00000008", pid);
    case 48:
      return "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer";
    case 63:
      return "Row Remapper: New row marked for remapping, reset gpu to activate.";
    case 64:
      return "Row Remapper: Remapping failed";
    case 74:
      return "NVLink: fatal error detected on link (0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)";
    case 79:
      return "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.";
    case 94:
      return format("pid=%d, name=python, Contained: SM (0x1). RST: No, D-RST: No", pid);
    case 109:
      return format("pid=%d, name=python, Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x2c014", pid);
    case 119:
      return format("pid=%d, name=python, Timeout after 45s of waiting for RPC response from GPU GSP!", pid);
    default:
      return format("pid=%d, name=python", pid);
  }
}

}  // namespace

int32_t pid_of(const Identity& identity) {
  const uint64_t word = mixed(mixed(static_cast<uint64_t>(identity.rank.value()), identity.job_id), identity.host);
  return 20'000 + static_cast<int32_t>(word % 400'000);
}

NodeEvent kernel_event(std::string_view text, int64_t at_unix_ns) {
  NodeEvent event;
  event.time_unix_ns = at_unix_ns;
  event.text = text;
  event.source = "kmsg";
  KernelLineParser parser;
  if (const std::optional<KernelLine> line = parser.parse(text)) {
    event.name = line->name;
    event.severity = line->severity;
    event.device = !line->device.empty() ? line->device : line->cgroup;
    event.code = line->code;
    event.sub_code = line->sub_code;
    event.pid = line->pid;
    event.process = line->process;
    event.meaning = line->meaning;
    event.action = line->action;
  }
  return event;
}

NodeEvent xid_event(const NamedGpu& gpu, int32_t code, int64_t at_unix_ns) {
  const std::string pci = gpu.pci.substr(0, gpu.pci.find('.'));
  NodeEvent event = kernel_event(
      format("NVRM: Xid (PCI:%s): %d, %s", pci.c_str(), code, xid_words(code, pid_of(gpu.held_by)).c_str()),
      at_unix_ns);
  const NodeEvent owner = about(gpu, "", event.severity, at_unix_ns);
  event.gpu_uuid = owner.gpu_uuid;
  event.device = owner.device;
  event.job_id = owner.job_id;
  event.rank = owner.rank;
  event.source = "kmsg+driver";
  return event;
}

NodeEvent gpu_lost_event(const NamedGpu& gpu, int64_t at_unix_ns) {
  NodeEvent event = about(gpu, "gpu.lost", EventSeverity::kCritical, at_unix_ns);
  event.meaning = "the GPU does not answer any more";
  event.action = "drain the node; see the XID beside it; reboot";
  event.source = "driver";
  event.secondary = true;
  return event;
}

NodeEvent recovery_event(const NamedGpu& gpu, int32_t action, int64_t at_unix_ns) {
  NodeEvent event = about(gpu, "gpu.recovery_action", EventSeverity::kWarn, at_unix_ns);
  event.code = action;
  if (const RecoveryRow* row = recovery_row(action)) {
    event.severity = row->severity;
    event.meaning = row->meaning;
    event.action = row->action;
  }
  event.source = "driver";
  event.secondary = true;
  return event;
}

NodeEvent foreign_process_event(const NamedGpu& gpu, int32_t pid, int64_t at_unix_ns) {
  NodeEvent event = about(gpu, "gpu.foreign_process", EventSeverity::kWarn, at_unix_ns);
  event.device.clear();
  event.pid = pid;
  event.process = "python3";
  event.text = format("process %d (%s; user 4711) is on a GPU held by job %s", pid, event.process.c_str(),
                      gpu.held_by.job_id.c_str());
  event.meaning = "a process of somebody else, or of an earlier attempt, uses this rank's GPU";
  event.action = "end that process, or keep it off this GPU";
  event.source = "agent";
  return event;
}

NodeEvent oom_event(const NamedGpu& gpu, int64_t at_unix_ns) {
  NodeEvent event = kernel_event(
      format("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0-1,oom_memcg=/slurm/uid_1000/"
             "job_%s,task_memcg=/slurm/uid_1000/job_%s/step_0,task=python,pid=%d,uid=1000",
             gpu.held_by.job_id.c_str(), gpu.held_by.job_id.c_str(), pid_of(gpu.held_by)),
      at_unix_ns);
  event.job_id = gpu.held_by.job_id;
  event.rank = gpu.held_by.rank;
  return event;
}

NodeEvent link_event(const std::string& interface, bool up, const std::string& where, const NamedGpu& gpu,
                     int64_t at_unix_ns) {
  NodeEvent event =
      about(gpu, up ? "link.up" : "link.down", up ? EventSeverity::kInfo : EventSeverity::kCritical, at_unix_ns);
  event.gpu_uuid.clear();
  event.device = interface;
  event.text = interface + (up ? ": link came up" : ": link lost");
  if (!where.empty()) event.text += " (connected to " + where + ")";
  event.meaning = up ? "The network link came up" : "The network link went down";
  event.action = up ? "" : "check cable, transceiver and the switch's port";
  event.source = "sysfs";
  return event;
}

NodeEvent slower_link_event(const std::string& interface, double before, double now, const std::string& where,
                            const NamedGpu& gpu, int64_t at_unix_ns) {
  NodeEvent event = link_event(interface, true, where, gpu, at_unix_ns);
  const bool slower = now < before;
  event.name = slower ? "link.degraded" : "link.restored";
  event.severity = slower ? EventSeverity::kWarn : EventSeverity::kInfo;
  event.text = format("%s: %g Gb/s -> %g Gb/s", interface.c_str(), before * 8 / 1e9, now * 8 / 1e9);
  if (!where.empty()) event.text += " (connected to " + where + ")";
  event.meaning = slower ? "The link trained down: it is slower than before" : "The link is faster than before";
  event.action = slower ? "check cable, transceiver and the switch's port" : "";
  return event;
}

NodeEvent fewer_lanes_event(const std::string& pci, int32_t before, int32_t now, const NamedGpu* gpu,
                            int64_t at_unix_ns) {
  NodeEvent event;
  event.name = "link.degraded";
  event.time_unix_ns = at_unix_ns;
  event.severity = EventSeverity::kWarn;
  event.device = pci;
  if (gpu != nullptr) event.gpu_uuid = gpu->uuid;
  event.text = format("PCIe link of %s: x%d -> x%d", pci.c_str(), before, now);
  event.meaning = "The PCIe link lost lanes: transfers are slower";
  event.action = "drain the node, reseat the card or riser, reboot";
  event.source = "sysfs";
  return event;
}

ResourceGroup to_group(const NodeEvent& event, const std::string& host) {
  ResourceGroup group;
  group.resource = {{"service.name", "lockstep-agent"}, {"host.name", host}};
  if (!event.gpu_uuid.empty()) group.resource.push_back({"lockstep.gpu_uuid", event.gpu_uuid});
  if (!event.job_id.empty()) group.resource.push_back({"lockstep.job_id", event.job_id});
  if (event.rank != kNoRank) group.resource.push_back({"lockstep.rank", static_cast<int64_t>(event.rank.value())});
  group.scope_name = "lockstep.agent";
  group.logs.push_back(to_record(event));
  return group;
}

}  // namespace lockstep::sim
