// RankAssembler: what the job itself tells (steps, phases, scalars, notes, groups), and its steps where it does not.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/text.h"
#include "model/rank_text.h"
#include "sources/nccl/rank_assembler.h"

namespace lockstep {
namespace {

// Operations of a job without steps are kept so long while no pattern is known, and at most kInferredStepNsMax in all.
constexpr int64_t kUnmarkedKeptNs = 10'000'000'000;
constexpr int64_t kInferredStepNsMax = 600'000'000'000;
// A step whose scalars come after its end waits so long for the next to begin.
constexpr int64_t kScalarsWaitNs = 1'000'000'000;
constexpr size_t kUnreportedMax = 1024;

std::string name_of(const MarkRecord& mark) {
  return {mark.name, strnlen(mark.name, sizeof mark.name)};
}

Phase phase_of(int64_t number) {
  return number > 0 && number < static_cast<int64_t>(kPhaseCount) ? static_cast<Phase>(number) : Phase::kOther;
}

}  // namespace

void RankAssembler::end_phase(int64_t at_ns) {
  if (phase_open_ && !steps_.empty() && steps_.back().end_ns == 0 && at_ns > phase_since_ns_) {
    OpenStep& step = steps_.back();
    int64_t since_ns = std::max(phase_since_ns_, step.start_ns);
    if (phase_ != Phase::kOther) step.phase_ns[static_cast<size_t>(phase_)] += at_ns - since_ns;
    if (step.phases.size() < kPhasesPerStepMax) {
      step.phases.push_back({phase_, phase_name_, since_ns + unix_shift_ns_, at_ns - since_ns});
    } else {
      ++step.phases_left_out;
    }
  }
  phase_open_ = false;
  phase_ = Phase::kOther;
}

void RankAssembler::begin_step(int64_t number, int64_t at_ns, int64_t now_ns) {
  if (!steps_.empty() && steps_.back().end_ns == 0) end_step(at_ns, now_ns);  // a begin ends the step before it
  OpenStep& step = steps_.emplace_back();
  step.step = StepNumber{number};
  step.start_ns = at_ns;
  last_step_ = StepNumber{number};
  for (UnreportedScalar& scalar : unreported_scalars_) put_scalar(step, std::move(scalar.name), scalar.value);
  for (StepNote& note : unreported_notes_) put_note(step, std::move(note));
  unreported_scalars_.clear();
  unreported_notes_.clear();
}

void RankAssembler::end_step(int64_t at_ns, int64_t now_ns) {
  end_phase(at_ns);
  steps_.back().end_ns = at_ns;
  steps_.back().ended_seen_ns = now_ns;
}

void RankAssembler::apply_mark(const MarkRecord& mark, RecordType type, int64_t now_ns) {
  int64_t time = static_cast<int64_t>(mark.head.time_ns);
  switch (type) {
    case RecordType::kStepBegin:
      any_marks_ = true;
      inference_.reset();
      begin_step(mark.number, time, now_ns);
      break;
    case RecordType::kStepEnd:
      any_marks_ = true;
      inference_.reset();
      if (!steps_.empty() && steps_.back().end_ns == 0 && steps_.back().step == StepNumber{mark.number})
        end_step(time, now_ns);
      break;
    case RecordType::kPhaseBegin:
      end_phase(time);
      phase_open_ = true;
      phase_ = phase_of(mark.number);
      phase_name_ = as_one_line(name_of(mark));
      phase_since_ns_ = time;
      break;
    case RecordType::kPhaseEnd:
      if (phase_open_ && phase_ == phase_of(mark.number)) end_phase(time);
      break;
    case RecordType::kShutdown:
      shut_down_ = true;
      break;
    default:
      break;
  }
}

void RankAssembler::put_scalar(OpenStep& step, std::string name, double value) {
  auto at = std::lower_bound(step.scalars.begin(), step.scalars.end(), name,
                             [](const StepScalar& scalar, const std::string& other) { return scalar.name < other; });
  if (at != step.scalars.end() && at->name == name) {
    at->value = value;
  } else if (step.scalars.size() < kScalarsPerStepMax) {
    step.scalars.insert(at, {std::move(name), value});
  } else {
    ++malformed_;
  }
}

void RankAssembler::apply_scalar(const MarkRecord& mark) {
  std::string name = name_of(mark);
  if (name.empty() || has_control_characters(name)) {
    ++malformed_;
    return;
  }
  if (any_marks_ && !steps_.empty() && !steps_.back().inferred) {
    scalars_after_end_ |= steps_.back().end_ns != 0;
    put_scalar(steps_.back(), std::move(name), mark.value);
  } else if (any_marks_ && last_step_ >= 0_step) {
    // Its step is closed. That happens once: from now on steps wait for what comes after their end.
    scalars_after_end_ = true;
    ++malformed_;
  } else if (unreported_scalars_.size() < kUnreportedMax) {
    unreported_scalars_.push_back({static_cast<int64_t>(mark.head.time_ns), std::move(name), mark.value});
  } else {
    ++malformed_;
  }
}

void RankAssembler::put_note(OpenStep& step, StepNote note) {
  if (step.notes.size() < kNotesPerStepMax) {
    step.notes.push_back(std::move(note));
  } else {
    ++malformed_;
  }
}

void RankAssembler::apply_group(const std::string& text) {
  const size_t tab = text.find('\t');
  CommGroup group;
  if (tab != std::string::npos) group.name = text.substr(0, tab);
  if (group.name.empty() || group.name.size() > kIdentityTextMax || has_control_characters(group.name)) {
    ++malformed_;
    return;
  }
  Result<std::vector<Rank>> ranks = ranks_from_text(std::string_view(text).substr(tab + 1), kGroupRanksMax);
  if (!ranks.ok() || ranks->empty() || reported_groups_.size() >= kUnreportedMax) {
    ++malformed_;
    return;
  }
  group.ranks = std::move(*ranks);
  reported_groups_.push_back(std::move(group));
}

void RankAssembler::apply_text(const TextRecord& piece) {
  std::optional<ReportedText> whole = texts_.add(piece);
  if (!whole) return;
  if (whole->kind == TextKind::kGroup) return apply_group(whole->text);
  if (whole->kind != TextKind::kNote || whole->text.empty() || whole->text.size() > kNoteBytesMax) {
    ++malformed_;
    return;
  }
  // Lines of a note become one; what would disturb a terminal has no place in it.
  std::replace(whole->text.begin(), whole->text.end(), '\n', ' ');
  std::replace(whole->text.begin(), whole->text.end(), '\t', ' ');
  if (has_control_characters(whole->text)) {
    ++malformed_;
    return;
  }
  StepNote note{whole->time_ns + unix_shift_ns_, std::move(whole->text)};
  if (any_marks_ && !steps_.empty() && !steps_.back().inferred) {
    put_note(steps_.back(), std::move(note));
  } else if (unreported_notes_.size() < kNotesPerStepMax) {
    unreported_notes_.push_back(std::move(note));
  } else {
    ++malformed_;
  }
}

// Scalars told between steps belong to the step before: it must still be there when they are read.
bool RankAssembler::may_come_more(const OpenStep& step, int64_t now_ns) const {
  return scalars_after_end_ && !step.inferred && &step == &steps_.back() &&
         now_ns - step.ended_seen_ns < kScalarsWaitNs;
}

void RankAssembler::keep_figures(const StepSummary& summary) {
  std::optional<double> loss, tokens, flops;
  for (const StepScalar& scalar : summary.scalars) {
    if (scalar.name == "loss") loss = scalar.value;
    if (scalar.name == "tokens") tokens = scalar.value;
    if (scalar.name == "flops") flops = scalar.value;
    if (scalar.name == "peak_flops") peak_flops_ = scalar.value;
  }
  const double seconds = static_cast<double>(summary.duration_ns) / 1e9;
  if (loss) figures_.loss = loss;
  if (tokens && seconds > 0) figures_.tokens_per_s = *tokens / seconds;
  if (flops && seconds > 0 && peak_flops_ > 0) figures_.mfu = *flops / (seconds * peak_flops_);
}

void RankAssembler::infer_from(const Op& op) {
  const InFlightComm* comm = comm_of(op.comm_index);
  if (comm == nullptr) return;
  inference_->add({.comm_id = CommId{comm->comm_id},
                   .comm_size = comm->size,
                   .p2p = op.p2p,
                   .function = op.function,
                   .datatype = op.datatype,
                   .bytes = op.bytes,
                   .peer = op.peer,
                   .ordinal = op.ordinal,
                   .enqueued_ns = op.enqueued_ns});
}

void RankAssembler::take_inferred(int64_t now_ns, uint64_t records_lost) {
  inference_lost_ += records_lost;
  std::vector<InferredStep> inferred = inference_->take();
  for (const InferredStep& one : inferred) {
    OpenStep& step = steps_.emplace_back();
    step.step = one.step;
    step.start_ns = one.start_ns;
    step.end_ns = one.end_ns;
    step.ended_seen_ns = now_ns;
    step.records_lost = inference_lost_;
    step.inferred = true;
    last_step_ = one.step + 1;
    // What was told meanwhile is of the step in which it was told.
    std::erase_if(unreported_scalars_, [&](UnreportedScalar& scalar) {
      if (scalar.time_ns >= one.end_ns) return false;
      put_scalar(step, std::move(scalar.name), scalar.value);
      return true;
    });
    std::erase_if(unreported_notes_, [&](StepNote& note) {
      if (note.time_unix_ns - unix_shift_ns_ >= one.end_ns) return false;
      put_note(step, std::move(note));
      return true;
    });
  }
  // As with told steps, what was lost in this drain may belong to the step that is open now.
  if (!inferred.empty()) inference_lost_ = records_lost;
}

int64_t RankAssembler::needed_since_ns() const {
  const int64_t newest_ns = activity_.back();
  int64_t since_ns = newest_ns - kUnmarkedKeptNs;
  if (const int64_t open_ns = inference_->open_since_ns(); open_ns != 0) since_ns = std::min(since_ns, open_ns);
  if (!steps_.empty()) since_ns = std::min(since_ns, steps_.front().start_ns);
  return std::max(since_ns, newest_ns - kInferredStepNsMax);
}

StepSource RankAssembler::step_source() const {
  if (any_marks_) return StepSource::kReported;
  switch (inference_->state()) {
    case StepInference::State::kNothing:
      return StepSource::kNone;
    case StepInference::State::kFollowing:
      return StepSource::kInferred;
    case StepInference::State::kSearching:
      return StepSource::kSearching;
    case StepInference::State::kCannotTell:
      return StepSource::kCannotTell;
  }
  return StepSource::kNone;
}

}  // namespace lockstep
