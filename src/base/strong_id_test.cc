#include "base/strong_id.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <sstream>
#include <type_traits>
#include <unordered_set>

namespace lockstep {
namespace {

using Name = StrongId<struct NameTag, uint64_t>;
using Other = StrongId<struct OtherTag, uint64_t>;
using Place = StrongId<struct PlaceTag, int32_t, IdArithmetic::kNext>;
using Ordinal = StrongId<struct OrdinalTag, int64_t, IdArithmetic::kDistance>;

template <typename T>
concept Increments = requires(T id) {
  ++id;
};
template <typename T>
concept HasDistance = requires(T a, T b) {
  a - b;
};

TEST(StrongId, CostsWhatItsNumberCosts) {
  static_assert(sizeof(Place) == sizeof(int32_t) && sizeof(Ordinal) == sizeof(int64_t));
  static_assert(std::is_trivially_copyable_v<Name> && std::is_standard_layout_v<Name>);
  static_assert(Ordinal{7}.value() == 7 && Ordinal{}.value() == 0);
}

TEST(StrongId, NeitherANumberNorAnotherIdPassesForIt) {
  static_assert(!std::is_convertible_v<uint64_t, Name> && !std::is_convertible_v<Name, uint64_t>);
  static_assert(!std::is_constructible_v<Name, Other> && !std::is_assignable_v<Name&, Other>);
  static_assert(!std::equality_comparable_with<Name, Other> && !std::equality_comparable_with<Name, uint64_t>);
}

TEST(StrongId, ArithmeticIsOnlyThereWhereItMeansSomething) {
  static_assert(!Increments<Name> && !HasDistance<Name>);
  static_assert(Increments<Place> && !HasDistance<Place>);
  static_assert(Increments<Ordinal> && std::is_same_v<decltype(Ordinal{3} - Ordinal{1}), int64_t>);
  static_assert(Ordinal{3} + 4 == Ordinal{7} && Ordinal{3} - 4 == Ordinal{-1} && Ordinal{9} - Ordinal{4} == 5);
  static_assert(Ordinal{10} % 4 == 2);
}

TEST(StrongId, ComparesHashesAndPrintsAsItsNumber) {
  EXPECT_LT(Name{2}, Name{10});
  EXPECT_EQ(std::hash<Name>()(Name{42}), std::hash<uint64_t>()(42));
  EXPECT_TRUE((std::unordered_set<Name>{Name{1}, Name{2}}.contains(Name{2})));
  std::ostringstream out;
  out << Place{-1} << " " << Ordinal{12};
  EXPECT_EQ(out.str(), "-1 12");
}

}  // namespace
}  // namespace lockstep
