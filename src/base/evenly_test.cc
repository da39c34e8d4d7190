#include "base/evenly.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using Places = std::vector<size_t>;

TEST(Evenly, ChoosesSoManyAndNoMoreFromEndToEnd) {
  EXPECT_EQ(evenly(8, 4), (Places{0, 2, 4, 6}));
  EXPECT_EQ(evenly(7, 4), (Places{0, 1, 3, 5}));
  EXPECT_EQ(evenly(3, 4), (Places{0, 1, 2}));
  EXPECT_EQ(evenly(0, 4), Places{});
  EXPECT_EQ(evenly(4, 0), Places{});
}

}  // namespace
}  // namespace lockstep
