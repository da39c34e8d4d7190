#include "model/profile_capture.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr const char* kId = "p-0123456789ab";

TEST(ProfileCapture, EventsComeBackAsTheyWere) {
  const ProfileProgress progress{7, kId, ProfileState::kFailed, "no Kineto", 12};
  const Result<ProfileProgress> same = profile_progress_from_record(to_record(progress));
  ASSERT_TRUE(same.ok()) << same.error();
  EXPECT_EQ(*same, progress);
  const ProfileReady ready{7, kId, "t/j/p/rank-3.json.gz", 99, std::string(64, 'f'), StepNumber{140}, 5};
  const Result<ProfileReady> again = profile_ready_from_record(to_record(ready));
  ASSERT_TRUE(again.ok()) << again.error();
  EXPECT_EQ(*again, ready);
}

TEST(ProfileCapture, EventsThatAreOddAreRefused) {
  const ProfileReady sound{7, kId, "key", 99, std::string(64, 'f'), kNoStep, 0};
  for (const Attribute& odd :
       {Attribute{"capture", "p-0123456789aX"}, Attribute{"capture", "../../etc"}, Attribute{"key", ""},
        Attribute{"key", "a\nb"}, Attribute{"sha256", "ff"}, Attribute{"bytes", int64_t{-1}},
        Attribute{"steps", int64_t{1'000}}, Attribute{"first_step", int64_t{-2}}}) {
    LogRecord record = to_record(sound);
    for (Attribute& attribute : record.attributes) {
      if (attribute.key == odd.key) attribute = odd;
    }
    EXPECT_FALSE(profile_ready_from_record(record).ok()) << odd.key;
  }
  LogRecord record = to_record(ProfileProgress{.capture = kId});
  record.attributes[1] = {"state", "lost"};
  EXPECT_FALSE(profile_progress_from_record(record).ok());
}

}  // namespace
}  // namespace lockstep
