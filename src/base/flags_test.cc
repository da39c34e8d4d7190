#include "base/flags.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "base/files.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

struct FlagsTest : ::testing::Test {
  std::string server = "http://127.0.0.1:7070";
  int64_t count = 7;
  double rate = 0.5;
  bool json = false;
  std::vector<std::string> jobs;
  Flags flags{"lockstep why", "says why a job is slow", "JOB"};

  FlagsTest() {
    flags.text(&server, "--server", "URL", "where the server is")
        .number(&count, "--count", "N", "how many", 1, 100)
        .decimal(&rate, "--rate", "R", "how fast", 0, 1)
        .list(&jobs, "--job", "NAME", "which jobs")
        .toggle(&json, "--json", "answer in JSON");
  }
  std::string error(const std::vector<std::string>& arguments) {
    Result<void> parsed = flags.parse(arguments);
    return parsed.ok() ? "accepted" : parsed.error();
  }
};

TEST_F(FlagsTest, ValuesComeAfterASpaceOrAnEqualsSign) {
  ASSERT_EQ(error({"--server", "http://a", "--count=9", "my-job", "--rate", "0.25", "--json"}), "accepted");
  EXPECT_EQ(server, "http://a");
  EXPECT_EQ(count, 9);
  EXPECT_EQ(rate, 0.25);
  EXPECT_TRUE(json);
  EXPECT_EQ(flags.positional(), std::vector<std::string>{"my-job"});
}

TEST_F(FlagsTest, WhatIsNotGivenKeepsItsDefault) {
  ASSERT_EQ(error({"my-job"}), "accepted");
  EXPECT_EQ(server, "http://127.0.0.1:7070");
  EXPECT_EQ(count, 7);
  EXPECT_FALSE(json);
}

TEST_F(FlagsTest, AValueMayHoldAnEqualsSignOrBeEmpty) {
  ASSERT_EQ(error({"--server=http://a/?x=1", "job"}), "accepted");
  EXPECT_EQ(server, "http://a/?x=1");
  ASSERT_EQ(error({"--server="}), "accepted");  // the word was given before
  EXPECT_EQ(server, "");
}

TEST_F(FlagsTest, AListMayBeGivenTwiceAndJoinedByCommas) {
  ASSERT_EQ(error({"--job", "a,b", "--job=c", "x"}), "accepted");
  EXPECT_EQ(jobs, (std::vector<std::string>{"a", "b", "c"}));
}

TEST(Flags, ThreeDotsTakeOneWordOrMore) {
  Flags several("lockstep postmortem", "reads files", "PATH...");
  Result<void> none = several.parse({});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error(), "lockstep postmortem: needs at least one PATH (lockstep postmortem --help)");
  ASSERT_TRUE(several.parse({"a", "b"}).ok());
  EXPECT_EQ(several.positional(), (std::vector<std::string>{"a", "b"}));
}

TEST_F(FlagsTest, AWordAfterTwoDashesIsNotAFlag) {
  ASSERT_EQ(error({"--", "--json"}), "accepted");
  EXPECT_FALSE(json);
  EXPECT_EQ(flags.positional(), std::vector<std::string>{"--json"});
}

TEST_F(FlagsTest, AMistakeIsOneLineThatNamesTheFlag) {
  EXPECT_EQ(error({"--serber", "x"}),
            "lockstep why: no option --serber. Did you mean --server? (lockstep why --help lists them)");
  EXPECT_EQ(error({"--zzzzzzzzzzzz"}), "lockstep why: no option --zzzzzzzzzzzz. (lockstep why --help lists them)");
  EXPECT_EQ(error({"--count", "many"}), "lockstep why: --count takes a whole number from 1 to 100, not \"many\"");
  EXPECT_EQ(error({"--count=0"}), "lockstep why: --count takes a whole number from 1 to 100, not \"0\"");
  EXPECT_EQ(error({"--rate=nan"}), "lockstep why: --rate takes a number from 0 to 1, not \"nan\"");
  EXPECT_EQ(error({"--json=yes"}), "lockstep why: --json takes no value");
  EXPECT_EQ(error({"--server"}), "lockstep why: --server needs a value: --server URL");
}

TEST(FlagsOptionalWord, IsOneOrNone) {
  Flags none("lockstep service", "", "[NAME]");
  EXPECT_TRUE(none.parse({}).ok());
  Flags one("lockstep service", "", "[NAME]");
  ASSERT_TRUE(one.parse({"chat"}).ok());
  EXPECT_EQ(one.positional(), std::vector<std::string>{"chat"});
  Flags two("lockstep service", "", "[NAME]");
  EXPECT_EQ(two.parse({"a", "b"}).error(), "lockstep service: takes at most one NAME, got 2 (lockstep service --help)");
}

TEST_F(FlagsTest, TakesExactlyOneWordWhereOneIsTaken) {
  EXPECT_EQ(error({}), "lockstep why: takes exactly one JOB, got 0 (lockstep why --help)");
  EXPECT_EQ(error({"a", "b"}), "lockstep why: takes exactly one JOB, got 2 (lockstep why --help)");
}

TEST(Flags, TakesNoWordWhereNoneIsTaken) {
  Flags flags("lockstepd", "the server");
  Result<void> parsed = flags.parse({"extra"});
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.error(), "lockstepd: unexpected word \"extra\" (lockstepd --help)");
}

TEST_F(FlagsTest, HelpWinsOverWhatIsMissingAndListsEveryFlag) {
  ASSERT_EQ(error({"--help"}), "accepted");
  EXPECT_TRUE(flags.help_wanted());
  for (const char* words :
       {"usage: lockstep why JOB [options]", "--server URL", "--count N", "--json", "answer in JSON", "--help"}) {
    EXPECT_NE(flags.help().find(words), std::string::npos) << words;
  }
}

struct SettingsTest : ::testing::Test {
  std::string server = "http://default";
  int64_t spool_mb = 512;
  bool insecure = false;
  std::vector<std::string> names, headers;
  Flags flags{"lockstep-agent", "a daemon"};
  testing::TemporaryFolder folder;
  const std::string file = folder.path() + "/agent.conf";

  SettingsTest() {
    flags.text(&server, "--server", "URL", "where")
        .number(&spool_mb, "--spool-mb", "N", "disk", 1, 1000)
        .toggle(&insecure, "--insecure", "no checks")
        .list(&names, "--names", "NAME", "names")
        .list(&headers, "--header", "K=V", "headers")
        .secret()
        .also_from("LSTEST_", file);
  }
  ~SettingsTest() override {
    for (const char* name : {"LSTEST_SPOOL_MB", "LSTEST_SERVER", "LSTEST_CONFIG", "LSTEST_NAMES", "LSTEST_SPOLL_MB"})
      unsetenv(name);
  }
  void write(const std::string& content) { ASSERT_TRUE(write_file_atomically(file, content).ok()); }
  std::string error(const std::vector<std::string>& arguments) {
    Result<void> parsed = flags.parse(arguments);
    return parsed.ok() ? "accepted" : parsed.error();
  }
};

TEST_F(SettingsTest, TheCommandLineWinsOverTheEnvironmentAndThatOverTheFile) {
  write("# a comment\n\nserver = http://file\nspool-mb = 1\ninsecure = true\nnames = a, b\nnames = c\n");
  setenv("LSTEST_SPOOL_MB", "2", 1);
  setenv("LSTEST_SERVER", "http://environment", 1);
  ASSERT_EQ(error({"--spool-mb", "3"}), "accepted");
  EXPECT_EQ(server, "http://environment");
  EXPECT_EQ(spool_mb, 3);
  EXPECT_TRUE(insecure);
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(flags.effective(),
            "server = http://environment   # LSTEST_SERVER\nspool-mb = 3   # command line\ninsecure = true   # " +
                file + "\nnames = a, b,c   # " + file + "\n");
}

TEST_F(SettingsTest, AListFromAStrongerOriginReplacesTheWeakerOnesList) {
  write("names = a\n");
  setenv("LSTEST_NAMES", "b", 1);
  ASSERT_EQ(error({"--names", "c", "--names", "d"}), "accepted");
  EXPECT_EQ(names, (std::vector<std::string>{"c", "d"}));
}

TEST_F(SettingsTest, AMistakeInTheFileNamesItsLine) {
  write("server = http://a\nspoll-mb = 4\n");
  EXPECT_EQ(error({}), "lockstep-agent: " + file +
                           " line 2: no option spoll-mb. Did you mean spool-mb? (lockstep-agent --help lists them)");
  write("server\n");
  EXPECT_EQ(error({}), "lockstep-agent: " + file + " line 1: not `name = value`: \"server\"");
  write("spool-mb = 0\n");
  EXPECT_EQ(error({}),
            "lockstep-agent: " + file + " line 1: --spool-mb takes a whole number from 1 to 1000, not \"0\"");
  write("insecure = perhaps\n");
  EXPECT_EQ(error({}), "lockstep-agent: " + file + " line 1: --insecure is true or false, not \"perhaps\"");
}

TEST_F(SettingsTest, AVariableOfThePrefixThatIsNoOptionIsAMistake) {
  setenv("LSTEST_SPOLL_MB", "4", 1);
  EXPECT_EQ(error({}),
            "lockstep-agent: the environment has LSTEST_SPOLL_MB, but there is no option of that name (lockstep-agent "
            "--help lists them)");
}

TEST_F(SettingsTest, AFileThatIsAskedForMustBeThereTheDefaultNeedNot) {
  EXPECT_EQ(error({}), "accepted");
  EXPECT_NE(error({"--config", folder.path() + "/none.conf"}).find("none.conf"), std::string::npos);
}

TEST_F(SettingsTest, ASecretIsNotShown) {
  ASSERT_EQ(error({"--header", "authorization=Bearer abc", "--check-config"}), "accepted");
  EXPECT_TRUE(flags.check_wanted());
  EXPECT_EQ(flags.effective(), "header = (not shown)   # command line\n");
}

TEST(FlagsNumbers, AreTakenAsTheyAreShown) {
  int64_t step = 0;
  Flags flags("lockstep x", "x");
  flags.number(&step, "--step", "N", "a step", 0, 2'000'000);
  ASSERT_TRUE(flags.parse({"--step", "1,204,003"}).ok());
  EXPECT_EQ(step, 1'204'003);
  for (const char* wrong : {"1,2", "1,0244", ",024", "1,,024", "1,024,", "1.024", "1,-24", "1234,567"})
    EXPECT_FALSE(parse_shown_int(wrong)) << wrong;
  EXPECT_EQ(parse_shown_int("-1,024"), -1024);
  EXPECT_EQ(parse_shown_int("1024"), 1024);
}

TEST(FlagsNumbers, AnOptionalValueIsTheNextWordOnlyWhereThatIsANumber) {
  const auto read = [](const std::vector<std::string>& words) {
    int64_t seconds = 0;
    Flags flags("lockstep x", "x", "[JOB]");
    flags.optional_number(&seconds, "--watch", "[SECONDS]", "again", 1, 10, 2);
    const bool fine = flags.parse(words).ok();
    return std::pair(fine ? seconds : -1, flags.positional());
  };
  using Words = std::vector<std::string>;
  EXPECT_EQ(read({"job"}), std::pair(int64_t{0}, Words{"job"}));
  EXPECT_EQ(read({"job", "--watch"}), std::pair(int64_t{2}, Words{"job"}));
  EXPECT_EQ(read({"--watch", "job"}), std::pair(int64_t{2}, Words{"job"}));
  EXPECT_EQ(read({"--watch", "5", "job"}), std::pair(int64_t{5}, Words{"job"}));
  EXPECT_EQ(read({"job", "--watch=7"}), std::pair(int64_t{7}, Words{"job"}));
  EXPECT_EQ(read({"job", "--watch", "99"}).first, -1);
}

TEST(FlagsNumbers, AValueOfWhichAPartIsOptionalIsNeeded) {
  std::vector<std::string> urls;
  Flags flags("lockstepd", "x");
  flags.list(&urls, "--remote-write", "[TENANT=]URL", "where to");
  ASSERT_TRUE(flags.parse({"--remote-write", "http://peer/write"}).ok());
  EXPECT_EQ(urls, std::vector<std::string>{"http://peer/write"});
}

}  // namespace
}  // namespace lockstep
