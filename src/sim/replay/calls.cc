#include "sim/replay/calls.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "base/text.h"
#include "plugin/nccl/profiler_abi.h"

namespace lockstep::replay {
namespace {

// Takes one space-separated field after the other; remembers the first thing that was wrong.
class Fields {
 public:
  explicit Fields(std::string_view line) : rest_(line) {}

  std::string_view word(const char* what) {
    if (failed()) return {};
    if (at_end_) {
      error_ = format("%s is missing", what);
      return {};
    }
    const size_t space = rest_.find(' ');
    const std::string_view field = rest_.substr(0, space);
    at_end_ = space == std::string_view::npos;
    rest_ = at_end_ ? std::string_view() : rest_.substr(space + 1);
    if (field.empty()) error_ = format("%s is empty", what);
    return field;
  }

  // "-" is the empty text.
  std::string_view text(const char* what) {
    const std::string_view field = word(what);
    return field == "-" ? std::string_view() : field;
  }

  template <typename T>
  T number(const char* what) {
    const std::string_view field = word(what);
    return failed() ? T{} : parse<T>(what, field, 10);
  }

  // As printf's %p writes it: 0x2c51bfe0, or (nil).
  uint64_t pointer(const char* what) {
    std::string_view field = word(what);
    if (failed() || field == "(nil)") return 0;
    if (field.starts_with("0x")) field.remove_prefix(2);
    return parse<uint64_t>(what, field, 16);
  }

  bool flag(const char* what) {
    const int value = number<int>(what);
    if (!failed() && value != 0 && value != 1) error_ = format("%s is %d, neither 0 nor 1", what, value);
    return value == 1;
  }

  // Events without fields of their own are written with a space at the end.
  void end() {
    if (!failed() && !at_end_ && !rest_.empty()) error_ = "more fields than this kind of line has";
  }
  void fail(std::string message) {
    if (!failed()) error_ = std::move(message);
  }
  bool failed() const { return !error_.empty(); }
  const std::string& error() const { return error_; }

 private:
  template <typename T>
  T parse(const char* what, std::string_view field, int base) {
    T value{};
    const char* const end = field.data() + field.size();
    const auto [stopped, problem] = std::from_chars(field.data(), end, value, base);
    if (problem == std::errc() && stopped == end) return value;
    error_ = format("%s '%.*s' is %s", what, static_cast<int>(std::min<size_t>(field.size(), 40)), field.data(),
                    problem == std::errc::result_out_of_range ? "out of range" : "not a number");
    return T{};
  }

  std::string_view rest_;
  bool at_end_ = false;
  std::string error_;
};

void parse_event_fields(Fields& in, CallLine& line) {
  switch (line.type) {
    case nccl::kEventGroupApi:
      line.flag = in.flag("graph");
      line.number = in.number<int32_t>("depth");
      break;
    case nccl::kEventCollApi:
      line.function = in.text("func");
      line.count = in.number<uint64_t>("count");
      line.datatype = in.text("dtype");
      line.root_or_peer = in.number<int32_t>("root");
      line.stream = in.pointer("stream");
      line.flag = in.flag("graph");
      break;
    case nccl::kEventP2pApi:
      line.function = in.text("func");
      line.count = in.number<uint64_t>("count");
      line.datatype = in.text("dtype");
      line.stream = in.pointer("stream");
      line.flag = in.flag("graph");
      break;
    case nccl::kEventKernelLaunch:
      line.stream = in.pointer("stream");
      break;
    case nccl::kEventColl:
      line.seq = in.number<uint64_t>("seq");
      line.function = in.text("func");
      line.count = in.number<uint64_t>("count");
      line.root_or_peer = in.number<int32_t>("root");
      line.datatype = in.text("dtype");
      line.channel = in.number<uint8_t>("channels");
      line.warps = in.number<uint8_t>("warps");
      line.algorithm = in.text("algo");
      line.protocol = in.text("proto");
      line.group = in.number<uint64_t>("group");
      break;
    case nccl::kEventP2p:
      line.function = in.text("func");
      line.datatype = in.text("dtype");
      line.count = in.number<uint64_t>("count");
      line.root_or_peer = in.number<int32_t>("peer");
      line.channel = in.number<uint8_t>("channels");
      line.group = in.number<uint64_t>("group");
      break;
    case nccl::kEventProxyOp:
      line.pid = in.number<int32_t>("pid");
      line.channel = in.number<uint8_t>("channel");
      line.root_or_peer = in.number<int32_t>("peer");
      line.step_count = in.number<int32_t>("steps");
      line.chunk_bytes = in.number<int32_t>("chunk");
      line.flag = in.flag("send");
      break;
    case nccl::kEventProxyStep:
      line.number = in.number<int32_t>("step");
      break;
    case nccl::kEventKernelCh:
      line.channel = in.number<uint8_t>("channel");
      line.gpu_time_ns = in.number<uint64_t>("pTimer");
      break;
    case nccl::kEventProxyCtrl:
    case nccl::kEventGroup:
      break;
    default:
      in.fail(format("event type %llu is not known", static_cast<unsigned long long>(line.type)));
  }
}

void parse_fields(Fields& in, CallLine& line) {
  if (line.kind == CallKind::kWho) {
    line.pid = in.number<int32_t>("pid");
    line.rank = in.number<int32_t>("rank");
    line.world = in.number<int32_t>("world");
    line.name = in.text("hostid");
    line.realtime_ns = in.number<uint64_t>("realtime_ns");
    line.time_ns = in.number<uint64_t>("monotonic_ns");
    if (line.rank < 0 || line.rank >= line.world) {
      in.fail(format("rank %d is not one of %d ranks", line.rank, line.world));
    }
    return;
  }
  line.time_ns = in.number<uint64_t>("t");
  line.thread = in.number<uint64_t>("tid");
  switch (line.kind) {
    case CallKind::kWho:
      break;
    case CallKind::kInit:
      line.context = in.number<uint64_t>("ctx");
      line.comm_id = in.number<uint64_t>("comm_id");
      line.nodes = in.number<int32_t>("nodes");
      line.world = in.number<int32_t>("ranks");
      line.rank = in.number<int32_t>("rank_in_comm");
      line.name = in.text("comm_name");
      break;
    case CallKind::kStart:
      line.context = in.number<uint64_t>("ctx");
      line.handle = in.number<uint64_t>("handle");
      line.type = in.number<uint64_t>("type");
      line.parent = in.number<uint64_t>("parent");
      line.rank = in.number<int32_t>("rank");
      if (!in.failed()) parse_event_fields(in, line);
      break;
    case CallKind::kState:
      line.handle = in.number<uint64_t>("handle");
      line.state = in.number<int32_t>("state");
      line.value = in.number<uint64_t>("value");
      break;
    case CallKind::kStop:
      line.handle = in.number<uint64_t>("handle");
      break;
    case CallKind::kFinalize:
      line.context = in.number<uint64_t>("ctx");
      break;
  }
}

// Gives ids their indexes and checks that what a call uses is there. A line is checked whole before anything is kept.
class FileBuilder {
 public:
  // Empty: taken. Else what is wrong.
  std::string add(const CallLine& line) {
    if (line.kind == CallKind::kWho) return "a second H line";
    Call call;
    call.kind = line.kind;
    call.time_ns = line.time_ns;
    call.state = line.state;
    call.value = line.value;
    const auto thread = threads_.find(line.thread);
    if (thread != threads_.end() && line.time_ns < thread->second.last_ns) {
      return format("time goes back on thread %llu", static_cast<unsigned long long>(line.thread));
    }
    if (std::string wrong = fill(line, call); !wrong.empty()) return wrong;
    Thread& lane = threads_.try_emplace(line.thread, Thread{static_cast<uint32_t>(threads_.size()), 0}).first->second;
    if (lane.index == result.threads.size()) result.threads.push_back(line.thread);
    lane.last_ns = line.time_ns;
    call.thread = lane.index;
    result.calls.push_back(call);
    result.all_finalized = open_contexts_ == 0;
    return {};
  }

  RankCalls result;

 private:
  // By the kind of the call. Empty: taken. Else what is wrong.
  std::string fill(const CallLine& line, Call& call) {
    switch (line.kind) {
      case CallKind::kWho:
        return {};
      case CallKind::kInit:
        return add_context(line, call);
      case CallKind::kFinalize:
        return end_context(line, call);
      case CallKind::kStart:
        return start_object(line, call);
      case CallKind::kState:
      case CallKind::kStop:
        return use_object(line, call);
    }
    return {};
  }

  std::string add_context(const CallLine& line, Call& call) {
    if (contexts_.contains(line.context)) return problem("context", line.context, "is already there");
    call.context = static_cast<uint32_t>(result.inits.size());
    contexts_.emplace(line.context, call.context);
    result.inits.push_back(line);
    calls_on_.push_back(0);
    ++open_contexts_;
    return {};
  }

  std::string end_context(const CallLine& line, Call& call) {
    const auto found = contexts_.find(line.context);
    if (found == contexts_.end()) return problem("context", line.context, "was not made before");
    call.context = found->second;
    call.calls_before = calls_on_[call.context];
    contexts_.erase(found);
    --open_contexts_;
    return {};
  }

  std::string start_object(const CallLine& line, Call& call) {
    const auto context = contexts_.find(line.context);
    if (context == contexts_.end()) return problem("context", line.context, "was not made before");
    if (line.handle == 0) return "handle 0 is no handle";
    if (objects_.contains(line.handle)) return problem("handle", line.handle, "is already started");
    call.context = context->second;
    call.object = result.object_count++;
    call.object_turn = 0;
    call.start = static_cast<uint32_t>(result.starts.size());
    result.starts.push_back(line);
    objects_.emplace(line.handle, Object{call.object, call.context, 1, false});
    // The parent of a transfer for another process (PXN) is that process's object, not one of ours.
    const bool foreign = line.type == nccl::kEventProxyOp && line.pid != result.who.pid;
    if (!foreign && line.parent != line.handle) use(line.parent, call.parent, call.parent_turn);
    if (line.group == line.parent) {
      call.group = call.parent;
    } else if (line.group != line.handle) {
      use(line.group, call.group, call.group_turn);
    }
    ++calls_on_[call.context];
    return {};
  }

  std::string use_object(const CallLine& line, Call& call) {
    const auto found = objects_.find(line.handle);
    if (found == objects_.end()) return problem("handle", line.handle, "was not started before");
    if (found->second.stopped) return problem("handle", line.handle, "has been stopped before");
    found->second.stopped = line.kind == CallKind::kStop;
    use(line.handle, call.object, call.object_turn);
    call.context = found->second.context;
    ++calls_on_[call.context];
    return {};
  }

  struct Object {
    uint32_t index;
    uint32_t context;
    uint32_t uses;
    bool stopped;
  };
  struct Thread {
    uint32_t index;
    uint64_t last_ns;
  };

  static std::string problem(const char* what, uint64_t id, const char* message) {
    return format("%s %llu %s", what, static_cast<unsigned long long>(id), message);
  }
  void use(uint64_t handle, uint32_t& index, uint32_t& turn) {
    const auto found = objects_.find(handle);
    if (found == objects_.end()) return;  // a parent that the recording leaves out
    index = found->second.index;
    turn = found->second.uses++;
  }

  std::unordered_map<uint64_t, uint32_t> contexts_;
  std::unordered_map<uint64_t, Object> objects_;
  std::unordered_map<uint64_t, Thread> threads_;
  std::vector<uint32_t> calls_on_;
  uint64_t open_contexts_ = 0;
};

}  // namespace

Result<CallLine> parse_call_line(std::string_view line) {
  Fields in(line);
  const std::string_view kind = in.word("the kind of line");
  if (in.failed()) return Error{"the line is empty"};
  CallLine parsed;
  if (kind == "H") {
    parsed.kind = CallKind::kWho;
  } else if (kind == "I") {
    parsed.kind = CallKind::kInit;
  } else if (kind == "S") {
    parsed.kind = CallKind::kStart;
  } else if (kind == "R") {
    parsed.kind = CallKind::kState;
  } else if (kind == "X") {
    parsed.kind = CallKind::kStop;
  } else if (kind == "F") {
    parsed.kind = CallKind::kFinalize;
  } else {
    return Error{
        format("kind of line '%.*s' is not known", static_cast<int>(std::min<size_t>(kind.size(), 20)), kind.data())};
  }
  parse_fields(in, parsed);
  in.end();
  if (in.failed()) return Error{in.error()};
  return parsed;
}

Result<RankCalls> parse_calls(std::string_view text, const std::string& file, bool skip_bad) {
  FileBuilder builder;
  RankCalls& result = builder.result;
  while (!text.empty()) {
    const size_t newline = text.find('\n');
    const std::string_view line = text.substr(0, newline);
    text = newline == std::string_view::npos ? std::string_view() : text.substr(newline + 1);
    ++result.lines;
    const Result<CallLine> parsed = parse_call_line(line);
    std::string problem = parsed.ok() ? "" : parsed.error();
    if (result.lines == 1) {
      if (problem.empty() && parsed->kind != CallKind::kWho) problem = "the first line is not an H line";
      if (!problem.empty()) return Error{format("%s:1: %s", file.c_str(), problem.c_str())};
      result.who = *parsed;
      continue;
    }
    if (problem.empty()) problem = builder.add(*parsed);
    if (problem.empty()) continue;
    problem = format("%s:%llu: %s", file.c_str(), static_cast<unsigned long long>(result.lines), problem.c_str());
    if (!skip_bad) return Error{std::move(problem)};
    if (result.bad_lines++ == 0) result.first_bad = std::move(problem);
  }
  if (result.lines == 0) return Error{format("%s: empty, not even an H line", file.c_str())};
  return std::move(builder.result);
}

}  // namespace lockstep::replay
