#include "sources/ownership/pod_resources.h"

#include <gtest/gtest.h>

#include "sources/ownership/test_pods.h"

namespace lockstep {
namespace {

using testing::pod_answer;
using testing::TestPod;

TEST(PodResources, FindsTheGpusOfEveryContainer) {
  const std::string bytes = pod_answer({{"team", "llama-0", "trainer", {"GPU-a", "GPU-b"}},
                                        {"kube-system", "dns", "dns", {}},
                                        {"ml", "infer-1", "server", {"GPU-c::2", "mlx5_0"}}});
  const Result<PodDevices> found = parse_pod_resources(bytes);
  ASSERT_TRUE(found.ok()) << found.error();
  EXPECT_EQ(found->devices, (std::vector<PodDevice>{{"team", "llama-0", "trainer", "GPU-a"},
                                                    {"team", "llama-0", "trainer", "GPU-b"},
                                                    {"ml", "infer-1", "server", "GPU-c::2"}}));
  EXPECT_EQ(found->claims, 0);
}

TEST(PodResources, TakesFieldsInAnyOrderAndSkipsWhatItDoesNotKnow) {
  std::string bytes;
  protobuf::WireWriter writer(bytes);
  writer.varint(9, 5);
  const size_t pod = writer.begin(1);
  const size_t container = writer.begin(3);
  const size_t devices = writer.begin(2);
  writer.bytes(2, "GPU-a");
  const size_t topology = writer.begin(3);
  writer.varint(1, 0);
  writer.end(topology);
  writer.bytes(1, "nvidia.com/gpu");
  writer.end(devices);
  writer.bytes(5, "a claim");
  writer.bytes(1, "trainer");
  writer.end(container);
  writer.bytes(2, "team");
  writer.bytes(1, "llama-0");
  writer.end(pod);
  const Result<PodDevices> found = parse_pod_resources(bytes);
  ASSERT_TRUE(found.ok()) << found.error();
  EXPECT_EQ(found->devices, (std::vector<PodDevice>{{"team", "llama-0", "trainer", "GPU-a"}}));
  EXPECT_EQ(found->claims, 1);
}

TEST(PodResources, BadBytesAreOneClearLine) {
  const std::string bytes = pod_answer({{"team", "llama-0", "trainer", {"GPU-a"}}});
  EXPECT_FALSE(parse_pod_resources(bytes.substr(0, bytes.size() - 3)).ok());
  EXPECT_EQ(parse_pod_resources("\x0a\x7f").error(), "pod resources: a length that goes past the end");
  EXPECT_TRUE(parse_pod_resources("").ok()) << "a node without pods";
  const Result<PodDevices> nameless = parse_pod_resources(pod_answer({{"team", "", "trainer", {"GPU-a"}}}));
  ASSERT_TRUE(nameless.ok());
  EXPECT_TRUE(nameless->devices.empty());
}

TEST(PodResources, LeavesOutWhatIsOverTheLimitAndCountsIt) {
  TestPod pod{"team", "llama-0", "trainer", std::vector<std::string>(kPodDevicesMax + 5, "GPU-a")};
  const Result<PodDevices> found = parse_pod_resources(pod_answer({pod}));
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->devices.size(), kPodDevicesMax);
  EXPECT_EQ(found->left_out, 5);
}

TEST(PodResources, KnowsAGpuByEveryNameThatDevicePluginsGiveIt) {
  std::vector<GpuInfo> gpus(3);
  gpus[0] = {.uuid = "GPU-a", .index = 0, .pci = "0000:1b:00.0", .minor = 1};
  gpus[1] = {.uuid = "GPU-b", .index = 1, .pci = "0000:3d:00.0", .minor = 0};
  gpus[2] = {.uuid = "MIG-c", .index = 0, .pci = "0000:1b:00.0", .minor = 1, .parent_uuid = "GPU-a"};
  EXPECT_EQ(gpu_of_device("GPU-a", gpus), "GPU-a");
  EXPECT_EQ(gpu_of_device("GPU-a::3", gpus), "GPU-a");
  EXPECT_EQ(gpu_of_device("MIG-c", gpus), "MIG-c");
  EXPECT_EQ(gpu_of_device("nvidia0", gpus), "GPU-b") << "the number of /dev/nvidia0, not NVML's";
  EXPECT_EQ(gpu_of_device("nvidia1/gi1/vgpu0", gpus), "GPU-a");
  EXPECT_EQ(gpu_of_device("0000:3D:00.0", gpus), "GPU-b");
  EXPECT_EQ(gpu_of_device("nvidia7", gpus), "");
  EXPECT_EQ(gpu_of_device("nvidia", gpus), "");
  EXPECT_EQ(gpu_of_device("mlx5_0", gpus), "");
}

}  // namespace
}  // namespace lockstep
