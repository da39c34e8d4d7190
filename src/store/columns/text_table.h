// Texts, each kept once, by number. Number 0 is the empty text.
//
// Thread rule: Confined while texts are added; afterwards Immutable.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::columns {

// memcmp() is a call; keys and names are short, and there are a dozen in each span.
inline bool same_text(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  auto word = [](const char* at) {
    uint64_t value;
    std::memcpy(&value, at, 8);
    return value;
  };
  const size_t size = a.size();
  if (size >= 8) {
    size_t at = 0;
    for (; at + 8 < size; at += 8) {
      if (word(a.data() + at) != word(b.data() + at)) return false;
    }
    return word(a.data() + size - 8) == word(b.data() + size - 8);  // the last eight, some of them again
  }
  for (size_t at = 0; at < size; ++at) {
    if (a[at] != b[at]) return false;
  }
  return true;
}

class TextTable {
 public:
  TextTable() : ends_{0} {}

  uint32_t intern(std::string_view text) {
    if (text.empty()) return 0;
    if ((ends_.size() + 1) * 2 > slots_.size()) grow();
    const size_t mask = slots_.size() - 1;
    for (size_t at = hash_of(text) & mask;; at = (at + 1) & mask) {
      const uint32_t id = slots_[at];
      if (id == 0) {
        slots_[at] = add(text);
        return slots_[at];
      }
      if (same_text((*this)[id], text)) return id;
    }
  }
  // The same where it is likely to be this one.
  uint32_t intern_like(uint32_t likely, std::string_view text) {
    return same_text((*this)[likely], text) ? likely : intern(text);
  }
  // Without looking whether it is there already: texts read back from a file are known to differ.
  uint32_t add(std::string_view text) {
    bytes_.append(text);
    ends_.push_back(static_cast<uint32_t>(bytes_.size()));
    return static_cast<uint32_t>(ends_.size() - 1);
  }
  std::string_view operator[](uint32_t id) const {
    if (id == 0) return {};
    return std::string_view(bytes_).substr(ends_[id - 1], ends_[id] - ends_[id - 1]);
  }
  std::optional<uint32_t> find(std::string_view text) const {
    if (text.empty()) return 0;
    if (slots_.empty()) {  // they were read back
      for (uint32_t id = 1; id < ends_.size(); ++id) {
        if ((*this)[id] == text) return id;
      }
      return std::nullopt;
    }
    const size_t mask = slots_.size() - 1;
    for (size_t at = hash_of(text) & mask; slots_[at] != 0; at = (at + 1) & mask) {
      if (same_text((*this)[slots_[at]], text)) return slots_[at];
    }
    return std::nullopt;
  }
  // None is added any more, and few are looked for: the table for that goes, and spare room.
  void seal() {
    slots_ = {};
    bytes_.shrink_to_fit();
    ends_.shrink_to_fit();
  }
  size_t size() const { return ends_.size(); }
  size_t memory_bytes() const { return bytes_.capacity() + (ends_.capacity() + slots_.capacity()) * sizeof(uint32_t); }

 private:
  static uint64_t hash_of(std::string_view text) {
    uint64_t hash = text.size() * 0x9E3779B97F4A7C15;
    const char* at = text.data();
    size_t left = text.size();
    auto mix = [&hash](uint64_t word) {
      hash = (hash ^ word) * 0xD6E8FEB86659FD93;
      hash ^= hash >> 32;
    };
    for (; left >= 8; at += 8, left -= 8) {
      uint64_t word;
      std::memcpy(&word, at, 8);
      mix(word);
    }
    uint64_t word = 0;
    std::memcpy(&word, at, left);
    mix(word);
    return hash ^ hash >> 29;
  }
  void grow() {
    std::vector<uint32_t> wider(std::max<size_t>(64, slots_.size() * 2), 0);
    const size_t mask = wider.size() - 1;
    for (uint32_t id : slots_) {
      if (id == 0) continue;
      size_t at = hash_of((*this)[id]) & mask;
      while (wider[at] != 0) at = (at + 1) & mask;
      wider[at] = id;
    }
    slots_ = std::move(wider);
  }

  std::string bytes_;            // one after the other
  std::vector<uint32_t> ends_;   // by id
  std::vector<uint32_t> slots_;  // open addressing, 0: free
};

}  // namespace lockstep::columns
