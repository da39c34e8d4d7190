#include "model/rank_samples.h"

#include <algorithm>
#include <optional>

#include "base/text.h"

namespace lockstep {
namespace {

constexpr uint64_t kCountMost = 1'000'000'000'000;

std::string bounded(std::string_view text) {
  return as_one_line(utf8_prefix(text, kEvidenceTextMax));
}

const ValueList* list_of(const Value& value) {
  return std::get_if<ValueList>(&value.data);
}

const ValueList& list_of(const Attributes& attributes, std::string_view key) {
  static const ValueList kNone;
  const Value* value = find(attributes, key);
  const ValueList* list = value ? list_of(*value) : nullptr;
  return list ? *list : kNone;
}

int64_t count_of(const Attributes& attributes, std::string_view key) {
  return std::clamp<int64_t>(find_int(attributes, key), 0, static_cast<int64_t>(kCountMost));
}

std::optional<int64_t> number_at(const ValueList& row, size_t at, int64_t least, int64_t most) {
  const int64_t* number = at < row.size() ? std::get_if<int64_t>(&row[at].data) : nullptr;
  if (number == nullptr || *number < least || *number > most) return std::nullopt;
  return *number;
}

std::optional<std::string> text_at(const ValueList& row, size_t at) {
  const std::string* text = at < row.size() ? std::get_if<std::string>(&row[at].data) : nullptr;
  if (text == nullptr || text->size() > kEvidenceTextMax || has_control_characters(*text)) return std::nullopt;
  return *text;
}

// Tables are text, a line each: as values they would take many times the memory, and these are the largest events.
std::string frames_text(const std::vector<StackFrame>& frames) {
  std::string text;
  for (const StackFrame& frame : frames)
    text += format("%d\t%s\t%s\n", frame.line, bounded(frame.function).c_str(), bounded(frame.file).c_str());
  return text;
}

std::string stacks_text(const std::vector<CountedStack>& stacks) {
  std::string text;
  for (const CountedStack& stack : stacks) {
    text += format("%u %lld %lld", stack.thread, static_cast<long long>(stack.count),
                   static_cast<long long>(stack.running));
    for (uint32_t frame : stack.frames) text += " " + std::to_string(frame);
    text += '\n';
  }
  return text;
}

// Lines without their ends; nullopt: more than `most`, or the last is cut short.
std::optional<std::vector<std::string_view>> lines_of(std::string_view text, size_t most) {
  if (text.empty()) return std::vector<std::string_view>();
  if (!text.ends_with('\n') || text.size() > 2 * kSampleBytesMax) return std::nullopt;
  text.remove_suffix(1);
  std::vector<std::string_view> lines = split(text, '\n');
  if (lines.size() > most) return std::nullopt;
  return lines;
}

bool read_frame(std::string_view line, StackFrame& frame) {
  const std::vector<std::string_view> words = split(line, '\t');
  const std::optional<int64_t> number = words.size() == 3 ? parse_int(words[0]) : std::nullopt;
  if (!number || *number < 0 || *number > INT32_MAX) return false;
  for (std::string_view text : {words[1], words[2]}) {
    if (text.size() > kEvidenceTextMax || has_control_characters(text)) return false;
  }
  frame = {std::string(words[1]), std::string(words[2]), static_cast<int32_t>(*number)};
  return true;
}

bool read_stack(std::string_view line, const RankSamples& samples, CountedStack& stack) {
  const std::vector<std::string_view> words = split(line, ' ');
  if (words.size() < 4 || words.size() > 3 + kSampleDepthMax) return false;
  const std::optional<uint64_t> thread = parse_uint(words[0]), count = parse_uint(words[1]),
                                running = parse_uint(words[2]);
  if (!thread || *thread >= samples.threads.size() || !count || *count > kCountMost || !running ||
      *running > kCountMost)
    return false;
  stack.thread = static_cast<uint32_t>(*thread);
  stack.count = static_cast<int64_t>(*count);
  stack.running = static_cast<int64_t>(*running);
  for (size_t i = 3; i < words.size(); ++i) {
    const std::optional<uint64_t> frame = parse_uint(words[i]);
    if (!frame || *frame >= samples.frames.size()) return false;
    stack.frames.push_back(static_cast<uint32_t>(*frame));
  }
  return true;
}

bool read_thread(const Value& value, SampledThread& thread) {
  const ValueList* row = list_of(value);
  if (row == nullptr) return false;
  const std::optional<int64_t> role = number_at(*row, 0, 0, 2), pid = number_at(*row, 1, -1, INT32_MAX),
                               tid = number_at(*row, 2, -1, INT32_MAX);
  std::optional<std::string> name = text_at(*row, 3), state = text_at(*row, 4), wchan = text_at(*row, 5);
  int64_t* const counts[] = {&thread.looks, &thread.running, &thread.with_gil, &thread.cpu_ms};
  for (size_t i = 0; i < std::size(counts); ++i) {
    const std::optional<int64_t> count = number_at(*row, 6 + i, 0, static_cast<int64_t>(kCountMost));
    if (!count) return false;
    *counts[i] = *count;
  }
  if (!role || !pid || !tid || !name || !state || !wchan) return false;
  thread.role = static_cast<ThreadRole>(*role);
  thread.pid = static_cast<int32_t>(*pid);
  thread.tid = static_cast<int32_t>(*tid);
  thread.name = std::move(*name);
  thread.state = state->size() == 1 ? (*state)[0] : '?';
  thread.wchan = std::move(*wchan);
  return true;
}

}  // namespace

const char* to_text(ThreadRole role) {
  switch (role) {
    case ThreadRole::kMain:
      return "main thread";
    case ThreadRole::kThread:
      return "another thread";
    case ThreadRole::kWorker:
      return "worker process";
  }
  return "another thread";
}

void fit(RankSamples& samples) {
  std::stable_sort(samples.stacks.begin(), samples.stacks.end(),
                   [](const CountedStack& a, const CountedStack& b) { return a.count > b.count; });
  constexpr uint32_t kUnused = UINT32_MAX;
  std::vector<uint32_t> new_thread(samples.threads.size(), kUnused), new_frame(samples.frames.size(), kUnused);
  RankSamples kept;
  size_t bytes = 0;
  for (CountedStack& stack : samples.stacks) {
    if (stack.frames.size() > kSampleDepthMax) stack.frames.resize(kSampleDepthMax);
    // A recursion has the same frame many times.
    std::vector<uint32_t> fresh;
    size_t cost = 24 + stack.frames.size() * 5;
    for (uint32_t frame : stack.frames) {
      if (new_frame[frame] != kUnused || std::find(fresh.begin(), fresh.end(), frame) != fresh.end()) continue;
      fresh.push_back(frame);
      cost += samples.frames[frame].function.size() + samples.frames[frame].file.size() + 16;
    }
    const bool thread_is_new = new_thread[stack.thread] == kUnused;
    if (kept.stacks.size() == kSampleStacksMax || kept.frames.size() + fresh.size() > kSampleFramesMax ||
        bytes + cost > kSampleBytesMax || (thread_is_new && kept.threads.size() == kSampleThreadsMax)) {
      samples.left_out += stack.count;
      continue;
    }
    bytes += cost;
    if (thread_is_new) {
      new_thread[stack.thread] = static_cast<uint32_t>(kept.threads.size());
      kept.threads.push_back(std::move(samples.threads[stack.thread]));
    }
    for (uint32_t frame : fresh) {
      new_frame[frame] = static_cast<uint32_t>(kept.frames.size());
      kept.frames.push_back(samples.frames[frame]);
    }
    stack.thread = new_thread[stack.thread];
    for (uint32_t& frame : stack.frames) frame = new_frame[frame];
    kept.stacks.push_back(std::move(stack));
  }
  samples.threads = std::move(kept.threads);
  samples.frames = std::move(kept.frames);
  samples.stacks = std::move(kept.stacks);
}

LogRecord to_record(const RankSamples& samples) {
  LogRecord record;
  record.event_name = kEventRankSamples;
  record.time_unix_ns = samples.time_unix_ns;
  record.severity = 9;
  ValueList threads;
  for (const SampledThread& thread : samples.threads)
    threads.emplace_back(ValueList{static_cast<int64_t>(thread.role), int64_t{thread.pid}, int64_t{thread.tid},
                                   bounded(thread.name), std::string(1, thread.state), bounded(thread.wchan),
                                   thread.looks, thread.running, thread.with_gil, thread.cpu_ms});
  record.attributes = {{"pid", int64_t{samples.pid}},
                       {"duration_ms", samples.duration_ms},
                       {"looks", samples.looks},
                       {"hz", samples.hz},
                       {"whole", samples.whole},
                       {"cut", samples.cut},
                       {"dropped", samples.dropped},
                       {"left_out", samples.left_out},
                       {"python", bounded(samples.version)},
                       {"threads", std::move(threads)},
                       {"frames", frames_text(samples.frames)},
                       {"stacks", stacks_text(samples.stacks)}};
  if (!samples.note.empty()) record.attributes.push_back({"note", bounded(samples.note)});
  return record;
}

Result<RankSamples> rank_samples_from_record(const LogRecord& record) {
  RankSamples samples;
  const Attributes& attributes = record.attributes;
  samples.time_unix_ns = record.time_unix_ns;
  samples.pid = static_cast<int32_t>(std::clamp<int64_t>(find_int(attributes, "pid", -1), -1, INT32_MAX));
  samples.duration_ms = count_of(attributes, "duration_ms");
  samples.looks = count_of(attributes, "looks");
  samples.hz = count_of(attributes, "hz");
  samples.whole = count_of(attributes, "whole");
  samples.cut = count_of(attributes, "cut");
  samples.dropped = count_of(attributes, "dropped");
  samples.left_out = count_of(attributes, "left_out");
  samples.version = bounded(find_string(attributes, "python"));
  samples.note = bounded(find_string(attributes, "note"));
  const ValueList& threads = list_of(attributes, "threads");
  if (threads.size() > kSampleThreadsMax)
    return Error{format("rank.samples has %zu threads (limit %zu)", threads.size(), kSampleThreadsMax)};
  for (const Value& value : threads) {
    if (!read_thread(value, samples.threads.emplace_back()))
      return Error{"rank.samples: a thread with missing or odd columns"};
  }
  const std::optional<std::vector<std::string_view>> frames =
                                                         lines_of(find_string(attributes, "frames"), kSampleFramesMax),
                                                     stacks =
                                                         lines_of(find_string(attributes, "stacks"), kSampleStacksMax);
  if (!frames || !stacks) return Error{"rank.samples: a table that is cut short or too long"};
  for (std::string_view line : *frames) {
    if (!read_frame(line, samples.frames.emplace_back())) return Error{"rank.samples: an odd frame"};
  }
  for (std::string_view line : *stacks) {
    if (!read_stack(line, samples, samples.stacks.emplace_back())) return Error{"rank.samples: an odd stack"};
  }
  return samples;
}

}  // namespace lockstep
