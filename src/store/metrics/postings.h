// Which series have a label: ascending numbers as runs with a stride. Series are numbered in the order in which they
// came, and senders repeat themselves: all series of a host are a run, a metric's series are every 98th. A job of 8,192
// ranks or a metric of all of them is one run or a few.
//
// Thread rule: Confined, or under its owner's lock.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "store/columns/byte_codec.h"

namespace lockstep::metrics {

// A set of series by number.
class SeriesSet {
 public:
  explicit SeriesSet(size_t size, bool all = false) : size_(size), words_((size + 63) / 64, all ? ~uint64_t{0} : 0) {
    trim();
  }
  size_t size() const { return size_; }
  bool has(size_t at) const { return (words_[at / 64] >> (at % 64) & 1) != 0; }
  void add(size_t at) { words_[at / 64] |= uint64_t{1} << (at % 64); }
  void remove(size_t at) { words_[at / 64] &= ~(uint64_t{1} << (at % 64)); }
  void add_run(size_t start, size_t count, size_t stride) {
    if (stride != 1) {
      for (size_t i = 0; i < count; ++i, start += stride) add(start);
      return;
    }
    while (count > 0) {
      const size_t bit = start % 64;
      const size_t bits = count < 64 - bit ? count : 64 - bit;
      words_[start / 64] |= (bits == 64 ? ~uint64_t{0} : ((uint64_t{1} << bits) - 1)) << bit;
      start += bits;
      count -= bits;
    }
  }
  void keep(const SeriesSet& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] &= i < other.words_.size() ? other.words_[i] : 0;
  }
  void keep_out(const SeriesSet& other) {
    for (size_t i = 0; i < words_.size() && i < other.words_.size(); ++i) words_[i] &= ~other.words_[i];
  }
  size_t count() const {
    size_t sum = 0;
    for (uint64_t word : words_) sum += static_cast<size_t>(__builtin_popcountll(word));
    return sum;
  }
  template <typename Visit>
  void visit(Visit&& each) const {
    for (size_t i = 0; i < words_.size(); ++i) {
      for (uint64_t word = words_[i]; word != 0; word &= word - 1)
        each(static_cast<uint32_t>(i * 64 + static_cast<size_t>(__builtin_ctzll(word))));
    }
  }

 private:
  void trim() {
    if (size_ % 64 != 0 && !words_.empty()) words_.back() &= (uint64_t{1} << (size_ % 64)) - 1;
  }
  size_t size_;
  std::vector<uint64_t> words_;
};

class Postings {
 public:
  // Larger than any before.
  void add(uint32_t id) {
    ++count_;
    if (!runs_.empty()) {
      Run& run = runs_.back();
      if (run.count == 1) {
        run.stride = id - run.start;
        run.count = 2;
        return;
      }
      if (id == run.start + run.count * run.stride) {
        ++run.count;
        return;
      }
    }
    runs_.push_back({id, 1, 1});
  }
  uint32_t count() const { return count_; }
  void add_to(SeriesSet& set) const {
    for (const Run& run : runs_) set.add_run(run.start, run.count, run.stride);
  }
  size_t memory_bytes() const { return runs_.capacity() * sizeof(Run); }

  // varint runs; each: start minus the end before, count, and where that is above one the stride; all varints.
  void encode(std::string& out) const {
    columns::put_varint(out, runs_.size());
    uint32_t end = 0;
    for (const Run& run : runs_) {
      columns::put_varint(out, run.start - end);
      columns::put_varint(out, run.count);
      if (run.count > 1) columns::put_varint(out, run.stride);
      end = run.start + (run.count - 1) * run.stride;
    }
  }
  // Adds what `in` has to a set; false: they are no postings of a set of this size.
  static bool decode(columns::ByteReader& in, SeriesSet& set) {
    uint64_t end = 0;
    for (size_t left = in.count(2); left > 0; --left) {
      const uint64_t delta = in.varint(), count = in.varint();
      const uint64_t stride = count > 1 ? in.varint() : 1;
      if (!in.ok() || count == 0 || stride == 0 || delta >= set.size() || count > set.size() || stride > set.size())
        return false;
      const uint64_t start = end + delta;
      end = start + (count - 1) * stride;
      if (end >= set.size()) return false;
      set.add_run(start, count, stride);
    }
    return in.ok();
  }

 private:
  struct Run {
    uint32_t start;
    uint32_t count;
    uint32_t stride;
  };
  std::vector<Run> runs_;
  uint32_t count_ = 0;
};

}  // namespace lockstep::metrics
