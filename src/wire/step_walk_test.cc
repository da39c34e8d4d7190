#include "wire/step_walk.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/memory_budget.h"
#include "model/events.h"
#include "wire/otlp.h"
#include "wire/test_batches.h"

namespace lockstep::otlp {
namespace {

Identity identity_of(Rank rank) {
  return {.job_id = "llama-70b",
          .attempt = 2,
          .rank = rank,
          .world_size = 64,
          .local_rank = rank.value() % 8,
          .host = "node-17",
          .gpu_uuid = "GPU-6cbdbcb1"};
}

ResourceGroup group_of(Rank rank, std::vector<LogRecord> logs) {
  return {.resource = to_resource(identity_of(rank)),
          .scope_name = std::string(kAgentScopeName),
          .scope_version = {},
          .points = {},
          .logs = std::move(logs),
          .spans = {}};
}

// Every field that a step can have.
StepSummary full_step() {
  StepSummary step = test::step_summary(7_step);
  step.unseen = 4;
  step.comms[1].unseen = 5;
  step.split_known = true;
  step.split_ns = {1, 2, 3, 4, 5, 6};
  step.scalars = {{"loss", 2.5}, {"tokens", 8192}};
  return step;
}

std::string one_step(const std::function<void(ResourceGroup&)>& change = {}) {
  ResourceGroup group = group_of(5_rank, {to_record(full_step())});
  if (change) change(group);
  return encode({.signal = Signal::kLogs, .groups = {std::move(group)}});
}

TEST(StepWalk, ReadsWhatTheRecordHolds) {
  Batch batch{.signal = Signal::kLogs, .groups = {}};
  StepSummary plain;
  plain.step = 8_step;
  plain.start_unix_ns = test::kTime;
  batch.groups.push_back(group_of(5_rank, {to_record(full_step()), to_record(test::step_summary(9_step))}));
  batch.groups.push_back(group_of(6_rank, {to_record(plain)}));
  batch.groups[1].logs[0].observed_unix_ns = test::kTime + 3;
  const Result<LogsRequest> request = decode_logs(encode(batch));
  ASSERT_TRUE(request.ok()) << request.error();
  EXPECT_TRUE(request->groups.empty());
  ASSERT_EQ(request->steps.size(), 3u);
  EXPECT_EQ(request->steps[0].summary, full_step());
  EXPECT_EQ(request->steps[0].identity, identity_of(5_rank));
  EXPECT_EQ(request->steps[1].summary, test::step_summary(9_step));
  EXPECT_EQ(request->steps[1].identity, identity_of(5_rank));
  EXPECT_EQ(request->steps[2].summary, plain);
  EXPECT_EQ(request->steps[2].identity, identity_of(6_rank));
  EXPECT_EQ(request->steps[2].observed_unix_ns, test::kTime + 3);
  EXPECT_EQ(to_record(request->steps[0]), batch.groups[0].logs[0]);
  EXPECT_EQ(to_record(request->steps[2]), batch.groups[1].logs[0]);
  EXPECT_EQ(*resource_of(request->steps[2]), batch.groups[1].resource);
  EXPECT_EQ(request->record_count(), 3u);
}

TEST(StepWalk, KeepsAResourceThatSaysMore) {
  const std::string bytes = one_step([](ResourceGroup& group) {
    group.resource.push_back({"deployment.environment", "lab"});
  });
  const Result<LogsRequest> request = decode_logs(bytes);
  ASSERT_TRUE(request.ok());
  ASSERT_EQ(request->steps.size(), 1u);
  EXPECT_EQ(request->steps[0].identity, identity_of(5_rank));
  EXPECT_EQ(find_string(*resource_of(request->steps[0]), "deployment.environment"), "lab");
  EXPECT_EQ(to_batch(*request), *decode(Signal::kLogs, bytes));
}

TEST(StepWalk, KeepsTheOrder) {
  Batch batch{.signal = Signal::kLogs, .groups = {}};
  RankStatus status;
  status.time_unix_ns = test::kTime;
  for (int rank : {0, 1, 2, 3, 4}) {
    const bool is_step = rank % 2 == 1;
    batch.groups.push_back(group_of(Rank{rank}, {is_step ? to_record(full_step()) : to_record(status)}));
  }
  const Result<LogsRequest> request = decode_logs(encode(batch));
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->steps.size(), 2u);
  EXPECT_EQ(request->groups.size(), 3u);
  EXPECT_EQ(to_batch(*request), batch);
}

TEST(StepWalk, LeavesToTheOtherDecoderWhatAgentsDoNotWrite) {
  const std::vector<std::pair<const char*, std::function<void(ResourceGroup&)>>> changes = {
      {"scope", [](ResourceGroup& group) { group.scope_name = "other"; }},
      {"scope's version", [](ResourceGroup& group) { group.scope_version = "1"; }},
      {"no scope", [](ResourceGroup& group) { group.scope_name.clear(); }},
      {"no resource", [](ResourceGroup& group) { group.resource.clear(); }},
      {"no job", [](ResourceGroup& group) { group.resource[1].value = ""; }},
      {"rank of the world", [](ResourceGroup& group) { group.resource[3].value = 64; }},
      {"a control character", [](ResourceGroup& group) { group.resource[6].value = "a\nb"; }},
      {"another event beside it", [](ResourceGroup& group) { group.logs.push_back(job_start_record(test::kTime)); }},
      {"event", [](ResourceGroup& group) { group.logs[0].event_name = "train.stop"; }},
      {"severity", [](ResourceGroup& group) { group.logs[0].severity = 10; }},
      {"severity text", [](ResourceGroup& group) { group.logs[0].severity_text = "INFO"; }},
      {"body", [](ResourceGroup& group) { group.logs[0].body = "text"; }},
      {"flags", [](ResourceGroup& group) { group.logs[0].flags = 1; }},
      {"trace", [](ResourceGroup& group) { group.logs[0].trace_id = test::trace_id(); }},
      {"no time", [](ResourceGroup& group) { group.logs[0].time_unix_ns = 0; }},
      {"a further attribute",
       [](ResourceGroup& group) {
         group.logs[0].attributes.push_back({"more", 1});
       }},
      {"an attribute twice",
       [](ResourceGroup& group) { group.logs[0].attributes.push_back(group.logs[0].attributes.back()); }},
      {"an attribute less",
       [](ResourceGroup& group) { group.logs[0].attributes.erase(group.logs[0].attributes.begin()); }},
      {"order", [](ResourceGroup& group) { std::swap(group.logs[0].attributes[2], group.logs[0].attributes[3]); }},
      {"a text", [](ResourceGroup& group) { group.logs[0].attributes[0].value = "7"; }},
      {"step", [](ResourceGroup& group) { group.logs[0].attributes[0].value = -1; }},
      {"duration", [](ResourceGroup& group) { group.logs[0].attributes[1].value = int64_t{86'400'000'000'001}; }},
      {"quiet from", [](ResourceGroup& group) { group.logs[0].attributes[6].value = INT64_MAX; }},
      {"phases", [](ResourceGroup& group) { std::get<ValueList>(group.logs[0].attributes[9].value.data).pop_back(); }},
      {"a column less",
       [](ResourceGroup& group) {
         std::get<ValueList>(std::get<ValueList>(group.logs[0].attributes[11].value.data)[0].data).pop_back();
       }},
      {"a column more",
       [](ResourceGroup& group) {
         std::get<ValueList>(std::get<ValueList>(group.logs[0].attributes[11].value.data)[0].data).emplace_back(0);
       }},
      {"a last column that says nothing",
       [](ResourceGroup& group) {
         std::get<ValueList>(std::get<ValueList>(group.logs[0].attributes[10].value.data)[0].data).emplace_back(0);
       }},
      {"a flag that is 2",
       [](ResourceGroup& group) {
         std::get<ValueList>(std::get<ValueList>(group.logs[0].attributes[10].value.data)[0].data)[3] = 2;
       }},
      {"unseen 0", [](ResourceGroup& group) { group.logs[0].attributes[12].value = 0; }},
      {"scalars", [](ResourceGroup& group) { group.logs[0].attributes[14].value = Attributes{}; }},
      {"a scalar's name",
       [](ResourceGroup& group) {
         group.logs[0].attributes[14].value = Attributes{{"a\tb", 1.0}};
       }},
  };
  EXPECT_EQ(decode_logs(one_step())->steps.size(), 1u);
  for (const auto& [what, change] : changes) {
    SCOPED_TRACE(what);
    const std::string bytes = one_step(change);
    const Result<LogsRequest> request = decode_logs(bytes);
    ASSERT_TRUE(request.ok());
    EXPECT_TRUE(request->steps.empty());
    EXPECT_EQ(to_batch(*request), *decode(Signal::kLogs, bytes));
  }
}

TEST(StepWalk, JudgesEveryCutAndEveryChangedByteAsTheOtherDecoderDoes) {
  const std::string whole = one_step();
  size_t walked = 0;
  auto compare = [&](const std::string& bytes) {
    const Result<Batch> plain = decode(Signal::kLogs, bytes);
    const Result<LogsRequest> request = decode_logs(bytes);
    ASSERT_EQ(plain.ok(), request.ok());
    if (!plain.ok()) {
      ASSERT_EQ(plain.error(), request.error());
      return;
    }
    walked += request->steps.size();
    ASSERT_EQ(encode(to_batch(*request)), encode(*plain));
  };
  for (size_t at = 0; at < whole.size(); ++at) {
    SCOPED_TRACE(at);
    compare(whole.substr(0, at));
    for (const int change : {0x01, 0x04, 0x08, 0x20, 0x80}) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ change);
      compare(bytes);
    }
  }
  EXPECT_GT(walked, 1'000u);  // another number is a step all the same
}

TEST(StepWalk, TakesMemoryForWhatItMakes) {
  MemoryBudget budget(32u << 10);
  MemoryLease lease(&budget, MemoryUse::kDecoding);
  const Result<LogsRequest> request = decode_logs(one_step(), &lease);
  EXPECT_FALSE(request.ok());
  EXPECT_TRUE(lease.was_refused());
}

}  // namespace
}  // namespace lockstep::otlp
