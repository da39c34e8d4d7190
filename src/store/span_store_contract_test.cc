// What every span store promises, run against the plain one in memory and the columnar one with its spans in the head,
// in files of one append each, in files put together, and read back by a new process before every question.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <random>

#include "base/text.h"
#include "store/memory_span_store.h"
#include "store/spans/columnar_span_store.h"
#include "store/store_counters.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

constexpr int64_t kTime = 1'700'000'000'000'000'000;
constexpr int64_t kMs = 1'000'000;

class Subject {
 public:
  virtual ~Subject() = default;
  virtual void append(const ResourceGroup& group) = 0;
  virtual const SpanStore& ask() = 0;
  Counters counters{kStoreCounters};
};

class InMemory final : public Subject {
 public:
  void append(const ResourceGroup& group) override { store_.append(group, kTime); }
  const SpanStore& ask() override { return store_; }

 private:
  MemorySpanStore store_{{}, counters};
};

class Columnar final : public Subject {
 public:
  enum class Mode { kHead, kSealed, kJoined, kReopened };
  explicit Columnar(Mode mode) : mode_(mode) { open(); }
  void append(const ResourceGroup& group) override {
    store_->append(group, kTime);
    if (mode_ != Mode::kHead && !store_->seal().ok()) std::abort();
  }
  const SpanStore& ask() override {
    if (mode_ == Mode::kJoined) store_->maintain();
    if (mode_ == Mode::kReopened) {
      store_.reset();
      open();
    }
    return *store_;
  }

 private:
  void open() {
    Result<std::unique_ptr<ColumnarSpanStore>> store =
        ColumnarSpanStore::open({.folder = folder_.path(), .background = false}, clock_, counters);
    if (!store.ok()) std::abort();
    store_ = std::move(*store);
  }
  const Mode mode_;
  testing::FakeClock clock_{kTime};
  testing::TemporaryFolder folder_;
  std::unique_ptr<ColumnarSpanStore> store_;
};

struct Kind {
  const char* name;
  std::function<std::unique_ptr<Subject>()> make;
};

class SpanStoreContract : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override { subject_ = GetParam().make(); }
  void append(const ResourceGroup& group) { subject_->append(group); }
  const SpanStore& ask() { return subject_->ask(); }
  std::unique_ptr<Subject> subject_;
};

TraceId trace_id(uint8_t number) {
  TraceId id{};
  id[0] = 7;
  id[15] = number;
  return id;
}

Span span_of(uint8_t trace, uint8_t id, std::string name, int64_t start_ms, int64_t duration_ms) {
  Span span;
  span.trace_id = trace_id(trace);
  span.span_id = {9, 9, 9, 9, 9, 9, trace, id};
  span.name = std::move(name);
  span.kind = 2;
  span.start_unix_ns = kTime + start_ms * kMs;
  span.end_unix_ns = span.start_unix_ns + duration_ms * kMs;
  return span;
}

ResourceGroup group_of(std::string service, std::vector<Span> spans) {
  ResourceGroup group;
  group.resource = {{"service.name", std::move(service)}, {"region", "north"}};
  group.spans = std::move(spans);
  return group;
}

Identity identity_of(Rank rank) {
  return {.job_id = "llm",
          .attempt = 1,
          .rank = rank,
          .world_size = 8,
          .local_rank = rank.value(),
          .host = "node-0",
          .gpu_uuid = "GPU-" + std::to_string(rank.value())};
}

StepDetail detail_of(Rank rank, StepNumber step, size_t ops) {
  StepDetail detail;
  detail.step = step;
  detail.start_unix_ns = kTime + step.value() * 1000 * kMs + rank.value() * 1000;
  detail.duration_ns = 900 * kMs;
  detail.left_out = rank == 1_rank ? 3 : 0;
  detail.inferred = rank == 2_rank;
  detail.phases = {{Phase::kForward, "", detail.start_unix_ns, 300 * kMs},
                   {Phase::kOther, "my phase", detail.start_unix_ns + 300 * kMs, 300 * kMs}};
  detail.notes = {{detail.start_unix_ns + 5, "checkpoint soon"}};
  for (size_t i = 0; i < ops; ++i) {
    OpSpan op;
    op.comm_id = CommId{0xfeed0000u + i % 3};
    op.comm_size = 8;
    op.rank_in_comm = rank.value();
    op.p2p = i % 5 == 4;
    op.function = op.p2p ? "Send" : "AllReduce";
    op.datatype = "bf16";
    op.seq = step.value() * 100 + i;
    op.ordinal = step.value() * 100 + i + 1;
    op.peer = op.p2p ? 3 : -1;
    op.bytes = 1 << (10 + i % 7);
    op.start_unix_ns = detail.start_unix_ns + static_cast<int64_t>(i) * 2 * kMs + rank.value() * 17;
    op.enqueued_unix_ns = op.start_unix_ns - 1000 - static_cast<int64_t>(i);
    op.duration_ns = kMs + static_cast<int64_t>(i) * 13;
    op.timed = i % 7 != 6;
    detail.ops.push_back(op);
  }
  return detail;
}

ResourceGroup step_group(Rank rank, const StepDetail& detail) {
  ResourceGroup group;
  group.resource = to_resource(identity_of(rank));
  group.spans = to_spans(identity_of(rank), detail, SampledFor::kPeriodic);
  return group;
}

Attributes odd_attributes() {
  return {{"text", "grüße\n\t\"x\""},
          {"", "empty key"},
          {"zero bytes", std::string("\0a\0", 3)},
          {"empty", ""},
          {"yes", true},
          {"no", false},
          {"least", std::numeric_limits<int64_t>::min()},
          {"most", std::numeric_limits<int64_t>::max()},
          {"real", -0.0},
          {"infinite", std::numeric_limits<double>::infinity()},
          {"smallest", std::numeric_limits<double>::denorm_min()},
          {"raw", Value::Bytes{std::string("\0\xff", 2)}},
          {"nothing", Value()},
          {"twice", 1},
          {"twice", "again, of another type"},
          {"lockstep.step", "not a number"},
          {"lockstep.step", 7},
          {"lockstep.kind", 3},
          {"list", ValueList{1, "two", 3.0, Value(), ValueList{}, ValueList{true}}},
          {"map", Attributes{{"inner", Attributes{{"list", ValueList{-1}}}}, {"", "empty key"}}},
          {"long", std::string(10'000, 'x')}};
}

std::vector<Span> odd_spans() {
  std::vector<Span> spans;
  Span span = span_of(1, 1, "odd", 0, 5);
  span.parent_span_id = {1, 2, 3, 4, 5, 6, 7, 8};
  span.trace_state = "a=b,c=d";
  span.kind = -5;
  span.attributes = odd_attributes();
  span.events = {{kTime + 1, "event", odd_attributes()}, {}, {-1, "", {{"a", 1}}}};
  span.links = {{trace_id(3), {1}, odd_attributes()}, {}};
  span.status_code = 2;
  span.status_message = "failed:\n why";
  spans.push_back(span);
  span = span_of(1, 2, "", 1, 1);  // no name, ends before it starts
  span.end_unix_ns = span.start_unix_ns - 1;
  spans.push_back(span);
  span = span_of(1, 3, "long", 2, 0);
  span.end_unix_ns = std::numeric_limits<int64_t>::max();
  span.status_code = std::numeric_limits<int32_t>::min();
  spans.push_back(span);
  span = Span{};  // nothing at all, but for its trace
  span.trace_id = trace_id(1);
  spans.push_back(span);
  span.start_unix_ns = -1;
  span.end_unix_ns = std::numeric_limits<int64_t>::min();
  spans.push_back(span);
  return spans;
}

TEST_P(SpanStoreContract, EverySpanComesBackAsItWasSent) {
  ResourceGroup group;
  group.resource = odd_attributes();
  group.scope_name = "scope";
  group.spans = odd_spans();
  append(group);
  Page<StoredSpan> page = ask().trace(trace_id(1), 100);
  ASSERT_EQ(page.total, group.spans.size());
  std::vector<Span> expected = group.spans;
  std::stable_sort(expected.begin(), expected.end(),
                   [](const Span& a, const Span& b) { return a.start_unix_ns < b.start_unix_ns; });
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(page.items[i].span, expected[i]) << i;
    EXPECT_EQ(*page.items[i].resource, group.resource);
  }
  // Equal is not enough for zeros.
  const Value* real = find(page.items[2].span.attributes, "real");
  ASSERT_NE(real, nullptr);
  EXPECT_TRUE(std::signbit(std::get<double>(real->data)));
}

TEST_P(SpanStoreContract, StepSpansComeBackAsTheyWereSentAlsoWhereTheirIdsAreNotDerived) {
  StepDetail detail = detail_of(0_rank, 5_step, 40);
  ResourceGroup group = step_group(0_rank, detail);
  group.spans[7].span_id = {1, 2, 3};                           // an id of its own
  group.spans[9].parent_span_id = {4, 5, 6};                    // another parent
  std::swap(group.spans[11].span_id, group.spans[12].span_id);  // each other's
  group.spans[13].attributes.push_back({"lockstep.kind", "phase"});
  group.spans[14].attributes.erase(group.spans[14].attributes.begin());  // no kind
  group.spans[15].attributes[1].value = "seven";                         // a step that is no number
  group.spans.erase(group.spans.begin() + 20);                           // a hole in the places
  append(group);
  ResourceGroup second_half = step_group(3_rank, detail_of(3_rank, 5_step, 40));
  second_half.spans.erase(second_half.spans.begin(), second_half.spans.begin() + 25);  // sent in pieces
  append(second_half);

  std::vector<Span> expected = group.spans;
  expected.insert(expected.end(), second_half.spans.begin(), second_half.spans.end());
  Page<StoredSpan> page = ask().trace(step_trace_id("llm", 1, 5_step), 1000);
  ASSERT_EQ(page.total, expected.size());
  auto by_id = [](const Span& a, const Span& b) { return a.span_id < b.span_id; };
  std::vector<Span> got;
  for (const StoredSpan& item : page.items) got.push_back(item.span);
  std::sort(got.begin(), got.end(), by_id);
  std::sort(expected.begin(), expected.end(), by_id);
  EXPECT_EQ(got, expected);
}

TEST_P(SpanStoreContract, ASpanAppendedAgainIsKeptOnce) {
  ResourceGroup group = group_of("shop", {span_of(1, 1, "get", 0, 5), span_of(1, 2, "get", 1, 5)});
  append(group);
  append(group);
  append(group_of("shop", {span_of(1, 2, "get", 1, 5), span_of(1, 3, "get", 2, 5)}));
  append(group_of("other", {span_of(2, 1, "x", 1, 5)}));
  EXPECT_EQ(ask().trace(trace_id(1), 10).total, 3u);
  EXPECT_EQ(ask().newest("shop", 10).items.size(), 3u);
  Page<TraceSummary> found = ask().search({.service = "shop"});
  ASSERT_EQ(found.items.size(), 1u);
  EXPECT_EQ(found.items[0].spans, 3u);
  EXPECT_EQ(found.items[0].matched, 3u);
  EXPECT_EQ(found.items[0].matching.size(), 3u);

  ResourceGroup step = step_group(0_rank, detail_of(0_rank, 2_step, 10));
  append(step);
  append(step);
  std::vector<RankDetail> ranks = ask().step("llm", 1, 2_step, {});
  ASSERT_EQ(ranks.size(), 1u);
  EXPECT_EQ(ranks[0].detail, detail_of(0_rank, 2_step, 10));
  EXPECT_EQ(ask().traced_steps("llm", 1, 10).items[0].ranks, 1u);
  EXPECT_EQ(ask().traced_steps("llm", 1, 10).items[0].spans, 13u);
}

TEST_P(SpanStoreContract, ATraceComesByStartAndNeverMoreThanAskedFor) {
  append(group_of("shop", {span_of(1, 1, "c", 30, 5), span_of(1, 2, "a", 10, 5), span_of(2, 1, "z", 0, 1)}));
  append(group_of("bank", {span_of(1, 3, "b", 20, 5)}));
  Page<StoredSpan> page = ask().trace(trace_id(1), 2);
  EXPECT_EQ(page.total, 3u);
  ASSERT_EQ(page.items.size(), 2u);
  EXPECT_EQ(page.items[0].span.name, "a");
  EXPECT_EQ(page.items[1].span.name, "b");
  EXPECT_EQ(find_string(*page.items[1].resource, "service.name"), "bank");
  EXPECT_EQ(ask().trace(trace_id(9), 2).total, 0u);
}

TEST_P(SpanStoreContract, SearchFindsTracesByEverythingThatIsAsked) {
  Span slow = span_of(1, 1, "get", 0, 500);
  slow.attributes = {{"code", 500}, {"ok", false}, {"path", "/a"}, {"ratio", 0.5}};
  slow.status_code = 2;
  Span child = span_of(1, 2, "query", 10, 20);
  child.parent_span_id = slow.span_id;
  Span quick = span_of(2, 1, "get", 1000, 5);
  quick.attributes = {{"code", 200}, {"ok", true}, {"path", "/a"}};
  append(group_of("shop", {slow}));
  append(group_of("db", {child}));
  append(group_of("shop", {quick}));
  auto found = [&](TraceQuery query) {
    std::vector<int> traces;
    for (const TraceSummary& trace : ask().search(query).items) traces.push_back(trace.trace_id[15]);
    return traces;
  };
  EXPECT_EQ(found({}), (std::vector<int>{2, 1}));
  EXPECT_EQ(found({.service = "shop"}), (std::vector<int>{2, 1}));
  EXPECT_EQ(found({.service = "db"}), (std::vector<int>{1}));
  EXPECT_EQ(found({.service = "nobody"}), (std::vector<int>{}));
  EXPECT_EQ(found({.name = "query"}), (std::vector<int>{1}));
  EXPECT_EQ(found({.service = "shop", .name = "query"}), (std::vector<int>{}));
  EXPECT_EQ(found({.attributes = {{"code", "200"}}}), (std::vector<int>{2}));
  EXPECT_EQ(found({.attributes = {{"ok", "false"}}}), (std::vector<int>{1}));
  EXPECT_EQ(found({.attributes = {{"ratio", "0.5"}}}), (std::vector<int>{1}));
  EXPECT_EQ(found({.attributes = {{"path", "/a"}, {"code", "500"}}}), (std::vector<int>{1}));
  EXPECT_EQ(found({.attributes = {{"region", "north"}}}), (std::vector<int>{2, 1}));
  EXPECT_EQ(found({.attributes = {{"region", "south"}}}), (std::vector<int>{}));
  EXPECT_EQ(found({.attributes = {{"code", "0200"}}}), (std::vector<int>{}));
  EXPECT_EQ(found({.start_from_unix_ns = kTime + 500 * kMs}), (std::vector<int>{2}));
  EXPECT_EQ(found({.start_to_unix_ns = kTime + 500 * kMs}), (std::vector<int>{1}));
  EXPECT_EQ(found({.duration_least_ns = 100 * kMs}), (std::vector<int>{1}));
  EXPECT_EQ(found({.duration_most_ns = 10 * kMs}), (std::vector<int>{2}));
  EXPECT_EQ(found({.errors_only = true}), (std::vector<int>{1}));

  Page<TraceSummary> page = ask().search({.service = "db", .limit = 1});
  ASSERT_EQ(page.items.size(), 1u);
  const TraceSummary& trace = page.items[0];
  EXPECT_EQ(trace.root_service, "shop");
  EXPECT_EQ(trace.root_name, "get");
  EXPECT_EQ(trace.spans, 2u);
  EXPECT_EQ(trace.matched, 1u);
  ASSERT_EQ(trace.matching.size(), 1u);
  EXPECT_EQ(trace.matching[0].span, child);
  EXPECT_EQ(trace.start_unix_ns, kTime);
  EXPECT_EQ(trace.end_unix_ns, kTime + 500 * kMs);
  EXPECT_EQ(ask().search({.limit = 1}).total, 2u);
}

TEST_P(SpanStoreContract, NewestComeInTheOrderOfArrival) {
  append(group_of("shop", {span_of(1, 1, "first", 100, 5), span_of(1, 2, "second", 50, 5)}));
  append(group_of("bank", {span_of(2, 1, "third", 200, 5)}));
  append(group_of("shop", {span_of(1, 3, "fourth", 0, 5)}));
  auto names = [](const Page<StoredSpan>& page) {
    std::vector<std::string> all;
    for (const StoredSpan& item : page.items) all.push_back(item.span.name);
    return all;
  };
  EXPECT_EQ(names(ask().newest("", 3)), (std::vector<std::string>{"fourth", "third", "second"}));
  EXPECT_EQ(ask().newest("", 3).total, 4u);
  EXPECT_EQ(names(ask().newest("shop", 9)), (std::vector<std::string>{"fourth", "second", "first"}));
  EXPECT_EQ(ask().newest("shop", 1).total, 3u);
}

TEST_P(SpanStoreContract, NamesOfServicesSpansAndAttributesAreSorted) {
  Span span = span_of(1, 1, "get", 0, 5);
  span.attributes = {{"path", "/a"}, {"code", 200}};
  Span other = span_of(1, 2, "put", 0, 5);
  other.attributes = {{"path", "/b"}, {"code", 404}};
  append(group_of("shop", {span, other}));
  append(group_of("bank", {span_of(2, 1, "pay", 0, 5)}));
  EXPECT_EQ(ask().services(), (std::vector<std::string>{"bank", "shop"}));
  EXPECT_EQ(ask().span_names("shop"), (std::vector<std::string>{"get", "put"}));
  EXPECT_EQ(ask().span_names(""), (std::vector<std::string>{"get", "pay", "put"}));
  EXPECT_EQ(ask().attribute_names().resource, (std::vector<std::string>{"region", "service.name"}));
  EXPECT_EQ(ask().attribute_names().span, (std::vector<std::string>{"code", "path"}));
  EXPECT_EQ(ask().attribute_values("code", 10), (std::vector<std::string>{"200", "404"}));
  EXPECT_EQ(ask().attribute_values("service.name", 10), (std::vector<std::string>{"bank", "shop"}));
  EXPECT_EQ(ask().attribute_values("path", 1).size(), 1u);
  EXPECT_TRUE(ask().attribute_values("nothing", 10).empty());
}

TEST_P(SpanStoreContract, AStepComesBackTypedByRank) {
  for (StepNumber step : {3_step, 4_step}) {
    for (Rank rank : {2_rank, 0_rank, 1_rank}) append(step_group(rank, detail_of(rank, step, 20)));
  }
  append(group_of("shop", {span_of(1, 1, "get", 0, 5)}));
  std::vector<RankDetail> ranks = ask().step("llm", 1, 4_step, {});
  ASSERT_EQ(ranks.size(), 3u);
  for (Rank rank : all_ranks(3)) {
    EXPECT_EQ(ranks[index_of(rank)].identity, identity_of(rank));
    EXPECT_EQ(ranks[index_of(rank)].detail, detail_of(rank, 4_step, 20));
  }
  ranks = ask().step("llm", 1, 4_step, {1_rank, 7_rank});
  ASSERT_EQ(ranks.size(), 1u);
  EXPECT_EQ(ranks[0].identity.rank, 1_rank);
  EXPECT_TRUE(ask().step("llm", 0, 4_step, {}).empty());
  EXPECT_TRUE(ask().step("llm", 1, 5_step, {}).empty());
  EXPECT_TRUE(ask().step("other", 1, 4_step, {}).empty());

  Page<TracedStep> steps = ask().traced_steps("llm", 1, 1);
  EXPECT_EQ(steps.total, 2u);
  ASSERT_EQ(steps.items.size(), 1u);
  EXPECT_EQ(steps.items[0].step, 4_step);
  EXPECT_EQ(steps.items[0].ranks, 3u);
  EXPECT_EQ(steps.items[0].spans, 3u * 23);
  EXPECT_EQ(steps.items[0].start_unix_ns, kTime + 4000 * kMs);
  EXPECT_EQ(ask().traced_steps("llm", 2, 1).total, 0u);
}

TEST_P(SpanStoreContract, WhatWasReceivedIsHeldReplacedDroppedOrRefused) {
  ResourceGroup group = group_of("shop", {span_of(1, 1, "get", 0, 5), span_of(1, 2, "get", 1, 5)});
  append(group);
  append(group);
  if (std::string(GetParam().name) == "reopened") return;  // a new process counts what it found in files as received
  const Counters& counters = subject_->counters;
  EXPECT_EQ(counters.value("lockstep_store_rows_received_total", "table=\"spans\""), 4);
  EXPECT_EQ(counters.value("lockstep_store_rows_received_total", "table=\"spans\""),
            counters.value("lockstep_store_rows", "table=\"spans\"") +
                counters.value("lockstep_store_rows_replaced_total", "table=\"spans\"") +
                counters.sum("lockstep_store_rows_dropped_total") + counters.sum("lockstep_store_rows_refused_total"));
}

class Random {
 public:
  explicit Random(uint64_t seed) : random_(seed) {}
  uint64_t below(uint64_t most) { return random_() % most; }

  ResourceGroup group() {
    if (below(2) != 0) return service_group();
    const Rank rank{static_cast<int32_t>(below(4))};
    const StepNumber step = StepNumber{static_cast<int64_t>(below(3))};
    ResourceGroup group = step_group(rank, detail_of(rank, step, below(30)));
    if (below(3) == 0) group.spans.resize(1 + below(group.spans.size()));
    return group;
  }

 private:
  ResourceGroup service_group() {
    ResourceGroup group = group_of("service-" + std::to_string(below(3)), {});
    for (uint64_t i = 0, count = 1 + below(20); i < count; ++i) {
      Span span =
          span_of(static_cast<uint8_t>(below(6)), static_cast<uint8_t>(below(200)), "name-" + std::to_string(below(4)),
                  static_cast<int64_t>(below(5000)), static_cast<int64_t>(below(100)));
      if (below(2) == 0) span.parent_span_id = {9, 9, 9, 9, 9, 9, 1, static_cast<uint8_t>(below(200))};
      if (below(2) == 0) span.attributes.push_back({"number", static_cast<int64_t>(below(4))});
      if (below(2) == 0) span.attributes.push_back({"flag", below(2) == 0});
      if (below(3) == 0) span.attributes.push_back({"text", "value " + std::to_string(below(3))});
      if (below(4) == 0) span.status_code = 2;
      if (below(9) == 0) span.events.push_back({span.start_unix_ns, "happened", {{"why", "because"}}});
      group.spans.push_back(span);
    }
    return group;
  }

  std::mt19937_64 random_;
};

void expect_same_names(const SpanStore& mine, const SpanStore& right) {
  EXPECT_EQ(mine.services(), right.services());
  EXPECT_EQ(mine.span_names(""), right.span_names(""));
  EXPECT_EQ(mine.span_names("service-1"), right.span_names("service-1"));
  EXPECT_EQ(mine.attribute_names().span, right.attribute_names().span);
  EXPECT_EQ(mine.attribute_names().resource, right.attribute_names().resource);
  for (const char* key : {"number", "flag", "text", "lockstep.step", "lockstep.comm_id", "region", "host.name"})
    EXPECT_EQ(mine.attribute_values(key, 100), right.attribute_values(key, 100)) << key;
}

void expect_same(const Page<StoredSpan>& a, const Page<StoredSpan>& b) {
  EXPECT_EQ(a.total, b.total);
  ASSERT_EQ(a.items.size(), b.items.size());
  for (size_t i = 0; i < a.items.size(); ++i) {
    EXPECT_EQ(a.items[i].span, b.items[i].span) << i;
    EXPECT_EQ(*a.items[i].resource, *b.items[i].resource) << i;
  }
}

void expect_same(const Page<TraceSummary>& a, const Page<TraceSummary>& b) {
  EXPECT_EQ(a.total, b.total);
  ASSERT_EQ(a.items.size(), b.items.size());
  for (size_t at = 0; at < a.items.size(); ++at) {
    EXPECT_EQ(a.items[at].trace_id, b.items[at].trace_id);
    EXPECT_EQ(a.items[at].start_unix_ns, b.items[at].start_unix_ns);
    EXPECT_EQ(a.items[at].end_unix_ns, b.items[at].end_unix_ns);
    EXPECT_EQ(a.items[at].spans, b.items[at].spans);
    EXPECT_EQ(a.items[at].matched, b.items[at].matched);
    EXPECT_EQ(a.items[at].matching.size(), b.items[at].matching.size());
  }
}

void expect_same_steps(const SpanStore& mine, const SpanStore& right) {
  for (StepNumber step = 0_step; step < 3_step; ++step) {
    for (const std::vector<Rank>& ranks : {std::vector<Rank>{}, {1_rank}, {0_rank, 3_rank}}) {
      std::vector<RankDetail> a = mine.step("llm", 1, step, ranks);
      std::vector<RankDetail> b = right.step("llm", 1, step, ranks);
      ASSERT_EQ(a.size(), b.size());
      for (size_t i = 0; i < a.size(); ++i) {
        EXPECT_EQ(a[i].identity, b[i].identity);
        EXPECT_EQ(a[i].detail, b[i].detail);
      }
    }
  }
  Page<TracedStep> a = mine.traced_steps("llm", 1, 10);
  Page<TracedStep> b = right.traced_steps("llm", 1, 10);
  EXPECT_EQ(a.total, b.total);
  ASSERT_EQ(a.items.size(), b.items.size());
  for (size_t i = 0; i < a.items.size(); ++i) {
    EXPECT_EQ(a.items[i].step, b.items[i].step);
    EXPECT_EQ(a.items[i].ranks, b.items[i].ranks);
    EXPECT_EQ(a.items[i].spans, b.items[i].spans);
    EXPECT_EQ(a.items[i].start_unix_ns, b.items[i].start_unix_ns);
  }
}

// Everything at once, from a seed: each store answers as the plain one does.
TEST_P(SpanStoreContract, RandomSpansAreAnsweredAsByThePlainStore) {
  const std::vector<TraceQuery> queries = {
      {},
      {.service = "service-1"},
      {.name = "name-2"},
      {.name = "AllReduce"},
      {.service = "service-2", .name = "name-0", .attributes = {{"number", "1"}}},
      {.attributes = {{"flag", "true"}, {"text", "value 1"}}},
      {.attributes = {{"lockstep.step", "1"}}},
      {.attributes = {{"lockstep.rank", "2"}}},
      {.start_from_unix_ns = kTime + 1000 * kMs, .start_to_unix_ns = kTime + 1500 * kMs},
      {.duration_least_ns = 50 * kMs, .duration_most_ns = 70 * kMs},
      {.errors_only = true, .limit = 2},
  };
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(seed);
    SetUp();
    Random random(seed);
    InMemory plain;
    std::vector<ResourceGroup> sent;
    for (int batch = 0; batch < 24; ++batch) {
      const bool again = !sent.empty() && random.below(5) == 0;
      const ResourceGroup group = again ? sent[random.below(sent.size())] : random.group();
      append(group);
      plain.append(group);
      if (!again) sent.push_back(group);
    }
    const SpanStore& mine = ask();
    const SpanStore& right = plain.ask();
    expect_same_names(mine, right);
    for (uint8_t trace = 0; trace < 6; ++trace)
      expect_same(mine.trace(trace_id(trace), 20), right.trace(trace_id(trace), 20));
    for (StepNumber step = 0_step; step < 3_step; ++step)
      expect_same(mine.trace(step_trace_id("llm", 1, step), 1000), right.trace(step_trace_id("llm", 1, step), 1000));
    for (size_t i = 0; i < queries.size(); ++i) {
      SCOPED_TRACE(i);
      expect_same(mine.search(queries[i]), right.search(queries[i]));
    }
    expect_same_steps(mine, right);
  }
}

std::unique_ptr<Subject> columnar(Columnar::Mode mode) {
  return std::make_unique<Columnar>(mode);
}

INSTANTIATE_TEST_SUITE_P(Stores, SpanStoreContract,
                         ::testing::Values(Kind{"memory", [] { return std::make_unique<InMemory>(); }},
                                           Kind{"head", [] { return columnar(Columnar::Mode::kHead); }},
                                           Kind{"sealed", [] { return columnar(Columnar::Mode::kSealed); }},
                                           Kind{"joined", [] { return columnar(Columnar::Mode::kJoined); }},
                                           Kind{"reopened", [] { return columnar(Columnar::Mode::kReopened); }}),
                         [](const ::testing::TestParamInfo<Kind>& kind) { return std::string(kind.param.name); });

}  // namespace
}  // namespace lockstep
