#include "sources/kernel/kernel_log.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "base/clock.h"
#include "sources/kernel/testing.h"

namespace lockstep {
namespace {

using kernel_test::kSecond;
using kernel_test::kUnix;
using kernel_test::kUptime;
using kernel_test::Machine;

std::unique_ptr<KernelLog> open_log(const Machine& machine) {
  return std::make_unique<KernelLog>(KernelLogOptions{machine.log(), machine.boot_id(), machine.state()});
}

// Texts that came at this many seconds after the start.
std::vector<std::string> texts(KernelLog& log, double seconds = 0) {
  std::vector<std::string> result;
  const int64_t after = static_cast<int64_t>(seconds * 1e9);
  log.read(kUptime + after, kUnix + after, [&](const KernelRecord& record) { result.emplace_back(record.text); });
  return result;
}

using Texts = std::vector<std::string>;

TEST(KernelRecord, IsReadInAllItsForms) {
  std::optional<KernelRecord> record = parse_kernel_record("6,339,5140900,-;NET: Registered protocol family 10\n");
  ASSERT_TRUE(record);
  EXPECT_EQ(record->seq, 339);
  EXPECT_EQ(record->stamp_us, 5'140'900);
  EXPECT_EQ(record->priority, 6);
  EXPECT_EQ(record->text, "NET: Registered protocol family 10");
  record = parse_kernel_record("30,340,5690716,c,caller=T123;udevd[80]: starting; 175\n SUBSYSTEM=x\n DEVICE=+y:z\n");
  ASSERT_TRUE(record);
  EXPECT_EQ(record->text, "udevd[80]: starting; 175");
  EXPECT_EQ(record->priority, 6);
}

TEST(KernelRecord, AnythingElseIsNone) {
  for (const char* text : {"", "6", "6,339,5140900", "6,339,5140900,-no semicolon", ",1,2,-;x", "6,-1,2,-;x",
                           "a,1,2,-;x", "6,99999999999999999999,2,-;x", "6,1,2,-\n;x"})
    EXPECT_FALSE(parse_kernel_record(text)) << text;
}

TEST(KernelRecord, EscapesAreTakenBack) {
  std::string text;
  unescape_kernel_text("a\\x0ab \\x5c \\xzz \\x", text);
  EXPECT_EQ(text, "a\nb \\ \\xzz \\x");
}

TEST(KernelLog, ReadsWhatIsThereAndLaterWhatCame) {
  Machine machine;
  machine.append(machine.records({"one", "two\n SUBSYSTEM=pci", "th\\x72ee"}));
  auto log = open_log(machine);
  EXPECT_EQ(texts(*log), (Texts{"one", "two", "three"}));
  EXPECT_EQ(texts(*log), Texts{});
  machine.append("4,3,1000000000,-;half a");
  EXPECT_EQ(texts(*log), Texts{});
  machine.append(" line\n");
  EXPECT_EQ(texts(*log), Texts{"half a line"});
  EXPECT_EQ(log->records(), 4);
  EXPECT_EQ(log->malformed(), 0);
}

TEST(KernelLog, TakesTheStampToTheTimeOfDay) {
  Machine machine;
  machine.append(machine.record("ten seconds ago", 990));
  machine.append(machine.record("from the future", 2000));
  auto log = open_log(machine);
  std::vector<int64_t> times;
  const auto take = [&](const KernelRecord& record) { times.push_back(record.time_unix_ns); };
  log->read(kUptime, kUnix, take);
  // The log's clock runs behind: what came since the last look cannot be older than it.
  machine.append(machine.record("drifted", 995));
  log->read(kUptime + kSecond, kUnix + kSecond, take);
  EXPECT_EQ(times, (std::vector<int64_t>{kUnix - 10 * kSecond, kUnix, kUnix}));
}

TEST(KernelLog, CountsWhatWasOverwritten) {
  Machine machine;
  machine.skip_records(100);  // gone before we started: not ours to count
  machine.append(machine.record("one"));
  machine.skip_records(7);
  machine.append(machine.record("nine"));
  auto log = open_log(machine);
  EXPECT_EQ(texts(*log), (Texts{"one", "nine"}));
  EXPECT_EQ(log->lost(), 7);
}

TEST(KernelLog, ARestartGoesOnWhereItStopped) {
  Machine machine;
  machine.append(machine.records({"one", "two"}));
  {
    auto log = open_log(machine);
    EXPECT_EQ(texts(*log), (Texts{"one", "two"}));
    log->done(kUptime, true);
  }
  machine.append(machine.record("three"));
  {
    auto log = open_log(machine);
    EXPECT_EQ(texts(*log), (Texts{"three"}));
    EXPECT_EQ(log->lost(), 0);
    log->done(kUptime, true);
  }
  machine.skip_records(5);
  machine.replace(machine.record("nine"));  // the ring has moved on while nobody read
  auto log = open_log(machine);
  EXPECT_EQ(texts(*log), (Texts{"nine"}));
  EXPECT_EQ(log->lost(), 5);
}

TEST(KernelLog, WhatWasNotDoneComesAgain) {
  Machine machine;
  machine.append(machine.record("one"));
  {
    auto log = open_log(machine);
    texts(*log);
    log->done(kUptime, true);
    machine.append(machine.record("two"));
    EXPECT_EQ(texts(*log), Texts{"two"});
  }
  EXPECT_EQ(texts(*open_log(machine)), Texts{"two"});
}

TEST(KernelLog, AnotherBootBeginsAnew) {
  Machine machine;
  machine.append(machine.records({"one", "two"}));
  {
    auto log = open_log(machine);
    texts(*log);
    log->done(kUptime, true);
  }
  machine.boot("another");
  EXPECT_EQ(texts(*open_log(machine)), (Texts{"one", "two"}));
}

TEST(KernelLog, AStateFileThatMakesNoSenseIsAsNone) {
  Machine machine;
  machine.append(machine.record("one"));
  for (const char* state :
       {"", "x", "11111111-2222-3333-4444-555555555555 a b", "11111111-2222-3333-4444-555555555555 -5 1"}) {
    ASSERT_TRUE(write_file_atomically(machine.state(), state).ok());
    EXPECT_EQ(texts(*open_log(machine)), Texts{"one"}) << state;
  }
}

TEST(KernelLog, WritesItsPlaceRarely) {
  Machine machine;
  auto log = open_log(machine);
  int written = 0;
  for (int second = 0; second < 120; ++second) {
    machine.append(machine.record("line"));
    texts(*log, second);
    written += log->done(kUptime + second * kSecond, false) ? 1 : 0;
  }
  EXPECT_LE(written, 3);
  EXPECT_GE(written, 2);
}

TEST(KernelLog, AStateFileThatCannotBeWrittenIsSaidOnce) {
  Machine machine;
  machine.append(machine.record("one"));
  KernelLog log({machine.log(), machine.boot_id(), machine.root() + "/no/such/folder/state"});
  texts(log);
  log.done(kUptime, true);
  EXPECT_NE(log.take_note().find("old events are reported again"), std::string::npos);
  machine.append(machine.record("two"));
  texts(log);
  log.done(kUptime + 100 * kSecond, true);
  EXPECT_EQ(log.take_note(), "");
}

TEST(KernelLog, AReplacedFileIsReadFromItsStart) {
  Machine machine;
  machine.append(machine.records({"one", "two"}));
  auto log = open_log(machine);
  texts(*log);
  // The same log, written anew with more in it: only what is more.
  machine.replace(Machine::record_of(0, "one", 1'000'000'000) + Machine::record_of(1, "two", 1'000'000'000) +
                  Machine::record_of(2, "three", 1'000'000'000));
  EXPECT_EQ(texts(*log), Texts{"three"});
  // Another log, shorter; told at the next look at the latest.
  machine.replace(Machine::record_of(0, "new", 5'000'000));
  Texts all = texts(*log);
  for (const std::string& text : texts(*log)) all.push_back(text);
  EXPECT_EQ(all, Texts{"new"});
  // Another log, longer, whose records have the same numbers.
  machine.replace(Machine::record_of(0, "a", 6'000'000) + Machine::record_of(1, "b", 6'000'000));
  all = texts(*log);
  for (const std::string& text : texts(*log)) all.push_back(text);
  EXPECT_EQ(all, (Texts{"a", "b"}));
}

TEST(KernelLog, AFileCutToNothingAndWrittenAgainIsRead) {
  Machine machine;
  machine.append(machine.records({"one", "two"}));
  auto log = open_log(machine);
  texts(*log);
  ASSERT_EQ(truncate(machine.log().c_str(), 0), 0);
  EXPECT_EQ(texts(*log), Texts{});
  machine.append(Machine::record_of(0, "again", 7'000'000));
  Texts all = texts(*log);
  for (const std::string& text : texts(*log)) all.push_back(text);
  EXPECT_EQ(all, Texts{"again"});
}

TEST(KernelLog, AFileThatComesLaterIsFound) {
  Machine machine;
  std::filesystem::remove(machine.log());
  auto log = open_log(machine);
  EXPECT_FALSE(log->is_open());
  EXPECT_EQ(log->open_error(), ENOENT);
  EXPECT_EQ(texts(*log), Texts{});
  machine.replace(machine.record("one"));
  EXPECT_EQ(texts(*log, 1), Texts{});  // not at every look
  EXPECT_EQ(texts(*log, 20), Texts{"one"});
}

TEST(KernelLog, LinesThatAreNoRecordsAreCountedAndPassedOver) {
  Machine machine;
  machine.append("[ 12.5] NVRM: no record\n" + machine.record("one"));
  machine.append(std::string(300'000, 'x') + "\n" + machine.record("two"));
  auto log = open_log(machine);
  EXPECT_EQ(texts(*log), (Texts{"one", "two"}));
  EXPECT_GE(log->malformed(), 2);
}

TEST(KernelLog, ReadsNoMoreThanItsShareAtOnce) {
  Machine machine;
  std::string many;
  for (int i = 0; i < 50'000; ++i) many += machine.record("line");
  machine.append(many);
  auto log = open_log(machine);
  int64_t reads = 0;
  bool all = false;
  while (!all && reads < 10'000) {
    const int64_t before = log->records();
    all = log->read(kUptime, kUnix, [](const KernelRecord&) {});
    EXPECT_LE(log->records() - before, kKernelRecordsPerRead);
    ++reads;
  }
  EXPECT_EQ(log->records(), 50'000);
  EXPECT_EQ(log->lost(), 0);
  EXPECT_GE(reads, 3);
}

// The device itself, where it may be read: each read() of it is one record.
TEST(KernelLog, ReadsTheKernelsOwn) {
  Machine machine;
  KernelLog log({"/dev/kmsg", "/proc/sys/kernel/random/boot_id", machine.state()});
  if (!log.is_open()) GTEST_SKIP() << "/dev/kmsg: " << std::strerror(log.open_error());
  SystemClock clock;
  int64_t last_seq = -1;
  bool in_order = true;
  int64_t last_time = 0;
  bool all = false;
  for (int i = 0; i < 1000 && !all; ++i) {
    all = log.read(clock.monotonic_ns(), clock.unix_ns(), [&](const KernelRecord& record) {
      in_order &= record.seq > last_seq;
      last_seq = record.seq;
      last_time = record.time_unix_ns;
    });
  }
  EXPECT_TRUE(all);
  EXPECT_TRUE(in_order);
  EXPECT_EQ(log.malformed(), 0);
  EXPECT_LE(last_time, clock.unix_ns());
}

}  // namespace
}  // namespace lockstep
