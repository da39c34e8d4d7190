#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <thread>

#include "base/crc32c.h"
#include "base/failing_disk.h"
#include "base/files.h"
#include "base/text.h"
#include "bus/log.h"
#include "bus/log_counters.h"
#include "testing/eventually.h"
#include "testing/hex.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

struct Replayed {
  uint64_t sequence;
  RecordKind kind;
  int64_t received_unix_ns;
  std::string payload;
};

class DurableLogTest : public ::testing::Test {
 protected:
  std::unique_ptr<DurableLog> open(LogOptions options = {}) {
    options.folder = folder_.path() + "/log";
    Result<std::unique_ptr<DurableLog>> log = DurableLog::open(options, counters_);
    EXPECT_TRUE(log.ok()) << (log.ok() ? "" : log.error());
    return log.ok() ? std::move(*log) : nullptr;
  }
  std::vector<Replayed> replay(DurableLog& log) {
    std::vector<Replayed> records;
    Result<void> done = log.replay([&](uint64_t sequence, RecordKind kind, int64_t received, std::string_view payload) {
      records.push_back({sequence, kind, received, std::string(payload)});
    });
    EXPECT_TRUE(done.ok());
    return records;
  }
  std::vector<std::string> segments() {
    std::vector<std::string> paths;
    Result<std::vector<std::string>> names = list_directory(folder_.path() + "/log");
    for (const std::string& name : *names) paths.push_back(folder_.path() + "/log/" + name);
    return paths;
  }
  static void overwrite(const std::string& path, uint64_t at, char byte) {
    UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_EQ(pwrite(file.get(), &byte, 1, static_cast<off_t>(at)), 1);
  }

  testing::TemporaryFolder folder_;
  Counters counters_{kLogCounters};
};

TEST(Crc32c, MatchesThePublishedCheckValueWithAndWithoutTheInstruction) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c_portable("123456789"), 0xE3069283u);
  std::mt19937 random(1);
  for (size_t length = 0; length < 100; ++length) {
    std::string bytes(length, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    EXPECT_EQ(crc32c(bytes), crc32c_portable(bytes)) << length;
  }
}

TEST_F(DurableLogTest, GivesBackWhatWasAppendedInOrderAfterAReopen) {
  auto log = open();
  EXPECT_EQ(log->next_sequence(), 1u);
  EXPECT_EQ(*log->append(RecordKind::kOtlpLogs, 111, "first"), 1u);
  EXPECT_EQ(*log->append(RecordKind::kOtlpMetrics, 222, ""), 2u);
  EXPECT_EQ(*log->append(RecordKind::kOtlpSpans, 333, std::string(100'000, 'x')), 3u);
  log.reset();
  log = open();
  std::vector<Replayed> records = replay(*log);
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].payload, "first");
  EXPECT_EQ(records[0].kind, RecordKind::kOtlpLogs);
  EXPECT_EQ(records[0].received_unix_ns, 111);
  EXPECT_EQ(records[1].payload, "");
  EXPECT_EQ(records[2].sequence, 3u);
  EXPECT_EQ(records[2].payload.size(), 100'000u);
  EXPECT_EQ(*log->append(RecordKind::kOtlpLogs, 444, "fourth"), 4u);
  EXPECT_EQ(counters_.value("lockstep_log_torn_tails_total"), 0);
}

// The example of docs/formats/log.md, byte for byte: a log written today must be readable by every later version.
TEST_F(DurableLogTest, WritesTheBytesOfTheFormatPage) {
  auto log = open();
  ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, 1'700'000'000'000'000'000, "hello").ok());
  std::string bytes = *read_file(segments().at(0), 1000);
  EXPECT_EQ(segments().at(0), folder_.path() + "/log/00000000000000000001.log");
  EXPECT_EQ(testing::hex(bytes),
            "4c535231"
            "46aa8a39"
            "05000000"
            "4cbb719a"
            "0100000000000000"
            "00002a36fe9c9717"
            "0200000000000000"
            "68656c6c6f");
}

TEST_F(DurableLogTest, StopsAtTheFirstTornRecordAndReportsIt) {
  auto log = open();
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, i, "record " + std::to_string(i)).ok());
  log.reset();
  std::string path = segments().at(0);
  uint64_t size = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, size - 3);
  log = open();
  std::vector<Replayed> records = replay(*log);
  ASSERT_EQ(records.size(), 9u);
  EXPECT_EQ(records.back().payload, "record 8");
  EXPECT_EQ(counters_.value("lockstep_log_torn_tails_total"), 1);
  EXPECT_EQ(counters_.value("lockstep_log_torn_bytes_total"), 40 + 8 - 3);
  EXPECT_EQ(counters_.value("lockstep_log_corrupt_segments_total"), 0);
  // The torn record's number goes to the next one, and the cut is not reported again.
  EXPECT_EQ(*log->append(RecordKind::kOtlpLogs, 99, "after"), 10u);
  log.reset();
  log = open();
  EXPECT_EQ(replay(*log).size(), 10u);
  EXPECT_EQ(counters_.value("lockstep_log_torn_tails_total"), 1);
}

TEST_F(DurableLogTest, ATailTornAtEveryByteLeavesTheRecordsBeforeIt) {
  auto log = open();
  ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, 1, "kept").ok());
  ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, 2, "torn").ok());
  log.reset();
  std::string path = segments().at(0);
  std::string whole = *read_file(path, 1000);
  for (size_t size = 44; size < whole.size(); ++size) {
    std::filesystem::remove_all(folder_.path() + "/log");
    ASSERT_TRUE(make_directories(folder_.path() + "/log").ok());
    ASSERT_TRUE(write_file_atomically(path, whole.substr(0, size)).ok());
    log = open();
    std::vector<Replayed> records = replay(*log);
    ASSERT_EQ(records.size(), 1u) << size;
    EXPECT_EQ(records[0].payload, "kept");
  }
}

TEST_F(DurableLogTest, KeepsWhatTheChecksumsProveOfADamagedSegmentAndGoesOnWithTheNext) {
  LogOptions options;
  options.segment_bytes_max = 200;  // a few records each
  auto log = open(options);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, i, format("record %03d", i)).ok());
  log.reset();
  ASSERT_EQ(segments().size(), 5u);
  overwrite(segments().at(1), 50 + 45, '!');  // in the payload of the second record of the second segment
  log = open(options);
  std::vector<Replayed> records = replay(*log);
  std::vector<uint64_t> sequences;
  for (const Replayed& record : records) sequences.push_back(record.sequence);
  EXPECT_EQ(sequences, (std::vector<uint64_t>{1, 2, 3, 4, 5, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}));
  EXPECT_EQ(counters_.value("lockstep_log_corrupt_segments_total"), 1);
  EXPECT_EQ(counters_.value("lockstep_log_records_missing_total"), 3);
  EXPECT_EQ(counters_.value("lockstep_log_records_replayed_total"), 17);
}

TEST_F(DurableLogTest, DamageInsideTheNewestSegmentIsReportedAsDamageAndTheBytesStay) {
  auto log = open();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, i, "payload").ok());
  log.reset();
  std::string path = segments().at(0);
  uint64_t size = std::filesystem::file_size(path);
  overwrite(path, 0, '!');  // the very first record
  log = open();
  EXPECT_EQ(std::filesystem::file_size(path), size);
  EXPECT_EQ(counters_.value("lockstep_log_torn_tails_total"), 0);
  EXPECT_TRUE(replay(*log).empty());
  EXPECT_EQ(counters_.value("lockstep_log_corrupt_segments_total"), 1);
  ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, 9, "new").ok());
  log.reset();
  log = open();
  std::vector<Replayed> records = replay(*log);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].payload, "new");
}

TEST_F(DurableLogTest, DropsTheOldestSegmentsBeyondItsSizeAndCountsThem) {
  LogOptions options;
  options.total_bytes_max = 8000;
  auto log = open(options);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, i, std::string(400, 'x')).ok());
  EXPECT_GT(counters_.value("lockstep_log_segments_dropped_total"), 0);
  EXPECT_LE(counters_.value("lockstep_log_bytes"), 8000);
  uint64_t on_disk = 0;
  for (const std::string& path : segments()) on_disk += std::filesystem::file_size(path);
  EXPECT_EQ(static_cast<int64_t>(on_disk), counters_.value("lockstep_log_bytes"));
  log.reset();
  log = open(options);
  std::vector<Replayed> records = replay(*log);
  ASSERT_GE(records.size(), 9u);
  EXPECT_EQ(records.back().sequence, 100u);
  EXPECT_EQ(records.front().sequence, 100 - records.size() + 1);
  EXPECT_EQ(counters_.value("lockstep_log_records_missing_total"), 0);
}

TEST_F(DurableLogTest, ALogOfAnotherVersionIsRefusedWithBothVersionsNamedAndNothingIsChanged) {
  auto log = open();
  ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, 1, "hello").ok());
  log.reset();
  for (const char version : {'2', '0'}) {
    overwrite(segments().at(0), 3, version);
    const std::string before = *read_file(segments().at(0), 1 << 20);
    Result<std::unique_ptr<DurableLog>> opened = DurableLog::open({.folder = folder_.path() + "/log"}, counters_);
    ASSERT_FALSE(opened.ok());
    EXPECT_NE(
        opened.error().find(format("a durable log of format version %c, and this server reads version 1", version)),
        std::string::npos)
        << opened.error();
    EXPECT_EQ(*read_file(segments().at(0), 1 << 20), before);
  }
  overwrite(segments().at(0), 3, '1');
  log = open();
  ASSERT_EQ(replay(*log).size(), 1u);
}

TEST_F(DurableLogTest, AFileThatBeginsAsNoLogOfOursIsDamageAndStays) {
  auto log = open();
  ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, 1, "hello").ok());
  log.reset();
  const std::string path = segments().at(0);
  ASSERT_TRUE(write_file_atomically(path, std::string(500, 'x')).ok());
  log = open();
  EXPECT_TRUE(replay(*log).empty());
  EXPECT_EQ(counters_.value("lockstep_log_corrupt_segments_total"), 1);
  EXPECT_EQ(counters_.value("lockstep_log_torn_tails_total"), 0);
  ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, 2, "more").ok());
  EXPECT_EQ(read_file(path, 1 << 20)->size(), 500u);
}

TEST_F(DurableLogTest, HasTheStoresWriteOutWhatTheyHaveBeforeASegmentGoes) {
  uint64_t appended = 0, sealed = 0;
  int seals = 0;
  LogOptions options;
  options.total_bytes_max = 8000;
  options.sealed_through = [&] { return sealed; };
  options.seal = [&] {
    ++seals;
    sealed = appended;
  };
  options.dropped_unsealed = [&](uint64_t, uint64_t) { ADD_FAILURE(); };
  auto log = open(options);
  for (int i = 0; i < 100; ++i) appended = *log->append(RecordKind::kOtlpLogs, i, std::string(400, 'x'));
  EXPECT_GT(counters_.value("lockstep_log_segments_dropped_total"), 0);
  EXPECT_GT(seals, 0);
  EXPECT_EQ(counters_.value("lockstep_log_unsealed_records_dropped_total"), 0);
  EXPECT_LE(counters_.value("lockstep_log_bytes"), 8000);
}

// The record is on disk by then, and others wait for whoever leads.
TEST_F(DurableLogTest, StoresThatThrowWhenTheLogIsFullHoldUpNobody) {
  LogOptions options;
  options.total_bytes_max = 4000;
  options.segment_bytes_max = 1000;
  options.sealed_through = [] { return uint64_t{0}; };
  options.seal = [] { throw std::runtime_error("no memory for a file"); };
  auto log = open(options);
  for (uint64_t i = 1; i <= 30; ++i) {
    const Result<uint64_t> sequence = log->append(RecordKind::kOtlpLogs, 1, std::string(400, 'x'));
    ASSERT_TRUE(sequence.ok()) << sequence.error();
    EXPECT_EQ(*sequence, i);
  }
  log.reset();
  EXPECT_EQ(replay(*(log = open())).size(), 30u);
}

TEST_F(DurableLogTest, WhatTheStoresCannotWriteOutIsToldWhenItsSegmentGoes) {
  LogOptions options;
  options.total_bytes_max = 8000;
  int seals = 0;
  uint64_t reported = 0, last_reported = 0;
  options.sealed_through = [] { return uint64_t{3}; };
  options.seal = [&] { ++seals; };  // to no avail
  options.dropped_unsealed = [&](uint64_t first, uint64_t last) {
    EXPECT_EQ(first, last_reported == 0 ? 4 : last_reported + 1);  // up to 3 is in files
    last_reported = last;
    reported += last - first + 1;
  };
  auto log = open(options);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, i, std::string(400, 'x')).ok());
  EXPECT_LE(counters_.value("lockstep_log_bytes"), 8000);  // the disk is not filled
  EXPECT_GT(seals, 0);
  EXPECT_GT(reported, 0u);
  EXPECT_EQ(counters_.value("lockstep_log_unsealed_records_dropped_total"), static_cast<int64_t>(reported));
  EXPECT_EQ(replay(*log).front().sequence, last_reported + 1);
}

TEST_F(DurableLogTest, ALogThatIsTooLongAtStartIsReadWholeBeforeItIsCut) {
  auto log = open();
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, i, std::string(400, 'x')).ok());
    if (i % 5 == 4) log = open();
  }
  LogOptions smaller;
  smaller.total_bytes_max = 4000;
  log = open(smaller);
  EXPECT_EQ(replay(*log).size(), 20u);
  ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, 21, "new").ok());
  EXPECT_LE(counters_.value("lockstep_log_bytes"), 4000);
}

TEST_F(DurableLogTest, RefusesARecordOverTheLimitAndCountsEveryOutcome) {
  auto log = open();
  std::string longest(DurableLog::kRecordBytesMax + 1, 'x');
  Result<uint64_t> refused = log->append(RecordKind::kOtlpLogs, 1, longest);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().find("67108864"), std::string::npos) << refused.error();
  longest.pop_back();
  EXPECT_EQ(*log->append(RecordKind::kOtlpLogs, 1, longest), 1u);
  EXPECT_EQ(counters_.value("lockstep_log_records_received_total"), 2);
  EXPECT_EQ(counters_.value("lockstep_log_records_appended_total"), 1);
  EXPECT_EQ(counters_.value("lockstep_log_records_refused_total", "reason=\"too_large\""), 1);
}

TEST_F(DurableLogTest, CallersThatComeTogetherShareASync) {
  auto log = open();
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i)
        ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, t, std::to_string(t * 1000 + i)).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counters_.value("lockstep_log_records_appended_total"), 400);
  EXPECT_LT(counters_.value("lockstep_log_syncs_total"), 400);
  log.reset();
  log = open();
  std::vector<Replayed> records = replay(*log);
  ASSERT_EQ(records.size(), 400u);
  std::map<int64_t, int> last;  // per thread: in the order in which it appended
  for (const Replayed& record : records) {
    int number = std::stoi(record.payload) % 1000;
    EXPECT_EQ(number, last.contains(record.received_unix_ns) ? last[record.received_unix_ns] + 1 : 0);
    last[record.received_unix_ns] = number;
  }
}

// A full disk, played by a limit on file size: writes beyond it are cut short and then fail, as on a full disk.
TEST_F(DurableLogTest, AFullDiskRefusesWithOneLineAndAcceptsAgainWhenThereIsRoom) {
  pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    auto log = open();
    rlimit limit{};
    getrlimit(RLIMIT_FSIZE, &limit);
    rlim_t all = limit.rlim_cur;
    limit.rlim_cur = 1000;
    setrlimit(RLIMIT_FSIZE, &limit);
    int kept = 0;
    Result<uint64_t> last = Error{"none"};
    while ((last = log->append(RecordKind::kOtlpLogs, 1, format("record %05d", kept))).ok()) ++kept;
    bool line_is_clear = last.error().find("cannot write to the log") != std::string::npos &&
                         last.error().find('\n') == std::string::npos;
    bool still_full = !log->append(RecordKind::kOtlpLogs, 1, "refused").ok();
    limit.rlim_cur = all;
    setrlimit(RLIMIT_FSIZE, &limit);
    bool accepts = log->append(RecordKind::kOtlpLogs, 1, format("record %05d", kept)).ok();
    bool counted =
        counters_.value("lockstep_log_records_received_total") ==
        counters_.value("lockstep_log_records_appended_total") + counters_.sum("lockstep_log_records_refused_total");
    _exit(line_is_clear && still_full && accepts && counted && kept == 19 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  auto log = open();
  std::vector<Replayed> records = replay(*log);
  ASSERT_EQ(records.size(), 20u);
  for (size_t i = 0; i < records.size(); ++i) EXPECT_EQ(records[i].payload, format("record %05zu", i));
  EXPECT_EQ(counters_.value("lockstep_log_torn_tails_total"), 0);
}

TEST_F(DurableLogTest, ASegmentWhoseSyncFailedIsLeftAndEndsWhereTheNextBegins) {
  using Kind = disk::Call::Kind;
  for (const bool can_cut : {true, false}) {
    std::filesystem::remove_all(folder_.path() + "/log");
    auto log = open();
    ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, 1, "kept").ok());
    EXPECT_EQ(log->trouble(), std::nullopt);
    {
      disk::FailingDisk failing([&](const disk::Call& call) {
        return call.kind == Kind::kSync || (call.kind == Kind::kTruncate && !can_cut) ? EIO : 0;
      });
      EXPECT_FALSE(log->append(RecordKind::kOtlpLogs, 2, "refused").ok());
      EXPECT_NE(log->trouble().value_or("none").find("cannot write to the log"), std::string::npos);
    }
    EXPECT_EQ(*log->append(RecordKind::kOtlpLogs, 3, "later"), 2u);
    EXPECT_EQ(log->trouble(), std::nullopt);
    EXPECT_EQ(segments().size(), 2u);
    log.reset();
    log = open();
    std::vector<Replayed> records = replay(*log);
    ASSERT_EQ(records.size(), 2u) << can_cut;
    EXPECT_EQ(records[0].payload, "kept");
    EXPECT_EQ(records[1].payload, "later");
    EXPECT_EQ(*log->append(RecordKind::kOtlpLogs, 4, "last"), 3u);
  }
  EXPECT_EQ(counters_.value("lockstep_log_corrupt_segments_total"), 0);
  EXPECT_EQ(counters_.value("lockstep_log_records_missing_total"), 0);
  EXPECT_EQ(counters_.value("lockstep_log_torn_tails_total"), 0);
}

TEST_F(DurableLogTest, ReplaysEverythingAppendedBeforeACrash) {
  std::mt19937 random(20'240'517);
  std::map<std::string, int> acknowledged;
  for (int round = 0; round < 20; ++round) {
    int pipe_fds[2];
    ASSERT_EQ(pipe2(pipe_fds, O_CLOEXEC), 0);
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      LogOptions options;
      options.segment_bytes_max = 20'000;  // crashes fall on segment changes too
      auto log = open(options);
      std::vector<std::thread> threads;
      for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
          for (int i = 0;; ++i) {
            std::string payload =
                format("%d.%d.%d.", round, t, i) + std::string(static_cast<size_t>(i * 37 % 900), 'p');
            if (!log->append(RecordKind::kOtlpLogs, round, payload).ok()) _exit(1);
            std::string line = format("%d.%d.%d.\n", round, t, i);
            if (write(pipe_fds[1], line.data(), line.size()) != static_cast<ssize_t>(line.size())) _exit(1);
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      _exit(0);
    }
    close(pipe_fds[1]);
    // Killed once so much was acknowledged, wherever its threads are then.
    const size_t enough = 1 + static_cast<size_t>(random()) % 4'000;
    std::string lines;
    char buffer[4096];
    ssize_t got = 0;
    while (lines.size() < enough && (got = read(pipe_fds[0], buffer, sizeof buffer)) > 0)
      lines.append(buffer, static_cast<size_t>(got));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself: " << status;
    while ((got = read(pipe_fds[0], buffer, sizeof buffer)) > 0) lines.append(buffer, static_cast<size_t>(got));
    close(pipe_fds[0]);
    for (std::string_view line : split(lines, '\n')) {
      if (!line.empty()) acknowledged[std::string(line)] = 0;
    }
    auto log = open();
    for (const Replayed& record : replay(*log)) {
      auto found = acknowledged.find(record.payload.substr(0, record.payload.rfind('.') + 1));
      if (found != acknowledged.end()) ++found->second;
    }
    for (auto& [key, times] : acknowledged) {
      ASSERT_EQ(times, 1) << "round " << round << ": record " << key << " was acknowledged and replayed " << times
                          << " times";
      times = 0;
    }
  }
  EXPECT_GT(acknowledged.size(), 50u);
  EXPECT_EQ(counters_.value("lockstep_log_corrupt_segments_total"), 0);
  EXPECT_EQ(counters_.value("lockstep_log_records_missing_total"), 0);
}

TEST_F(DurableLogTest, FilesWithOtherNamesAreNeitherReadNorTouched) {
  {
    auto log = open();
    ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, 1, "one").ok());
    ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, 2, "two").ok());
  }
  const std::string segment = *read_file(segments().at(0), 1000);
  // Some hold a whole segment: only the name says that they are none.
  const char* const kOthers[] = {"7.log",
                                 "000000000000000000007.log",
                                 "x.log",
                                 "0000000000000000000x.log",
                                 ".log",
                                 "-0000000000000000001.log",
                                 "00000000000000000007.log.bak",
                                 "00000000000000000007",
                                 "00000000000000000007.txt"};
  for (const char* name : kOthers)
    ASSERT_TRUE(write_file_atomically(folder_.path() + "/log/" + name, segment).ok()) << name;
  auto log = open();
  EXPECT_EQ(log->next_sequence(), 3u);
  EXPECT_EQ(counters_.value("lockstep_log_bytes"), static_cast<int64_t>(segment.size()));
  const std::vector<Replayed> records = replay(*log);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].payload, "one");
  EXPECT_EQ(records[1].sequence, 2u);
  EXPECT_EQ(*log->append(RecordKind::kOtlpLogs, 3, "three"), 3u);
  EXPECT_EQ(counters_.value("lockstep_log_corrupt_segments_total"), 0);
  EXPECT_EQ(counters_.value("lockstep_log_records_missing_total"), 0);
  for (const char* name : kOthers) EXPECT_EQ(*read_file(folder_.path() + "/log/" + name, 1000), segment) << name;
}

TEST_F(DurableLogTest, SaysHowManyBytesItHasAfterAReopenAndACut) {
  {
    auto log = open();
    ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, 1, "one").ok());
    ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, 2, "two").ok());
  }
  const uint64_t whole = std::filesystem::file_size(segments().at(0));
  open();
  EXPECT_EQ(counters_.value("lockstep_log_bytes"), static_cast<int64_t>(whole));
  std::filesystem::resize_file(segments().at(0), whole - 1);  // a write that was not finished
  open();
  EXPECT_EQ(counters_.value("lockstep_log_bytes"), static_cast<int64_t>(whole / 2));
  EXPECT_EQ(counters_.value("lockstep_log_torn_bytes_total"), static_cast<int64_t>(whole / 2 - 1));
  EXPECT_EQ(std::filesystem::file_size(segments().at(0)), whole / 2);
}

TEST_F(DurableLogTest, ARecordOfTheVeryLimitIsTakenAndComesBack) {
  const std::string most(DurableLog::kRecordBytesMax, 'm');
  {
    auto log = open();
    ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, 1, most).ok());
    ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, 2, "").ok());
  }
  auto log = open();
  const std::vector<Replayed> records = replay(*log);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_TRUE(records[0].payload == most);
  EXPECT_EQ(records[1].payload, "");
}

// One record as docs/formats/log.md has it, for kinds and numbers that append() does not write.
std::string record_bytes(uint64_t sequence, uint8_t kind, std::string_view payload) {
  auto little = [](uint64_t value, size_t bytes) {
    std::string text;
    for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
    return text;
  };
  std::string behind = little(payload.size(), 4) + little(crc32c(payload), 4) + little(sequence, 8) + little(0, 8) +
                       little(kind, 1) + std::string(7, '\0');
  return "LSR1" + little(crc32c(behind), 4) + behind + std::string(payload);
}

TEST_F(DurableLogTest, RecordsOfAKindOfALaterVersionAreCountedAndLeftOut) {
  ASSERT_TRUE(make_directories(folder_.path() + "/log").ok());
  std::string bytes;
  for (uint8_t kind = 0; kind <= 7; ++kind) bytes += record_bytes(kind + 1u, kind, "payload");
  ASSERT_TRUE(write_file_atomically(folder_.path() + "/log/00000000000000000001.log", bytes).ok());
  auto log = open();
  std::vector<uint64_t> sequences;
  for (const Replayed& record : replay(*log)) sequences.push_back(record.sequence);
  EXPECT_EQ(sequences, (std::vector<uint64_t>{2, 3, 4, 5, 6, 7}));  // kinds 1 to 6
  EXPECT_EQ(counters_.value("lockstep_log_records_replayed_total"), 8);
  EXPECT_EQ(counters_.value("lockstep_log_corrupt_segments_total"), 0);
  EXPECT_EQ(log->next_sequence(), 9u);
}

TEST_F(DurableLogTest, ASegmentEndsWhereTheNumbersDoNotGoOn) {
  ASSERT_TRUE(make_directories(folder_.path() + "/log").ok());
  const std::string first = folder_.path() + "/log/00000000000000000001.log";
  const std::string second = folder_.path() + "/log/00000000000000000004.log";
  ASSERT_TRUE(write_file_atomically(first, record_bytes(1, 2, "one") + record_bytes(3, 2, "three")).ok());
  ASSERT_TRUE(write_file_atomically(second, record_bytes(4, 2, "four") + record_bytes(4, 2, "again")).ok());
  auto log = open();
  std::vector<std::string> payloads;
  for (const Replayed& record : replay(*log)) payloads.push_back(record.payload);
  EXPECT_EQ(payloads, (std::vector<std::string>{"one", "four"}));
  EXPECT_EQ(counters_.value("lockstep_log_records_missing_total"), 2);
  EXPECT_EQ(counters_.value("lockstep_log_corrupt_segments_total"), 1);
  EXPECT_EQ(counters_.value("lockstep_log_torn_tails_total"), 1);  // at the end of the log it was never acknowledged
  EXPECT_EQ(log->next_sequence(), 5u);
}

// Whatever follows a whole record at the end of the newest segment: cut off as an unfinished write, or kept as damage.
TEST_F(DurableLogTest, OnlyWhatBeginsAsARecordAndHoldsNoneIsCutOff) {
  const std::string whole = record_bytes(1, 2, "one");
  const std::string next = record_bytes(2, 2, "two");
  std::string bad_payload = next;
  bad_payload.back() = '!';
  std::string bad_header = next;
  bad_header[8] = '!';
  struct Case {
    const char* what;
    std::string behind;
    bool cut;
  };
  for (const Case& test :
       {Case{"one byte of the mark", "L", true}, Case{"the mark", "LSR1", true},
        Case{"a header less a byte", next.substr(0, 39), true}, Case{"a header", next.substr(0, 40), true},
        Case{"a payload less a byte", next.substr(0, 42), true}, Case{"a payload that is another", bad_payload, true},
        Case{"a header that is another", bad_header, true}, Case{"another mark", "XSR1", false},
        Case{"zeros", std::string(40, '\0'), true},
        Case{"damage before a record", bad_payload + record_bytes(3, 2, "three"), false},
        Case{"damage before a header", bad_payload + record_bytes(3, 2, "three").substr(0, 40), false},
        Case{"damage before half a header", bad_payload + record_bytes(3, 2, "three").substr(0, 39), true},
        Case{"damage before two marks", bad_payload + "LSR1" + record_bytes(3, 2, "three"), false}}) {
    SCOPED_TRACE(test.what);
    std::filesystem::remove_all(folder_.path() + "/log");
    ASSERT_TRUE(make_directories(folder_.path() + "/log").ok());
    const std::string path = folder_.path() + "/log/00000000000000000001.log";
    ASSERT_TRUE(write_file_atomically(path, whole + test.behind).ok());
    const int64_t cuts = counters_.value("lockstep_log_torn_tails_total");
    const int64_t cut_bytes = counters_.value("lockstep_log_torn_bytes_total");
    const int64_t damaged = counters_.value("lockstep_log_corrupt_segments_total");
    auto log = open();
    EXPECT_EQ(replay(*log).size(), 1u);
    const int64_t behind = static_cast<int64_t>(test.behind.size());
    EXPECT_EQ(counters_.value("lockstep_log_torn_tails_total") - cuts, test.cut ? 1 : 0);
    EXPECT_EQ(counters_.value("lockstep_log_torn_bytes_total") - cut_bytes, test.cut ? behind : 0);
    EXPECT_EQ(counters_.value("lockstep_log_corrupt_segments_total") - damaged, test.cut ? 0 : 1);
    EXPECT_EQ(std::filesystem::file_size(path), whole.size() + (test.cut ? 0 : test.behind.size()));
    EXPECT_EQ(*log->append(RecordKind::kOtlpLogs, 1, "next"), 2u);
  }
}

TEST_F(DurableLogTest, ALogOfNothingButAnUnfinishedWriteBeginsAnew) {
  ASSERT_TRUE(make_directories(folder_.path() + "/log").ok());
  const std::string path = folder_.path() + "/log/00000000000000000007.log";
  ASSERT_TRUE(write_file_atomically(path, record_bytes(7, 2, "seven").substr(0, 20)).ok());
  auto log = open();
  EXPECT_EQ(counters_.value("lockstep_log_bytes"), 0);
  EXPECT_TRUE(segments().empty());
  EXPECT_TRUE(replay(*log).empty());
  EXPECT_EQ(*log->append(RecordKind::kOtlpLogs, 1, "seven"), 7u);
  EXPECT_EQ(segments().at(0), path);
}

TEST_F(DurableLogTest, ASegmentIsFullAtItsLimitAndTheLogIsTooLongOneByteBeyondIts) {
  const std::string payload(60, 'x');  // 100 bytes with its header
  LogOptions options;
  options.segment_bytes_max = 200;
  options.total_bytes_max = 1000;
  auto log = open(options);
  for (int i = 1; i <= 10; ++i) {
    ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, i, payload).ok());
    EXPECT_EQ(segments().size(), static_cast<size_t>((i + 1) / 2)) << i;
    EXPECT_EQ(counters_.value("lockstep_log_bytes"), i * 100);
    EXPECT_EQ(counters_.value("lockstep_log_bytes_appended_total"), i * 100);
    EXPECT_EQ(counters_.value("lockstep_log_syncs_total"), i);
  }
  EXPECT_EQ(counters_.value("lockstep_log_segments_dropped_total"), 0);
  ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, 11, "").ok());
  EXPECT_EQ(counters_.value("lockstep_log_segments_dropped_total"), 1);
  EXPECT_EQ(counters_.value("lockstep_log_bytes"), 840);
  EXPECT_EQ(std::filesystem::path(segments().at(0)).filename(), "00000000000000000003.log");
}

TEST_F(DurableLogTest, WhileItIsPinnedNoSegmentIsDeletedAndAfterwardsTheNextRecordCatchesUp) {
  const std::string payload(60, 'x');
  LogOptions options;
  options.segment_bytes_max = 200;
  options.total_bytes_max = 400;
  auto log = open(options);
  std::shared_ptr<void> pin = log->pin();
  std::shared_ptr<void> another = log->pin();
  for (int i = 1; i <= 20; ++i) ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, i, payload).ok());
  EXPECT_EQ(replay(*log).size(), 20u);
  pin.reset();
  ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, 21, payload).ok());
  EXPECT_EQ(replay(*log).size(), 21u);
  another.reset();
  ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, 22, payload).ok());
  EXPECT_EQ(replay(*log).size(), 4u);
  EXPECT_EQ(counters_.value("lockstep_log_bytes"), 400);
}

TEST_F(DurableLogTest, ASegmentIsNeverMoreThanAQuarterOfTheLog) {
  LogOptions options;
  options.total_bytes_max = 400;
  auto log = open(options);
  for (int i = 1; i <= 4; ++i) ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, i, std::string(60, 'x')).ok());
  EXPECT_EQ(segments().size(), 4u);
  options.total_bytes_max = 0;  // nothing is to be kept: the newest stays all the same
  log = open(options);
  ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, 5, "newest").ok());
  ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, 6, "newest").ok());
  EXPECT_EQ(segments().size(), 1u);
  EXPECT_EQ(std::filesystem::path(segments().at(0)).filename(), "00000000000000000006.log");
}

TEST_F(DurableLogTest, TheStoresAreAskedToWriteOutOnceAndOnlyForRecordsTheyLack) {
  const std::string payload(60, 'x');
  uint64_t sealed = 2;
  int seals = 0;
  std::vector<std::pair<uint64_t, uint64_t>> dropped;
  LogOptions options;
  options.segment_bytes_max = 200;
  options.total_bytes_max = 1000;
  options.sealed_through = [&] { return sealed; };
  options.seal = [&] { ++seals; };
  options.dropped_unsealed = [&](uint64_t first, uint64_t last) { dropped.emplace_back(first, last); };
  auto log = open(options);
  for (int i = 1; i <= 11; ++i) ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, i, payload).ok());
  EXPECT_EQ(seals, 0);  // records 1 and 2 went, and both are in files
  EXPECT_TRUE(dropped.empty());
  sealed = 3;
  for (int i = 12; i <= 13; ++i) ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, i, payload).ok());
  EXPECT_EQ(seals, 1);
  EXPECT_EQ(dropped, (std::vector<std::pair<uint64_t, uint64_t>>{{4, 4}}));
  EXPECT_EQ(counters_.value("lockstep_log_unsealed_records_dropped_total"), 1);
  ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, 14, std::string(460, 'x')).ok());  // room for it: three segments less
  EXPECT_EQ(seals, 2);
  EXPECT_EQ(dropped, (std::vector<std::pair<uint64_t, uint64_t>>{{4, 4}, {5, 6}, {7, 8}}));
  EXPECT_EQ(counters_.value("lockstep_log_unsealed_records_dropped_total"), 5);
}

// A disk that takes a few bytes at a time, and holds a sync up while callers gather.
class SlowDisk final : public disk::Hook {
 public:
  explicit SlowDisk(size_t bytes_max) : bytes_max_(bytes_max) { disk::set_hook(this); }
  ~SlowDisk() override { disk::set_hook(nullptr); }
  SlowDisk(const SlowDisk&) = delete;
  SlowDisk& operator=(const SlowDisk&) = delete;
  int before(const disk::Call& call, size_t& bytes_max) override {
    if (call.kind == disk::Call::Kind::kWrite) bytes_max = bytes_max_;
    if (call.kind == disk::Call::Kind::kWrite) ++writes;
    if (call.kind == disk::Call::Kind::kWrite) pieces_max = std::max<size_t>(pieces_max, call.pieces.size());
    if (call.kind == disk::Call::Kind::kSync) testing::eventually([this] { return !held; });
    return 0;
  }
  void after(const disk::Call& /*call*/, int64_t /*outcome*/) override {}

  std::atomic<bool> held = false;
  std::atomic<int> writes = 0;
  std::atomic<size_t> pieces_max = 0;

 private:
  const size_t bytes_max_;
};

TEST_F(DurableLogTest, WhatTheDiskTakesInPiecesIsWrittenWhole) {
  for (const size_t piece : {1, 7, 40, 41, 46}) {
    SCOPED_TRACE(piece);
    std::filesystem::remove_all(folder_.path() + "/log");
    {
      auto log = open();
      SlowDisk slow(piece);
      for (int i = 0; i < 3; ++i) ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, i, format("record %d", i)).ok());
    }
    auto log = open();
    const std::vector<Replayed> records = replay(*log);
    ASSERT_EQ(records.size(), 3u);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(records[static_cast<size_t>(i)].payload, format("record %d", i));
    EXPECT_EQ(counters_.value("lockstep_log_torn_tails_total"), 0);
  }
}

TEST_F(DurableLogTest, MoreCallersThanOneWriteTakesAreOneGroupWithOneSync) {
  auto log = open();
  {
    SlowDisk slow(SIZE_MAX);
    slow.held = true;
    std::vector<std::thread> threads;
    for (int t = 0; t < 600; ++t) {
      threads.emplace_back([&, t] { EXPECT_TRUE(log->append(RecordKind::kOtlpLogs, t, std::to_string(t)).ok()); });
      while (t == 0 && slow.writes == 0) std::this_thread::yield();  // the first leads, and waits for the disk
    }
    while (counters_.value("lockstep_log_records_received_total") < 600)
      std::this_thread::yield();  // all wait for the first
    slow.held = false;
    for (std::thread& thread : threads) thread.join();
    EXPECT_LE(slow.pieces_max, 512u);
    EXPECT_GE(slow.pieces_max, 500u);
  }
  EXPECT_LE(counters_.value("lockstep_log_syncs_total"), 3);
  EXPECT_EQ(counters_.value("lockstep_log_records_appended_total"), 600);
  log.reset();
  log = open();
  std::vector<bool> seen(600);
  for (const Replayed& record : replay(*log)) {
    EXPECT_EQ(record.payload, std::to_string(record.received_unix_ns));
    seen[static_cast<size_t>(record.received_unix_ns)] = true;
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 600);
}

TEST_F(DurableLogTest, ADiskThatLetsNoSegmentBeMadeRefusesAndLeavesNothing) {
  using Kind = disk::Call::Kind;
  auto log = open();
  for (const Kind kind : {Kind::kOpen, Kind::kSyncFolder}) {
    disk::FailingDisk failing([&](const disk::Call& call) { return call.kind == kind ? EIO : 0; });
    EXPECT_FALSE(log->append(RecordKind::kOtlpLogs, 1, "refused").ok());
    EXPECT_TRUE(segments().empty());
    EXPECT_TRUE(log->trouble().has_value());
  }
  EXPECT_EQ(counters_.value("lockstep_log_records_refused_total", "reason=\"write_failed\""), 2);
  EXPECT_EQ(*log->append(RecordKind::kOtlpLogs, 1, "taken"), 1u);
  log.reset();
  EXPECT_EQ(replay(*open()).size(), 1u);
}

TEST_F(DurableLogTest, ASegmentThatCannotBeCutBackSafelyIsLeft) {
  using Kind = disk::Call::Kind;
  auto log = open();
  ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, 1, "kept").ok());
  {
    disk::FailingDisk failing(
        [&](const disk::Call& call) { return call.kind == Kind::kWrite || call.kind == Kind::kSync ? EIO : 0; });
    EXPECT_FALSE(log->append(RecordKind::kOtlpLogs, 2, "refused").ok());  // cut back, and nobody knows whether for good
  }
  ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, 3, "later").ok());
  EXPECT_EQ(segments().size(), 2u);
  {
    disk::FailingDisk failing([&](const disk::Call& call) { return call.kind == Kind::kWrite ? EIO : 0; });
    EXPECT_FALSE(log->append(RecordKind::kOtlpLogs, 4, "refused").ok());
  }
  ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, 5, "last").ok());
  EXPECT_EQ(segments().size(), 2u);  // this one was cut back for good
  log.reset();
  EXPECT_EQ(replay(*open()).size(), 3u);
}

TEST_F(DurableLogTest, TheVeryFirstRecordIsReportedWhenItGoesAndNoStoreHasIt) {
  std::vector<std::pair<uint64_t, uint64_t>> dropped;
  LogOptions options;
  options.segment_bytes_max = 100;
  options.total_bytes_max = 400;
  options.sealed_through = [] { return uint64_t{0}; };
  options.dropped_unsealed = [&](uint64_t first, uint64_t last) { dropped.emplace_back(first, last); };
  auto log = open(options);
  for (int i = 1; i <= 6; ++i) ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, i, std::string(60, 'x')).ok());
  EXPECT_EQ(dropped, (std::vector<std::pair<uint64_t, uint64_t>>{{1, 1}, {2, 2}}));
}

TEST_F(DurableLogTest, WhatIsLeftOfARefusedGroupUnderTheNameOfTheNextSegmentGoes) {
  auto log = open();
  const std::string path = folder_.path() + "/log/00000000000000000001.log";
  ASSERT_TRUE(write_file_atomically(path, record_bytes(1, 2, "refused")).ok());
  EXPECT_EQ(*log->append(RecordKind::kOtlpLogs, 1, "taken"), 1u);
  log.reset();
  log = open();
  const std::vector<Replayed> records = replay(*log);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].payload, "taken");
}

TEST_F(DurableLogTest, ALogThatNobodySyncsAsksTheDiskForNoSync) {
  using Kind = disk::Call::Kind;
  int syncs = 0;
  disk::FailingDisk counting([&](const disk::Call& call) {
    if (call.kind == Kind::kSync || call.kind == Kind::kSyncFolder) ++syncs;
    return 0;
  });
  LogOptions options;
  options.sync = false;
  for (int life = 0; life < 2; ++life) {
    auto log = open(options);
    const int before = syncs;
    ASSERT_TRUE(log->append(RecordKind::kOtlpLogs, 1, "unsynced").ok());
    EXPECT_EQ(syncs, before);
  }
  int files = 0;
  disk::FailingDisk counting_files([&](const disk::Call& call) { return call.kind == Kind::kSync ? (++files, 0) : 0; });
  open(options);
  EXPECT_EQ(files, 0);
  options.sync = true;
  open(options);
  EXPECT_EQ(files, 1);  // what an earlier life wrote is to be there next time too
}

TEST_F(DurableLogTest, SeveralRecordsAreThereTogetherWithOneSync) {
  std::unique_ptr<DurableLog> log = open();
  ASSERT_EQ(*log->append(RecordKind::kOtlpLogs, 1, "alone"), 1u);
  const AppendedRecord entries[] = {
      {RecordKind::kBusMetrics, 2, "a"}, {RecordKind::kBusLogs, 3, "b"}, {RecordKind::kBusSpans, 4, ""}};
  ASSERT_EQ(*log->append_all(entries), 2u);
  EXPECT_EQ(log->next_sequence(), 5u);
  EXPECT_EQ(counters_.value("lockstep_log_syncs_total"), 2);
  EXPECT_EQ(counters_.value("lockstep_log_records_appended_total"), 4);
  EXPECT_FALSE(log->append_all({}).ok());
  log = open();
  const std::vector<Replayed> records = replay(*log);
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(records[1].payload, "a");
  EXPECT_EQ(records[3].kind, RecordKind::kBusSpans);
  EXPECT_EQ(records[3].received_unix_ns, 4);
}

// Somebody who follows a log of seven records of 100 bytes, three in a segment.
class FollowedLogTest : public DurableLogTest {
 protected:
  void SetUp() override {
    options_.segment_bytes_max = 300;
    log_ = open(options_);
  }
  void append(int from, int to) {
    for (int i = from; i <= to; ++i) ASSERT_TRUE(log_->append(RecordKind::kSpooledLogs, i, std::string(60, 'x')).ok());
  }
  // When what is read was received; "error" where that fails.
  std::string read(uint64_t bytes_max) {
    std::string text;
    const Result<void> done =
        log_->read_on(at_, bytes_max, [&](RecordKind, int64_t received, std::string_view payload) {
          EXPECT_EQ(payload.size(), 60u);
          text += std::to_string(received) + " ";
        });
    return done.ok() ? text : "error";
  }
  void expect_at(uint64_t sequence, uint64_t segment, uint64_t offset, uint64_t bytes_left) {
    EXPECT_EQ(at_.sequence, sequence);
    EXPECT_EQ(at_.segment, segment);
    EXPECT_EQ(at_.offset, offset);
    EXPECT_EQ(log_->bytes_from(at_), bytes_left);
  }

  LogOptions options_;
  std::unique_ptr<DurableLog> log_;
  LogPosition at_;
};

TEST_F(FollowedLogTest, ReadsAsMuchAsItIsAskedForOfOneSegmentAndKnowsWhatIsLeft) {
  EXPECT_EQ(read(1'000), "");
  expect_at(0, 0, 0, 0);
  append(1, 7);
  EXPECT_EQ(log_->bytes_from({}), 700u);
  EXPECT_EQ(read(1), "1 ") << "one at least";
  expect_at(2, 1, 100, 600);
  EXPECT_EQ(read(100), "2 ");
  expect_at(3, 1, 200, 500);
  EXPECT_EQ(read(1'000), "3 ");
  expect_at(4, 1, 300, 400);
  EXPECT_EQ(read(101), "4 5 ");
  expect_at(6, 4, 200, 200);
  EXPECT_EQ(read(1'000), "6 ");
  EXPECT_EQ(read(1'000), "7 ");
  expect_at(8, 7, 100, 0);
  EXPECT_EQ(read(1'000), "");
  append(8, 8);
  EXPECT_EQ(log_->bytes_from(at_), 100u);
  EXPECT_EQ(read(1'000), "8 ");
  expect_at(9, 7, 200, 0);
}

TEST_F(FollowedLogTest, APositionOfNoUseCostsReadingItsSegmentAgain) {
  append(1, 7);
  at_ = {.sequence = 5, .segment = 77, .offset = 13};
  EXPECT_EQ(read(1'000), "5 6 ");
  expect_at(7, 4, 300, 100);
  at_ = {.sequence = 6};
  EXPECT_EQ(log_->bytes_from(at_), 700u) << "nobody knows where it is";
  EXPECT_EQ(read(1), "6 ");
  at_ = {};
  EXPECT_EQ(read(150), "1 2 ");
  at_ = {.sequence = 8};
  EXPECT_EQ(read(1'000), "");
}

TEST_F(FollowedLogTest, LosesNoSegmentThatIsNotReadToItsEnd) {
  append(1, 8);
  const auto left = [&](uint64_t sequence) {
    log_->drop_before({.sequence = sequence});
    return std::pair(segments().size(), counters_.value("lockstep_log_bytes"));
  };
  EXPECT_EQ(left(3), std::pair(size_t{3}, int64_t{800}));
  EXPECT_EQ(left(4), std::pair(size_t{2}, int64_t{500}));
  EXPECT_EQ(left(8), std::pair(size_t{1}, int64_t{200}));
  EXPECT_EQ(left(9), std::pair(size_t{1}, int64_t{200})) << "the newest knows the sequence";
  append(9, 9);
  EXPECT_EQ(segments().size(), 2u) << "all of it was read, and it was more than half of a segment";
  EXPECT_EQ(left(10), std::pair(size_t{1}, int64_t{100}));
  append(10, 10);
  EXPECT_EQ(segments().size(), 1u) << "it was less than half of one";
  at_ = {.sequence = 1};
  EXPECT_EQ(read(1'000), "9 10 ") << "from the oldest there is";
}

TEST_F(FollowedLogTest, ASegmentThatCannotBeDeletedStaysAndOneThatIsGoneIsNoReasonToStop) {
  append(1, 8);
  {
    disk::FailingDisk failing(
        [](const disk::Call& call) { return call.kind == disk::Call::Kind::kUnlink ? EACCES : 0; });
    log_->drop_before({.sequence = 7});
    EXPECT_EQ(segments().size(), 3u);
  }
  std::filesystem::remove(segments()[0]);
  log_->drop_before({.sequence = 7});
  EXPECT_EQ(segments().size(), 1u);
  EXPECT_EQ(counters_.value("lockstep_log_bytes"), 200);
}

TEST_F(FollowedLogTest, DamageCostsTheRestOfItsSegmentWhereverItIs) {
  append(1, 7);
  overwrite(segments()[0], 150, '!');  // in the payload of the second
  EXPECT_EQ(read(1'000), "1 ");
  EXPECT_EQ(at_.sequence, 4u);
  EXPECT_EQ(counters_.value("lockstep_log_corrupt_segments_total"), 1);
  EXPECT_EQ(counters_.value("lockstep_log_records_missing_total"), 2);
  overwrite(segments()[1], 10, '!');  // in the header of the first there
  EXPECT_EQ(read(1'000), "7 ") << "goes on with the next";
  EXPECT_EQ(counters_.value("lockstep_log_corrupt_segments_total"), 2);
  EXPECT_EQ(counters_.value("lockstep_log_records_missing_total"), 5);
}

// Cut off in the middle of a record, in front of another segment: what is there of it is none.
TEST_F(FollowedLogTest, ARecordThatIsNotWholeIsDamage) {
  const std::string one = record_bytes(1, 2, std::string(60, 'x')), two = record_bytes(2, 2, std::string(60, 'x'));
  for (const size_t size : {1, 39, 40, 41, 99}) {
    SCOPED_TRACE(size);
    log_.reset();
    std::filesystem::remove_all(folder_.path() + "/log");
    ASSERT_TRUE(make_directories(folder_.path() + "/log").ok());
    ASSERT_TRUE(
        write_file_atomically(folder_.path() + "/log/00000000000000000001.log", one + two.substr(0, size)).ok());
    ASSERT_TRUE(write_file_atomically(folder_.path() + "/log/00000000000000000003.log",
                                      record_bytes(3, 2, std::string(60, 'x')))
                    .ok());
    log_ = open(options_);
    const int64_t missing = counters_.value("lockstep_log_records_missing_total");
    at_ = {};
    EXPECT_EQ(read(1'000), "0 ");
    EXPECT_EQ(at_.sequence, 3u);
    EXPECT_EQ(counters_.value("lockstep_log_records_missing_total"), missing + 1);
    EXPECT_EQ(read(1'000), "0 ");
  }
}

TEST_F(FollowedLogTest, EveryKindThatThisVersionWritesIsTold) {
  std::string bytes;
  for (uint8_t kind = 0; kind <= 10; ++kind) bytes += record_bytes(kind + 1u, kind, "payload");
  log_.reset();
  ASSERT_TRUE(write_file_atomically(folder_.path() + "/log/00000000000000000001.log", bytes).ok());
  log_ = open(options_);
  std::string kinds;
  EXPECT_TRUE(log_->read_on(at_, 1'000,
                            [&](RecordKind kind, int64_t, std::string_view) {
                              kinds += std::to_string(static_cast<int>(kind)) + " ";
                            })
                  .ok());
  EXPECT_EQ(kinds, "1 2 3 4 5 6 7 8 9 ");
  EXPECT_EQ(at_.sequence, 12u);
}

TEST_F(FollowedLogTest, ADiskThatCannotBeReadIsAnErrorAndNothingIsPassedOver) {
  using Kind = disk::Call::Kind;
  append(1, 3);
  EXPECT_EQ(read(1), "1 ");
  for (const Kind kind : {Kind::kOpen, Kind::kRead}) {
    disk::FailingDisk failing([&](const disk::Call& call) { return call.kind == kind ? EIO : 0; });
    EXPECT_EQ(read(1'000), "error");
  }
  int interrupted = 0;
  disk::FailingDisk interrupting(
      [&](const disk::Call& call) { return call.kind == Kind::kRead && interrupted++ % 2 == 0 ? EINTR : 0; });
  expect_at(2, 1, 100, 200);
  EXPECT_EQ(read(1'000), "2 3 ");
  EXPECT_GT(interrupted, 2);
  std::filesystem::resize_file(segments()[0], 290);
  at_ = {};
  EXPECT_EQ(read(1'000), "error") << "it is shorter than it was";
  EXPECT_EQ(at_.sequence, 0u);
}

TEST_F(FollowedLogTest, HeldItIsEverySegmentAsLongAsItIsNow) {
  const std::string folder = folder_.path() + "/held";
  ASSERT_TRUE(make_directories(folder).ok());
  EXPECT_EQ(log_->hold(folder)->through_sequence, 0u);
  append(1, 5);
  const Result<HeldLog> held = log_->hold(folder);
  ASSERT_TRUE(held.ok()) << held.error();
  EXPECT_EQ(held->through_sequence, 5u);
  ASSERT_EQ(held->files.size(), 2u);
  EXPECT_EQ(held->files[0].bytes, 300u);
  EXPECT_EQ(held->files[1].bytes, 200u);
  EXPECT_TRUE(held->files[1].grows);
  EXPECT_EQ(*list_directory(folder),
            (std::vector<std::string>{"00000000000000000001.log", "00000000000000000004.log"}));
  append(6, 6);
  EXPECT_FALSE(log_->hold(folder_.path() + "/no/such/folder").ok());
  append(7, 7);
}

}  // namespace
}  // namespace lockstep
