#include "apps/cli/report_pictures.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace lockstep::cli {
namespace {

std::vector<int64_t> steps_up_to(size_t count) {
  std::vector<int64_t> steps(count);
  std::iota(steps.begin(), steps.end(), 0);
  return steps;
}

TEST(ReportPictures, WhatAJobSentIsText) {
  EXPECT_EQ(escaped("<a href='x'>&\""), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;");
  const std::string picture = step_time_picture({1, 2}, {10, 20}, {{2, "<script>"}});
  EXPECT_EQ(picture.find("<script>"), std::string::npos);
  EXPECT_NE(picture.find("&lt;script&gt;"), std::string::npos);
}

TEST(ReportPictures, AStepThatIsUnknownBreaksTheLine) {
  const double nan = std::nan("");
  EXPECT_EQ(step_time_picture({1, 2}, {nan, nan}, {}), "");
  const std::string picture = step_time_picture({1, 2, 3, 4, 5}, {10, 10, nan, 10, 10}, {});
  const size_t line = picture.find("class=\"line\"");
  const std::string path = picture.substr(line, picture.find("/>", line) - line);
  EXPECT_EQ(std::count(path.begin(), path.end(), 'M'), 2) << path;
}

TEST(ReportPictures, AJobOfAnySizeIsAPictureOfBoundedSizeThatStillShowsItsSlowRank) {
  constexpr size_t kRanks = 16'384, kSteps = 500;
  HeatMap heat(kRanks, steps_up_to(kSteps));
  std::vector<double> values(kSteps);
  for (size_t rank = 0; rank < kRanks; ++rank) {
    for (size_t step = 0; step < kSteps; ++step)
      values[step] = rank == 9'000 ? 100 : static_cast<double>((rank * 7 + step * 3) % 5);
    heat.add(rank, static_cast<int64_t>(rank), values);
  }
  const std::string picture = heat.picture();
  EXPECT_LT(picture.size(), 2'000'000u);
  EXPECT_NE(picture.find("rank 9000 up to +100 ms"), std::string::npos);
  EXPECT_NE(picture.find(">rank 9000</text>"), std::string::npos) << "who is slow all the time is named beside its row";
  heat.add(kRanks + 5, 1, values);  // more ranks than were announced are left out
}

}  // namespace
}  // namespace lockstep::cli
