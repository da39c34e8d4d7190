#include "net/hpack.h"

#include <gtest/gtest.h>

#include "testing/hex.h"

#ifdef LOCKSTEP_NGHTTP2
#include <nghttp2/nghttp2.h>
#endif

namespace lockstep {
namespace {

TEST(Hpack, ReadsBackWhatItWrites) {
  const HeaderList headers = {{":method", "POST"},
                              {":path", "/a.B/C"},
                              {":authority", "gpu-017:4317"},
                              {"authorization", "Bearer x"},
                              {"x-long", std::string(3000, 'z')},
                              {"empty", ""}};
  HpackDecoder decoder(64 * 1024);
  Result<HeaderList> read = decoder.decode(hpack_encode(headers));
  ASSERT_TRUE(read.ok()) << read.error();
  EXPECT_EQ(*read, headers);
  EXPECT_EQ(decoder.table_bytes(), 0u);
}

TEST(Hpack, MarksASecretAsNeverToBeIndexed) {
  const std::string block = hpack_encode({{"authorization", "x"}, {"user-agent", "x"}});
  EXPECT_EQ(static_cast<uint8_t>(block[0]) & 0xf0, 0x10);
}

// Appendix C.6 of RFC 7541: three answers with Huffman and a dynamic table of 256 bytes, from which entries fall out.
TEST(Hpack, ReadsTheAnswersOfTheStandardWithHuffmanAndAFullDynamicTable) {
  HpackDecoder decoder(64 * 1024);
  const std::string blocks[] = {
      "3fe101"  // the table's size, 256, which the standard leaves to SETTINGS
      "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3",
      "4883640effc1c0bf",
      "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f36"
      "72c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
  };
  Result<HeaderList> first = decoder.decode(testing::bytes_of_hex(blocks[0]));
  ASSERT_TRUE(first.ok()) << first.error();
  EXPECT_EQ(*first, (HeaderList{{":status", "302"},
                                {"cache-control", "private"},
                                {"date", "Mon, 21 Oct 2013 20:13:21 GMT"},
                                {"location", "https://www.example.com"}}));
  EXPECT_EQ(decoder.table_bytes(), 222u);
  Result<HeaderList> second = decoder.decode(testing::bytes_of_hex(blocks[1]));
  ASSERT_TRUE(second.ok()) << second.error();
  EXPECT_EQ(second->front().second, "307");
  EXPECT_EQ(second->back().second, "https://www.example.com");
  EXPECT_EQ(decoder.table_bytes(), 222u);
  Result<HeaderList> third = decoder.decode(testing::bytes_of_hex(blocks[2]));
  ASSERT_TRUE(third.ok()) << third.error();
  EXPECT_EQ(third->at(2).second, "Mon, 21 Oct 2013 20:13:22 GMT");
  EXPECT_EQ(third->at(4).second, "gzip");
  EXPECT_EQ(third->back().second, "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1");
  EXPECT_EQ(decoder.table_bytes(), 215u);
}

TEST(Hpack, RefusesWhatIsMalformed) {
  for (const char* hex : {
           "80",                // index 0
           "be",                // 62: the dynamic table is empty
           "ffffffffffff7f",    // a number that does not end
           "00",                // a name that is not there
           "0001",              // shorter than it says
           "000161",            // no value
           "3fe11f3fe21f",      // a table larger than allowed
           "8820",              // a new size after the first header
           "00016182ffff",      // Huffman: padding that could be a symbol of its own
           "00016184ffffffff",  // Huffman: the end symbol
           "0001618100",        // Huffman: padding of zeros
       }) {
    HpackDecoder decoder(64 * 1024);
    EXPECT_FALSE(decoder.decode(testing::bytes_of_hex(hex)).ok()) << hex;
  }
}

TEST(Hpack, KeepsItsLimitHoweverSmallTheBlockIs) {
  HpackDecoder decoder(1000);
  // One long header into the table, then by its index again and again: a byte each.
  std::string block = hpack_encode({{"a", std::string(200, 'x')}});
  block[0] = 0x40;
  ASSERT_TRUE(decoder.decode(block).ok());
  Result<HeaderList> bomb = decoder.decode(std::string(1000, '\xbe'));
  ASSERT_FALSE(bomb.ok());
  EXPECT_NE(bomb.error().find("limit of 1000 bytes"), std::string::npos) << bomb.error();
}

#ifdef LOCKSTEP_NGHTTP2
TEST(Hpack, AgreesWithNghttp2OnEveryByteAndThroughManyBlocks) {
  nghttp2_hd_deflater* deflater = nullptr;
  ASSERT_EQ(nghttp2_hd_deflate_new(&deflater, kHpackTableBytesMax), 0);
  HpackDecoder decoder(64 * 1024);
  for (int round = 0; round < 300; ++round) {
    HeaderList headers = {{":status", round % 2 == 0 ? "200" : "503"}, {"grpc-status", std::to_string(round % 17)}};
    std::string every(60, 'e');  // so that Huffman pays
    every += static_cast<char>(round % 256);
    headers.emplace_back("x-byte-" + std::to_string(round % 7), every);
    std::vector<nghttp2_nv> pairs;
    for (auto& [name, value] : headers)
      pairs.push_back({reinterpret_cast<uint8_t*>(name.data()), reinterpret_cast<uint8_t*>(value.data()), name.size(),
                       value.size(), NGHTTP2_NV_FLAG_NONE});
    uint8_t block[4096];
    const ssize_t length = nghttp2_hd_deflate_hd(deflater, block, sizeof block, pairs.data(), pairs.size());
    ASSERT_GT(length, 0);
    Result<HeaderList> read = decoder.decode({reinterpret_cast<char*>(block), static_cast<size_t>(length)});
    ASSERT_TRUE(read.ok()) << round << ": " << read.error();
    EXPECT_EQ(*read, headers) << round;
  }
  EXPECT_GT(decoder.table_bytes(), 0u);
  nghttp2_hd_deflate_del(deflater);
}
#endif

}  // namespace
}  // namespace lockstep
