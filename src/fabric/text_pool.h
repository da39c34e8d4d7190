// Texts that occur again and again, each kept once and named by a number: a fleet has a hundred thousand adapters and
// eight names for them.
//
// Limits: none of its own; who fills it from outside asks bytes().
// Thread rule: Confined while it is filled; Immutable after seal().
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lockstep::fabric {

using Symbol = uint32_t;
inline constexpr Symbol kNoText = 0;  // ""

class TextPool {
 public:
  TextPool();
  TextPool(TextPool&&) = default;
  TextPool& operator=(TextPool&&) = default;

  Symbol add(std::string_view text);
  // kNoText also where there is no such text. Not after seal().
  Symbol find(std::string_view text) const;
  std::string_view text(Symbol symbol) const { return texts_[symbol]; }
  size_t bytes() const;
  // No more is added or looked for: the table for that goes.
  void seal();

 private:
  static constexpr size_t kChunkBytes = 64 << 10;

  std::vector<std::unique_ptr<char[]>> chunks_;
  size_t left_ = 0;  // bytes of the last chunk
  size_t kept_bytes_ = 0;
  std::vector<std::string_view> texts_;
  std::unordered_map<std::string_view, Symbol> symbols_;
};

}  // namespace lockstep::fabric
