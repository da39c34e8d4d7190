// An array that grows without moving or doubling: blocks of a fixed number of elements. For what there is one of per
// series, where a vector's spare half would be the largest thing in memory.
//
// Thread rule: Confined, or under its owner's lock.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace lockstep::metrics {

template <typename T, size_t kBlockBits = 12>
class ChunkedArray {
 public:
  size_t size() const { return size_; }
  T& operator[](size_t at) { return blocks_[at >> kBlockBits][at & (kBlock - 1)]; }
  const T& operator[](size_t at) const { return blocks_[at >> kBlockBits][at & (kBlock - 1)]; }
  void push_back(T value) {
    if (size_ == blocks_.size() * kBlock) blocks_.push_back(std::make_unique<T[]>(kBlock));
    (*this)[size_++] = std::move(value);
  }
  // Where a run of so many would begin: runs do not cross a block, and are at most one long.
  size_t run_place(size_t count) const {
    const size_t room = blocks_.size() * kBlock - size_;
    return room < count ? blocks_.size() * kBlock : size_;
  }
  // Gives the first's place.
  size_t add_run(std::span<const T> values) {
    const size_t place = run_place(values.size());
    if (place == blocks_.size() * kBlock) blocks_.push_back(std::make_unique<T[]>(kBlock));
    size_ = place;
    for (const T& value : values) (*this)[size_++] = value;
    return place;
  }
  size_t memory_bytes() const { return blocks_.size() * kBlock * sizeof(T); }

 private:
  static constexpr size_t kBlock = size_t{1} << kBlockBits;
  std::vector<std::unique_ptr<T[]>> blocks_;
  size_t size_ = 0;
};

}  // namespace lockstep::metrics
