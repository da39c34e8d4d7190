// GET /api/jobs/{job}/samples: where ranks spent their time when they were last sampled, which line makes the difference,
// and the same as files for others' viewers. POST: the agents are asked to sample these ranks now.
#include <algorithm>
#include <map>

#include "analysis/lines/line_difference.h"
#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/asked.h"
#include "api/jobs/job_view.h"
#include "base/text.h"
#include "control/sample_requester.h"
#include "model/events.h"
#include "model/rank_text.h"
#include "query/export/stack_profile.h"
#include "wire/compression.h"

namespace lockstep {
namespace {

constexpr size_t kLogsLooked = 256;  // each may have 128 KiB
// Samples of one question are taken together; those of another day are not compared.
constexpr int64_t kTogetherNs = 300'000'000'000;
constexpr size_t kLinesShown = 20;

struct Sampled {
  SampledRanks ranks;
  std::map<Rank, std::string> hosts;
};

// The newest of each rank of this job and attempt, of the newest time; ranks: these alone, where there are any.
Sampled newest_samples(const ApiContext& context, const JobInfo& job, const std::vector<Rank>& wanted) {
  Sampled found;
  Page<StoredLog> page = context.steps.logs("", kEventRankSamples, kLogsLooked);
  int64_t newest_unix_ns = 0;
  for (const StoredLog& item : page.items) {  // newest first
    Result<Identity> who = identity_from_resource(*item.resource);
    if (!who.ok() || who->job_id != job.job_id || who->attempt != job.attempt || found.ranks.contains(who->rank))
      continue;
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), who->rank) == wanted.end()) continue;
    newest_unix_ns = std::max(newest_unix_ns, item.record.time_unix_ns);
    if (newest_unix_ns - item.record.time_unix_ns > kTogetherNs) continue;
    if (Result<RankSamples> samples = rank_samples_from_record(item.record); samples.ok()) {
      found.ranks.emplace(who->rank, std::move(*samples));
      found.hosts[who->rank] = who->host;
    }
  }
  return found;
}

Result<std::vector<Rank>> wanted_ranks(const ApiRequest& request) {
  const std::string text = request.http.parameter("ranks");
  if (text.empty()) return std::vector<Rank>();
  Result<std::vector<Rank>> ranks = ranks_from_text(text, kSampleRanksMax);
  if (!ranks.ok()) return prefixed(ranks.failure(), "ranks: ");
  return ranks;
}

// Who is compared with the others: the first that was asked for, else whom a verdict blames, else the lowest.
Rank whose(const ApiContext& context, const JobInfo& job, const std::vector<Rank>& wanted, const SampledRanks& ranks) {
  if (!wanted.empty() && ranks.contains(wanted.front())) return wanted.front();
  for (const Verdict& verdict : context.diagnosis.verdicts(job.job_id)) {
    for (Rank rank : verdict.culprit.ranks) {
      if (ranks.contains(rank)) return rank;
    }
  }
  return ranks.begin()->first;
}

void write_line(JsonWriter& json, const LineShare& line) {
  json.begin_object()
      .field("thread", to_text(line.role))
      .field("function", line.frame.function)
      .field("file", line.frame.file)
      .field("line", line.frame.line)
      .field("text", line_text(line.frame))
      .field("is_library", is_library_frame(line.frame));
  write_number(json, "share", line.share);
  write_number(json, "own_share", line.own);
  write_number(json, "peer_share", line.peer_share);
  write_number(json, "difference", line.difference());
  json.end_object();
}

// Both ends: what the rank does more than its peers, and what it does less.
void write_lines(JsonWriter& json, const char* key, const std::vector<LineShare>& lines) {
  json.key(key).begin_array();
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i < kLinesShown || i + kLinesShown / 2 >= lines.size()) write_line(json, lines[i]);
  }
  json.end_array();
}

void write_rank(JsonWriter& json, Rank rank, const std::string& host, const RankSamples& samples) {
  json.begin_object()
      .field("rank", rank.value())
      .field("host", host)
      .field("pid", samples.pid)
      .field("time_unix_ns", samples.time_unix_ns)
      .field("duration_ms", samples.duration_ms)
      .field("looks", samples.looks)
      .field("hz", samples.hz)
      .field("python", samples.version)
      .field("note", samples.note)
      .field("stacks_whole", samples.whole)
      .field("stacks_cut", samples.cut)
      .field("stacks_dropped", samples.dropped)
      .field("stacks_left_out", samples.left_out)
      .key("threads")
      .begin_array();
  for (const SampledThread& thread : samples.threads)
    json.begin_object()
        .field("thread", to_text(thread.role))
        .field("pid", thread.pid)
        .field("tid", thread.tid)
        .field("name", thread.name)
        .field("state", std::string(1, thread.state))
        .field("wchan", thread.wchan)
        .field("looks", thread.looks)
        .field("running", thread.running)
        .field("with_gil", thread.with_gil)
        .field("cpu_ms", thread.cpu_ms)
        .end_object();
  json.end_array().end_object();
}

HttpResponse samples_json(const ApiContext& context, const JobInfo& job, const std::vector<Rank>& wanted,
                          const Sampled& sampled) {
  JsonWriter json;
  json.begin_object().field("job_id", job.job_id).field("attempt", job.attempt).key("ranks").begin_array();
  for (const auto& [rank, samples] : sampled.ranks) write_rank(json, rank, sampled.hosts.at(rank), samples);
  json.end_array().key("difference");
  if (sampled.ranks.empty()) {
    json.null();
  } else {
    const Rank rank = whose(context, job, wanted, sampled.ranks);
    std::vector<Rank> peers;
    for (const auto& [other, samples] : sampled.ranks) peers.push_back(other);
    const LineDifference difference = line_difference(sampled.ranks, rank, peers);
    json.begin_object().field("rank", rank.value()).key("peers").begin_array();
    for (Rank peer : difference.peers) json.number(peer.value());
    json.end_array().field("sentence", difference.sentence);
    for (const auto& [key, line] : {std::pair{"named", &difference.named}, {"instead", &difference.instead}}) {
      json.key(key);
      if (*line)
        write_line(json, **line);
      else
        json.null();
    }
    write_lines(json, "lines", difference.lines);
    write_lines(json, "functions", difference.functions);
    json.end_object();
  }
  json.end_object();
  return json_answer(json);
}

bool nobody_answers(const ApiContext& context, const JobInfo& job, const std::vector<Rank>& ranks) {
  const auto refuses = [&](Rank rank) {
    const auto found = std::find_if(job.ranks.begin(), job.ranks.end(),
                                    [&](const RankInfo& one) { return one.identity.rank == rank; });
    return found != job.ranks.end() && context.who_answers &&
           context.who_answers(found->identity.host, CommandKind::kSamples) == Answers::kNo;
  };
  return std::all_of(ranks.begin(), ranks.end(), refuses);
}

}  // namespace

HttpResponse get_samples(const ApiContext& context, const ApiRequest& request) {
  std::optional<JobInfo> job = find_job(context, request.job);
  if (!job) return unknown_job(context, request.job);
  Result<std::vector<Rank>> wanted = wanted_ranks(request);
  if (!wanted.ok()) return error_answer(400, wanted.error());
  const std::string kind = request.http.parameter("format");
  if (!kind.empty() && kind != "json" && kind != "speedscope" && kind != "pprof" && kind != "collapsed")
    return error_answer(
        400, format("format is \"%.40s\"; known: json, speedscope, pprof, collapsed", as_one_line(kind).c_str()));
  const Sampled sampled = newest_samples(context, *job, *wanted);
  if (kind.empty() || kind == "json") return samples_json(context, *job, *wanted, sampled);
  if (sampled.ranks.empty())
    return error_answer(404, "no samples of these ranks are here; lockstep lines JOB takes some");
  HttpResponse answer;
  std::string name;
  if (kind == "speedscope") {
    answer = text_answer(200, "application/json", speedscope_json(sampled.ranks, as_one_line(job->job_id)));
    name = "lines.speedscope.json";
  } else if (kind == "collapsed") {
    answer = text_answer(200, "text/plain; charset=utf-8", collapsed_stacks(sampled.ranks));
    name = "lines.collapsed.txt";
  } else {
    Result<std::string> small = compress(Encoding::kGzip, pprof_profile(sampled.ranks));
    if (!small.ok()) return error_answer(501, "this server was built without gzip, which pprof's files are in");
    answer = text_answer(200, "application/octet-stream", std::move(*small));
    name = "lines.pb.gz";
  }
  answer.headers.emplace_back("content-disposition", "attachment; filename=\"" + name + "\"");
  return answer;
}

HttpResponse post_samples(const ApiContext& context, const ApiRequest& request) {
  if (from_another_site(request.http)) return error_answer(403, "asked from a page of another site");
  if (!context.ask_samples) return error_answer(501, "this server asks no agents");
  std::optional<JobInfo> job = find_job(context, request.job);
  if (!job) return unknown_job(context, request.job);
  Result<std::vector<Rank>> ranks = wanted_ranks(request);
  if (!ranks.ok()) return error_answer(400, ranks.error());
  const Result<int64_t> seconds = int_parameter(request.http, "seconds", 5, 1, kSampleSecondsMax);
  if (!seconds.ok()) return error_answer(400, seconds.error());
  const Result<int64_t> hz = int_parameter(request.http, "hz", 100, 1, kSampleHzMax);
  if (!hz.ok()) return error_answer(400, hz.error());
  if (ranks->empty()) {
    for (const Verdict& verdict : context.diagnosis.verdicts(job->job_id)) {
      if (verdict.state == VerdictState::kCleared || !ranks->empty()) continue;
      *ranks = SampleRequester::ranks_for(verdict, *job);
    }
    if (ranks->empty())
      return error_answer(400, format("no open verdict blames a rank of this job: ranks=LIST says whose, the slow one "
                                      "first, then a peer (1 to %zu)",
                                      kSampleRanksMax));
  }
  if (nobody_answers(context, *job, *ranks))
    return error_answer(409, "these ranks have no stacks to sample, as their agents say: they are simulated");
  SampleRequest wanted{.job_id = job->job_id, .attempt = job->attempt, .seconds = *seconds, .hz = *hz, .ranks = *ranks};
  std::sort(wanted.ranks.begin(), wanted.ranks.end());
  const std::optional<DetailAsked> asked = context.ask_samples(*job, wanted);
  if (!asked) {
    HttpResponse later = error_answer(429, "too many samples were asked for within the last minute");
    later.headers.emplace_back("retry-after", "60");
    return later;
  }
  if (std::optional<HttpResponse> later = refuse_asked(*asked)) return std::move(*later);
  JsonWriter json;
  json.begin_object()
      .field("job_id", job->job_id)
      .field("attempt", job->attempt)
      .field("asked_unix_ns", context.clock.unix_ns())
      .field("seconds", *seconds)
      .field("hz", *hz)
      .key("ranks")
      .begin_array();
  for (Rank rank : *ranks) json.number(rank.value());
  json.end_array();
  return asked_answer(json, *asked);
}

}  // namespace lockstep
