#include "model/profile_capture.h"

#include <algorithm>
#include <optional>

#include "base/characters.h"
#include "base/text.h"
#include "model/step.h"

namespace lockstep {
namespace {

constexpr int64_t kStepMost = int64_t{1} << 50;
constexpr const char* kStates[] = {"armed", "waiting", "tracing", "uploading", "done", "failed"};

Result<std::string> capture_of(const LogRecord& record) {
  std::string capture(find_string(record.attributes, "capture"));
  if (!is_capture_id(capture)) return Error{record.event_name + ": capture is no id of one"};
  return capture;
}

Result<int64_t> number_of(const LogRecord& record, const char* name, int64_t fallback, int64_t least, int64_t most) {
  const int64_t number = find_int(record.attributes, name, fallback);
  if (number < least || number > most)
    return Error{format("%s: %s is %lld", record.event_name.c_str(), name, static_cast<long long>(number))};
  return number;
}

}  // namespace

std::string profile_file_name(Rank rank) {
  return format("rank-%d.json.gz", rank.value());
}

Result<void> check(const ProfileRequest& request) {
  auto within = [](int64_t value, int64_t most) { return value >= 1 && value <= most; };
  if (request.job_id.empty() || request.job_id.size() > kIdentityTextMax) return Error{"names no usable job"};
  if (request.attempt < 0) return Error{"has no usable attempt"};
  if (!is_capture_id(request.capture)) return Error{"has no usable capture"};
  if (request.start_step < kNoStep || request.start_step.value() > kStepMost) return Error{"has no usable first step"};
  if (!within(request.steps, kProfileStepsMax))
    return Error{format("is not for 1 to %lld steps", static_cast<long long>(kProfileStepsMax))};
  if (request.start_unix_ms < 0 || request.start_unix_ms > INT64_MAX / 1'000'000) return Error{"has no usable time"};
  if (!within(request.duration_ms, kProfileLimitSMax * 1'000)) return Error{"has no usable duration"};
  if (!within(request.limit_s, kProfileLimitSMax)) return Error{"has no usable limit in seconds"};
  if (!within(request.bytes_max, kProfileBytesMax)) return Error{"has no usable limit in bytes"};
  if (request.ranks.empty() || request.ranks.size() > kProfileRanksMax)
    return Error{format("is not for 1 to %zu ranks", kProfileRanksMax)};
  return {};
}

const char* to_text(ProfileState state) {
  return kStates[static_cast<size_t>(state)];
}

LogRecord to_record(const ProfileProgress& progress) {
  LogRecord record;
  record.event_name = kEventProfileState;
  record.time_unix_ns = progress.time_unix_ns;
  record.severity = progress.state == ProfileState::kFailed ? 13 : 9;
  record.attributes = {{"capture", progress.capture}, {"state", to_text(progress.state)}};
  if (!progress.reason.empty())
    record.attributes.push_back({"reason", as_one_line(utf8_prefix(progress.reason, kProfileReasonMax))});
  if (progress.bytes > 0) record.attributes.push_back({"bytes", progress.bytes});
  return record;
}

LogRecord to_record(const ProfileReady& ready) {
  LogRecord record;
  record.event_name = kEventProfileReady;
  record.time_unix_ns = ready.time_unix_ns;
  record.severity = 9;
  record.attributes = {{"capture", ready.capture}, {"key", ready.key},     {"bytes", ready.bytes},
                       {"sha256", ready.sha256},   {"steps", ready.steps}, {"first_step", ready.first_step.value()}};
  return record;
}

Result<ProfileProgress> profile_progress_from_record(const LogRecord& record) {
  ProfileProgress progress;
  progress.time_unix_ns = record.time_unix_ns;
  progress.capture = LOCKSTEP_TRY(capture_of(record));
  const std::string_view state = find_string(record.attributes, "state");
  const auto found = std::find(std::begin(kStates), std::end(kStates), state);
  if (found == std::end(kStates)) return Error{"profile.state: no such state"};
  progress.state = static_cast<ProfileState>(found - std::begin(kStates));
  progress.reason = as_one_line(utf8_prefix(find_string(record.attributes, "reason"), kProfileReasonMax));
  progress.bytes = LOCKSTEP_TRY(number_of(record, "bytes", 0, 0, INT64_MAX));
  return progress;
}

Result<ProfileReady> profile_ready_from_record(const LogRecord& record) {
  ProfileReady ready;
  ready.time_unix_ns = record.time_unix_ns;
  ready.capture = LOCKSTEP_TRY(capture_of(record));
  ready.key = find_string(record.attributes, "key");
  if (ready.key.empty() || ready.key.size() > kProfileKeyMax || has_control_characters(ready.key))
    return Error{"profile.ready: key is no key of a blob"};
  ready.sha256 = find_string(record.attributes, "sha256");
  if (ready.sha256.size() != 64 || !is_lower_hex(ready.sha256))
    return Error{"profile.ready: sha256 is not 64 hex digits"};
  ready.bytes = LOCKSTEP_TRY(number_of(record, "bytes", -1, 0, INT64_MAX));
  ready.steps = LOCKSTEP_TRY(number_of(record, "steps", 0, 0, kProfileStepsMax));
  ready.first_step = StepNumber{LOCKSTEP_TRY(number_of(record, "first_step", -1, -1, INT64_MAX))};
  return ready;
}

}  // namespace lockstep
