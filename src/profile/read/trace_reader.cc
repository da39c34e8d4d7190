#include "profile/read/trace_reader.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/text.h"
#include "profile/read/json_lexer.h"
#include "profile/read/nsys_reader.h"
#include "profile/read/trace_header.h"

namespace lockstep::profile {
namespace {

constexpr size_t kTracksMost =
    1'000'000;  // nobody has so many threads and streams; further ones are drawn with the last
constexpr int64_t kLongestEventNs = int64_t{7} * 24 * 3600 * 1'000'000'000;

struct CategoryName {
  std::string_view name;
  EventKind kind;
};
// Today's names first, then those of older versions and of other vendors.
constexpr CategoryName kCategories[] = {
    {"cpu_op", EventKind::kCpuOp},
    {"python_function", EventKind::kPython},
    {"cuda_runtime", EventKind::kRuntime},
    {"kernel", EventKind::kKernel},
    {"user_annotation", EventKind::kAnnotation},
    {"gpu_user_annotation", EventKind::kGpuAnnotation},
    {"gpu_memcpy", EventKind::kMemcpy},
    {"gpu_memset", EventKind::kMemset},
    {"cuda_driver", EventKind::kDriver},
    {"cuda_sync", EventKind::kSync},
    {"overhead", EventKind::kOverhead},
    {"hip_runtime", EventKind::kRuntime},
    {"hip_driver", EventKind::kDriver},
    {"xpu_runtime", EventKind::kRuntime},
    {"xpu_driver", EventKind::kDriver},
    {"xpu_sync", EventKind::kSync},
    {"mtia_runtime", EventKind::kRuntime},
    {"mtia_ccp_events", EventKind::kKernel},
    {"privateuse1_runtime", EventKind::kRuntime},
    {"privateuse1_driver", EventKind::kDriver},
    {"collective_comm", EventKind::kKernel},
    {"Operator", EventKind::kCpuOp},
    {"Kernel", EventKind::kKernel},
    {"Memcpy", EventKind::kMemcpy},
    {"Memset", EventKind::kMemset},
    {"Runtime", EventKind::kRuntime},
    {"Trace", EventKind::kOther},
};

// One event as it stands in the window.
struct RawEvent {
  char phase = 0;
  bool has_collective = false;
  bool has_kernel = false;
  bool has_time = false;
  std::string_view category, name, pid, tid, label;  // label: args.name, of metadata
  int64_t start_ns = 0, duration_ns = 0;
  int64_t correlation = 0, external_id = 0;
  int64_t device = -1, stream = -1;
  std::string_view dims, types;
  std::string_view collective, group, group_description, group_ranks, dtype;
  int64_t seq = -1, elements_in = -1, elements_out = -1, group_size = 0, peer = -1;
  std::string_view sync_kind;
  int64_t wait_on_stream = -1, wait_on_correlation = 0;
  KernelDetail kernel;
};

// "[4,1,1]"
bool read_three(JsonLexer& lexer, uint32_t (&out)[3]) {
  std::string_view raw;
  if (!lexer.value(raw)) return false;
  size_t at = 0;
  for (char c : raw) {
    if (c >= '0' && c <= '9') {
      out[at] = out[at] * 10 + static_cast<uint32_t>(c - '0');
    } else if (c == ',' && ++at == 3) {
      break;
    }
  }
  return true;
}

bool read_count(JsonLexer& lexer, uint32_t& out) {
  int64_t value = 0;
  if (!lexer.integer(value)) return false;
  out = static_cast<uint32_t>(std::clamp<int64_t>(value, 0, UINT32_MAX));
  return true;
}

bool read_kernel_argument(JsonLexer& lexer, std::string_view key, RawEvent& event, bool& known) {
  known = true;
  KernelDetail& kernel = event.kernel;
  if (key == "grid") return event.has_kernel = true, read_three(lexer, kernel.grid);
  if (key == "block") return event.has_kernel = true, read_three(lexer, kernel.block);
  if (key == "registers per thread") return event.has_kernel = true, read_count(lexer, kernel.registers);
  if (key == "shared memory") return event.has_kernel = true, read_count(lexer, kernel.shared_bytes);
  if (key == "est. achieved occupancy %") {
    double percent = 0;
    if (!lexer.number(percent)) return false;
    kernel.occupancy = static_cast<float>(percent / 100);
    return true;
  }
  if (key == "graph node id") {
    int64_t node = 0;
    if (!lexer.integer(node)) return false;
    event.has_kernel = true;
    kernel.graph_node = static_cast<uint64_t>(node);
    return true;
  }
  if (key == "bytes" || key == "Bytes") {
    int64_t bytes = 0;
    if (!lexer.integer(bytes)) return false;
    event.has_kernel = true;
    kernel.bytes = static_cast<uint64_t>(std::max<int64_t>(bytes, 0));
    return true;
  }
  if (key == "memory bandwidth (GB/s)") {
    double value = 0;
    if (!lexer.number(value)) return false;
    event.has_kernel = true;
    kernel.gigabytes_per_s = static_cast<float>(value);
    return true;
  }
  known = false;
  return true;
}

bool read_collective_argument(JsonLexer& lexer, std::string_view key, RawEvent& event, bool& known) {
  known = true;
  if (key == "Collective name") return event.has_collective = true, lexer.text(event.collective);
  if (key == "Process Group Name") return event.has_collective = true, lexer.text(event.group);
  if (key == "Process Group Description") return lexer.text(event.group_description);
  if (key == "Process Group Ranks") return lexer.text(event.group_ranks);
  if (key == "In msg nelems" || key == "In msg size") return lexer.integer(event.elements_in, -1);
  if (key == "Out msg nelems" || key == "Out msg size") return lexer.integer(event.elements_out, -1);
  if (key == "Group size") return lexer.integer(event.group_size);
  if (key == "dtype") return lexer.text(event.dtype);
  if (key == "Seq") return lexer.integer(event.seq, -1);
  if (key == "Src Rank" || key == "Dst Rank") return lexer.integer(event.peer, -1);
  known = false;
  return true;
}

// The length tells most keys apart: comparing is what a trace with many arguments is read for.
bool read_argument(JsonLexer& lexer, std::string_view key, RawEvent& event) {
  std::string_view unused;
  bool known = false;
  switch (key.size()) {
    case 11:
      if (key == "External id" || key == "external id") return lexer.integer(event.external_id);
      if (key == "correlation") return lexer.integer(event.correlation);
      break;
    case 6:
      if (key == "stream") return lexer.integer(event.stream, -1);
      if (key == "device") return lexer.integer(event.device, -1);
      return lexer.value(unused);
    case 10:
      if (key == "Input Dims" || key == "Input dims") return lexer.value(event.dims);
      if (key == "Input type") return lexer.value(event.types);
      break;
    case 4:
      if (key == "name") return lexer.text(event.label);
      break;
    case 14:
      if (key == "cuda_sync_kind") return lexer.text(event.sync_kind);
      if (key == "wait_on_stream") return lexer.integer(event.wait_on_stream, -1);
      break;
    case 33:
      if (key == "wait_on_cuda_event_record_corr_id") return lexer.integer(event.wait_on_correlation);
      break;
    case 7:  // "Ev Idx", "queued" and their like: by far the most
    case 18:
      if (key != "Process Group Name") return lexer.value(unused);
      break;
    default:
      break;
  }
  if (!read_kernel_argument(lexer, key, event, known)) return false;
  if (!known && !read_collective_argument(lexer, key, event, known)) return false;
  return known || lexer.value(unused);
}

bool read_arguments(JsonLexer& lexer, RawEvent& event) {
  std::string_view unused;
  if (lexer.peek() != '{') return lexer.value(unused);
  lexer.take('{');
  if (lexer.peek() == '}') return lexer.take('}');
  bool ok = true;
  do {
    std::string_view key;
    if (!lexer.key(key) || !read_argument(lexer, key, event)) return false;
  } while (lexer.more('}', ok));
  return ok;
}

bool read_member(JsonLexer& lexer, std::string_view key, RawEvent& event) {
  std::string_view unused;
  switch (key.size()) {
    case 2:
      if (key == "ph") {
        std::string_view phase;
        if (!lexer.text(phase)) return false;
        event.phase = phase.empty() ? '\0' : phase[0];
        return true;
      }
      if (key == "ts") return event.has_time = true, lexer.microseconds(event.start_ns);
      break;
    case 3:
      if (key == "cat") return lexer.text(event.category);
      if (key == "pid") return lexer.text(event.pid);
      if (key == "tid") return lexer.text(event.tid);
      if (key == "dur") return lexer.microseconds(event.duration_ns);
      break;
    case 4:
      if (key == "name") return lexer.text(event.name);
      if (key == "args") return read_arguments(lexer, event);
      break;
    default:
      break;
  }
  return lexer.value(unused);
}

// An arrow from a launch to its kernel: a third of the events of a trace, and nothing is read of them.
bool is_flow(const RawEvent& event) {
  return event.phase == 's' || event.phase == 'f' || event.phase == 't';
}

bool read_event(JsonLexer& lexer, RawEvent& event) {
  if (!lexer.take('{')) return false;
  if (lexer.peek() == '}') return lexer.take('}');
  bool ok = true;
  do {
    std::string_view key;
    if (!lexer.key(key) || !read_member(lexer, key, event)) return false;
    if (key == "ph" && is_flow(event) && lexer.skip_flat_rest()) return true;
  } while (lexer.more('}', ok));
  return ok;
}

// Takes events as they come and makes columns of them.
class EventColumns {
 public:
  EventColumns(TraceEvents& out, const ReadOptions& options) : out_(out), options_(options) {}

  void add(const RawEvent& event) {
    ++out_.counts.events;
    if (event.phase == 'M') add_metadata(event);
    const EventKind kind = event.phase == 'X' ? kind_of(event.category) : EventKind::kOther;
    const bool is_kept = event.has_time && kind != EventKind::kOther &&
                         (kind != EventKind::kPython || options_.keep_python) && event.duration_ns >= 0 &&
                         event.duration_ns <= kLongestEventNs;
    if (!is_kept) {
      ++out_.counts.skipped;
      return;
    }
    if (out_.size() >= options_.events_max || out_.texts.bytes() >= options_.text_bytes_max) {
      ++out_.counts.too_many;
      return;
    }
    ++out_.counts.kept;
    const bool is_gpu = kind == EventKind::kKernel || kind == EventKind::kMemcpy || kind == EventKind::kMemset ||
                        kind == EventKind::kGpuAnnotation;
    out_.start_ns.push_back(event.start_ns);
    out_.duration_ns.push_back(event.duration_ns);
    out_.name.push_back(out_.texts.intern_json(event.name));
    out_.track.push_back(track_of(event));
    out_.kind.push_back(kind);
    out_.correlation.push_back(static_cast<uint64_t>(event.correlation));
    out_.external_id.push_back(static_cast<uint64_t>(event.external_id));
    const int64_t device = event.device >= 0 || !is_gpu ? event.device : parse_int(event.pid).value_or(0);
    out_.device.push_back(static_cast<int32_t>(std::clamp<int64_t>(device, -1, INT32_MAX)));
    out_.stream.push_back(event.stream >= 0 || !is_gpu ? event.stream : parse_int(event.tid).value_or(0));
    out_.detail.push_back(add_detail(event, kind));
  }

  // Names of rows come anywhere in a file, and times may have to be moved by a base that stands at its end.
  void finish() {
    for (size_t i = 0; i < out_.tracks.size(); ++i) {
      if (auto found = process_names_.find(out_.tracks[i].pid); found != process_names_.end()) {
        out_.tracks[i].process_name = found->second;
      }
    }
    if (out_.base_time_ns == 0) return;
    for (int64_t& start : out_.start_ns) start += out_.base_time_ns;
  }

 private:
  EventKind kind_of(std::string_view category) {
    if (category == last_category_.name) return last_category_.kind;
    for (const CategoryName& known : kCategories) {
      if (known.name == category) return (last_category_ = known).kind;
    }
    return EventKind::kOther;
  }
  void add_metadata(const RawEvent& event) {
    if (event.name == "process_name") process_names_[std::string(event.pid)] = unescaped(event.label);
    if (event.name == "thread_name") {
      const uint32_t track = track_of(event);
      out_.tracks[track].thread_name = unescaped(event.label);
    }
  }
  uint32_t track_of(const RawEvent& event) {
    if (!out_.tracks.empty() && out_.tracks[last_track_].pid == event.pid &&
        out_.tracks[last_track_].tid == event.tid) {
      return last_track_;
    }
    if (out_.tracks.size() >= kTracksMost) return last_track_;
    key_.assign(event.pid);
    key_.push_back('\0');
    key_.append(event.tid);
    auto [found, is_new] = tracks_.try_emplace(key_, static_cast<uint32_t>(out_.tracks.size()));
    if (is_new) out_.tracks.push_back({std::string(event.pid), std::string(event.tid), {}, {}});
    return last_track_ = found->second;
  }
  uint32_t add_detail(const RawEvent& event, EventKind kind) {
    switch (kind) {
      case EventKind::kKernel:
      case EventKind::kMemcpy:
      case EventKind::kMemset:
        if (!event.has_kernel && !event.has_collective) return kNoDetail;
        out_.kernels.push_back(event.kernel);
        out_.kernels.back().collective = add_collective(event);
        return static_cast<uint32_t>(out_.kernels.size() - 1);
      case EventKind::kCpuOp:
      case EventKind::kAnnotation:
        if (event.dims.empty() && !event.has_collective) return kNoDetail;
        out_.has_shapes |= !event.dims.empty();
        out_.ops.push_back({out_.texts.intern(event.dims), out_.texts.intern(event.types), add_collective(event)});
        return static_cast<uint32_t>(out_.ops.size() - 1);
      case EventKind::kSync:
        out_.syncs.push_back({out_.texts.intern_json(event.sync_kind), event.wait_on_stream,
                              static_cast<uint64_t>(std::max<int64_t>(event.wait_on_correlation, 0))});
        return static_cast<uint32_t>(out_.syncs.size() - 1);
      default:
        return kNoDetail;
    }
  }
  uint32_t add_collective(const RawEvent& event) {
    if (!event.has_collective) return kNoDetail;
    CollectiveDetail detail;
    detail.name = out_.texts.intern_json(event.collective);
    detail.group = out_.texts.intern_json(event.group);
    detail.group_description = out_.texts.intern_json(event.group_description);
    detail.group_ranks = out_.texts.intern_json(event.group_ranks);
    detail.dtype = out_.texts.intern_json(event.dtype);
    detail.seq = event.seq;
    detail.elements_in = event.elements_in;
    detail.elements_out = event.elements_out;
    detail.group_size = static_cast<int32_t>(std::clamp<int64_t>(event.group_size, 0, INT32_MAX));
    detail.peer = static_cast<int32_t>(std::clamp<int64_t>(event.peer, -1, INT32_MAX));
    out_.collectives.push_back(detail);
    return static_cast<uint32_t>(out_.collectives.size() - 1);
  }

  TraceEvents& out_;
  const ReadOptions& options_;
  CategoryName last_category_ = {"cpu_op", EventKind::kCpuOp};
  std::unordered_map<std::string, uint32_t> tracks_;
  std::unordered_map<std::string, std::string> process_names_;
  uint32_t last_track_ = 0;
  std::string key_;
};

// The text, a window at a time.
class Window {
 public:
  Window(ByteSource& source, const ReadOptions& options)
      : source_(source),
        bytes_most_(options.json_bytes_max),
        bytes_(std::max<size_t>(options.window_bytes, 256) + kLexerPadding) {}

  const char* at() const { return bytes_.data() + at_; }
  const char* end() const { return bytes_.data() + end_; }
  uint64_t offset() const { return offset_ + at_; }
  uint64_t total() const { return offset_ + end_; }
  size_t left() const { return end_ - at_; }
  void move_to(const char* at) { at_ = static_cast<size_t>(at - bytes_.data()); }
  const std::string& error() const { return error_; }

  // More text behind what is there from at() on. False: there is none, or what is held already has most bytes.
  bool refill(size_t most) {
    if (at_ > 0) {
      std::memmove(bytes_.data(), bytes_.data() + at_, end_ - at_);
      offset_ += at_;
      end_ -= at_;
      at_ = 0;
    }
    if (end_ >= most) return false;
    if (end_ * 4 > (bytes_.size() - kLexerPadding) * 3)
      bytes_.resize((bytes_.size() - kLexerPadding) * 2 + kLexerPadding);
    const size_t before = end_;
    if (!is_done_ && total() >= bytes_most_) {
      error_ = format("is larger than the limit of %s", human_bytes(static_cast<double>(bytes_most_)).c_str());
      is_done_ = true;
    }
    while (!is_done_ && end_ < bytes_.size() - kLexerPadding) {
      Result<size_t> got = source_.read(bytes_.data() + end_, bytes_.size() - kLexerPadding - end_);
      if (!got.ok()) error_ = got.error();
      is_done_ = !got.ok() || *got == 0;
      if (got.ok()) end_ += *got;
      if (end_ > before) break;  // a pipe gives little at a time; what is there can be read
    }
    std::memset(bytes_.data() + end_, 0, kLexerPadding);
    return end_ > before;
  }

 private:
  ByteSource& source_;
  const uint64_t bytes_most_;
  std::vector<char> bytes_;
  size_t at_ = 0;
  size_t end_ = 0;
  uint64_t offset_ = 0;
  bool is_done_ = false;
  std::string error_;
};

class TraceReader {
 public:
  TraceReader(ByteSource& source, const ReadOptions& options) : window_(source, options), columns_(out_, options) {}

  Result<TraceEvents> read() {
    while (window_.refill(64) && !has_text()) {
    }
    if (window_.left() == 0 || !has_text()) {
      return Error{window_.error().empty() ? "is empty" : window_.error()};
    }
    JsonLexer lexer(window_.at(), window_.end());
    const char first = lexer.peek();
    if (first != '{' && first != '[') return Error{"is not a JSON trace: it begins with neither { nor ["};
    window_.move_to(lexer.at() + 1);
    if (first == '[') {
      is_found_ = true;
      read_events();
    } else {
      read_top();
    }
    out_.counts.bytes = window_.total();
    if (!window_.error().empty()) {
      note_bad(window_.total(), window_.error());
      out_.counts.truncated = true;
    }
    if (!is_found_) {
      return Error{out_.counts.truncated ? "breaks off before its events begin"
                                         : "has no traceEvents: no kernel trace"};
    }
    if (out_.counts.kept == 0 && out_.counts.bad > 0) {
      return Error{format("has no event that can be read (%llu that are not JSON, the first at byte %llu: %s)",
                          static_cast<unsigned long long>(out_.counts.bad),
                          static_cast<unsigned long long>(out_.counts.first_bad_at), out_.counts.first_bad.c_str())};
    }
    columns_.finish();
    return std::move(out_);
  }

 private:
  bool has_text() {
    JsonLexer lexer(window_.at(), window_.end());
    if (window_.left() >= 3 && std::memcmp(window_.at(), "\xEF\xBB\xBF", 3) == 0) window_.move_to(window_.at() + 3);
    lexer = JsonLexer(window_.at(), window_.end());
    lexer.peek();
    window_.move_to(lexer.at());
    return window_.left() > 0;
  }
  void note_bad(uint64_t at, std::string_view why) {
    if (!out_.counts.first_bad.empty()) return;
    out_.counts.first_bad_at = at;
    out_.counts.first_bad = why;
  }

  // Members of the outermost object, one after the other.
  void read_top() {
    while (true) {
      JsonLexer lexer(window_.at(), window_.end());
      while (lexer.peek() == ',') lexer.take(',');
      if (lexer.peek() == '}') return;
      std::string_view key, raw;
      bool ok = lexer.key(key);
      if (ok && key == "traceEvents" && lexer.peek() == '[') {
        lexer.take('[');
        window_.move_to(lexer.at());
        is_found_ = true;
        read_events();
        if (out_.counts.truncated) return;
        continue;
      }
      ok = ok && lexer.value(raw);
      if (ok) {
        read_header_value(key, raw, out_);
        window_.move_to(lexer.at());
        continue;
      }
      if (lexer.hit_end() && window_.refill(kTopValueBytesMax)) continue;
      note_bad(window_.offset(), lexer.hit_end() ? "the file breaks off" : lexer.failure());
      // Behind the events nothing that matters is lost; before them the events may still be good.
      if (is_found_ || !find_events()) {
        out_.counts.truncated = true;
        return;
      }
    }
  }
  // After something that is no JSON before the events: to where they begin.
  bool find_events() {
    constexpr std::string_view kKey = "\"traceEvents\"";
    while (true) {
      const std::string_view text(window_.at(), window_.left());
      // What was found before and was not followed by events is not found again.
      const size_t from = searched_to_ > window_.offset() ? searched_to_ - window_.offset() : 0;
      if (const size_t found = text.find(kKey, from); found != std::string_view::npos) {
        window_.move_to(window_.at() + found);
        searched_to_ = window_.offset() + 1;
        return true;
      }
      if (text.size() > kKey.size()) window_.move_to(window_.end() - kKey.size());
      if (!window_.refill(kTopValueBytesMax)) return false;
    }
  }

  void read_events() {
    while (true) {
      JsonLexer lexer(window_.at(), window_.end());
      while (lexer.peek() == ',') lexer.take(',');
      window_.move_to(lexer.at());
      if (lexer.peek() == ']') {
        window_.move_to(lexer.at() + 1);
        return;
      }
      RawEvent event;
      if (read_event(lexer, event)) {
        window_.move_to(lexer.at());
        columns_.add(event);
        continue;
      }
      if (lexer.hit_end()) {
        if (window_.refill(kEventBytesMax)) continue;
        if (window_.left() < kEventBytesMax) {  // the text is at its end
          if (window_.left() > 0) count_bad("the file breaks off within an event");
          out_.counts.truncated = true;
          return;
        }
      }
      count_bad(lexer.hit_end() ? "an event without an end" : lexer.failure());
      if (!find_next_event()) {
        out_.counts.truncated = true;
        return;
      }
    }
  }
  void count_bad(const char* why) {
    ++out_.counts.events;
    ++out_.counts.bad;
    note_bad(window_.offset(), why);
  }
  // After an event that is no JSON: to the next thing that begins like one, or to the end of the list.
  bool find_next_event() {
    size_t from = 1;
    while (true) {
      const std::string_view text(window_.at(), window_.left());
      for (size_t at = text.find('{', from); at != std::string_view::npos; at = text.find('{', at + 1)) {
        from = at;
        if (text.size() - at < 64 && !is_last_) break;  // too near to the end to be told
        if (begins_event(text, at)) {
          window_.move_to(window_.at() + at);
          return true;
        }
        from = at + 1;
      }
      if (text.find('{', from) == std::string_view::npos) from = text.size();
      // What stands before a brace is looked at too.
      const size_t keep_from = from > 64 ? from - 64 : 0;
      window_.move_to(window_.at() + keep_from);
      from -= keep_from;
      if (!window_.refill(kEventBytesMax)) {
        if (is_last_) return false;
        is_last_ = true;
      }
    }
  }
  static bool begins_event(std::string_view text, size_t at) {
    size_t before = at;
    while (before > 0 && (text[before - 1] == ' ' || text[before - 1] == '\n' || text[before - 1] == '\r')) --before;
    if (before == 0 || (text[before - 1] != ',' && text[before - 1] != '[')) return false;
    size_t after = at + 1;
    while (after < text.size() && (text[after] == ' ' || text[after] == '\n' || text[after] == '\r')) ++after;
    const std::string_view rest = text.substr(after);
    return rest.starts_with("\"ph\"") || rest.starts_with("\"name\"") || rest.starts_with("\"cat\"");
  }

  TraceEvents out_;
  Window window_;
  EventColumns columns_;
  bool is_found_ = false;
  uint64_t searched_to_ = 0;
  bool is_last_ = false;
};

// More of it, until `into` has so many bytes or there are no more.
Result<void> read_up_to(ByteSource& source, uint64_t bytes, std::string& into) {
  constexpr size_t kStreamedBytes = 1 << 20;
  while (into.size() < bytes) {
    const size_t before = into.size();
    into.resize(before + std::min<uint64_t>(kStreamedBytes, bytes - before));
    const Result<size_t> got = source.read(into.data() + before, into.size() - before);
    into.resize(before + (got.ok() ? *got : 0));
    if (!got.ok()) return got.failure();
    if (*got == 0) break;
  }
  return {};
}

}  // namespace

Result<TraceEvents> read_trace(std::unique_ptr<ByteSource> source, const ReadOptions& options) {
  std::unique_ptr<ByteSource> text = inflating(std::move(source));
  std::string first;
  const Result<void> begun = read_up_to(*text, kSqliteMagic.size(), first);
  if (begun.ok() && first == kSqliteMagic) {
    LOCKSTEP_TRY(read_up_to(*text, options.export_bytes_max + 1, first));
    if (first.size() > options.export_bytes_max)
      return Error{format("is an export of Nsight Systems of more than %s, the limit here",
                          human_bytes(static_cast<double>(options.export_bytes_max)).c_str())};
    return read_nsys_bytes(first, options);
  }
  text = bytes_before(std::move(first), std::move(text), begun.ok() ? std::nullopt : std::optional(begun.failure()));
  return TraceReader(*text, options).read();
}

}  // namespace lockstep::profile
