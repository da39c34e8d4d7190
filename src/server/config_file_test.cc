#include "server/config_file.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/files.h"
#include "server/options.h"
#include "server/server.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

struct ConfigFileTest : ::testing::Test {
  testing::TemporaryFolder folder;
  const std::string file = folder.path() + "/lockstepd.yaml";

  Result<ServerOptions> read(const std::string& text, std::vector<std::string> arguments = {}) {
    EXPECT_TRUE(write_file_atomically(file, text).ok());
    arguments.insert(arguments.begin(), {"--config", file});
    return read_server_options(arguments);
  }
  std::string error(const std::string& text) {
    Result<ServerOptions> options = read(text);
    if (options.ok()) return "accepted";
    EXPECT_EQ(std::count(options.error().begin(), options.error().end(), '\n'), 0) << options.error();
    const std::string before = "lockstepd: " + file + ":";
    return options.error().starts_with(before) ? options.error().substr(before.size()) : options.error();
  }
};

TEST_F(ConfigFileTest, EveryKindOfOptionAndTheCommandLineWins) {
  const std::string text =
      "# a fleet\n"
      "data: /var/lib/lockstep\n"
      "http: \"127.0.0.1:7171\"\n"
      "step-days: 3\n"
      "tenant-memory-share: 0.25\n"
      "insecure: true\n"
      "sample-culprits: false\n"
      "allowed-host: [a.example, b.example]\n"
      "rules: one.yaml, two.yaml\n";
  Result<ServerOptions> options = read(text, {"--step-days=9", "--allowed-host", "c.example"});
  ASSERT_TRUE(options.ok()) << options.error();
  EXPECT_EQ(options->data, "/var/lib/lockstep");
  EXPECT_EQ(options->http, "127.0.0.1:7171");
  EXPECT_EQ(options->step_days, 9);
  EXPECT_EQ(options->tenant_memory_share, 0.25);
  EXPECT_TRUE(options->insecure);
  EXPECT_FALSE(options->sample_culprits);
  EXPECT_EQ(options->allowed_hosts, std::vector<std::string>{"c.example"});
  EXPECT_EQ(options->rules, (std::vector<std::string>{"one.yaml", "two.yaml"}));
  EXPECT_NE(options->effective_text.find("step-days = 9   # command line\n"), std::string::npos);
  EXPECT_NE(options->effective_text.find("http = 127.0.0.1:7171   # " + file + "\n"), std::string::npos);
}

TEST_F(ConfigFileTest, AMistakeIsOneLineWithFileAndLine) {
  EXPECT_EQ(error("data: d\nstep-dyas: 3\n"),
            "2: no option step-dyas. Did you mean step-days? (lockstepd --help lists them)");
  EXPECT_EQ(error("data: d\n\nconfig: other.yaml\n").substr(0, 20), "3: no option config.");
  EXPECT_EQ(error("data: d\nstep-days: many\n"), "2: --step-days takes a whole number from 1 to 3650, not \"many\"");
  EXPECT_EQ(error("data: d\nstep-days: [1, 2]\n"), "2: step-days takes one value, not a list");
  EXPECT_EQ(error("data: d\nhttp:\n  port: 7\n"), "3: http takes one value, not a mapping");
  EXPECT_EQ(error("data: d\nhttp:\n"), "2: http has no value");
  EXPECT_EQ(error("data: d\nallowed-host: [[x]]\n"), "2: each of allowed-host takes one value, not a list");
  EXPECT_EQ(error("data: d\ninsecure: \"true\"\n"), "2: insecure is true or false, not \"true\"");
  EXPECT_EQ(error("data: d\ninsecure: 1\n"), "2: insecure is true or false, not \"1\"");
  EXPECT_EQ(error("data: d\nstep-days: 1\ndata: e\n"), "3: data is given twice");
  EXPECT_EQ(error("- data\n"), "1: expected `name: value` lines, not a list");
  EXPECT_EQ(error("data: d\n---\ndata: e\n"), "3: a second document begins; one is read");
  EXPECT_EQ(error("data: d\nhttp: [\n").substr(0, 12), "3: not YAML:");
  EXPECT_EQ(error("data: \"a\\nb\"\n"), "1: data takes one value of one line");
  EXPECT_EQ(error(""), "lockstepd: --data DIR is required: the folder for the log and the state");
}

TEST_F(ConfigFileTest, AFileThatIsNotThereIsAMistakeAndHelpNeedsNone) {
  const std::string none = folder.path() + "/none.yaml";
  Result<ServerOptions> options = read_server_options({"--config=" + none});
  ASSERT_FALSE(options.ok());
  EXPECT_NE(options.error().find(none), std::string::npos) << options.error();
  EXPECT_TRUE(read_server_options({"--config=" + none, "--help"}).ok());
}

TEST_F(ConfigFileTest, ACheckReadsTheFilesThatAreNamedAndOpensNothing) {
  const std::string data = folder.path() + "/data";
  Result<ServerOptions> options = read("data: " + data + "\n", {"--check-config"});
  ASSERT_TRUE(options.ok()) << options.error();
  EXPECT_TRUE(options->check_config);
  EXPECT_TRUE(check_server_options(*options).ok());
  EXPECT_FALSE(list_directory(data).ok());
  options = read("data: " + data + "\nscrape: " + folder.path() + "/none.yaml\n");
  ASSERT_TRUE(options.ok()) << options.error();
  EXPECT_FALSE(check_server_options(*options).ok());
}

}  // namespace
}  // namespace lockstep
