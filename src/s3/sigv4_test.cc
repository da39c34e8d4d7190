// The examples of AWS's own page "Authenticating Requests: Using the Authorization Header" for S3.
#include "s3/sigv4.h"

#include <gtest/gtest.h>

#include "base/sha256.h"

namespace lockstep::s3 {
namespace {

const AwsKeys kKeys{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""};
constexpr int64_t kThen = 1'369'353'600;  // 2013-05-24T00:00:00Z
const std::string kNothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

std::string signature_of(RequestToSign request) {
  request.headers.emplace_back("host", "examplebucket.s3.amazonaws.com");
  request.headers.emplace_back("x-amz-content-sha256", request.payload_sha256);
  request.headers.emplace_back("x-amz-date", amz_date(kThen));
  const std::string text = authorization_v4(kKeys, "us-east-1", kThen, std::move(request));
  return text.substr(text.find("Signature=") + 10);
}

TEST(SigV4, SignsAReadOfPartOfAnObjectAsAwsDoes) {
  RequestToSign request{"GET", "/test.txt", {}, {{"range", "bytes=0-9"}}, kNothing};
  EXPECT_EQ(signature_of(request), "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

TEST(SigV4, SignsAWriteWithItsContentAsAwsDoes) {
  RequestToSign request{"PUT",
                        "/test%24file.text",
                        {},
                        {{"x-amz-storage-class", "REDUCED_REDUNDANCY"}, {"date", "Fri, 24 May 2013 00:00:00 GMT"}},
                        to_text(sha256("Welcome to Amazon S3."))};
  EXPECT_EQ(signature_of(request), "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
}

TEST(SigV4, SignsAQueryWithoutAndWithValuesAsAwsDoes) {
  EXPECT_EQ(signature_of({"GET", "/", {{"lifecycle", ""}}, {}, kNothing}),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
  EXPECT_EQ(signature_of({"GET", "/", {{"prefix", "J"}, {"max-keys", "2"}}, {}, kNothing}),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST(SigV4, SaysWhoSignedAndWhatButNothingSecret) {
  const std::string text = authorization_v4(kKeys, "us-east-1", kThen, {"GET", "/", {}, {{"host", "h"}}, kNothing});
  EXPECT_TRUE(
      text.starts_with("AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
                       "SignedHeaders=host, Signature="))
      << text;
  EXPECT_EQ(text.find(kKeys.secret_key), std::string::npos);
}

// The example of "Authenticating Requests: Using Query Parameters".
TEST(SigV4, SignsAUrlForSomebodyElseAsAwsDoes) {
  EXPECT_EQ(
      presigned_query(kKeys, "us-east-1", kThen, 86'400, "GET", "/test.txt", "examplebucket.s3.amazonaws.com", {}),
      "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2F"
      "aws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature="
      "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404");
}

TEST(SigV4, AQueryIsSortedAndEncodedAsItIsSent) {
  EXPECT_EQ(canonical_query({{"prefix", "a b/c"}, {"list-type", "2"}, {"continuation-token", "x+y="}}),
            "continuation-token=x%2By%3D&list-type=2&prefix=a%20b%2Fc");
  EXPECT_EQ(canonical_query({}), "");
}

}  // namespace
}  // namespace lockstep::s3
