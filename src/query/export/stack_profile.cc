#include "query/export/stack_profile.h"

#include <map>
#include <tuple>
#include <vector>

#include "base/json_writer.h"
#include "base/protobuf_wire.h"
#include "base/text.h"

namespace lockstep {
namespace {

using protobuf::WireWriter;

// Field numbers of pprof's messages, as its public schema has them.
namespace profile {
constexpr uint32_t kSampleType = 1, kSample = 2, kLocation = 4, kFunction = 5, kStrings = 6, kTimeNanos = 9,
                   kDurationNanos = 10, kPeriodType = 11, kPeriod = 12;
}
namespace sample {
constexpr uint32_t kLocationId = 1, kValue = 2, kLabel = 3;
}
namespace label {
constexpr uint32_t kKey = 1, kText = 2, kNumber = 3;
}
namespace location {
constexpr uint32_t kId = 1, kLine = 4;
}
namespace line {
constexpr uint32_t kFunctionId = 1, kNumber = 2;
}
namespace function {
constexpr uint32_t kId = 1, kName = 2, kSystemName = 3, kFile = 4;
}

struct Message {
  std::string text;
  WireWriter to{text};
};

std::string frame_name(const StackFrame& frame) {
  return frame.line > 0 ? format("%s (%s:%d)", frame.function.c_str(),
                                 frame.file.substr(frame.file.rfind('/') + 1).c_str(), frame.line)
                        : frame.function;
}

// Milliseconds of wall time that one look stands for.
double look_ms(const RankSamples& samples) {
  return samples.looks > 0 ? static_cast<double>(samples.duration_ms) / static_cast<double>(samples.looks) : 0;
}

std::string thread_text(const SampledThread& thread) {
  std::string text = to_text(thread.role);
  if (thread.role == ThreadRole::kThread && !thread.name.empty()) text += " " + thread.name;
  if (thread.role == ThreadRole::kWorker) text += format(" %d", thread.pid);
  return text;
}

class PprofWriter {
 public:
  PprofWriter() { text(""); }

  void add(Rank rank, const RankSamples& samples) {
    if (time_ns_ == 0 || samples.time_unix_ns < time_ns_) time_ns_ = samples.time_unix_ns;
    duration_ns_ = std::max(duration_ns_, samples.duration_ms * 1'000'000);
    const StackFrame rank_frame{format("rank %d", rank.value()), "", 0};
    for (const CountedStack& stack : samples.stacks) {
      const SampledThread& thread = samples.threads[stack.thread];
      std::string packed;
      for (uint32_t id : stack.frames) append_varint(packed, location_of(samples.frames[id]));
      append_varint(packed, location_of({thread_text(thread), "", 0}));
      append_varint(packed, location_of(rank_frame));
      Message one;
      one.to.bytes(sample::kLocationId, packed);
      std::string values;
      append_varint(values, static_cast<uint64_t>(stack.count));
      append_varint(values, static_cast<uint64_t>(static_cast<double>(stack.count) * look_ms(samples) * 1e6));
      one.to.bytes(sample::kValue, values);
      Message mark;
      mark.to.varint(label::kKey, text("rank"));
      mark.to.varint(label::kNumber, static_cast<uint64_t>(rank.value()));
      one.to.bytes(sample::kLabel, mark.text);
      Message where;
      where.to.varint(label::kKey, text("thread"));
      where.to.varint(label::kText, text(thread_text(thread)));
      one.to.bytes(sample::kLabel, where.text);
      out_.to.bytes(profile::kSample, one.text);
    }
  }

  std::string finish() {
    for (const auto& [name, unit] : {std::pair{"samples", "count"}, {"wall", "nanoseconds"}}) {
      out_.to.bytes(profile::kSampleType, type(name, unit));
    }
    out_.to.bytes(profile::kPeriodType, type("wall", "nanoseconds"));
    out_.to.varint(profile::kTimeNanos, static_cast<uint64_t>(time_ns_));
    out_.to.varint(profile::kDurationNanos, static_cast<uint64_t>(duration_ns_));
    out_.to.varint(profile::kPeriod, 10'000'000);
    Message strings;
    for (const std::string& one : strings_) strings.to.bytes(profile::kStrings, one);
    return out_.text + tables_.text + strings.text;
  }

 private:
  static void append_varint(std::string& bytes, uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
    bytes += static_cast<char>(value);
  }
  std::string type(const char* name, const char* unit) {
    Message writer;
    writer.to.varint(1, text(name));
    writer.to.varint(2, text(unit));
    return writer.text;
  }
  uint64_t text(const std::string& value) {
    const auto [entry, added] = string_ids_.try_emplace(value, strings_.size());
    if (added) strings_.push_back(value);
    return entry->second;
  }
  uint64_t function_of(const StackFrame& frame) {
    const auto [entry, added] = functions_.try_emplace({frame.function, frame.file}, functions_.size() + 1);
    if (added) {
      Message writer;
      writer.to.varint(function::kId, entry->second);
      writer.to.varint(function::kName, text(frame.function));
      writer.to.varint(function::kSystemName, text(frame.function));
      writer.to.varint(function::kFile, text(frame.file));
      tables_.to.bytes(profile::kFunction, writer.text);
    }
    return entry->second;
  }
  uint64_t location_of(const StackFrame& frame) {
    const auto [entry, added] = locations_.try_emplace({frame.function, frame.file, frame.line}, locations_.size() + 1);
    if (added) {
      Message at;
      at.to.varint(line::kFunctionId, function_of(frame));
      at.to.varint(line::kNumber, static_cast<uint64_t>(frame.line));
      Message writer;
      writer.to.varint(location::kId, entry->second);
      writer.to.bytes(location::kLine, at.text);
      tables_.to.bytes(profile::kLocation, writer.text);
    }
    return entry->second;
  }

  Message out_, tables_;
  std::vector<std::string> strings_;
  std::map<std::string, uint64_t> string_ids_;
  std::map<std::pair<std::string, std::string>, uint64_t> functions_;
  std::map<std::tuple<std::string, std::string, int32_t>, uint64_t> locations_;
  int64_t time_ns_ = 0, duration_ns_ = 0;
};

void write_speedscope_profile(JsonWriter& json, Rank rank, const RankSamples& samples, ThreadRole role,
                              const std::vector<uint64_t>& frame_ids) {
  double total = 0;
  for (const CountedStack& stack : samples.stacks) {
    if (samples.threads[stack.thread].role == role) total += static_cast<double>(stack.count) * look_ms(samples);
  }
  if (total == 0) return;
  json.begin_object()
      .field("type", "sampled")
      .field("name", format("rank %d, %s", rank.value(), to_text(role)))
      .field("unit", "milliseconds")
      .field("startValue", 0)
      .field("endValue", total)
      .key("samples")
      .begin_array();
  for (const CountedStack& stack : samples.stacks) {
    if (samples.threads[stack.thread].role != role) continue;
    json.begin_array();
    for (size_t i = stack.frames.size(); i-- > 0;) json.number(frame_ids[stack.frames[i]]);
    json.end_array();
  }
  json.end_array().key("weights").begin_array();
  for (const CountedStack& stack : samples.stacks) {
    if (samples.threads[stack.thread].role == role) json.number(static_cast<double>(stack.count) * look_ms(samples));
  }
  json.end_array().end_object();
}

}  // namespace

std::string speedscope_json(const SampledRanks& samples, std::string_view name) {
  std::map<std::tuple<std::string, std::string, int32_t>, uint64_t> ids;
  std::map<Rank, std::vector<uint64_t>> of_rank;
  JsonWriter json;
  json.begin_object()
      .field("$schema", "https://www.speedscope.app/file-format-schema.json")
      .field("name", name)
      .field("exporter", "lockstep")
      .key("shared")
      .begin_object()
      .key("frames")
      .begin_array();
  for (const auto& [rank, one] : samples) {
    for (const StackFrame& frame : one.frames) {
      const auto [entry, added] = ids.try_emplace({frame.function, frame.file, frame.line}, ids.size());
      of_rank[rank].push_back(entry->second);
      if (!added) continue;
      json.begin_object().field("name", frame_name(frame)).field("file", frame.file);
      if (frame.line > 0) json.field("line", frame.line);
      json.end_object();
    }
  }
  json.end_array().end_object().key("profiles").begin_array();
  for (const auto& [rank, one] : samples) {
    for (ThreadRole role : {ThreadRole::kMain, ThreadRole::kThread, ThreadRole::kWorker})
      write_speedscope_profile(json, rank, one, role, of_rank[rank]);
  }
  json.end_array().end_object();
  return json.take();
}

std::string pprof_profile(const SampledRanks& samples) {
  PprofWriter writer;
  for (const auto& [rank, one] : samples) writer.add(rank, one);
  return writer.finish();
}

std::string collapsed_stacks(const SampledRanks& samples) {
  auto plain = [](std::string text) {
    for (char& c : text) {
      if (c == ';') c = ',';
    }
    return text;
  };
  std::string text;
  for (const auto& [rank, one] : samples) {
    for (const CountedStack& stack : one.stacks) {
      text += format("rank %d;%s", rank.value(), plain(thread_text(one.threads[stack.thread])).c_str());
      for (size_t i = stack.frames.size(); i-- > 0;) text += ";" + plain(frame_name(one.frames[stack.frames[i]]));
      text += format(" %lld\n", static_cast<long long>(stack.count));
    }
  }
  return text;
}

}  // namespace lockstep
