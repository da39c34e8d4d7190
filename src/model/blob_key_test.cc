#include "model/blob_key.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr const char* kCapture = "p-0123456789ab";

TEST(BlobKey, IsOnePathWhateverAJobIsCalled) {
  for (const char* job : {"llama-70b", "team/llama 70b", "..", ".", ".uploads", "a%2Fb", "\xff\n"}) {
    const BlobKey key{job, kCapture, "rank-17.json.gz"};
    ASSERT_TRUE(check_blob_key(key).ok()) << job;
    const std::string path = blob_path(key);
    EXPECT_EQ(std::count(path.begin(), path.end(), '/'), 2) << path;
    EXPECT_NE(path[0], '.') << path;
    const Result<BlobKey> again = parse_blob_path(path);
    ASSERT_TRUE(again.ok()) << path << ": " << again.error();
    EXPECT_EQ(*again, key);
  }
  EXPECT_EQ(blob_path({"a/b", kCapture, "rank-0.json.gz"}), "a%2Fb/p-0123456789ab/rank-0.json.gz");
}

TEST(BlobKey, WhatCouldLeaveItsPlaceIsRefusedWithOneLine) {
  const BlobKey wrong[] = {{"", kCapture, "f"},
                           {std::string(257, 'a'), kCapture, "f"},
                           {std::string(100, '/'), kCapture, "f"},
                           {"j", "p-0123456789AB", "f"},
                           {"j", "p-0123456789a", "f"},
                           {"j", "..", "f"},
                           {"j", "", "f"},
                           {"j", kCapture, ""},
                           {"j", kCapture, ".."},
                           {"j", kCapture, ".hidden"},
                           {"j", kCapture, "a/b"},
                           {"j", kCapture, std::string(101, 'a')}};
  for (const BlobKey& key : wrong) {
    const Result<void> checked = check_blob_key(key);
    ASSERT_FALSE(checked.ok()) << key.job << " " << key.capture << " " << key.file;
    EXPECT_EQ(checked.error().find('\n'), std::string::npos);
  }
  for (const char* path : {"", "/", "j/p-0123456789ab", "j/p-0123456789ab/f/g", "%2/p-0123456789ab/f",
                           "%61/p-0123456789ab/f", "../p-0123456789ab/f", "%2e%2e/p-0123456789ab/f"})
    EXPECT_FALSE(parse_blob_path(path).ok()) << path;
}

}  // namespace
}  // namespace lockstep
