// GET /api/jobs/{job}/coverage: what can and cannot be judged of this job, and why.
#include <algorithm>
#include <map>
#include <set>

#include "analysis/metric_series.h"
#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/job_coverage.h"
#include "api/jobs/job_view.h"
#include "api/jobs/step_window.h"
#include "model/rank_evidence.h"

namespace lockstep {
namespace {

constexpr int64_t kStepsLooked = 20;
constexpr size_t kMissingShown = 64;
constexpr size_t kLogsLooked = 10'000;
constexpr size_t kHostsNamedMax = 3;
constexpr int64_t kMetricsLookedMs = 600'000;  // agents send again what has not changed every two minutes

// What diagnosis reads of a node, by the question it answers: one metric that is there where any of its kind is.
struct SignalKindRow {
  const char* key;
  const char* question;
  const char* what;
  std::vector<const char*> metrics;  // any of these
  const char* todo;
};

const std::vector<SignalKindRow>& signal_kinds() {
  static const std::vector<SignalKindRow> kKinds = {
      {"gpu clocks",
       "why: clocks, throttling",
       "SM clocks",
       {"lockstep_gpu_clock_hertz"},
       "the agent reads them through NVML: lockstep doctor on a node says what is missing"},
      {"gpu temperature",
       "why: heat",
       "temperatures",
       {"hw.temperature"},
       "the agent reads them through NVML: lockstep doctor on a node says what is missing"},
      {"gpu errors",
       "why: memory errors, lost GPU",
       "error counts",
       {"hw.errors", "lockstep_gpu_row_remap_pending"},
       "the agent reads them through NVML: lockstep doctor on a node says what is missing"},
      {"adapters",
       "why: adapter, cable, congestion",
       "counters of adapters",
       {"hw.network.io", "lockstep_nic_port_xmit_wait_total", "hw.network.up"},
       "the agent reads /sys/class/infiniband: lockstep doctor on a node says what is missing"},
      {"host cpu",
       "why: CPU, memory or I/O pressure of a host",
       "pressure",
       {"lockstep_host_pressure"},
       "a kernel with pressure stall information (psi=1): lockstep doctor on a node"},
      {"run delay",
       "why: threads of the job without a CPU",
       "run delay of the job's threads",
       {"lockstep_thread_runqueue_wait_worst"},
       "the agent must see the job's processes: same PID namespace, or hostPID (docs/guide/agent.md)"},
      {"storage",
       "why: slow storage",
       "answer times of disks or file servers",
       {"lockstep_storage_rtt_seconds", "lockstep_host_disk_latency_seconds"},
       "the agent reads them from /proc: lockstep doctor on a node says what is missing"},
  };
  return kKinds;
}

void count_ranks(const JobInfo& job, int64_t now_unix_ns, JobSeen& seen) {
  seen.ranks_heard = job.ranks.size();
  seen.ranks_expected =
      std::max<size_t>(job.ranks.size(), job.world_size > 0 ? static_cast<size_t>(job.world_size) : 0);
  seen.ended = job_state(job, now_unix_ns) == std::string_view("ended");
  std::set<CommId> comms;
  std::set<Rank> heard;
  for (const RankInfo& rank : job.ranks) {
    // Of a job that is over, everybody who was heard of counts.
    const bool reports = seen.ended || rank_state(rank, now_unix_ns) != "silent";
    seen.ranks_reporting += reports;
    if (reports) heard.insert(rank.identity.rank);
    seen.ranks_with_comms += !rank.comms.empty();
    for (const CommInit& comm : rank.comms) comms.insert(comm.comm_id);
    seen.records_lost += rank.records_lost;
    seen.ranks_with_ras += rank.status && std::any_of(rank.status->comms.begin(), rank.status->comms.end(),
                                                      [](const CommStatus& comm) { return comm.launched >= 0; });
  }
  for (size_t i = 0; i < seen.ranks_expected && seen.missing.size() < kMissingShown; ++i)
    if (!heard.contains(rank_at(i))) seen.missing.push_back(rank_at(i));
  seen.comms = comms.size();
}

// What a rank has reported in any of the steps.
struct RankReports {
  bool input = false, checkpoint = false, phases = false, loss = false, work = false;
};

void count_steps(const StepStore& steps, const JobInfo& job, JobSeen& seen) {
  const StepNumber from = std::max(0_step, job.last_step - steps_within(job, kStepsLooked, kWordRowsMax) + 1);
  std::map<StepNumber, size_t> ranks_of_step;
  std::set<StepNumber> with_flows;
  std::map<Rank, RankReports> reports;
  steps.visit_steps(job.job_id, from, job.last_step, [&](const Identity& identity, const StepSummary& row) {
    ++ranks_of_step[row.step];
    ++seen.rows;
    seen.rows_inferred += row.inferred;
    seen.rows_unseen += !row.gpu_time_known();
    seen.rows_lost += row.records_lost > 0;
    seen.rows_with_comms += !row.comms.empty();
    if (!row.flows.empty()) with_flows.insert(row.step);
    RankReports& rank = reports[identity.rank];
    for (size_t i = 1; i < kPhaseCount; ++i) rank.phases |= row.phase_ns[i] > 0;
    rank.input |= row.phase_ns[static_cast<size_t>(Phase::kInput)] > 0;
    rank.checkpoint |= row.phase_ns[static_cast<size_t>(Phase::kCheckpoint)] > 0;
    for (const StepScalar& scalar : row.scalars) {
      rank.loss |= scalar.name == "loss" || scalar.name == "grad_norm" || scalar.name.ends_with("_local");
      rank.work |= scalar.name == "tokens" || scalar.name == "flops";
    }
  });
  // The newest may still be on its way.
  if (!seen.ended && ranks_of_step.size() > 1 && ranks_of_step.rbegin()->second < seen.ranks_heard)
    ranks_of_step.erase(std::prev(ranks_of_step.end()));
  seen.steps = ranks_of_step.size();
  for (const auto& [step, ranks] : ranks_of_step) {
    seen.steps_complete += ranks >= seen.ranks_heard;
    seen.steps_with_flows += with_flows.contains(step);
  }
  for (const auto& [rank, one] : reports) {
    seen.ranks_with_input += one.input;
    seen.ranks_with_checkpoint += one.checkpoint;
    seen.ranks_with_phases += one.phases;
    seen.ranks_with_loss += one.loss;
    seen.ranks_with_work += one.work;
  }
  seen.steps_stored = (job.last_step + 1).value();
}

Result<void> count_signals(const ApiContext& context, const JobInfo& job, JobSeen& seen) {
  std::set<std::string> hosts;
  for (const RankInfo& rank : job.ranks) hosts.insert(rank.identity.host);
  seen.hosts = hosts.size();
  for (const AgentInfo& agent : context.agents.agents()) {
    if (!hosts.contains(agent.host)) continue;
    ++seen.hosts_with_agent;
    // Of a job that is over nobody is asked any more.
    const Answers answers =
        seen.ended || !context.who_answers ? Answers::kYes : context.who_answers(agent.host, CommandKind::kStacks);
    seen.hosts_with_stacks += answers == Answers::kYes;
    seen.hosts_with_stacks_unknown += answers == Answers::kUnknown;
  }
  const std::vector<MetricMetadata> known = context.metrics.metadata();
  const int64_t to_ms = (seen.ended ? job.last_seen_unix_ns : context.clock.unix_ns()) / 1'000'000;
  for (const SignalKindRow& row : signal_kinds()) {
    std::set<std::string> heard;
    for (const char* metric : row.metrics) {
      for (const std::string& name : stored_names(known, metric)) {
        const std::vector<std::vector<LabelMatcher>> matchers = {{label_is("__name__", name)}};
        const std::vector<std::string> values =
            LOCKSTEP_TRY(context.metrics.label_values("host", matchers, to_ms - kMetricsLookedMs, to_ms + 1000));
        for (const std::string& host : values)
          if (hosts.contains(host)) heard.insert(host);
      }
    }
    HeardOnHosts kind{row.key, row.question, row.what, row.todo, heard.size(), {}};
    for (const std::string& host : hosts)
      if (!heard.contains(host) && kind.without.size() < kHostsNamedMax) kind.without.push_back(host);
    seen.signals.push_back(std::move(kind));
  }
  return {};
}

size_t ranks_with_event(const StepStore& steps, const JobInfo& job, std::string_view event) {
  std::set<Rank> ranks;
  for (const StoredLog& item : steps.logs("", event, kLogsLooked).items) {
    const Result<Identity> who = identity_from_resource(*item.resource);
    if (who.ok() && who->job_id == job.job_id && who->attempt == job.attempt) ranks.insert(who->rank);
  }
  return ranks.size();
}

}  // namespace

HttpResponse get_coverage(const ApiContext& context, const ApiRequest& request) {
  const std::optional<JobInfo> job = find_job(context, request.job);
  if (!job) return unknown_job(context, request.job);
  JobSeen seen;
  count_ranks(*job, context.clock.unix_ns(), seen);
  count_steps(context.steps, *job, seen);
  if (const Result<void> counted = count_signals(context, *job, seen); !counted.ok())
    return error_answer(500, counted.error());
  const std::shared_ptr<const StepTrace> trace =
      context.traces.get(job->job_id, job->attempt, std::max(0_step, job->last_step));
  for (const RankClock& clock : trace->clocks.clocks()) seen.clocks_known += clock.known;
  seen.clock_error_us = trace->clocks.error_ns() / 1e3;
  seen.ranks_with_stacks = ranks_with_event(context.steps, *job, kEventRankStack);
  seen.ranks_with_dumps = ranks_with_event(context.steps, *job, kEventCommDump);

  const std::vector<CoverageRow> rows = coverage_of_job(seen);
  JsonWriter json;
  json.begin_object()
      .field("job_id", job->job_id)
      .field("sentence", coverage_sentence(rows))
      .field("ranks_expected", static_cast<uint64_t>(seen.ranks_expected))
      .field("ranks_reporting", static_cast<uint64_t>(seen.ranks_reporting))
      .field("steps_looked_at", static_cast<uint64_t>(seen.steps))
      .key("coverage")
      .begin_array();
  for (const CoverageRow& row : rows) {
    json.begin_object()
        .field("key", row.key)
        .field("question", row.question)
        .field("judged", to_text(row.judged))
        .field("why", row.why)
        .field("todo", row.todo)
        .end_object();
  }
  return list_answer(json, rows.size(), rows.size());
}

}  // namespace lockstep
