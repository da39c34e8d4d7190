#include "sources/nic/pci_path.h"

#include <gtest/gtest.h>

#include "sources/nic/testing.h"

namespace lockstep {
namespace {

using nic_testing::expect_well_formed;
using nic_testing::tick_at;
using nic_testing::Tree;
using nic_testing::value_of;

PciDevice device(const std::string& path, int numa_node = 0) {
  PciDevice found = pci_device_from_path("/sys/devices/" + path);
  found.numa_node = numa_node;
  return found;
}

TEST(NicPciPath, ReadsTheChainOfBridges) {
  PciDevice gpu = device("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:1B:00.0");
  EXPECT_EQ(gpu.address, "0000:1b:00.0");
  EXPECT_EQ(gpu.chain.size(), 5u);
  EXPECT_EQ(device("pci0000:00/0000:00:03.0/virtio2/net/eth0").address, "0000:00:03.0");
  EXPECT_EQ(device("LNXSYSTM:00/VMBUS:01/47505500/pci0101:00/0101:00:00.0").address, "0101:00:00.0");
  EXPECT_EQ(device("pci10000:e0/10000:e0:06.0").address, "10000:e0:06.0");
  EXPECT_TRUE(device("virtual/net/lo").chain.empty());
  EXPECT_TRUE(device("pci0000:00").chain.empty());
  EXPECT_TRUE(device("").chain.empty());
}

TEST(NicPciPath, KnowsHowFarDevicesAreApart) {
  const PciDevice gpu = device("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0");
  const PciDevice same_switch = device("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:02.0/0000:1a:00.0");
  const PciDevice next_switch =
      device("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:03.0/0000:1c:00.0/0000:1d:00.0/0000:1e:00.0");
  const PciDevice same_bridge = device("pci0000:15/0000:15:02.0/0000:20:00.0");
  const PciDevice same_node = device("pci0000:37/0000:37:01.0/0000:38:00.0");
  const PciDevice other_node = device("pci0000:97/0000:97:01.0/0000:98:00.0", 1);
  EXPECT_EQ(pci_distance(gpu, same_switch), PciDistance::kPix);
  EXPECT_EQ(pci_distance(gpu, next_switch), PciDistance::kPxb);
  EXPECT_EQ(pci_distance(gpu, same_bridge), PciDistance::kPhb);
  EXPECT_EQ(pci_distance(gpu, same_node), PciDistance::kNode);
  EXPECT_EQ(pci_distance(gpu, other_node), PciDistance::kSys);
  for (const PciDevice* other : {&same_switch, &next_switch, &same_bridge, &same_node, &other_node}) {
    EXPECT_EQ(pci_distance(gpu, *other), pci_distance(*other, gpu));
  }
  EXPECT_EQ(pci_distance(device("pci0000:15/0000:15:01.0", -1), device("pci0000:37/0000:37:01.0", -1)),
            PciDistance::kSys)
      << "no NUMA node is not the same NUMA node";
  EXPECT_EQ(nccl_path_number(PciDistance::kPix), 4);
  EXPECT_EQ(nccl_path_number(PciDistance::kPxb), 5);
  EXPECT_EQ(nccl_path_number(PciDistance::kPhb), 8);
  EXPECT_EQ(nccl_path_number(PciDistance::kSys), 9);
}

TEST(NicPciPath, GivesEachAdapterOnASharedSwitchItsOwnGpu) {
  auto under = [](const std::string& name, const std::string& last) {
    return NamedPciDevice{name,
                          device("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:" + last + ".0/0000:" + last + ":00.0")};
  };
  PciMap map = map_pci({under("GPU-b", "19"), under("GPU-a", "18")},
                       {under("mlx5_1", "1b"),
                        under("mlx5_0", "1a"),
                        {"eth0", device("pci0000:97/0000:97:01.0/0000:98:00.0", 1)},
                        {"dummy", {}}});
  EXPECT_EQ(map.gpu_of_nic["mlx5_0"], "GPU-a");
  EXPECT_EQ(map.gpu_of_nic["mlx5_1"], "GPU-b");
  EXPECT_FALSE(map.gpu_of_nic.contains("eth0")) << "a GPU of another node is not near";
  EXPECT_EQ(map.gpus_of_nic["mlx5_0"].names, (std::vector<std::string>{"GPU-a", "GPU-b"}));
  EXPECT_EQ(map.gpus_of_nic["mlx5_0"].distance, PciDistance::kPix);
  EXPECT_EQ(map.nics_of_gpu["GPU-a"].names, (std::vector<std::string>{"mlx5_0", "mlx5_1"}));
  EXPECT_TRUE(map.gpus_of_nic["eth0"].names.empty());
  EXPECT_EQ(map.distances.size(), 6u) << "what has no PCI address has no distance";
}

TEST(NicPciPath, UnderstandsLinkAndErrorFiles) {
  EXPECT_EQ(parse_link_speed("32.0 GT/s PCIe"), 32e9);
  EXPECT_EQ(parse_link_speed("2.5 GT/s PCIe"), 2.5e9);
  EXPECT_FALSE(parse_link_speed("Unknown"));
  EXPECT_FALSE(parse_link_speed("Unknown speed"));
  EXPECT_EQ(parse_aer_total("RxErr 1\nBadTLP 2\nTOTAL_ERR_COR 9\n"), 9u);
  EXPECT_EQ(parse_aer_total("RxErr 1\nBadTLP 2\n"), 3u);
  EXPECT_FALSE(parse_aer_total(""));
  EXPECT_FALSE(parse_aer_total("nothing to see"));
}

TEST(NicPciPath, PublishesLinksAndTellsWhenLanesAreLost) {
  Tree tree;
  const std::string gpu = tree.pci("pci0000:15/0000:15:01.0/0000:18:00.0", 1);
  tree.write(gpu + "/current_link_width", "16\n");
  tree.write(gpu + "/max_link_width", "16\n");
  tree.write(gpu + "/current_link_speed", "32.0 GT/s PCIe\n");
  tree.write(gpu + "/max_link_speed", "32.0 GT/s PCIe\n");
  tree.write(gpu + "/aer_dev_correctable", "RxErr 4\nTOTAL_ERR_COR 4\n");
  const std::string virtual_one = tree.pci("pci0000:15/0000:15:02.0", -1);
  tree.write(virtual_one + "/current_link_width", "0\n");
  tree.write(virtual_one + "/current_link_speed", "Unknown\n");
  NicContext context(tree.root());
  PciDevices devices(context);
  const std::vector<PciDevice> list{pci_device_at(tree.root() + "/sys/bus/pci/devices/0000:18:00.0"),
                                    pci_device_at(tree.root() + "/sys/bus/pci/devices/0000:15:02.0")};
  OwnerTable owners;
  owners.gpus.push_back({.uuid = "GPU-a", .pci = "0000:18:00.0"});
  NodeReadings out;
  devices.read(tick_at(0, true, &owners), list, out);
  expect_well_formed(out);
  const Labels pci{{"pci", "0000:18:00.0"}};
  EXPECT_EQ(value_of(out, "lockstep_pcie_link_width", pci), 16);
  EXPECT_EQ(value_of(out, "lockstep_pcie_link_speed", pci), 32e9);
  EXPECT_EQ(value_of(out, "lockstep_pcie_numa_node", pci), 1);
  EXPECT_EQ(value_of(out, "lockstep_pcie_aer_total", {{"pci", "0000:18:00.0"}, {"severity", "correctable"}}), 4);
  EXPECT_FALSE(value_of(out, "lockstep_pcie_aer_total", {{"severity", "fatal"}})) << "the kernel does not tell";
  EXPECT_FALSE(value_of(out, "lockstep_pcie_link_width", {{"pci", "0000:15:02.0"}}));
  EXPECT_FALSE(value_of(out, "lockstep_pcie_numa_node", {{"pci", "0000:15:02.0"}}));

  tree.write(gpu + "/current_link_width", "8\n");
  tree.write(gpu + "/current_link_speed", "2.5 GT/s PCIe\n");
  NodeReadings worse;
  devices.read(tick_at(10, true, &owners), list, worse);
  ASSERT_EQ(worse.events.size(), 1u) << "a lower speed is a GPU at rest; fewer lanes are a fault";
  EXPECT_EQ(worse.events[0].name, "link.degraded");
  EXPECT_EQ(worse.events[0].gpu_uuid, "GPU-a");
  EXPECT_EQ(worse.events[0].text, "PCIe link of 0000:18:00.0: x16 -> x8");
}

}  // namespace
}  // namespace lockstep
