#include "base/systemd.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/files.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

TEST(Systemd, IsToldWhereItListensAndElseNothingHappens) {
  unsetenv("NOTIFY_SOCKET");
  EXPECT_FALSE(systemd_notify("READY=1"));
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/notify";
  UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  setenv("NOTIFY_SOCKET", path.c_str(), 1);
  EXPECT_TRUE(systemd_notify("READY=1"));
  char got[64]{};
  EXPECT_EQ(::recv(socket.get(), got, sizeof got, 0), 7);
  EXPECT_STREQ(got, "READY=1");
  unsetenv("NOTIFY_SOCKET");
}

TEST(Systemd, TheWatchdogIsForTheProcessItNames) {
  setenv("WATCHDOG_USEC", "20000000", 1);
  EXPECT_EQ(systemd_watchdog_ns(), 10'000'000'000);
  setenv("WATCHDOG_PID", "1", 1);
  EXPECT_EQ(systemd_watchdog_ns(), 0);
  unsetenv("WATCHDOG_USEC");
  unsetenv("WATCHDOG_PID");
}

}  // namespace
}  // namespace lockstep
