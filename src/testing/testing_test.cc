#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <string>
#include <thread>

#include "testing/eventually.h"
#include "testing/fake_clock.h"
#include "testing/hex.h"
#include "testing/temporary_folder.h"

namespace lockstep::testing {
namespace {

TEST(TemporaryFolderTest, GoesAwayWithWhatIsInItUnlessKept) {
  std::string gone, kept;
  {
    TemporaryFolder first, second;
    ASSERT_NE(first.path(), second.path());
    std::filesystem::create_directory(first.path() + "/below");
    std::ofstream(first.path() + "/below/file") << "x";
    second.keep();
    gone = first.path();
    kept = second.path();
  }
  EXPECT_FALSE(std::filesystem::exists(gone));
  EXPECT_TRUE(std::filesystem::remove(kept));
}

TEST(FakeClockTest, StandsUntilMovedAndItsWallClockCanBeWrong) {
  FakeClock clock(5'000'000'000, 7);
  EXPECT_EQ(clock.unix_ns(), 5'000'000'000);
  EXPECT_EQ(clock.unix_ms(), 5'000);
  clock.advance(10);
  EXPECT_EQ(clock.unix_ns(), 5'000'000'010);
  EXPECT_EQ(clock.monotonic_ns(), 17);
  clock.set_ahead(-100);
  EXPECT_EQ(clock.unix_ns(), 4'999'999'910);
  EXPECT_EQ(clock.true_unix_ns(), 5'000'000'010);
  EXPECT_EQ(clock.monotonic_ns(), 17);
  clock.advance_to(5'000'000'000);
  EXPECT_EQ(clock.unix_ns(), 5'000'000'000);
  EXPECT_EQ(clock.monotonic_ns(), 107);
}

TEST(EventuallyTest, WaitsForAnotherThread) {
  std::atomic<bool> done{false};
  std::atomic<int> asked{0};
  std::thread other([&] {
    while (asked < 3) std::this_thread::yield();
    done = true;
  });
  EXPECT_TRUE(eventually([&] { return ++asked, done.load(); }));
  other.join();
}

TEST(HexTest, IsWrittenAndRead) {
  EXPECT_EQ(hex(std::string("\x00\x0a\xff", 3)), "000aff");
  EXPECT_EQ(spaced_hex("LS\n"), "4c 53 0a");
  EXPECT_EQ(bytes_of_hex("4c 530A"), "LS\n");
  EXPECT_EQ(bytes_of_hex(""), "");
}

}  // namespace
}  // namespace lockstep::testing
