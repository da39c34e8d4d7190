#include "bus/request_split.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace lockstep {
namespace {

std::string field(char number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}

std::string attribute(const std::string& key, const std::string& text) {
  return field(1, field(1, key) + field(2, field(1, text)));
}

// One resource of a request, with these attributes and something behind them.
std::string resource(const std::string& attributes, const std::string& content) {
  return field(1, field(1, attributes) + field(2, content));
}

struct RequestSplit : ::testing::Test {
  HostJobs hosts;
  std::map<std::string, std::string> split(const std::string& request, int64_t now_ns = 0) {
    std::map<std::string, std::string> parts;
    const std::vector<RequestPart> all = *split_request(request, hosts, now_ns);
    for (const RequestPart& part : all) parts[part.key] += part.bytes();
    return parts;
  }
};

using Parts = std::map<std::string, std::string>;

TEST_F(RequestSplit, ARequestOfOneJobIsPassedOnAsItCame) {
  const std::string request = resource(attribute("host.name", "n1") + attribute("lockstep.job_id", "train"), "a") +
                              resource(attribute("lockstep.job_id", "train"), "b") + field(9, "unknown");
  const std::vector<RequestPart> parts = *split_request(request, hosts, 0);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].key, "train");
  EXPECT_EQ(parts[0].bytes().data(), request.data());
  EXPECT_EQ(parts[0].bytes().size(), request.size());
}

TEST_F(RequestSplit, ResourcesOfSeveralJobsAreCutApart) {
  const std::string a = resource(attribute("lockstep.job_id", "a"), "1"),
                    b = resource(attribute("lockstep.job_id", "b"), "2"),
                    more = resource(attribute("lockstep.job_id", "a"), "3"), none = resource("", "4"),
                    service = resource(attribute("service.name", "chat"), "5");
  EXPECT_EQ(split(a + b + more + none + service),
            (Parts{{"a", a + more}, {"b", b}, {"", none}, {"service/chat", service}}));
}

TEST_F(RequestSplit, WhatANodeSaysGoesToTheJobsThatRunThere) {
  const std::string node = resource(attribute("host.name", "n1"), "power");
  EXPECT_EQ(split(node), (Parts{{"host/n1", node}}));
  const std::string step = resource(attribute("host.name", "n1") + attribute("lockstep.job_id", "a"), "step");
  const std::string other = resource(attribute("host.name", "n1") + attribute("lockstep.job_id", "b"), "step");
  split(step, 1'000);
  EXPECT_EQ(split(node, 2'000), (Parts{{"a", node}}));
  split(other, 3'000);
  EXPECT_EQ(split(node, 4'000), (Parts{{"a", node}, {"b", node}}));
  EXPECT_EQ(split(node, 2'000 + HostJobs::kForgetAfterNs), (Parts{{"b", node}}));
  for (int i = 0; i < 10; ++i) hosts.note("n1", "job-" + std::to_string(i), 5'000);
  EXPECT_EQ(split(node, 5'000).size(), HostJobs::kJobsOfHostMax);
}

TEST_F(RequestSplit, WhatIsMalformedHasNoKey) {
  const std::string request = resource(attribute("lockstep.job_id", "a"), "1") + "\x0a\x7f";
  EXPECT_EQ(split(request), (Parts{{"", request}}));
  EXPECT_EQ(split(""), (Parts{{"", ""}}));
}

TEST_F(RequestSplit, ARequestOfManySmallResourcesTakesTheMemoryItNeeds) {
  std::string request;
  for (int i = 0; i < 20'000; ++i) request += resource("", "");
  request += resource(attribute("lockstep.job_id", "a"), "1");
  MemoryBudget little(1 << 20, [] { return uint64_t{0}; }), enough(64 << 20, [] { return uint64_t{0}; });
  MemoryLease refused(&little, MemoryUse::kQueue), held(&enough, MemoryUse::kQueue);
  EXPECT_FALSE(split_request(request, hosts, 0, &refused));
  EXPECT_TRUE(refused.was_refused());
  EXPECT_EQ(split_request(request, hosts, 0, &held)->size(), 2u);
  EXPECT_GT(held.bytes(), 10 * request.size());
}

TEST(HostJobs, ForgetsWhomItHeardOfLongestAgo) {
  HostJobs hosts(3);
  int64_t now_ns = 0;
  for (const char* host : {"a", "b", "c", "a", "d"}) hosts.note(host, "job", ++now_ns);
  EXPECT_TRUE(hosts.jobs_of("b", now_ns).empty());
  for (const char* host : {"a", "c", "d"}) EXPECT_EQ(hosts.jobs_of(host, now_ns).size(), 1u) << host;
  now_ns += HostJobs::kForgetAfterNs + 10;
  hosts.note("e", "job", now_ns);
  HostJobs alone;
  alone.note("e", "job", now_ns);
  EXPECT_EQ(hosts.bytes(), alone.bytes()) << "the others are gone";
}

TEST(HostJobs, HoldsNoMoreOfNamesThanItMay) {
  HostJobs hosts(HostJobs::kHostsMax, 100'000);
  for (int i = 0; i < 1'000; ++i) hosts.note("host-" + std::to_string(i), std::string(200, 'j'), i);
  EXPECT_LE(hosts.bytes(), 100'000u);
  EXPECT_EQ(hosts.jobs_of("host-999", 1'000).size(), 1u);
  EXPECT_TRUE(hosts.jobs_of("host-0", 1'000).empty());
  for (const std::string& name : {std::string("short"), std::string(HostJobs::kNameBytesMax + 1, 'x')}) {
    hosts.note(name, std::string(HostJobs::kNameBytesMax + 1, 'x'), 1'001);
    EXPECT_TRUE(hosts.jobs_of(name, 1'001).empty());
  }
}

}  // namespace
}  // namespace lockstep
