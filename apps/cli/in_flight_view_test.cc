// Ranks are made with the real writer, each in a folder of its own; whoever has to be stopped or killed is a child.
#include "apps/cli/in_flight_view.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <simdjson.h>

#include <fstream>
#include <random>
#include <set>

#include "apps/cli/commands.h"
#include "base/text.h"
#include "recorder/control.h"
#include "recorder/layout.h"
#include "recorder/test_process.h"
#include "recorder/writer.h"

namespace lockstep::cli {
namespace {

using lockstep::testing::RecorderFolder;

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kWorld = 0x1f3a;

struct Plan {
  int32_t rank = 0;
  int32_t world = 8;
  uint64_t entered = 105;
  uint64_t completed = 104;
  bool ends_seen = true;
  double silent_s = 12;
  std::string host = "node-17";
  Function function = Function::kAllReduce;
};

// A rank that has gone through its collectives and then fell silent.
std::unique_ptr<RecorderWriter> play(const std::string& folder, const Plan& plan) {
  RecorderWriter::Options options;
  options.directory = folder;
  options.geometry = {2, 64, 4};
  options.identity = {.job_id = "llama",
                      .rank = plan.rank,
                      .world_size = plan.world,
                      .local_rank = plan.rank % 8,
                      .host = plan.host,
                      .gpu_uuid = ""};
  auto writer = RecorderWriter::open(options);
  if (!writer.ok()) {
    ADD_FAILURE() << writer.error();
    return nullptr;
  }
  InFlightTable& table = (*writer)->in_flight();
  const auto claim =
      table.claim({.comm_id = kWorld, .size = plan.world, .rank_in_comm = plan.rank, .nodes = 1, .name = "world"});
  const uint64_t then = recorder_now_ns() - static_cast<uint64_t>(plan.silent_s * 1e9);
  for (uint64_t i = 1; i <= plan.entered; ++i) {
    const uint64_t at = then - (plan.entered - i) * 1'000'000;
    const Function function = i == plan.entered ? plan.function : Function::kAllReduce;
    const auto ticket = table.enqueue(static_cast<uint32_t>(claim.row), claim.epoch,
                                      {.seq = i - 1,
                                       .bytes = 33'554'432,
                                       .now_ns = at,
                                       .detail = op_detail_word(-1, function, Datatype::kBfloat16, 0, 0),
                                       .end_is_seen = plan.ends_seen});
    if (plan.ends_seen && i <= plan.completed + 1) table.started(static_cast<uint32_t>(claim.row), ticket, at);
    if (plan.ends_seen && i <= plan.completed) table.completed(static_cast<uint32_t>(claim.row), ticket);
  }
  Record record{};
  record.op.head = {.type = RecordType::kColl, .comm_index = 0, .time_ns = then};
  (*writer)->write(record);
  return std::move(*writer);
}

struct Said {
  int code = 0;
  std::string out, err;
};
Said say(int (*command)(const Arguments&), const Arguments& arguments) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Said said{command(arguments), "", ""};
  said.out = ::testing::internal::GetCapturedStdout();
  said.err = ::testing::internal::GetCapturedStderr();
  return said;
}

// Wherever the lines are broken.
bool has(std::string text, const std::string& part) {
  bool found = text.find(part) != std::string::npos;
  for (std::string_view indent : {"\n       ", "\n      ", "\n"}) {
    std::string whole = text;
    for (size_t at = whole.find(indent); at != std::string::npos; at = whole.find(indent))
      whole.replace(at, indent.size(), " ");
    found |= whole.find(part) != std::string::npos;
  }
  return found;
}
#define EXPECT_HAS(text, part) EXPECT_TRUE(has(text, part)) << text
#define EXPECT_HAS_NOT(text, part) EXPECT_FALSE(has(text, part)) << text

size_t widest(const std::string& text) {
  size_t width = 0;
  for (std::string_view line : split(text, '\n')) {
    size_t columns = 0;
    for (char c : line) columns += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    width = std::max(width, columns);
  }
  return width;
}

class HangTest : public ::testing::Test {
 protected:
  // All in this process, which is running.
  RecorderWriter& add(const Plan& plan) {
    writers_.push_back(play(own_folder(plan.rank), plan));
    return *writers_.back();
  }
  void add_all_but(std::set<int32_t> late, Plan plan = {}) {
    for (plan.rank = 0; plan.rank < plan.world; ++plan.rank) {
      Plan mine = plan;
      if (late.contains(plan.rank)) mine.entered = plan.completed;
      add(mine);
    }
  }
  // In a child that then does nothing until it is ended.
  pid_t add_child(const Plan& plan) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    const std::string folder = own_folder(plan.rank);
    const pid_t child = ::fork();
    if (child == 0) {
      auto writer = play(folder, plan);
      if (::write(ready[1], "x", 1) != 1) ::_exit(1);
      while (true) ::pause();
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
    children_.push_back(child);
    return child;
  }
  void end_children() {
    for (pid_t child : children_) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
    children_.clear();
  }
  ~HangTest() override { end_children(); }

  Said hang(Arguments more = {}) {
    more.insert(more.end(), {"--recorders", folder_.path()});
    return say(run_hang, more);
  }
  std::string own_folder(int32_t rank) {
    std::string folder = folder_.path() + format("/rank-%03d", rank);
    std::filesystem::create_directories(folder);
    return folder;
  }
  std::string file_of(int32_t rank) {
    for (const auto& entry : std::filesystem::directory_iterator(own_folder(rank))) return entry.path();
    return "";
  }

  RecorderFolder folder_;
  std::vector<std::unique_ptr<RecorderWriter>> writers_;
  std::vector<pid_t> children_;
};

TEST_F(HangTest, NamesTheRankThatHasNotEnteredAndShowsItFirst) {
  add_all_but({2});
  const Said said = hang();
  EXPECT_EQ(said.code, kExitNo);
  EXPECT_HAS(said.out,
             "HANG   Rank missing (software): Rank 2 (node-17, GPU 2) never entered AllReduce 104 of all 8 ranks; 7 "
             "ranks have");
  EXPECT_HAS(said.out, format("py-spy dump --pid %d", ::getpid()));
  EXPECT_HAS(said.out,
             "communicator 0x1f3a \"world\" · 8 ranks, all running · in AllReduce 104 (#105), 34 MB bfloat16");
  const size_t rank_2 = said.out.find("not entered"), rank_0 = said.out.find("on GPU");
  ASSERT_NE(rank_2, std::string::npos) << said.out;
  EXPECT_LT(rank_2, rank_0) << said.out;
  EXPECT_LE(widest(said.out), 120u) << said.out;
}

TEST_F(HangTest, SaysThatNothingIsStuckWhileEverybodyMoves) {
  add_all_but({2}, {.silent_s = 0.2});
  const Said said = hang();
  EXPECT_EQ(said.code, kExitOk);
  EXPECT_HAS(said.out, "Nothing is stuck: whoever is inside an operation made a call in the last 2");
}

TEST_F(HangTest, CannotTellWhereTheOtherHalfOfTheCommunicatorIsElsewhere) {
  for (int32_t rank = 0; rank < 4; ++rank) add({.rank = rank});
  const Said said = hang();
  EXPECT_EQ(said.code, kExitOk);
  EXPECT_HAS(said.out, "Cannot tell: ranks 0-3 have been inside AllReduce 104 (#105) of communicator 0x1f3a (8 ranks)");
  EXPECT_HAS(said.out, "only 4 of its 8 ranks can be seen on this node (not members 4-7)");
}

TEST_F(HangTest, NamesTheProcessThatIsGoneOrStopped) {
  add_all_but({2, 3}, {.world = 5});
  ASSERT_TRUE(std::filesystem::remove(file_of(2)));
  ASSERT_TRUE(std::filesystem::remove(file_of(3)));
  const pid_t dead = add_child({.rank = 2, .world = 5, .entered = 104});
  const pid_t stopped = add_child({.rank = 3, .world = 5});
  ::kill(stopped, SIGSTOP);
  ::waitpid(stopped, nullptr, WUNTRACED);
  ::kill(dead, SIGKILL);
  ::waitpid(dead, nullptr, 0);
  children_ = {stopped};
  Said said = hang();
  EXPECT_HAS(said.out, "Rank 2 (node-17, GPU 2) died before AllReduce 104");
  EXPECT_HAS(said.out, "gone");
  EXPECT_HAS(said.out, "stopped");

  ASSERT_TRUE(std::filesystem::remove(file_of(2)));
  add({.rank = 2, .world = 5});
  said = hang();
  EXPECT_HAS(said.out, "Rank 3 (node-17, GPU 3) is stopped inside AllReduce 104");
  EXPECT_HAS(said.out, format("kill -CONT %d", stopped));
}

TEST_F(HangTest, AllProcessesGoneIsAJobForPostmortem) {
  add_child({.rank = 0, .world = 2});
  add_child({.rank = 1, .world = 2, .entered = 104});
  end_children();
  const Said said = hang();
  EXPECT_EQ(said.code, kExitOk);
  EXPECT_HAS(said.out, "All 2 processes are gone; lockstep postmortem shows where they stood.");
}

TEST_F(HangTest, RanksInTheSamePlaceShareALineWhereThereAreMany) {
  add_all_but({9}, {.world = 24});
  const Said said = hang();
  EXPECT_HAS(said.out, "Rank 9");
  EXPECT_HAS(said.out, "0-8 and 10-23 (23)");
  EXPECT_LE(widest(said.out), 120u) << said.out;
  EXPECT_LE(std::count(said.out.begin(), said.out.end(), '\n'), 12) << said.out;
}

TEST_F(HangTest, WhereEndsAreNotSeenOnlyAMissingRankIsNamed) {
  add_all_but({2}, {.ends_seen = false, .silent_s = 20});
  Said said = hang();
  EXPECT_EQ(said.code, kExitNo);
  EXPECT_HAS(said.out, "Rank 2 (node-17, GPU 2) never entered AllReduce 104");
  EXPECT_HAS(said.out, "105        ?     ?  entered");
  EXPECT_HAS(said.out, "Ends are not seen here");

  ASSERT_TRUE(std::filesystem::remove(file_of(2)));
  add({.rank = 2, .ends_seen = false, .silent_s = 20});
  said = hang();
  EXPECT_EQ(said.code, kExitOk);
  EXPECT_HAS(said.out, "Cannot tell: all ranks have entered the same operations, and their ends cannot be seen.");
}

TEST_F(HangTest, ARecorderThatSwitchedItselfOffAccusesNobody) {
  add_all_but({2});
  writers_[2]->switch_off(SwitchOff::kTooSlow);
  const Said said = hang();
  EXPECT_EQ(said.code, kExitOk);
  EXPECT_HAS(said.out, "Cannot tell: ranks 0, 1 and 3-7 have been inside");
  EXPECT_HAS(said.out, "only 7 of its 8 ranks can be seen");
  EXPECT_HAS(said.out, "note: rank 2: recorder switched itself off");
}

TEST_F(HangTest, DifferentOperationsAreShownEach) {
  add_all_but({}, {.world = 3});
  ASSERT_TRUE(std::filesystem::remove(file_of(1)));
  add({.rank = 1, .world = 3, .function = Function::kAllGather});
  const Said said = hang();
  EXPECT_EQ(said.code, kExitNo);
  EXPECT_HAS(said.out, "called AllGather of 33554432 bytes bfloat16 where the others");
  EXPECT_HAS(said.out, "AllGather 104 (#105) 34 MB bfloat16 on GPU");
  EXPECT_HAS(said.out, "AllReduce 104 (#105) 34 MB bfloat16 on GPU");
  EXPECT_LE(widest(said.out), 120u) << said.out;
}

TEST_F(HangTest, SaysWhatTheNetworkWaitsForAndWhatIsNotVisible) {
  add_all_but({2});
  const uint64_t since = recorder_now_ns() - 11 * kSecond;
  writers_[3]->in_flight().proxy_enter(0, 10, 2, since);
  writers_[1]->in_flight().proxy_enter(0, 20, 2, since);
  writers_[4]->in_flight().proxy_enter(0, 8, 5, since);
  for (int i = 0; i < 108; ++i) writers_[4]->in_flight().count_call(0, false);
  writers_[5]->count_refused(Refused::kNoSlot);
  const Said said = hang();
  EXPECT_HAS(said.out, "data from rank 2, 11 s");
  EXPECT_HAS(said.out, "credit of rank 2, 11 s");
  EXPECT_HAS(said.out, "own GPU, 11 s");
  EXPECT_HAS(said.out, "note: rank 4: 3 calls in communicator 0x1f3a are not visible: symmetric kernels, or still");
  EXPECT_HAS(said.out, "note: rank 5: events not recorded: 1 no_slot");
  EXPECT_LE(widest(said.out), 120u) << said.out;
}

TEST_F(HangTest, AReceiveThatNobodySendsNamesTheSender) {
  for (int32_t rank = 0; rank < 4; ++rank) add({.rank = rank, .world = 4, .entered = 104});
  const uint64_t then = recorder_now_ns() - 12 * kSecond;
  writers_[2]->in_flight().enqueue(0, 1,
                                   {.bytes = 4096,
                                    .now_ns = then,
                                    .detail = op_detail_word(1, Function::kRecv, Datatype::kFloat16, 0, 0),
                                    .p2p = 1});
  const Said said = hang();
  EXPECT_EQ(said.code, kExitNo);
  EXPECT_HAS(said.out, "Rank 1 (node-17, GPU 1) never entered Recv (rank 1 of its group) of all 4 ranks; 1 rank has");
  EXPECT_HAS(said.out, "Recv #1 from rank 1 4.1 kB float16 in queue");
  EXPECT_HAS(said.out, "1/0/0");
  EXPECT_LE(widest(said.out), 120u) << said.out;
}

TEST_F(HangTest, JsonHoldsTheSame) {
  add_all_but({2});
  const Said said = hang({"--json"});
  simdjson::dom::parser parser;
  simdjson::dom::element document;
  ASSERT_FALSE(parser.parse(said.out).get(document)) << said.out;
  const auto job = document["jobs"].at(0);
  EXPECT_EQ(std::string_view(job["outcome"]), "hang");
  EXPECT_EQ(int64_t(job["finding"]["ranks"].at(0)), 2);
  EXPECT_EQ(job["finding"]["victims"].get_array().size(), 7u);
  const auto rank = job["communicators"].at(0)["ranks"].at(1);
  EXPECT_EQ(int64_t(rank["rank"]), 0);
  EXPECT_EQ(int64_t(rank["collectives"]["enqueued"]), 105);
  EXPECT_EQ(std::string_view(rank["oldest_unfinished"]["function"]), "AllReduce");
  EXPECT_EQ(int64_t(job["processes"].at(2)["pid"]), ::getpid());
}

TEST_F(HangTest, AnEmptyFolderIsSaidInOneLine) {
  const Said said = hang();
  EXPECT_EQ(said.code, kExitNotFound);
  EXPECT_HAS(said.err, "lockstep hang: no flight recorders in " + folder_.path());
}

class PostmortemTest : public HangTest {};

TEST_F(PostmortemTest, NamesTheRankThatWasMissingWhenEverybodyWasKilled) {
  for (int32_t rank = 0; rank < 8; ++rank) {
    const bool missing = rank == 5;
    add_child({.rank = rank,
               .entered = missing ? 104u : 105u,
               .silent_s = missing ? 0.05 : 0.04,
               .host = rank < 4 ? "node-17" : "node-18"});
  }
  end_children();
  const Said said = say(run_postmortem, {folder_.path()});
  EXPECT_EQ(said.code, kExitOk) << said.err;
  EXPECT_HAS(said.out,
             "Rank 5 (node-18, GPU 5) never entered AllReduce 104 of all 8 ranks; 7 ranks have waited for it.");
  EXPECT_HAS(said.out, "8 of 8 ranks on 2 hosts");
  EXPECT_HAS(said.out, "node-18");
  EXPECT_HAS_NOT(said.out, "py-spy");
  EXPECT_LE(widest(said.out), 120u) << said.out;
}

TEST_F(PostmortemTest, ACutFileShowsItsTableAndAForeignOneIsSkippedWithOneLine) {
  add_all_but({2});
  writers_.clear();
  const layout::Geometry geometry{2, 64, 4};
  ASSERT_EQ(::truncate(file_of(2).c_str(), static_cast<off_t>(geometry.record_offset())), 0);
  std::ofstream(folder_.path() + "/notes.lsfr") << "not a recorder";
  const Said said = say(run_postmortem, {folder_.path()});
  EXPECT_EQ(said.code, kExitOk);
  EXPECT_HAS(said.err, "notes.lsfr: 14 bytes are too short for a flight recorder; skipped");
  EXPECT_EQ(std::count(said.err.begin(), said.err.end(), '\n'), 1) << said.err;
  EXPECT_HAS(said.out, "Rank 2 (node-17, GPU 2) never entered AllReduce 104");
}

TEST_F(PostmortemTest, ARankWithoutARecordingIsNamedAsNotRecorded) {
  add_all_but({});
  ASSERT_TRUE(std::filesystem::remove(file_of(6)));
  const Said said = say(run_postmortem, {folder_.path()});
  EXPECT_HAS(said.out, "Cannot tell: ranks 0-5 and 7 have been inside AllReduce 104 (#105)");
  EXPECT_HAS(said.out, "there are recordings of only 7 of its 8 ranks (not of member 6)");
}

TEST_F(PostmortemTest, VerboseShowsTheLastOperationsAndThreads) {
  add_all_but({1}, {.world = 2});
  const Said said = say(run_postmortem, {"--verbose", "--last", "3", folder_.path()});
  EXPECT_HAS(said.out, "AllReduce 104 (#105)");
  EXPECT_HAS(said.out, "AllReduce 102 (#103)");
  EXPECT_HAS_NOT(said.out, "AllReduce 99 (#100)");
  EXPECT_HAS(said.out, "threads, by lane");
  EXPECT_HAS(said.out, "collective");
  EXPECT_LE(widest(said.out), 120u) << said.out;
}

TEST_F(PostmortemTest, NothingReadableIsExitCodeOne) {
  std::ofstream(folder_.path() + "/a.lsfr") << "x";
  EXPECT_EQ(say(run_postmortem, {folder_.path()}).code, kExitNo);
  EXPECT_EQ(say(run_postmortem, {folder_.path() + "/none"}).code, kExitNo);
  EXPECT_EQ(say(run_postmortem, {}).code, kExitUsage);
}

TEST_F(PostmortemTest, AFileFullOfLiesIsReadOrSkippedButNeverTheEnd) {
  add_all_but({2}, {.world = 3});
  writers_.clear();
  std::ifstream file(file_of(0), std::ios::binary);
  const std::string good{std::istreambuf_iterator<char>(file), {}};
  std::mt19937 random(7);
  int read = 0;
  for (int round = 0; round < 150; ++round) {
    std::string bad = good;
    for (int i = 0; i < 40; ++i) {
      // The header and the first row hold everything that is interpreted.
      const size_t at = std::uniform_int_distribution<size_t>(72, layout::kPage + sizeof(layout::CommRow) - 1)(random);
      bad[at] = static_cast<char>(i % 3 == 0 ? 0xFF : random());
    }
    std::ofstream(file_of(0), std::ios::binary | std::ios::trunc) << bad;
    const Said said = say(run_postmortem, {"--verbose", "--all", folder_.path()});
    EXPECT_EQ(said.code, kExitOk) << said.err;
    read += said.err.empty() ? 1 : 0;
    simdjson::dom::parser parser;
    EXPECT_FALSE(parser.parse(say(run_postmortem, {"--json", folder_.path()}).out).error());
  }
  EXPECT_GT(read, 10);
}

class DetailTest : public HangTest {
 protected:
  // In one folder: a process has one file there.
  Said detail(Arguments words) {
    words.insert(words.end(), {"--recorders", own_folder(3)});
    return say(run_detail, words);
  }
  std::optional<DetailControl> request() { return DetailControl::from(writers_.at(0)->control(), recorder_now_ns()); }
};

TEST_F(DetailTest, AsksForAWhileAndTakesTheWishBack) {
  add({.rank = 3});
  writers_[0]->show_mask(0x06);
  Said said = detail({"full", "--for", "30"});
  EXPECT_EQ(said.code, kExitOk) << said.err;
  EXPECT_HAS(said.out, format("rank 3     pid %-8d mask 0x06 (low), asked 0x5e (full) for 30 s", ::getpid()));
  ASSERT_TRUE(request());
  EXPECT_EQ(request()->mask, 0x5e);
  EXPECT_NEAR(request()->until_s, static_cast<double>(recorder_now_ns() / kSecond + 30), 2);
  EXPECT_EQ(detail({"auto"}).code, kExitOk);
  EXPECT_FALSE(request());
  EXPECT_EQ(writers_[0]->control(), 0u);
}

TEST_F(DetailTest, AsksOnlyTheRanksThatWereChosen) {
  add({.rank = 3});
  const Said said = detail({"low", "--rank", "1,2"});
  EXPECT_EQ(said.code, kExitNotFound);
  EXPECT_HAS(said.err, "no running process of these ranks");
  EXPECT_FALSE(request());
  EXPECT_EQ(detail({"low", "--rank", "3"}).code, kExitOk);
  EXPECT_EQ(request()->mask, 0x06);
}

TEST_F(DetailTest, SaysWhatIsWrongInOneLine) {
  EXPECT_EQ(detail({"loud"}).err, "lockstep detail: LEVEL is low, full or auto, not \"loud\"\n");
  EXPECT_EQ(detail({"low", "--rank", "x"}).code, kExitUsage);
  EXPECT_EQ(detail({"auto", "--ras", "127.0.0.1:1"}).code, kExitUsage);
  EXPECT_EQ(detail({"full", "--ras", "127.0.0.1:1"}).code, kExitFailed);
}

}  // namespace
}  // namespace lockstep::cli
