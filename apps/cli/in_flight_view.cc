#include "apps/cli/in_flight_view.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <tuple>

#include "base/text.h"
#include "diagnosis/detectors/hang/hang.h"
#include "diagnosis/verdicts/verdict_sentence.h"
#include "model/rank_text.h"
#include "recorder/writer.h"

namespace lockstep::cli {
namespace {

// Times in a file are untrusted; within this no sum of two of them overflows.
constexpr int64_t kTimeMax = int64_t{1} << 62;

bool unfinished(const InFlightOp& op) {
  return op.state == InFlightState::kEnqueued || op.state == InFlightState::kStarted;
}

uint64_t newest_time(const std::vector<InFlightComm>& comms) {
  uint64_t newest = 0;
  for (const InFlightComm& comm : comms) {
    for (const InFlightOp& op : comm.recent) newest = std::max({newest, op.enqueued_ns, op.started_ns});
  }
  return newest;
}

ProcessWord word_of(const std::optional<ProcessState>& state) {
  if (!state) return ProcessWord::kGone;
  if (state->stopped()) return ProcessWord::kStopped;
  return state->letter == 'D' ? ProcessWord::kInKernel : ProcessWord::kRunning;
}

Identity identity_of(const RecorderHeader& header) {
  return {header.job_id,     header.attempt, Rank{header.rank}, header.world_size,
          header.local_rank, header.host,    header.gpu_uuid};
}

bool trusted(const Recording& recording) {
  return recording.header.switched_off == 0;
}

// Of two recordings of one rank: the running one, else the one made last.
bool better(const Recording& a, const Recording& b) {
  const bool a_gone = a.process == ProcessWord::kGone, b_gone = b.process == ProcessWord::kGone;
  return std::tuple(a.header.attempt, !a_gone, a.header.anchor_unix_ns) >
         std::tuple(b.header.attempt, !b_gone, b.header.anchor_unix_ns);
}

// A collective that some member has not entered cannot be over. Of any other whose end is not seen nothing is known.
InFlightComm without_unproven(InFlightComm comm, uint64_t least_entered) {
  std::erase_if(comm.recent, [&](const InFlightOp& op) {
    return !op.end_is_seen && unfinished(op) && (op.p2p || op.ordinal <= least_entered);
  });
  return comm;
}

Position position_of(const Recording& rank, const InFlightComm& comm, uint64_t least_entered) {
  Position at{.rank = &rank, .comm = comm};
  at.collectives_started = comm.collectives_completed;
  at.p2p_started = comm.p2p_completed;
  for (const InFlightOp& op : comm.recent) {
    uint64_t& started = op.p2p ? at.p2p_started : at.collectives_started;
    if (op.state >= InFlightState::kStarted) started = std::max(started, op.ordinal);
  }
  for (const InFlightOp& op : without_unproven(comm, least_entered).recent) {
    if (unfinished(op) && !at.open) at.open = op;
  }
  if (!comm.recent.empty() && !comm.recent.back().end_is_seen && unfinished(comm.recent.back())) {
    at.counts_tell = false;
    if (!at.open) {
      at.open = comm.recent.back();
      at.open_is_certain = false;
    }
  }
  return at;
}

std::vector<CommView> comms_of(const std::vector<const Recording*>& ranks,
                               const std::map<CommId, uint64_t>& least_entered) {
  std::map<CommId, CommView> by_id;
  for (const Recording* rank : ranks) {
    if (!trusted(*rank)) continue;
    for (const InFlightComm& comm : rank->comms) {
      CommView& view = by_id[CommId{comm.comm_id}];
      view.comm_id = CommId{comm.comm_id};
      view.size = std::max(view.size, comm.size);
      if (view.name.empty()) view.name = comm.name;
      view.positions.push_back(position_of(*rank, comm, least_entered.at(CommId{comm.comm_id})));
    }
  }
  std::vector<CommView> all;
  for (auto& [id, view] : by_id) {
    std::set<int32_t> members;
    uint64_t furthest = 0;  // newest collective that somebody is certainly inside
    for (const Position& at : view.positions) {
      members.insert(at.comm.rank_in_comm);
      if (!at.open || !at.open_is_certain) continue;
      view.waiting = true;
      view.longest_ns = std::max(view.longest_ns, at.rank->age_ns(at.open->enqueued_ns));
      if (!at.open->p2p) furthest = std::max(furthest, at.open->ordinal);
    }
    for (Position& at : view.positions) at.behind = at.comm.collectives_enqueued < furthest;
    for (int32_t member = 0; member < std::min(view.size, CommView::kMembersMax); ++member) {
      if (!members.contains(member)) view.unseen_members.push_back(member);
    }
    std::stable_sort(view.positions.begin(), view.positions.end(), [](const Position& a, const Position& b) {
      return std::tuple(!a.behind, a.rank->header.rank) < std::tuple(!b.behind, b.rank->header.rank);
    });
    all.push_back(std::move(view));
  }
  std::stable_sort(all.begin(), all.end(), [](const CommView& a, const CommView& b) {
    return std::tuple(!a.waiting, -a.longest_ns) < std::tuple(!b.waiting, -b.longest_ns);
  });
  return all;
}

std::string named_ranks(const std::vector<Rank>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + human_ranks(ranks, 6);
}

// The operation that most ranks are in and who is not: for the sentences that the detector does not give.
struct Standing {
  const CommView* comm = nullptr;
  InFlightOp op;
  std::vector<Rank> inside;
  std::vector<Rank> behind;
  int64_t longest_quiet_ns = 0;

  std::string text() const {
    return format("%s of communicator 0x%llx (%d ranks)", operation_text(*comm, op).c_str(),
                  static_cast<unsigned long long>(comm->comm_id.value()), comm->size);
  }
};

Standing standing_of(const JobView& job, int64_t quiet_min_ns) {
  Standing most;
  for (const CommView& comm : job.comms) {
    std::map<std::tuple<bool, uint64_t, Function>, Standing> by_op;
    for (const Position& at : comm.positions) {
      const RankStatus& status = at.rank->status;
      if (!at.open || !at.open_is_certain || status.finished || !status.process_alive) continue;
      if (status.quiet_ns < quiet_min_ns) continue;
      Standing& entry = by_op[{at.open->p2p, at.open->ordinal, at.open->function}];
      entry.comm = &comm;
      entry.op = *at.open;
      entry.inside.push_back(Rank{at.rank->header.rank});
      entry.longest_quiet_ns = std::max(entry.longest_quiet_ns, status.quiet_ns);
    }
    for (auto& [key, entry] : by_op) {
      if (entry.inside.size() <= most.inside.size()) continue;
      most = entry;
      for (const Position& at : comm.positions) {
        if (at.behind) most.behind.push_back(Rank{at.rank->header.rank});
      }
    }
  }
  return most;
}

std::string unseen_text(const CommView& comm, bool live) {
  const char* word = comm.unseen_members.size() == 1 ? "member" : "members";
  return format(live ? "only %zu of its %d ranks can be seen on this node (not %s %s)"
                     : "there are recordings of only %zu of its %d ranks (not of %s %s)",
                comm.positions.size(), comm.size, word, human_numbers(comm.unseen_members, 6).c_str());
}

// No verdict is also an answer.
void say_without_finding(JobView& job, bool live, int64_t limit_ns) {
  if (job.comms.empty()) {
    const bool finished =
        std::all_of(job.ranks.begin(), job.ranks.end(), [](const Recording* rank) { return rank->status.finished; });
    job.outcome = finished ? Outcome::kClear : Outcome::kUnknown;
    job.sentence = finished ? "Nothing is stuck: every rank has finished."
                            : "Cannot tell: no rank has a communicator that can be seen.";
    return;
  }
  const Standing stuck = standing_of(job, limit_ns);
  if (stuck.comm == nullptr) {
    double quiet = 0;
    bool any = false, unsure = false;
    for (const CommView& comm : job.comms) {
      for (const Position& at : comm.positions) {
        if (!at.open || at.rank->status.finished) continue;
        any = true;
        quiet = std::max(quiet, static_cast<double>(at.rank->status.quiet_ns));
        unsure |= !at.open_is_certain && at.rank->status.quiet_ns >= limit_ns;
      }
    }
    if (unsure) {
      job.sentence = "Cannot tell: all ranks have entered the same operations, and their ends cannot be seen.";
      return;
    }
    job.outcome = Outcome::kClear;
    job.sentence = any ? format("Nothing is stuck: whoever is inside an operation made a call in the last %s.",
                                human_duration(quiet).c_str())
                       : "Nothing is stuck: every operation that was seen has completed.";
    return;
  }
  const std::string waited = live ? " for " + human_duration(static_cast<double>(stuck.longest_quiet_ns)) : "";
  std::string text = format("Cannot tell: %s %s been inside %s%s", named_ranks(stuck.inside).c_str(),
                            stuck.inside.size() == 1 ? "has" : "have", stuck.text().c_str(), waited.c_str());
  if (!stuck.behind.empty()) {
    bool moves = false, busy = false;
    for (const Recording* rank : job.ranks) {
      if (std::find(stuck.behind.begin(), stuck.behind.end(), Rank{rank->header.rank}) == stuck.behind.end()) continue;
      moves |= rank->status.quiet_ns < limit_ns;
      busy |= rank->status.phase == Phase::kCheckpoint || rank->status.phase == Phase::kEval;
    }
    text +=
        format("; %s %s not entered it%s", named_ranks(stuck.behind).c_str(), stuck.behind.size() == 1 ? "has" : "have",
               moves  ? " but still makes calls"
               : busy ? " and said to be saving or evaluating"
                      : "");
  } else if (!stuck.comm->unseen_members.empty()) {
    text += ", but " + unseen_text(*stuck.comm, live);
  } else {
    text += ", and no rank stands out";
  }
  job.sentence = text + ".";
}

using EnteredByComm = std::map<CommId, uint64_t>;  // the least that any rank has enqueued

EnteredByComm fill_window(const std::vector<Recording*>& ranks, JobWindow& window) {
  EnteredByComm least_entered;
  for (Recording* rank : ranks) {
    const Identity identity = identity_of(rank->header);
    window.add_rank(identity);
    if (!trusted(*rank)) continue;
    for (const InFlightComm& comm : rank->comms) {
      window.add_comm(identity, {CommId{comm.comm_id}, comm.size, comm.rank_in_comm, comm.nodes, comm.name});
      uint64_t& least = least_entered.try_emplace(CommId{comm.comm_id}, comm.collectives_enqueued).first->second;
      least = std::min(least, comm.collectives_enqueued);
    }
    for (const StepSummary& step : rank->steps) window.add_step(identity, step);
  }
  return least_entered;
}

RankStatus status_of(const Recording& rank, const EnteredByComm& least_entered, int64_t now_unix_ns) {
  std::vector<InFlightComm> proven;
  for (const InFlightComm& comm : rank.comms) {
    auto least = least_entered.find(CommId{comm.comm_id});
    if (least != least_entered.end()) proven.push_back(without_unproven(comm, least->second));
  }
  const auto quiet = static_cast<int64_t>(rank.age_ns(rank.last_call_ns));
  RankStatus status = rank.assembler->status(proven, now_unix_ns, quiet);
  status.finished |= rank.all_finalized;
  status.process_alive = rank.process != ProcessWord::kGone;
  status.process_stopped = rank.process == ProcessWord::kStopped;
  if (rank.last_call_ns != 0) status.last_call_unix_ns = rank.unix_of(rank.last_call_ns);
  return status;
}

bool all_are_gone(const std::vector<Recording*>& ranks) {
  return std::all_of(ranks.begin(), ranks.end(), [](const Recording* rank) {
    return rank->process == ProcessWord::kGone && !rank->status.finished;
  });
}

// What the hang detector found, in the words of the job's outcome.
void say_finding(JobView& job, bool live) {
  job.outcome = job.finding->sure ? Outcome::kHang : Outcome::kSuspected;
  job.sentence = verdict_sentence(*job.finding, {job.finding->since_step, job.finding->through_step});
  if (live) return;
  // How long it lasted is not recorded: whoever waits makes no calls. The detector's number is made up (judge_job).
  const std::string made_up = " for " + human_duration(static_cast<double>(job.finding->lost_ns_per_step));
  if (size_t at = job.sentence.rfind(made_up); at != std::string::npos) job.sentence.erase(at, made_up.size());
}

void judge_job(JobView& job, std::vector<Recording*>& ranks, bool live, int64_t now_unix_ns) {
  JobWindow window;
  const EnteredByComm least_entered = fill_window(ranks, window);
  job.world_size = window.world_size();
  HangInput input{{}, typical_step_ns(window)};
  for (Recording* rank : ranks) {
    rank->status = status_of(*rank, least_entered, now_unix_ns);
    if (trusted(*rank)) input.status[Rank{rank->header.rank}] = rank->status;
  }
  const int64_t limit = hang_after_ns(input);
  // A recording that has ended stands still for ever: nobody in it moves again.
  if (!live) {
    for (Recording* rank : ranks) rank->status.quiet_ns += 4 * limit;
    for (auto& [rank, status] : input.status) status.quiet_ns += 4 * limit;
  }
  job.comms = comms_of(job.ranks, least_entered);
  if (live && all_are_gone(ranks)) {
    job.sentence = format("All %zu processes are gone; lockstep postmortem shows where they stood.", ranks.size());
    return;
  }
  job.finding = find_hang(window, input);
  if (job.finding && job.finding->cause == Cause::kInOperationStall) {
    const Standing stuck = standing_of(job, limit);
    if (stuck.comm != nullptr && !stuck.comm->unseen_members.empty()) job.finding.reset();
  }
  if (!job.finding) return say_without_finding(job, live, limit);
  say_finding(job, live);
}

void add_notes(JobView& job) {
  std::map<std::string, std::vector<Rank>> by_text;
  for (const Recording* rank : job.ranks) {
    const RecorderHeader& header = rank->header;
    if (header.switched_off != 0) {
      by_text[format("recorder switched itself off (%s): where it stands is not known",
                     to_text(static_cast<SwitchOff>(header.switched_off)))]
          .push_back(Rank{header.rank});
    }
    std::string refused;
    for (size_t i = 0; i < header.refused.size(); ++i) {
      if (header.refused[i] == 0) continue;
      refused += format("%s%s %s", refused.empty() ? "" : ", ",
                        with_thousands(static_cast<int64_t>(header.refused[i] & INT64_MAX)).c_str(),
                        to_text(static_cast<Refused>(i)));
    }
    if (header.lanes_refused != 0)
      refused += format("%s%llu threads without a lane", refused.empty() ? "" : ", ",
                        static_cast<unsigned long long>(header.lanes_refused));
    if (!refused.empty()) by_text["events not recorded: " + refused].push_back(Rank{header.rank});
  }
  for (const CommView& comm : job.comms) {
    for (const Position& at : comm.positions) {
      const uint64_t calls = at.comm.collective_calls + at.comm.p2p_calls;
      const uint64_t entered = at.comm.collectives_enqueued + at.comm.p2p_enqueued;
      if (calls <= entered || at.comm.collective_calls + at.comm.p2p_calls == 0) continue;
      by_text[format("%llu calls in communicator 0x%llx are not visible: symmetric kernels, or still grouped",
                     static_cast<unsigned long long>(calls - entered),
                     static_cast<unsigned long long>(comm.comm_id.value()))]
          .push_back(Rank{at.rank->header.rank});
    }
  }
  for (const auto& [text, ranks] : by_text) job.notes.push_back(named_ranks(ranks) + ": " + text);
}

}  // namespace

const char* to_text(ProcessWord process) {
  switch (process) {
    case ProcessWord::kRunning:
      return "running";
    case ProcessWord::kInKernel:
      return "in kernel";
    case ProcessWord::kStopped:
      return "stopped";
    case ProcessWord::kGone:
      return "gone";
    case ProcessWord::kUnknown:
      return "dead or unknown";
  }
  return "?";
}

const char* to_text(Outcome outcome) {
  switch (outcome) {
    case Outcome::kHang:
      return "hang";
    case Outcome::kSuspected:
      return "suspected";
    case Outcome::kUnknown:
      return "unknown";
    case Outcome::kClear:
      return "clear";
  }
  return "?";
}

std::string rank_text(const CommView& comm, int32_t member) {
  for (const Position& at : comm.positions) {
    if (at.comm.rank_in_comm == member) return format("rank %d", at.rank->header.rank);
  }
  return format("member %d", member);
}

std::string operation_text(const CommView& comm, const InFlightOp& op) {
  const auto ordinal = static_cast<unsigned long long>(op.ordinal);
  if (!op.p2p) return format("%s %llu (#%llu)", to_text(op.function), static_cast<unsigned long long>(op.seq), ordinal);
  const char* way = op.function == Function::kRecv ? "from" : "to";
  return format("%s #%llu %s %s", to_text(op.function), ordinal, way, rank_text(comm, op.peer).c_str());
}

std::string network_wait(const InFlightComm& comm, const std::string& peer_text) {
  switch (comm.proxy_state) {  // NCCL's numbers
    case 8:
    case 12:
      return "own GPU";
    case 20:
      return "credit of " + peer_text;
    case 9:
      return "wire to " + peer_text;
    case 10:
      return "data from " + peer_text;
    case 11:
      return "flush";
    default:
      return "";
  }
}

std::vector<Recording> RecorderSet::poll(const std::vector<std::string>& paths) {
  skipped_.clear();
  std::set<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) {
      files.insert(path);
      continue;
    }
    const auto options = std::filesystem::directory_options::skip_permission_denied;
    for (auto at = std::filesystem::recursive_directory_iterator(path, options, error);
         !error && at != std::filesystem::recursive_directory_iterator(); at.increment(error)) {
      if (at->path().extension() == kRecorderSuffix) files.insert(at->path());
    }
    if (error) skipped_.push_back({path, error.message()});
  }
  std::erase_if(sources_, [&](const auto& entry) { return !files.contains(entry.first); });
  for (const std::string& file : files) {
    if (!sources_.contains(file)) add(file);
  }
  std::vector<Recording> recordings;
  for (auto& [file, source] : sources_) {
    read(source);
    recordings.push_back(source.recording);
  }
  return recordings;
}

void RecorderSet::add(const std::string& file) {
  Result<std::unique_ptr<RecorderReader>> reader = RecorderReader::open(file, saved_);
  if (!reader.ok()) {
    std::string error = reader.error();
    const std::string known = "recorder: " + file + ": ";
    if (error.starts_with(known)) error.erase(0, known.size());
    return skipped_.push_back({file, error});
  }
  const RecorderHeader header = (*reader)->header();
  for (int64_t anchor : {header.anchor_unix_ns, header.anchor_monotonic_ns}) {
    if (anchor < 0 || anchor >= kTimeMax / 2) return skipped_.push_back({file, "its clock anchors cannot be"});
  }
  Source source;
  source.recording.file = file;
  source.assembler = std::make_unique<RankAssembler>(header.anchor_unix_ns - header.anchor_monotonic_ns);
  source.recording.assembler = source.assembler.get();
  source.reader = std::move(reader).value();
  sources_.emplace(file, std::move(source));
}

void RecorderSet::read(Source& source) {
  Recording& recording = source.recording;
  recording.header = source.reader->header();
  recording.process = saved_ ? ProcessWord::kUnknown : word_of(writer_state(*source.reader, recording.header));
  std::vector<InFlightComm> table = source.reader->in_flight();
  for (InFlightComm& comm : table) {
    comm.proxy_since_ns = std::min<uint64_t>(comm.proxy_since_ns, kTimeMax / 2);
    for (InFlightOp& op : comm.recent) {
      op.enqueued_ns = std::min<uint64_t>(op.enqueued_ns, kTimeMax / 2);
      op.started_ns = std::min<uint64_t>(op.started_ns, kTimeMax / 2);
    }
  }
  source.assembler->set_comms(table);
  const RecorderReader::Drained drained = source.reader->drain([&](uint32_t lane, const Record& record) {
    source.assembler->add(record);
    LaneView& view = recording.lanes[lane];
    ++view.records;
    view.last_ns = record.head.time_ns;
    view.last = record.head.type;
  });
  recording.drained.records += drained.records;
  recording.drained.overwritten += drained.overwritten;
  recording.drained.torn += drained.torn;
  if (source.assembler->lacks_comm()) source.assembler->add_comms(source.reader->in_flight());
  source.assembler->end_drain(clock_.monotonic_ns(), drained.overwritten + drained.torn);
  for (ClosedStep& step : source.assembler->take_steps(clock_.monotonic_ns(), true))
    recording.steps.push_back(std::move(step.summary));
  if (recording.steps.size() > JobWindow::kStepsMax)
    recording.steps.erase(recording.steps.begin(), recording.steps.end() - JobWindow::kStepsMax);

  recording.comms.clear();
  for (const InFlightComm& comm : table) {
    if (comm.live) recording.comms.push_back(comm);
  }
  recording.all_finalized = !table.empty() && recording.comms.empty();
  recording.last_call_ns = std::max(source.reader->last_activity_ns(), newest_time(table));
  recording.now_ns = saved_ ? recording.last_call_ns : static_cast<uint64_t>(clock_.monotonic_ns());
  if (recording.last_call_ns == 0) recording.last_call_ns = static_cast<uint64_t>(recording.header.anchor_monotonic_ns);
  recording.last_call_ns = std::min<uint64_t>(recording.last_call_ns, kTimeMax / 2);
  recording.now_ns = std::min<uint64_t>(recording.now_ns, kTimeMax / 2);
}

View judge(std::vector<Recording>& recordings, bool live, int64_t now_unix_ns) {
  std::map<std::string, std::map<Rank, Recording*>> chosen;
  std::map<std::string, size_t> older, nameless;
  for (Recording& recording : recordings) {
    const RecorderHeader& header = recording.header;
    auto& ranks = chosen[header.job_id];
    if (header.rank < 0) {
      ++nameless[header.job_id];
      continue;
    }
    Recording*& place = ranks[Rank{header.rank}];
    if (place != nullptr) ++older[header.job_id];
    if (place == nullptr || better(recording, *place)) place = &recording;
  }

  View view{.live = live, .time_unix_ns = now_unix_ns};
  for (auto& [job_id, by_rank] : chosen) {
    JobView job;
    job.job_id = job_id;
    for (const auto& [rank, recording] : by_rank) job.attempt = std::max(job.attempt, recording->header.attempt);
    std::vector<Recording*> ranks;
    for (const auto& [rank, recording] : by_rank) {
      if (recording->header.attempt < job.attempt) {
        ++older[job_id];
        continue;
      }
      ranks.push_back(recording);
      job.ranks.push_back(recording);
      job.last_call_unix_ns = std::max(job.last_call_unix_ns, recording->unix_of(recording->last_call_ns));
    }
    if (!live) {
      for (Recording* rank : ranks)
        rank->now_ns += static_cast<uint64_t>(job.last_call_unix_ns - rank->unix_of(rank->now_ns));
    }
    judge_job(job, ranks, live, live ? now_unix_ns : job.last_call_unix_ns);
    add_notes(job);
    if (older[job_id] > 0)
      job.notes.push_back(format("%zu older recordings of the same ranks are left out", older[job_id]));
    if (nameless[job_id] > 0)
      job.notes.push_back(format("%zu processes do not know their rank and are left out (set RANK or LOCKSTEP_RANK)",
                                 nameless[job_id]));
    view.jobs.push_back(std::move(job));
  }
  std::stable_sort(view.jobs.begin(), view.jobs.end(),
                   [](const JobView& a, const JobView& b) { return a.outcome < b.outcome; });
  return view;
}

}  // namespace lockstep::cli
