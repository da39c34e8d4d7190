#include "wire/commands.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/text.h"
#include "model/events.h"
#include "model/rank_text.h"
#include "model/step.h"

namespace lockstep {
namespace {

constexpr std::string_view kFirstLine = "lockstep-commands 1";

Result<std::string> parse_job(std::string_view word) {
  std::optional<std::string> job = from_url_part(word);
  if (!job || job->empty() || job->size() > kIdentityTextMax) return Error{"names no usable job"};
  return std::move(*job);
}

// Sorted, each once. ranks_left: a few short lines must not make a list that fills memory.
Result<std::vector<Rank>> parse_ranks(std::string_view word, size_t& ranks_left) {
  std::vector<Rank> ranks = LOCKSTEP_TRY(ranks_from_text(word, ranks_left));
  ranks_left -= ranks.size();
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  // No rank at all must not read as every rank.
  if (ranks.empty() || ranks.front() < 0_rank) return Error{"names no usable rank"};
  return ranks;
}

Result<DetailRequest> parse_detail(const std::vector<std::string_view>& words, size_t& ranks_left) {
  if (words.size() != 6) return Error{format("has %zu words, not 6", words.size())};
  std::string job = LOCKSTEP_TRY(parse_job(words[1]));
  const std::optional<int64_t> attempt = parse_int(words[2]), from = parse_int(words[3]), to = parse_int(words[4]);
  if (!attempt || *attempt < 0) return Error{"has no usable attempt"};
  if (!from || !to || *from < 0 || *to < *from || *to - *from >= kDetailStepsMax)
    return Error{format("has steps that are no range of at most %lld", static_cast<long long>(kDetailStepsMax))};
  DetailRequest request{
      .job_id = std::move(job), .attempt = *attempt, .from_step = StepNumber{*from}, .to_step = StepNumber{*to}};
  if (words[5] != "*") {
    request.ranks = LOCKSTEP_TRY(parse_ranks(words[5], ranks_left));
  }
  return request;
}

Result<StackRequest> parse_stacks(const std::vector<std::string_view>& words, size_t& ranks_left) {
  if (words.size() != 4) return Error{format("has %zu words, not 4", words.size())};
  std::string job = LOCKSTEP_TRY(parse_job(words[1]));
  const std::optional<int64_t> attempt = parse_int(words[2]);
  if (!attempt || *attempt < 0) return Error{"has no usable attempt"};
  std::vector<Rank> ranks = LOCKSTEP_TRY(parse_ranks(words[3], ranks_left));
  if (ranks.size() > kStackRanksMax) return Error{format("has more than %zu ranks", kStackRanksMax)};
  return StackRequest{.job_id = std::move(job), .attempt = *attempt, .ranks = std::move(ranks)};
}

// Options of a newer server say nothing here.
Result<ProfileRequest> parse_profile(const std::vector<std::string_view>& words, size_t& ranks_left) {
  if (words.size() != 12) return Error{format("has %zu words, not 12", words.size())};
  ProfileRequest request;
  request.job_id = LOCKSTEP_TRY(parse_job(words[1]));
  request.capture = words[3];
  int64_t start_step = 0;
  int64_t* const numbers[] = {
      &request.attempt,     nullptr,          &start_step,       &request.steps, &request.start_unix_ms,
      &request.duration_ms, &request.limit_s, &request.bytes_max};
  for (size_t i = 0; i < std::size(numbers); ++i) {
    if (numbers[i] == nullptr) continue;
    const std::optional<int64_t> number = parse_int(words[i + 2]);
    if (!number) return Error{"has something else where a number should be"};
    *numbers[i] = *number;
  }
  request.start_step = StepNumber{start_step};
  for (std::string_view option : split(words[10], ',')) {
    if (option == "shapes") request.shapes = true;
    if (option == "stacks") request.stacks = true;
  }
  request.ranks = LOCKSTEP_TRY(parse_ranks(words[11], ranks_left));
  LOCKSTEP_TRY(check(request));
  return request;
}

Result<SampleRequest> parse_sample(const std::vector<std::string_view>& words, size_t& ranks_left) {
  if (words.size() != 6) return Error{format("has %zu words, not 6", words.size())};
  SampleRequest request{.job_id = LOCKSTEP_TRY(parse_job(words[1]))};
  const std::optional<int64_t> attempt = parse_int(words[2]), seconds = parse_int(words[3]), hz = parse_int(words[4]);
  if (!attempt || *attempt < 0) return Error{"has no usable attempt"};
  if (!seconds || *seconds < 1 || *seconds > kSampleSecondsMax || !hz || *hz < 1 || *hz > kSampleHzMax)
    return Error{format("has no usable duration or rate (limits %lld s, %lld Hz)",
                        static_cast<long long>(kSampleSecondsMax), static_cast<long long>(kSampleHzMax))};
  request.attempt = *attempt;
  request.seconds = *seconds;
  request.hz = *hz;
  request.ranks = LOCKSTEP_TRY(parse_ranks(words[5], ranks_left));
  if (request.ranks.size() > kSampleRanksMax) return Error{format("has more than %zu ranks", kSampleRanksMax)};
  return request;
}

}  // namespace

bool is_cursor(std::string_view text) {
  return !text.empty() && text.size() <= kCursorBytesMax && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '-';
  });
}

std::string encode_commands(const CommandList& list) {
  std::string text = std::string(kFirstLine) + "\ncursor " + list.cursor + "\n";
  for (const DetailRequest& request : list.details) {
    text += format("detail %s %lld %lld %lld %s\n", url_part(request.job_id).c_str(),
                   static_cast<long long>(request.attempt), static_cast<long long>(request.from_step.value()),
                   static_cast<long long>(request.to_step.value()),
                   request.ranks.empty() ? "*" : ranks_text(request.ranks).c_str());
  }
  for (const StackRequest& request : list.stacks) {
    text += format("stacks %s %lld %s\n", url_part(request.job_id).c_str(), static_cast<long long>(request.attempt),
                   ranks_text(request.ranks).c_str());
  }
  for (const ProfileRequest& request : list.profiles) {
    const char* const options = request.shapes   ? (request.stacks ? "shapes,stacks" : "shapes")
                                : request.stacks ? "stacks"
                                                 : "-";
    text += format("profile %s %lld %s %lld %lld %lld %lld %lld %lld %s %s\n", url_part(request.job_id).c_str(),
                   static_cast<long long>(request.attempt), request.capture.c_str(),
                   static_cast<long long>(request.start_step.value()), static_cast<long long>(request.steps),
                   static_cast<long long>(request.start_unix_ms), static_cast<long long>(request.duration_ms),
                   static_cast<long long>(request.limit_s), static_cast<long long>(request.bytes_max), options,
                   ranks_text(request.ranks).c_str());
  }
  for (const SampleRequest& request : list.samples) {
    text += format("sample %s %lld %lld %lld %s\n", url_part(request.job_id).c_str(),
                   static_cast<long long>(request.attempt), static_cast<long long>(request.seconds),
                   static_cast<long long>(request.hz), ranks_text(request.ranks).c_str());
  }
  return text;
}

Result<CommandList> parse_commands(std::string_view text) {
  if (text.size() > kCommandsBytesMax)
    return Error{format("commands of %zu bytes (limit %zu)", text.size(), kCommandsBytesMax)};
  if (!text.ends_with('\n')) return Error{"commands that do not end with a line: cut short"};
  text.remove_suffix(1);
  std::vector<std::string_view> lines = split(text, '\n');
  if (lines.empty() || lines[0] != kFirstLine)
    return Error{"commands that do not begin with \"" + std::string(kFirstLine) + "\""};
  if (lines.size() > kCommandsMax + 2) return Error{format("more than %zu commands", kCommandsMax)};
  CommandList list;
  size_t ranks_left = kDetailRanksMax;
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::vector<std::string_view> words = split(lines[i], ' ');
    if (words[0] == "cursor") {
      if (words.size() != 2 || !is_cursor(words[1]) || !list.cursor.empty())
        return Error{"commands with an odd cursor"};
      list.cursor = words[1];
    } else if (words[0] == "detail") {
      Result<DetailRequest> request = parse_detail(words, ranks_left);
      if (!request.ok()) return prefixed(request.failure(), "a detail line ");
      list.details.push_back(std::move(*request));
    } else if (words[0] == "stacks") {
      Result<StackRequest> request = parse_stacks(words, ranks_left);
      if (!request.ok()) return prefixed(request.failure(), "a stacks line ");
      list.stacks.push_back(std::move(*request));
    } else if (words[0] == "profile") {
      Result<ProfileRequest> request = parse_profile(words, ranks_left);
      if (!request.ok()) return prefixed(request.failure(), "a profile line ");
      list.profiles.push_back(std::move(*request));
    } else if (words[0] == "sample") {
      Result<SampleRequest> request = parse_sample(words, ranks_left);
      if (!request.ok()) return prefixed(request.failure(), "a sample line ");
      list.samples.push_back(std::move(*request));
    } else {
      ++list.unknown;
    }
  }
  if (list.cursor.empty()) return Error{"commands without a cursor"};
  return list;
}

}  // namespace lockstep
