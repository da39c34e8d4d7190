#include "sources/nccl/reported_texts.h"

#include <utility>

namespace lockstep {
namespace {

// The writer writes all pieces in one go: what is not whole after so many drains lost its end.
constexpr int kDrainsMax = 3;

}  // namespace

void ReportedTexts::give_up(Open& open) {
  dropped_ += !open.broken;
  open.broken = true;
  open.text.clear();
}

std::optional<ReportedText> ReportedTexts::add(const TextRecord& piece) {
  if (piece.pieces == 0 || piece.piece >= piece.pieces || piece.bytes > sizeof piece.text) {
    ++dropped_;
    return std::nullopt;
  }
  const Key key{piece.head.time_ns, piece.number, piece.pieces, piece.kind};
  if (!open_.contains(key) && open_.size() >= kOpenMax) {
    auto oldest = open_.begin();
    give_up(oldest->second);
    open_.erase(oldest);
  }
  Open& open = open_[key];
  if (piece.piece != open.next || open.text.size() + piece.bytes > kTextBytesMax) give_up(open);
  if (!open.broken) open.text.append(piece.text, piece.bytes);
  open.next = static_cast<uint16_t>(piece.piece + 1);
  if (open.next < piece.pieces) return std::nullopt;

  std::optional<ReportedText> whole;
  if (!open.broken) whole = {piece.kind, static_cast<int64_t>(piece.head.time_ns), std::move(open.text)};
  open_.erase(key);
  return whole;
}

void ReportedTexts::end_drain() {
  for (auto at = open_.begin(); at != open_.end();) {
    if (++at->second.drains <= kDrainsMax) {
      ++at;
      continue;
    }
    give_up(at->second);
    at = open_.erase(at);
  }
}

}  // namespace lockstep
