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

// Everywhere something that nobody asks for, and the value before its key.
TEST_F(RequestSplit, WhatItDoesNotKnowIsPassedOver) {
  const std::string odd = field(7, "odd");
  const std::string job = field(1, odd + field(2, odd + field(1, "a")) + field(1, "lockstep.job_id") + odd);
  const std::string one = field(1, field(2, "before") + field(1, odd + job + odd) + odd);
  const std::string other = resource(attribute("lockstep.job_id", "b"), "1");
  EXPECT_EQ(split(odd + one + odd + other + odd), (Parts{{"a", one}, {"b", other}}));
  EXPECT_EQ(hosts.bytes(), 0u) << "nobody has named a host";
}

// Each resource of a job of its own: what is kept of it and of its part, and twice its bytes, as a string that grows takes.
TEST_F(RequestSplit, EveryPartTakesTheMemoryItNeeds) {
  constexpr size_t kParts = 1'000, kName = 60;
  std::string request;
  for (size_t i = 0; i < kParts; ++i) {
    std::string name = std::to_string(i);
    name += std::string(kName - name.size(), 'j');
    request += resource(attribute("lockstep.job_id", name), "1");
  }
  const size_t need = 2 * request.size() + kParts * (400 + 80 + 32 + 4 * kName);
  for (const bool suffices : {false, true}) {
    const size_t share = suffices ? need + need / 20 : need - need / 20;
    MemoryBudget budget(2 * share, [] { return uint64_t{0}; });  // who is alone gets half
    MemoryLease held(&budget, MemoryUse::kQueue);
    EXPECT_EQ(split_request(request, hosts, 0, &held).has_value(), suffices);
  }
}

TEST(HostJobs, AJobIsAHostsUntilItWasNotNamedForTenMinutes) {
  constexpr int64_t kLong = HostJobs::kForgetAfterNs;
  HostJobs hosts;
  const auto jobs = [&](int64_t now_ns) {
    std::string text;
    for (const std::string& job : hosts.jobs_of("n1", now_ns)) text += job;
    return text;
  };
  hosts.note("n1", "a", 10);
  EXPECT_EQ(jobs(10 + kLong), "a");
  EXPECT_EQ(jobs(11 + kLong), "");
  hosts.note("n1", "b", 20);
  hosts.note("n1", "c", 30);
  EXPECT_EQ(jobs(30), "cba") << "the one named last first";
  hosts.note("n1", "a", 40);
  EXPECT_EQ(jobs(40), "acb");
  const size_t one = hosts.bytes();
  hosts.note("n1", "c", 20 + kLong);
  EXPECT_EQ(jobs(20 + kLong), "cab");
  EXPECT_EQ(hosts.bytes(), one) << "none is forgotten yet";
  hosts.note("n1", "c", 21 + kLong);
  EXPECT_LT(hosts.bytes(), one) << "b is";
  for (const char* job : {"d", "e", "f", "g"}) hosts.note("n1", job, 22 + kLong);
  EXPECT_EQ(jobs(22 + kLong), "gfed");
}

TEST(HostJobs, AHostIsKeptForAsLongAndOneAloneHoweverLongItsNamesAre) {
  constexpr int64_t kLong = HostJobs::kForgetAfterNs;
  HostJobs hosts(2, 400);
  hosts.note("a", "job", 0);
  const size_t one = hosts.bytes();
  EXPECT_EQ(one, 200u + 1 + 64 + 3);
  hosts.note("b", std::string(HostJobs::kNameBytesMax, 'x'), 1);
  EXPECT_TRUE(hosts.jobs_of("a", 1).empty()) << "there is no room for both";
  EXPECT_EQ(hosts.bytes(), 200u + 1 + 64 + HostJobs::kNameBytesMax);
  HostJobs wide(2);
  wide.note("a", "job", 0);
  wide.note("b", "job", kLong);
  EXPECT_EQ(wide.bytes(), 2 * one);
  wide.note("b", "job", kLong + 1);
  EXPECT_EQ(wide.bytes(), one);
  HostJobs exact(3, 2 * one);
  exact.note("a", "job", 0);
  exact.note("b", "job", 0);
  EXPECT_EQ(exact.bytes(), 2 * one) << "all of the room";
  exact.note("c", "job", 0);
  EXPECT_EQ(exact.bytes(), 2 * one);
  EXPECT_TRUE(exact.jobs_of("a", 0).empty());
}

}  // namespace
}  // namespace lockstep
