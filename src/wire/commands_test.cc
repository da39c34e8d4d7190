#include "wire/commands.h"

#include <gtest/gtest.h>

#include "model/step.h"

namespace lockstep {
namespace {

std::string with(const std::string& line) {
  return "lockstep-commands 1\ncursor 1a-7\n" + line + "\n";
}

TEST(Commands, ComeBackAsTheyWere) {
  const CommandList list{
      .cursor = "18a2f0-42",
      .details = {{"llama 70b/run 3\n", 2, 118_step, 120_step, {0_rank, 1_rank, 2_rank, 3_rank, 12_rank}},
                  {"j", 0, 5_step, 5_step, {}}},
      .stacks = {{"llama 70b", 1, {3_rank, 5_rank, 6_rank, 7_rank}}},
      .profiles = {{.job_id = "llama 70b",
                    .attempt = 1,
                    .capture = "p-0123456789ab",
                    .start_step = 140_step,
                    .steps = 5,
                    .start_unix_ms = 1'700'000'000'000,
                    .duration_ms = 2'500,
                    .limit_s = 120,
                    .bytes_max = 1 << 30,
                    .shapes = true,
                    .ranks = {0_rank, 17_rank}},
                   {.job_id = "j", .capture = "p-0123456789ac", .stacks = true, .ranks = {1_rank}}},
      .unknown = 0};
  Result<CommandList> read = parse_commands(encode_commands(list));
  ASSERT_TRUE(read.ok()) << read.error();
  EXPECT_EQ(*read, list);
}

TEST(Commands, OfANewerServerAreSkippedAndCounted) {
  Result<CommandList> read = parse_commands(with("fetch job 0 7 all\ndetail j 0 1 1 0"));
  ASSERT_TRUE(read.ok()) << read.error();
  EXPECT_EQ(read->unknown, 1);
  EXPECT_EQ(read->details.size(), 1u);
}

TEST(Commands, ThatAreOddMakeTheWholeAnswerVoid) {
  for (const std::string& text : {std::string(),
                                  std::string("\n"),
                                  std::string("lockstep-commands 2\ncursor 1\n"),
                                  std::string("lockstep-commands 1\n"),
                                  std::string("lockstep-commands 1\ncursor 1\ncursor 2\n"),
                                  std::string("lockstep-commands 1\ncursor a b\n"),
                                  std::string("lockstep-commands 1\ncursor A\n"),
                                  with("detail j 0 1 1"),
                                  with("detail j 0 1 1 0 0"),
                                  with("detail  0 1 1 0"),
                                  with("detail % 0 1 1 0"),
                                  with("detail j%2 0 1 1 0"),
                                  with("detail j -1 1 1 0"),
                                  with("detail j 0 5 4 0"),
                                  with("detail j 0 0 64 0"),
                                  with("detail j 0 -1 1 0"),
                                  with("detail j 0 1 1 "),
                                  with("detail j 0 1 1 x"),
                                  with("detail j 0 1 1 0-999999"),
                                  with("detail j 0 0 9223372036854775807 0"),
                                  with("detail " + std::string(300, 'j') + " 0 1 1 0"),
                                  with("stacks j 0"),
                                  with("stacks j 0 *"),
                                  with("stacks j 0 "),
                                  with("stacks j -1 0"),
                                  with("stacks  0 0"),
                                  with("stacks j 0 0-64"),
                                  with("profile j 0 p-0123456789ab 140 5 0 2500 120 1024 -"),
                                  with("profile j 0 p-0123456789AB 140 5 0 2500 120 1024 - 0"),
                                  with("profile j 0 p-0123456789ab -2 5 0 2500 120 1024 - 0"),
                                  with("profile j 0 p-0123456789ab 140 101 0 2500 120 1024 - 0"),
                                  with("profile j 0 p-0123456789ab 140 5 -1 2500 120 1024 - 0"),
                                  with("profile j 0 p-0123456789ab 140 5 0 0 120 1024 - 0"),
                                  with("profile j 0 p-0123456789ab 140 5 0 2500 3601 1024 - 0"),
                                  with("profile j 0 p-0123456789ab 140 5 0 2500 120 0 - 0"),
                                  with("profile j 0 p-0123456789ab 140 x 0 2500 120 1024 - 0"),
                                  with("profile j 0 p-0123456789ab 140 5 0 2500 120 1024 - *"),
                                  with("profile j 0 p-0123456789ab 140 5 0 2500 120 1024 - 0-256"),
                                  with("sample j 0 5 100"),
                                  with("sample j 0 0 100 1"),
                                  with("sample j 0 61 100 1"),
                                  with("sample j 0 5 251 1"),
                                  with("sample j 0 5 100 *"),
                                  with("sample j 0 5 100 0-8"),
                                  with("detail j 0 1 1 0").substr(0, 40)})
    EXPECT_FALSE(parse_commands(text).ok()) << text;
}

TEST(Commands, AtTheirLimitsAreTaken) {
  const std::string job(kIdentityTextMax, 'j');
  const Result<CommandList> read = parse_commands("lockstep-commands 1\ncursor " + std::string(kCursorBytesMax, '9') +
                                                  "\ndetail " + job + " 0 0 63 0-3\nstacks " + job + " 0 0-63\n");
  ASSERT_TRUE(read.ok()) << read.error();
  EXPECT_EQ(read->details[0].job_id, job);
  EXPECT_EQ(read->details[0].to_step, StepNumber{kDetailStepsMax - 1});
  EXPECT_EQ(read->stacks[0].ranks.size(), kStackRanksMax);
  EXPECT_FALSE(parse_commands(with("detail j" + job + " 0 1 1 0")).ok());
  EXPECT_FALSE(parse_commands("lockstep-commands 1\ncursor " + std::string(kCursorBytesMax + 1, '9') + "\n").ok());
  EXPECT_EQ(parse_commands(with("detail j 0 1 1 3,1,3"))->details[0].ranks, (std::vector<Rank>{1_rank, 3_rank}));
}

TEST(Commands, AskForSamplesOfRanks) {
  const SampleRequest request{.job_id = "a b", .attempt = 2, .seconds = 10, .hz = 50, .ranks = {2_rank, 5_rank}};
  const std::string text = encode_commands({.cursor = "1", .samples = {request}});
  EXPECT_EQ(text, "lockstep-commands 1\ncursor 1\nsample a%20b 2 10 50 2,5\n");
  EXPECT_EQ(parse_commands(text)->samples, std::vector<SampleRequest>{request});
}

TEST(Commands, AreBounded) {
  std::string many;
  for (size_t i = 0; i < kCommandsMax; ++i) many += "detail j 0 1 1 0\n";
  many.pop_back();
  EXPECT_TRUE(parse_commands(with(many)).ok());
  EXPECT_FALSE(parse_commands(with(many + "\ndetail j 0 1 1 0")).ok());
  EXPECT_FALSE(parse_commands(with(std::string(kCommandsBytesMax, 'x'))).ok());
}

}  // namespace
}  // namespace lockstep
