#include "agent/export/command_hosts.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "agent/counters_table.h"
#include "agent/export/command_poll.h"
#include "base/text.h"

namespace lockstep {
namespace {

RecorderOwner rank_of(int64_t user, const std::string& host) {
  RecorderOwner owner;
  owner.identity.host = host;
  owner.user = user;
  return owner;
}

TEST(CommandHosts, MadeUpNamesPushOutNeitherTheNodesOwnNorAnotherUsers) {
  Counters counters{kAgentCounters};
  std::vector<RecorderOwner> owners;
  for (int i = 0; i < 70; ++i) owners.push_back(rank_of(1000, format("aaa-%02d", i)));
  owners.push_back(rank_of(1001, "pod-7"));
  const std::vector<std::string> hosts = hosts_to_ask_for("node-1", owners, {"pod-7", "ended"}, counters);
  EXPECT_EQ(hosts.size(), CommandPoll::kHostsMax);
  EXPECT_EQ(hosts.front(), "node-1");
  EXPECT_EQ(std::count(hosts.begin(), hosts.end(), "pod-7"), 1);
  EXPECT_EQ(counters.value("lockstep_agent_over_limit_total", "what=\"hosts\",uid=\"1000\""), 8);
  EXPECT_EQ(counters.value("lockstep_agent_over_limit_total", "what=\"hosts\",uid=\"1001\""), 0);
}

TEST(CommandHosts, LongNamesDoNotMakeARequestThatServersRefuse) {
  Counters counters{kAgentCounters};
  std::vector<RecorderOwner> owners;
  for (int i = 0; i < 60; ++i) owners.push_back(rank_of(1000, format("%02d", i) + std::string(250, '%')));
  owners.push_back(rank_of(1001, "pod-7"));
  size_t bytes = 0;
  const std::vector<std::string> hosts = hosts_to_ask_for("node-1", owners, {}, counters);
  for (const std::string& host : hosts) bytes += url_part(host).size();
  EXPECT_LE(bytes, kHostBytesMax);
  EXPECT_EQ(std::count(hosts.begin(), hosts.end(), "pod-7"), 1);
  EXPECT_EQ(hosts.front(), "node-1");
}

TEST(CommandHosts, EachNameOnceAndNoneThatIsEmpty) {
  Counters counters{kAgentCounters};
  EXPECT_EQ(
      hosts_to_ask_for("n", {rank_of(1, "n"), rank_of(1, ""), rank_of(1, "p"), rank_of(2, "p")}, {"p", "q"}, counters),
      (std::vector<std::string>{"n", "p", "q"}));
}

}  // namespace
}  // namespace lockstep
