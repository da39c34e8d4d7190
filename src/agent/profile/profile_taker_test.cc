#include "agent/profile/profile_taker.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "agent/counters_table.h"
#include "agent/profile/profile_watch.h"
#include "agent/upload/folder_uploader.h"
#include "base/files.h"
#include "base/process.h"
#include "base/text.h"
#include "testing/eventually.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

using testing::eventually;

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr const char* kId = "p-0123456789ab";

// A child that sleeps is the rank; what it would say to the socket is said here, with its pid.
class ProfileTakerTest : public ::testing::Test {
 protected:
  ~ProfileTakerTest() override { end_child(); }

  void start(bool is_told_folder = true) {
    std::vector<std::string> environment = {"LOCKSTEP_RECORDER_DIR=" + folder_.path()};
    if (is_told_folder) environment.push_back("KINETO_ONDEMAND_TRACE_DIR=" + folder_.path() + "/");
    child_ = ::fork();
    if (child_ == 0) {
      std::vector<char*> entries;
      for (std::string& entry : environment) entries.push_back(entry.data());
      entries.push_back(nullptr);
      char name[] = "sleep", seconds[] = "1000";
      char* arguments[] = {name, seconds, nullptr};
      ::execve("/bin/sleep", arguments, entries.data());
      ::_exit(1);
    }
    ASSERT_TRUE(eventually([&] {
      const Result<std::string> environ = read_file(format("/proc/%d/environ", child_), 1 << 16);
      return environ.ok() && environ->starts_with("LOCKSTEP_RECORDER_DIR") && environ->size() < 4'096;
    }));
    stem_ = format("%s/%d-%llu", folder_.path().c_str(), child_,
                   static_cast<unsigned long long>(process_state(child_).start_ticks));
    owner_ = {.pid = child_,
              .path = stem_ + ".lsfr",
              .identity = {"job", 0, 3_rank, 4, 3, "node", ""},
              .user = ::geteuid(),
              .folder = *UserFolder::open(folder_.path())};
    taker_.set_ranks({owner_});
    std::ofstream(stem_ + ".hook") << "signal 50\nkineto -40 2\n";
  }
  void end_child() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    child_ = -1;
  }

  static ProfileRequest request() {
    return {.job_id = "job",
            .capture = kId,
            .start_step = 140_step,
            .steps = 5,
            .start_unix_ms = 0,
            .duration_ms = 700,
            .limit_s = 60,
            .bytes_max = 1'000,
            .ranks = {3_rank}};
  }
  std::string asks(int32_t type, uid_t user = ::geteuid()) {
    return taker_.on_request(child_, user, {.type = type, .job = 0, .pids = {child_}});
  }
  std::string trace_path() const { return format("%s/lockstep-%s_%d.json", folder_.path().c_str(), kId, child_); }
  // "armed", "waiting", ... since, with the reason where there is one.
  std::vector<std::string> states() {
    std::vector<std::string> all;
    for (const ResourceGroup& group : taker_.poll()) {
      for (const LogRecord& record : group.logs) {
        if (const Result<ProfileProgress> progress = profile_progress_from_record(record); progress.ok())
          all.push_back(std::string(to_text(progress->state)) + (progress->reason.empty() ? "" : ": ") +
                        progress->reason);
        if (const Result<ProfileReady> ready = profile_ready_from_record(record); ready.ok())
          all.push_back(
              format("ready %s step %lld", ready->key.c_str(), static_cast<long long>(ready->first_step.value())));
      }
    }
    return all;
  }
  using States = std::vector<std::string>;

  testing::TemporaryFolder folder_;
  testing::FakeClock clock_;
  Counters counters_{kAgentCounters};
  ProfileTaker taker_{{}, clock_, counters_};
  RecorderOwner owner_;
  std::string stem_;
  pid_t child_ = -1;
};

TEST_F(ProfileTakerTest, GivesItsOrderInKinetosOwnCountAndFollowsItToTheUpload) {
  start();
  EXPECT_EQ(asks(2), "") << "nothing is ordered yet";
  taker_.ask(request());
  taker_.ask(request());  // the same order may arrive twice
  EXPECT_EQ(states(), States{"armed"});
  const std::string order = asks(2);
  EXPECT_NE(order.find("PROFILE_START_ITERATION=240\nACTIVITIES_ITERATIONS=10\n"), std::string::npos) << order;
  EXPECT_NE(order.find("ACTIVITIES_LOG_FILE=" + folder_.path() + "/lockstep-" + kId + ".json"), std::string::npos);
  EXPECT_EQ(states(), States{"waiting"});
  EXPECT_EQ(asks(2), "") << "it has its order";
  EXPECT_EQ(states(), States{});
  asks(0);
  std::ofstream(trace_path() + ".tmp") << "{";
  EXPECT_EQ(states(), States{"tracing"});
  std::ofstream(trace_path() + ".tmp") << "{}";
  std::filesystem::rename(trace_path() + ".tmp", trace_path());
  EXPECT_EQ(states(), States{"uploading"});
  const std::optional<ProfileTaker::Upload> upload = taker_.next_upload();
  ASSERT_TRUE(upload);
  EXPECT_EQ(upload->order.file, "rank-3.json.gz");
  EXPECT_EQ(upload->order.bytes_max, std::filesystem::file_size("/proc/self/fd/" + std::to_string(upload->fd)));
  EXPECT_FALSE(taker_.next_upload()) << "once at a time";
  taker_.uploaded(upload->number, Error{"no route"});
  EXPECT_EQ(states(), States{"uploading: no route"});
  EXPECT_FALSE(taker_.next_upload()) << "not at once again";
  clock_.advance(6 * kSecondNs);
  ASSERT_TRUE(taker_.next_upload());
  taker_.uploaded(upload->number, Uploaded{"t/job/" + std::string(kId) + "/rank-3.json.gz", 20, std::string(64, 'a')});
  EXPECT_EQ(states(), (States{format("ready t/job/%s/rank-3.json.gz step 140", kId), "done"}));
  EXPECT_FALSE(std::filesystem::exists(trace_path()));
  EXPECT_FALSE(taker_.busy());
}

TEST_F(ProfileTakerTest, WhereNoEnvironmentIsReadTracesGoWhereTheyUsuallyDo) {
  start();
  ProfileTaker other({.read_environment = false}, clock_, counters_);
  other.set_ranks({owner_});
  other.ask(request());
  other.poll();
  const std::string order = other.on_request(child_, ::geteuid(), {.type = 2, .job = 0, .pids = {child_}});
  EXPECT_NE(order.find(format("ACTIVITIES_LOG_FILE=/tmp/lockstep-%s.json", kId)), std::string::npos) << order;
}

TEST_F(ProfileTakerTest, GoesByTimeWhereNoStepsAreCounted) {
  start(false);
  std::ofstream(stem_ + ".hook") << "signal 50\n";
  taker_.ask(request());
  const std::string order = asks(3);
  EXPECT_NE(order.find("PROFILE_START_TIME=0\n"), std::string::npos) << order;
  EXPECT_NE(order.find("ACTIVITIES_DURATION_MSECS=700\n"), std::string::npos);
  EXPECT_NE(order.find(format("ACTIVITIES_LOG_FILE=/tmp/lockstep-%s.json", kId)), std::string::npos)
      << "a folder that it was not told is refused by Kineto";
  EXPECT_EQ(states(), (States{"armed", "waiting: by time: no optimizer step of it is counted"}));
}

TEST_F(ProfileTakerTest, GivesOrdersToTheProcessOfTheRankAlone) {
  start();
  taker_.ask(request());
  EXPECT_EQ(taker_.on_request(::getpid(), ::geteuid(), {.type = 2, .job = 0, .pids = {child_}}), "")
      << "what a process says of its pid does not count";
  EXPECT_EQ(asks(2, ::geteuid() + 1), "");
  EXPECT_NE(asks(2), "");
}

TEST_F(ProfileTakerTest, SaysWhyThereIsNone) {
  start();
  ProfileRequest order = request();
  taker_.ask(order);
  clock_.advance(14 * kSecondNs);
  States got = states();
  ASSERT_EQ(got.size(), 2u);
  EXPECT_TRUE(got[1].starts_with("failed: no Kineto")) << got[1];

  order.capture = "p-0123456789ac";
  taker_.ask(order);
  EXPECT_EQ(asks(0), "") << "it is busy";
  clock_.advance(61 * kSecondNs);
  got = states();
  ASSERT_EQ(got.size(), 2u);
  EXPECT_TRUE(got[1].starts_with("failed: foreign profiler running")) << got[1];

  order.capture = "p-0123456789ad";
  taker_.ask(order);
  EXPECT_NE(asks(2), "");
  clock_.advance(61 * kSecondNs);
  got = states();
  ASSERT_EQ(got.size(), 3u);
  EXPECT_EQ(got[2], "failed: no optimizer step: step 140 did not begin within 60 s");

  order.capture = "p-0123456789ae";
  taker_.ask(order);
  EXPECT_NE(asks(2), "");
  asks(0);
  asks(2);
  clock_.advance(14 * kSecondNs);
  got = states();
  ASSERT_FALSE(got.empty());
  EXPECT_EQ(got.back(), "failed: no trace was written: another profiler of the job has ended it");

  order.capture = "p-0123456789af";
  taker_.ask(order);
  EXPECT_NE(asks(2), "");
  end_child();
  EXPECT_EQ(states().back(), "failed: pid gone: its process has ended");
}

TEST_F(ProfileTakerTest, GivesUpWhatIsRefusedAgainAndAgain) {
  start();
  taker_.ask(request());
  asks(2);
  std::ofstream(trace_path()) << "{}";
  for (int i = 0; i < 3; ++i) {
    states();
    const std::optional<ProfileTaker::Upload> upload = taker_.next_upload();
    ASSERT_TRUE(upload) << i;
    taker_.uploaded(upload->number, Error{"403: not your job"});
    clock_.advance(6 * kSecondNs);
  }
  EXPECT_EQ(states().back(), "failed: not uploaded: 403: not your job");
  EXPECT_FALSE(std::filesystem::exists(trace_path())) << "and is not kept on the node";
}

TEST_F(ProfileTakerTest, CutsATraceThatGrowsPastItsLimitAndRemovesItLater) {
  start();
  taker_.ask(request());
  asks(2);
  std::ofstream(trace_path() + ".tmp") << std::string(1'001, 'x');
  EXPECT_EQ(states().back(), "failed: too large: 1.0 kB (limit 1.0 kB)");
  EXPECT_EQ(std::filesystem::file_size(trace_path() + ".tmp"), 0u);
  std::ofstream(trace_path() + ".tmp") << std::string(1'001, 'x');  // Kineto goes on
  states();
  EXPECT_EQ(std::filesystem::file_size(trace_path() + ".tmp"), 0u);
  std::filesystem::rename(trace_path() + ".tmp", trace_path());
  states();
  EXPECT_FALSE(std::filesystem::exists(trace_path()));
}

TEST_F(ProfileTakerTest, FollowsNoLinkInThePlaceOfATrace) {
  start();
  taker_.ask(request());
  asks(2);
  std::filesystem::create_symlink("/etc/passwd", trace_path());
  EXPECT_TRUE(states().back().starts_with("failed: path refused"));
  EXPECT_FALSE(taker_.next_upload());
}

// What the Python hook does: a socket beside the recorder, and lines in <recorder>.hook.
class HookOrders {
 public:
  explicit HookOrders(const std::string& stem)
      : stem_(stem), fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = stem + ".orders";
    std::memcpy(address.sun_path, path.data(), path.size());
    if (::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) std::abort();
    reports("");
  }
  void reports(const std::string& line) { std::ofstream(stem_ + ".hook") << "profiler torch\n" << line; }
  std::string next() {
    char buffer[4'096];
    const ssize_t got = ::recv(fd_.get(), buffer, sizeof buffer, 0);
    return got < 0 ? "" : std::string(buffer, static_cast<size_t>(got));
  }

 private:
  std::string stem_;
  UniqueFd fd_;
};

TEST_F(ProfileTakerTest, OrdersTorchProfilerWhereOnlyThePythonHookTakesOrders) {
  start();
  HookOrders hook(stem_);
  taker_.ask(request());
  EXPECT_EQ(states(), States{"armed"});
  EXPECT_EQ(hook.next(), format("file lockstep-%s_%d.json\nstart 140\nsteps 5\nstart_unix_ms 0\nduration_ms 700\n"
                                "limit_s 60\nshapes 0\nstacks 0\n",
                                kId, child_));
  states();
  EXPECT_EQ(hook.next(), "") << "not at once again";
  clock_.advance(2 * kSecondNs);
  states();
  EXPECT_NE(hook.next(), "") << "it has not said that it has it";
  hook.reports(format("profile %s waiting\n", kId));
  EXPECT_EQ(states(), States{"waiting: by torch.profiler"});
  EXPECT_EQ(asks(2), "") << "one of the two";
  hook.reports(format("profile %s tracing\n", kId));
  EXPECT_EQ(states(), States{"tracing: by torch.profiler"});
  hook.reports(format("profile %s writing\n", kId));
  EXPECT_EQ(states(), States{});
  std::ofstream(trace_path()) << "{}";
  EXPECT_EQ(states(), States{"uploading: by torch.profiler"});
  const std::optional<ProfileTaker::Upload> upload = taker_.next_upload();
  ASSERT_TRUE(upload);
  taker_.uploaded(upload->number, Uploaded{"k", 20, std::string(64, 'a')});
  EXPECT_EQ(states(), (States{"ready k step 140", "done: by torch.profiler"}));
  EXPECT_FALSE(std::filesystem::exists(trace_path()));
}

TEST_F(ProfileTakerTest, KinetoGoesFirstWhereBothWouldTakeTheOrder) {
  start();
  HookOrders hook(stem_);
  asks(2);
  taker_.ask(request());
  states();
  EXPECT_EQ(hook.next(), "");
  EXPECT_NE(asks(2), "");
}

TEST_F(ProfileTakerTest, AHooksWordEndsItsOwnCaptureAndNothingElse) {
  start();
  HookOrders hook(stem_);
  taker_.ask(request());
  hook.reports("profile p-ffffffffffff failed of another\nprofile \nprofile\nprofile " + std::string(9'000, 'x'));
  EXPECT_EQ(states(), States{"armed"});
  hook.reports(format("profile %s failed foreign profiler\x1b[2J running\n", kId));
  const States got = states();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].find('\x1b'), std::string::npos);
  EXPECT_TRUE(got[0].starts_with("failed: foreign profiler")) << got[0];
}

TEST_F(ProfileTakerTest, AHookThatIsGoneOrALinkInItsPlaceIsOneLine) {
  start();
  { HookOrders hook(stem_); }  // its socket is left behind
  taker_.ask(request());
  clock_.advance(14 * kSecondNs);
  EXPECT_TRUE(states().back().starts_with("failed: its Python hook takes no order"));

  std::filesystem::remove(stem_ + ".orders");
  HookOrders elsewhere(folder_.path() + "/elsewhere");
  std::filesystem::create_symlink(folder_.path() + "/elsewhere.orders", stem_ + ".orders");
  ProfileRequest order = request();
  order.capture = "p-0123456789ac";
  taker_.ask(order);
  states();
  EXPECT_EQ(elsewhere.next(), "");
}

// The whole of it over sockets: we are the rank, as Kineto's client is.
class KinetoClient {
 public:
  KinetoClient(std::string own, std::string daemon) : fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    if (::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), name(address, own)) != 0) std::abort();
    daemon_ = std::move(daemon);
  }
  std::optional<std::string> ask(std::string_view datagram, int wait_ms = 5'000) {
    sockaddr_un address{};
    const socklen_t length = name(address, daemon_);
    if (::sendto(fd_.get(), datagram.data(), datagram.size(), 0, reinterpret_cast<sockaddr*>(&address), length) < 0)
      return std::nullopt;
    pollfd entry{fd_.get(), POLLIN, 0};
    if (::poll(&entry, 1, wait_ms) <= 0) return std::nullopt;
    char buffer[4'096];
    const ssize_t got = ::recv(fd_.get(), buffer, sizeof buffer, 0);
    return got < 0 ? std::nullopt : std::optional(std::string(buffer, static_cast<size_t>(got)));
  }

 private:
  static socklen_t name(sockaddr_un& address, const std::string& text) {
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, text.data(), text.size());
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size() + 1);  // with the NUL at its end
  }
  UniqueFd fd_;
  std::string daemon_;
};

TEST(ProfileWatch, AnswersAtOnceByNameAndInTheFolderAndNobodyElse) {
  testing::TemporaryFolder folder;
  const SystemClock clock;
  Counters counters{kAgentCounters};
  FolderUploader uploader(folder.path() + "/out");
  const std::string name = format("lockstep-test-%d", ::getpid());
  const std::string left = folder.path() + "/lockstep-p-0123456789ab_7.json.tmp";
  std::ofstream(left) << "{";
  std::filesystem::last_write_time(left, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  const std::string killed = folder.path() + "/dynoconfigclient-0";
  { KinetoClient gone(killed, ""); }
  KinetoClient path(folder.path() + "/dynoconfigclient-1", folder.path() + "/dynolog");
  ProfileWatch watch({.recorders = folder.path(), .abstract_name = name}, &uploader, clock, counters);
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(folder.path() + "/dynolog"); }));
  EXPECT_TRUE(eventually([&] { return !std::filesystem::exists(left); })) << "of an agent before us";
  const std::string request = encode_kineto("req", std::string("\2\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\5\0\0\0", 20));
  const std::string nothing = encode_kineto("req", "");
  KinetoClient abstract(std::string(1, '\0') + "dynoconfigclient-" + name, std::string(1, '\0') + name);
  EXPECT_EQ(abstract.ask(request), nothing);
  EXPECT_EQ(abstract.ask(encode_kineto("ctxt", std::string(16, '\0'))).value_or("").substr(8, 5),
            std::string("ctxt\0", 5));
  EXPECT_EQ(path.ask(request), nothing);
  EXPECT_FALSE(std::filesystem::exists(killed));
  // An answer to any other name could go to a socket that its sender may not write to.
  KinetoClient other(folder.path() + "/notify", folder.path() + "/dynolog");
  EXPECT_EQ(other.ask(request, 150), std::nullopt);
  EXPECT_EQ(path.ask("nonsense", 150), std::nullopt);
  EXPECT_EQ(path.ask(request), nothing) << "and goes on";
}

TEST(FolderUploader, KeepsAFileWhole) {
  testing::TemporaryFolder folder;
  std::ofstream(folder.path() + "/trace") << std::string(100'000, 'a');
  const UniqueFd file(::open((folder.path() + "/trace").c_str(), O_RDONLY | O_CLOEXEC));
  uint64_t read = 0;
  const Result<Uploaded> done =
      FolderUploader(folder.path() + "/out").upload(file.get(), {"a/b", kId, "rank-3.json.gz"}, [&](uint64_t n) {
        read = n;
      });
  ASSERT_TRUE(done.ok()) << done.error();
  EXPECT_EQ(done->key, format("a%%2Fb/%s/rank-3.json.gz", kId));
  EXPECT_EQ(read, 100'000u);
  EXPECT_EQ(std::filesystem::file_size(folder.path() + "/out/" + done->key), done->bytes);
}

TEST(FolderUploader, ReadsNoMoreThanTheOrderSays) {
  testing::TemporaryFolder folder;
  std::ofstream(folder.path() + "/trace") << std::string(100'000, 'a');
  const UniqueFd file(::open((folder.path() + "/trace").c_str(), O_RDONLY | O_CLOEXEC));
  uint64_t read = 0;
  const UploadOrder order{"a/b", kId, "rank-3.json.gz", 60'000};
  ASSERT_TRUE(FolderUploader(folder.path() + "/out").upload(file.get(), order, [&](uint64_t n) { read = n; }).ok());
  EXPECT_EQ(read, 60'000u);
}

}  // namespace
}  // namespace lockstep
