// Every number that we keep about a host beside its GPUs and NICs, one row each. Where "gpu_uuid" is a label, the
// number is about the processes on that GPU (the one of which they hold most memory); an empty gpu_uuid stands for
// training processes whose GPU is not known.
//
// The table is one macro, so that the enumerators and the rows cannot drift apart:
//   X(enumerator, name, unit, kind, labels, quantum, help)
// Thread rule: Immutable.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/metric_descriptor.h"

namespace lockstep {

// clang-format off
#define LOCKSTEP_HOST_METRICS(X) \
  /* CPU */ \
  X(kCpuTime, "system.cpu.time", "s", kSum, "cpu.mode", 0, "Time of all CPUs by mode: user, nice, system, idle, iowait, interrupt, softirq, steal") \
  X(kCpuCount, "system.cpu.logical.count", "{cpu}", kGauge, "", 0, "Logical CPUs that are online") \
  X(kNumaCpuTime, "lockstep_host_numa_cpu_seconds_total", "s", kSum, "node, mode", 0, "Time of the CPUs of a NUMA node by mode (user with nice, system with interrupts, idle, iowait), since the agent started") \
  X(kLoad, "lockstep_host_load_1m", "1", kGauge, "", 1.0 / 16, "Load average of a minute: tasks that run, wait for a CPU or sleep uninterruptibly") \
  X(kContextSwitches, "lockstep_host_context_switches_total", "{switch}", kSum, "", 0, "Context switches of all CPUs") \
  X(kInterrupts, "lockstep_host_interrupts_total", "{interrupt}", kSum, "", 0, "Interrupts served by all CPUs") \
  X(kSoftirqs, "lockstep_host_softirqs_total", "{softirq}", kSum, "", 0, "Soft interrupts served by all CPUs") \
  X(kTasksRunning, "lockstep_host_tasks_running", "{task}", kGauge, "", 0, "Tasks that run or wait for a CPU") \
  X(kTasksBlocked, "lockstep_host_tasks_blocked", "{task}", kGauge, "", 0, "Tasks that wait for block I/O") \
  X(kCpuFrequency, "lockstep_host_cpu_frequency_hertz", "Hz", kGauge, "of", 1 << 20, "Frequency of the CPUs that trainer and NCCL threads last ran on (else of a rotating sample): mean, slowest") \
  X(kCpuThrottled, "lockstep_host_cpu_thermal_throttle_total", "{event}", kSum, "package", 0, "Times that a CPU package slowed itself because of heat") \
  X(kCpuTemperature, "lockstep_host_cpu_temperature", "Cel", kGauge, "package", 1, "Temperature of a CPU package") \
  X(kCpuEnergy, "lockstep_host_cpu_energy_joules_total", "J", kSum, "package", 0, "Energy that a CPU package took, since the agent started") \
  /* Scheduling delay of training processes */ \
  X(kThreadWait, "lockstep_thread_runqueue_wait_seconds_total", "s", kSum, "gpu_uuid, thread_class", 0, "Time that threads were ready and had no CPU, since the agent started; classes: trainer (main and autograd threads), nccl (its proxies), dataloader (loader threads and worker processes), unnamed (named like their process: NCCL's proxies too, unless NCCL_SET_THREAD_NAME=1 is set), other") \
  X(kThreadWaitWorst, "lockstep_thread_runqueue_wait_worst", "1", kGauge, "gpu_uuid, thread_class", 1.0 / 256, "Share of the time since the last reading in which the worst thread of a class was ready and had no CPU") \
  X(kThreadCpu, "lockstep_thread_cpu_seconds_total", "s", kSum, "gpu_uuid, thread_class", 0, "Time that threads ran, since the agent started") \
  X(kThreadSwitches, "lockstep_thread_involuntary_switches_total", "{switch}", kSum, "gpu_uuid, thread_class", 0, "Times that a thread was made to give up its CPU, since the agent started; of trainer, nccl and dataloader threads") \
  X(kThreads, "lockstep_process_threads", "{thread}", kGauge, "gpu_uuid", 0, "Threads of the training processes of a GPU, with their worker processes") \
  X(kNumaRemote, "lockstep_process_numa_remote", "1", kGauge, "gpu_uuid", 1.0 / 256, "Share of the CPUs that the process may run on which are not local to its GPU: 0 pinned well, 1 pinned to the wrong socket") \
  /* Their cgroups */ \
  X(kCgroupPressure, "lockstep_cgroup_pressure_seconds_total", "s", kSum, "gpu_uuid, resource, scope", 0, "Time that the cgroup of the training process stalled for cpu, memory or io (some: a task; full: all of them), since the agent started") \
  X(kCgroupThrottled, "lockstep_cgroup_cpu_throttled_seconds_total", "s", kSum, "gpu_uuid", 0, "Time that the CPU quota held the cgroup of the training process back, since the agent started") \
  X(kCgroupThrottledPeriods, "lockstep_cgroup_cpu_throttled_periods_total", "{period}", kSum, "gpu_uuid", 0, "Quota periods in which the cgroup of the training process was held back, since the agent started") \
  X(kCgroupOomKills, "lockstep_cgroup_oom_kills_total", "{process}", kSum, "gpu_uuid", 0, "Processes of the cgroup that were killed for want of memory, since the agent started") \
  X(kCgroupMemory, "lockstep_cgroup_memory_bytes", "By", kGauge, "gpu_uuid", 1 << 20, "Memory charged to the cgroup of the training process") \
  X(kCgroupMemoryLimit, "lockstep_cgroup_memory_limit_bytes", "By", kGauge, "gpu_uuid", 1 << 20, "The lowest memory limit that holds for the cgroup of the training process; none: not sent") \
  /* Pressure of the host */ \
  X(kPressure, "lockstep_host_pressure_seconds_total", "s", kSum, "resource, scope", 0, "Time that tasks stalled for cpu, memory, io or irq (some: a task; full: all of them)") \
  X(kPressureRatio, "lockstep_host_pressure", "1", kGauge, "resource, scope", 1.0 / 1024, "Share of the last ten seconds in which tasks stalled for cpu, memory, io or irq") \
  /* Memory */ \
  X(kMemoryUsage, "system.memory.usage", "By", kGauge, "system.memory.state", 1 << 20, "Memory by state: used, free, buffers, cached") \
  X(kMemoryLimit, "system.memory.limit", "By", kGauge, "", 0, "Memory of the host") \
  X(kMemoryAvailable, "system.memory.linux.available", "By", kGauge, "", 1 << 20, "Memory that programs could still get without swapping") \
  X(kMemoryShared, "system.memory.linux.shared", "By", kGauge, "", 1 << 20, "Shared memory and tmpfs: data loaders and NCCL live here") \
  X(kMemoryKind, "lockstep_host_memory_bytes", "By", kGauge, "kind", 1 << 20, "Memory by kind: dirty and writeback (on their way to disk), mlocked (pinned), slab_unreclaimable, hugepages_free") \
  X(kSwap, "system.paging.usage", "By", kGauge, "system.paging.state", 1 << 20, "Swap space by state: used, free") \
  X(kMajorFaults, "system.paging.faults", "{fault}", kSum, "system.paging.fault.type", 0, "Page faults that needed a disk") \
  X(kSwapPages, "system.paging.operations", "{operation}", kSum, "system.paging.direction", 0, "Pages swapped in and out") \
  X(kVmEvents, "lockstep_host_vm_events_total", "{event}", kSum, "event", 0, "What the kernel counts of reclaim: pgscan_direct, allocstall, compact_stall, thp_fault_fallback, workingset_refault, numa_miss, numa_hint_faults, oom_kill") \
  X(kNumaPages, "lockstep_host_numa_pages_total", "{page}", kSum, "node, event", 0, "Pages given out on a NUMA node: numa_miss (wanted elsewhere), numa_foreign (wanted here, given elsewhere), other_node (given to a task that ran elsewhere)") \
  X(kNumaFree, "lockstep_host_numa_memory_free_bytes", "By", kGauge, "node", 1 << 20, "Free memory of a NUMA node") \
  /* Disks */ \
  X(kDiskIo, "system.disk.io", "By", kSum, "system.device, disk.io.direction", 0, "Bytes read from and written to a disk") \
  X(kDiskOperations, "system.disk.operations", "{operation}", kSum, "system.device, disk.io.direction", 0, "Reads and writes that a disk has done") \
  X(kDiskOperationTime, "system.disk.operation_time", "s", kSum, "system.device, disk.io.direction", 0, "Time of all reads and writes together") \
  X(kDiskIoTime, "system.disk.io_time", "s", kSum, "system.device", 0, "Time in which a disk had something to do") \
  X(kDiskInFlight, "lockstep_host_disk_in_flight", "{operation}", kGauge, "system.device", 0, "Operations that a disk has accepted and not finished") \
  X(kDiskLatency, "lockstep_host_disk_latency_seconds", "s", kGauge, "system.device, disk.io.direction", 1.0 / 16384, "Mean time of an operation since the last reading; not sent when there was none") \
  /* Shared storage: NFS mounts and Lustre file systems */ \
  X(kStorageOperations, "lockstep_storage_operations_total", "{operation}", kSum, "mount, op", 0, "Requests to a file server: read, write, metadata (all others)") \
  X(kStorageBytes, "lockstep_storage_io_bytes_total", "By", kSum, "mount, op", 0, "Bytes read from and written to a file server") \
  X(kStorageQueue, "lockstep_storage_queue_seconds_total", "s", kSum, "mount, op", 0, "Time that requests waited in this client before they were sent") \
  X(kStorageRtt, "lockstep_storage_rtt_seconds_total", "s", kSum, "mount, op", 0, "Time from sending requests to their answers: the network and the server") \
  X(kStorageExecute, "lockstep_storage_execute_seconds_total", "s", kSum, "mount, op", 0, "Time of requests from their making to their end") \
  X(kStorageRttMean, "lockstep_storage_rtt_seconds", "s", kGauge, "mount, op", 1.0 / 16384, "Mean time from sending a request to its answer, since the last reading; not sent when there was none") \
  X(kStorageRetransmissions, "lockstep_storage_retransmissions_total", "{request}", kSum, "mount", 0, "Requests that had to be sent again") \
  X(kStorageTimeouts, "lockstep_storage_timeouts_total", "{request}", kSum, "mount", 0, "Requests that a file server did not answer in time") \
  /* Tasks, network stack, hardware, clock */ \
  X(kTasksUninterruptible, "lockstep_host_tasks_uninterruptible", "{task}", kGauge, "kind", 0, "Tasks in state D: threads of training processes (training), kernel threads (kernel), other processes (other)") \
  X(kTasksUninterruptibleWait, "lockstep_host_tasks_uninterruptible_wait", "{task}", kGauge, "wait", 0, "Tasks in state D by what they wait for: nfs, lustre, block, gpu, memory, lock, unknown; sent once one was seen") \
  X(kHungTasks, "lockstep_host_hung_tasks_total", "{task}", kSum, "", 0, "Tasks that the kernel found hung") \
  X(kSoftnet, "lockstep_host_softnet_total", "{event}", kSum, "event", 0, "Packets that the kernel had no room for (dropped), polls that it had to break off (squeezed), since the agent started") \
  X(kTcp, "lockstep_host_tcp_total", "{event}", kSum, "event", 0, "What TCP counts: retransmits (segments), listen_drops, listen_overflows, timeouts") \
  X(kMemoryErrors, "lockstep_host_memory_errors_total", "{error}", kSum, "kind", 0, "Memory errors that the controllers counted: corrected, uncorrected") \
  X(kClockOffset, "lockstep_host_clock_offset_seconds", "s", kGauge, "", 1.0 / (1 << 24), "What the kernel still has to slew the clock by") \
  X(kClockError, "lockstep_host_clock_error_seconds", "s", kGauge, "of", 1.0 / (1 << 20), "Error of the clock as its daemon reported it to the kernel: estimated, most") \
  X(kClockSynchronized, "lockstep_host_clock_synchronized", "1", kGauge, "", 0, "1 while the kernel's clock follows a time server") \
  X(kClockSteps, "lockstep_host_clock_steps_total", "{step}", kSum, "", 0, "Jumps of the clock by more than half a second, since the agent started")
// clang-format on

enum class HostMetric : uint8_t {
#define LOCKSTEP_HOST_ENUMERATOR(enumerator, ...) enumerator,
  LOCKSTEP_HOST_METRICS(LOCKSTEP_HOST_ENUMERATOR)
#undef LOCKSTEP_HOST_ENUMERATOR
};

inline constexpr MetricDescriptor kHostMetrics[] = {
#define LOCKSTEP_HOST_ROW(enumerator, name, unit, kind, labels, quantum, help) \
  {name, unit, MetricKind::kind, labels, help, quantum},
    LOCKSTEP_HOST_METRICS(LOCKSTEP_HOST_ROW)
#undef LOCKSTEP_HOST_ROW
};

constexpr const MetricDescriptor& row(HostMetric metric) {
  return kHostMetrics[static_cast<size_t>(metric)];
}

}  // namespace lockstep
