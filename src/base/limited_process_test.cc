#include "base/limited_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

namespace lockstep {
namespace {

// What a confined child finds; a letter for each thing that is as it should be.
void probe(int out) {
  const auto say = [out](bool is_so, char letter) {
    if (is_so) (void)!::write(out, &letter, 1);
  };
  say(limit_process({1ull << 30, 10}).ok() && confine_process().ok(), 'L');
  say(::open("/etc/passwd", O_RDONLY) < 0 && errno == EPERM, 'o');
  say(::socket(AF_INET, SOCK_STREAM, 0) < 0 && errno == EPERM, 's');
  say(::fork() < 0 && errno == EPERM, 'f');
  say(::kill(::getppid(), 0) < 0 && errno == EPERM, 'k');
  void* const too_much = std::malloc(2ull << 30);
  say(too_much == nullptr, 'm');
  std::vector<char> some(64u << 20, 'x');
  say(some[12'345] == 'x', 'M');
  ::_exit(0);
}

TEST(LimitedProcess, ComputesAndUsesWhatIsOpenAndNothingElse) {
  if (!kLimitsMemoryAndCalls) GTEST_SKIP() << "a sanitizer needs both";
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) probe(ends[1]);
  ::close(ends[1]);
  std::string said;
  char letter = 0;
  while (::read(ends[0], &letter, 1) == 1) said += letter;
  ::close(ends[0]);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(said, "LosfkmM");
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace lockstep
