#include "store/metrics/symbols.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/mutex.h"

namespace lockstep::metrics {
namespace {
constexpr size_t kArenaBytes = 64 << 10;
size_t hash_of(std::string_view text) {
  return std::hash<std::string_view>{}(text);
}
}  // namespace

size_t Symbols::slot_of(std::string_view text) const {
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash_of(text) & mask;; at = (at + 1) & mask) {
    if (slots_[at] == 0) return at;
    const Text& known = texts_[slots_[at] - 1];
    if (std::string_view(known.data, known.size) == text) return at;
  }
}

void Symbols::grow() {
  slots_.assign(std::max<size_t>(1024, slots_.size() * 2), 0);
  for (uint32_t i = 0; i < texts_.size(); ++i) slots_[slot_of({texts_[i].data, texts_[i].size})] = i + 1;
}

uint32_t Symbols::intern(std::string_view text) {
  if (std::optional<uint32_t> known = find(text)) return *known;
  MutexLock lock(mutex_);
  if ((texts_.size() + 1) * 10 > slots_.size() * 7) grow();
  uint32_t& slot = slots_[slot_of(text)];
  if (slot != 0) return slot - 1;
  if (arena_size_ - arena_used_ < text.size()) {
    arena_size_ = std::max(kArenaBytes, text.size());
    arena_used_ = 0;
    arena_.push_back(std::make_unique<char[]>(arena_size_));
    arena_bytes_ += arena_size_;
  }
  char* place = arena_.empty() ? nullptr : arena_.back().get() + arena_used_;
  if (!text.empty()) std::memcpy(place, text.data(), text.size());
  arena_used_ += text.size();
  texts_.push_back({place, static_cast<uint32_t>(text.size())});
  slot = static_cast<uint32_t>(texts_.size());
  return slot - 1;
}

std::optional<uint32_t> Symbols::find(std::string_view text) const {
  SharedLock lock(mutex_);
  if (slots_.empty()) return std::nullopt;
  const uint32_t slot = slots_[slot_of(text)];
  if (slot == 0) return std::nullopt;
  return slot - 1;
}

std::string_view Symbols::text(uint32_t symbol) const {
  SharedLock lock(mutex_);
  if (symbol >= texts_.size()) return {};
  return {texts_[symbol].data, texts_[symbol].size};
}

size_t Symbols::size() const {
  SharedLock lock(mutex_);
  return texts_.size();
}

size_t Symbols::memory_bytes() const {
  SharedLock lock(mutex_);
  return texts_.memory_bytes() + slots_.capacity() * sizeof(uint32_t) + arena_bytes_;
}

}  // namespace lockstep::metrics
