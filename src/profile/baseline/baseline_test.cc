#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "base/files.h"
#include "base/text.h"
#include "profile/baseline/baseline_file.h"
#include "profile/baseline/baseline_folder.h"
#include "profile/ranks/compare.h"
#include "profile/testing/trace_text.h"
#include "testing/temporary_folder.h"

namespace lockstep::profile {
namespace {

using lockstep::testing::TemporaryFolder;

Baseline example() {
  testing::TraceText trace("\"distributedInfo\": {\"rank\": 0, \"world_size\": 1}, \"cuda_runtime_version\": 12080,");
  for (int step = 0; step < 3; ++step) {
    const double at = 1000 + step * 700;
    trace.launched("gemm\\n\\u001b[31m", 7, at, at + 10, 200, "", "aten::mm", "[[8, 16], [16, 8]]");
    trace.launched("gemm\\n\\u001b[31m", 7, at + 300, at + 320, 300 + step, "", "aten::mm", "[[8, 32], [32, 8]]");
    trace.event("user_annotation", format("ProfilerStep#%d", step), at - 50, 690, "");
  }
  const std::vector<std::string> texts = {trace.text()};
  const Result<ProfileAnalysis> analysis = testing::analyze_texts(texts);
  if (!analysis.ok()) std::abort();
  return {.written_by = "lockstep 0", .saved_unix_ms = 1'700'000'000'000, .run = summarize(*analysis)};
}

TEST(Baseline, ComparesAsTheRunDidThatItWasMadeOf) {
  const Baseline before = example();
  const std::string text = *baseline_text(before);
  const Result<Baseline> read = parse_baseline_untrusted(text);
  ASSERT_TRUE(read.ok()) << read.error();
  EXPECT_EQ(*baseline_text(*read), text);
  EXPECT_EQ(read->run.kernels.at(0).name, "gemm  [31m");  // what would disturb a terminal is gone
  ASSERT_EQ(read->run.kernels.at(0).shapes.size(), 2u);
  EXPECT_EQ(read->run.versions.at("CUDA"), "12.8");
  RunSummary slower = example().run;
  slower.kernels.at(0).shapes.at(0).ns += 1e5;
  slower.kernels.at(0).ns += 1e5;
  slower.step_ns += 1e5;
  EXPECT_EQ(comparison_json(compare(read->run, slower)), comparison_json(compare(before.run, slower)));
}

TEST(Baseline, NothingIsWrittenThatCouldNotBeRead) {
  testing::TraceText trace("\"distributedInfo\": {\"rank\": 0, \"world_size\": 1},");
  const char* shapes = "[[1000000000000, 1000000000000], [1000000000000, 1000000000000]]";  // 2e36 FLOPs
  trace.launched("gemm", 7, 1000, 1010, 200, "", "aten::mm", shapes);
  const Result<ProfileAnalysis> analysis = testing::analyze_texts(std::vector<std::string>{trace.text()});
  ASSERT_TRUE(analysis.ok()) << analysis.error();
  Baseline baseline{.written_by = "lockstep 0", .saved_unix_ms = 1, .run = summarize(*analysis)};
  const Result<std::string> text = baseline_text(baseline);
  ASSERT_TRUE(text.ok()) << text.error();
  EXPECT_TRUE(parse_baseline_untrusted(*text).ok());
  for (int i = 0; i < 65; ++i) baseline.run.devices.push_back(format("GPU %d", i));
  EXPECT_EQ(
      baseline_text(baseline).error(),
      "nothing was written, because it could not be read: this is no baseline that can be used: its devices are not "
      "as they are written");
}

TEST(Baseline, RefusesWithOneLineWhatWasCutChangedOrMadeUp) {
  const std::string text = *baseline_text(example());
  const auto refused = [](const std::string& changed) {
    const Result<Baseline> read = parse_baseline_untrusted(changed);
    if (read.ok()) return std::string("read");
    EXPECT_EQ(read.error().find('\n'), std::string::npos);
    return read.error();
  };
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return refused(changed.replace(at, from.size(), to));
  };
  for (size_t length = 0; length + 2 < text.size(); length += 7) EXPECT_NE(refused(text.substr(0, length)), "read");
  EXPECT_EQ(refused("{}"), "this is no baseline that can be used: it is another file");
  EXPECT_NE(with("\"version\":1", "\"version\":2").find("of format version 2, and this lockstep reads version 1"),
            std::string::npos);
  EXPECT_NE(with("\"count\":2", "\"count\":-2").find("row 1 of its kernels"), std::string::npos);
  EXPECT_NE(with("\"count\":2", "\"count\":1e999").find("row 1 of its kernels"), std::string::npos);
  EXPECT_NE(with("\"class\":\"computation\"", "\"class\":\"magic\"").find("row 1 of its kernels"), std::string::npos);
  EXPECT_NE(with("aten::mm", "aten\\n::mm").find("row 1 of its kernels"), std::string::npos);
  EXPECT_NE(with("\"ranks\":1", "\"ranks\":0").find("of how many ranks"), std::string::npos);
  EXPECT_NE(with("\"gaps\":[", "\"gaps\":{\"\":[").substr(0, 20), "read");
  std::string many = "\"kernels\":[";
  for (size_t i = 0; i <= kKernelsMax; ++i)
    many += format("{\"name\":\"%zu\",\"class\":\"memory\",\"ns\":1,\"count\":1},", i);
  EXPECT_NE(with("\"kernels\":[", many).find("it has more than 2000 kernels"), std::string::npos);
  EXPECT_NE(refused(std::string(kBaselineBytesMax + 1, ' ')).find("no baseline that can be used"), std::string::npos);
}

TEST(BaselineFolder, KeepsBaselinesByNameAndTakesNoPathForAName) {
  const TemporaryFolder temporary;
  const std::string path = temporary.path() + "/new/baselines";
  EXPECT_EQ(BaselineFolder::open(path).code(), ErrorCode::kNotFound);
  const Result<BaselineFolder> folder = BaselineFolder::make(path);
  ASSERT_TRUE(folder.ok()) << folder.error();
  Baseline baseline = example();
  for (const char* name : {"main", "release-1.2_a", "main"}) ASSERT_TRUE(folder->write(name, baseline).ok()) << name;
  baseline.saved_unix_ms = 7;
  ASSERT_TRUE(folder->write("main", baseline).ok());
  EXPECT_EQ(folder->read("main")->saved_unix_ms, 7);
  EXPECT_EQ(*folder->names(), (std::vector<std::string>{"main", "release-1.2_a"}));
  EXPECT_EQ(list_directory(path)->size(), 2u);  // nothing is left beside them
  for (const char* name : {"", "..", ".hidden", "-v", "a/b", "../main", "a b", "a\nb", "\xc3\xa4"}) {
    EXPECT_FALSE(folder->write(name, baseline).ok()) << name;
    EXPECT_FALSE(folder->read(name).ok()) << name;
    EXPECT_FALSE(folder->remove(name).ok()) << name;
  }
  EXPECT_TRUE(folder->remove("main").ok());
  EXPECT_EQ(folder->read("main").code(), ErrorCode::kNotFound);
  EXPECT_EQ(folder->remove("main").code(), ErrorCode::kNotFound);
}

TEST(BaselineFolder, FollowsNoLinkOutOfItselfAndWaitsForNoPipe) {
  const TemporaryFolder temporary;
  const std::string outside = temporary.path() + "/outside", path = temporary.path() + "/baselines";
  const std::string text = *baseline_text(example());
  ASSERT_TRUE(write_file_atomically(outside, text).ok());
  const Result<BaselineFolder> folder = BaselineFolder::make(path);
  ASSERT_TRUE(folder.ok());
  for (const char* name : {"a", "b"}) std::filesystem::create_symlink(outside, folder->file_of(name));
  ASSERT_EQ(::mkfifo(folder->file_of("pipe").c_str(), 0600), 0);
  std::filesystem::create_directory(folder->file_of("folder"));
  EXPECT_NE(folder->read("a").error().find("it is a symbolic link, which is not followed"), std::string::npos);
  EXPECT_NE(folder->read("pipe").error().find("this is no file"), std::string::npos);
  EXPECT_NE(folder->read("folder").error().find("this is no file"), std::string::npos);
  EXPECT_FALSE(folder->remove("folder").ok());
  Baseline other = example();
  other.saved_unix_ms = 8;
  ASSERT_TRUE(folder->write("a", other).ok());
  EXPECT_EQ(folder->read("a")->saved_unix_ms, 8);
  EXPECT_TRUE(folder->remove("b").ok());
  EXPECT_EQ(*read_file(outside, 1 << 20), text);
}

TEST(BaselineFolder, ASaverLeavesTheFileOfAnotherAloneAndRemovesWhatADeadOneLeft) {
  const TemporaryFolder temporary;
  const Result<BaselineFolder> folder = BaselineFolder::make(temporary.path());
  ASSERT_TRUE(folder.ok());
  const std::string process = format(".main.%d.tmp", ::getpid());  // of another container, where it is that process too
  const std::vector<std::string> begun = {process, ".main.tmp-00c0ffee0001"},
                                 left = {".main.17.tmp", ".other.x.tmp-00c0ffee0002"},
                                 others = {".main.tmp", ".notes.tmp-mine", "main.tmp-1"};
  for (const auto* list : {&begun, &left, &others}) {
    for (const std::string& name : *list) {
      const std::string file = temporary.path() + "/" + name;
      ASSERT_TRUE(write_file_atomically(file, "{").ok());
      if (list == &begun) continue;
      std::filesystem::last_write_time(file, std::filesystem::file_time_type::clock::now() - std::chrono::hours(2));
    }
  }
  ASSERT_TRUE(folder->write("main", example()).ok());
  for (const std::string& name : begun) EXPECT_TRUE(std::filesystem::exists(temporary.path() + "/" + name)) << name;
  for (const std::string& name : others) EXPECT_TRUE(std::filesystem::exists(temporary.path() + "/" + name)) << name;
  for (const std::string& name : left) EXPECT_FALSE(std::filesystem::exists(temporary.path() + "/" + name)) << name;
  EXPECT_EQ(*folder->names(), std::vector<std::string>{"main"});
  EXPECT_TRUE(folder->read("main").ok());
}

}  // namespace
}  // namespace lockstep::profile
