// The endpoints against a filled store. Requests go straight into answer(): no sockets.
#include <gtest/gtest.h>
#include <simdjson.h>
#include <unistd.h>

#include <cstdlib>
#include <limits>

#include "access/access_counters.h"
#include "access/audit_log.h"
#include "access/gatekeeper.h"
#include "access/name_owners.h"
#include "access/token_store.h"
#include "api/backup_source.h"
#include "api/endpoints.h"
#include "api/readiness.h"
#include "api/routes.h"
#include "base/crc32c.h"
#include "base/files.h"
#include "base/sha256.h"
#include "base/text.h"
#include "control/captures.h"
#include "fabric/fabric.h"
#include "ingest/counters_table.h"
#include "model/capture_results.h"
#include "model/evidence_files.h"
#include "model/profile_finding.h"
#include "model/step_detail.h"
#include "store/blobs/blob_counters.h"
#include "store/blobs/directory_blob_store.h"
#include "store/memory_span_store.h"
#include "store/memory_step_store.h"
#include "store/sqlite_state_store.h"
#include "store/store_counters.h"
#include "store/testing/counting_blob_store.h"
#include "store/testing/memory_metric_reader.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

using simdjson::dom::element;

struct TestDiagnosis final : VerdictSource {
  std::vector<Verdict> list;
  std::vector<Verdict> verdicts(std::string_view job_id) const override {
    std::vector<Verdict> found;
    for (const Verdict& verdict : list) {
      if (job_id.empty() || verdict.job_id == job_id) found.push_back(verdict);
    }
    return found;
  }
  std::string summary(std::string_view job_id) const override { return "Summary of " + std::string(job_id); }
  std::vector<EarlyWarning> ahead;
  std::vector<EarlyWarning> warnings() const override { return ahead; }
};

struct TestBackup final : BackupSource {
  std::string why_not, released;
  Result<HeldBackup> hold() override {
    if (!why_not.empty()) return Error{why_not};
    return HeldBackup{"b1", 5, 6, {{"log/1.log", 9, "s-1", true}}};
  }
  Result<std::string> read(std::string_view id, std::string_view name, uint64_t from, uint64_t bytes) override {
    if (id == "gone") return Error{"there is no such backup", ErrorCode::kNotFound};
    return std::string(id) + std::string(name) +
           format("+%llu+%llu", static_cast<unsigned long long>(from), static_cast<unsigned long long>(bytes));
  }
  Result<void> release(std::string_view id) override {
    released = id;
    return {};
  }
};

Verdict verdict_of(std::string id, std::string job_id, VerdictState state, VerdictKind kind, int64_t found) {
  Verdict verdict;
  verdict.id = std::move(id);
  verdict.job_id = std::move(job_id);
  verdict.state = state;
  verdict.kind = kind;
  verdict.found_unix_ns = found;
  verdict.sentence = "Verdict " + verdict.id;
  return verdict;
}

class ApiTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<StateStore>> state = open_sqlite_state_store(folder_.path() + "/state.sqlite");
    ASSERT_TRUE(state.ok());
    state_ = std::move(*state);
    feedback_ = std::make_unique<FeedbackStore>(*state_, counters_, nullptr);
    Result<std::unique_ptr<TokenStore>> tokens = TokenStore::open(*state_, "", clock_, access_counters_);
    Result<std::unique_ptr<NameOwners>> owners = NameOwners::open(*state_, clock_, access_counters_);
    ASSERT_TRUE(tokens.ok() && owners.ok());
    tokens_ = std::move(*tokens);
    owners_ = std::move(*owners);
    audit_.emplace(*state_, clock_, access_counters_);
    caller_ = everybody();
    // 4 ranks on 2 hosts, steps 0 to 9. Rank 2 computes 30 ms longer, so the others wait 30 ms for it.
    for (StepNumber step = 0_step; step < 10_step; ++step) {
      for (Rank rank : all_ranks(4)) {
        if (rank == 3_rank && step == 5_step) continue;  // never arrived
        steps_.append_step(identity_of(rank), step_of(step, rank == 2_rank),
                           clock_.unix_ns() - (9 - step.value()) * 1'000'000);
      }
    }
  }

  static Identity identity_of(Rank rank, std::string job_id = "llama-70b") {
    return {.job_id = std::move(job_id),
            .attempt = 0,
            .rank = rank,
            .world_size = 4,
            .local_rank = rank % 2,
            .host = format("node-%d", rank.value() / 2),
            .gpu_uuid = format("GPU-%d", rank.value())};
  }
  static StepSummary step_of(StepNumber step, bool is_slow) {
    StepSummary summary;
    summary.step = step;
    summary.duration_ns = 100'000'000;
    summary.self_ns = is_slow ? 90'000'000 : 60'000'000;
    summary.comm_ns = summary.duration_ns - summary.self_ns;
    summary.phase_ns[static_cast<size_t>(Phase::kInput)] = 5'000'000;
    summary.phase_ns[static_cast<size_t>(Phase::kForward)] = 20'000'000;
    summary.comms.push_back({.comm_id = CommId{0x1a},
                             .size = 4,
                             .count = 10,
                             .bytes = 80'000'000,
                             .gpu_ns = 40'000'000,
                             .shortest_ns = 1'000'000,
                             .longest_ns = 5'000'000});
    summary.flows.push_back(
        {.comm_id = CommId{0x1a}, .peer = 1, .send = true, .transfers = 8, .bytes = 1000, .wire_ns = 1'500'000});
    return summary;
  }

  void store_file(const BlobKey& key, const std::string& content) {
    ASSERT_TRUE(blobs_->begin(key, 1).ok());
    const std::vector<BlobPart> parts{*blobs_->put_part(key, 1, content, to_text(sha256(content)))};
    ASSERT_TRUE(blobs_->finish(key, to_text(sha256(content)), parts).ok());
  }
  HttpResponse get(const std::string& path, const std::string& query = "", const std::string& method = "GET") {
    ApiContext context{steps_,     spans_,    traces_, metrics_, *state_,    agents_,
                       diagnosis_, counters_, clock_,  ready_,   web_folder_};
    context.ask_detail = ask_detail_;
    context.who_answers = who_answers_;
    const GpuPricing pricing(prices_, steps_, metrics_, clock_);
    context.pricing = &pricing;
    context.feedback = feedback_.get();
    context.readiness = readiness_;
    context.backup = &backup_;
    context.fabric = &fabric_;
    context.blobs = counting_ != nullptr ? counting_ : blobs_.get();
    context.captures = captures_;
    context.kernel_classes = [this](const std::string&) { return kernel_classes_; };
    context.tokens = tokens_.get();
    context.owners = owners_.get();
    context.audit = &*audit_;
    context.cardinality = [](size_t) {
      CardinalityReport report;
      report.series = 7;
      report.metrics = {{"up", 4}};
      report.refused = {{"label_forbidden", 3}};
      using namespace std::string_literals;
      report.streams = {
          {"O\x2c\0\0\0\x0a\x15\x0a\x09host.name\x12\x08\x0a\x06node-1\x0a\x13\x0a\x0dlockstep.rank\x12\x02\x18\x2b\0scope"s,
           9},
          {"O\x35\0\0\0\x0a\x15\x0a\x09host.name\x12\x08\x0a\x06node-1\x0a\x1c\x0a\x11lockstep.gpu_uuid\x12\x07\x0a\x05GPU-1\0scope"s,
           9},
          // Who is so called that it looks like another host.
          {"O\x27\0\0\0\x0a\x25\x0a\x0cservice.name\x12\x15\x0a\x13host.name\x12\x08\x0a\x06node-9\0scope"s, 8},
          {"O\0\0\0host.name\x12"s, 8},  // cut off
          {"remote_write\0team\0node\0n1:9100"s, 7},
          {"scrape\0n2:9400\0TE\1\0\0\0x"s, 6},
          {"rollup llama"s, 5}};
      return report;
    };
    ServerRequest request;
    request.method = method;
    request.path = path;
    request.query = query;
    request.body = body_;
    request.headers = headers_;
    request.caller = caller_;
    request.depth = depth_;
    request.peer = "203.0.113.9:5123";
    return answer(context, request);
  }
  HttpResponse post(const std::string& path, const std::string& body) {
    body_ = body;
    HttpResponse response = get(path, "", "POST");
    body_.clear();
    return response;
  }
  element json(const std::string& path, const std::string& query = "") {
    HttpResponse response = get(path, query);
    EXPECT_EQ(response.status, 200) << path << "?" << query << ": " << response.body;
    EXPECT_EQ(response.header("content-type"), "application/json");
    return parse(response);
  }
  element parse(const HttpResponse& response) {
    element document;
    auto error = parser_.parse(response.body).get(document);
    EXPECT_FALSE(error) << simdjson::error_message(error) << " in " << response.body.substr(0, 500);
    return document;
  }
  void expect_error(const std::string& path, const std::string& query, int status, const std::string& part) {
    HttpResponse response = get(path, query);
    EXPECT_EQ(response.status, status) << path << "?" << query << ": " << response.body;
    std::string line(parse(response)["error"].get_string().value());
    EXPECT_NE(line.find(part), std::string::npos) << line;
    EXPECT_EQ(line.find('\n'), std::string::npos);
  }
  static std::string text(element value) { return std::string(value.get_string().value()); }
  static double number(element value) { return value.get_double().value(); }

  GpuPrices prices_;
  testing::TemporaryFolder folder_;
  std::string web_folder_;
  size_t depth_ = 0;
  testing::FakeClock clock_{1'000'000'000'000};
  Counters counters_{kStoreCounters};
  Counters access_counters_{kAccessCounters};
  MemoryStepStore steps_{{}, counters_};
  MemorySpanStore spans_{{}, counters_};
  StepTraceCache traces_{steps_, spans_, clock_};
  MemoryMetricReader metrics_;
  std::unique_ptr<StateStore> state_;
  std::unique_ptr<TokenStore> tokens_;
  std::unique_ptr<NameOwners> owners_;
  std::optional<AuditLog> audit_;
  Caller caller_;
  AgentRegistry agents_;
  TestDiagnosis diagnosis_;
  std::atomic<bool> ready_{true};
  std::function<DetailAsked(const JobInfo&, const DetailRequest&)> ask_detail_;
  WhoAnswers who_answers_;
  std::unique_ptr<FeedbackStore> feedback_;
  fabric::Fabric fabric_{[] {
                           fabric::Declared declared;
                           declared.nodes = {{.name = "node-0", .kind = fabric::NodeKind::kHost, .gpus = 2}};
                           return declared;
                         }(),
                         clock_};
  TestBackup backup_;
  Counters blob_counters_{kBlobCounters};
  std::unique_ptr<BlobStore> blobs_;
  BlobStore* counting_ = nullptr;
  Captures* captures_ = nullptr;
  KernelClasses kernel_classes_;
  std::vector<std::pair<std::string, std::string>> headers_;
  Readiness* readiness_ = nullptr;
  std::string body_;
  simdjson::dom::parser parser_;
};

TEST_F(ApiTest, TellsWhatLockstepItselfCostsAndWhatOfItIsUnknown) {
  const int64_t now_ms = clock_.unix_ns() / 1'000'000;
  for (const auto& [ago_ms, seconds] : {std::pair{600'000, 0.0}, {0, 6.0}}) {
    metrics_.add({{"__name__", "lockstep_agent_cpu_seconds_total"}, {"host", "node-0"}}, now_ms - ago_ms, 40 + seconds);
    metrics_.add({{"__name__", "system_cpu_time_seconds_total"}, {"host", "node-0"}}, now_ms - ago_ms, 800 * seconds);
  }
  agents_.seen("node-1", clock_.unix_ns() - 1, 0);
  const element json =
      parse(get("/api/overhead", format("from=%lld", static_cast<long long>((now_ms - 900'000) * 1'000'000))));
  EXPECT_DOUBLE_EQ(number(json["agents"]["cpu_cores"]), 0.01);
  EXPECT_DOUBLE_EQ(number(json["agents"]["share_of_cores"]), 8);
  EXPECT_EQ(text(json["agents"]["worst_host"]), "node-0");
  EXPECT_TRUE(json["agents"]["sent_bytes_per_s"].is_null());
  EXPECT_TRUE(json["server"]["disk_bytes"].is_null());
  EXPECT_EQ(text(json["sentence"]),
            "Agents take 0.01 of 8 cores on 1 host (0.12 %). What the server takes is not known.");
  EXPECT_EQ(text(json["unknown"].at(0)["what"]), "agent");
  EXPECT_EQ(text(json["unknown"].at(0)["example"]), "node-1");
  expect_error("/api/overhead", "from=yesterday", 400, "from is \"yesterday\"; it must be a whole number");
  expect_error("/api/overhead", "to=0", 400, "to is \"0\"");
  expect_error("/api/overhead", "from=9&to=5", 400, "before to");
  expect_error("/api/overhead", "window=1h", 400, "window");
}

TEST_F(ApiTest, AJobSaysWhatSomeOfItsRanksCanBeAskedFor) {
  const auto words_of = [&](const std::string& path, const char* key) {
    std::string words;
    for (const element one : json(path)[key].get_array().value()) words += text(one) + " ";
    return words;
  };
  const auto answers = [&](const std::string& path) { return words_of(path, "answers"); };
  EXPECT_EQ(answers("/api/jobs/llama-70b/why"), "detail stacks profiles samples ") << "nobody knows better";
  who_answers_ = [](const std::string& host, CommandKind kind) {
    if (host == "node-0") return Answers::kNobody;  // no agent there asks for commands
    return kind == CommandKind::kStacks ? Answers::kYes : Answers::kNo;
  };
  EXPECT_EQ(answers("/api/jobs/llama-70b/why"), "stacks ");
  EXPECT_EQ(answers("/api/jobs/llama-70b/traced"), "stacks ");
  EXPECT_EQ(words_of("/api/jobs/llama-70b/why", "answers_unknown"), "");
}

TEST_F(ApiTest, BehindGatewaysARankMayBeAskedAndNobodyClaimsThatItAnswers) {
  const auto words_of = [&](const char* key) {
    std::string words;
    for (const element one : json("/api/jobs/llama-70b/why")[key].get_array().value()) words += text(one) + " ";
    return words;
  };
  who_answers_ = [](const std::string&, CommandKind) { return Answers::kUnknown; };
  EXPECT_EQ(words_of("answers"), "detail stacks profiles samples ");
  EXPECT_EQ(words_of("answers_unknown"), "detail stacks profiles samples ");
  who_answers_ = [](const std::string& host, CommandKind kind) {
    if (kind == CommandKind::kStacks) return Answers::kNo;
    return host == "node-0" && kind == CommandKind::kDetail ? Answers::kYes : Answers::kUnknown;
  };
  EXPECT_EQ(words_of("answers"), "detail profiles samples ");
  EXPECT_EQ(words_of("answers_unknown"), "profiles samples ") << "of detail one answers for sure";
}

TEST_F(ApiTest, JobsAreListedWorstFirst) {
  steps_.append_step(identity_of(0_rank, "a-fine"), step_of(1_step, false), clock_.unix_ns());
  steps_.append_step(identity_of(0_rank, "b-stuck"), step_of(1_step, false), clock_.unix_ns());
  steps_.append_step(identity_of(0_rank, "c-maybe"), step_of(1_step, false), clock_.unix_ns());
  steps_.append_step(identity_of(0_rank, "d-gone"), step_of(1_step, false), clock_.unix_ns() - 31'000'000'000);
  diagnosis_.list = {verdict_of("v1", "llama-70b", VerdictState::kConfirmed, VerdictKind::kSlow, 5),
                     verdict_of("v2", "b-stuck", VerdictState::kConfirmed, VerdictKind::kHang, 6),
                     verdict_of("v3", "c-maybe", VerdictState::kSuspected, VerdictKind::kSlow, 7),
                     verdict_of("v4", "a-fine", VerdictState::kCleared, VerdictKind::kSlow, 7)};
  element answer = json("/api/jobs");
  std::vector<std::pair<std::string, std::string>> list;
  for (element job : answer["jobs"].get_array()) list.emplace_back(text(job["job_id"]), text(job["health"]));
  EXPECT_EQ(list, (std::vector<std::pair<std::string, std::string>>{{"b-stuck", "hang"},
                                                                    {"llama-70b", "slow"},
                                                                    {"c-maybe", "suspected"},
                                                                    {"d-gone", "unknown"},
                                                                    {"a-fine", "ok"}}));
  EXPECT_EQ(answer["total"].get_int64().value(), 5);
  EXPECT_EQ(answer["shown"].get_int64().value(), 5);
  element two = json("/api/jobs", "limit=2");
  EXPECT_EQ(two["total"].get_int64().value(), 5);
  EXPECT_EQ(two["shown"].get_int64().value(), 2);
}

TEST_F(ApiTest, AJobSaysWhereItStands) {
  diagnosis_.list = {verdict_of("v1", "llama-70b", VerdictState::kConfirmed, VerdictKind::kSlow, 5),
                     verdict_of("v2", "llama-70b", VerdictState::kCleared, VerdictKind::kSlow, 4)};
  element job = json("/api/jobs/llama-70b");
  EXPECT_EQ(text(job["job_id"]), "llama-70b");
  EXPECT_EQ(job["attempt"].get_int64().value(), 0);
  EXPECT_EQ(job["world_size"].get_int64().value(), 4);
  EXPECT_EQ(job["ranks_seen"].get_int64().value(), 4);
  EXPECT_EQ(job["ranks_reporting"].get_int64().value(), 4);
  EXPECT_EQ(text(job["state"]), "running");
  EXPECT_EQ(job["last_step"].get_int64().value(), 9);
  EXPECT_EQ(number(job["step_ms"]), 100.0);
  EXPECT_EQ(job["last_seen_unix_ns"].get_int64().value(), clock_.unix_ns());
  EXPECT_EQ(text(job["health"]), "slow");
  EXPECT_EQ(text(job["sentence"]), "Verdict v1");
  EXPECT_EQ(job["verdicts_open"].get_int64().value(), 1);

  clock_.advance(31'000'000'000);
  EXPECT_EQ(text(json("/api/jobs/llama-70b")["state"]), "silent");
  for (Rank rank : all_ranks(4)) steps_.rank_ended(identity_of(rank), true, clock_.unix_ns());
  EXPECT_EQ(text(json("/api/jobs/llama-70b")["state"]), "ended");
}

TEST_F(ApiTest, WhyShowsVerdictsAndWhereTheTimeGoes) {
  diagnosis_.list = {verdict_of("v1", "llama-70b", VerdictState::kConfirmed, VerdictKind::kSlow, 5)};
  element why = json("/api/jobs/llama-70b/why");
  EXPECT_EQ(text(why["job"]["job_id"]), "llama-70b");
  EXPECT_EQ(text(why["health"]), "slow");
  EXPECT_EQ(text(why["summary"]), "Summary of llama-70b");
  EXPECT_EQ(why["verdicts"].get_array().size(), 1u);
  EXPECT_EQ(text(why["verdicts"].at(0)["id"]), "v1");
  // Of 39 rows of 100 ms: rank 2 (10 rows) 85 ms compute, others 55; 5 input; shortest communication 10 ms; others
  // wait 30.
  element parts = why["breakdown"];
  EXPECT_NEAR(number(parts["compute"]), (10 * 85 + 29 * 55) / 3900.0, 1e-4);
  EXPECT_NEAR(number(parts["waiting"]), 29 * 30 / 3900.0, 1e-4);
  EXPECT_NEAR(number(parts["communication"]), 0.1, 1e-4);
  EXPECT_NEAR(number(parts["input"]), 0.05, 1e-4);
  double total = 0;
  for (auto part : parts.get_object()) total += number(part.value);
  EXPECT_NEAR(total, 1, 1e-9);
}

TEST_F(ApiTest, PartsThatTheAgentCouldTellAreShownAsTheyAre) {
  for (Rank rank : all_ranks(2)) {
    StepSummary step = step_of(0_step, false);
    step.split_known = true;
    // compute, communication, input, host, checkpoint, idle
    step.split_ns = {50'000'000, 20'000'000, 2'000'000, 20'000'000, 7'000'000, 1'000'000};
    if (rank == 1_rank) step.split_ns = {60'000'000, 10'000'000, 2'000'000, 20'000'000, 7'000'000, 1'000'000};
    steps_.append_step(identity_of(rank, "split"), step, clock_.unix_ns());
  }
  element parts = json("/api/jobs/split/why")["breakdown"];
  const std::map<std::string, double> expected{{"compute", 0.55}, {"waiting", 0.05}, {"communication", 0.1},
                                               {"input", 0.02},   {"host", 0.2},     {"checkpoint", 0.07},
                                               {"idle", 0.01},    {"other", 0}};
  EXPECT_EQ(parts.get_object().size(), expected.size());
  for (const auto& [name, share] : expected) EXPECT_NEAR(number(parts[name]), share, 1e-9) << name;

  element steps = json("/api/jobs/split/steps");
  EXPECT_EQ(number(steps["compute_ms"].at(0)), 55);
  EXPECT_EQ(number(steps["host_ms"].at(0)), 20);
  EXPECT_EQ(number(steps["checkpoint_ms"].at(0)), 7);
  EXPECT_EQ(number(steps["idle_ms"].at(0)), 1);
  EXPECT_EQ(number(steps["other_ms"].at(0)), 0);
  EXPECT_EQ(number(steps["input_ms_rank"].at(0).at(0)), 5) << "the phase, hidden behind the GPU's work or not";

  element rank = json("/api/jobs/split/ranks")["ranks"].at(0);
  EXPECT_EQ(number(rank["exposed_ms"]), 20);
  EXPECT_EQ(number(rank["host_ms"]), 20);
  EXPECT_EQ(number(json("/api/jobs/split/ranks/1")["steps"].at(0)["parts_ms"]["communication"]), 10);
  EXPECT_TRUE(json("/api/jobs/llama-70b/ranks")["ranks"].at(0)["host_ms"].is_null()) << "nobody could tell";
  EXPECT_TRUE(json("/api/jobs/llama-70b/ranks/0")["steps"].at(0)["parts_ms"].is_null());
}

TEST_F(ApiTest, CostSharesAddToOneAndMoneyIsShownOnlyWhereThereIsAPrice) {
  for (StepNumber step = 10_step; step < 40_step; ++step) {
    for (Rank rank : all_ranks(4)) {
      StepSummary summary = step_of(step, rank == 2_rank);
      if (step >= 25_step) summary.duration_ns += 50'000'000;
      steps_.append_step(identity_of(rank), summary, clock_.unix_ns());
    }
  }
  Verdict verdict = verdict_of("v-1", "llama-70b", VerdictState::kConfirmed, VerdictKind::kSlow, 5);
  verdict.since_step = 25_step;
  verdict.through_step = 39_step;
  verdict.lost_share = 0.2;  // 30 of the 50 ms
  verdict.culprit = {.ranks = {2_rank}, .layer = Layer::kGpu, .cause = Cause::kThrottlePower};
  diagnosis_.list = {verdict};
  element cost = json("/api/jobs/llama-70b/cost");
  EXPECT_NEAR(number(cost["baseline_ms"]), 100, 1e-9);
  EXPECT_TRUE(cost["lost_money"].is_null());
  EXPECT_TRUE(cost["parts"].at(0)["lost_money"].is_null());
  double shares = 0;
  for (element part : cost["parts"].get_array()) shares += number(part["share"]);
  EXPECT_DOUBLE_EQ(shares, 1);
  EXPECT_EQ(text(cost["parts"].at(0)["verdict"]), "v-1");
  EXPECT_NEAR(number(cost["parts"].at(0)["share"]), 0.6, 1e-9);
  EXPECT_EQ(text(cost["parts"].at(1)["kind"]), "unexplained");
  EXPECT_NEAR(number(cost["lost_gpu_seconds"]), 15 * 0.05 * 4, 1e-9);
  prices_ = GpuPrices(3600);
  EXPECT_NEAR(number(json("/api/jobs/llama-70b/cost")["lost_money"]), 3, 1e-9);
  EXPECT_EQ(number(json("/api/jobs/llama-70b/cost", "last=5")["steps"]), 5);
  expect_error("/api/jobs/llama-70b/cost", "last=0", 400, "last");
  expect_error("/api/jobs/llama-71b/cost", "", 404, "llama-70b");
  expect_error("/api/jobs/llama-70b/cost", "first=1", 400, "not known here");
}

TEST_F(ApiTest, MfuSaysWhatIsMissingOrStepsDownToWhatWasAchieved) {
  element unknown = json("/api/jobs/llama-70b/mfu");
  EXPECT_TRUE(unknown["mfu"].is_null());
  EXPECT_EQ(text(unknown["flops"]["from"]), "unknown");
  EXPECT_NE(text(unknown["sentence"]).find("reports no FLOPs"), std::string::npos);
  for (StepNumber step = 0_step; step < 10_step; ++step) {
    for (Rank rank : all_ranks(4)) {
      StepSummary summary = step_of(step, rank == 2_rank);
      summary.split_known = true;
      summary.split_ns = {70'000'000, 25'000'000, 5'000'000, 0, 0, 0};
      summary.scalars = {{"flops", 3e12}, {"peak_flops", 100e12}};
      steps_.append_step(identity_of(rank), summary, clock_.unix_ns());
    }
  }
  element mfu = json("/api/jobs/llama-70b/mfu");
  EXPECT_NEAR(number(mfu["mfu"]), 0.3, 1e-9);
  EXPECT_NEAR(number(mfu["peak"]["tflops"]), 100, 1e-9);
  double sum = number(mfu["mfu"]);
  for (element bar : mfu["bars"].get_array()) sum += number(bar["points"]);
  EXPECT_NEAR(sum, 1, 1e-9);
  EXPECT_TRUE(mfu["change"].is_null());
  expect_error("/api/jobs/llama-70b/mfu", "last=501", 400, "last");
  expect_error("/api/jobs/nobody/mfu", "", 404, "nobody");
}

TEST_F(ApiTest, ARankShowsTheNumbersOfAStepAndItsMfuWhereFlopsAndPeakWereTold) {
  StepSummary step = step_of(0_step, false);
  step.duration_ns = 100'000'000;
  step.scalars = {{"flops", 3e12}, {"learning_rate", 1e-5}, {"loss", 2.5}, {"peak_flops", 60e12}};
  steps_.append_step(identity_of(0_rank, "told"), step, clock_.unix_ns());
  element reported = json("/api/jobs/told/ranks/0")["steps"].at(0);
  EXPECT_EQ(number(reported["scalars"]["loss"]), 2.5);
  EXPECT_EQ(number(reported["scalars"]["learning_rate"]), 1e-5);
  EXPECT_NEAR(number(reported["mfu"]), 0.5, 1e-9);
  EXPECT_TRUE(json("/api/jobs/llama-70b/ranks/0")["steps"].at(0)["mfu"].is_null()) << "nobody told";
}

TEST_F(ApiTest, AProfileOpensTheMfuBarOfKernelsByClass) {
  const auto bar_of_kernels = [&] {
    for (element bar : json("/api/jobs/llama-70b/mfu")["bars"].get_array())
      if (text(bar["key"]) == "kernels") return bar;
    return element{};
  };
  EXPECT_TRUE(bar_of_kernels()["by_bound"].error()) << "nobody has profiled it";
  kernel_classes_ = *kernel_classes_from_summary_untrusted(
      R"({"ranks":[{"by_bound_us":{"memory":30,"compute":10},"by_family_us":{"copy":40}}]})");
  const element bar = bar_of_kernels();
  ASSERT_EQ(bar["by_bound"].get_array().size(), 2u);
  EXPECT_EQ(text(bar["by_bound"].at(0)["key"]), "memory");
  EXPECT_EQ(number(bar["by_bound"].at(0)["share"]), 0.75);
  EXPECT_NEAR(number(bar["by_bound"].at(0)["points"]), 0.75 * number(bar["points"]), 1e-3);
  EXPECT_EQ(text(bar["by_family"].at(0)["key"]), "copy");
}

TEST_F(ApiTest, WhatAProfileSaysOfARankIsFoundAgainByItsClaim) {
  const ProfileFinding finding{.time_unix_ns = 5'000'000'000,
                               .capture = "p-0123456789ab",
                               .first_step = 2_step,
                               .steps = 5,
                               .reason = "fp32_instead_of_bf16",
                               .kernel = "sgemm",
                               .instead_of = "hgemm",
                               .sentence = "Rank 1 runs sgemm in fp32.",
                               .cost_us = 1'250,
                               .share = 0.2};
  Identity identity{"llama-70b", 0, 1_rank, 4, 1, "node", ""};
  steps_.append_log(std::make_shared<const Attributes>(to_resource(identity)), to_record(finding));
  const element said = json("/api/jobs/llama-70b/evidence", "of=profile&ranks=1&name=p-0123456789ab");
  EXPECT_EQ(number(said["value"]), 1.25);
  EXPECT_EQ(text(said["sentence"]), "Rank 1 runs sgemm in fp32.");
  EXPECT_EQ(text(said["kernel"]), "sgemm");
  EXPECT_TRUE(json("/api/jobs/llama-70b/evidence", "of=profile&ranks=2&name=p-0123456789ab")["value"].is_null());
  EXPECT_TRUE(json("/api/jobs/llama-70b/evidence", "of=profile&ranks=1&name=p-ffffffffffff")["value"].is_null());
  expect_error("/api/jobs/llama-70b/evidence", "of=profile&ranks=x", 400, "ranks");
}

struct NoAgents final : ProfileRequestSender {
  bool ask(const std::string&, const ProfileRequest&) override { return true; }
};

TEST_F(ApiTest, WhatAProfileSaysIsFoundInItsSummaryOnceItsRecordHasGone) {
  Capture capture{.order = {.job_id = "llama-70b", .capture = "p-0123456789ab", .steps = 5, .ranks = {1_rank}},
                  .begun_unix_ns = 5'000'000'000,
                  .by = "person",
                  .summary = {SummaryState::kReady, "", 1}};
  capture.order.limit_s = 60;
  capture.order.duration_ms = 1'000;
  capture.order.bytes_max = 1 << 20;
  capture.ranks = {{.rank = 1_rank, .state = ProfileState::kDone, .key = "default/llama-70b/f"}};
  JsonWriter stored;
  write_capture(stored, capture);
  ASSERT_TRUE(state_->save_capture({capture.order.capture, capture.begun_unix_ns, stored.text()}).ok());
  NoAgents agents;
  Captures captures({}, false, steps_, *state_, agents, clock_, counters_);
  captures_ = &captures;
  const std::string claim = "of=profile&ranks=1&name=p-0123456789ab";
  EXPECT_TRUE(json("/api/jobs/llama-70b/evidence", claim)["value"].is_null()) << "no files are kept here";
  blobs_ = open_directory_blob_store({folder_.path() + "/blobs"}, clock_, blob_counters_).value();
  EXPECT_TRUE(json("/api/jobs/llama-70b/evidence", claim)["value"].is_null()) << "its summary has gone";
  store_file({"llama-70b", "p-0123456789ab", std::string(kSummaryFile)},
             R"({"verdict":{"sentence":"Rank 1 runs gemm in fp32.","reason":"fp32_instead_of_bf16","ranks":[1],)"
             R"("kernel":"sgemm","instead_of":"hgemm","cost_us_per_step":1250,"share":0.21}})");
  const element said = json("/api/jobs/llama-70b/evidence", claim);
  EXPECT_EQ(number(said["value"]), 1.25);
  EXPECT_EQ(number(said["rank"]), 1);
  EXPECT_EQ(text(said["sentence"]), "Rank 1 runs gemm in fp32.");
  EXPECT_TRUE(json("/api/jobs/llama-70b/evidence", "of=profile&ranks=2&name=p-0123456789ab")["value"].is_null());
}

TEST_F(ApiTest, VerdictsOfAnEarlierRunAreShownButNeverOpenAndLiveOnesWin) {
  ASSERT_TRUE(
      state_->save_verdict(verdict_of("v1", "llama-70b", VerdictState::kSuspected, VerdictKind::kSlow, 5)).ok());
  ASSERT_TRUE(
      state_->save_verdict(verdict_of("old", "llama-70b", VerdictState::kConfirmed, VerdictKind::kSlow, 3)).ok());
  ASSERT_TRUE(
      state_->save_verdict(verdict_of("older", "job-of-last-week", VerdictState::kConfirmed, VerdictKind::kHang, 2))
          .ok());
  diagnosis_.list = {verdict_of("v1", "llama-70b", VerdictState::kConfirmed, VerdictKind::kSlow, 5)};
  element why = json("/api/jobs/llama-70b/why");
  ASSERT_EQ(why["verdicts"].get_array().size(), 2u);
  EXPECT_EQ(text(why["verdicts"].at(0)["state"]), "confirmed");
  EXPECT_EQ(text(why["verdicts"].at(1)["id"]), "old");
  EXPECT_EQ(text(why["verdicts"].at(1)["state"]), "cleared");
  element past = json("/api/jobs/job-of-last-week/why");
  EXPECT_EQ(text(past["verdicts"].at(0)["id"]), "older");
  EXPECT_EQ(text(past["job"]["state"]), "silent");
  EXPECT_TRUE(past["breakdown"].is_null());

  auto ids = [&](const std::string& query) {
    std::vector<std::string> list;
    for (element verdict : json("/api/verdicts", query)["verdicts"].get_array()) list.push_back(text(verdict["id"]));
    return list;
  };
  EXPECT_EQ(ids(""), (std::vector<std::string>{"v1"}));
  EXPECT_EQ(ids("state=open"), (std::vector<std::string>{"v1"}));
  EXPECT_EQ(ids("state=cleared"), (std::vector<std::string>{"old", "older"}));
  EXPECT_EQ(ids("state=all"), (std::vector<std::string>{"v1", "old", "older"}));
  element limited = json("/api/verdicts", "state=all&limit=1");
  EXPECT_EQ(limited["total"].get_int64().value(), 3);
  EXPECT_EQ(limited["shown"].get_int64().value(), 1);
}

TEST_F(ApiTest, WhatAPersonSaysOfAVerdictIsKeptShownAndCanBeTakenBack) {
  const std::string id = "llama-70b.0-slow-own-5.1";
  diagnosis_.list = {verdict_of(id, "llama-70b", VerdictState::kConfirmed, VerdictKind::kSlow, 5)};
  diagnosis_.list[0].culprit.cause = Cause::kSlowCompute;
  EXPECT_TRUE(json("/api/verdicts/" + id)["feedback"].is_null());
  HttpResponse answer =
      post("/api/verdicts/" + id + "/feedback", R"({"right": false, "cause": "ecc", "note": "swapped the GPU"})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(text(parse(answer)["feedback"]["cause"]), "ecc");
  element said = json("/api/jobs/llama-70b/why")["verdicts"].at(0)["feedback"];
  EXPECT_FALSE(said["right"].get_bool().value());
  EXPECT_EQ(text(said["said"]), "slow-compute");
  EXPECT_EQ(text(said["note"]), "swapped the GPU");
  EXPECT_EQ(said["at_unix_ns"].get_int64().value(), clock_.unix_ns());
  // The last word counts, and is there after a restart.
  ASSERT_EQ(post("/api/verdicts/" + id + "/feedback", R"({"right": true})").status, 200);
  feedback_ = std::make_unique<FeedbackStore>(*state_, counters_, nullptr);
  EXPECT_TRUE(json("/api/verdicts/" + id)["feedback"]["right"].get_bool().value());
  EXPECT_EQ(text(json("/api/verdicts/" + id)["feedback"]["cause"]), "");
  ASSERT_EQ(post("/api/verdicts/" + id + "/feedback", R"({"right": null})").status, 200);
  EXPECT_TRUE(json("/api/verdicts/" + id)["feedback"].is_null());
  EXPECT_TRUE(state_->feedback().empty());
  EXPECT_EQ(counters_.value("lockstep_feedback_total", "answer=\"wrong\""), 1);
  EXPECT_EQ(counters_.value("lockstep_feedback_total", "answer=\"taken_back\""), 1);
}

TEST_F(ApiTest, FeedbackThatMakesNoSenseIsRefusedWithOneLineAndCounted) {
  diagnosis_.list = {verdict_of("v1", "llama-70b", VerdictState::kConfirmed, VerdictKind::kSlow, 5)};
  auto refused = [&](const std::string& path, const std::string& body, int status, const std::string& part) {
    HttpResponse response = post(path, body);
    EXPECT_EQ(response.status, status) << response.body;
    EXPECT_NE(text(parse(response)["error"]).find(part), std::string::npos) << response.body;
  };
  refused("/api/verdicts/v2/feedback", R"({"right": true})", 404, "no verdict \"v2\"");
  refused("/api/verdicts/v1/feedback", R"({"right": false, "cause": "gremlins"})", 400, "no cause \"gremlins\"");
  refused("/api/verdicts/v1/feedback", "not json", 400, "feedback");
  refused("/api/verdicts/v1/feedback", std::string(100'000, ' '), 413, "too many");
  headers_ = {{"sec-fetch-site", "cross-site"}};
  refused("/api/verdicts/v1/feedback", R"({"right": true})", 403, "another site");
  EXPECT_TRUE(state_->feedback().empty());
  EXPECT_EQ(counters_.value("lockstep_feedback_refused_total", "reason=\"bad_body\""), 3);
  EXPECT_EQ(counters_.value("lockstep_feedback_refused_total", "reason=\"unknown_verdict\""), 1);
  EXPECT_EQ(counters_.value("lockstep_feedback_refused_total", "reason=\"other_site\""), 1);
  EXPECT_EQ(get("/api/verdicts/v1/feedback").status, 405);
  expect_error("/api/verdicts/nobody", "", 404, "no verdict \"nobody\"");
}

TEST_F(ApiTest, WarningsNameTheRankThatTheyWouldHit) {
  EarlyWarning gpu;
  gpu.id = "node-1/GPU-3/ecc_corrected";
  gpu.host = "node-1";
  gpu.gpu_uuid = "GPU-3";
  gpu.cause = Cause::kEcc;
  gpu.horizon_s = 7200;
  gpu.sentence = "GPU-3 of node-1: corrected memory errors rise; ecc expected in about 2 h.";
  gpu.next = {"move the job", "nvidia-smi -q -i GPU-3"};
  EarlyWarning adapter = gpu;
  adapter.id = "node-9/mlx5_0/symbol_errors";
  adapter.host = "node-9";
  adapter.gpu_uuid = "";
  adapter.device = "mlx5_0";
  adapter.sentence = "mlx5_0 of node-9: symbol errors of its link rise; nic-degraded expected in about 3 h.";
  EarlyWarning over = adapter;
  over.id = "node-1/mlx5_0/symbol_errors";
  over.host = "node-1";
  over.gone_unix_ns = 1;
  diagnosis_.ahead = {gpu, adapter, over};

  element all = json("/api/warnings");
  EXPECT_EQ(all["total"].get_int64().value(), 2);
  element first = all["warnings"].at(0);
  EXPECT_EQ(text(first["sentence"]),
            "GPU 1 of node-1 (rank 3 of llama-70b): corrected memory errors rise; ecc expected in about 2 h.");
  EXPECT_EQ(text(first["ranks"].at(0)["job_id"]), "llama-70b");
  EXPECT_EQ(first["ranks"].at(0)["rank"].get_int64().value(), 3);
  EXPECT_EQ(first["ranks_total"].get_int64().value(), 1);
  EXPECT_EQ(text(first["next"]["command"]), "nvidia-smi -q -i GPU-3");
  EXPECT_EQ(number(first["horizon_s"]), 7200);

  element ours = json("/api/warnings", "job=llama-70b");  // nobody of it runs on node-9
  ASSERT_EQ(ours["total"].get_int64().value(), 1);
  EXPECT_EQ(text(ours["warnings"].at(0)["id"]), gpu.id);
  EXPECT_EQ(json("/api/warnings", "state=all&job=llama-70b")["total"].get_int64().value(), 2);
  EXPECT_EQ(json("/api/jobs/llama-70b/why")["warnings"].get_array().value().size(), 1u);
  EXPECT_EQ(json("/api/warnings", "limit=1")["shown"].get_int64().value(), 1);
  expect_error("/api/warnings", "job=lama-70b", 404, "did you mean");
  expect_error("/api/warnings", "state=soon", 400, "raised or all");
}

TEST_F(ApiTest, StepsAreAMatrixOfRanksAndSteps) {
  element answer = json("/api/jobs/llama-70b/steps", "last=5");
  ASSERT_EQ(answer["steps"].get_array().size(), 5u);
  EXPECT_EQ(answer["steps"].at(0).get_int64().value(), 5);
  EXPECT_EQ(answer["ranks"].get_array().size(), 4u);
  EXPECT_EQ(text(answer["hosts"].at(3)), "node-1");
  EXPECT_EQ(number(answer["step_ms"].at(0)), 100);
  EXPECT_EQ(number(answer["communication_ms"].at(1)), 10);
  EXPECT_EQ(number(answer["waiting_ms"].at(1)), 22.5);
  EXPECT_EQ(number(answer["compute_ms"].at(1)), 62.5);
  EXPECT_EQ(number(answer["input_ms"].at(1)), 5);
  EXPECT_TRUE(answer["duration_ms"].at(3).at(0).is_null())
      << "nothing was heard of rank 3 in step 5: unknown, never zero";
  EXPECT_TRUE(answer["excess_ms"].at(3).at(0).is_null());
  EXPECT_EQ(number(answer["duration_ms"].at(3).at(1)), 100);
  EXPECT_EQ(number(answer["self_ms"].at(2).at(4)), 90);
  EXPECT_EQ(number(answer["excess_ms"].at(2).at(4)), 30);
  EXPECT_EQ(number(answer["excess_ms"].at(0).at(4)), 0);
  EXPECT_EQ(number(answer["input_ms_rank"].at(0).at(4)), 5);
  EXPECT_EQ(answer["total_steps"].get_int64().value(), 10);
  EXPECT_EQ(answer["shown"].get_int64().value(), 5);
  for (const char* name : {"duration_ms", "self_ms", "excess_ms", "input_ms_rank"}) {
    ASSERT_EQ(answer[name].get_array().size(), 4u);
    for (element row : answer[name].get_array()) EXPECT_EQ(row.get_array().size(), 5u);
  }
  element window = json("/api/jobs/llama-70b/steps", "from=2&to=3");
  EXPECT_EQ(window["steps"].get_array().size(), 2u);
  EXPECT_EQ(json("/api/jobs/llama-70b/steps", "from=1000&to=1499")["shown"].get_int64().value(), 0);
}

TEST_F(ApiTest, ACellWhoseRecordsWereLostIsUnknownAndNotMeasured) {
  for (Rank rank : all_ranks(4)) {
    StepSummary summary = step_of(10_step, false);
    if (rank == 1_rank) {
      summary.records_lost = 40;
      summary.self_ns = 99'000'000;  // what nobody recorded reads as own time
    }
    steps_.append_step(identity_of(rank), summary, clock_.unix_ns());
  }
  element answer = json("/api/jobs/llama-70b/steps", "from=10&to=10");
  EXPECT_TRUE(answer["excess_ms"].at(1).at(0).is_null());
  EXPECT_TRUE(answer["self_ms"].at(1).at(0).is_null());
  EXPECT_EQ(number(answer["duration_ms"].at(1).at(0)), 100) << "the host's clock says it";
  EXPECT_EQ(number(answer["excess_ms"].at(0).at(0)), 0) << "and nobody is compared with it";
  element ranks = json("/api/jobs/llama-70b/ranks", "last=1")["ranks"];
  EXPECT_EQ(ranks.at(0)["rank"].get_int64().value(), 1) << "nobody knows how it does";
  EXPECT_TRUE(ranks.at(0)["excess_ms"].is_null());
  EXPECT_EQ(number(ranks.at(0)["step_ms"]), 100);
}

TEST_F(ApiTest, EvidenceReturnsTheNumberOfAClaimOfThatRankAndThoseSteps) {
  element own = json("/api/jobs/llama-70b/evidence", "of=own_ms&ranks=2&steps=3-5,7");
  EXPECT_EQ(number(own["value"]), 90);
  EXPECT_EQ(text(own["unit"]), "ms");
  EXPECT_EQ(own["steps_known"].get_int64().value(), 4);
  EXPECT_EQ(number(own["steps"].at(3).at(1)), 90);
  EXPECT_EQ(number(json("/api/jobs/llama-70b/evidence", "of=late_ms&ranks=2&steps=3-5")["value"]), 30);
  EXPECT_EQ(number(json("/api/jobs/llama-70b/evidence", "of=steps&ranks=3&steps=4-6")["value"]), 2)
      << "step 5 of rank 3 never arrived";
  EXPECT_TRUE(json("/api/jobs/llama-70b/evidence", "of=own_ms&ranks=2&steps=77")["value"].is_null());
  expect_error("/api/jobs/llama-70b/evidence", "of=own_ms&ranks=2", 400, "which steps");
  expect_error("/api/jobs/nobody/evidence", "of=own_ms&ranks=2&steps=1", 404, "nobody");

  RankStatus status;
  status.time_unix_ns = clock_.unix_ns();
  status.quiet_ns = 12'000'000'000;
  status.comms.push_back({.comm_id = CommId{0x1a}, .size = 4, .collectives_enqueued = 41});
  steps_.append_status(identity_of(1_rank), status, clock_.unix_ns());
  EXPECT_EQ(number(json("/api/jobs/llama-70b/evidence", "of=quiet_s&ranks=1")["value"]), 12);
  const std::string then =
      format("of=quiet_s&ranks=1&at=%lld", static_cast<long long>(clock_.unix_ns() - 2'000'000'000));
  EXPECT_EQ(number(json("/api/jobs/llama-70b/evidence", then)["value"]), 10) << "as of then";
  EXPECT_TRUE(json("/api/jobs/llama-70b/evidence", "of=quiet_s&ranks=1&at=1")["value"].is_null())
      << "it has moved since";
  EXPECT_EQ(number(json("/api/jobs/llama-70b/evidence", "of=entered&ranks=1&comm=0x1a")["value"]), 41);
  EXPECT_TRUE(json("/api/jobs/llama-70b/evidence", "of=entered&ranks=0&comm=0x1a")["value"].is_null());
}

TEST_F(ApiTest, ASignalIsOfOneGpuOfOneHost) {
  expect_error("/api/signals", "signal=nonsense&host=node-0", 400, "not a signal");
  expect_error("/api/signals", "signal=sm_clock", 400, "host");
  expect_error("/api/signals", "signal=sm_clock&host=node-0", 400, "gpu");
  element nothing = json("/api/signals", "signal=sm_clock&host=node-0&gpu=GPU-0");
  EXPECT_TRUE(nothing["value"].is_null());
  EXPECT_EQ(text(nothing["unit"]), "GHz");
}

TEST_F(ApiTest, NumbersHaveThreeDecimals) {
  StepSummary odd = step_of(10_step, false);
  odd.duration_ns = 123'456'789;
  steps_.append_step(identity_of(0_rank), odd, clock_.unix_ns());
  std::string body = get("/api/jobs/llama-70b/steps", "from=10&to=10").body;
  EXPECT_NE(body.find("\"step_ms\":[123.457]"), std::string::npos) << body;
}

TEST_F(ApiTest, ALargeJobIsCutToTheFirstRanksAndSaysSo) {
  for (Rank rank : all_ranks(5000)) {
    Identity identity = identity_of(rank, "large");
    identity.world_size = 5000;
    steps_.append_step(identity, step_of(0_step, rank == 4999_rank), clock_.unix_ns());
  }
  element answer = json("/api/jobs/large/steps");
  EXPECT_EQ(answer["ranks"].get_array().size(), 4096u);
  EXPECT_EQ(answer["ranks_total"].get_int64().value(), 5000);
  EXPECT_EQ(answer["ranks_shown"].get_int64().value(), 4096);
  element rest = json("/api/jobs/large/steps", "rank_from=4096");
  EXPECT_EQ(rest["ranks"].at(0).get_int64().value(), 4096);
  EXPECT_EQ(rest["ranks_shown"].get_int64().value(), 904);
  EXPECT_EQ(number(rest["excess_ms"].at(903).at(0)), 30) << "against the median of all ranks, shown or not";
}

TEST_F(ApiTest, RanksAreListedWorstFirst) {
  RankStatus status;
  status.step = 10_step;
  status.quiet_ns = 5'000'000'000;
  steps_.append_status(identity_of(1_rank), status, clock_.unix_ns());
  steps_.rank_ended(identity_of(0_rank), false, clock_.unix_ns());
  element answer = json("/api/jobs/llama-70b/ranks", "last=4");
  EXPECT_EQ(answer["from_step"].get_int64().value(), 6);
  EXPECT_EQ(answer["to_step"].get_int64().value(), 9);
  EXPECT_EQ(answer["total"].get_int64().value(), 4);
  element worst = answer["ranks"].at(0);
  EXPECT_EQ(worst["rank"].get_int64().value(), 2);
  EXPECT_EQ(text(worst["host"]), "node-1");
  EXPECT_EQ(worst["local_rank"].get_int64().value(), 0);
  EXPECT_EQ(text(worst["gpu_uuid"]), "GPU-2");
  EXPECT_EQ(worst["steps"].get_int64().value(), 4);
  EXPECT_EQ(number(worst["step_ms"]), 100);
  EXPECT_EQ(number(worst["self_ms"]), 90);
  EXPECT_EQ(number(worst["excess_ms"]), 30);
  EXPECT_EQ(number(worst["comm_ms"]), 10);
  EXPECT_EQ(number(worst["input_ms"]), 5);
  EXPECT_EQ(text(worst["status"]), "ok");
  std::map<int64_t, std::string> status_of;
  for (element rank : answer["ranks"].get_array()) status_of[rank["rank"].get_int64().value()] = text(rank["status"]);
  EXPECT_EQ(status_of[0], "failed");
  EXPECT_EQ(status_of[1], "quiet");
  clock_.advance(31'000'000'000);
  EXPECT_EQ(text(json("/api/jobs/llama-70b/ranks")["ranks"].at(0)["status"]), "silent");
}

TEST_F(ApiTest, ARankShowsItsStepsCommunicatorsFlowsAndWhereItStands) {
  steps_.append_comm(identity_of(2_rank),
                     {.comm_id = CommId{0x1a}, .size = 4, .rank_in_comm = 2, .nodes = 2, .name = "world"},
                     clock_.unix_ns());
  RankStatus status;
  status.quiet_ns = 1'500'000;
  status.phase = Phase::kForward;
  status.comms.push_back({.comm_id = CommId{0x1a},
                          .size = 4,
                          .collectives_enqueued = 7,
                          .collectives_completed = 6,
                          .collective = {.state = OpState::kStarted, .ordinal = 7, .function = "AllReduce"},
                          .launched = 9,
                          .proxy = {.state = "peer", .peer = 3}});
  steps_.append_status(identity_of(2_rank), status, clock_.unix_ns());
  element rank = json("/api/jobs/llama-70b/ranks/2", "last=3");
  EXPECT_EQ(text(rank["host"]), "node-1");
  EXPECT_EQ(rank["steps"].get_array().size(), 3u);
  element step = rank["steps"].at(2);
  EXPECT_EQ(step["step"].get_int64().value(), 9);
  EXPECT_EQ(number(step["self_ms"]), 90);
  EXPECT_EQ(number(step["phases_ms"]["forward"]), 20);
  EXPECT_EQ(text(step["comms"].at(0)["comm_id"]), "0x1a");
  EXPECT_EQ(number(step["comms"].at(0)["gb_s"]), 2);
  EXPECT_EQ(step["comms"].at(0)["p2p"].get_bool().value(), false);
  EXPECT_EQ(number(step["flows"].at(0)["wire_ms"]), 1.5);
  EXPECT_EQ(text(rank["communicators"].at(0)["name"]), "world");
  EXPECT_EQ(number(rank["status"]["quiet_ms"]), 1.5);
  EXPECT_EQ(text(rank["status"]["phase"]), "forward");
  EXPECT_EQ(text(rank["status"]["comms"].at(0)["collective"]["state"]), "started");
  EXPECT_EQ(rank["status"]["comms"].at(0)["launched"].get_int64().value(), 9);
  EXPECT_EQ(text(rank["status"]["comms"].at(0)["network"]["waits_for"]), "peer");
  EXPECT_TRUE(json("/api/jobs/llama-70b/ranks/0")["status"].is_null());
  expect_error("/api/jobs/llama-70b/ranks/17", "", 404, "rank 17");
  expect_error("/api/jobs/llama-70b/ranks/two", "", 400, "whole number");
}

TEST_F(ApiTest, AgentsSayWhenTheyWereLastHeardOfAndWhatTheyLost) {
  agents_.seen("node-0", clock_.unix_ns() - 40'000'000'000, 0);
  agents_.seen("node-1", clock_.unix_ns(), 12);
  element answer = json("/api/agents");
  EXPECT_EQ(answer["total"].get_int64().value(), 2);
  EXPECT_EQ(text(answer["agents"].at(0)["status"]), "silent");
  EXPECT_EQ(text(answer["agents"].at(1)["host"]), "node-1");
  EXPECT_EQ(answer["agents"].at(1)["records_lost"].get_int64().value(), 12);
  element one = json("/api/agents", "host=node-0");
  EXPECT_EQ(one["total"].get_int64().value(), 1);
  EXPECT_EQ(number(one["agents"].at(0)["silent_s"]), 40);
}

TEST_F(ApiTest, CardinalitySaysWhoMadeTheSeriesAndWhatWasRefused) {
  element answer = json("/api/cardinality");
  EXPECT_EQ(answer["series"].get_int64().value(), 7);
  EXPECT_EQ(text(answer["metrics"].at(0)["name"]), "up");
  EXPECT_EQ(answer["metrics"].at(0)["series"].get_int64().value(), 4);
  EXPECT_EQ(answer["refused_samples"]["label_forbidden"].get_int64().value(), 3);
  expect_error("/api/cardinality", "limit=0", 400, "from 1 to 1000");
  std::string senders;
  for (element one : json("/api/cardinality")["streams"]) senders += text(one["name"]) + "\n";
  EXPECT_EQ(senders,
            "OTLP from node-1, rank 43\nOTLP from node-1, GPU-1\nOTLP from host.name    node-9\nOTLP, without a "
            "name\nremote write of n1:9100, "
            "job node, tenant team\n"
            "scraped from n2:9400\nrollup llama\n");
}

TEST_F(ApiTest, MetricsAreFoundByExactName) {
  for (int64_t time = 1; time <= 5; ++time)
    metrics_.add({{"__name__", "gpu_power_watts"}, {"host", "node-0"}}, time * 10, 300.5);
  metrics_.add({{"__name__", "gpu_power_watts"}, {"host", "node-1"}}, 10, std::numeric_limits<double>::quiet_NaN());
  metrics_.add_metadata({"gpu_power_watts", "gauge", "What it draws. (OTLP gpu.power)", "W"});
  element names = json("/api/metrics");
  EXPECT_EQ(text(names["names"].at(0)), "gpu_power_watts");
  element answer = json("/api/metrics", "name=gpu_power_watts&from=20000000&to=30000000");
  EXPECT_EQ(answer["total"].get_int64().value(), 1);
  element series = answer["series"].at(0);
  EXPECT_EQ(text(series["labels"]["host"]), "node-0");
  EXPECT_EQ(text(series["kind"]), "gauge");
  EXPECT_EQ(text(series["unit"]), "W");
  EXPECT_EQ(series["points"].get_array().size(), 2u);
  EXPECT_EQ(series["points"].at(0).at(0).get_int64().value(), 20'000'000);
  EXPECT_EQ(number(series["points"].at(0).at(1)), 300.5);
  element limited = json("/api/metrics", "name=gpu_power_watts&limit=1");
  EXPECT_EQ(limited["total"].get_int64().value(), 2);
  EXPECT_EQ(limited["shown"].get_int64().value(), 1);
  // By its OTLP name as well.
  EXPECT_TRUE(json("/api/metrics", "name=gpu.power")["series"].at(1)["points"].at(0).at(1).is_null());
}

TEST_F(ApiTest, LogsAndSpansCarryTheirAttributes) {
  auto resource = std::make_shared<const Attributes>(Attributes{{"service.name", "app"}, {"pid", 7}});
  LogRecord record;
  record.observed_unix_ns = 77;
  record.severity = 9;
  record.event_name = "thing.done";
  record.body = Value("a \"quoted\" body");
  record.attributes = {{"n", 1}, {"list", ValueList{Value(1), Value("two")}}};
  steps_.append_log(resource, record);
  element log = json("/api/logs", "service=app&event=thing.done&limit=5")["logs"].at(0);
  EXPECT_EQ(log["time_unix_ns"].get_int64().value(), 77);
  EXPECT_EQ(text(log["service"]), "app");
  EXPECT_EQ(text(log["body"]), "a \"quoted\" body");
  EXPECT_EQ(text(log["attributes"]["list"].at(1)), "two");
  EXPECT_EQ(log["resource"]["pid"].get_int64().value(), 7);
  EXPECT_EQ(json("/api/logs", "service=nobody")["total"].get_int64().value(), 0);
  steps_.append_log(std::make_shared<const Attributes>(to_resource(identity_of(3_rank))), record);
  EXPECT_EQ(json("/api/logs", "event=thing.done")["total"].get_int64().value(), 2);
  EXPECT_EQ(json("/api/logs", "event=thing.done&host=node-1")["total"].get_int64().value(), 1);
  EXPECT_EQ(json("/api/logs", "event=thing.done&gpu=GPU-3&from=77&to=77")["total"].get_int64().value(), 1);
  EXPECT_EQ(json("/api/logs", "event=thing.done&job=llama-70b&rank=3")["total"].get_int64().value(), 1);
  EXPECT_EQ(json("/api/logs", "event=thing.done&job=llama-70b&rank=2")["total"].get_int64().value(), 0);
  EXPECT_EQ(json("/api/logs", "event=thing.done&from=78")["total"].get_int64().value(), 0);

  Span span;
  span.trace_id[0] = 0xAB;
  span.span_id[7] = 1;
  span.name = "step";
  span.kind = 1;
  span.start_unix_ns = 5;
  span.end_unix_ns = 9;
  span.events.push_back({6, "mark", {{"x", true}}});
  spans_.append({.resource = *resource, .spans = {span}}, 9);
  element found = json("/api/spans", "trace_id=AB000000000000000000000000000000")["spans"].at(0);
  EXPECT_EQ(text(found["trace_id"]), "ab000000000000000000000000000000");
  EXPECT_EQ(text(found["span_id"]), "0000000000000001");
  EXPECT_EQ(text(found["parent_span_id"]), "");
  EXPECT_EQ(text(found["name"]), "step");
  EXPECT_EQ(found["events"].at(0)["attributes"]["x"].get_bool().value(), true);
}

TEST_F(ApiTest, AnUnknownJobIs404WithASuggestionWhereOneIsNear) {
  for (const char* tail : {"", "/why", "/steps", "/ranks", "/ranks/0"})
    expect_error(std::string("/api/jobs/lama-70b") + tail, "", 404, "did you mean \"llama-70b\"?");
  HttpResponse response = get("/api/jobs/lama-70b");
  EXPECT_EQ(text(parse(response)["did_you_mean"]), "llama-70b");
  expect_error("/api/jobs/completely-different", "", 404, "/api/jobs lists all");
  expect_error("/api/jobs/" + std::string(5000, 'x'), "", 404, "no job");
}

TEST_F(ApiTest, AJobIdMayHoldASlash) {
  steps_.append_step(identity_of(0_rank, "team/bert"), step_of(1_step, false), clock_.unix_ns());
  EXPECT_EQ(text(json("/api/jobs/team/bert")["job_id"]), "team/bert");
  EXPECT_EQ(text(json("/api/jobs/team/bert/why")["job"]["job_id"]), "team/bert");
  EXPECT_EQ(text(json("/api/jobs/team/bert/ranks/0")["job_id"]), "team/bert");
}

TEST_F(ApiTest, BadParametersAreRefusedWithWhatIsAllowed) {
  expect_error("/api/jobs/llama-70b/steps", "last=0", 400, "from 1 to 500");
  expect_error("/api/jobs/llama-70b/steps", "last=501", 400, "from 1 to 500");
  expect_error("/api/jobs/llama-70b/steps", "last=ten", 400, "whole number");
  expect_error("/api/jobs/llama-70b/steps", "last=99999999999999999999", 400, "whole number");
  expect_error("/api/jobs/llama-70b/steps", "from=5", 400, "come together");
  expect_error("/api/jobs/llama-70b/steps", "from=5&to=4", 400, "window of 1 to 500");
  expect_error("/api/jobs/llama-70b/steps", "from=0&to=500", 400, "window of 1 to 500");
  expect_error("/api/jobs/llama-70b/steps", "from=0&to=9223372036854775807", 400, "window of 1 to 500");
  expect_error("/api/jobs/llama-70b/steps", "from=0&to=10&last=5", 400, "not both");
  expect_error("/api/jobs/llama-70b/steps", "lats=5", 400, "known: last, from, to, rank_from");
  expect_error("/api/jobs/llama-70b/ranks", "last=-1", 400, "from 1 to 500");
  expect_error("/api/verdicts", "state=shut", 400, "open, cleared or all");
  expect_error("/api/metrics", "name=x&limit=1001", 400, "from 1 to 1000");
  expect_error("/api/logs", "limit=0", 400, "from 1 to 10000");
  expect_error("/api/spans", "trace_id=zz", 400, "32 hex digits");
  expect_error("/api/nothing", "", 404, "no such path");
  expect_error("/api", "", 404, "no such path");
  expect_error("/api/jobs/", "", 404, "no such path");
}

TEST_F(ApiTest, OnlyGetIsServed) {
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "HEAD"}) {
    HttpResponse response = get("/api/jobs", "", method);
    EXPECT_EQ(response.status, 405) << method;
    EXPECT_EQ(response.header("allow"), "GET");
    EXPECT_TRUE(response.header("access-control-allow-origin").empty());
  }
}

TEST_F(ApiTest, UntilRecoveryIsDoneItIsAliveButNotReady) {
  ready_ = false;
  EXPECT_EQ(get("/healthz").status, 200);
  EXPECT_EQ(get("/readyz").status, 503);
  EXPECT_EQ(get("/api/jobs").status, 503);
  EXPECT_EQ(get("/metrics").status, 200);
  ready_ = true;
  EXPECT_EQ(get("/readyz").body, "ok\n");
  EXPECT_EQ(get("/readyz", "format=json").body, "{\"ready\":true,\"checks\":[]}");
  EXPECT_NE(get("/metrics").body.find("\nlockstep_store_rows{table=\"steps\"} 39\n"), std::string::npos);
}

TEST_F(ApiTest, ReadyzIsFalseWhileACheckFailsAndSaysWhich) {
  Counters counters(kServerCounters);
  Readiness readiness(counters);
  std::optional<std::string> disk = "the disk is full", clock = "an hour off";
  readiness.add({"disk", [&] { return disk; }});
  readiness.add({"clock", [&] { return clock; }, true});
  readiness_ = &readiness;
  EXPECT_EQ(get("/readyz").status, 503);
  EXPECT_EQ(get("/readyz").body, "disk: the disk is full\n");
  EXPECT_EQ(get("/readyz", "format=json").status, 503);
  EXPECT_EQ(get("/readyz", "format=json").body,
            "{\"ready\":false,\"checks\":[{\"name\":\"disk\",\"ok\":false,\"problem\":\"the disk is full\",\"warning\":"
            "false},{\"name\":\"clock\",\"ok\":false,\"problem\":\"an hour off\",\"warning\":true}]}");
  EXPECT_EQ(get("/api/jobs").status, 200);  // what is stored is still read
  disk.reset();
  EXPECT_EQ(get("/readyz").status, 200);
  EXPECT_EQ(get("/readyz").body, "ok\nwarning: clock: an hour off\n");
}

TEST_F(ApiTest, EveryRouteOfTheTableAnswers) {
  // Something for the routes that show a step, a trace or a service.
  StepDetail detail;
  detail.step = 7_step;
  detail.start_unix_ns = clock_.unix_ns();
  detail.duration_ns = 100'000'000;
  ResourceGroup group;
  group.resource = to_resource(identity_of(0_rank));
  group.spans = to_spans(identity_of(0_rank), detail, SampledFor::kPeriodic);
  spans_.append(group, clock_.unix_ns());
  group.resource = {{"service.name", "vllm"}};
  group.spans.resize(1);
  group.spans[0].trace_id = TraceId{1};
  spans_.append(group, clock_.unix_ns());
  const std::string trace_id = to_hex(step_trace_id("llama-70b", 0, 7_step));
  diagnosis_.list = {verdict_of("v1", "llama-70b", VerdictState::kConfirmed, VerdictKind::kSlow, 5)};
  for (const Route& route : routes()) {
    if (std::string_view(route.method) != "GET") continue;  // what changes something has tests of its own
    if (route.handler == prometheus_federate || std::string_view(route.pattern).starts_with("/prometheus/") ||
        std::string_view(route.pattern).starts_with("/loki/"))
      continue;  // api/prometheus/prometheus_test.cc, api/loki/loki_test.cc
    std::string path = route.pattern;
    auto put = [&](const std::string& segment, const std::string& value) {
      if (size_t at = path.find(segment); at != std::string::npos) path.replace(at, segment.size(), value);
    };
    put("{job}", "llama-70b");
    put("{rank}", "0");
    put("{step}", "7");
    put("{capture}", "p-0123456789ab");
    put("{file}", "rank-0.json.gz");
    put("/traces/{name}", "/traces/" + trace_id);
    put("/tag/{name}", "/tag/service.name");
    put("/verdicts/{name}", "/verdicts/v1");
    put("/nodes/{name}", "/nodes/node-0");
    put("/gpus/{name}", "/gpus/GPU-0");
    put("{name}", "vllm");
    const bool is_of_service = path.ends_with("/operations") || path == "/jaeger/api/traces";
    const std::string query = is_of_service                      ? "service=vllm"
                              : path == "/jaeger/api/v3/traces"  ? "query.service_name=vllm"
                              : path == "/api/fabric/path"       ? "a=node-0:gpu0&b=node-0:gpu1"
                              : path == "/api/fabric/affected"   ? "component=host:node-0"
                              : path == "/api/graph"             ? "focus=node-0"
                              : path.starts_with("/prometheus/") ? "query=up&start=1&end=2&step=1&match[]=up"
                                                                 : "";
    const bool is_file = path.find("/files") != std::string::npos;
    const bool is_refused = path.starts_with("/tempo/api/metrics/") ||  // and says so
                            path == "/api/alerts" || path == "/api/silences" ||
                            path == "/api/actions" ||              // tests/system/test_alerts.py
                            path.starts_with("/api/sle") ||        // tests/system/test_sle.py
                            path.starts_with("/api/incidents") ||  // tests/system/test_incidents.py
                            (!is_file && path.find("/profiles") != std::string::npos);  // tests/system/test_profiles.py
    const bool is_off = path.starts_with("/api/session/oidc") || is_file;               // nobody configured it
    EXPECT_EQ(get(path, query).status, is_refused ? 501 : is_off ? 404 : 200) << path;
    EXPECT_FALSE(std::string(route.help).empty());
  }
}

TEST_F(ApiTest, AnUnknownPartOfTheFabricIsOneClearLine) {
  EXPECT_EQ(get("/api/fabric/path", "a=node-0:gpu0").status, 400);
  EXPECT_EQ(get("/api/fabric/path", "a=node-0:gpu0&b=node-0:gpu1&qp=5").status, 400);
  const HttpResponse missing = get("/api/fabric/path", "a=node-0:gpu0&b=node-0:gpu7");
  EXPECT_EQ(missing.status, 404);
  EXPECT_NE(missing.body.find("node-0 has no \\\"gpu7\\\""), std::string::npos) << missing.body;
  EXPECT_EQ(get("/api/graph", "focus=nothing").status, 404);
  EXPECT_EQ(get("/api/graph", "focus=node-0&depth=99").status, 400);
  EXPECT_EQ(get("/api/graph", "focus=node-0&window=0").status, 400);
  EXPECT_EQ(get("/api/graph", "focus=version:driver%20570").status, 404);
  EXPECT_EQ(get("/api/fabric/affected", "component=nothing").status, 404);
  EXPECT_EQ(get("/api/fabric/changes", "limit=0").status, 400);
  EXPECT_EQ(get("/api/fabric/changes", "from=5&to=3").status, 400);
}

TEST_F(ApiTest, ChangesAreListedNewestFirstWithHowLongBeforeAMomentTheyCame) {
  const int64_t second = 1'000'000'000, now = clock_.unix_ns();
  const auto driver = [&](const char* version, int64_t at) {
    const MetricPoint point{
        .name = "lockstep_gpu_info", .attributes = {{"gpu_uuid", "GPU-0"}, {"driver", version}}, .value = 1};
    fabric_.versions.on_metrics({{"host.name", "node-0"}}, {{point}}, at);
  };
  driver("550.90", now - 900 * second);
  driver("560.10", now - 300 * second);
  driver("570.20", now - 100 * second);
  const std::string began = format("&began=%lld", static_cast<long long>(now - 60 * second));
  const HttpResponse two = get("/api/fabric/changes", "component=host:node-0&what=driver" + began);
  ASSERT_EQ(two.status, 200) << two.body;
  EXPECT_NE(
      two.body.find(R"("component":"host:node-0","what":"driver","before":"560.10","after":"570.20","before_s":40)"),
      std::string::npos)
      << two.body;
  EXPECT_NE(two.body.find(R"("total":2,"shown":2)"), std::string::npos) << two.body;
  const std::string from = format("from=%lld", static_cast<long long>(now - 200 * second));
  EXPECT_NE(get("/api/fabric/changes", from).body.find(R"("total":1,"shown":1)"), std::string::npos);
  EXPECT_NE(get("/api/fabric/changes", "component=host:node-1").body.find(R"("total":0,"shown":0)"), std::string::npos);

  const HttpResponse graph = get("/api/graph", "focus=node-0&depth=1");
  EXPECT_NE(graph.body.find(R"("from":"host:node-0","to":"version:driver 570.20","kind":"changed-at")"),
            std::string::npos)
      << graph.body;
  const HttpResponse of_version = get("/api/graph", "focus=version:driver%20570.20&depth=1&window=200");
  EXPECT_NE(of_version.body.find(R"("id":"host:node-0")"), std::string::npos) << of_version.body;
  EXPECT_EQ(get("/api/graph", "focus=version:driver%20570.20&window=50").status, 404) << "that is longer ago";
}

TEST_F(ApiTest, AFileOfACaptureIsListedReadWholeOrInPartAndRemoved) {
  const std::string capture = "/api/jobs/team/llama/profiles/p-0123456789ab", file = capture + "/files/rank-0.json.gz";
  EXPECT_EQ(get(file).status, 404);
  blobs_ = open_directory_blob_store({folder_.path() + "/blobs"}, clock_, blob_counters_).value();
  EXPECT_EQ(get(file).status, 404);
  const BlobKey key{"team/llama", "p-0123456789ab", "rank-0.json.gz"};
  const std::string content = "0123456789", sum = to_text(sha256(content));
  ASSERT_TRUE(blobs_->begin(key, 1).ok());
  const std::vector<BlobPart> parts{*blobs_->put_part(key, 1, content, sum)};
  ASSERT_TRUE(blobs_->finish(key, sum, parts).ok());

  const HttpResponse list = get(capture + "/files");
  EXPECT_NE(list.body.find(R"({"files":[{"file":"rank-0.json.gz","bytes":10,)"), std::string::npos) << list.body;
  const auto read = [&](const std::string& range) {
    headers_ = {{"range", range}};
    const HttpResponse response = get(file);
    return std::to_string(response.status) + " " + std::string(response.header("content-range")) + " " +
           (response.source ? *response.source->read(0, 100) : "");
  };
  EXPECT_EQ(read(""), "200  0123456789");
  EXPECT_EQ(read("bytes=2-4"), "206 bytes 2-4/10 234");
  EXPECT_EQ(read("bytes=7-"), "206 bytes 7-9/10 789");
  EXPECT_EQ(read("bytes=-3"), "206 bytes 7-9/10 789");
  EXPECT_EQ(read("bytes=0-18446744073709551615"), "206 bytes 0-9/10 0123456789");
  EXPECT_EQ(read("bytes=10-"), "416 bytes */10 ");
  EXPECT_EQ(read("bytes=-0"), "416 bytes */10 ");
  for (const char* odd : {"bytes=4-2", "bytes=a-b", "bytes=1-2,4-5", "lines=1-2", "bytes=", "bytes=-"})
    EXPECT_EQ(read(odd), "200  0123456789") << odd;
  headers_.clear();
  EXPECT_EQ(get("/api/jobs/j/profiles/p-1/files").status, 400);
  EXPECT_EQ(get(capture + "/files/.hidden").status, 400);
  EXPECT_EQ(get("/api/jobs/other/profiles/p-0123456789ab/files/rank-0.json.gz").status, 404);
  EXPECT_EQ(get(capture + "/remove", "", "POST").body, R"({"removed":1,"bytes":10})");
  EXPECT_EQ(get(file).status, 404);
}

TEST_F(ApiTest, WhatTheRanksOfAHangHaveLeftIsListedWithItsVerdictAndCanBeFetched) {
  diagnosis_.list = {verdict_of("v1", "stuck", VerdictState::kConfirmed, VerdictKind::kHang, 6),
                     verdict_of("v2", "stuck", VerdictState::kConfirmed, VerdictKind::kSlow, 7)};
  EXPECT_EQ(get("/api/verdicts/v1").body.find("\"files\""), std::string::npos) << "no files are kept here";
  blobs_ = open_directory_blob_store({folder_.path() + "/blobs"}, clock_, blob_counters_).value();
  EXPECT_EQ(json("/api/verdicts/v1")["files"].get_array().value().size(), 0u);
  const std::string id = evidence_id("stuck", diagnosis_.list[0].attempt), content = "dump";
  for (const char* file : {"rank-3-dump-1763400000.pickle.gz", "somebody-elses"})
    store_file({"stuck", id, file}, content);
  const element files = json("/api/verdicts/v1")["files"];
  ASSERT_EQ(files.get_array().value().size(), 1u);
  EXPECT_EQ(number(files.at(0)["rank"]), 3);
  EXPECT_EQ(text(files.at(0)["kind"]), "dump");
  const HttpResponse fetched = get(text(files.at(0)["query"]));
  EXPECT_EQ(fetched.status, 200) << fetched.body;
  EXPECT_EQ(*fetched.source->read(0, 100), "dump");
  EXPECT_TRUE(json("/api/verdicts/v2")["files"].error()) << "a slow rank leaves none";
  // A start of the server finds them again.
  blobs_.reset();
  blobs_ = open_directory_blob_store({folder_.path() + "/blobs"}, clock_, blob_counters_).value();
  EXPECT_EQ(json("/api/verdicts/v1")["files"].get_array().value().size(), 1u);
}

TEST_F(ApiTest, TheFilesOfAnAttemptAreListedOnceForAllItsVerdictsAndCountedBeyondWhatIsShown) {
  steps_.append_step(identity_of(0_rank, "stuck"), step_of(1_step, false), clock_.unix_ns());
  for (const char* id : {"v1", "v2", "v3"})
    diagnosis_.list.push_back(verdict_of(id, "stuck", VerdictState::kConfirmed, VerdictKind::kHang, 6));
  blobs_ = open_directory_blob_store({folder_.path() + "/blobs"}, clock_, blob_counters_).value();
  const std::string id = evidence_id("stuck", diagnosis_.list[0].attempt);
  for (int rank = 0; rank < 258; ++rank)
    store_file({"stuck", id, to_text(EvidenceFileName{EvidenceFileKind::kDump, Rank{rank}, 1})}, "dump");
  testing::CountingBlobStore counting(*blobs_);
  counting_ = &counting;
  const element verdicts = json("/api/jobs/stuck/why")["verdicts"];
  EXPECT_EQ(counting.listed, 1);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(verdicts.at(i)["files"].get_array().value().size(), 256u);
    EXPECT_EQ(number(verdicts.at(i)["files_total"]), 258);
  }
}

TEST_F(ApiTest, ABackupIsHeldReadInPiecesAndReleased) {
  const HttpResponse held = get("/api/backup", "", "POST");
  EXPECT_EQ(held.status, 200);
  EXPECT_NE(held.body.find(R"("id":"b1")"), std::string::npos) << held.body;
  EXPECT_NE(held.body.find(R"("files":[{"name":"log/1.log","bytes":9,"stamp":"s-1","grows":true}])"), std::string::npos)
      << held.body;
  const HttpResponse piece = get("/api/backup/file", "id=b1&name=log%2F1.log&from=4&bytes=5");
  EXPECT_EQ(piece.body, "b1log/1.log+4+5");
  EXPECT_EQ(piece.header("x-lockstep-crc32c"), format("%08x", crc32c(piece.body)));
  EXPECT_EQ(get("/api/backup/file", "id=gone&name=x").status, 404);
  EXPECT_EQ(get("/api/backup/file", "id=b1&name=x&bytes=8388609").status, 400);
  EXPECT_EQ(get("/api/backup/release", "id=b1", "POST").status, 200);
  EXPECT_EQ(backup_.released, "b1");
  backup_.why_not = "no backup: the disk is full";
  const HttpResponse refused = get("/api/backup", "", "POST");
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.body.find("the disk is full"), std::string::npos) << refused.body;
}

TEST_F(ApiTest, ATokenIsShownOnceAndTheAuditLogHasItsIdAndNotItsSecret) {
  HttpResponse made = post("/api/tokens", R"({"roles": "admin", "name": "root"})");
  ASSERT_EQ(made.status, 200) << made.body;
  const std::string secret = text(parse(made)["token"]), id = text(parse(made)["id"]);
  EXPECT_EQ(tokens_->find(secret)->tenants, (std::vector<std::string>{"*"}));
  for (const char* path : {"/api/tokens", "/api/audit"})
    EXPECT_EQ(get(path).body.find(secret), std::string::npos) << path;
  const AuditRow row = audit_->read({.all_tenants = true, .action = "POST /api/tokens"})->at(0);
  EXPECT_EQ(row.object, id);
  EXPECT_EQ(row.status, 200);
  EXPECT_EQ(row.peer, "203.0.113.9:5123");
  EXPECT_EQ(post("/api/tokens/" + secret + "/revoke", "{}").status, 404);
  EXPECT_EQ(audit_->read({.all_tenants = true})->at(0).object, "");
  EXPECT_EQ(post("/api/tokens/" + id + "/revoke", "{}").status, 200);
  EXPECT_FALSE(tokens_->find(secret));
}

TEST_F(ApiTest, AnAdminOfOneTenantMakesAndSeesTokensOfThatAlone) {
  ASSERT_EQ(post("/api/tokens", R"({"roles": "admin"})").status, 200);
  caller_.tenant = "lab";
  caller_.tenants = {"lab"};
  for (const char* body : {R"({"roles": "read", "tenants": "*"})", R"({"roles": "read", "tenants": ["lab", "other"]})",
                           R"({"roles": "read", "tenants": "default"})"})
    EXPECT_EQ(post("/api/tokens", body).status, 403) << body;
  ASSERT_EQ(post("/api/tokens", R"({"roles": ["ingest", "read"], "expires_s": 60})").status, 200);
  const element listed = json("/api/tokens");
  ASSERT_EQ(listed["tokens"].get_array().size(), 1u);
  EXPECT_EQ(text(listed["tokens"].at(0)["tenants"].at(0)), "lab");
  EXPECT_EQ(audit_->read({.tenant = ""})->size(), 1u);
}

TEST_F(ApiTest, ATokenThatMakesNoSenseIsRefusedWithoutWhatWasSent) {
  for (const char* body : {"", "[]", R"({"roles": "lst_x"})", R"({"roles": 7})", R"({"roles": "read", "lst_x": 1})",
                           R"({"roles": "read", "expires_s": -1})", R"({"name": "lst_x"})", "{\"lst_x"}) {
    const HttpResponse answer = post("/api/tokens", body);
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_EQ(answer.body.find("lst_x"), std::string::npos) << answer.body;
  }
}

TEST_F(ApiTest, ANameIsTakenOverByOperators) {
  Caller agent;
  agent.owner = "farm";
  ASSERT_TRUE(owners_->check(agent, OwnedKind::kHost, "node-1").ok());
  EXPECT_EQ(post("/api/owners/takeover", R"({"kind": "host", "name": "node-2", "owner": "lab"})").status, 404);
  EXPECT_EQ(post("/api/owners/takeover", R"({"kind": "rack", "name": "node-1", "owner": "lab"})").status, 400);
  EXPECT_EQ(post("/api/owners/takeover", R"({"kind": "host", "name": "node-1", "owner": "lab"})").status, 200);
  EXPECT_FALSE(owners_->check(agent, OwnedKind::kHost, "node-1").ok());
  EXPECT_EQ(text(json("/api/owners")["owners"].at(0)["owner"]), "lab");
  EXPECT_EQ(audit_->read({.all_tenants = true})->at(0).object, "host node-1 to lab");
}

TEST_F(ApiTest, TheWebUiIsServedFromItsFolderAndNothingElseIs) {
  web_folder_ = folder_.path() + "/web";
  ASSERT_TRUE(make_directories(web_folder_ + "/assets").ok());
  ASSERT_TRUE(write_file_atomically(web_folder_ + "/index.html", "<html>index</html>").ok());
  ASSERT_TRUE(write_file_atomically(web_folder_ + "/assets/app-1a2b.js", "code").ok());
  ASSERT_TRUE(write_file_atomically(web_folder_ + "/.hidden", "hidden").ok());
  ASSERT_TRUE(write_file_atomically(folder_.path() + "/secret.txt", "secret").ok());
  ASSERT_TRUE(make_directories(folder_.path() + "/web-other").ok());
  ASSERT_TRUE(write_file_atomically(folder_.path() + "/web-other/secret.txt", "secret").ok());
  ASSERT_EQ(symlink((folder_.path() + "/secret.txt").c_str(), (web_folder_ + "/link.txt").c_str()), 0);

  EXPECT_EQ(get("/").body, "<html>index</html>");
  EXPECT_EQ(get("/").header("content-type"), "text/html; charset=utf-8");
  EXPECT_EQ(get("/").header("cache-control"), "no-cache");
  EXPECT_EQ(get("/jobs/llama-70b").body, "<html>index</html>") << "pages have URLs of their own";
  EXPECT_EQ(get("/assets").body, "<html>index</html>");
  EXPECT_EQ(get("/nodes/node-1.example").body, "<html>index</html>") << "a host's name may have dots";
  EXPECT_EQ(get("/assets/app-1a2b.js").body, "code");
  EXPECT_EQ(get("/assets/app-1a2b.js").header("content-type"), "text/javascript; charset=utf-8");
  EXPECT_EQ(get("/missing.js").status, 404);
  for (const char* path :
       {"/../secret.txt", "/assets/../../secret.txt", "/..", "/./../secret.txt", "/link.txt",
        "/../web-other/secret.txt", "/.hidden", "/..\\secret.txt", "secret.txt", "", "//../secret.txt"}) {
    HttpResponse response = get(path);
    EXPECT_EQ(response.body.find("secret\n"), std::string::npos);
    EXPECT_NE(response.body, "secret") << path;
    EXPECT_NE(response.body, "hidden") << path;
    EXPECT_EQ(response.status, 404) << path;
  }
  EXPECT_EQ(get(std::string("/index.html\0.js", 15)).status, 404);
}

TEST_F(ApiTest, APageBelowFindsItsFilesUnderWhateverPrefixAProxyServesIt) {
  web_folder_ = folder_.path() + "/web";
  ASSERT_TRUE(make_directories(web_folder_).ok());
  const std::string page =
      "<script src=\"./assets/a.js\"></script><link href=\"./icon.svg\"><a href=\"https://x/./y\">";
  ASSERT_TRUE(write_file_atomically(web_folder_ + "/index.html", page).ok());
  EXPECT_EQ(get("/").body, page);
  depth_ = 1;
  EXPECT_EQ(get("/jobs/a/b").body,  // a%2Fb as it was sent
            "<script src=\"../assets/a.js\"></script><link href=\"../icon.svg\"><a href=\"https://x/./y\">");
  depth_ = 3;
  EXPECT_NE(get("/jobs/a/steps/3").body.find("\"../../../assets/a.js\""), std::string::npos);
  depth_ = 1'000'000;
  EXPECT_LT(get("/jobs/a").body.size(), 500u);
}

TEST_F(ApiTest, WithoutTheWebUiThereIsAPageThatSaysSo) {
  HttpResponse response = get("/");
  EXPECT_EQ(response.status, 200);
  EXPECT_NE(response.body.find("--web DIR"), std::string::npos);
  EXPECT_EQ(get("/jobs").status, 404);
}

TEST_F(ApiTest, AStepCanBeAskedForInDetailByPost) {
  std::vector<DetailRequest> asked;
  ask_detail_ = [&](const JobInfo& job, const DetailRequest& request) {
    EXPECT_EQ(job.job_id, "llama-70b");
    asked.push_back(request);
    return DetailAsked{.hosts = 2, .ranks = 3, .ranks_refused = 0, .ranks_unknown = 1};
  };
  const std::string path = "/api/jobs/llama-70b/steps/7/detail";
  HttpResponse response = get(path, "ranks=3,0-1,3,9", "POST");
  EXPECT_EQ(response.status, 202) << response.body;
  element answer = parse(response);
  EXPECT_EQ(text(answer["trace_id"]), to_hex(step_trace_id("llama-70b", 0, 7_step)));
  EXPECT_EQ(answer["ranks_asked"].get_int64().value(), 3);
  EXPECT_EQ(answer["ranks_unknown"].get_int64().value(), 1);
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0], (DetailRequest{"llama-70b", 0, 7_step, 7_step, {0_rank, 1_rank, 3_rank, 9_rank}}));
  EXPECT_EQ(get(path, "", "POST").status, 202);
  EXPECT_TRUE(asked[1].ranks.empty());

  EXPECT_EQ(get(path).status, 405) << "it changes something, so GET it is not";
  EXPECT_EQ(get(path).header("allow"), "POST");
  EXPECT_EQ(get("/api/jobs", "", "POST").status, 405);
  EXPECT_EQ(get("/api/nothing", "", "POST").status, 405);
  EXPECT_EQ(get(path, "", "DELETE").status, 405);
  EXPECT_EQ(get("/api/jobs/llama-70b/steps/10/detail", "", "POST").status, 400);
  EXPECT_EQ(get("/api/jobs/llama-70b/steps/-1/detail", "", "POST").status, 400);
  EXPECT_EQ(get(path, "ranks=x", "POST").status, 400);
  EXPECT_EQ(get("/api/jobs/llama/steps/7/detail", "", "POST").status, 404);
  EXPECT_EQ(asked.size(), 2u);
  ask_detail_ = [](const JobInfo&, const DetailRequest&) { return DetailAsked{.ranks_refused = 4}; };
  EXPECT_EQ(get(path, "", "POST").status, 429);
  ask_detail_ = nullptr;
  EXPECT_EQ(get(path, "", "POST").status, 501);
}

}  // namespace
}  // namespace lockstep
