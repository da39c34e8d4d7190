// A number that many tell of one thing, and that should be the same from all: what most of them tell. One teller cannot
// change it for the others, and when he takes it back nothing of it is left.
//
// Thread rule: Confined.
#pragma once

#include <cstddef>
#include <map>

namespace lockstep {

template <typename Number>
class MostReported {
 public:
  void add(Number number) {
    const size_t tellers = ++tellers_[number];
    const auto most = tellers_.find(most_);
    if (most == tellers_.end() || tellers > most->second || (tellers == most->second && number > most_)) most_ = number;
  }
  // It was added before.
  void remove(Number number) {
    const auto found = tellers_.find(number);
    if (--found->second == 0) tellers_.erase(found);
    if (number != most_) return;
    size_t tellers = 0;
    for (const auto& [other, count] : tellers_) {
      if (count < tellers) continue;
      tellers = count;
      most_ = other;
    }
    if (tellers == 0) most_ = {};
  }
  // The larger at a draw; 0 where nobody tells any.
  Number value() const { return most_; }

 private:
  std::map<Number, size_t> tellers_;
  Number most_{};
};

}  // namespace lockstep
