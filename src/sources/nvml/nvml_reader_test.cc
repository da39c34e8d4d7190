#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/clock.h"
#include "sources/gpu/gpu_metrics.h"
#include "sources/gpu/gpu_reader.h"
#include "testing/eventually.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

using enum GpuMetric;

constexpr double kMiB = 1024.0 * 1024.0;
constexpr const char* kStandin = SOURCES_NVML_STANDIN;

std::string uuid_of(int gpu) {
  char text[64];
  std::snprintf(text, sizeof(text), "GPU-57a4d000-0000-4000-8000-%012x", static_cast<unsigned>(gpu));
  return text;
}

std::optional<double> value_of(const GpuState& gpu, GpuMetric metric, const std::string& label = "") {
  const std::string fixed = kGpuLabelValues[static_cast<size_t>(metric)];
  const std::string& wanted = fixed == kLabelByReader ? label : fixed;
  std::optional<double> found;
  for (const GpuValue& value : gpu.values) {
    if (value.metric != &gpu_metric(metric) || value.label != wanted) continue;
    EXPECT_FALSE(found) << value.metric->name << " twice";
    found = value.value;
  }
  return found;
}

::testing::AssertionResult has(const GpuState& gpu, double expected, GpuMetric metric, const std::string& label = "") {
  const auto found = value_of(gpu, metric, label);
  if (!found) return ::testing::AssertionFailure() << gpu_metric(metric).name << " is missing";
  if (std::abs(*found - expected) <= 1e-9 * std::abs(expected) + 1e-12) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << gpu_metric(metric).name << " is " << *found << ", not " << expected;
}
#define EXPECT_VALUE(...) EXPECT_TRUE(has(__VA_ARGS__))

class NvmlReader : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("LOCKSTEP_NVML_STANDIN", script_path().c_str(), 1);
    steer("gpus 1\n");
    file_ = dlopen(kStandin, RTLD_NOW);
    ASSERT_NE(file_, nullptr) << dlerror();
  }
  void TearDown() override {
    reader_.reset();
    if (file_ != nullptr) {
      EXPECT_EQ(count("nvml_standin_open_objects"), 0u) << "samples, event sets or the library were not given back";
      dlclose(file_);
    }
    unsetenv("LOCKSTEP_NVML_STANDIN");
  }

  std::string script_path() const { return folder_.path() + "/script"; }
  // As a whole, so that the stand-in never sees half of it.
  void steer(const std::string& text) {
    std::ofstream(folder_.path() + "/new") << text;
    std::filesystem::rename(folder_.path() + "/new", script_path());
  }
  void open() {
    auto opened = open_nvml_reader(kStandin);
    ASSERT_TRUE(opened.ok()) << opened.error();
    reader_ = std::move(opened).value();
  }
  GpuSnapshot read(bool slow, bool processes = false) {
    now_ns_ += 1'000'000'000;
    auto snapshot = reader_->read({now_ns_, slow, processes});
    EXPECT_TRUE(snapshot.ok()) << snapshot.error();
    return snapshot.ok() ? std::move(snapshot).value() : GpuSnapshot{};
  }
  // The sleep is the point: NVML compares samples that are 100 ms apart, and the reader keeps to that.
  static void wait_for_gpm() { std::this_thread::sleep_for(std::chrono::milliseconds(115)); }

  uint64_t count(const char* function) { return reinterpret_cast<uint64_t (*)()>(dlsym(file_, function))(); }
  uint64_t calls(const char* name) {
    return reinterpret_cast<uint64_t (*)(const char*)>(dlsym(file_, "nvml_standin_calls"))(name);
  }
  uint64_t asked(const char* key) {
    return reinterpret_cast<uint64_t (*)(const char*)>(dlsym(file_, "nvml_standin_asked"))(key);
  }
  void reset_counts() { reinterpret_cast<void (*)()>(dlsym(file_, "nvml_standin_reset_counts"))(); }

  testing::TemporaryFolder folder_;
  void* file_ = nullptr;
  int64_t now_ns_ = 1'700'000'000'000'000'000;
  std::unique_ptr<GpuReader> reader_;
};

TEST_F(NvmlReader, SaysWhoTheGpusAre) {
  steer("gpus 2\nmodel NVIDIA H200\ndriver 570.86.15\n");
  open();
  const GpuSnapshot snapshot = read(false);
  ASSERT_EQ(snapshot.gpus.size(), 2u);
  EXPECT_EQ(snapshot.unix_ns, now_ns_);
  const GpuInfo& info = snapshot.gpus[1].info;
  EXPECT_EQ(info.uuid, uuid_of(1));
  EXPECT_EQ(info.index, 1);
  EXPECT_EQ(info.vendor, "nvidia");
  EXPECT_EQ(info.model, "NVIDIA H200");
  EXPECT_EQ(info.pci, "0000:2b:00.0");
  EXPECT_EQ(info.serial, "1650000000001");
  EXPECT_EQ(info.driver, "570.86.15");
  EXPECT_EQ(info.minor, 1);
  EXPECT_TRUE(info.parent_uuid.empty());
}

TEST_F(NvmlReader, ReadsTheFastGroupsInBaseUnits) {
  steer(
      "set util.gpu 97\nset util.memory 41\nset memory.total 151000000000\nset memory.reserved 1000000000\n"
      "set memory.used 75000000000\nset clock.1 1980\nset clock.2 3201\nset temperature 55\nset field.82 61\n"
      "set field.83 1234567\nset field.185 512250\nset field.186 530000\nset field.74 2500000000\n"
      "set field.271 1500000\nset field.94 3\nset field.197 1000\nset field.138 2048\nset gpm.2 93.5\nset gpm.10 37\n"
      "set gpm.20 820\nset gpm.61 2\n");
  open();
  read(true);
  wait_for_gpm();
  const GpuSnapshot snapshot = read(false);
  ASSERT_EQ(snapshot.gpus.size(), 1u);
  const GpuState& gpu = snapshot.gpus[0];
  EXPECT_FALSE(gpu.lost);
  EXPECT_VALUE(gpu, 1, kUp);
  EXPECT_VALUE(gpu, 0.97, kUtilGeneral);
  EXPECT_VALUE(gpu, 0.41, kMemoryControllerActive);
  EXPECT_VALUE(gpu, 151e9, kMemoryLimit);
  EXPECT_VALUE(gpu, 75e9, kMemoryUsage);
  EXPECT_VALUE(gpu, 1e9, kMemoryReserved);
  EXPECT_VALUE(gpu, 75e9, kMemoryFree);
  EXPECT_VALUE(gpu, 0.5, kMemoryUtilization);
  EXPECT_VALUE(gpu, 1.98e9, kClockSm);
  EXPECT_VALUE(gpu, 3.201e9, kClockMemory);
  EXPECT_VALUE(gpu, 55, kTempGpu);
  EXPECT_VALUE(gpu, 61, kTempMemory);
  EXPECT_VALUE(gpu, 512.25, kPower);
  EXPECT_VALUE(gpu, 530, kPowerInstant);
  EXPECT_VALUE(gpu, 2.5, kThrottlePower);
  EXPECT_VALUE(gpu, 2048 * 1024, kLinksTransmit);
  EXPECT_VALUE(gpu, 0.935, kSmActive);
  EXPECT_VALUE(gpu, 0.37, kDramActive);
  EXPECT_VALUE(gpu, 820 * kMiB, kPcieTransmitRate);
  EXPECT_VALUE(gpu, 2 * kMiB, kLinksTransmitRate);
  EXPECT_TRUE(value_of(gpu, kReadSeconds).has_value());
  EXPECT_FALSE(value_of(gpu, kEccCorrected)) << "a slow value at a fast tick";
  EXPECT_FALSE(value_of(gpu, kEnergy)) << "4 ms of the driver's time";
  const GpuState slow = read(true).gpus[0];
  EXPECT_VALUE(slow, 1234.567, kEnergy);
  EXPECT_VALUE(slow, 0.0015, kThrottlePowerBrake);
  EXPECT_VALUE(slow, 3, kPcieReplays);
  EXPECT_VALUE(slow, 1000, kPcieTransmit);
  EXPECT_TRUE(snapshot.notes.empty()) << snapshot.notes[0];
}

TEST_F(NvmlReader, ReadsTheSlowGroupsInBaseUnits) {
  steer(
      "set util.encoder 20\nset util.decoder 30\nset bar1.total 1000\nset bar1.used 10\nset clock.3 1545\n"
      "set margin 32\nset pstate 2\nset pcie.generation 4\nset pcie.width 8\nset pcie.width_max 16\n"
      "set field.3 11\nset field.4 2\nset field.5 111\nset field.9 7\nset field.17 1\nset field.142 4\nset field.143 "
      "1\n"
      "set field.144 1\nset field.145 1\nset field.173 9\nset field.176 5\nset field.180 1\nset field.169 6\n"
      "set field.190 650000\nset field.189 700000\nset field.230 2\nset sram.corrected 3\nset sram.uncorrected 5\n"
      "set sram.threshold 1\nset bank.0 2558\nset bank.3 2\nset repair.tpc 1\nset fabric.state 3\n"
      "set fabric.mask 1\nset fabric.summary 3\nset threshold.1 89\nset clock_max.1 1980\nset license 1\n"
      "set field.29 1\nset field.30 2\nset field.31 0\n");
  open();
  const GpuState gpu = read(true).gpus[0];
  EXPECT_VALUE(gpu, 0.2, kUtilEncoder);
  EXPECT_VALUE(gpu, 0.3, kUtilDecoder);
  EXPECT_VALUE(gpu, 1000, kBar1Limit);
  EXPECT_VALUE(gpu, 10, kBar1Usage);
  EXPECT_VALUE(gpu, 1.545e9, kClockVideo);
  EXPECT_VALUE(gpu, 32, kTempMargin);
  EXPECT_VALUE(gpu, 2, kPState);
  EXPECT_VALUE(gpu, 4, kPcieGeneration);
  EXPECT_VALUE(gpu, 8, kPcieWidth);
  EXPECT_VALUE(gpu, 16, kPcieWidthMax);
  EXPECT_VALUE(gpu, 1, kEccEnabled);
  EXPECT_VALUE(gpu, 11, kEccCorrected);
  EXPECT_VALUE(gpu, 2, kEccUncorrected);
  EXPECT_VALUE(gpu, 111, kEccAggregateCorrected);
  EXPECT_VALUE(gpu, 7, kEccUnitCorrected, "l2");
  EXPECT_VALUE(gpu, 1, kEccUnitUncorrected, "cbu");
  EXPECT_VALUE(gpu, 4, kRemappedCorrectable);
  EXPECT_VALUE(gpu, 1, kRemappedUncorrectable);
  EXPECT_VALUE(gpu, 1, kRemapPending);
  EXPECT_VALUE(gpu, 1, kRemapFailure);
  EXPECT_VALUE(gpu, 9, kPcieCorrectable);
  EXPECT_VALUE(gpu, 5, kPcieError, "bad_tlp");
  EXPECT_VALUE(gpu, 1, kPcieFatal);
  EXPECT_VALUE(gpu, 6, kPcieRecoveries);
  EXPECT_VALUE(gpu, 650, kPowerLimit);
  EXPECT_VALUE(gpu, 700, kPowerLimitDefault);
  EXPECT_VALUE(gpu, 2, kRecoveryAction);
  EXPECT_VALUE(gpu, 3, kSramCorrected);
  EXPECT_VALUE(gpu, 5, kSramUncorrected);
  EXPECT_VALUE(gpu, 103, kSramAggregateCorrected);
  EXPECT_VALUE(gpu, 1, kSramThreshold);
  EXPECT_VALUE(gpu, 2558, kBanksMax);
  EXPECT_VALUE(gpu, 2, kBanksLow);
  EXPECT_VALUE(gpu, 1, kRepairTpcPending);
  EXPECT_VALUE(gpu, 0, kRepairChannelPending);
  EXPECT_VALUE(gpu, 3, kFabricState);
  EXPECT_VALUE(gpu, 3, kFabricHealth);
  EXPECT_VALUE(gpu, 1, kFabricDegradedBandwidth);
  EXPECT_VALUE(gpu, 89, kTempLimitSlowdown);
  EXPECT_VALUE(gpu, 1.98e9, kClockMaxSm);
  EXPECT_VALUE(gpu, 1, kVgpuLicense);
  EXPECT_VALUE(gpu, 1, kRetiredCorrected);
  EXPECT_VALUE(gpu, 2, kRetiredUncorrected);
  EXPECT_VALUE(gpu, 0, kMigMode);
}

TEST_F(NvmlReader, ReadsEverythingAtTheFirstSightOfAGpu) {
  open();
  EXPECT_TRUE(value_of(read(false).gpus[0], kEccCorrected));
  EXPECT_FALSE(value_of(read(false).gpus[0], kEccCorrected));
}

TEST_F(NvmlReader, PassesOnACounterThatFallsAsItIs) {
  steer("set field.83 9000000\nset field.138 1000\nset field.139 1000\n");
  open();
  EXPECT_VALUE(read(false).gpus[0], 9000, kEnergy);
  steer("set field.83 1000\nset field.138 10\nset field.139 10\n");
  const GpuState gpu = read(true).gpus[0];
  EXPECT_VALUE(gpu, 1, kEnergy);
  EXPECT_VALUE(gpu, 10 * 1024, kLinksTransmit);
  EXPECT_FALSE(value_of(gpu, kLinksRate)) << "a rate over a reset";
}

TEST_F(NvmlReader, MakesTheRateOverAllLinksFromTheirCounters) {
  steer("set field.138 0\nset field.139 0\n");
  open();
  const SystemClock clock;
  const int64_t before_ns = clock.monotonic_ns();
  read(false);
  const int64_t between_ns = clock.monotonic_ns();
  steer("set field.138 2000000\nset field.139 1000000\n");
  const int64_t until_ns = clock.monotonic_ns();
  const auto rate = value_of(read(false).gpus[0], kLinksRate);
  const int64_t after_ns = clock.monotonic_ns();
  ASSERT_TRUE(rate);
  const double seconds = 3e6 * 1024 / *rate;
  EXPECT_GE(seconds, static_cast<double>(until_ns - between_ns) * 1e-9);
  EXPECT_LE(seconds, static_cast<double>(after_ns - before_ns) * 1e-9);
}

TEST_F(NvmlReader, AsksOnlyOnceForWhatIsNotSupported) {
  steer(
      "set field.82 none\nset gpm.13 none\nset clock.3 none\nset threshold.2 none\nfail nvmlDeviceGetRepairStatus 3\n"
      "fail nvmlDeviceGetUtilizationRates 13\n");
  open();
  for (int i = 0; i < 4; ++i) {
    const GpuSnapshot snapshot = read(true);
    EXPECT_FALSE(value_of(snapshot.gpus[0], kTempMemory));
    EXPECT_FALSE(value_of(snapshot.gpus[0], kUtilGeneral));
    EXPECT_TRUE(value_of(snapshot.gpus[0], kClockSm)) << "one clock that is not there takes no other with it";
    wait_for_gpm();
  }
  EXPECT_EQ(asked("field.82"), 1u);
  EXPECT_EQ(asked("gpm.13"), 1u);
  EXPECT_EQ(asked("clock.3"), 1u);
  EXPECT_EQ(calls("nvmlDeviceGetRepairStatus"), 1u);
  EXPECT_EQ(calls("nvmlDeviceGetUtilizationRates"), 1u);
  EXPECT_GT(asked("field.83"), 3u);
}

TEST_F(NvmlReader, AsksAgainAfterAPassingFailure) {
  steer("fail nvmlDeviceGetUtilizationRates 999\nfail field.82 27\n");
  open();
  EXPECT_FALSE(value_of(read(false).gpus[0], kUtilGeneral));
  steer("gpus 1\n");
  const GpuState gpu = read(false).gpus[0];
  EXPECT_TRUE(value_of(gpu, kUtilGeneral));
  EXPECT_TRUE(value_of(gpu, kTempMemory));
}

TEST_F(NvmlReader, KeepsToAFewCallsPerGpuAndTick) {
  steer("gpus 8\n");
  open();
  read(true);
  wait_for_gpm();
  reset_counts();
  read(false);
  EXPECT_LE(calls(nullptr), 8u * 8 + 1);
  EXPECT_EQ(calls("nvmlDeviceGetFieldValues"), 8u);
  EXPECT_EQ(calls("nvmlGpmSampleGet"), 8u);
  EXPECT_EQ(calls("nvmlGpmMetricsGet"), 8u) << "all metrics of a GPU come from one call";
  EXPECT_EQ(calls("nvmlEventSetWait_v2"), 1u);
  EXPECT_EQ(calls("nvmlDeviceGetComputeRunningProcesses_v3"), 0u);
  wait_for_gpm();
  reset_counts();
  read(true);
  EXPECT_LE(calls(nullptr), 8u * 26 + 2);
  EXPECT_EQ(calls("nvmlDeviceGetFieldValues"), 8u * 3) << "fast, slow, links";
}

TEST_F(NvmlReader, PassesOverActivityWhenReadAgainTooSoon) {
  open();
  EXPECT_FALSE(value_of(read(false).gpus[0], kSmActive)) << "there is no interval yet";
  wait_for_gpm();
  EXPECT_TRUE(value_of(read(false).gpus[0], kSmActive));
  GpuState gpu;
  EXPECT_TRUE(testing::eventually([&] {  // one that is not too late, however busy the machine
    gpu = read(false).gpus[0];
    return !value_of(gpu, kSmActive);
  }));
  EXPECT_TRUE(value_of(gpu, kUtilGeneral));
}

TEST_F(NvmlReader, DoesWithoutActivityOnAGpuBeforeHopperAndSaysSoOnce) {
  steer("gpus 2\nset gpm.supported 0\n");
  open();
  const GpuSnapshot first = read(false);
  ASSERT_EQ(first.notes.size(), 1u);
  EXPECT_NE(first.notes[0].find("GPM is not supported"), std::string::npos) << first.notes[0];
  wait_for_gpm();
  const GpuSnapshot second = read(false);
  EXPECT_TRUE(second.notes.empty());
  EXPECT_TRUE(value_of(second.gpus[0], kPower));
}

TEST_F(NvmlReader, DegradesWhereItHasNoPermissionAndSaysSoOnce) {
  steer("gpus 4\nfail nvmlGpmSampleGet 4\n");
  open();
  const GpuSnapshot first = read(false);
  ASSERT_EQ(first.notes.size(), 1u);
  EXPECT_EQ(first.notes[0],
            "NVML: nvmlGpmSampleGet: no permission (status 4, first seen on GPU 0 (NVIDIA H200)); not asked again");
  wait_for_gpm();
  EXPECT_TRUE(read(false).notes.empty());
  EXPECT_EQ(calls("nvmlGpmSampleGet"), 4u);
}

TEST_F(NvmlReader, FallsBackToTheCallsOfOlderDrivers) {
  steer(
      "fail nvmlDeviceGetTemperatureV 13\nfail nvmlDeviceGetMemoryInfo_v2 13\nset field.185 none\nset field.83 none\n"
      "set power 300000\nset energy 5000\nset fabric.summary none\nset field.165 none\nset link.2.state 0\n");
  open();
  const GpuState gpu = read(true).gpus[0];
  EXPECT_VALUE(gpu, 55, kTempGpu);
  EXPECT_TRUE(value_of(gpu, kMemoryUsage));
  EXPECT_FALSE(value_of(gpu, kMemoryReserved));
  EXPECT_VALUE(gpu, 300, kPower);
  EXPECT_VALUE(gpu, 5, kEnergy);
  EXPECT_VALUE(gpu, 3, kFabricState);
  EXPECT_FALSE(value_of(gpu, kFabricHealth));
  EXPECT_VALUE(gpu, 17, kLinksUp);
  read(true);
  EXPECT_EQ(calls("nvmlDeviceGetTemperatureV"), 1u);
  EXPECT_EQ(calls("nvmlDeviceGetGpuFabricInfoV"), 3u) << "version 3 once, then version 2";
}

TEST_F(NvmlReader, KeepsALostGpuInSightAndTakesItBack) {
  steer("gpus 3\n");
  open();
  read(true);
  steer("gpus 3\ngpu 1 lost\n");
  GpuSnapshot snapshot = read(false);
  ASSERT_EQ(snapshot.gpus.size(), 3u);
  EXPECT_TRUE(snapshot.gpus[1].lost);
  EXPECT_EQ(snapshot.gpus[1].info.uuid, uuid_of(1));
  EXPECT_VALUE(snapshot.gpus[1], 0, kUp);
  EXPECT_FALSE(snapshot.gpus[0].lost);
  EXPECT_TRUE(value_of(snapshot.gpus[2], kPower));
  ASSERT_EQ(snapshot.events.size(), 1u);
  EXPECT_EQ(snapshot.events[0], (GpuEvent{uuid_of(1), "lost", 15, now_ns_}));

  // The library still has its name in memory; that is no sign of life.
  for (int i = 0; i < 7; ++i) {
    snapshot = read(true);
    ASSERT_EQ(snapshot.gpus.size(), 3u);
    EXPECT_TRUE(snapshot.gpus[1].lost);
    EXPECT_VALUE(snapshot.gpus[1], 0, kUp);
    EXPECT_TRUE(value_of(snapshot.gpus[0], kPower));
    EXPECT_TRUE(snapshot.events.empty()) << snapshot.events[0].kind;
  }
  EXPECT_EQ(calls("nvmlInit_v2"), 2u) << "a fresh start of the library about every minute";

  steer("gpus 3\n");
  EXPECT_TRUE(read(false).gpus[1].lost) << "looked for at slow ticks only";
  snapshot = read(true);
  EXPECT_FALSE(snapshot.gpus[1].lost);
  EXPECT_VALUE(snapshot.gpus[1], 1, kUp);
  ASSERT_EQ(snapshot.events.size(), 1u);
  EXPECT_EQ(snapshot.events[0], (GpuEvent{uuid_of(1), "appeared", 0, now_ns_}));
}

TEST_F(NvmlReader, TakesAGpuThatNeedsAResetForLost) {
  open();
  read(false);
  steer("gpu 0 lost 16\n");
  const GpuSnapshot snapshot = read(false);
  EXPECT_TRUE(snapshot.gpus[0].lost);
  ASSERT_EQ(snapshot.events.size(), 1u);
  EXPECT_EQ(snapshot.events[0].code, 16);
}

TEST_F(NvmlReader, NoticesGpusThatComeAndGo) {
  steer("gpus 2\ngpu 1 absent\n");
  open();
  EXPECT_EQ(read(true).gpus.size(), 1u);
  steer("gpus 2\n");
  GpuSnapshot snapshot = read(true);
  ASSERT_EQ(snapshot.gpus.size(), 2u);
  ASSERT_EQ(snapshot.events.size(), 1u);
  EXPECT_EQ(snapshot.events[0], (GpuEvent{uuid_of(1), "appeared", 0, now_ns_}));
  EXPECT_TRUE(value_of(snapshot.gpus[1], kEccCorrected));
  steer("gpus 2\ngpu 0 absent\n");
  snapshot = read(true);
  ASSERT_EQ(snapshot.gpus.size(), 2u);
  EXPECT_TRUE(snapshot.gpus[0].lost);
  ASSERT_EQ(snapshot.events.size(), 1u);
  EXPECT_EQ(snapshot.events[0].kind, "lost");
}

TEST_F(NvmlReader, EndsWhenTheDriverIsReplacedOrGone) {
  for (const char* status : {"18", "9", "1"}) {
    steer("gpus 2\n");
    open();
    read(false);
    steer(std::string("gpus 2\nfail * ") + status + "\n");
    const auto snapshot = reader_->read({now_ns_, false, false});
    ASSERT_FALSE(snapshot.ok());
    EXPECT_NE(snapshot.error().find(std::string("status ") + status), std::string::npos) << snapshot.error();
    steer("gpus 2\n");
    reader_.reset();
  }
}

TEST_F(NvmlReader, EndsWhenOneGpuSaysThatTheDriverWasReplaced) {
  for (const char* what : {"nvmlDeviceGetUtilizationRates", "field.185", "gpm.2"}) {
    steer("gpus 2\n");
    open();
    read(false);
    wait_for_gpm();
    steer(std::string("gpus 2\ngpu 1 fail ") + what + " 18\n");
    const auto snapshot = reader_->read({now_ns_, false, false});
    ASSERT_FALSE(snapshot.ok()) << what;
    EXPECT_NE(snapshot.error().find("GPU 1: library and driver have different versions"), std::string::npos);
    reader_.reset();
  }
}

TEST_F(NvmlReader, TellsEveryXidOnce) {
  steer("gpus 2\nevent 1 gpu 1 xid 31\nevent 2 gpu 1 xid 79\nevent 3 gpu 0 recovery 2\nevent 4 gpu 0 unavailable 0\n");
  open();
  GpuSnapshot snapshot = read(false);
  ASSERT_EQ(snapshot.events.size(), 4u);
  EXPECT_EQ(snapshot.events[0], (GpuEvent{uuid_of(1), "xid", 31, now_ns_}));
  EXPECT_EQ(snapshot.events[1], (GpuEvent{uuid_of(1), "xid", 79, now_ns_}));
  EXPECT_EQ(snapshot.events[2], (GpuEvent{uuid_of(0), "recovery_action", 2, now_ns_}));
  EXPECT_EQ(snapshot.events[3].kind, "unavailable");
  snapshot = read(false);
  EXPECT_TRUE(snapshot.events.empty());
}

TEST_F(NvmlReader, LeavesTheRestOfAStormToTheNextTick) {
  std::string storm;
  for (int i = 1; i <= 300; ++i) storm += "event " + std::to_string(i) + " gpu 0 xid 95\n";
  steer(storm);
  open();
  EXPECT_EQ(read(false).events.size(), 256u);
  EXPECT_EQ(read(false).events.size(), 44u);
}

TEST_F(NvmlReader, HearsXidsOfTheOthersAfterAGpuWasLost) {
  steer("gpus 2\n");
  open();
  read(false);
  steer("gpus 2\ngpu 0 lost\n");
  read(false);
  steer("gpus 2\ngpu 0 lost\nevent 1 gpu 1 xid 48\n");
  const GpuSnapshot snapshot = read(false);
  ASSERT_EQ(snapshot.events.size(), 1u);
  EXPECT_EQ(snapshot.events[0], (GpuEvent{uuid_of(1), "xid", 48, now_ns_}));
}

TEST_F(NvmlReader, ListsProcessesWhenAskedTo) {
  std::string script = "gpus 2\ngpu 1 process 77 3000\n";
  for (int i = 0; i < 100; ++i) script += "gpu 0 process " + std::to_string(1000 + i) + " " + std::to_string(i) + "\n";
  steer(script);
  open();
  EXPECT_FALSE(read(false).processes_read);
  const GpuSnapshot snapshot = read(false, true);
  EXPECT_TRUE(snapshot.processes_read);
  ASSERT_EQ(snapshot.processes.size(), 101u);
  EXPECT_EQ(snapshot.processes[99], (GpuProcess{1099, uuid_of(0), 99}));
  EXPECT_EQ(snapshot.processes[100], (GpuProcess{77, uuid_of(1), 3000}));
}

TEST_F(NvmlReader, ShowsEachMigInstanceAsAGpuOfItsOwn) {
  steer(
      "gpus 2\ngpu 0 mig 1 0 20000000000 MIG-aaaa\ngpu 0 mig 2 0 40000000000 MIG-bbbb\n"
      "gpu 0 set gi.2.gpm.2 50\ngpu 0 process 9 100 2\n");
  open();
  read(true, true);
  wait_for_gpm();
  GpuSnapshot snapshot = read(true, true);
  ASSERT_EQ(snapshot.gpus.size(), 4u);
  const GpuState& whole = snapshot.gpus[0];
  const GpuState& second = snapshot.gpus[2];
  EXPECT_VALUE(whole, 1, kMigMode);
  EXPECT_VALUE(whole, 2, kMigInstances);
  EXPECT_FALSE(value_of(whole, kSmActive)) << "a split GPU has no activity of its own";
  EXPECT_FALSE(value_of(whole, kUtilGeneral));
  EXPECT_TRUE(value_of(whole, kPower));
  EXPECT_EQ(second.info.uuid, "MIG-bbbb");
  EXPECT_EQ(second.info.parent_uuid, uuid_of(0));
  EXPECT_EQ(second.info.pci, whole.info.pci);
  EXPECT_EQ(second.info.model, "NVIDIA H200 MIG 1g.18gb");
  EXPECT_VALUE(second, 40e9, kMemoryLimit);
  EXPECT_VALUE(second, 10e9, kMemoryUsage);
  EXPECT_VALUE(second, 0.5, kSmActive);
  EXPECT_VALUE(snapshot.gpus[1], 0.93, kSmActive);
  ASSERT_EQ(snapshot.processes.size(), 1u);
  EXPECT_EQ(snapshot.processes[0].gpu_uuid, "MIG-bbbb");
  EXPECT_TRUE(snapshot.gpus[3].info.parent_uuid.empty());
  EXPECT_TRUE(snapshot.events.empty());
}

TEST_F(NvmlReader, NoticesThatTheMigInstancesChanged) {
  open();
  read(true);
  steer("gpu 0 mig 1 0 20000000000 MIG-aaaa\n");
  GpuSnapshot snapshot = read(true);
  ASSERT_EQ(snapshot.gpus.size(), 2u);
  ASSERT_EQ(snapshot.events.size(), 1u);
  EXPECT_EQ(snapshot.events[0], (GpuEvent{uuid_of(0), "mig_changed", 0, now_ns_}));

  // The driver's own event makes it known at once, and is not told twice.
  steer("gpu 0 mig 3 0 20000000000 MIG-cccc\nevent 1 gpu 0 mig 0\n");
  snapshot = read(false);
  ASSERT_EQ(snapshot.gpus.size(), 2u);
  EXPECT_EQ(snapshot.gpus[1].info.uuid, "MIG-cccc");
  EXPECT_EQ(snapshot.events.size(), 1u);

  steer("gpu 0 mig 3 0 20000000000 MIG-cccc\nevent 2 gpu 0 xid 94 3\n");
  snapshot = read(false);
  ASSERT_EQ(snapshot.events.size(), 1u);
  EXPECT_EQ(snapshot.events[0].gpu_uuid, "MIG-cccc");

  steer("gpus 1\n");
  snapshot = read(true);
  EXPECT_EQ(snapshot.gpus.size(), 1u);
  EXPECT_TRUE(value_of(snapshot.gpus[0], kUtilGeneral)) << "a GPU that is whole again supports more";
}

TEST_F(NvmlReader, ReadsLinksOneByOneAndTheirSums) {
  steer("set field.91 4\nset field.163 2\nset link.3.field.163 40\nset field.138 100\nset field.161 1\n");
  open();
  const GpuState gpu = read(true).gpus[0];
  EXPECT_VALUE(gpu, 4, kLinks);
  EXPECT_VALUE(gpu, 4, kLinksUp);
  EXPECT_VALUE(gpu, 1, kLinkUp, "3");
  EXPECT_VALUE(gpu, 100 * 1024, kLinkTransmit, "0");
  EXPECT_VALUE(gpu, 2, kLinkCrc, "0");
  EXPECT_VALUE(gpu, 40, kLinkCrc, "3");
  EXPECT_VALUE(gpu, 46, kLinksError, "crc");
  EXPECT_VALUE(gpu, 4, kLinksReplay);
}

TEST_F(NvmlReader, CountsALinkThatGoesDownAndLetsNoSumFall) {
  steer("set field.91 3\nset field.163 5\nset field.165 1\n");
  open();
  read(true);
  steer("set field.91 3\nset field.163 5\nset field.165 1\nset link.1.field.165 0\nset link.1.field.163 none\n");
  GpuState gpu = read(true).gpus[0];
  EXPECT_VALUE(gpu, 2, kLinksUp);
  EXPECT_VALUE(gpu, 1, kLinkDowns);
  EXPECT_VALUE(gpu, 0, kLinkUp, "1");
  EXPECT_FALSE(value_of(gpu, kLinkCrc, "1"));
  EXPECT_VALUE(gpu, 15, kLinksError, "crc");

  steer("set field.91 3\nset field.163 5\nset field.165 1\nset link.1.field.163 6\n");
  read(true);
  gpu = read(true).gpus[0];
  EXPECT_VALUE(gpu, 3, kLinksUp);
  EXPECT_VALUE(gpu, 6, kLinkCrc, "1");
  EXPECT_VALUE(gpu, 16, kLinksError, "crc");
}

TEST_F(NvmlReader, ReadsTheLinksOfBlackwell) {
  steer(
      "set field.91 2\nset field.138 none\nset field.139 none\nset field.161 none\nset field.162 none\n"
      "set field.163 none\nset field.202 1000\nset field.204 500\nset field.208 3\nset field.215 1\nset field.221 9\n"
      "set field.207 2\n");
  open();
  const GpuState gpu = read(true).gpus[0];
  EXPECT_VALUE(gpu, 1000, kLinkTransmit, "1");
  EXPECT_VALUE(gpu, 2000, kLinksTransmit);
  EXPECT_VALUE(gpu, 1000, kLinksReceive);
  EXPECT_VALUE(gpu, 3, kLinkErrors, "0");
  EXPECT_VALUE(gpu, 9, kLinkSymbolErrors, "0");
  EXPECT_VALUE(gpu, 2, kLinksRecovery);
  EXPECT_VALUE(gpu, 4, kLinksError, "overrun");
}

TEST_F(NvmlReader, TakesTheBytesOfALinkOnceWhereTwoFieldsHaveThem) {
  steer("set field.91 2\nset field.138 none\nset link.0.field.138 1\nset link.1.field.138 1\nset field.202 1000\n");
  open();
  const GpuState gpu = read(true).gpus[0];
  EXPECT_VALUE(gpu, 1024, kLinkTransmit, "1");
  EXPECT_VALUE(gpu, 2048, kLinksTransmit);
}

TEST_F(NvmlReader, WaitsForACallThatDoesNotReturn) {
  open();
  const uint64_t before = calls("nvmlDeviceGetUtilizationRates");
  steer("block nvmlDeviceGetUtilizationRates\n");
  std::atomic<bool> done = false;
  std::thread stuck([&] {
    read(false);
    done = true;
  });
  ASSERT_TRUE(testing::eventually([&] { return calls("nvmlDeviceGetUtilizationRates") == before + 1; }));
  EXPECT_FALSE(done);
  steer("gpus 1\n");
  stuck.join();
  EXPECT_TRUE(done);
}

TEST_F(NvmlReader, SaysInOneLineWhyThereAreNoGpus) {
  EXPECT_NE(open_nvml_reader("/nowhere/libnvidia-ml.so.1").error().find("/nowhere/libnvidia-ml.so.1"),
            std::string::npos);
  EXPECT_NE(open_nvml_reader("libm.so.6").error().find("lacks nvmlInit"), std::string::npos);
  steer("gpus 0\n");
  EXPECT_NE(open_nvml_reader(kStandin).error().find("no NVIDIA GPU"), std::string::npos);
  steer("fail nvmlInit_v2 9\n");
  EXPECT_EQ(open_nvml_reader(kStandin).error(), "NVML: nvmlInit_v2: driver not loaded (status 9)");
}

TEST_F(NvmlReader, SeesOneGpuAsManyThroughTheForwardingStandin) {
  const std::string behind = folder_.path() + "/libbehind.so";
  std::filesystem::copy_file(kStandin, behind);
  std::ofstream(script_path() + ".real") << "gpus 1\nset util.gpu 33\nset gpm.2 44\nevent 1 gpu 0 xid 13\n";
  steer("real " + behind + " copies 8\n");
  open();
  GpuSnapshot snapshot = read(true);
  EXPECT_EQ(snapshot.events.size(), 1u);
  wait_for_gpm();
  snapshot = read(true, true);
  ASSERT_EQ(snapshot.gpus.size(), 8u);
  EXPECT_NE(snapshot.gpus[6].info.uuid, snapshot.gpus[7].info.uuid);
  EXPECT_NE(snapshot.gpus[6].info.pci, snapshot.gpus[7].info.pci);
  EXPECT_VALUE(snapshot.gpus[7], 0.33, kUtilGeneral);
  EXPECT_VALUE(snapshot.gpus[7], 0.44, kSmActive);
}

}  // namespace
}  // namespace lockstep
