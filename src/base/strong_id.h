// A number with a meaning of its own: a rank does not pass for a step, nor a step for a communicator. Costs what the
// number costs: the same size, trivially copyable, everything constexpr and inline.
//
//   using CommId = StrongId<struct CommIdTag, uint64_t>;
//
// Made from a number only where that is said (CommId{7}), and a number again only by value(): at formats, in output, as
// the index of a table. Ids of one type compare, and have a hash; arithmetic is only what IdArithmetic allows.
// Thread rule: Immutable.
#pragma once

#include <compare>
#include <cstddef>
#include <functional>
#include <iosfwd>

namespace lockstep {

enum class IdArithmetic {
  kNone,      // a name: neither next nor far
  kNext,      // numbered one after the other, so that a loop can go through them
  kDistance,  // and two of them are so many apart
};

template <typename Tag, typename Number, IdArithmetic kArithmetic = IdArithmetic::kNone>
class StrongId {
 public:
  using ValueType = Number;

  constexpr StrongId() = default;
  constexpr explicit StrongId(Number value) : value_(value) {}
  constexpr Number value() const { return value_; }

  friend constexpr bool operator==(StrongId a, StrongId b) { return a.value_ == b.value_; }
  friend constexpr auto operator<=>(StrongId a, StrongId b) { return a.value_ <=> b.value_; }

  constexpr StrongId& operator++() requires(kArithmetic != IdArithmetic::kNone) {
    ++value_;
    return *this;
  }
  constexpr StrongId& operator--() requires(kArithmetic != IdArithmetic::kNone) {
    --value_;
    return *this;
  }
  constexpr StrongId& operator+=(Number distance) requires(kArithmetic == IdArithmetic::kDistance) {
    value_ += distance;
    return *this;
  }
  friend constexpr StrongId operator+(StrongId id, Number distance) requires(kArithmetic == IdArithmetic::kDistance) {
    return StrongId(id.value_ + distance);
  }
  friend constexpr StrongId operator-(StrongId id, Number distance) requires(kArithmetic == IdArithmetic::kDistance) {
    return StrongId(id.value_ - distance);
  }
  friend constexpr Number operator-(StrongId a, StrongId b) requires(kArithmetic == IdArithmetic::kDistance) {
    return a.value_ - b.value_;
  }
  // Every n-th: id % n == 0.
  friend constexpr Number operator%(StrongId id, Number every) requires(kArithmetic == IdArithmetic::kDistance) {
    return id.value_ % every;
  }

  // As the number.
  template <typename Char, typename Traits>
  friend std::basic_ostream<Char, Traits>& operator<<(std::basic_ostream<Char, Traits>& out, StrongId id) {
    return out << id.value_;
  }

 private:
  Number value_ = 0;
};

}  // namespace lockstep

template <typename Tag, typename Number, lockstep::IdArithmetic kArithmetic>
struct std::hash<lockstep::StrongId<Tag, Number, kArithmetic>> {
  size_t operator()(lockstep::StrongId<Tag, Number, kArithmetic> id) const noexcept {
    return std::hash<Number>()(id.value());
  }
};
