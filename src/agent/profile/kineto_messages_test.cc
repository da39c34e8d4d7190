#include "agent/profile/kineto_messages.h"

#include <gtest/gtest.h>

#include <cstring>

namespace lockstep {
namespace {

std::string payload_of(int32_t type, int32_t count, int64_t job, const std::vector<int32_t>& pids) {
  std::string bytes(16, '\0');
  std::memcpy(bytes.data(), &type, 4);
  std::memcpy(bytes.data() + 4, &count, 4);
  std::memcpy(bytes.data() + 8, &job, 8);
  for (int32_t pid : pids) bytes.append(reinterpret_cast<const char*>(&pid), sizeof pid);
  return bytes;
}

TEST(KinetoMessages, AreReadAsEveryVersionSendsThem) {
  for (const int32_t type : {3, 1, 2, 0}) {  // idle and busy, before and after July 2026
    const Result<KinetoMessage> request =
        parse_kineto_untrusted(encode_kineto("req", payload_of(type, 3, 77, {500, 400, 2})));
    ASSERT_TRUE(request.ok()) << request.error();
    EXPECT_EQ(request->kind, KinetoMessage::Kind::kRequest);
    EXPECT_EQ((request->type & kKinetoTakesActivities) != 0, type >= 2);
    EXPECT_EQ(request->job, 77);
    EXPECT_EQ(request->pids, (std::vector<int32_t>{500, 400, 2}));
  }
  const Result<KinetoMessage> context = parse_kineto_untrusted(encode_kineto("ctxt", payload_of(4, 500, 77, {})));
  ASSERT_TRUE(context.ok()) << context.error();
  EXPECT_EQ(context->kind, KinetoMessage::Kind::kContext);
  EXPECT_EQ(context->pids.front(), 500);
}

TEST(KinetoMessages, ThatAreCutShortOrLieAreRefused) {
  const std::string sound = encode_kineto("req", payload_of(2, 2, 0, {5, 6}));
  ASSERT_TRUE(parse_kineto_untrusted(sound).ok());
  for (size_t bytes = 0; bytes < sound.size(); ++bytes)
    EXPECT_FALSE(parse_kineto_untrusted(sound.substr(0, bytes)).ok()) << bytes;
  EXPECT_FALSE(parse_kineto_untrusted(sound + std::string(4, '\0')).ok());
  EXPECT_FALSE(parse_kineto_untrusted(encode_kineto("req", payload_of(2, 0, 0, {}))).ok());
  EXPECT_FALSE(parse_kineto_untrusted(encode_kineto("req", payload_of(2, -1, 0, {}))).ok());
  EXPECT_FALSE(parse_kineto_untrusted(encode_kineto("req", payload_of(2, INT32_MAX, 0, {1}))).ok());
  EXPECT_FALSE(parse_kineto_untrusted(encode_kineto("poll", payload_of(2, 1, 0, {1}))).ok());
  std::string endless = sound;
  std::memset(endless.data() + 8, 'r', 32);
  EXPECT_FALSE(parse_kineto_untrusted(endless).ok());
  EXPECT_FALSE(parse_kineto_untrusted(std::string(kKinetoDatagramBytesMax + 1, '\0')).ok());
}

TEST(KinetoMessages, OrderBySteps) {
  const Result<std::string> text = kineto_config({.file = "/dev/shm/lockstep-0/lockstep-p-0123456789ab.json",
                                                  .trace_id = "p-0123456789ab",
                                                  .start_iteration = 140,
                                                  .iterations = 5,
                                                  .shapes = true});
  ASSERT_TRUE(text.ok()) << text.error();
  EXPECT_EQ(*text,
            "ACTIVITIES_LOG_FILE=/dev/shm/lockstep-0/lockstep-p-0123456789ab.json\nREQUEST_TRACE_ID=p-0123456789ab\n"
            "PROFILE_START_ITERATION=140\nACTIVITIES_ITERATIONS=5\nPROFILE_REPORT_INPUT_SHAPES=true\n");
  EXPECT_EQ(kineto_file_of("/a/b.json", 17), "/a/b_17.json");
}

TEST(KinetoMessages, NeverCarryWhatKinetoWouldHalfRead) {
  for (const char* file :
       {"relative.json", "/a/../b.json", "/a b.json", "/a#b.json", "/a=b.json", "/a\nX.json", "/a.txt", ""})
    EXPECT_FALSE(kineto_config({.file = file, .trace_id = "p-1", .duration_ms = 1}).ok()) << file;
  EXPECT_FALSE(kineto_config({.file = "/a.json", .trace_id = "p 1", .duration_ms = 1}).ok());
  EXPECT_FALSE(kineto_config({.file = "/a.json", .trace_id = "p-1"}).ok());
  EXPECT_FALSE(kineto_config({.file = "/a.json", .trace_id = "p-1", .start_iteration = 3}).ok());
}

}  // namespace
}  // namespace lockstep
