#include "sources/kernel/kernel_lines.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

KernelLine parsed(std::string_view text) {
  static KernelLineParser parser;
  std::optional<KernelLine> line = parser.parse(text);
  EXPECT_TRUE(line) << text;
  return line.value_or(KernelLine{});
}

TEST(KernelLines, AnXidIsReadAsEveryDriverWritesIt) {
  struct Case {
    const char* text;
    const char* pci;
    int64_t code;
    int32_t pid;
    const char* process;
  };
  const Case cases[] = {
      {"NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", "0000:3b:00.0",
       79, -1, ""},
      {"NVRM: Xid (PCI:0000:41:00): 13, pid=1234, name=python, Graphics SM Warp Exception on (GPC 0, TPC 1, SM 0)",
       "0000:41:00.0", 13, 1234, "python"},
      {"NVRM: Xid (PCI:0000:04:00): 31, pid=2384, name=nvc:[driver], Ch 0000000e, intr 00000000. MMU Fault",
       "0000:04:00.0", 31, 2384, "nvc:[driver]"},
      {"NVRM: Xid (0000:03:00): 31, Ch 0000001d, engmask 00000101, intr 10000000", "0000:03:00.0", 31, -1, ""},
      {"NVRM: Xid (PCI:0000:41:00): 43, pid=1234, Ch 00000010", "0000:41:00.0", 43, 1234, ""},
      {"NVRM: Xid (PCI:0000:9B:00 GPU-I:05): 94, pid=7194, Contained: SM (0x1). RST: No, D-RST: No", "0000:9b:00.0", 94,
       7194, ""},
      {"NVRM: Xid (PCI:0000:01:00): 32, Channel ID 00000000 intr 00004000", "0000:01:00.0", 32, -1, ""},
      {"NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149",
       "0000:dc:00.0", 45, 1818990, "python3"},
      {"NVRM: Xid (PCI:0009:01:00): 48, An uncorrectable double bit error (DBE) has been detected", "0009:01:00.0", 48,
       -1, ""},
      {"NVRM: Xid (PCI:0000:01:00): 62", "0000:01:00.0", 62, -1, ""},
      {"[6085126.134786] NVRM: Xid (PCI:0000:01:00): 8, pid=5, name=<unknown>", "0000:01:00.0", 8, 5, ""},
  };
  for (const Case& c : cases) {
    const KernelLine line = parsed(c.text);
    EXPECT_EQ(line.name, "gpu.xid") << c.text;
    EXPECT_EQ(pci_address(line.pci), c.pci) << c.text;
    EXPECT_EQ(line.code, c.code) << c.text;
    EXPECT_EQ(line.pid, c.pid) << c.text;
    EXPECT_EQ(line.process, c.process) << c.text;
    EXPECT_EQ(line.severity, xid_row(c.code).severity) << c.text;
    EXPECT_STREQ(line.meaning, xid_row(c.code).meaning) << c.text;
  }
}

TEST(KernelLines, ALostGpuWithoutANumberIs79) {
  for (const char* text :
       {"NVRM: GPU 0000:07:00.0: GPU has fallen off the bus.", "NVRM: GPU at PCI:0000:07:00 has fallen off the bus.",
        "NVRM: The NVIDIA GPU 0000:07:00.0\nNVRM: (PCI ID: 10de:2330) installed in this system has\n"
        "NVRM: fallen off the bus and is not responding to commands."}) {
    const KernelLine line = parsed(text);
    EXPECT_EQ(line.code, 79) << text;
    EXPECT_EQ(pci_address(line.pci), "0000:07:00.0") << text;
    EXPECT_EQ(line.severity, EventSeverity::kCritical);
    EXPECT_TRUE(line.announces);
  }
}

TEST(KernelLines, ALostGpuMayBeNamedLinesBefore) {
  KernelLineParser parser;
  EXPECT_FALSE(parser.parse("NVRM: The NVIDIA GPU 0000:07:00.0"));
  EXPECT_FALSE(parser.parse("NVRM: (PCI ID: 10de:2330) installed in this system has"));
  std::optional<KernelLine> line = parser.parse("NVRM: fallen off the bus and is not responding to commands.");
  ASSERT_TRUE(line);
  EXPECT_EQ(pci_address(line->pci), "0000:07:00.0");
  for (int i = 0; i < 5; ++i) parser.parse("something else");
  line = parser.parse("NVRM: fallen off the bus and is not responding to commands.");
  ASSERT_TRUE(line);
  EXPECT_EQ(line->pci, "");
}

TEST(KernelLines, NvLink5IsDecodedByItsWords) {
  KernelLine line = parsed(
      "NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000001 "
      "0x00000000 0x00100000 0x00000004)");
  ASSERT_TRUE(line.nvlink);
  EXPECT_EQ(line.nvlink->unit, "RLW_RXPIPE");
  EXPECT_FALSE(line.nvlink->fatal);
  EXPECT_EQ(line.nvlink->link, 13);
  EXPECT_EQ(line.nvlink->intr_info, 0x0409a0c2u);
  EXPECT_EQ(line.nvlink->error_status, 8u);
  EXPECT_EQ(line.severity, EventSeverity::kWarn);
  EXPECT_EQ(nvlink_sub_unit(*line.nvlink, 570), 6);  // bits 9 to 5
  // The same unit of a newer driver: bits 6 to 0.
  line =
      parsed("NVRM: Xid (PCI:0001:00:00): 145, RLW_REMAP Fatal XC1 i0 Link 10 (0x00000004 0x00000040 0x0 0x0 0x0 0x0)");
  ASSERT_TRUE(line.nvlink);
  EXPECT_EQ(nvlink_sub_unit(*line.nvlink, 580), 4);
  EXPECT_EQ(nvlink_sub_unit({"RLW_REMAP", true, 10, 0x82, 0x40}, 570), 4);
  EXPECT_EQ(line.severity, EventSeverity::kCritical);
  line =
      parsed("NVRM: Xid (PCI:0019:01:00): 149, NETIR  Fatal   XC0 i0 Link -1 (0x000fe406 0x00000000 0x0 0x0 0x0 0x0)");
  ASSERT_TRUE(line.nvlink);
  EXPECT_EQ(line.nvlink->link, -1);
  EXPECT_EQ(line.severity, EventSeverity::kCritical);
}

TEST(KernelLines, NvLink5WithoutItsWordsIsAsTheTableSays) {
  const KernelLine line = parsed("NVRM: Xid (PCI:0018:01:00): 145, something new");
  EXPECT_FALSE(line.nvlink);
  EXPECT_EQ(line.severity, EventSeverity::kWarn);
}

TEST(KernelLines, ARecoveryActionIsObeyed) {
  KernelLine line = parsed(
      "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)");
  EXPECT_EQ(line.recovery, 2);
  EXPECT_EQ(line.severity, EventSeverity::kCritical);
  EXPECT_STREQ(line.action, "drain the node and reboot it");
  line = parsed(
      "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)");
  EXPECT_EQ(line.recovery, 0);
  EXPECT_EQ(line.severity, EventSeverity::kInfo);
  EXPECT_EQ(parsed("NVRM: Xid (PCI:0000:01:00): 154, in other words").severity, EventSeverity::kWarn);
}

TEST(KernelLines, TheDriverTellsWhichGpuIsWhere) {
  const KernelLine line = parsed("NVRM: GPU at PCI:0000:5d:00: GPU-b8ad1234-0000-0000-0000-000000000000");
  EXPECT_EQ(line.name, "");
  EXPECT_EQ(pci_address(line.pci), "0000:5d:00.0");
  EXPECT_EQ(line.gpu_uuid, "GPU-b8ad1234-0000-0000-0000-000000000000");
}

TEST(KernelLines, NvSwitchErrorsAreReadOnce) {
  KernelLine line = parsed("nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up");
  EXPECT_EQ(line.name, "nvswitch.sxid");
  EXPECT_EQ(line.device, "0000:05:00.0");
  EXPECT_EQ(line.code, 20034);
  EXPECT_EQ(line.sub_code, 30);
  EXPECT_EQ(line.severity, EventSeverity::kCritical);
  line = parsed(
      "nvidia-nvswitch3: SXid (PCI:0000:08:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)");
  EXPECT_EQ(line.severity, EventSeverity::kWarn);
  KernelLineParser parser;
  EXPECT_FALSE(parser.parse("nvidia-nvswitch3: SXid (PCI:0000:08:00.0): 12028, Severity 0 Engine instance 32"));
  EXPECT_FALSE(parser.parse("nvidia-nvswitch3: SXid (PCI:0000:08:00.0): 12028, Data {0x00000000, 0x00000000}"));
}

TEST(KernelLines, PcieErrorsNameDeviceAndSeverity) {
  struct Case {
    const char* text;
    const char* device;
    EventSeverity severity;
    bool announces;
  };
  const Case cases[] = {
      {"pcieport 0000:00:1c.0: AER: Corrected error received: 0000:01:00.0", "0000:01:00.0", EventSeverity::kInfo,
       true},
      {"pcieport 0000:5d:00.0: AER: Multiple Corrected error received: 0000:5e:00.0", "0000:5e:00.0",
       EventSeverity::kInfo, true},
      {"pcieport 0000:00:03.0: AER: Uncorrected (Fatal) error received: id=0018", "0000:00:03.0",
       EventSeverity::kCritical, true},
      {"pcieport 0000:00:01.0: AER: Correctable error message received from 0000:01:00.0 (no details found",
       "0000:01:00.0", EventSeverity::kInfo, true},
      {"nvidia 0000:1b:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)", "0000:1b:00.0",
       EventSeverity::kInfo, false},
      {"pcieport 0000:00:01.0: AER: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction Layer",
       "0000:00:01.0", EventSeverity::kWarn, false},
      {"mlx5_core 0000:12:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)",
       "0000:12:00.0", EventSeverity::kCritical, false},
      {"pcieport 0000:80:01.0: DPC: containment event, status:0x1f01 source:0x0000", "0000:80:01.0",
       EventSeverity::kCritical, false},
      {"pcieport 0000:80:01.0: AER: device recovery failed", "0000:80:01.0", EventSeverity::kCritical, false},
  };
  for (const Case& c : cases) {
    const KernelLine line = parsed(c.text);
    EXPECT_EQ(line.name, "pcie.aer") << c.text;
    EXPECT_EQ(line.device, c.device) << c.text;
    EXPECT_EQ(line.severity, c.severity) << c.text;
    EXPECT_EQ(line.announces, c.announces) << c.text;
  }
}

TEST(KernelLines, LinksGoDownAndUpInManyWords) {
  struct Case {
    const char* text;
    const char* name;
    const char* device;
  };
  const Case cases[] = {
      {"mlx5_core 0000:5e:00.0 eth4: Link down", "link.down", "eth4"},
      {"mlx5_core 0000:5e:00.0: eth4: Link down", "link.down", "eth4"},
      {"mlx5_core 0000:5e:00.0 ens1f0np0: Link up", "link.up", "ens1f0np0"},
      {"ixgbe 0000:05:00.0 eth0: NIC Link is Down", "link.down", "eth0"},
      {"igb 0000:01:00.0 eno1: igb: eno1 NIC Link is Up 1000 Mbps Full Duplex, Flow Control: RX", "link.up", "eno1"},
      {"bnxt_en 0000:19:00.0 eth0: NIC Link is Up, 100000 Mbps full duplex", "link.up", "eth0"},
      {"tg3 0000:02:00.0 eth1: Link is down", "link.down", "eth1"},
      {"bond0: (slave eth4): link status definitely down, disabling slave", "link.down", "eth4"},
      {"bond0: (slave eth4): link status definitely up, 100000 Mbps full duplex", "link.up", "eth4"},
      {"pcieport 0000:64:01.0: pciehp: Slot(5): Link Down", "pcie.link_down", "0000:64:01.0"},
  };
  for (const Case& c : cases) {
    const KernelLine line = parsed(c.text);
    EXPECT_EQ(line.name, c.name) << c.text;
    EXPECT_EQ(line.device, c.device) << c.text;
    EXPECT_TRUE(line.is_state) << c.text;
  }
}

TEST(KernelLines, NetworkCardsTellOfTheirHealth) {
  struct Case {
    const char* text;
    const char* name;
    EventSeverity severity;
  };
  const Case cases[] = {
      {"mlx5_core 0000:0d:00.0: poll_health:801:(pid 0): device's health compromised - reached miss count",
       "nic.health", EventSeverity::kCritical},
      {"mlx5_core 0000:0d:00.0: poll_health:825:(pid 0): Fatal error 3 detected", "nic.health",
       EventSeverity::kCritical},
      {"mlx5_core 0000:0d:00.0: print_health_info:431:(pid 0): Health issue observed, firmware internal error, "
       "severity(3) ERROR:",
       "nic.health", EventSeverity::kCritical},
      {"mlx5_core 0000:00:00.1: mlx5_health_try_recover:338:(pid 5553): health recovery flow aborted, PCI reads still "
       "not working",
       "nic.health", EventSeverity::kCritical},
      {"mlx5_core 0000:03:00.0: wait_func:1195:(pid 1967079): ENABLE_HCA(0x104) timeout. Will cause a leak of a "
       "command "
       "resource",
       "nic.health", EventSeverity::kWarn},
      {"mlx5_core 0000:06:00.0: wait_func_handle_exec_timeout:1128:(pid 185911): cmd[2]: CREATE_UCTX(0xa04) No done "
       "completion",
       "nic.health", EventSeverity::kWarn},
      {"mlx5_core 0000:5c:00.0: mlx5_pcie_event:299:(pid 268269): Detected insufficient power on the PCIe slot (27W).",
       "nic.health", EventSeverity::kWarn},
      {"mlx5_core 0000:12:00.0: Port module event[error]: module 0, Cable error, Bus stuck (I2C or data shorted)",
       "nic.module", EventSeverity::kWarn},
      {"mlx5_core 0000:12:00.0: Port module event: module 0, Cable unplugged", "nic.module", EventSeverity::kWarn},
      {"mlx5_core 0000:12:00.0: Port module event: module 0, Cable plugged", "nic.module", EventSeverity::kInfo},
  };
  for (const Case& c : cases) {
    const KernelLine line = parsed(c.text);
    EXPECT_EQ(line.name, c.name) << c.text;
    EXPECT_EQ(line.severity, c.severity) << c.text;
    EXPECT_FALSE(pci_address(line.device).empty()) << c.text;
  }
}

TEST(KernelLines, AnOomKillNamesItsVictim) {
  KernelLine line = parsed(
      "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0-1,oom_memcg=/slurm/uid_1000/job_42,"
      "task_memcg=/slurm/uid_1000/job_42/step_0,task=py,thon,pid=12345,uid=1000");
  EXPECT_EQ(line.name, "host.oom_kill");
  EXPECT_EQ(line.pid, 12345);
  EXPECT_EQ(line.process, "py,thon");
  EXPECT_EQ(line.cgroup, "/slurm/uid_1000/job_42/step_0");
  EXPECT_EQ(line.severity, EventSeverity::kApp);
  line = parsed("oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),task_memcg=/,task=python,pid=7,uid=0");
  EXPECT_EQ(line.severity, EventSeverity::kCritical);
  line = parsed("Memory cgroup out of memory: Killed process 12345 (py (x) thon) total-vm:1kB, anon-rss:1kB");
  EXPECT_EQ(line.pid, 12345);
  EXPECT_EQ(line.process, "py (x");  // the kernel does not quote it
  EXPECT_TRUE(line.announces);
  EXPECT_EQ(parsed("Out of memory: Kill process 9 (java) score 900 or sacrifice child").severity,
            EventSeverity::kCritical);
}

TEST(KernelLines, AHungTaskIsNamedWhateverItIsCalled) {
  KernelLine line = parsed("INFO: task kworker/13:2:4055883 blocked for more than 120 seconds.");
  EXPECT_EQ(line.name, "host.hung_task");
  EXPECT_EQ(line.process, "kworker/13:2");
  EXPECT_EQ(line.pid, 4055883);
  line = parsed("INFO: task a task: b:77 blocked in I/O wait for more than 120 seconds.");
  EXPECT_EQ(line.process, "a task: b");
  EXPECT_EQ(line.pid, 77);
}

TEST(KernelLines, MachineChecksAndMemoryErrors) {
  EXPECT_EQ(parsed("mce: [Hardware Error]: Machine check events logged").severity, EventSeverity::kWarn);
  EXPECT_EQ(parsed("mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 4: b200000000070f0f").severity,
            EventSeverity::kCritical);
  EXPECT_EQ(parsed("{1}[Hardware Error]: event severity: corrected").severity, EventSeverity::kWarn);
  EXPECT_EQ(parsed("{1}[Hardware Error]: event severity: fatal").severity, EventSeverity::kCritical);
  KernelLine line = parsed("EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0)");
  EXPECT_EQ(line.name, "host.mce");
  EXPECT_EQ(line.device, "MC0");
  EXPECT_EQ(line.severity, EventSeverity::kWarn);
  EXPECT_EQ(parsed("EDAC MC1: 1 UE memory scrubbing error on DIMM_A1").severity, EventSeverity::kCritical);
  EXPECT_EQ(parsed("Memory failure: 0x1234: recovery action for dirty LRU page: Recovered").name, "host.mce");
  EXPECT_EQ(parsed("mce: CPU2: Core temperature above threshold, cpu clock throttled (total events = 1)").name,
            "host.cpu_throttled");
}

TEST(KernelLines, FileServersComeAndGo) {
  KernelLine line = parsed("nfs: server 10.0.0.5 not responding, still trying");
  EXPECT_EQ(line.name, "storage.nfs");
  EXPECT_EQ(line.device, "10.0.0.5");
  EXPECT_EQ(line.severity, EventSeverity::kWarn);
  EXPECT_EQ(parsed("nfs: server filer-1.example OK").severity, EventSeverity::kInfo);
  EXPECT_EQ(parsed("nfs: server [fd00::1] not responding, timed out").device.empty(), false);
}

TEST(KernelLines, OrdinaryLinesAreNothing) {
  KernelLineParser parser;
  for (const char* text : {"",
                           "NVRM: ",
                           "NVRM: Xid",
                           "NVRM: Xid (",
                           "NVRM: Xid (PCI:0000:66:00): abc, pid=2280636",
                           "NVRM: Xid (PCI:0000:66:00)",
                           "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.86.10",
                           "nvidia-nvswitch0: open (major=510)",
                           "pcieport 0000:00:1c.0: AER: enabled with IRQ 122",
                           "pcieport 0000:00:1c.0: AER: device recovery successful",
                           "mlx5_core 0000:5e:00.0: firmware version: 28.39.1002",
                           "mlx5_core",
                           "ata1: SATA link down (SStatus 0)",
                           "IPv6: ADDRCONF(NETDEV_CHANGE): eth4: link becomes ready",
                           "EDAC MC0: Giving out device to module skx_edac",
                           "INFO: task x",
                           "INFO: rcu_sched self-detected stall",
                           "nfs: RPC call returned error 101",
                           "oom-kill:",
                           "Link ",
                           "python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0",
                           " Link down",
                           "mce: Using 32 MCE banks"})
    EXPECT_FALSE(parser.parse(text)) << text;
}

TEST(KernelLines, PciAddressesAreWrittenOneWay) {
  EXPECT_EQ(pci_address("PCI:0000:1B:00"), "0000:1b:00.0");
  EXPECT_EQ(pci_address("00000000:1B:00.0"), "0000:1b:00.0");
  EXPECT_EQ(pci_address("00010000:1B:00.0"), "10000:1b:00.0");
  EXPECT_EQ(pci_address("1b:00.1"), "0000:1b:00.1");
  for (const char* text :
       {"", ":", "::", "0000:1b", "0000:1b:000", "x:y", "0000:1b:00.", "12:34:56:78", "0000:1b:00.x"})
    EXPECT_EQ(pci_address(text), "") << text;
}

TEST(KernelLines, AlikeIsWhatDiffersInNumbersOnly) {
  const auto alike = [](const char* a, const char* b) {
    return hash_without_numbers(a, 0) == hash_without_numbers(b, 0);
  };
  EXPECT_TRUE(alike("GPC 7, TPC 12, SM 0", "GPC 0, TPC 1, SM 1"));
  EXPECT_TRUE(alike("Ch 0000001d, intr 00000000", "Ch 000000ff, intr 10000000"));
  EXPECT_TRUE(alike("ESR 0x57c730=0xc04000b", "ESR 0x57c734=0x24"));
  EXPECT_TRUE(alike("GPC7 at 0xdeadbeef", "GPC11 at 0x0"));
  EXPECT_FALSE(alike("Illegal Address", "Illegal Instruction"));
  EXPECT_FALSE(alike("bad cafe 1", "bad face 1"));  // words without a digit are words
}

}  // namespace
}  // namespace lockstep
