#include "fabric/text_pool.h"

#include <algorithm>
#include <cstring>

namespace lockstep::fabric {

TextPool::TextPool() {
  texts_.push_back("");
  symbols_.emplace(texts_.front(), kNoText);
}

Symbol TextPool::add(std::string_view text) {
  if (const auto found = symbols_.find(text); found != symbols_.end()) return found->second;
  if (text.size() > left_) {
    left_ = std::max(kChunkBytes, text.size());
    chunks_.push_back(std::make_unique<char[]>(left_));
    kept_bytes_ += left_;
    // The rest of the last chunk is given up: texts are short.
  }
  char* const at = chunks_.back().get() + (std::max(kChunkBytes, left_) - left_);
  std::memcpy(at, text.data(), text.size());
  left_ -= text.size();
  const auto symbol = static_cast<Symbol>(texts_.size());
  texts_.emplace_back(at, text.size());
  symbols_.emplace(texts_.back(), symbol);
  return symbol;
}

Symbol TextPool::find(std::string_view text) const {
  const auto found = symbols_.find(text);
  return found == symbols_.end() ? kNoText : found->second;
}

size_t TextPool::bytes() const {
  // A node of the table: its key, its value, the hash and a pointer.
  return kept_bytes_ + texts_.capacity() * sizeof(std::string_view) +
         symbols_.size() * (sizeof(std::string_view) + 24) + symbols_.bucket_count() * sizeof(void*);
}

void TextPool::seal() {
  symbols_ = {};
  texts_.shrink_to_fit();
}

}  // namespace lockstep::fabric
