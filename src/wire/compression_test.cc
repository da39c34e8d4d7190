#include "wire/compression.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

// Data that compresses, but not to nothing.
std::string sample(size_t size) {
  std::string data;
  uint32_t state = 1;
  while (data.size() < size) {
    state = state * 1664525 + 1013904223;
    data += "rank " + std::to_string(state >> 24) + ";";
  }
  data.resize(size);
  return data;
}

class Compression : public ::testing::TestWithParam<Encoding> {
  void SetUp() override {
    if (!available(GetParam())) GTEST_SKIP() << "this build does without " << to_text(GetParam());
  }
};
INSTANTIATE_TEST_SUITE_P(Each, Compression, ::testing::Values(Encoding::kIdentity, Encoding::kGzip, Encoding::kZstd),
                         [](const auto& test) { return std::string(to_text(test.param)); });

TEST_P(Compression, GivesBackWhatWentIn) {
  for (size_t size : {0, 1, 100, 32 * 1024, 1'000'000}) {
    std::string data = sample(size);
    Result<std::string> small = compress(GetParam(), data);
    ASSERT_TRUE(small.ok()) << small.error();
    Result<std::string> back = decompress(GetParam(), *small, size);
    ASSERT_TRUE(back.ok()) << back.error();
    EXPECT_EQ(*back, data);
  }
}

TEST_P(Compression, StopsAtTheLimit) {
  std::string bomb = *compress(GetParam(), std::string(64 << 20, '\0'));
  Result<std::string> back = decompress(GetParam(), bomb, 1 << 20);
  ASSERT_FALSE(back.ok());
  EXPECT_NE(back.error().find("limit of 1048576"), std::string::npos) << back.error();
  EXPECT_EQ(back.code(), ErrorCode::kTooLarge);
  EXPECT_FALSE(decompress(GetParam(), *compress(GetParam(), "abc"), 2).ok());
  EXPECT_FALSE(decompress(GetParam(), *compress(GetParam(), "abc"), 0).ok());
}

class RealCompression : public Compression {};
INSTANTIATE_TEST_SUITE_P(Each, RealCompression, ::testing::Values(Encoding::kGzip, Encoding::kZstd),
                         [](const auto& test) { return std::string(to_text(test.param)); });

TEST_P(RealCompression, MakesRepetitiveDataSmaller) {
  EXPECT_LT(compress(GetParam(), sample(100'000))->size(), 50'000u);
}

TEST_P(RealCompression, RefusesDataThatIsCutAnywhere) {
  std::string small = *compress(GetParam(), sample(5'000));
  for (size_t size = 0; size < small.size(); ++size) {
    std::string cut = small.substr(0, size);
    ASSERT_FALSE(decompress(GetParam(), cut, 1 << 20).ok()) << "cut at " << size;
  }
}

TEST_P(RealCompression, RefusesGarbageAndGarbageBehindGoodData) {
  EXPECT_FALSE(decompress(GetParam(), "this was never compressed", 1 << 20).ok());
  EXPECT_FALSE(decompress(GetParam(), *compress(GetParam(), "abc") + "garbage", 1 << 20).ok());
}

TEST_P(RealCompression, ReadsSeveralPartsOneAfterTheOther) {
  std::string parts = *compress(GetParam(), "abc") + *compress(GetParam(), "") + *compress(GetParam(), "def");
  EXPECT_EQ(*decompress(GetParam(), parts, 6), "abcdef");
  EXPECT_FALSE(decompress(GetParam(), parts, 5).ok());
}

TEST(ContentEncoding, UnderstandsTheNamesOfHttp) {
  EXPECT_EQ(*parse_encoding(""), Encoding::kIdentity);
  EXPECT_EQ(*parse_encoding("identity"), Encoding::kIdentity);
  EXPECT_EQ(*parse_encoding("gzip"), Encoding::kGzip);
  EXPECT_EQ(*parse_encoding(" GZip "), Encoding::kGzip);
  EXPECT_EQ(*parse_encoding("zstd"), Encoding::kZstd);
}

TEST(ContentEncoding, NamesWhatItDoesNotUnderstandAndWhatItDoes) {
  Result<Encoding> encoding = parse_encoding("br");
  ASSERT_FALSE(encoding.ok());
  EXPECT_NE(encoding.error().find("\"br\""), std::string::npos) << encoding.error();
  EXPECT_NE(encoding.error().find("identity"), std::string::npos) << encoding.error();
  EXPECT_EQ(parse_encoding(std::string(5000, '\n') + "x\ny").error().find('\n'), std::string::npos);
}

TEST(ContentEncoding, KnowsWhatThisBuildDoesWithout) {
  for (Encoding encoding : {Encoding::kIdentity, Encoding::kGzip, Encoding::kZstd}) {
    EXPECT_EQ(compress(encoding, "abc").ok(), available(encoding)) << to_text(encoding);
  }
}

TEST(Snappy, GivesBackWhatWentInAndUsesItsBufferAgain) {
  std::string buffer;
  for (const std::string& text : {std::string(100'000, 'x'), std::string("short"), std::string()}) {
    Result<std::string> small = snappy_compress(text);
    ASSERT_TRUE(small.ok()) << small.error();
    Result<std::string_view> back = snappy_decompress(*small, 100'000, buffer);
    ASSERT_TRUE(back.ok()) << back.error();
    EXPECT_EQ(*back, text);
  }
  EXPECT_EQ(buffer.size(), 100'000u);
}

TEST(Snappy, RefusesWhatBecomesTooLargeAndWhatOnlyClaimsALength) {
  std::string buffer;
  Result<std::string_view> large = snappy_decompress(*snappy_compress(std::string(1001, 'x')), 1000, buffer);
  ASSERT_FALSE(large.ok());
  EXPECT_NE(large.error().find("more than the limit of 1000"), std::string::npos) << large.error();
  EXPECT_EQ(large.code(), ErrorCode::kTooLarge);
  EXPECT_EQ(snappy_decompress("\xFF\xFF\xFF\x07", 1u << 31, buffer).code(), ErrorCode::kUnspecified);
  EXPECT_FALSE(snappy_decompress("", 1000, buffer).ok());
  EXPECT_TRUE(buffer.empty());
}

TEST(GzipStream, IsTheSameWhateverThePiecesAndReadsBack) {
  if (!available(Encoding::kGzip)) GTEST_SKIP();
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "{\"name\":\"kernel " + std::to_string(i * 7919 % 1000) + "\"},";
  std::string first;
  for (const size_t piece : {text.size(), size_t{1000}, size_t{65'536}, size_t{7}}) {
    GzipStream stream;
    std::string out;
    for (size_t at = 0; at < text.size(); at += piece)
      ASSERT_TRUE(stream.add(std::string_view(text).substr(at, piece), false, out).ok());
    ASSERT_TRUE(stream.add("", true, out).ok());
    if (first.empty()) first = out;
    EXPECT_TRUE(out == first) << piece;
  }
  const Result<std::string> back = decompress(Encoding::kGzip, first, text.size());
  ASSERT_TRUE(back.ok()) << back.error();
  EXPECT_TRUE(*back == text);
}

}  // namespace
}  // namespace lockstep
