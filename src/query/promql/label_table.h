// Labels while a query runs: names and values are numbers, so that grouping and matching compare numbers, and text is
// made once per result.
//
// Equal text has an equal number within one table. A LabelSpan is sorted by the text of its names and has no empty
// value; it lives as long as the table.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/metric_reader.h"

namespace lockstep::promql {

using LabelSpan = std::span<const LabelSymbols>;
using LabelText = std::vector<std::pair<std::string, std::string>>;

class LabelTable {
 public:
  // Always these numbers.
  static constexpr uint32_t kEmpty = 0, kName = 1, kType = 2, kUnit = 3, kLe = 4;

  // charge: told of every growth before it happens, with how much; it may throw to forbid it.
  explicit LabelTable(std::function<void(size_t bytes)> charge = {});
  uint32_t intern(std::string_view text) { return intern(text, true); }
  // The text outlives the table, so it is not copied.
  uint32_t intern_stable(std::string_view text) { return intern(text, false); }
  std::string_view text(uint32_t symbol) const { return texts_[symbol]; }
  size_t bytes() const { return bytes_ + unsaid_; }

  // Room for a set of at most `most` labels; keep() fixes what was written.
  LabelSymbols* room(size_t most);
  LabelSpan keep(const LabelSymbols* begin, size_t count);

  uint32_t get(LabelSpan labels, uint32_t name) const {
    for (const LabelSymbols& label : labels) {
      if (label.name == name) return label.value;
    }
    return kEmpty;
  }
  // Names in a small list.
  LabelSpan with(LabelSpan labels, uint32_t name, uint32_t value);  // kEmpty removes
  LabelSpan without(LabelSpan labels, std::span<const uint32_t> names);
  LabelSpan only(LabelSpan labels, std::span<const uint32_t> names);
  LabelSpan without_metadata(LabelSpan labels);  // name, type and unit

  static uint64_t hash(LabelSpan labels);
  static bool same(LabelSpan a, LabelSpan b);
  int compare(LabelSpan a, LabelSpan b) const;  // by text, label by label
  LabelText text_of(LabelSpan labels) const;
  size_t text_bytes(LabelSpan labels) const;  // of text_of()
  std::string shown(LabelSpan labels) const;  // name{a="b", c="d"}
  // The hash that Prometheus samples by; a function of the text alone.
  uint64_t stable_hash(LabelSpan labels) const;

 private:
  uint32_t intern(std::string_view text, bool copy);
  void grow();
  void take(size_t bytes) {
    if (charge_) charge_(bytes);
    bytes_ += bytes;
  }

  const std::function<void(size_t bytes)> charge_;
  std::deque<std::string> store_;
  std::vector<std::string_view> texts_;
  std::vector<uint64_t> hashes_;  // of texts_
  std::vector<uint32_t> slots_;   // symbol + 1; 0: free
  std::vector<std::unique_ptr<LabelSymbols[]>> chunks_;
  size_t chunk_left_ = 0;
  LabelSymbols* chunk_at_ = nullptr;
  size_t bytes_ = 0;
  size_t unsaid_ = 0;  // of texts, not charged yet
};

// Numbers label sets: equal sets, equal numbers.
class LabelSetIds {
 public:
  explicit LabelSetIds(size_t expected);
  uint32_t id(LabelSpan labels);
  size_t size() const { return sets_.size(); }
  LabelSpan set(uint32_t id) const { return sets_[id]; }

 private:
  void grow();
  std::vector<uint32_t> slots_;  // id + 1; 0: free
  std::vector<uint64_t> hashes_;
  std::vector<LabelSpan> sets_;
};

}  // namespace lockstep::promql
