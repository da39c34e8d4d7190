// GET /api/sle: minutes of GPUs by SLE, the worst first. GET /api/sle/{name}: one of them, with who was hurt and who is
// charged.
#include <algorithm>
#include <limits>
#include <map>

#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/job_view.h"
#include "base/text.h"
#include "fabric/fabric.h"
#include "fabric/graph.h"
#include "model/rank_text.h"
#include "sle/ledger_query.h"

namespace lockstep {
namespace {

using sle::Minutes;
using sle::SleTotals;

constexpr int64_t kHoursDefault = 24;
constexpr int32_t kBuckets = 96;
constexpr double kCoverageLeast = 0.5;  // below it no success is named, only its range
constexpr int64_t kAffectedDefault = 20;

struct Asked {
  sle::SleQuery query;
  bool by_culprit = false;
  std::string scope;  // in words
};

// GPUs behind a part of the fabric: an adapter, a rail, a leaf, or the link of an adapter to its leaf.
Result<std::set<std::string>> gpus_behind(const ApiContext& context, std::string_view kind, const std::string& name) {
  if (context.fabric == nullptr) return Error{"this server keeps no topology"};
  const std::shared_ptr<const fabric::Topology> topology = context.fabric->topology.topology();
  const std::optional<fabric::NodeIndex> node = topology->find(name);
  const std::optional<uint64_t> rail = parse_uint(name);
  if (kind == "rail" ? !rail.has_value() : (kind != "link" && !node.has_value()))
    return Error{format("no %.*s %s in the topology", static_cast<int>(kind.size()), kind.data(), name.c_str())};
  std::set<std::string> gpus;
  for (fabric::NodeIndex gpu = 0; gpu < topology->nodes().size(); ++gpu) {
    if (topology->nodes()[gpu].kind != fabric::NodeKind::kGpu) continue;
    const std::optional<fabric::Topology::Adapter> adapter = topology->adapter_of(gpu);
    if (!adapter) continue;
    const std::optional<fabric::LinkIndex> up = topology->uplink_of(adapter->nic);
    bool is_behind = false;
    if (kind == "nic") is_behind = adapter->nic == node;
    if (kind == "rail") is_behind = topology->nodes()[adapter->nic].index == static_cast<int64_t>(*rail);
    if (kind == "switch") is_behind = fabric::leaf_of_gpu(*topology, gpu) == *node;
    if (kind == "link")
      is_behind = up && (topology->port_name(*up, adapter->nic) == name ||
                         topology->port_name(*up, topology->other_end(*up, adapter->nic)) == name);
    if (is_behind) gpus.insert(topology->name(gpu));
  }
  return gpus;
}

// Ranks that are in one group: of all groups of that name that the job told.
Result<sle::RankSpans> ranks_of_group(const JobInfo& job, const std::string& group) {
  const size_t slash = group.find('/');
  const std::string name = group.substr(0, slash);
  const std::optional<uint64_t> member = slash == std::string::npos ? 0 : parse_uint(group.substr(slash + 1));
  for (const RankInfo& rank : job.ranks) {
    if (!member || static_cast<uint64_t>(rank.identity.rank.value()) != *member) continue;
    for (const CommGroup& one : rank.groups) {
      if (one.name != name) continue;
      return sle::spans_of(one.ranks);
    }
  }
  return Error{
      format("the job has reported no group %s; NAME/RANK is the group of that name that has the rank", group.c_str())};
}

Result<void> read_time(const ApiContext& context, const ServerRequest& http, Asked& asked) {
  const int32_t now = sle::minute_of(context.clock.unix_ns());
  const int64_t hours = LOCKSTEP_TRY(int_parameter(http, "hours", kHoursDefault, 1, 24 * 3650));
  const int64_t to = LOCKSTEP_TRY(int_parameter(http, "to", int64_t{60} * (now + 1), 60, int64_t{60} * 100'000'000));
  const int64_t from = LOCKSTEP_TRY(int_parameter(http, "from", std::max<int64_t>(0, to - 3600 * hours), 0, to));
  asked.query.from = static_cast<int32_t>(from / 60);
  asked.query.end = static_cast<int32_t>((to + 59) / 60);
  if (asked.query.end <= asked.query.from) return Error{"to is not after from"};
  const int32_t minutes = asked.query.end - asked.query.from;
  asked.query.bucket_minutes = std::max(1, (minutes + kBuckets - 1) / kBuckets);
  return {};
}

void narrow(std::optional<std::set<std::string>>& to, std::set<std::string> also) {
  if (to) std::erase_if(also, [&](const std::string& one) { return !to->contains(one); });
  to = std::move(also);
}

// Is it that adapter, switch or link? By its place, or by the words that a verdict has where its place is not known; a link by
// the port at either end.
bool is_culprit(const sle::Owner& owner, std::string_view kind, const std::string& name) {
  if (kind == "host") return owner.host == name;
  if (kind == "gpu") return owner.gpu_uuid == name;
  if (to_text(owner.kind) != kind) return false;
  const size_t colon = owner.place.find(':');
  if (owner.culprit == name ||
      (colon != std::string::npos && owner.place.compare(colon + 1, std::string::npos, name) == 0))
    return true;
  return kind == "link" && (owner.culprit.starts_with("link " + name + " - ") || owner.culprit.ends_with(" - " + name));
}

// Which minutes: of those who were hurt, or all that are charged to a part.
Result<void> read_scope(const ApiContext& context, const ServerRequest& http, Asked& asked) {
  sle::Scope& scope = asked.query.scope;
  std::vector<std::string> words;
  if (const std::string job = http.parameter("job"); !job.empty()) {
    scope.job_id = job;
    words.push_back("job " + job);
  }
  for (const char* key : {"ranks", "group"}) {
    const std::string value = http.parameter(key);
    if (value.empty()) continue;
    if (!scope.job_id) return Error{format("%s needs a job", key)};
    const std::optional<JobInfo> job = find_job(context, *scope.job_id);
    if (std::string_view(key) == "group") {
      if (!job) return Error{"no such job: its groups are not known", ErrorCode::kNotFound};
      sle::RankSpans members = LOCKSTEP_TRY(ranks_of_group(*job, value));
      scope.ranks = scope.ranks ? sle::common_of(*scope.ranks, members) : std::move(members);
    } else {
      scope.ranks = sle::spans_of(LOCKSTEP_TRY(ranks_from_text(value, 1'000'000)));
    }
    words.push_back(std::string(key) + " " + value);
  }
  std::vector<std::pair<std::string, std::string>> culprit;
  for (const char* key : {"host", "gpu", "nic", "rail", "switch", "link"}) {
    const std::string value = http.parameter(key);
    if (value.empty()) continue;
    words.push_back(std::string(key) + " " + value);
    const std::string_view kind = key;
    if (asked.by_culprit) {
      if (kind == "rail") return Error{"nothing is charged to a rail; ask for ledger=victim"};
      culprit.emplace_back(key, value);
    } else if (kind == "host") {
      for (const std::string_view host : split(value, ',')) scope.hosts.insert(std::string(host));
    } else if (kind == "gpu") {
      narrow(scope.gpus, {value});
    } else {
      std::set<std::string> behind = LOCKSTEP_TRY(gpus_behind(context, kind, value));
      narrow(scope.gpus, std::move(behind));
    }
  }
  const std::string classifier = http.parameter("classifier"), sub = http.parameter("sub");
  if (!classifier.empty() || !sub.empty() || !culprit.empty()) {
    asked.query.charged_to = [=](const sle::Owner& owner) {
      if (!classifier.empty() && owner.classifier != classifier) return false;
      if (!sub.empty() && owner.sub != (sub == "-" ? "" : sub)) return false;
      return std::all_of(culprit.begin(), culprit.end(),
                         [&](const auto& one) { return is_culprit(owner, one.first, one.second); });
    };
  }
  for (const std::string& word : words) asked.scope += (asked.scope.empty() ? "" : ", ") + word;
  if (asked.scope.empty()) asked.scope = "fleet";
  return {};
}

Result<Asked> read_asked(const ApiContext& context, const ServerRequest& http) {
  Asked asked;
  const std::string ledger = http.parameter("ledger");
  if (!ledger.empty() && ledger != "victim" && ledger != "culprit") return Error{"ledger is victim or culprit"};
  asked.by_culprit = ledger == "culprit";
  asked.query.prices = &context.gpu_prices();
  if (context.gpu_prices().by_model()) asked.query.models = context.pricing->models();
  LOCKSTEP_TRY(read_time(context, http, asked));
  LOCKSTEP_TRY(read_scope(context, http, asked));
  return asked;
}

void write_minutes(JsonWriter& json, const Minutes& minutes) {
  json.field("good", minutes.good).field("degraded", minutes.degraded).field("unknown", minutes.unknown);
  json.field("idle", minutes.idle);
}

void write_threshold(JsonWriter& json, const sle::Threshold& threshold) {
  json.key("threshold");
  if (threshold.against == sle::Against::kNone) {
    json.null();
    return;
  }
  const auto bound = [](double value) { return value < 1e300 ? value : std::numeric_limits<double>::quiet_NaN(); };
  json.begin_object()
      .field("against", threshold.against == sle::Against::kBaseline ? "baseline" : "fixed")
      .field("direction", threshold.direction == sle::Direction::kBelow ? "below" : "above")
      .field("unit", threshold.unit)
      .field("value", threshold.value)
      .field("minimum", threshold.minimum)
      .field("maximum", bound(threshold.maximum))
      .end_object();
}

// Classifiers and their sub-classifiers; minutes add up to the degraded ones, shares to 1.
void write_classifiers(JsonWriter& json, const SleTotals& totals) {
  struct Part {
    int64_t minutes = 0;
    std::map<std::string, int64_t> subs;
  };
  std::map<std::string, Part> parts;
  for (const SleTotals::Part& one : totals.parts) {
    parts[one.classifier].minutes += one.minutes;
    parts[one.classifier].subs[one.sub] += one.minutes;
  }
  std::vector<std::pair<std::string, Part>> sorted(parts.begin(), parts.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.minutes > b.second.minutes; });
  std::vector<double> shares;
  for (const auto& [name, part] : sorted)
    shares.push_back(static_cast<double>(part.minutes) / static_cast<double>(totals.minutes.degraded));
  shares = rounded_shares(std::move(shares));
  json.key("classifiers").begin_array();
  for (size_t i = 0; i < sorted.size(); ++i) {
    json.begin_object().field("name", sorted[i].first).field("minutes", sorted[i].second.minutes);
    json.field("share", shares[i]).key("subs").begin_array();
    std::vector<std::pair<std::string, int64_t>> subs(sorted[i].second.subs.begin(), sorted[i].second.subs.end());
    std::stable_sort(subs.begin(), subs.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    for (const auto& [sub, minutes] : subs)
      json.begin_object().field("name", sub).field("minutes", minutes).end_object();
    json.end_array().end_object();
  }
  json.end_array();
}

void write_sle(JsonWriter& json, const ApiContext& context, const Asked& asked, const sle::SleRow& row,
               const SleTotals& totals) {
  const Minutes& minutes = totals.minutes;
  const bool measured = minutes.total() > 0;
  const double unknown = std::numeric_limits<double>::quiet_NaN();
  json.field("name", row.name).field("title", row.title).field("good_when", row.good_when);
  json.field("measured_from", row.measured_from).field("measured", measured);
  write_threshold(json, context.sle_thresholds[static_cast<size_t>(row.sle)]);
  json.key("minutes").begin_object();
  write_minutes(json, minutes);
  json.end_object();
  const bool scorable = measured && minutes.coverage() >= kCoverageLeast;
  json.field("success", scorable ? minutes.success() : unknown);
  json.field("success_least", minutes.success_least());
  json.field("success_most", minutes.success_most());
  json.field("coverage", minutes.coverage());
  json.field("chosen_minutes", totals.chosen);
  write_number(json, "chosen_money", totals.chosen_cost.has_price() ? totals.chosen_cost.money : unknown);
  json.field("money", money_text(totals.chosen_cost));
  write_classifiers(json, totals);
  json.key("trend").begin_array();
  for (size_t i = 0; i < totals.trend.size(); ++i) {
    const Minutes& one = totals.trend[i];
    json.begin_array().number(one.good).number(one.degraded).number(one.unknown);
    if (asked.query.charged_to) json.number(totals.trend_chosen[i]);
    json.end_array();
  }
  json.end_array();
}

void write_head(JsonWriter& json, const ApiContext& context, const Asked& asked) {
  json.field("scope", asked.scope)
      .field("ledger", asked.by_culprit ? "culprit" : "victim")
      .field("from_unix_s", int64_t{60} * asked.query.from)
      .field("to_unix_s", int64_t{60} * asked.query.end)
      .field("bucket_minutes", static_cast<int64_t>(asked.query.bucket_minutes))
      .field("priced", context.gpu_prices().known());
}

void write_affected(JsonWriter& json, const char* key, const std::vector<sle::Affected::One>& list, size_t in_all) {
  json.key(key).begin_object().field("total", static_cast<uint64_t>(in_all)).key("list").begin_array();
  for (const sle::Affected::One& one : list) {
    json.begin_object().field("name", one.name).field("degraded", one.degraded);
    if (one.total > 0) json.field("total", one.total);
    if (!one.job_id.empty()) json.field("job_id", one.job_id);
    if (!one.host.empty()) json.field("host", one.host);
    if (one.rank != kNoRank) json.field("rank", static_cast<int64_t>(one.rank.value()));
    if (!one.owner.classifier.empty())
      json.field("kind", to_text(one.owner.kind))
          .field("classifier", one.owner.classifier)
          .field("sub", one.owner.sub)
          .field("verdict_id", one.owner.verdict_id);
    json.end_object();
  }
  json.end_array().end_object();
}

HttpResponse wrong(const Error& error) {
  return error_answer(error.code == ErrorCode::kNotFound ? 404 : 400, error.message);
}

}  // namespace

HttpResponse get_sles(const ApiContext& context, const ApiRequest& request) {
  if (context.sle == nullptr) return error_answer(501, "this server keeps no SLE ledger");
  const Result<Asked> asked = read_asked(context, request.http);
  if (!asked.ok()) return wrong(asked.failure());
  const auto totals = context.sle->totals(asked->query);
  std::vector<const sle::SleRow*> rows;
  for (const sle::SleRow& row : sle::sle_rows()) rows.push_back(&row);
  // By what is lost, not by percentages; what is not measured last.
  std::stable_sort(rows.begin(), rows.end(), [&](const sle::SleRow* a, const sle::SleRow* b) {
    const SleTotals &left = totals[static_cast<size_t>(a->sle)], &right = totals[static_cast<size_t>(b->sle)];
    const bool left_is = left.minutes.total() > 0, right_is = right.minutes.total() > 0;
    return left_is != right_is ? left_is : left.chosen > right.chosen;
  });
  JsonWriter json;
  json.begin_object();
  write_head(json, context, *asked);
  json.key("sles").begin_array();
  for (const sle::SleRow* row : rows) {
    json.begin_object();
    write_sle(json, context, *asked, *row, totals[static_cast<size_t>(row->sle)]);
    json.end_object();
  }
  json.end_array().end_object();
  return json_answer(json);
}

HttpResponse get_sle(const ApiContext& context, const ApiRequest& request) {
  if (context.sle == nullptr) return error_answer(501, "this server keeps no SLE ledger");
  const std::optional<sle::Sle> sle = sle::sle_of(request.name);
  if (!sle) return error_answer(404, format("no SLE \"%s\": /api/sle lists them", request.name.c_str()));
  const Result<int64_t> limit = int_parameter(request.http, "limit", kAffectedDefault, 1, 1000);
  if (!limit.ok()) return error_answer(400, limit.error());
  const Result<Asked> asked = read_asked(context, request.http);
  if (!asked.ok()) return wrong(asked.failure());
  sle::SleQuery query = asked->query;
  query.only = *sle;
  const auto totals = context.sle->totals(query);
  const sle::Affected affected = context.sle->affected(query, *sle, static_cast<size_t>(*limit));
  JsonWriter json;
  json.begin_object();
  write_head(json, context, *asked);
  write_sle(json, context, *asked, sle::row_of(*sle), totals[static_cast<size_t>(*sle)]);
  json.key("affected").begin_object();
  write_affected(json, "jobs", affected.jobs, affected.jobs_in_all);
  write_affected(json, "hosts", affected.hosts, affected.hosts_in_all);
  write_affected(json, "gpus", affected.gpus, affected.gpus_in_all);
  write_affected(json, "models", affected.models, affected.models.size());
  write_affected(json, "culprits", affected.culprits, affected.culprits_in_all);
  json.end_object().end_object();
  return json_answer(json);
}

}  // namespace lockstep
