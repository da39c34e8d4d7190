#include "sources/nccl/reported_texts.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace lockstep {
namespace {

std::vector<TextRecord> pieces_of(const std::string& text, uint16_t number, uint64_t time_ns = 1000) {
  std::vector<TextRecord> pieces;
  constexpr size_t kPiece = sizeof(TextRecord::text);
  for (size_t at = 0; at < text.size(); at += kPiece) {
    TextRecord piece{};
    piece.head.type = RecordType::kText;
    piece.head.time_ns = time_ns;
    piece.kind = TextKind::kNote;
    piece.bytes = static_cast<uint8_t>(std::min(kPiece, text.size() - at));
    piece.piece = static_cast<uint16_t>(at / kPiece);
    piece.pieces = static_cast<uint16_t>((text.size() + kPiece - 1) / kPiece);
    piece.number = number;
    std::memcpy(piece.text, text.data() + at, piece.bytes);
    pieces.push_back(piece);
  }
  return pieces;
}

TEST(ReportedTexts, PutsPiecesTogetherOverDrainsAndBesideTextsOfOtherLanes) {
  ReportedTexts texts;
  const std::string one(100, 'a'), two(90, 'b');
  auto a = pieces_of(one, 1), b = pieces_of(two, 1, 1001);
  EXPECT_FALSE(texts.add(a[0]));
  EXPECT_FALSE(texts.add(b[0]));
  texts.end_drain();
  EXPECT_FALSE(texts.add(b[1]));
  EXPECT_FALSE(texts.add(a[1]));
  auto first = texts.add(a[2]), second = texts.add(b[2]);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->text, one);
  EXPECT_EQ(first->time_ns, 1000);
  EXPECT_EQ(second->text, two);
  EXPECT_EQ(texts.dropped(), 0u);
}

TEST(ReportedTexts, ATextWithAMissingPieceIsDroppedAndCountedOnce) {
  for (size_t missing = 0; missing < 4; ++missing) {
    ReportedTexts texts;
    auto pieces = pieces_of(std::string(150, 'x'), 7);
    ASSERT_EQ(pieces.size(), 4u);
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (i == missing) continue;
      EXPECT_FALSE(texts.add(pieces[i]));
    }
    for (int i = 0; i < 5; ++i) texts.end_drain();
    EXPECT_EQ(texts.dropped(), 1u) << missing;
    EXPECT_TRUE(texts.add(pieces_of("next", 8, 2000)[0]));
  }
}

TEST(ReportedTexts, WhatCannotBeAPieceIsDroppedAndCounted) {
  ReportedTexts texts;
  TextRecord piece = pieces_of("short", 1)[0];
  piece.bytes = 41;
  EXPECT_FALSE(texts.add(piece));
  piece.bytes = 5;
  piece.piece = 1;
  EXPECT_FALSE(texts.add(piece));
  piece.pieces = 0;
  EXPECT_FALSE(texts.add(piece));
  EXPECT_EQ(texts.dropped(), 3u);
}

TEST(ReportedTexts, KeepsABoundedNumberOfTextsThatNeverEnd) {
  ReportedTexts texts;
  for (uint16_t number = 0; number < 200; ++number) EXPECT_FALSE(texts.add(pieces_of(std::string(50, 'x'), number)[0]));
  EXPECT_EQ(texts.dropped(), 200 - ReportedTexts::kOpenMax);
}

}  // namespace
}  // namespace lockstep
