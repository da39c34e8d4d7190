// GET /api/jobs/{job}/evidence: the number of a claim, computed again from what is stored (diagnosis/measure.h), and for
// hangs from where ranks stand.
#include <algorithm>
#include <limits>
#include <optional>
#include <string>

#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/job_view.h"
#include "base/text.h"
#include "control/capture_summary.h"
#include "diagnosis/measure.h"
#include "model/profile_finding.h"
#include "model/rank_text.h"
#include "model/step_detail.h"

namespace lockstep {
namespace {

// Rows that a window of this answer may hold: what a few steps of a hundred thousand ranks take is let go again.
constexpr size_t kRowsMax = 200'000;
// Rows that an answer may read: what a claim about a hundred steps of a hundred thousand ranks takes.
constexpr size_t kRowsReadMax = 16'000'000;
constexpr std::string_view kProfileMeasure = "profile";
constexpr size_t kFindingsLooked = 4'096;

// The job's steps, read into a window few at a time.
class StoredSteps {
 public:
  StoredSteps(const StepStore& steps, const JobInfo& job, const Measure& measure)
      : steps_(steps), job_(job), measure_(measure) {
    const bool seen =
        std::any_of(job.ranks.begin(), job.ranks.end(), [](const RankInfo& rank) { return !rank.comms.empty(); });
    every_rank_ = needs_every_rank(measure, seen);
    ranks_ = std::max<size_t>(1, every_rank_ ? job.ranks.size() : measure.ranks.size());
    per_window_ = std::clamp<size_t>(kRowsMax / ranks_, 1, JobWindow::kStepsMin);
  }

  size_t rows() const { return ranks_ * measure_.steps.size(); }

  void add_all(Measurement& measurement) {
    for (size_t i = 0; i < measure_.steps.size(); ++i) {
      if (i % per_window_ == 0) begin_window();
      const StepNumber number = measure_.steps[i];
      steps_.visit_steps(job_.job_id, number, number, [&](const Identity& identity, const StepSummary& summary) {
        if (wanted(identity.rank)) window_->add_step(identity, summary);
      });
      measurement.add(*window_, number);
    }
  }

 private:
  bool wanted(Rank rank) const {
    return every_rank_ || std::binary_search(measure_.ranks.begin(), measure_.ranks.end(), rank);
  }

  void begin_window() {
    window_.emplace();
    for (const RankInfo& rank : job_.ranks) {
      if (!wanted(rank.identity.rank)) continue;
      window_->add_rank(rank.identity);
      for (const CommInit& comm : rank.comms) window_->add_comm(rank.identity, comm);
    }
  }

  const StepStore& steps_;
  const JobInfo& job_;
  const Measure& measure_;
  bool every_rank_ = false;
  size_t ranks_ = 1;
  size_t per_window_ = 1;
  std::optional<JobWindow> window_;
};

const CommStatus* comm_of(const RankStatus& status, CommId comm_id) {
  for (const CommStatus& comm : status.comms)
    if (comm.comm_id == comm_id) return &comm;
  return nullptr;
}

// What newest reports say of where ranks stand; nothing: none does.
struct StandingRow {
  const char* of;
  const char* unit;
  const char* help;
  std::optional<double> (*of_rank)(const RankInfo&, CommId, int64_t at_unix_ns);  // 0: when it reported it
};
constexpr StandingRow kStanding[] = {
    {"quiet_s", "s", "how long a rank had made no call at a time; the longest of the ranks",
     [](const RankInfo& rank, CommId, int64_t at_unix_ns) -> std::optional<double> {
       if (!rank.status) return std::nullopt;
       const int64_t quiet_since = rank.status->time_unix_ns - rank.status->quiet_ns;
       const int64_t at = at_unix_ns > 0 ? at_unix_ns : rank.status->time_unix_ns;
       if (at < quiet_since) return std::nullopt;  // it has moved since
       return static_cast<double>(at - quiet_since) / 1e9;
     }},
    {"entered", "operations", "collectives of a communicator that a rank has entered",
     [](const RankInfo& rank, CommId comm_id, int64_t) {
       const CommStatus* comm = rank.status ? comm_of(*rank.status, comm_id) : nullptr;
       return comm != nullptr ? std::optional(static_cast<double>(comm->collectives_enqueued)) : std::nullopt;
     }},
    {"launched", "operations", "the same by NCCL's own count (RAS)",
     [](const RankInfo& rank, CommId comm_id, int64_t) {
       const CommStatus* comm = rank.status ? comm_of(*rank.status, comm_id) : nullptr;
       return comm != nullptr ? std::optional(static_cast<double>(comm->launched)) : std::nullopt;
     }},
};

const StandingRow* standing_row(std::string_view of) {
  for (const StandingRow& row : kStanding)
    if (of == row.of) return &row;
  return nullptr;
}

void begin_answer(JsonWriter& json, const JobInfo& job, std::string_view of, std::optional<double> value,
                  std::string_view unit) {
  json.begin_object().field("job_id", job.job_id).field("of", of).key("value");
  value ? json.number(*value) : json.null();
  json.field("unit", unit);
}

HttpResponse where_ranks_stand(const JobInfo& job, const StandingRow& row, const ApiRequest& request) {
  // The same text names ranks and a communicator; steps have no part in it.
  Result<Measure> asked = measure_from([&](std::string_view name) {
    return name == "of" ? "steps" : name == "steps" ? "0" : request.http.parameter(std::string(name));
  });
  if (!asked.ok()) return error_answer(400, asked.error());
  Result<int64_t> at = int_parameter(request.http, "at", 0, 0, std::numeric_limits<int64_t>::max());
  if (!at.ok()) return error_answer(400, at.error());
  std::optional<double> most;
  JsonWriter ranks;
  ranks.begin_array();
  for (const RankInfo& rank : job.ranks) {
    if (!asked->ranks.empty() && !std::binary_search(asked->ranks.begin(), asked->ranks.end(), rank.identity.rank))
      continue;
    const std::optional<double> value = row.of_rank(rank, asked->comm_id, *at);
    if (!value) continue;
    most = std::max(most.value_or(*value), *value);
    ranks.begin_object()
        .field("rank", rank.identity.rank.value())
        .field("value", *value)
        .field("time_unix_ns", rank.status->time_unix_ns)
        .end_object();
  }
  ranks.end_array();
  JsonWriter json;
  begin_answer(json, job, row.of, most, row.unit);
  json.key("ranks").raw(ranks.text()).end_object();
  return json_answer(json);
}

struct FoundFinding {
  Rank rank = kNoRank;
  ProfileFinding finding;
};

// The newest record of one of these ranks.
std::optional<FoundFinding> recorded_finding(const ApiContext& context, const std::string& job_id,
                                             const std::string& capture, const std::vector<Rank>& ranks) {
  for (const StoredLog& item : context.steps.logs("", kEventProfileFinding, kFindingsLooked).items) {
    const Result<Identity> who = identity_from_resource(*item.resource);
    if (!who.ok() || who->job_id != job_id || std::find(ranks.begin(), ranks.end(), who->rank) == ranks.end()) continue;
    Result<ProfileFinding> read = profile_finding_from_record(item.record);
    if (!read.ok() || (!capture.empty() && read->capture != capture)) continue;
    return FoundFinding{who->rank, std::move(*read)};
  }
  return std::nullopt;
}

// The same from the capture itself: records are held in memory, and the oldest go first; its summary stays for months.
std::optional<FoundFinding> summarised_finding(const ApiContext& context, const std::string& job_id,
                                               const std::string& id, const std::vector<Rank>& ranks) {
  if (context.captures == nullptr || context.blobs == nullptr) return std::nullopt;
  const std::optional<Capture> capture = context.captures->find(job_id, id);
  if (!capture) return std::nullopt;
  const Result<std::string> summary = read_capture_summary(*capture, *context.blobs);
  if (!summary.ok()) return std::nullopt;
  const Result<BlamedRanks> blamed =
      profile_finding_from_summary_untrusted(*summary, {.time_unix_ns = capture->begun_unix_ns,
                                                        .capture = id,
                                                        .first_step = capture->order.start_step,
                                                        .steps = capture->order.steps});
  if (!blamed.ok()) return std::nullopt;
  for (const Rank rank : ranks) {
    if (std::find(blamed->ranks.begin(), blamed->ranks.end(), rank) != blamed->ranks.end())
      return FoundFinding{rank, blamed->finding};
  }
  return std::nullopt;
}

HttpResponse what_a_profile_says(const ApiContext& context, const JobInfo& job, const ApiRequest& request) {
  const std::string capture = request.http.parameter("name");
  Result<std::vector<Rank>> ranks = ranks_from_text(request.http.parameter("ranks"), kProfileRanksBlamedMax);
  if (!ranks.ok()) return error_answer(400, "ranks: " + ranks.error());
  std::optional<FoundFinding> found = recorded_finding(context, job.job_id, capture, *ranks);
  if (!found) found = summarised_finding(context, job.job_id, capture, *ranks);
  const ProfileFinding* finding = found ? &found->finding : nullptr;
  JsonWriter json;
  begin_answer(json, job, kProfileMeasure, finding ? std::optional(finding->cost_us / 1e3) : std::nullopt, "ms");
  if (finding != nullptr) {
    json.field("rank", found->rank.value())
        .field("capture", finding->capture)
        .field("first_step", finding->first_step.value())
        .field("steps_profiled", finding->steps)
        .field("reason", finding->reason)
        .field("kernel", finding->kernel)
        .field("instead_of", finding->instead_of)
        .field("sentence", finding->sentence)
        .field("share", finding->share)
        .field("time_unix_ns", finding->time_unix_ns);
  }
  json.end_object();
  return json_answer(json);
}

HttpResponse known_measures() {
  JsonWriter json;
  json.begin_object().key("measures").begin_array();
  for (const MeasureInfo& one : measures())
    json.begin_object().field("of", one.of).field("unit", one.unit).field("help", one.help).end_object();
  for (const StandingRow& row : kStanding)
    json.begin_object().field("of", row.of).field("unit", row.unit).field("help", row.help).end_object();
  json.begin_object()
      .field("of", kProfileMeasure)
      .field("unit", "ms")
      .field("help",
             "what others wait for a rank in a step, by the kernel profile `name`, and which kernel makes it so")
      .end_object();
  const size_t count = measures().size() + std::size(kStanding) + 1;
  return list_answer(json, count, count);
}

}  // namespace

HttpResponse get_evidence(const ApiContext& context, const ApiRequest& request) {
  std::optional<JobInfo> job = find_job(context, request.job);
  if (!job) return unknown_job(context, request.job);
  if (request.http.parameter("of").empty()) return known_measures();
  if (const StandingRow* row = standing_row(request.http.parameter("of")))
    return where_ranks_stand(*job, *row, request);
  if (request.http.parameter("of") == kProfileMeasure) return what_a_profile_says(context, *job, request);
  Result<Measure> measure =
      measure_from([&](std::string_view name) { return request.http.parameter(std::string(name)); });
  if (!measure.ok()) return error_answer(400, measure.error());
  Measurement measurement(*measure);
  StoredSteps stored(context.steps, *job, *measure);
  if (stored.rows() > kRowsReadMax)
    return error_answer(400, format("steps: of this job at most %zu can be asked for at once",
                                    kRowsReadMax / std::max<size_t>(1, stored.rows() / measure->steps.size())));
  stored.add_all(measurement);
  JsonWriter json;
  begin_answer(json, *job, measure->of, measurement.value(), measurement.unit());
  json.field("steps_asked", static_cast<uint64_t>(measure->steps.size()))
      .field("steps_known", static_cast<uint64_t>(measurement.by_step().size()))
      .key("steps")
      .begin_array();
  for (const auto& [step, value] : measurement.by_step())
    json.begin_array().number(step.value()).number(rounded(value)).end_array();
  json.end_array().end_object();
  return json_answer(json);
}

}  // namespace lockstep
