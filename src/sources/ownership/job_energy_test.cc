#include "sources/ownership/job_energy.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep {
namespace {

Owner job(const char* id) {
  Owner owner;
  owner.job_id = id;
  return owner;
}

TEST(JobEnergy, GoesToWhoeverHeldTheGpuWhileItWasUsed) {
  JobEnergy energy;
  energy.add({{"GPU-0", 1000}, {"GPU-1", 500}}, {{"GPU-0", job("77")}, {"GPU-1", job("77")}}, 1);
  EXPECT_EQ(energy.jobs().at("77").joules, 0) << "what was used before is nobody's";
  energy.add({{"GPU-0", 1600}, {"GPU-1", 700}}, {{"GPU-0", job("78")}}, 2);
  EXPECT_EQ(energy.jobs().at("77").joules, 800);
  energy.add({{"GPU-0", 1650}, {"GPU-1", 900}}, {{"GPU-0", job("78")}}, 3);
  EXPECT_EQ(energy.jobs().at("77").joules, 800);
  EXPECT_EQ(energy.jobs().at("78").joules, 50);
}

TEST(JobEnergy, ACounterThatBeginsAgainTakesNothingAway) {
  JobEnergy energy;
  energy.add({{"GPU-0", 1000}}, {{"GPU-0", job("77")}}, 1);
  energy.add({{"GPU-0", 10}}, {{"GPU-0", job("77")}}, 2);
  energy.add({{"GPU-0", NAN}}, {{"GPU-0", job("77")}}, 3);
  energy.add({{"GPU-0", 30}}, {{"GPU-0", job("77")}}, 4);
  EXPECT_EQ(energy.jobs().at("77").joules, 20);
}

TEST(JobEnergy, AnEndedJobIsForgottenLater) {
  JobEnergy energy;
  energy.add({{"GPU-0", 1}}, {{"GPU-0", job("77")}}, 0);
  energy.add({{"GPU-0", 2}}, {}, JobEnergy::kKeepNs);
  EXPECT_TRUE(energy.jobs().contains("77"));
  energy.add({{"GPU-0", 2}}, {}, JobEnergy::kKeepNs + 1);
  EXPECT_FALSE(energy.jobs().contains("77"));
}

}  // namespace
}  // namespace lockstep
