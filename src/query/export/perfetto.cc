#include "query/export/perfetto.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <unordered_map>

#include "base/json_writer.h"
#include "base/perfetto_writer.h"
#include "base/text.h"

namespace lockstep {
namespace {

using TraceWriter = perfetto::TraceWriter;
using perfetto::kFirstPid;
using perfetto::Lanes;

int64_t difference(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_sub_overflow(a, b, &result)) return 0;
  return result;
}

uint64_t mixed(uint64_t hash, uint64_t word) {  // splitmix64 over the words: flows need ids that do not meet
  hash += word + 0x9e3779b97f4a7c15;
  hash = (hash ^ hash >> 30) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ hash >> 27) * 0x94d049bb133111eb;
  return hash ^ hash >> 31;
}

uint64_t collective_key(const OpSpan& op) {
  return mixed(mixed(1, op.comm_id.value()), op.ordinal);
}

// The same on both sides; 0 where the op is neither a send nor a receive to a known peer.
uint64_t message_key(const OpSpan& op) {
  const bool is_send = op.function == "Send";
  if ((!is_send && op.function != "Recv") || op.peer < 0) return 0;
  const auto own = static_cast<uint64_t>(op.rank_in_comm);
  const auto peer = static_cast<uint64_t>(op.peer);
  return mixed(mixed(mixed(mixed(2, op.comm_id.value()), is_send ? own : peer), is_send ? peer : own), op.seq);
}

// What all ranks together say of one collective.
struct Collective {
  int64_t shortest_ns = std::numeric_limits<int64_t>::max();
  size_t written = 0;  // of the ranks that are written
  size_t timed = 0;
};
using Collectives = std::unordered_map<uint64_t, Collective>;
struct Message {
  bool sent = false;
  bool received = false;
};
using Messages = std::unordered_map<uint64_t, Message>;

struct Shared {
  Collectives collectives;
  Messages messages;
  std::vector<const RankDetail*> written;
  size_t slices = 0;
  size_t arrows = 0;
};

Result<Shared> look_at_all(const PerfettoStep& step) {
  Shared shared;
  std::vector<Rank> ranks = step.ranks;
  std::sort(ranks.begin(), ranks.end());
  for (const RankDetail& rank : step.details) {
    const bool is_written = ranks.empty() || std::binary_search(ranks.begin(), ranks.end(), rank.identity.rank);
    if (is_written) {
      shared.written.push_back(&rank);
      shared.slices += 1 + rank.detail.phases.size() + rank.detail.ops.size();
    }
    for (const OpSpan& op : rank.detail.ops) {
      if (op.p2p) {
        const uint64_t key = is_written ? message_key(op) : 0;
        if (key == 0) continue;
        Message& message = shared.messages[key];
        (op.function == "Send" ? message.sent : message.received) = true;
      } else {
        Collective& one = shared.collectives[collective_key(op)];
        one.written += is_written;
        if (!op.timed) continue;
        ++one.timed;
        one.shortest_ns = std::min(one.shortest_ns, op.duration_ns);
      }
    }
  }
  if (shared.slices > step.slices_max) {
    return Error{format("%zu ranks have %zu spans in step %lld; at most %zu are written at once: choose fewer ranks",
                        shared.written.size(), shared.slices, static_cast<long long>(step.step.value()),
                        step.slices_max)};
  }
  for (const auto& [key, one] : shared.collectives) shared.arrows += one.written >= 2;
  for (const auto& [key, message] : shared.messages) shared.arrows += message.sent && message.received;
  return shared;
}

std::string label_of(const PerfettoStep& step, const OpSpan& op) {
  auto named = step.comm_names.find(op.comm_id);
  std::string label = named == step.comm_names.end() ? "communicator" : named->second;
  if (op.p2p) label += " send/receive";
  label += format(" 0x%llx", static_cast<unsigned long long>(op.comm_id.value()));
  if (op.comm_size > 0) label += format(" (%d ranks)", op.comm_size);
  return label;
}

std::string process_name(const Identity& identity) {
  return format("rank %d %s", identity.rank.value(), identity.host.c_str());
}

// One rank into a file. time: from the rank's clock to the file's.
template <typename Time>
class RankWriter {
 public:
  RankWriter(TraceWriter& out, const PerfettoStep& step, const Shared& shared, const RankDetail& rank, Time time)
      : out_(out), step_(step), shared_(shared), rank_(rank), time_(time) {
    // 20 bits for the tracks of a rank: more than operations in a detail.
    process_ = (static_cast<uint64_t>(rank.identity.rank.value()) + 1) << 20;
  }

  void write() {
    out_.process(process_, kFirstPid + rank_.identity.rank.value(), process_name(rank_.identity));
    write_step();
    write_phases();
    write_ops();
  }

 private:
  uint64_t new_track(std::string_view name, uint64_t order) {
    const uint64_t uuid = process_ + ++tracks_;
    out_.track(uuid, process_, name, order);
    return uuid;
  }

  void write_step() {
    const StepDetail& detail = rank_.detail;
    const Identity& identity = rank_.identity;
    const uint64_t track = new_track("step", 0);
    out_.slice_begin(track, "step", format("step %lld", static_cast<long long>(detail.step.value())));
    out_.note("rank", static_cast<int64_t>(identity.rank.value()));
    out_.note("host", identity.host);
    out_.note("gpu_uuid", identity.gpu_uuid);
    if (detail.inferred) out_.flag("inferred");
    if (detail.left_out > 0) out_.note("left_out", detail.left_out);
    const RankClock* clock = step_.alignment.clock(identity.rank);
    if (clock != nullptr && clock->known) {
      out_.note("clock_offset_ns", static_cast<int64_t>(clock->offset_ns));
      out_.note("clock_error_ns", static_cast<int64_t>(clock->error_ns));
    } else {
      out_.note("clock", "not aligned: taken as it is");
    }
    out_.done(time_(detail.start_unix_ns));
    for (const StepNote& note : detail.notes) {
      out_.instant(track, "note", "note");
      out_.note("text", note.text);
      out_.done(time_(note.time_unix_ns));
    }
    out_.slice_end(track);
    out_.done(time_(detail.start_unix_ns + detail.duration_ns));
  }

  // Phases may stand within each other (one track) or cut each other (a further one).
  void write_phases() {
    if (rank_.detail.phases.empty()) return;
    std::vector<const PhaseSpan*> phases;
    for (const PhaseSpan& phase : rank_.detail.phases) phases.push_back(&phase);
    std::stable_sort(phases.begin(), phases.end(), [](const PhaseSpan* a, const PhaseSpan* b) {
      return a->start_unix_ns != b->start_unix_ns ? a->start_unix_ns < b->start_unix_ns
                                                  : a->duration_ns > b->duration_ns;
    });
    struct Lane {
      uint64_t track;
      std::vector<int64_t> open;  // ends, the innermost last
    };
    std::vector<Lane> lanes;
    auto close_until = [this](Lane& lane, int64_t time_unix_ns) {
      while (!lane.open.empty() && lane.open.back() <= time_unix_ns) {
        out_.slice_end(lane.track);
        out_.done(time_(lane.open.back()));
        lane.open.pop_back();
      }
    };
    for (const PhaseSpan* phase : phases) {
      const int64_t end = phase->start_unix_ns + phase->duration_ns;
      Lane* chosen = nullptr;
      // Nobody nests that deep; who does gets more tracks, not more of our time.
      const size_t first = lanes.size() > kLanesTried ? lanes.size() - kLanesTried : 0;
      for (size_t i = first; i < lanes.size() && chosen == nullptr; ++i) {
        close_until(lanes[i], phase->start_unix_ns);
        if (lanes[i].open.empty() || lanes[i].open.back() >= end) chosen = &lanes[i];
      }
      if (chosen == nullptr) chosen = &lanes.emplace_back(Lane{new_track("phases", 1), {}});
      out_.slice_begin(chosen->track, "phase",
                       phase->name.empty() ? std::string_view(to_text(phase->phase)) : phase->name);
      out_.done(time_(phase->start_unix_ns));
      chosen->open.push_back(end);
    }
    for (Lane& lane : lanes) close_until(lane, std::numeric_limits<int64_t>::max());
  }

  void write_ops() {
    struct Communicator {
      std::string label;
      uint64_t order;
      Lanes lanes;
      std::vector<uint64_t> tracks;
    };
    std::map<std::pair<CommId, bool>, Communicator> communicators;
    uint64_t order = 2;
    for (const OpSpan& op : rank_.detail.ops) {
      auto [found, is_new] = communicators.try_emplace({op.comm_id, op.p2p});
      Communicator& comm = found->second;
      if (is_new) {
        comm.label = label_of(step_, op);
        comm.order = order++;
      }
      const size_t lane = comm.lanes.take(op.start_unix_ns, op.start_unix_ns + op.duration_ns);
      if (lane == comm.tracks.size()) comm.tracks.push_back(new_track(comm.label, comm.order));
      write_op(comm.tracks[lane], op);
    }
  }

  void write_op(uint64_t track, const OpSpan& op) {
    out_.slice_begin(track, op.p2p ? "p2p" : "collective", op.function);
    const uint64_t message = op.p2p ? message_key(op) : 0;
    bool is_receive = false;
    if (op.p2p) {
      auto found = shared_.messages.find(message);
      const bool is_pair =
          message != 0 && found != shared_.messages.end() && found->second.sent && found->second.received;
      is_receive = is_pair && op.function == "Recv";
      if (is_pair && !is_receive) out_.flow(message);
    } else {
      const uint64_t key = collective_key(op);
      const Collective& one = shared_.collectives.at(key);
      if (one.written >= 2) out_.flow(key);
      // The last to arrive spends the least time, so what another spends beyond that it has waited. No clock in it.
      if (op.timed && one.timed >= 2) out_.note("wait_ns", op.duration_ns - one.shortest_ns);
      out_.note("ordinal", static_cast<int64_t>(op.ordinal));
    }
    out_.note("bytes", op.bytes);
    out_.note("seq", static_cast<int64_t>(op.seq));
    if (!op.datatype.empty()) out_.note("datatype", op.datatype);
    if (op.peer >= 0) out_.note(op.p2p ? "peer" : "root", static_cast<int64_t>(op.peer));
    if (op.timed) {
      out_.note("queue_ns", difference(op.start_unix_ns, op.enqueued_unix_ns));
    } else {
      out_.flag("untimed");
    }
    out_.done(time_(op.start_unix_ns));
    out_.slice_end(track);
    // A receive is often posted before its send: the arrow ends where the message has arrived.
    if (is_receive) out_.flow(message, true);
    out_.done(time_(op.start_unix_ns + op.duration_ns));
  }

  static constexpr size_t kLanesTried = 64;
  TraceWriter& out_;
  const PerfettoStep& step_;
  const Shared& shared_;
  const RankDetail& rank_;
  Time time_;
  uint64_t process_ = 0;
  uint64_t tracks_ = 0;
};

int64_t first_moment(const Shared& shared) {
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const RankDetail* rank : shared.written) first = std::min(first, rank->detail.start_unix_ns);
  return first;
}

PerfettoFile counted(const PerfettoStep& step, const Shared& shared) {
  PerfettoFile file;
  file.ranks = shared.written.size();
  file.slices = shared.slices;
  file.arrows = shared.arrows;
  for (const RankDetail* rank : shared.written) {
    const RankClock* clock = step.alignment.clock(rank->identity.rank);
    file.ranks_unknown_clock += clock == nullptr || !clock->known;
  }
  // A little more than what is measured, so that the string is moved rarely.
  file.bytes.reserve(shared.slices * 136 + shared.written.size() * 1024);
  return file;
}

// POSIX ustar, regular files only.
constexpr size_t kTarBlock = 512;
size_t begin_tar_member(std::string& out) {
  out.append(kTarBlock, '\0');
  return out.size();
}
void end_tar_member(std::string& out, size_t began, const std::string& name, int64_t time_s) {
  const size_t size = out.size() - began;
  char* header = out.data() + began - kTarBlock;
  auto put = [header](size_t at, const std::string& text) { text.copy(header + at, text.size()); };
  put(0, name.substr(0, 100));
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  put(124, format("%011zo", size));
  put(136, format("%011llo", static_cast<unsigned long long>(std::max<int64_t>(time_s, 0)) & 077777777777));
  put(148, "        ");
  header[156] = '0';
  put(257, std::string("ustar\0"
                       "00",
                       8));
  unsigned sum = 0;
  for (size_t i = 0; i < kTarBlock; ++i) sum += static_cast<uint8_t>(header[i]);
  put(148, std::string(format("%06o", sum)) + '\0' + ' ');
  out.append((kTarBlock - size % kTarBlock) % kTarBlock, '\0');
}

// The clock of the first file is the archive's axis. A file's clock reads T when the first file's reads T + offset_ns.
std::string manifest_of(const PerfettoStep& step, const Shared& shared) {
  const int64_t at = first_moment(shared);
  auto correction = [&](const RankDetail& rank) {
    return difference(step.alignment.job_time(rank.identity.rank, at), at);
  };
  const std::string axis = perfetto_file_name(shared.written.front()->identity.rank);
  JsonWriter json;
  json.begin_object().key("perfetto_manifest").begin_object().field("version", 1);
  json.key("trace_time").begin_object().field("clock", "BOOTTIME").field("file", axis).end_object();
  json.key("attributes")
      .begin_object()
      .field("lockstep.job_id", step.job_id)
      .field("lockstep.step", step.step.value())
      .field("lockstep.ranks", static_cast<uint64_t>(shared.written.size()))
      .field("lockstep.clock_error_ns", static_cast<int64_t>(step.alignment.error_ns()))
      .end_object();
  json.key("files").begin_array();
  for (const RankDetail* rank : shared.written) {
    const std::string path = perfetto_file_name(rank->identity.rank);
    json.begin_object().field("path", path).key("machine").begin_object();
    json.field("name", process_name(rank->identity)).end_object();
    if (path != axis) {
      json.key("clocks").begin_object().field("clock", "BOOTTIME").key("sync_to").begin_object();
      json.field("file", axis).field("clock", "BOOTTIME").end_object();
      json.field("offset_ns", difference(correction(*rank), correction(*shared.written.front()))).end_object();
    }
    json.end_object();
  }
  json.end_array().end_object().end_object();
  return json.take();
}

Error nobody(const PerfettoStep& step) {
  return Error{format("no detail of these ranks in step %lld", static_cast<long long>(step.step.value()))};
}

}  // namespace

std::string perfetto_file_name(Rank rank) {
  return format("rank-%04d.pftrace", rank.value());
}

Result<PerfettoFile> perfetto_trace(const PerfettoStep& step) {
  Shared shared = LOCKSTEP_TRY(look_at_all(step));
  if (shared.written.empty()) return nobody(step);
  PerfettoFile file = counted(step, shared);
  TraceWriter out(file.bytes);
  out.begin(first_moment(shared));
  for (const RankDetail* rank : shared.written) {
    const Rank number = rank->identity.rank;
    auto time = [&step, number](int64_t unix_ns) { return step.alignment.job_time(number, unix_ns); };
    RankWriter(out, step, shared, *rank, time).write();
  }
  return file;
}

Result<PerfettoFile> perfetto_archive(const PerfettoStep& step) {
  Shared shared = LOCKSTEP_TRY(look_at_all(step));
  if (shared.written.empty()) return nobody(step);
  PerfettoFile file = counted(step, shared);
  const int64_t at = first_moment(shared);
  const int64_t time_s = at / 1'000'000'000;
  const size_t manifest = begin_tar_member(file.bytes);
  file.bytes += manifest_of(step, shared);
  end_tar_member(file.bytes, manifest, "perfetto_manifest.json", time_s);
  for (const RankDetail* rank : shared.written) {
    const size_t began = begin_tar_member(file.bytes);
    TraceWriter out(file.bytes);
    // Wall time is told in the file whose clock is the axis; told by all, it would speak against the offsets.
    out.begin(rank == shared.written.front() ? at : 0);
    RankWriter(out, step, shared, *rank, [](int64_t unix_ns) { return unix_ns; }).write();
    end_tar_member(file.bytes, began, perfetto_file_name(rank->identity.rank), time_s);
  }
  file.bytes.append(2 * kTarBlock, '\0');
  return file;
}

}  // namespace lockstep
