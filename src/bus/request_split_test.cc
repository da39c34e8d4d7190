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
    for (const RequestPart& part : split_request(request, hosts, now_ns)) parts[part.key] += part.bytes();
    return parts;
  }
};

using Parts = std::map<std::string, std::string>;

TEST_F(RequestSplit, ARequestOfOneJobIsPassedOnAsItCame) {
  const std::string request = resource(attribute("host.name", "n1") + attribute("lockstep.job_id", "train"), "a") +
                              resource(attribute("lockstep.job_id", "train"), "b") + field(9, "unknown");
  const std::vector<RequestPart> parts = split_request(request, hosts, 0);
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

}  // namespace
}  // namespace lockstep
