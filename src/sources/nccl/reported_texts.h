// Texts that the job told in pieces (kText records), put together again.
//
// Pieces of a text follow each other on their lane, but a drain may end between them, and lanes are read one after
// another: a text is known by its number, time, kind and count of pieces. One of which a piece is missing, that grows
// beyond kTextBytesMax or does not come to its end within a few drains is dropped and counted, once.
//
// Limits: kOpenMax texts under way.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "recorder/records.h"

namespace lockstep {

struct ReportedText {
  TextKind kind = TextKind::kNote;
  int64_t time_ns = 0;  // of the process's monotonic clock
  std::string text;
};

class ReportedTexts {
 public:
  static constexpr size_t kTextBytesMax = 1 << 20;
  static constexpr size_t kOpenMax = 64;

  // The text, where this was its last piece and none is missing.
  std::optional<ReportedText> add(const TextRecord& piece);
  void end_drain();
  uint64_t dropped() const { return dropped_; }

 private:
  using Key = std::tuple<uint64_t, uint16_t, uint16_t, TextKind>;  // time, number, pieces, kind
  struct Open {
    std::string text;
    uint16_t next = 0;  // piece
    bool broken = false;
    int drains = 0;
  };
  void give_up(Open& open);

  std::map<Key, Open> open_;
  uint64_t dropped_ = 0;
};

}  // namespace lockstep
