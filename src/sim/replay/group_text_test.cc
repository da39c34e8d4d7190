// The C API writes a group's members, the model reads them; neither may know the other, so both are held against each
// other here, where both may be used.
#include "plugin/capi/group_text.h"

#include <gtest/gtest.h>

#include <random>

#include "model/events.h"
#include "model/rank_text.h"

namespace lockstep {
namespace {

TEST(GroupText, SaysTheSameAsTheModelAndIsReadBackByIt) {
  std::mt19937 random(6);
  for (int round = 0; round < 2'000; ++round) {
    // Pieces as meshes give them: runs, even steps, single ranks, now and then a repeated one.
    std::vector<int32_t> ranks;
    for (uint32_t piece = 0, pieces = 1 + random() % 5; piece < pieces; ++piece) {
      const auto first = static_cast<int32_t>(random() % 5'000), step = static_cast<int32_t>(random() % 9);
      for (int32_t i = 0, count = 1 + static_cast<int32_t>(random() % 6); i < count; ++i)
        ranks.push_back(first + i * step);
    }
    std::string text(1'000, '?');
    text.resize(capi::write_ranks(ranks, text));
    const std::vector<Rank> as_model(ranks.begin(), ranks.end());
    ASSERT_EQ(text, ranks_text(as_model));
    const auto back = ranks_from_text(text, kGroupRanksMax);
    ASSERT_TRUE(back.ok()) << back.error();
    ASSERT_EQ(*back, as_model) << text;
  }
}

}  // namespace
}  // namespace lockstep
