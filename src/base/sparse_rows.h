// Rows by an index that others choose (a rank): room is made in blocks, so that one index far out costs one block and a
// list of pointers, not all the rows before it.
//
// Thread rule: Confined.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

namespace lockstep {

template <typename Row, size_t kBlockRows>
class SparseRows {
 public:
  using Block = std::array<Row, kBlockRows>;

  // nullptr: nothing was ever there.
  const Row* find(size_t index) const {
    const size_t block = index / kBlockRows;
    return block < blocks_.size() && blocks_[block] ? &(*blocks_[block])[index % kBlockRows] : nullptr;
  }
  // What at() would add to room().
  size_t room_needed(size_t index) const {
    if (find(index) != nullptr) return 0;
    const size_t blocks = index / kBlockRows + 1;
    return kBlockRows + (blocks > blocks_.size() ? pointers_as_rows(blocks - blocks_.size()) : 0);
  }
  // As it was set, or as Row() makes it.
  Row& at(size_t index) {
    room_ += room_needed(index);
    const size_t block = index / kBlockRows;
    if (block >= blocks_.size()) blocks_.resize(block + 1);
    if (!blocks_[block]) blocks_[block] = std::make_unique<Block>();
    return (*blocks_[block])[index % kBlockRows];
  }
  size_t room() const { return room_; }  // rows, and the list of pointers as so many rows
  // Those for which there is room, in order of the index.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (const std::unique_ptr<Block>& block : blocks_) {
      if (!block) continue;
      for (const Row& row : *block) visit(row);
    }
  }

 private:
  static constexpr size_t pointers_as_rows(size_t count) {
    return count * sizeof(std::unique_ptr<Block>) / sizeof(Row);
  }
  std::vector<std::unique_ptr<Block>> blocks_;
  size_t room_ = 0;
};

}  // namespace lockstep
