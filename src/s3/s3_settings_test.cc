#include "s3/s3_settings.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>

#include "base/files.h"
#include "testing/temporary_folder.h"

namespace lockstep::s3 {
namespace {

Environment environment_of(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  };
}

const std::map<std::string, std::string> kKeys{{"AWS_ACCESS_KEY_ID", "id"}, {"AWS_SECRET_ACCESS_KEY", "not-for-eyes"}};

std::map<std::string, std::string> with(std::map<std::string, std::string> more) {
  more.insert(kKeys.begin(), kKeys.end());
  return more;
}

TEST(S3Settings, AreThoseThatAwsToolsRead) {
  Result<S3Settings> plain = s3_settings("", environment_of(with({{"AWS_REGION", "eu-central-1"}})));
  ASSERT_TRUE(plain.ok()) << plain.error();
  EXPECT_EQ(plain->endpoint, "https://s3.eu-central-1.amazonaws.com");
  EXPECT_EQ(plain->keys.access_key, "id");
  const auto more = with({{"AWS_ENDPOINT_URL_S3", "http://a:1"},
                          {"AWS_ENDPOINT_URL", "http://b:1"},
                          {"AWS_SESSION_TOKEN", "t"},
                          {"AWS_CA_BUNDLE", "/ca.pem"}});
  const Result<S3Settings> other = s3_settings("", environment_of(more));
  ASSERT_TRUE(other.ok()) << other.error();
  EXPECT_EQ(other->endpoint, "http://a:1");
  EXPECT_EQ(other->region, "us-east-1");
  EXPECT_EQ(other->keys.session_token, "t");
  EXPECT_EQ(other->ca_file, "/ca.pem");
  EXPECT_EQ(s3_settings("http://c:1", environment_of(more))->endpoint, "http://c:1");
}

TEST(S3Settings, KeysAlsoComeFromAFileThatOthersMayNotRead) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/credentials";
  ASSERT_TRUE(write_file_atomically(path,
                                    "# ours\n[default]\naws_access_key_id = one\naws_secret_access_key = first\n\n"
                                    "[night]\naws_access_key_id=two\naws_secret_access_key=second=\n"
                                    "aws_session_token = third\n")
                  .ok());
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  const Result<S3Settings> first = s3_settings("", environment_of({{"AWS_SHARED_CREDENTIALS_FILE", path}}));
  ASSERT_TRUE(first.ok()) << first.error();
  EXPECT_EQ(first->keys.secret_key, "first");
  const auto night = environment_of({{"AWS_SHARED_CREDENTIALS_FILE", path}, {"AWS_PROFILE", "night"}});
  const Result<S3Settings> second = s3_settings("", night);
  ASSERT_TRUE(second.ok()) << second.error();
  EXPECT_EQ(second->keys.secret_key, "second=");
  EXPECT_EQ(second->keys.session_token, "third");
  const auto none = environment_of({{"AWS_SHARED_CREDENTIALS_FILE", path}, {"AWS_PROFILE", "day"}});
  EXPECT_EQ(s3_settings("", none).error(), path + ": there is no profile \"day\"");
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  EXPECT_EQ(s3_settings("", night).error(), path + " is open to every user of this machine: chmod o=");
}

TEST(S3Settings, MistakesAreOneLineWithoutAKey) {
  for (const auto& variables :
       {with({{"AWS_REGION", "eu central\n"}}), with({{"AWS_ENDPOINT_URL", "a:1"}}),
        with({{"AWS_ENDPOINT_URL", "https://id:not-for-eyes@a"}}), with({{"AWS_SESSION_TOKEN", "not-for-eyes\n"}}),
        std::map<std::string, std::string>{{"AWS_SECRET_ACCESS_KEY", "not-for-eyes"}},
        std::map<std::string, std::string>{{"HOME", "/nowhere"}}}) {
    const Result<S3Settings> settings = s3_settings("", environment_of(variables));
    ASSERT_FALSE(settings.ok());
    EXPECT_EQ(settings.error().find("not-for-eyes"), std::string::npos) << settings.error();
    EXPECT_EQ(settings.error().find('\n'), std::string::npos) << settings.error();
  }
}

TEST(S3Settings, APlaceIsABucketAndAPrefix) {
  EXPECT_EQ(parse_s3_place("s3://kept")->prefix, "");
  EXPECT_EQ(parse_s3_place("s3://kept/")->bucket, "kept");
  EXPECT_EQ(parse_s3_place("s3://my.bucket-1/a/b_c/")->prefix, "a/b_c");
  for (const char* wrong : {"s3://", "s3:///a", "s3://ab", "s3://Kept", "s3://-ab", "s3://a..b", "s3://kept/../x",
                            "s3://kept//a", "s3://kept/a b", "s3://kept/a?b", "kept/a"})
    EXPECT_FALSE(parse_s3_place(wrong).ok()) << wrong;
}

}  // namespace
}  // namespace lockstep::s3
