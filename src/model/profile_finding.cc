#include "model/profile_finding.h"

#include <algorithm>
#include <cmath>

#include "base/json_reader.h"
#include "base/text.h"
#include "model/blob_key.h"
#include "model/events.h"
#include "model/profile_capture.h"

namespace lockstep {
namespace {

constexpr double kCostUsMax = 1e12;  // eleven days a step

std::string bounded(std::string_view text, size_t most) {
  return as_one_line(utf8_prefix(text, most));
}

double number_of(const Attributes& attributes, std::string_view key) {
  const Value* value = find(attributes, key);
  const double* number = value != nullptr ? std::get_if<double>(&value->data) : nullptr;
  return number != nullptr ? *number : static_cast<double>(find_int(attributes, key, -1));
}

Result<void> check(const ProfileFinding& finding) {
  if (!is_capture_id(finding.capture)) return Error{"profile.finding: capture is no id of one"};
  if (finding.sentence.empty()) return Error{"profile.finding: it has no sentence"};
  if (finding.first_step < kNoStep || finding.steps < 0 || finding.steps > kProfileStepsMax)
    return Error{"profile.finding: its steps are none"};
  if (!std::isfinite(finding.cost_us) || finding.cost_us < 0 || finding.cost_us > kCostUsMax ||
      !(finding.share >= 0 && finding.share <= 1))
    return Error{"profile.finding: its cost is none"};
  const bool is_word = !finding.reason.empty() && finding.reason.size() <= kProfileReasonWordMax &&
                       std::all_of(finding.reason.begin(), finding.reason.end(),
                                   [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; });
  if (!is_word) return Error{"profile.finding: its reason is no word"};
  return {};
}

}  // namespace

LogRecord to_record(const ProfileFinding& finding) {
  LogRecord record;
  record.event_name = kEventProfileFinding;
  record.time_unix_ns = finding.time_unix_ns;
  record.severity = 13;
  record.attributes = {{"capture", finding.capture},   {"first_step", finding.first_step.value()},
                       {"steps", finding.steps},       {"reason", finding.reason},
                       {"sentence", finding.sentence}, {"cost_us", finding.cost_us},
                       {"share", finding.share}};
  if (!finding.kernel.empty()) record.attributes.push_back({"kernel", finding.kernel});
  if (!finding.instead_of.empty()) record.attributes.push_back({"instead_of", finding.instead_of});
  return record;
}

Result<ProfileFinding> profile_finding_from_record(const LogRecord& record) {
  const auto text = [&](const char* key, size_t most) { return bounded(find_string(record.attributes, key), most); };
  ProfileFinding finding{.time_unix_ns = record.time_unix_ns,
                         .capture = std::string(find_string(record.attributes, "capture")),
                         .first_step = StepNumber{find_int(record.attributes, "first_step", -1)},
                         .steps = find_int(record.attributes, "steps"),
                         .reason = std::string(find_string(record.attributes, "reason")),
                         .kernel = text("kernel", kProfileNameMax),
                         .instead_of = text("instead_of", kProfileNameMax),
                         .sentence = text("sentence", kProfileSentenceMax),
                         .cost_us = number_of(record.attributes, "cost_us"),
                         .share = number_of(record.attributes, "share")};
  LOCKSTEP_TRY(check(finding));
  return finding;
}

Result<BlamedRanks> profile_finding_from_summary_untrusted(std::string_view summary_json, ProfileFinding capture) {
  const JsonDocument document =
      LOCKSTEP_TRY(JsonDocument::parse(summary_json, {.bytes_max = 256u << 20, .values_max = 16'000'000}));
  const JsonValue verdict = document.root()["verdict"];
  if (!verdict.is_object()) return Error{"a profile's summary has no verdict"};
  const auto text = [&](const char* key, size_t most) { return bounded(verdict[key].string().value_or(""), most); };
  BlamedRanks blamed{std::move(capture), {}};
  blamed.finding.reason = verdict["reason"].string().value_or("");
  blamed.finding.kernel = text("kernel", kProfileNameMax);
  blamed.finding.instead_of = text("instead_of", kProfileNameMax);
  blamed.finding.sentence = text("sentence", kProfileSentenceMax);
  blamed.finding.cost_us = verdict["cost_us_per_step"].number().value_or(-1);
  blamed.finding.share = std::min(verdict["share"].number().value_or(-1), 1.0);
  for (const JsonValue& rank : verdict["ranks"]) {
    const std::optional<int64_t> number = rank.integer();
    if (!number || *number < 0 || *number > INT32_MAX) return Error{"a profile's summary blames what is no rank"};
    if (blamed.ranks.size() < kProfileRanksBlamedMax) blamed.ranks.emplace_back(static_cast<int32_t>(*number));
  }
  if (!blamed.ranks.empty()) LOCKSTEP_TRY(check(blamed.finding));
  return blamed;
}

std::vector<ResourceGroup> to_groups(const BlamedRanks& blamed, Identity identity) {
  std::vector<ResourceGroup> groups;
  for (const Rank rank : blamed.ranks) {
    identity.rank = rank;
    groups.push_back(
        {.resource = to_resource(identity), .scope_name = "lockstep.server", .logs = {to_record(blamed.finding)}});
  }
  return groups;
}

}  // namespace lockstep
