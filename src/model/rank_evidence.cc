#include "model/rank_evidence.h"

#include <algorithm>

#include "base/text.h"
#include "model/events.h"
#include "model/rank_text.h"

namespace lockstep {
namespace {

constexpr int64_t kCountMost = 1'000'000'000'000'000;

// One line of at most `most` bytes, not half a character at its end.
std::string bounded(std::string_view text, size_t most = kEvidenceTextMax) {
  return as_one_line(utf8_prefix(text, most));
}

// A row: values in a fixed order. Remembers whether any was missing, of another type or out of bounds.
class Row {
 public:
  explicit Row(const Value& value) : list_(std::get_if<ValueList>(&value.data)) { ok_ = list_ != nullptr; }
  explicit Row(const ValueList& list) : list_(&list) {}

  int64_t number(int64_t least, int64_t most) {
    const Value* value = next();
    const int64_t* number = value ? std::get_if<int64_t>(&value->data) : nullptr;
    if (number == nullptr || *number < least || *number > most) {
      ok_ = false;
      return least;
    }
    return *number;
  }
  std::string text(size_t most = kEvidenceTextMax) {
    const Value* value = next();
    const std::string* text = value ? std::get_if<std::string>(&value->data) : nullptr;
    if (text == nullptr || text->size() > most || has_control_characters(*text)) {
      ok_ = false;
      return {};
    }
    return *text;
  }
  const ValueList& list(size_t most) {
    static const ValueList kNone;
    const Value* value = next();
    const ValueList* list = value ? std::get_if<ValueList>(&value->data) : nullptr;
    if (list == nullptr || list->size() > most) {
      ok_ = false;
      return kNone;
    }
    return *list;
  }
  bool more() const { return list_ != nullptr && at_ < list_->size(); }
  bool ok() const { return ok_; }

 private:
  const Value* next() { return more() ? &(*list_)[at_++] : nullptr; }
  const ValueList* list_;
  size_t at_ = 0;
  bool ok_ = true;
};

ValueList frames_value(const std::vector<StackFrame>& frames) {
  ValueList rows;
  for (const StackFrame& frame : frames) {
    if (rows.size() == kStackFramesMax) break;
    rows.emplace_back(ValueList{bounded(frame.function), bounded(frame.file), int64_t{frame.line}});
  }
  return rows;
}

bool read_frames(const ValueList& rows, std::vector<StackFrame>& frames) {
  bool ok = true;
  for (const Value& value : rows) {
    Row row(value);
    StackFrame frame{row.text(), row.text(), static_cast<int32_t>(row.number(0, INT32_MAX))};
    ok &= row.ok();
    frames.push_back(std::move(frame));
  }
  return ok;
}

ValueList op_value(const DumpOp& op) {
  return {op.seq,
          bounded(op.name),
          bounded(op.sizes),
          bounded(op.dtype),
          op.elements,
          static_cast<int64_t>(op.state),
          op.created_unix_ns,
          bounded(op.caller.function),
          bounded(op.caller.file),
          int64_t{op.caller.line}};
}

bool read_op(Row row, DumpOp& op) {
  op.seq = row.number(-1, kCountMost);
  op.name = row.text();
  op.sizes = row.text();
  op.dtype = row.text();
  op.elements = row.number(0, INT64_MAX);
  op.state = static_cast<OpState>(row.number(0, 3));
  op.created_unix_ns = row.number(0, INT64_MAX);
  op.caller.function = row.text();
  op.caller.file = row.text();
  op.caller.line = static_cast<int32_t>(row.number(0, INT32_MAX));
  return row.ok();
}

const ValueList& list_of(const Attributes& attributes, std::string_view key) {
  static const ValueList kNone;
  const Value* value = find(attributes, key);
  const ValueList* list = value ? std::get_if<ValueList>(&value->data) : nullptr;
  return list ? *list : kNone;
}

// Cut and made one line where it is not: it is shown to people.
std::string text_of(const Attributes& attributes, std::string_view key) {
  return bounded(find_string(attributes, key));
}

std::string wait_words(const ThreadStack& thread) {
  if (thread.state == 'T' || thread.state == 't') return "stopped by a signal or a debugger";
  if (thread.state == 'D')
    return "in the kernel and not to be interrupted" + (thread.syscall.empty()
                                                            ? (thread.wchan.empty() ? "" : " (" + thread.wchan + ")")
                                                            : " (" + thread.syscall + ")");
  if (thread.state == 'Z') return "ended";
  if (thread.state == 'R') return "running";
  if (thread.syscall == "futex" || thread.wchan.starts_with("futex")) return "waiting in a futex";
  if (thread.syscall.find("nanosleep") != std::string::npos) return "sleeping";
  if (!thread.syscall.empty()) return "waiting in " + thread.syscall;
  if (!thread.wchan.empty()) return "waiting in " + thread.wchan;
  return "waiting";
}

}  // namespace

bool is_library_frame(const StackFrame& frame) {
  for (std::string_view part :
       {"/site-packages/", "/dist-packages/", "/lib/python", "/torch/", "<frozen ", "<string>"}) {
    if (frame.file.find(part) != std::string::npos) return true;
  }
  return frame.file.empty() || frame.file == "??";
}

const StackFrame* users_frame(std::span<const StackFrame> frames) {
  for (const StackFrame& frame : frames) {
    if (!is_library_frame(frame)) return &frame;
  }
  return frames.empty() ? nullptr : &frames.front();
}

std::string to_text(const StackFrame& frame) {
  const size_t slash = frame.file.rfind('/');
  return format("%s, %s:%d", frame.function.c_str(),
                frame.file.substr(slash == std::string::npos ? 0 : slash + 1).c_str(), frame.line);
}

std::string where_text(const RankStack& stack) {
  std::string text;
  const PythonStack* python = nullptr;
  for (const PythonStack& thread : stack.python) {
    if (thread.main) python = &thread;
  }
  if (python == nullptr && stack.python.size() == 1) python = &stack.python.front();
  if (python != nullptr && !python->frames.empty()) {
    const StackFrame* users = users_frame(python->frames);
    text = "main thread is in " + to_text(*users);
    const StackFrame& inner = python->frames.front();
    if (!(inner == *users)) text += " (there in " + to_text(inner) + ")";
  }
  if (!stack.threads.empty()) {
    if (text.empty()) text = "main thread is";
    text += (text == "main thread is" ? " " : ", ") + wait_words(stack.threads.front());
  }
  return text.empty() ? "nothing could be seen" : text;
}

int64_t dtype_bytes(std::string_view dtype) {
  struct Size {
    std::string_view name;
    int64_t bytes;
  };
  static constexpr Size kSizes[] = {{"Float", 4},  {"Double", 8}, {"Half", 2},         {"BFloat16", 2},
                                    {"Long", 8},   {"Int", 4},    {"Short", 2},        {"Byte", 1},
                                    {"Char", 1},   {"Bool", 1},   {"ComplexFloat", 8}, {"ComplexDouble", 16},
                                    {"UInt16", 2}, {"UInt32", 4}, {"UInt64", 8},       {"ComplexHalf", 4}};
  if (dtype.starts_with("Float8")) return 1;
  for (const Size& size : kSizes) {
    if (size.name == dtype) return size.bytes;
  }
  return 0;
}

LogRecord to_record(const RankStack& stack) {
  LogRecord record;
  record.event_name = kEventRankStack;
  record.time_unix_ns = stack.time_unix_ns;
  record.severity = 9;
  ValueList threads, python;
  for (const ThreadStack& thread : stack.threads) {
    if (threads.size() == kStackThreadsMax) break;
    ValueList kernel;
    for (const std::string& function : thread.kernel) {
      if (kernel.size() < kKernelFramesMax) kernel.emplace_back(bounded(function));
    }
    threads.emplace_back(ValueList{int64_t{thread.tid}, bounded(thread.name), std::string(1, thread.state),
                                   bounded(thread.wchan), bounded(thread.syscall), std::move(kernel)});
  }
  for (const PythonStack& thread : stack.python) {
    if (python.size() == kStackPythonThreadsMax) break;
    python.emplace_back(ValueList{static_cast<int64_t>(thread.ident), int64_t{thread.main}, bounded(thread.name),
                                  frames_value(thread.frames)});
  }
  record.attributes = {{"pid", int64_t{stack.pid}},
                       {"threads_count", stack.threads_count},
                       {"threads", std::move(threads)},
                       {"python", std::move(python)}};
  if (!stack.note.empty()) record.attributes.push_back({"note", bounded(stack.note)});
  return record;
}

Result<RankStack> rank_stack_from_record(const LogRecord& record) {
  RankStack stack;
  stack.time_unix_ns = record.time_unix_ns;
  stack.pid = static_cast<int32_t>(std::clamp<int64_t>(find_int(record.attributes, "pid", -1), -1, INT32_MAX));
  stack.threads_count = std::clamp<int64_t>(find_int(record.attributes, "threads_count"), 0, kCountMost);
  stack.note = text_of(record.attributes, "note");
  const ValueList& threads = list_of(record.attributes, "threads");
  const ValueList& python = list_of(record.attributes, "python");
  if (threads.size() > kStackThreadsMax || python.size() > kStackPythonThreadsMax)
    return Error{format("rank.stack has %zu threads and %zu of Python (limits %zu, %zu)", threads.size(), python.size(),
                        kStackThreadsMax, kStackPythonThreadsMax)};
  for (const Value& value : threads) {
    Row row(value);
    ThreadStack thread;
    thread.tid = static_cast<int32_t>(row.number(-1, INT32_MAX));
    thread.name = row.text();
    const std::string state = row.text();
    thread.state = state.size() == 1 ? state[0] : '?';
    thread.wchan = row.text();
    thread.syscall = row.text();
    for (const Value& function : row.list(kKernelFramesMax)) {
      const std::string* text = std::get_if<std::string>(&function.data);
      if (text == nullptr) return Error{"rank.stack: a kernel stack of something else than names"};
      thread.kernel.push_back(bounded(*text));
    }
    if (!row.ok()) return Error{"rank.stack: a thread with missing or odd columns"};
    stack.threads.push_back(std::move(thread));
  }
  for (const Value& value : python) {
    Row row(value);
    PythonStack thread;
    thread.ident = static_cast<uint64_t>(row.number(INT64_MIN, INT64_MAX));
    thread.main = row.number(0, 1) != 0;
    thread.name = row.text();
    if (!read_frames(row.list(kStackFramesMax), thread.frames) || !row.ok())
      return Error{"rank.stack: a Python thread with missing or odd columns"};
    stack.python.push_back(std::move(thread));
  }
  return stack;
}

LogRecord to_record(const FlightDump& dump) {
  LogRecord record;
  record.event_name = kEventCommDump;
  record.time_unix_ns = dump.time_unix_ns;
  record.severity = 9;
  ValueList groups;
  for (const DumpGroup& group : dump.groups) {
    if (groups.size() == kDumpGroupsMax) break;
    ValueList ops;
    for (const DumpOp& op : group.ops) {
      if (ops.size() < kDumpOpsMax) ops.emplace_back(op_value(op));
    }
    std::string ranks = group.ranks.size() > kDumpRanksTextMax ? std::string() : group.ranks;
    groups.emplace_back(ValueList{bounded(group.name), bounded(group.desc), group.size, std::move(ranks),
                                  group.last_enqueued, group.last_started, group.last_completed, std::move(ops)});
  }
  record.attributes = {{"version", bounded(dump.version)}, {"file", bounded(dump.file)},
                       {"entries", dump.entries},          {"p2p", dump.p2p},
                       {"groups", std::move(groups)},      {"last_group", bounded(dump.last_group)},
                       {"last", op_value(dump.last)},      {"frames", frames_value(dump.frames)}};
  return record;
}

Result<FlightDump> flight_dump_from_record(const LogRecord& record) {
  FlightDump dump;
  dump.time_unix_ns = record.time_unix_ns;
  dump.version = text_of(record.attributes, "version");
  dump.file = text_of(record.attributes, "file");
  dump.entries = std::clamp<int64_t>(find_int(record.attributes, "entries"), 0, kCountMost);
  dump.p2p = std::clamp<int64_t>(find_int(record.attributes, "p2p"), 0, kCountMost);
  dump.last_group = text_of(record.attributes, "last_group");
  const ValueList& groups = list_of(record.attributes, "groups");
  if (groups.size() > kDumpGroupsMax)
    return Error{format("comm.dump has %zu groups (limit %zu)", groups.size(), kDumpGroupsMax)};
  for (const Value& value : groups) {
    Row row(value);
    DumpGroup group;
    group.name = row.text();
    group.desc = row.text();
    group.size = row.number(0, kRanksMost);
    group.ranks = row.text(kDumpRanksTextMax);
    group.last_enqueued = row.number(-1, kCountMost);
    group.last_started = row.number(-1, kCountMost);
    group.last_completed = row.number(-1, kCountMost);
    bool ok = true;
    for (const Value& op : row.list(kDumpOpsMax)) ok &= read_op(Row(op), group.ops.emplace_back());
    if (!group.ranks.empty()) ok &= ranks_from_text(group.ranks, kGroupRanksMax).ok();
    if (!ok || !row.ok()) return Error{"comm.dump: a group with missing or odd columns"};
    dump.groups.push_back(std::move(group));
  }
  const ValueList& last = list_of(record.attributes, "last");
  if (!last.empty() && !read_op(Row(last), dump.last)) return Error{"comm.dump: a last operation with odd columns"};
  const ValueList& frames = list_of(record.attributes, "frames");
  if (frames.size() > kStackFramesMax || !read_frames(frames, dump.frames))
    return Error{"comm.dump: frames with missing or odd columns"};
  return dump;
}

}  // namespace lockstep
