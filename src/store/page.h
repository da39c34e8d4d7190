// A part of an answer.
//
// Thread rule: Immutable.
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep {

template <typename T>
struct Page {
  std::vector<T> items;
  size_t total = 0;  // how many matched, shown or not
};

}  // namespace lockstep
