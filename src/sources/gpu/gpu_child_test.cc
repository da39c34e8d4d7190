// The child's own loop, in a child of the test, with a library of ours that plays AMD's (tests/standins/amdsmi).
#include "sources/gpu/gpu_child.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/files.h"
#include "sources/gpu/gpu_metrics.h"
#include "sources/gpu/snapshot_json.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

class GpuChildTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("LOCKSTEP_AMDSMI_STANDIN", (folder_.path() + "/world").c_str(), 1);
    options_.vendor = "amd";
    options_.amdsmi_library = SOURCES_AMDSMI_STANDIN;
  }
  void TearDown() override {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  void write_world(const std::string& text) {
    ASSERT_TRUE(write_file_atomically(folder_.path() + "/world", text).ok());
  }
  void start() {
    int input[2], output[2];
    ASSERT_EQ(pipe(input), 0);
    ASSERT_EQ(pipe(output), 0);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(input[0], STDIN_FILENO);
      dup2(output[1], STDOUT_FILENO);
      for (int fd : {input[0], input[1], output[0], output[1]}) close(fd);
      _exit(run_gpu_child(options_));
    }
    close(input[0]);
    close(output[1]);
    input_ = UniqueFd(input[1]);
    output_ = UniqueFd(output[0]);
  }
  // The next line, empty at the end.
  std::string line() {
    std::string text;
    while (true) {
      pollfd wanted{output_.get(), POLLIN, 0};
      char letter = 0;
      if (poll(&wanted, 1, 10'000) != 1 || ::read(output_.get(), &letter, 1) != 1 || letter == '\n') return text;
      text += letter;
    }
  }
  void ask(const GpuRequest& request) { ASSERT_TRUE(write_all(input_.get(), to_line(request)).ok()); }
  int exit_code() {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  testing::TemporaryFolder folder_;
  GpuChildOptions options_;
  pid_t pid_ = -1;
  UniqueFd input_, output_;
};

const char* const kWorld =
    "version 24 7 0\ngpu 0000:c1:00.0 0x12 MI300X\nset 0 memory_used 7\nset 0 current_socket_power 600\n"
    "process 0 4242 9\n";

TEST_F(GpuChildTest, SaysThatItIsReadyAnswersAndEndsWithItsInput) {
  write_world(kWorld);
  start();
  GpuLineReader reader;
  Result<GpuLine> answer = reader.read(line());
  ASSERT_TRUE(answer.ok()) << answer.error();
  EXPECT_EQ(answer->kind, GpuLine::Kind::kReady);
  EXPECT_EQ(answer->text, "amdsmi");
  for (uint64_t number : {5, 6}) {
    ask({number, false, number == 6});
    answer = reader.read(line());
    ASSERT_TRUE(answer.ok()) << answer.error();
    EXPECT_EQ(answer->request, number);
    EXPECT_EQ(answer->snapshot.processes.size(), number == 6 ? 1u : 0u);
    ASSERT_EQ(answer->snapshot.gpus.size(), 1u);
    EXPECT_EQ(answer->snapshot.gpus[0].info.model, "MI300X");
  }
  input_.reset();
  EXPECT_EQ(exit_code(), 0);
  EXPECT_FALSE(read_file(folder_.path() + "/world.complaints", 4096).ok());
}

TEST_F(GpuChildTest, KeepsWhatALibraryPrintsOutOfItsAnswers) {
  write_world(std::string(kWorld) + "print Failed to open file\n");
  start();
  GpuLineReader reader;
  ASSERT_TRUE(reader.read(line()).ok());
  ask({1, false, false});
  const Result<GpuLine> answer = reader.read(line());
  ASSERT_TRUE(answer.ok()) << answer.error();
  EXPECT_EQ(answer->kind, GpuLine::Kind::kSnapshot);
}

TEST_F(GpuChildTest, WithoutALibraryItSaysWhyAndEnds) {
  options_.vendor = "auto";
  options_.nvml_library = "/no/nvml.so";
  options_.amdsmi_library = "/no/amd_smi.so";
  start();
  const Result<GpuLine> answer = GpuLineReader().read(line());
  ASSERT_TRUE(answer.ok()) << answer.error();
  EXPECT_EQ(answer->kind, GpuLine::Kind::kError);
  EXPECT_TRUE(answer->absent);
  EXPECT_NE(answer->text.find("/no/nvml.so"), std::string::npos) << answer->text;
  EXPECT_NE(answer->text.find("/no/amd_smi.so"), std::string::npos) << answer->text;
  EXPECT_EQ(exit_code(), 0);
}

TEST_F(GpuChildTest, ReadsTheVendorThatIsThere) {
  write_world(kWorld);
  options_.vendor = "auto";
  options_.nvml_library = "/no/nvml.so";
  start();
  const Result<GpuLine> answer = GpuLineReader().read(line());
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->text, "amdsmi");
}

TEST_F(GpuChildTest, EndsWithAnErrorWhenTheDriverIsGone) {
  write_world(kWorld);
  start();
  GpuLineReader reader;
  ASSERT_TRUE(reader.read(line()).ok());
  write_world(std::string(kWorld) + "fail 0 metrics 34\nfail 0 memory_used 34\n");
  ask({1, false, false});
  const Result<GpuLine> answer = reader.read(line());
  ASSERT_TRUE(answer.ok()) << answer.error();
  EXPECT_EQ(answer->kind, GpuLine::Kind::kError);
  EXPECT_FALSE(answer->absent);
  EXPECT_EQ(exit_code(), 1);
}

TEST_F(GpuChildTest, DescribesEverythingToAPerson) {
  write_world(kWorld);
  const Result<std::string> text = describe_gpus(options_);
  ASSERT_TRUE(text.ok()) << text.error();
  EXPECT_NE(text->find("MI300X"), std::string::npos) << *text;
  EXPECT_NE(text->find("hw.power"), std::string::npos) << *text;
  EXPECT_NE(text->find("process 4242"), std::string::npos) << *text;
}

}  // namespace
}  // namespace lockstep
