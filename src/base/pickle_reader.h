// Reads Python pickles of plain data: dictionaries, lists, tuples, text, numbers, booleans, None. A pickle is a program
// for a small machine; here the machine has no instruction that could run anything. What would import a name, call it
// or build an object (GLOBAL, REDUCE, BUILD and their like) is refused with one line, and so is anything cut or odd.
//
// Protocols 2 to 5. Values may be shared, as in the pickle: a list that stands in two places is one list, and a list
// may even hold itself, so whoever walks a value by recursion has to bound it.
// Limits: PickleLimits. Memory is bounded by them, and time is linear in the bytes.
// Thread rule: Immutable once parsed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep {

struct PickleLimits {
  size_t bytes_max = 64u << 20;
  size_t values_max = 4'000'000;
  size_t depth_max = 10'000;  // containers open at the same time while it is read
};

class Pickle;

// A value of a pickle, as long as the pickle is there. Asked for what it is not, it is empty.
class PickleValue {
 public:
  PickleValue() = default;  // absent: no such key, no such item
  bool present() const { return pickle_ != nullptr; }
  bool is_none() const;
  bool is_list() const;  // a list or a tuple
  bool is_dict() const;

  std::optional<bool> boolean() const;
  std::optional<int64_t> integer() const;  // not a boolean
  std::optional<double> number() const;    // a float or an integer
  std::optional<std::string_view> text() const;

  size_t size() const;                // items of a list or tuple, pairs of a dictionary
  PickleValue at(size_t item) const;  // of a list or tuple; of a dictionary the value of a pair
  PickleValue key(size_t pair) const;
  // By a text as key; of several the last counts, as in Python.
  PickleValue operator[](std::string_view key) const;

 private:
  friend class Pickle;
  PickleValue(const Pickle* pickle, uint32_t node) : pickle_(pickle), node_(node) {}
  const Pickle* pickle_ = nullptr;
  uint32_t node_ = 0;
};

class Pickle {
 public:
  // The whole of `bytes` must be one pickle.
  static Result<Pickle> parse_untrusted(std::string bytes, const PickleLimits& limits = {});
  PickleValue root() const { return {this, root_}; }

 private:
  friend class PickleValue;
  friend class PickleMachine;
  enum class Kind : uint8_t { kNone, kBool, kInt, kFloat, kText, kList, kTuple, kDict };
  struct Node {
    Kind kind = Kind::kNone;
    uint32_t items = 0;   // of containers: index into items_
    int64_t integer = 0;  // or a boolean; of a text where it begins
    double number = 0;    // or the length of a text
  };
  std::string bytes_;
  std::vector<Node> nodes_;
  std::vector<std::vector<uint32_t>> items_;  // of a dictionary keys and values in turn
  uint32_t root_ = 0;
};

}  // namespace lockstep
