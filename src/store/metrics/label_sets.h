// Label sets by number, each once: what makes series of several places (blocks, memory) one.
//
// Thread rule: Confined while sets are added.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "store/metric_reader.h"

namespace lockstep::metrics {

class LabelSets {
 public:
  size_t size() const { return ends_.size(); }
  std::span<const LabelSymbols> operator[](size_t at) const {
    const size_t start = at == 0 ? 0 : ends_[at - 1];
    return std::span(labels_).subspan(start, ends_[at] - start);
  }
  uint32_t add(std::span<const LabelSymbols> labels) {
    if ((ends_.size() + 1) * 10 > slots_.size() * 7) grow();
    const size_t mask = slots_.size() - 1;
    for (size_t at = hash_of(labels) & mask;; at = (at + 1) & mask) {
      if (slots_[at] == 0) {
        append(labels);
        slots_[at] = static_cast<uint32_t>(ends_.size());
        return slots_[at] - 1;
      }
      if (same((*this)[slots_[at] - 1], labels)) return slots_[at] - 1;
    }
  }
  // Its number; UINT32_MAX where it is not there.
  uint32_t find(std::span<const LabelSymbols> labels) const {
    if (slots_.empty()) return UINT32_MAX;
    const size_t mask = slots_.size() - 1;
    for (size_t at = hash_of(labels) & mask; slots_[at] != 0; at = (at + 1) & mask) {
      if (same((*this)[slots_[at] - 1], labels)) return slots_[at] - 1;
    }
    return UINT32_MAX;
  }
  // Known to be new; not to be mixed with add().
  void append(std::span<const LabelSymbols> labels) {
    labels_.insert(labels_.end(), labels.begin(), labels.end());
    ends_.push_back(labels_.size());
  }
  // Room for a set that the caller fills; as append().
  LabelSymbols* append_room(size_t count) {
    labels_.resize(labels_.size() + count);
    ends_.push_back(labels_.size());
    return labels_.data() + labels_.size() - count;
  }
  // What append() brought can be found by add() from now on.
  void index() {
    slots_.clear();
    grow();
  }

 private:
  static bool same(std::span<const LabelSymbols> a, std::span<const LabelSymbols> b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
  }
  static uint64_t hash_of(std::span<const LabelSymbols> labels) {
    uint64_t hash = labels.size();
    for (const LabelSymbols& label : labels) {
      hash = (hash ^ (uint64_t{label.name} << 32 | label.value)) * 0x9E3779B97F4A7C15;
      hash ^= hash >> 29;
    }
    return hash;
  }
  void grow() {
    size_t size = 1024;
    while ((ends_.size() + 1) * 10 > size * 5) size *= 2;
    slots_.assign(size, 0);
    for (uint32_t i = 0; i < ends_.size(); ++i) {
      size_t at = hash_of((*this)[i]) & (size - 1);
      while (slots_[at] != 0) at = (at + 1) & (size - 1);
      slots_[at] = i + 1;
    }
  }
  std::vector<LabelSymbols> labels_;
  std::vector<size_t> ends_;
  std::vector<uint32_t> slots_;
};

}  // namespace lockstep::metrics
