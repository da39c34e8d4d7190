#include "wire/uploads.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

const std::string kSum(64, 'a');

TEST(Uploads, BodiesReadAsTheyWereWritten) {
  const UploadBegin begin{"team/llama \"70b\"", "p-0123456789ab", "rank-17.json.gz", 1'000'000, 3};
  ASSERT_TRUE(parse_upload_begin(encode(begin)).ok());
  EXPECT_EQ(*parse_upload_begin(encode(begin)), begin);
  const UploadBegun begun{
      .upload = "abc", .part_bytes = 8 << 20, .done_parts = {{1, 8 << 20, kSum}, {2, 5, "", "\"e\""}}};
  EXPECT_EQ(*parse_upload_begun(encode(begun)), begun);
  const UploadBegun to_bucket{
      .upload = "abc", .part_bytes = 8 << 20, .urls_from = 65, .parts_urls = {"http://b/1?x=y&z", "http://b/2"}};
  EXPECT_EQ(*parse_upload_begun(encode(to_bucket)), to_bucket);
  const UploadBegun stored{.upload = "abc", .part_bytes = 1, .key = "default/j/p-0123456789ab/f", .bytes = 17};
  EXPECT_EQ(*parse_upload_begun(encode(stored)), stored);
  const UploadFinish finish{kSum, {{1}, {2, 0, "", "\"e\""}}};
  EXPECT_EQ(*parse_upload_finish(encode(finish)), finish);
  const UploadFinished finished{"default/j/p-0123456789ab/f", 17};
  EXPECT_EQ(*parse_upload_finished(encode(finished)), finished);
}

TEST(Uploads, WhatIsOddIsRefusedWithOneLine) {
  for (const char* json : {"", "[]", "{}", "{\"job\":1}", "{\"job\":\"a\",\"capture\":\"b\"}",
                           "{\"job\":\"\",\"capture\":\"b\",\"file\":\"c\"}",
                           "{\"job\":\"a\",\"capture\":\"b\",\"file\":\"c\",\"bytes\":-1}",
                           "{\"job\":\"a\",\"capture\":\"b\",\"file\":\"c\",\"from_part\":0}",
                           "{\"job\":\"a\",\"capture\":\"b\",\"file\":\"c\",\"from_part\":10001}"}) {
    const Result<UploadBegin> read = parse_upload_begin(json);
    ASSERT_FALSE(read.ok()) << json;
    EXPECT_EQ(read.error().find('\n'), std::string::npos);
  }
  for (const std::string& json :
       {std::string("{}"), "{\"sha256\":\"" + kSum + "\"}", std::string("{\"sha256\":\"AA\",\"parts\":[]}"),
        "{\"sha256\":\"" + kSum + "\",\"parts\":{}}", "{\"sha256\":\"" + kSum + "\",\"parts\":[1]}",
        "{\"sha256\":\"" + kSum + "\",\"parts\":[{\"n\":0}]}"})
    EXPECT_FALSE(parse_upload_finish(json).ok()) << json;
  EXPECT_FALSE(parse_upload_begun("{\"upload\":\"a\"}").ok());
  EXPECT_FALSE(parse_upload_begun("{\"upload\":\"a\",\"part_bytes\":8,\"parts_urls\":[1]}").ok());
  EXPECT_FALSE(parse_upload_finished("{\"bytes\":1}").ok());
}

TEST(Uploads, CutOffAnywhereABodyIsNone) {
  const std::string json = encode(UploadFinish{kSum, {{1}, {2, 0, "", "e"}}});
  for (size_t bytes = 0; bytes < json.size(); ++bytes) EXPECT_FALSE(parse_upload_finish(json.substr(0, bytes)).ok());
}

}  // namespace
}  // namespace lockstep
