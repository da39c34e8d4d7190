// Against a library of ours that plays AMD's (tests/standins/amdsmi): no AMD GPU was at hand.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <map>

#include "base/clock.h"
#include "base/files.h"
#include "base/text.h"
#include "sources/amdsmi/amdsmi_abi.h"
#include "sources/gpu/gpu_metrics.h"
#include "sources/gpu/gpu_reader.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

// An MI300X as it looks in the table: no edge sensor, power without an average, clocks by die.
std::string mi300(int index) {
  std::string text;
  for (const char* line : {"temperature_hotspot 61",
                           "temperature_mem 52",
                           "temperature_hbm1 50",
                           "average_gfx_activity 97",
                           "average_umc_activity 42",
                           "current_socket_power 640",
                           "energy_accumulator 2000000000",
                           "current_gfxclk0 2100",
                           "current_gfxclk1 2000",
                           "current_uclk 1300",
                           "pcie_link_width 16",
                           "pcie_link_speed 320",
                           "pcie_l0_to_recov 3",
                           "pcie_replay 4",
                           "pcie_nak_sent 5",
                           "xgmi_read0 1000",
                           "xgmi_read1 24",
                           "xgmi_write0 2048",
                           "xgmi_write1 0",
                           "accumulation_counter 1000",
                           "ppt_residency 100",
                           "socket_thm_residency 7",
                           "prochot_residency 0",
                           "memory_total 206141652992",
                           "memory_used 1073741824",
                           "ecc_corrected 12",
                           "ecc_uncorrected 1",
                           "bad_pages 0",
                           "power_cap 750000000",
                           "clock_max 2100",
                           "pcie_width_max 16",
                           "pcie_speed_max 32000",
                           "limit_hotspot 100",
                           "limit_memory 105"})
    text += format("set %d %s\n", index, line);
  return text;
}

class AmdsmiReaderTest : public ::testing::Test {
 protected:
  void SetUp() override { setenv("LOCKSTEP_AMDSMI_STANDIN", world_path().c_str(), 1); }
  void TearDown() override {
    reader_.reset();
    const Result<std::string> complaints = read_file(world_path() + ".complaints", 65'536);
    EXPECT_FALSE(complaints.ok()) << *complaints;
  }
  std::string world_path() const { return folder_.path() + "/world"; }
  void write_world(const std::string& text) { ASSERT_TRUE(write_file_atomically(world_path(), text).ok()); }
  Result<void> open() {
    reader_ = LOCKSTEP_TRY(open_amdsmi_reader(SOURCES_AMDSMI_STANDIN));
    return {};
  }
  // The last snapshot's values of a GPU, as "name" or "name{label}".
  std::map<std::string, double> read(bool slow = true, bool processes = true, size_t gpu = 0) {
    Result<GpuSnapshot> snapshot = reader_->read({.unix_ns = 77, .slow = slow, .processes = processes});
    EXPECT_TRUE(snapshot.ok()) << snapshot.error();
    if (!snapshot.ok()) return {};
    snapshot_ = std::move(*snapshot);
    std::map<std::string, double> values;
    for (const GpuValue& value : snapshot_.gpus.at(gpu).values)
      values[value.metric->name + (value.label.empty() ? "" : "{" + value.label + "}")] = value.value;
    return values;
  }

  testing::TemporaryFolder folder_;
  std::unique_ptr<GpuReader> reader_;
  GpuSnapshot snapshot_;
};

const char* const kOneGpu = "gpu 0000:c1:00.0 0x8e7a92d6 AMD Instinct MI300X\n";

TEST_F(AmdsmiReaderTest, ReadsWhatAGpuIs) {
  write_world(std::string("version 24 7 0\n") + kOneGpu + "gpu 0001:03:1f.1 0x11 AMD Instinct MI300X\n" + mi300(0));
  ASSERT_TRUE(open().ok());
  read();
  ASSERT_EQ(snapshot_.gpus.size(), 2u);
  const GpuInfo& info = snapshot_.gpus[0].info;
  EXPECT_EQ(info.uuid, "8e7a92d6-0000-1000-80d6-00008e7a92d6");
  EXPECT_EQ(info.index, 0);
  EXPECT_EQ(info.vendor, "amd");
  EXPECT_EQ(info.model, "AMD Instinct MI300X");
  EXPECT_EQ(info.pci, "0000:c1:00.0");
  EXPECT_EQ(info.serial, "0x8e7a92d6");
  EXPECT_EQ(info.driver, "6.8.5");
  EXPECT_EQ(snapshot_.gpus[1].info.pci, "0001:03:1f.1");
  EXPECT_EQ(snapshot_.gpus[1].info.index, 1);
}

TEST_F(AmdsmiReaderTest, FillsTheTableInBaseUnits) {
  write_world(std::string("version 24 7 0\n") + kOneGpu + mi300(0));
  ASSERT_TRUE(open().ok());
  std::map<std::string, double> values = read();
  EXPECT_EQ(snapshot_.unix_ns, 77);
  EXPECT_GT(values["lockstep_gpu_read_seconds"], 0);
  values.erase("lockstep_gpu_read_seconds");
  EXPECT_NEAR(values["hw.energy"], 2e9 * 15.3e-6, 0.01);
  values.erase("hw.energy");
  const std::map<std::string, double> expected = {
      {"lockstep_gpu_up", 1},
      {"hw.gpu.utilization{general}", 0.97},
      {"lockstep_gpu_memory_controller_active", 0.42},
      {"hw.gpu.memory.limit", 206141652992.0},
      {"hw.gpu.memory.usage", static_cast<double>(kGiB)},
      {"hw.gpu.memory.utilization", static_cast<double>(kGiB) / 206141652992.0},
      {"lockstep_gpu_memory_free_bytes", 206141652992.0 - static_cast<double>(kGiB)},
      {"hw.power", 640},
      {"lockstep_gpu_power_instant_watts", 640},
      {"lockstep_gpu_power_limit_watts{enforced}", 750},
      {"lockstep_gpu_power_limit_watts{default}", 750},
      {"lockstep_gpu_power_limit_watts{max}", 751},
      {"hw.temperature{hotspot}", 61},
      {"hw.temperature{memory}", 52},
      {"hw.temperature{hbm1}", 50},
      {"hw.temperature.limit{high.degraded}", 100},
      {"hw.temperature.limit{high.critical}", 105},
      {"lockstep_gpu_memory_temperature_limit_celsius", 105},
      {"lockstep_gpu_clock_hertz{sm}", 2050e6},
      {"lockstep_gpu_clock_hertz{memory}", 1300e6},
      {"lockstep_gpu_clock_max_hertz{sm}", 2100e6},
      {"lockstep_gpu_clock_max_hertz{memory}", 2100e6},
      {"lockstep_gpu_throttle_seconds_total{power}", 0},
      {"lockstep_gpu_throttle_seconds_total{thermal}", 0},
      {"lockstep_gpu_throttle_seconds_total{prochot}", 0},
      {"hw.errors{corrected}", 12},
      {"hw.errors{uncorrected}", 1},
      {"lockstep_gpu_retired_pages_total{uncorrected}", 0},
      {"lockstep_gpu_pcie_width", 16},
      {"lockstep_gpu_pcie_width_max", 16},
      {"lockstep_gpu_pcie_generation", 5},
      {"lockstep_gpu_pcie_generation_max", 5},
      {"lockstep_gpu_pcie_replays_total", 4},
      {"lockstep_gpu_pcie_l0_recoveries_total", 3},
      {"lockstep_gpu_pcie_errors_total{nak_sent}", 5},
      {"lockstep_gpu_links_bytes_total{receive}", 1024.0 * 1024},
      {"lockstep_gpu_links_bytes_total{transmit}", 2048.0 * 1024},
      {"lockstep_gpu_link_receive_bytes_total{0}", 1000.0 * 1024},
      {"lockstep_gpu_link_receive_bytes_total{1}", 24.0 * 1024},
      {"lockstep_gpu_link_transmit_bytes_total{0}", 2048.0 * 1024},
      {"lockstep_gpu_link_transmit_bytes_total{1}", 0},
  };
  EXPECT_EQ(values, expected);
}

TEST_F(AmdsmiReaderTest, LeavesTheDearPartForSlowTicks) {
  write_world(std::string("version 24 7 0\n") + kOneGpu + mi300(0));
  ASSERT_TRUE(open().ok());
  const std::map<std::string, double> values = read(false, false);
  EXPECT_TRUE(values.contains("hw.power"));
  EXPECT_TRUE(values.contains("lockstep_gpu_links_bytes_total{receive}"));
  for (const char* name : {"hw.errors{corrected}", "lockstep_gpu_link_receive_bytes_total{0}",
                           "lockstep_gpu_power_limit_watts{enforced}", "lockstep_gpu_pcie_replays_total"})
    EXPECT_FALSE(values.contains(name)) << name;
  EXPECT_FALSE(snapshot_.processes_read);
}

TEST_F(AmdsmiReaderTest, ReadsOlderBoardsThatTellAnAverage) {
  write_world(std::string("version 24 6 3\n") + kOneGpu +
              "set 0 temperature_edge 40\nset 0 average_socket_power 250\nset 0 current_gfxclk 1700\n"
              "set 0 current_vclk0 900\nset 0 memory_used 5\n");
  ASSERT_TRUE(open().ok());
  std::map<std::string, double> values = read();
  EXPECT_EQ(values["hw.temperature{gpu}"], 40);
  EXPECT_EQ(values["hw.power"], 250);
  EXPECT_FALSE(values.contains("lockstep_gpu_power_instant_watts"));
  EXPECT_EQ(values["lockstep_gpu_clock_hertz{sm}"], 1700e6);
  EXPECT_EQ(values["lockstep_gpu_clock_hertz{video}"], 900e6);
  // That version's table ends before the throttle counters.
  EXPECT_FALSE(values.contains("lockstep_gpu_throttle_seconds_total{power}"));
}

TEST_F(AmdsmiReaderTest, TurnsTheFirmwaresSamplesIntoSeconds) {
  write_world(std::string("version 26 1 0\n") + kOneGpu + mi300(0));
  ASSERT_TRUE(open().ok());
  const SystemClock clock;
  const int64_t begin_ns = clock.monotonic_ns();
  read();
  // 100 samples, 25 of them held back by the power limit and all by heat.
  write_world(std::string("version 26 1 0\n") + kOneGpu + mi300(0) +
              "set 0 accumulation_counter 1100\nset 0 ppt_residency 125\nset 0 socket_thm_residency 107\n");
  std::map<std::string, double> values = read();
  const double elapsed = static_cast<double>(clock.monotonic_ns() - begin_ns) / 1e9;
  const double by_power = values["lockstep_gpu_throttle_seconds_total{power}"];
  const double by_heat = values["lockstep_gpu_throttle_seconds_total{thermal}"];
  EXPECT_GT(by_heat, 0);
  EXPECT_LE(by_heat, elapsed);
  EXPECT_NEAR(by_power, by_heat / 4, 1e-9);
  // The same counters again: nothing is known about the time since.
  values = read();
  EXPECT_EQ(values["lockstep_gpu_throttle_seconds_total{power}"], by_power);
  // The firmware began anew: no time is lost or made up.
  write_world(std::string("version 26 1 0\n") + kOneGpu + mi300(0) + "set 0 accumulation_counter 5\n");
  values = read();
  EXPECT_EQ(values["lockstep_gpu_throttle_seconds_total{power}"], by_power);
}

TEST_F(AmdsmiReaderTest, ReadsProcessesAsTheVersionLaysThemOut) {
  for (const char* version : {"version 24 7 0\n", "version 26 5 0\n"}) {
    write_world(std::string(version) + kOneGpu + mi300(0) + "process 0 4242 1073741824\nprocess 0 4243 7\n");
    ASSERT_TRUE(open().ok());
    read();
    const std::string& uuid = snapshot_.gpus[0].info.uuid;
    EXPECT_TRUE(snapshot_.processes_read);
    EXPECT_EQ(snapshot_.processes, (std::vector<GpuProcess>{{4242, uuid, kGiB}, {4243, uuid, 7}})) << version;
    EXPECT_EQ(snapshot_.gpus[0].info.serial, "0x8e7a92d6") << version;
    reader_.reset();
  }
}

TEST_F(AmdsmiReaderTest, LeavesOutWhatItDoesNotKnowOfAVersion) {
  write_world(std::string("version 25 3 0\n") + kOneGpu + mi300(0) + "process 0 4242 1\n");
  ASSERT_TRUE(open().ok());
  EXPECT_TRUE(read().contains("hw.power"));
  EXPECT_FALSE(snapshot_.processes_read);
  EXPECT_EQ(snapshot_.gpus[0].info.serial, "");
  ASSERT_EQ(snapshot_.notes.size(), 1u);
  EXPECT_NE(snapshot_.notes[0].find("amdsmi 25.3"), std::string::npos);
  read();
  EXPECT_TRUE(snapshot_.notes.empty());
  reader_.reset();

  write_world(std::string("version 31 0 0\n") + kOneGpu + mi300(0));
  ASSERT_TRUE(open().ok());
  const std::map<std::string, double> values = read();
  EXPECT_TRUE(values.contains("hw.gpu.memory.usage"));
  EXPECT_TRUE(values.contains("hw.temperature.limit{high.degraded}"));
  EXPECT_FALSE(values.contains("hw.power"));
  EXPECT_FALSE(values.contains("hw.errors{corrected}"));
}

TEST_F(AmdsmiReaderTest, AGpuThatStopsAnsweringIsLostAndOneThatComesBackAppears) {
  const std::string two =
      std::string("version 24 7 0\n") + kOneGpu + "gpu 0000:c2:00.0 0x12 MI300X\n" + mi300(0) + mi300(1);
  write_world(two);
  ASSERT_TRUE(open().ok());
  read();
  EXPECT_TRUE(snapshot_.events.empty());
  write_world(two + "fail 1 metrics 12\nfail 1 memory_used 12\n");
  std::map<std::string, double> values = read(true, true, 1);
  EXPECT_TRUE(snapshot_.gpus[1].lost);
  EXPECT_FALSE(snapshot_.gpus[0].lost);
  EXPECT_EQ(values["lockstep_gpu_up"], 0);
  EXPECT_FALSE(values.contains("hw.power"));
  const std::string uuid = snapshot_.gpus[1].info.uuid;
  EXPECT_EQ(snapshot_.events, (std::vector<GpuEvent>{{uuid, "lost", 12, 77}}));
  read();
  EXPECT_TRUE(snapshot_.events.empty());  // said once
  write_world(two);
  values = read(true, true, 1);
  EXPECT_EQ(values["lockstep_gpu_up"], 1);
  EXPECT_EQ(snapshot_.events, (std::vector<GpuEvent>{{uuid, "appeared", 0, 77}}));
}

TEST_F(AmdsmiReaderTest, ADriverThatIsGoneIsAnErrorOfTheWholeReader) {
  const std::string world = std::string("version 24 7 0\n") + kOneGpu + mi300(0);
  write_world(world);
  ASSERT_TRUE(open().ok());
  read();
  write_world(world + "fail 0 metrics 34\nfail 0 memory_used 34\n");
  const Result<GpuSnapshot> snapshot = reader_->read({});
  ASSERT_FALSE(snapshot.ok());
  EXPECT_NE(snapshot.error().find("driver is gone"), std::string::npos);
}

TEST_F(AmdsmiReaderTest, GpusWithoutASerialNumberStillHaveNamesOfTheirOwn) {
  write_world("version 24 7 0\ngpu 0000:c1:00.0 0 MI250\ngpu 0000:c2:00.0 0 MI250\n");
  ASSERT_TRUE(open().ok());
  read();
  EXPECT_NE(snapshot_.gpus[0].info.uuid, snapshot_.gpus[1].info.uuid);
  EXPECT_EQ(snapshot_.gpus[1].info.uuid, "AMD-0000:c2:00.0");
}

TEST_F(AmdsmiReaderTest, SaysOnceWhatItMayNotRead) {
  write_world(std::string("version 24 7 0\n") + kOneGpu + "gpu 0000:c2:00.0 0x12 MI300X\n" + mi300(0) + mi300(1) +
              "fail 0 ecc 10\nfail 1 ecc 10\n");
  ASSERT_TRUE(open().ok());
  EXPECT_FALSE(read().contains("hw.errors{corrected}"));
  EXPECT_EQ(snapshot_.notes, std::vector<std::string>{"amdsmi: no permission to read ECC errors"});
  read();
  EXPECT_TRUE(snapshot_.notes.empty());
}

TEST_F(AmdsmiReaderTest, SaysWhyItCannotBeOpened) {
  write_world("version 24 7 0\n");
  Result<void> opened = open();
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.error().find("no AMD GPU"), std::string::npos) << opened.error();
  write_world(std::string("init 34\n") + kOneGpu);
  opened = open();
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.error().find("driver is not loaded"), std::string::npos) << opened.error();
  const Result<std::unique_ptr<GpuReader>> reader = open_amdsmi_reader("/no/such/library.so");
  ASSERT_FALSE(reader.ok());
  EXPECT_NE(reader.error().find("/no/such/library.so"), std::string::npos) << reader.error();
}

}  // namespace
}  // namespace lockstep
