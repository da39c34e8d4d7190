"""The signals that are compared: what a person would ask for, and under which names each program has it."""

import re

# Series about the program itself, which are not counted as signals.
OWN = re.compile(
    r"(go_|process_|promhttp_|node_scrape_|node_exporter_|lockstep_agent_|lockstep_plugin_|lockstep_gpu_reader_)"
)


def own_series(line):
    return OWN.match(line) is not None


def names(*of):
    """At the beginning of a line, these names and no longer ones."""
    return r"^(?:" + "|".join(of) + r")(?=[{ ])"


NOTHING = r"(?!)"

# (signal, (node_exporter, lockstep-agent)); patterns match at the beginning of a series' line.
SIGNALS = [
    ("CPU time by mode (node_exporter: each CPU; agent: all, and each NUMA node)",
     (names("node_cpu_seconds_total", "node_cpu_guest_seconds_total"),
      names("system_cpu_time_seconds_total", "lockstep_host_numa_cpu_seconds_total"))),
    ("CPU frequency and throttling",
     (names(r"node_cpu_scaling_\w+", r"node_cpu_frequency_\w+", r"node_cpu_\w*throttles_total"),
      names("lockstep_host_cpu_frequency_hertz", "lockstep_host_cpu_thermal_throttle_total"))),
    ("load, context switches, interrupts, running and blocked tasks",
     (names(r"node_load\d+", "node_context_switches_total", "node_intr_total", r"node_procs_\w+", "node_forks_total"),
      names(r"lockstep_host_load\w*", "lockstep_host_context_switches_total", "lockstep_host_interrupts_total",
            "lockstep_host_softirqs_total", r"lockstep_host_tasks_(?:running|blocked)"))),
    ("pressure (PSI) of the host",
     (names(r"node_pressure_\w+"), names("lockstep_host_pressure_seconds_total", "lockstep_host_pressure"))),
    ("memory",
     (names(r"node_memory_(?!numa)\w+"),
      names(r"system_memory_\w+", "lockstep_host_memory_bytes", r"system_paging_usage\w*"))),
    ("memory of each NUMA node",
     (names(r"node_memory_numa_\w+"), names(r"lockstep_host_numa_(?:pages_total|memory_free_bytes)"))),
    ("reclaim, faults, OOM kills (vmstat)",
     (names(r"node_vmstat_\w+"),
      names("lockstep_host_vm_events_total", r"system_paging_(?:faults|operations)\w*"))),
    ("disks",
     (names(r"node_disk_\w+"), names(r"system_disk_\w+", r"lockstep_host_disk_\w+"))),
    ("NFS (node_exporter: each operation; agent: read, write, metadata)",
     (names(r"node_mountstats_\w+"), names(r"lockstep_storage_\w+"))),
    ("network interfaces",
     (names(r"node_network_\w+"),
      names(r"system_network_\w+", r"lockstep_nic_(?:carrier|carrier_changes_total|speed|mtu)"))),
    ("TCP and softnet",
     (names(r"node_netstat_\w+", r"node_softnet_\w+"), names("lockstep_host_tcp_total", "lockstep_host_softnet_total"))),
    ("RDMA ports: state and counters/",
     (names(r"node_infiniband_\w+"),
      names("lockstep_nic_info", r"hw_network_\w+",
            r"lockstep_nic_(?:port_\w+|symbol_error_total|link_error_recovery_total|link_downed_total"
            r"|local_link_integrity_errors_total|excessive_buffer_overrun_errors_total)"))),
    ("RDMA hw_counters/ (loss, retries, ECN, CNP)",
     (NOTHING,
      names(r"lockstep_nic_(?:rx_write|rx_read)_requests_total",
            r"lockstep_nic_(?:out_of_\w+|duplicate_\w+|rnr_\w+|packet_seq\w+|implied_\w+|local_ack\w+|rp_\w+|np_\w+)",
            r"lockstep_nic_(?:req_\w+|resp_\w+|roce_\w+|rx_icrc\w+|counter_total)"))),
    ("PFC pauses by priority, FEC, PCIe stalls (ethtool)",
     (names(r"node_ethtool_\w+"),
      names(r"lockstep_nic_(?:pause|pfc|priority|phy|fec|pcs|lane|crc|pci|module|buffer|rx_out_of_buffer)\w*",
            "lockstep_nic_link_down_events_total"))),
    ("PCIe links, AER, which GPU is near which NIC",
     (NOTHING, names(r"lockstep_pcie_\w+", "lockstep_gpu_nic_distance"))),
    ("run-queue wait of training threads, by GPU",
     (NOTHING, names(r"lockstep_thread_\w+", r"lockstep_process_\w+"))),
    ("cgroups of the job: throttling, OOM, pressure",
     (NOTHING, names(r"lockstep_cgroup_\w+"))),
    ("tasks in state D, hung tasks, processes",
     (names(r"node_processes_\w+"), names(r"lockstep_host_tasks_uninterruptible\w*", "lockstep_host_hung_tasks_total"))),
    ("memory errors (EDAC)", (names(r"node_edac_\w+"), names("lockstep_host_memory_errors_total"))),
    ("sensors and CPU energy",
     (names(r"node_hwmon_\w+", r"node_rapl_\w+"),
      names("lockstep_host_cpu_temperature", "lockstep_host_cpu_energy_joules_total"))),
    ("clock", (names(r"node_timex_\w+"), names(r"lockstep_host_clock_\w+"))),
    ("kernel log as events, deduplicated", (NOTHING, names(r"lockstep_kernel_\w+"))),
    ("GPUs", (NOTHING, names(r"lockstep_gpu_(?!nic_distance|reader_)\w+", r"hw_gpu_\w+",
                             r"hw_(?:power|energy|temperature|errors)\w*"))),
    ("who holds what: jobs, ranks", (NOTHING, names(r"lockstep_(?:job|gpu_owner)\w*"))),
]  # fmt: skip
