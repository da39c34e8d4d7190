// How `lockstep hang` and `lockstep postmortem` show what in_flight_view.cc has found: text of at most 120 columns, or
// JSON (docs/guide/hang.md).
#include <algorithm>
#include <array>
#include <ctime>
#include <functional>
#include <set>
#include <tuple>

#include "apps/cli/in_flight_view.h"
#include "apps/cli/terminal.h"
#include "apps/cli/wrapped.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "model/rank_text.h"
#include "model/step_detail.h"

namespace lockstep::cli {
namespace {

size_t width() {
  constexpr size_t kUsualWidth = 120;
  return row_columns().value_or(kUsualWidth);
}
constexpr size_t kCommsShown = 4;      // with unfinished operations; more with --all
constexpr size_t kRanksOneByOne = 16;  // more ranks than this share lines
constexpr size_t kNameMax = 24;

struct Column {
  std::string title;
  bool right = false;
};

// Columns in which nobody has anything to say are left out.
std::string table(const std::vector<Column>& columns, const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(columns.size(), 0);
  for (size_t i = 0; i < columns.size(); ++i) {
    for (const auto& row : rows) widths[i] = std::max(widths[i], row[i].size());
    if (widths[i] > 0) widths[i] = std::max(widths[i], columns[i].title.size());
  }
  std::string out;
  const auto line = [&](const std::function<std::string(size_t)>& cell) {
    std::string text = " ";
    for (size_t i = 0; i < columns.size(); ++i) {
      if (widths[i] == 0) continue;
      const std::string value = cell(i);
      const std::string space(widths[i] - value.size(), ' ');
      text += " " + (columns[i].right ? space + value : value + space) + " ";
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  };
  line([&](size_t i) { return columns[i].title; });
  for (const auto& row : rows) line([&](size_t i) { return row[i].empty() ? std::string("-") : row[i]; });
  return out;
}

// Behind a label, wrapped under itself.
std::string behind(const std::string& label, const std::string& text) {
  return wrapped(text, label.size(), label, width());
}

std::string shortened(const std::string& text) {
  return text.size() <= kNameMax ? text : text.substr(0, kNameMax - 2) + "..";
}

std::string payload_text(const InFlightOp& op) {
  return human_bytes(static_cast<double>(op.bytes)) + " " + to_text(op.datatype);
}

bool same_operation(const InFlightOp& a, const InFlightOp& b) {
  return std::tuple(a.p2p, a.function, a.seq, a.ordinal, a.bytes, a.datatype) ==
         std::tuple(b.p2p, b.function, b.seq, b.ordinal, b.bytes, b.datatype);
}

// The one operation that everybody who is inside something is inside of.
const InFlightOp* shared_operation(const CommView& comm) {
  const InFlightOp* shared = nullptr;
  for (const Position& at : comm.positions) {
    if (!at.open || !at.open_is_certain) continue;
    if (shared != nullptr && !same_operation(*shared, *at.open)) return nullptr;
    shared = &*at.open;
  }
  return shared != nullptr && !shared->p2p ? shared : nullptr;
}

const char* state_word(const InFlightOp& op) {
  if (op.state == InFlightState::kCompleted) return "completed";
  if (op.state == InFlightState::kStarted) return "on GPU";
  return op.end_is_seen ? "in queue" : "end not seen";
}

const char* state_word(const Position& at) {
  if (!at.open) return at.behind ? "not entered" : "idle";
  return at.open_is_certain && !at.open->end_is_seen ? "entered" : state_word(*at.open);
}

uint64_t since_ns(const Position& at) {
  return at.open->started_ns != 0 ? at.open->started_ns : at.open->enqueued_ns;
}

// Ranks of which there is the same to say.
struct Line {
  std::vector<const Position*> members;
  enum { kProcess, kEntered, kStarted, kDone, kP2p, kOperation, kNetwork, kCells };
  std::array<std::string, kCells> cells;
};

std::vector<Line> lines_of(const CommView& comm, bool show_process, const InFlightOp* shared, bool brief) {
  const bool group = comm.positions.size() > kRanksOneByOne;
  const auto number = [](uint64_t value) { return format("%llu", static_cast<unsigned long long>(value)); };
  std::vector<Line> lines;
  for (const Position& at : comm.positions) {
    Line line{.members = {&at}, .cells = {}};
    if (show_process) line.cells[Line::kProcess] = to_text(at.rank->process);
    if (at.comm.collectives_enqueued > 0) {
      line.cells[Line::kEntered] = number(at.comm.collectives_enqueued);
      line.cells[Line::kStarted] = at.counts_tell ? number(at.collectives_started) : "?";
      line.cells[Line::kDone] = at.counts_tell ? number(at.comm.collectives_completed) : "?";
    }
    if (at.comm.p2p_enqueued > 0)
      line.cells[Line::kP2p] = number(at.comm.p2p_enqueued) + "/" +
                               (at.counts_tell ? number(at.p2p_started) + "/" + number(at.comm.p2p_completed) : "?/?");
    std::string& operation = line.cells[Line::kOperation] = state_word(at);
    if (at.open && shared == nullptr) {
      const std::string payload = brief ? human_bytes(static_cast<double>(at.open->bytes)) : payload_text(*at.open);
      operation = operation_text(comm, *at.open) + " " + payload + " " + operation;
    }
    if (at.open)
      line.cells[Line::kNetwork] = network_wait(at.comm, group ? "a peer" : rank_text(comm, at.comm.proxy_peer));
    auto same =
        std::find_if(lines.begin(), lines.end(), [&](const Line& other) { return group && other.cells == line.cells; });
    if (same == lines.end()) {
      lines.push_back(std::move(line));
    } else {
      same->members.push_back(&at);
    }
  }
  return lines;
}

// One value, or how many different ones.
std::string common(const std::vector<const Position*>& members, const char* what,
                   const std::function<std::string(const Position&)>& value) {
  std::set<std::string> values;
  for (const Position* at : members) values.insert(value(*at));
  return values.size() == 1 ? *values.begin() : format("%zu %s", values.size(), what);
}

std::string positions_table(const CommView& comm, bool live, bool show_process, const InFlightOp* shared, bool brief) {
  std::set<std::string> hosts;
  for (const Position& at : comm.positions) hosts.insert(at.rank->header.host);
  const std::vector<Column> columns = {{"rank", true},
                                       {"host"},
                                       {"pid", true},
                                       {"process"},
                                       {"entered", true},
                                       {"started", true},
                                       {"done", true},
                                       {"p2p e/s/d", true},
                                       {shared != nullptr ? "state" : "oldest unfinished operation"},
                                       {"for", true},
                                       {"network waits for"},
                                       {live ? "last call" : "before end", true}};
  std::vector<std::vector<std::string>> rows;
  for (const Line& line : lines_of(comm, show_process, shared, brief)) {
    std::vector<Rank> ranks;
    double longest = -1, last_call = 0, network = 0;
    for (const Position* at : line.members) {
      ranks.push_back(Rank{at->rank->header.rank});
      if (at->open) longest = std::max(longest, at->rank->age_ns(since_ns(*at)));
      last_call = std::max(last_call, at->rank->age_ns(at->rank->last_call_ns));
      network = std::max(network, at->rank->age_ns(at->comm.proxy_since_ns));
    }
    std::string who = human_ranks(ranks, 4), host, pid;
    if (ranks.size() > 1) who += format(" (%zu)", ranks.size());
    if (hosts.size() > 1)
      host = shortened(common(line.members, "hosts", [](const Position& at) { return at.rank->header.host; }));
    if (!brief && line.members.size() == 1) pid = format("%d", line.members[0]->rank->header.pid);
    const auto& cells = line.cells;
    rows.push_back({who, host, pid, cells[Line::kProcess], cells[Line::kEntered], cells[Line::kStarted],
                    cells[Line::kDone], cells[Line::kP2p], cells[Line::kOperation],
                    longest < 0 ? "" : human_duration(longest),
                    cells[Line::kNetwork].empty() ? "" : cells[Line::kNetwork] + ", " + human_duration(network),
                    human_duration(last_call)});
  }
  return table(columns, rows);
}

std::string comm_text(const CommView& comm, bool live) {
  const InFlightOp* shared = shared_operation(comm);
  const bool all_running = std::all_of(comm.positions.begin(), comm.positions.end(),
                                       [](const Position& at) { return at.rank->process == ProcessWord::kRunning; });
  std::string head = format("communicator 0x%llx", static_cast<unsigned long long>(comm.comm_id.value()));
  if (!comm.name.empty()) head += " \"" + shortened(comm.name) + "\"";
  head += comm.unseen_members.empty() ? format(" · %d ranks", comm.size)
                                      : format(" · %zu of %d ranks, not member %s", comm.positions.size(), comm.size,
                                               human_numbers(comm.unseen_members, 6).c_str());
  if (live && all_running) head += ", all running";
  if (shared != nullptr) head += " · in " + operation_text(comm, *shared) + ", " + payload_text(*shared);

  const bool show_process = live && !all_running;
  std::string out = positions_table(comm, live, show_process, shared, false);
  if (out.find('\n') > width()) out = positions_table(comm, live, show_process, shared, true);
  const bool unseen =
      std::any_of(comm.positions.begin(), comm.positions.end(), [](const Position& at) { return !at.counts_tell; });
  if (unseen) out += "  Ends are not seen here (detail is low, or copy engines): only who has not entered is known.\n";
  return head + "\n" + out;
}

std::string last_operations(const CommView& comm, size_t count) {
  std::string out;
  for (const Position& at : comm.positions) {
    const auto& recent = at.comm.recent;
    out += format("  rank %d, last operations:\n", at.rank->header.rank);
    for (size_t i = recent.size() - std::min(count, recent.size()); i < recent.size(); ++i) {
      const InFlightOp& op = recent[i];
      out += format("    %-30s %-22s %-12s enqueued %s before the end\n", operation_text(comm, op).c_str(),
                    payload_text(op).c_str(), state_word(op), human_duration(at.rank->age_ns(op.enqueued_ns)).c_str());
    }
  }
  return out;
}

const char* record_word(RecordType type) {
  switch (type) {
    case RecordType::kInvalid:
      return "?";
    case RecordType::kCommInit:
      return "communicator made";
    case RecordType::kCommFinalize:
      return "communicator finalized";
    case RecordType::kColl:
      return "collective";
    case RecordType::kP2p:
      return "send or receive";
    case RecordType::kKernelCh:
      return "kernel channel";
    case RecordType::kProxyOp:
      return "proxy operation";
    case RecordType::kProxyStep:
      return "proxy step";
    case RecordType::kStepBegin:
      return "step begin";
    case RecordType::kStepEnd:
      return "step end";
    case RecordType::kPhaseBegin:
      return "phase begin";
    case RecordType::kPhaseEnd:
      return "phase end";
    case RecordType::kScalar:
      return "scalar";
    case RecordType::kShutdown:
      return "shutdown";
    case RecordType::kText:
      return "text";
  }
  return "?";
}

std::string lanes_text(const JobView& job) {
  std::vector<std::vector<std::string>> rows;
  for (const Recording* rank : job.ranks) {
    for (const auto& [lane, view] : rank->lanes) {
      rows.push_back({format("%d", rank->header.rank), format("%u", lane),
                      with_thousands(static_cast<int64_t>(view.records)), record_word(view.last),
                      human_duration(rank->age_ns(view.last_ns))});
    }
    if (rank->drained.torn > 0)
      rows.push_back({format("%d", rank->header.rank), "all", with_thousands(static_cast<int64_t>(rank->drained.torn)),
                      "cut off or torn", ""});
  }
  if (rows.empty()) return "";
  return "threads, by lane\n" +
         table({{"rank", true}, {"lane", true}, {"records", true}, {"last record"}, {"before end", true}}, rows) + "\n";
}

std::string job_text(const View& view, const JobView& job, const PrintOptions& options) {
  StepNumber step = kNoStep;
  std::set<std::string> hosts;
  for (const Recording* rank : job.ranks) {
    step = std::max(step, rank->status.step);
    hosts.insert(rank->header.host);
  }
  std::string out = job.job_id;
  if (job.attempt > 0) out += format(" (attempt %lld)", static_cast<long long>(job.attempt));
  out += job.world_size > 0 ? format(" · %zu of %d ranks", job.ranks.size(), job.world_size)
                            : format(" · %zu ranks", job.ranks.size());
  if (hosts.size() == 1) out += " on " + *hosts.begin();
  if (hosts.size() > 1) out += format(" on %zu hosts", hosts.size());
  if (step >= 0_step) out += " · step " + with_thousands(step.value());
  if (job.last_call_unix_ns != 0) out += " · last call " + time_text(job.last_call_unix_ns);
  out += "\n\n";

  const char* label = job.outcome == Outcome::kHang ? "HANG   " : job.outcome == Outcome::kSuspected ? "HANG?  " : "";
  out += behind(label, job.sentence);
  if (job.finding && view.live) {
    for (const NextAction& next : job.finding->next) {
      out += behind("       next  ", next.action);
      std::string command = next.command;
      for (const Recording* rank : job.ranks) {
        const size_t at = command.find("PID");
        if (at != std::string::npos && !job.finding->ranks.empty() &&
            Rank{rank->header.rank} == job.finding->ranks.front())
          command.replace(at, 3, format("%d", rank->header.pid));
      }
      if (!command.empty()) out += "             " + command + "\n";
    }
  }
  if (job.finding && !view.live)
    out += "       How long it lasted is not recorded: a rank that waits makes no calls.\n";
  out += "\n";

  size_t shown = 0, more_waiting = 0, idle = 0;
  for (const CommView& comm : job.comms) {
    if (!options.all && (!comm.waiting || shown >= kCommsShown)) {
      ++(comm.waiting ? more_waiting : idle);
      continue;
    }
    ++shown;
    out += comm_text(comm, view.live);
    if (options.last > 0) out += last_operations(comm, options.last);
    out += "\n";
  }
  if (options.lanes) out += lanes_text(job);
  if (more_waiting + idle > 0) {
    std::string rest;
    if (more_waiting > 0) rest = format("%zu more communicators with unfinished operations", more_waiting);
    if (idle > 0)
      rest += format("%s%zu communicator%s without", rest.empty() ? "" : " and ", idle, idle == 1 ? "" : "s") +
              (more_waiting > 0 ? "" : " an unfinished operation");
    out += rest + ": --all shows them\n";
  }
  for (const std::string& note : job.notes) out += behind("note: ", note);
  return out;
}

void write_operation(JsonWriter& out, const Recording& rank, const InFlightOp& op, const char* state) {
  out.begin_object()
      .field("function", to_text(op.function))
      .field("p2p", op.p2p)
      .field("ordinal", op.ordinal)
      .field("seq", op.seq)
      .field("bytes", op.bytes)
      .field("datatype", to_text(op.datatype))
      .field("peer", static_cast<int>(op.peer))
      .field("state", state)
      .field("end_is_seen", op.end_is_seen)
      .field("enqueued_unix_ns", rank.unix_of(op.enqueued_ns));
  if (op.started_ns != 0) out.field("started_unix_ns", rank.unix_of(op.started_ns));
  out.end_object();
}

void write_comm(JsonWriter& out, const CommView& comm, const PrintOptions& options) {
  out.begin_object()
      .field("id", comm_id_text(comm.comm_id))
      .field("name", comm.name)
      .field("size", static_cast<int>(comm.size))
      .field("waiting", comm.waiting);
  out.key("members_not_seen").begin_array();
  for (int member : comm.unseen_members) out.number(member);
  out.end_array().key("ranks").begin_array();
  for (const Position& at : comm.positions) {
    const Recording& rank = *at.rank;
    out.begin_object()
        .field("rank", static_cast<int>(rank.header.rank))
        .field("member", static_cast<int>(at.comm.rank_in_comm))
        .field("behind", at.behind)
        .field("state", state_word(at));
    const auto count = [&](const char* key, uint64_t calls, uint64_t enqueued, uint64_t started, uint64_t completed) {
      out.key(key).begin_object().field("calls", calls).field("enqueued", enqueued);
      out.field("started", started).field("completed", completed).field("ends_are_seen", at.counts_tell).end_object();
    };
    count("collectives", at.comm.collective_calls, at.comm.collectives_enqueued, at.collectives_started,
          at.comm.collectives_completed);
    count("p2p", at.comm.p2p_calls, at.comm.p2p_enqueued, at.p2p_started, at.comm.p2p_completed);
    if (at.open) {
      out.key("oldest_unfinished");
      write_operation(out, rank, *at.open, state_word(at));
      out.field("for_ms", rank.age_ns(since_ns(at)) / 1e6);
    }
    if (at.comm.proxy_state != 0) {
      out.key("network")
          .begin_object()
          .field("waits_for", network_wait(at.comm, rank_text(comm, at.comm.proxy_peer)))
          .field("nccl_state", static_cast<int>(at.comm.proxy_state))
          .field("peer_member", static_cast<int>(at.comm.proxy_peer))
          .field("for_ms", rank.age_ns(at.comm.proxy_since_ns) / 1e6)
          .end_object();
    }
    if (options.last > 0) {
      out.key("last").begin_array();
      const auto& recent = at.comm.recent;
      for (size_t i = recent.size() - std::min(options.last, recent.size()); i < recent.size(); ++i) {
        write_operation(out, rank, recent[i], state_word(recent[i]));
      }
      out.end_array();
    }
    out.end_object();
  }
  out.end_array().end_object();
}

void write_process(JsonWriter& out, const Recording& rank, const PrintOptions& options) {
  const RecorderHeader& header = rank.header;
  out.begin_object()
      .field("rank", static_cast<int>(header.rank))
      .field("host", header.host)
      .field("local_rank", static_cast<int>(header.local_rank))
      .field("gpu_uuid", header.gpu_uuid)
      .field("pid", static_cast<int>(header.pid))
      .field("process", to_text(rank.process))
      .field("finished", rank.status.finished)
      .field("step", rank.status.step.value())
      .field("phase", to_text(rank.status.phase))
      .field("last_call_unix_ns", rank.unix_of(rank.last_call_ns))
      .field("last_call_ms", rank.age_ns(rank.last_call_ns) / 1e6)
      .field("mask", static_cast<uint64_t>(header.mask))
      .field("file", rank.file)
      .field("switched_off", header.switched_off)
      .field("threads_without_lane", header.lanes_refused)
      .field("overwritten", rank.drained.overwritten)
      .field("torn", rank.drained.torn);
  out.key("refused").begin_object();
  for (size_t i = 0; i < header.refused.size(); ++i) out.field(to_text(static_cast<Refused>(i)), header.refused[i]);
  out.end_object();
  if (options.lanes) {
    out.key("lanes").begin_array();
    for (const auto& [lane, view] : rank.lanes) {
      out.begin_object()
          .field("lane", static_cast<uint64_t>(lane))
          .field("records", view.records)
          .field("last_record", record_word(view.last))
          .field("last_ms", rank.age_ns(view.last_ns) / 1e6)
          .end_object();
    }
    out.end_array();
  }
  out.end_object();
}

}  // namespace

std::string time_text(int64_t unix_ns) {
  const std::time_t seconds = unix_ns / 1'000'000'000;
  std::tm local{};
  localtime_r(&seconds, &local);
  char date[64] = "", zone[32] = "";
  std::strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &local);
  std::strftime(zone, sizeof zone, "%Z", &local);
  return format("%s.%03d %s", date, static_cast<int>(unix_ns / 1'000'000 % 1000), zone);
}

std::string to_text(const View& view, const PrintOptions& options) {
  std::string out;
  for (const JobView& job : view.jobs) {
    if (!out.empty()) out += "\n";
    out += job_text(view, job, options);
  }
  return out;
}

std::string to_json(const View& view, const std::vector<Skipped>& skipped, const PrintOptions& options) {
  JsonWriter out;
  out.begin_object().field("live", view.live).field("time_unix_ns", view.time_unix_ns);
  out.key("jobs").begin_array();
  for (const JobView& job : view.jobs) {
    out.begin_object()
        .field("job_id", job.job_id)
        .field("attempt", job.attempt)
        .field("world_size", static_cast<int>(job.world_size))
        .field("outcome", to_text(job.outcome))
        .field("sentence", job.sentence)
        .field("last_call_unix_ns", job.last_call_unix_ns);
    if (job.finding) {
      out.key("finding").begin_object();
      out.field("cause", to_text(job.finding->cause)).field("layer", to_text(job.finding->layer));
      for (const auto& [key, ranks] : {std::pair{"ranks", &job.finding->ranks}, {"victims", &job.finding->victims}}) {
        out.key(key).begin_array();
        for (Rank rank : *ranks) out.number(rank.value());
        out.end_array();
      }
      if (view.live) {  // the durations in its claims are those of a job that still runs
        out.key("claims").begin_array();
        for (const Claim& claim : job.finding->chain) out.string(claim.claim);
        out.end_array();
      }
      out.end_object();
    }
    out.key("notes").begin_array();
    for (const std::string& note : job.notes) out.string(note);
    out.end_array().key("processes").begin_array();
    for (const Recording* rank : job.ranks) write_process(out, *rank, options);
    out.end_array().key("communicators").begin_array();
    for (const CommView& comm : job.comms) write_comm(out, comm, options);
    out.end_array().end_object();
  }
  out.end_array().key("skipped").begin_array();
  for (const Skipped& one : skipped) out.begin_object().field("file", one.file).field("error", one.error).end_object();
  out.end_array().end_object();
  return out.take();
}

}  // namespace lockstep::cli
