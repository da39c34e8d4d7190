#include "agent/control_socket.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "agent/testing.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

using testing::TemporaryFolder;

TEST(ControlSocket, AnswersOneLineToOneLine) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/control.sock";
  Result<ControlSocket> control = ControlSocket::open(path);
  ASSERT_TRUE(control.ok()) << control.error();
  std::string answer;
  std::thread client([&] { answer = *ask_agent(path, "drain 60"); });
  std::string asked;
  while (asked.empty()) {
    control->poll([&](const std::string& request) {
      asked = request;
      return std::string("drained\n");
    });
  }
  client.join();
  EXPECT_EQ(asked, "drain 60");
  EXPECT_EQ(answer, "drained\n");
}

TEST(ControlSocket, NobodyThereIsOneLineThatSaysWhatToLookAt) {
  TemporaryFolder folder;
  Result<std::string> answer = ask_agent(folder.path() + "/control.sock", "status");
  ASSERT_FALSE(answer.ok());
  EXPECT_NE(answer.error().find("is it running"), std::string::npos) << answer.error();
  EXPECT_FALSE(ControlSocket::open(folder.path() + "/" + std::string(200, 'x')).ok());
}

TEST(ControlSocket, ASocketLeftBehindIsReplacedAndNobodyElseMayUseIt) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/control.sock";
  { (void)!ControlSocket::open(path).ok(); }
  Result<ControlSocket> first = ControlSocket::open(path);
  ASSERT_TRUE(first.ok());
  Result<ControlSocket> second = ControlSocket::open(path);
  ASSERT_TRUE(second.ok()) << second.error();
  EXPECT_EQ(std::filesystem::status(path).permissions() & std::filesystem::perms::all,
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST(ControlSocket, ALineIsAskedAsLongAsItMayBeAndOneLongerIsNone) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/control.sock";
  Result<ControlSocket> control = ControlSocket::open(path);
  ASSERT_TRUE(control.ok()) << control.error();
  for (const size_t bytes : {ControlSocket::kRequestBytesMax - 1, ControlSocket::kRequestBytesMax}) {
    std::string answer;
    std::atomic<bool> done{false};
    std::thread client([&] {
      const Result<std::string> got = ask_agent(path, std::string(bytes, 'x'));
      answer = got.ok() ? *got : got.error();
      done = true;
    });
    size_t asked = 0;
    while (!done) {
      control->poll([&](const std::string& request) {
        asked = request.size();
        return std::string("yes\n");
      });
    }
    client.join();
    const bool fits = bytes < ControlSocket::kRequestBytesMax;
    EXPECT_EQ(asked, fits ? bytes : 0u);
    EXPECT_EQ(answer == "yes\n", fits) << answer;
  }
}

}  // namespace
}  // namespace lockstep
