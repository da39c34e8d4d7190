#include "diagnosis/window.h"

#include <algorithm>
#include <numeric>

#include "base/median.h"
#include "diagnosis/roles.h"
#include "diagnosis/sequential/chance.h"

namespace lockstep {

int64_t RankStep::own_ns() const {
  int64_t set_aside =
      summary.phase_ns[static_cast<size_t>(Phase::kCheckpoint)] + summary.phase_ns[static_cast<size_t>(Phase::kEval)];
  return std::max<int64_t>(0, summary.self_ns - set_aside);
}

RankRows::Entry RankRows::Iterator::operator*() const {
  const size_t slot = rows_->window_.order()[at_];
  return {rows_->window_.rank_of(slot), rows_->frame_.rows[slot]};
}

RankRows::Iterator& RankRows::Iterator::operator++() {
  const std::vector<uint32_t>& order = rows_->window_.order();
  ++at_;
  while (at_ < order.size() && !rows_->here(order[at_])) ++at_;
  return *this;
}

bool RankRows::here(size_t slot) const {
  return slot < frame_.state.size() && frame_.state[slot] == (known_ ? 1 : 2);
}

RankRows::Iterator RankRows::begin() const {
  const std::vector<uint32_t>& order = window_.order();
  size_t at = 0;
  while (at < order.size() && !here(order[at])) ++at;
  return {this, at};
}

RankRows::Iterator RankRows::end() const {
  return {this, window_.order().size()};
}

RankRows::Iterator RankRows::find(Rank rank) const {
  const int32_t slot = window_.slot_of(rank);
  if (slot < 0 || !here(static_cast<size_t>(slot))) return end();
  window_.order();  // up to date, and with it the places
  return {this, window_.place_of_slot_[static_cast<size_t>(slot)]};
}

bool RankRows::contains(Rank rank) const {
  const int32_t slot = window_.slot_of(rank);
  return slot >= 0 && here(static_cast<size_t>(slot));
}

const RankStep& RankRows::at(Rank rank) const {
  return frame_.rows[static_cast<size_t>(window_.slot_of(rank))];
}

StepNumber RankRows::step() const {
  return frame_.number;
}

int32_t JobWindow::slot_of(Rank rank) const {
  const Slot* slot = rank < 0_rank ? nullptr : slot_of_rank_.find(index_of(rank));
  return slot == nullptr ? -1 : slot->number;
}

const std::vector<uint32_t>& JobWindow::order() const {
  if (order_.size() != rank_of_slot_.size()) {
    order_.resize(rank_of_slot_.size());
    std::iota(order_.begin(), order_.end(), 0u);
    std::sort(order_.begin(), order_.end(),
              [&](uint32_t a, uint32_t b) { return rank_of_slot_[a] < rank_of_slot_[b]; });
    place_of_slot_.resize(order_.size());
    for (size_t place = 0; place < order_.size(); ++place) place_of_slot_[order_[place]] = static_cast<uint32_t>(place);
  }
  return order_;
}

int32_t JobWindow::add_slot(Rank rank) {
  if (rank < 0_rank || rank >= Rank{kRanksMax}) return -1;
  Slot& slot = slot_of_rank_.at(index_of(rank));
  if (slot.number < 0) {
    slot.number = static_cast<int32_t>(rank_of_slot_.size());
    rank_of_slot_.push_back(rank);
    newest_of_slot_.push_back(kNoStep);
    heard_at_of_slot_.push_back(first_heard_at_);
    comms_sum_of_slot_.push_back(0);
  }
  return slot.number;
}

void JobWindow::add_rank(const Identity& identity) {
  auto [at, is_new] = ranks_.try_emplace(identity.rank, identity);
  if (!is_new && at->second == identity) return;
  if (!is_new) world_size_.remove(std::exchange(at->second, identity).world_size);
  world_size_.add(identity.world_size);
  complete_known_ = false;
}

void JobWindow::add_comm(const Identity& identity, const CommInit& comm) {
  add_rank(identity);
  CommMembers& members = comms_[comm.comm_id];
  members.size = comm.size;
  members.nodes = comm.nodes;
  if (!comm.name.empty()) members.name = comm.name;
  join(members, comm.rank_in_comm, identity.rank);
}

void JobWindow::join(CommMembers& members, int32_t rank_in_comm, Rank rank) {
  auto [at, fresh] = members.world_rank.try_emplace(rank_in_comm, rank);
  if (!fresh && at->second == rank) return;
  at->second = rank;
  parts_known_ = false;
}

const std::unordered_map<Rank, Rank>& JobWindow::parts() const {
  if (parts_known_) return parts_;
  parts_known_ = true;
  parts_.clear();
  // Each rank knows one nearer to the first of its part; ways are made shorter as they are gone.
  auto first_of = [&](Rank rank) {
    Rank first = rank;
    while (parts_[first] != first) first = parts_[first];
    while (parts_[rank] != first) rank = std::exchange(parts_[rank], first);
    return first;
  };
  for (const auto& [id, members] : comms_) {
    Rank first = kNoRank;
    for (const auto& [in_comm, rank] : members.world_rank) {
      parts_.try_emplace(rank, rank);
      const Rank other = first_of(rank);
      if (first == kNoRank) {
        first = other;
      } else {
        parts_[other] = first;
      }
    }
  }
  for (auto& [rank, part] : parts_) part = first_of(rank);
  return parts_;
}

void JobWindow::note_typical() {
  // Often enough to follow a job that moves, rarely enough to cost nothing with many ranks.
  if (typical_newest_ >= 0_step && ++rows_since_typical_ * 2 < reporting_) return;
  rows_since_typical_ = 0;
  std::vector<StepNumber> newest;
  for (StepNumber step : newest_of_slot_) {
    if (step >= 0_step) newest.push_back(step);
  }
  if (newest.empty()) {
    typical_newest_ = kNoStep;
    return;
  }
  typical_newest_ = upper_median_in_place(newest);
}

bool JobWindow::is_silent_since(StepNumber heard_at) const {
  // A job that stands still as a whole makes nobody silent.
  const auto next = steps_.upper_bound(heard_at);
  return next != steps_.end() && newest_step() - heard_at >= kSilentSteps &&
         newest_heard_unix_ns_ - next->second.first_heard_unix_ns >= kSilentNs;
}

bool JobWindow::is_silent(Rank rank) const {
  const int32_t slot = slot_of(rank);
  return is_silent_since(slot < 0 ? first_heard_at_ : heard_at_of_slot_[static_cast<size_t>(slot)]);
}

size_t JobWindow::steps_max() const {
  return std::clamp(kRowsMax / std::max<size_t>(1, slots()), kStepsMin, kStepsMax);
}

void JobWindow::add_step(const Identity& identity, StepSummary summary, int64_t heard_unix_ns) {
  const StepNumber number = summary.step;
  add_rank(identity);
  complete_known_ = false;
  const int32_t added = add_slot(identity.rank);
  if (added < 0) return;
  const auto slot = static_cast<size_t>(added);
  uint64_t comms_sum = 0;
  for (const CommStep& comm : summary.comms)
    comms_sum = comms_sum * 31 + comm.comm_id.value() + static_cast<uint64_t>(comm.rank_in_comm);
  if (comms_sum != comms_sum_of_slot_[slot]) {
    comms_sum_of_slot_[slot] = comms_sum;
    for (const CommStep& comm : summary.comms) {
      if (comm.size <= 0) continue;
      CommMembers& members = comms_[comm.comm_id];
      members.size = comm.size;
      join(members, comm.rank_in_comm, identity.rank);
    }
  }
  // Far from where the ranks are: hopelessly late, or a number that cannot be. One rank's wild number must not blind
  // us.
  const StepNumber now = typical_newest_;
  if (now >= 0_step && (number + kFarSteps < now || number > now + kFarSteps)) {
    // Unless this rank says so for the first time again and again: then the job has jumped (a resume), and all follow.
    if (++far_rows_ < kFarRowsMax) return;
    steps_.clear();
    own_time_through_ = kNoStep;
    std::fill(newest_of_slot_.begin(), newest_of_slot_.end(), kNoStep);
    reporting_ = 0;
    typical_newest_ = kNoStep;
    first_step_ = number;
  }
  far_rows_ = 0;
  if (first_step_ < 0_step || number < first_step_) first_step_ = number;
  StepFrame& frame = steps_.try_emplace(number, *this, number).first->second;
  if (frame.rows.size() <= slot) {
    frame.rows.resize(std::max(slots(), slot + 1));
    frame.state.resize(frame.rows.size(), 0);
  }
  const uint8_t before = frame.state[slot];
  if (before != 0) --(before == 1 ? frame.known : frame.unknown).count_;
  const bool known = summary.gpu_time_known();
  if (!frame.rows[slot].summary.flows.empty()) --frame.rows_with_flows;
  if (!summary.flows.empty()) ++frame.rows_with_flows;
  if (heard_unix_ns == 0) heard_unix_ns = summary.start_unix_ns + summary.duration_ns;
  frame.rows[slot].summary = std::move(summary);
  frame.state[slot] = known ? 1 : 2;
  ++(known ? frame.known : frame.unknown).count_;
  frame.forget_derived();
  ++rows_added_;
  StepNumber& newest = newest_of_slot_[slot];
  if (newest < 0_step) ++reporting_;
  newest = before != 0 ? std::max(newest, number) : number;  // what comes twice does not set it back
  const bool is_first = typical_newest_ < 0_step;
  note_typical();
  newest_heard_unix_ns_ = is_first ? heard_unix_ns : std::max(newest_heard_unix_ns_, heard_unix_ns);
  if (frame.first_heard_unix_ns == 0) frame.first_heard_unix_ns = newest_heard_unix_ns_;
  heard_at_of_slot_[slot] = newest_step();
  if (is_first) {
    first_heard_at_ = number;
    std::fill(heard_at_of_slot_.begin(), heard_at_of_slot_.end(), number);
  }
  // The oldest, unless somebody is that far ahead of all others: numbers that cannot be would crowd out the true ones.
  while (steps_.size() > steps_max()) {
    const bool is_ahead = steps_.rbegin()->first - typical_newest_ > typical_newest_ - steps_.begin()->first;
    steps_.erase(is_ahead ? std::prev(steps_.end()) : steps_.begin());
  }
}

StepNumber JobWindow::newest_step() const {
  // Ranks of one job are a few steps apart: further ahead than the window is long is a number that cannot be.
  auto after = steps_.upper_bound(typical_newest_ + static_cast<int64_t>(kStepsMax));
  return after == steps_.begin() ? kNoStep : std::prev(after)->first;
}

const StepFrame* JobWindow::frame(StepNumber number) const {
  auto found = steps_.find(number);
  return found == steps_.end() ? nullptr : &found->second;
}

bool JobWindow::has_step(Rank rank, StepNumber number) const {
  const StepFrame* found = frame(number);
  const int32_t slot = slot_of(rank);
  return found != nullptr && slot >= 0 && static_cast<size_t>(slot) < found->state.size() &&
         found->state[static_cast<size_t>(slot)] != 0;
}

const RankRows* JobWindow::step(StepNumber number) const {
  const StepFrame* found = frame(number);
  return found == nullptr ? nullptr : &found->known;
}

const RankRows* JobWindow::unknown(StepNumber number) const {
  const StepFrame* found = frame(number);
  return found == nullptr ? nullptr : &found->unknown;
}

int64_t JobWindow::unknown_steps(StepNumber after) const {
  return std::count_if(steps_.upper_bound(after), steps_.end(),
                       [](const auto& step) { return step.second.known.empty(); });
}

int64_t JobWindow::unknown_steps(StepNumber after, const std::vector<Rank>& ranks) const {
  return std::count_if(steps_.upper_bound(after), steps_.end(), [&](const auto& step) {
    return std::any_of(ranks.begin(), ranks.end(), [&](Rank rank) { return step.second.unknown.contains(rank); });
  });
}

const std::vector<StepNumber>& JobWindow::complete_steps() const {
  if (!complete_known_) find_complete_steps();
  return complete_;
}

const std::vector<StepNumber>& JobWindow::compared_steps() const {
  if (!complete_known_) find_complete_steps();
  return compared_;
}

size_t JobWindow::compared_rows() const {
  if (!complete_known_) find_complete_steps();
  return compared_rows_;
}

void JobWindow::find_complete_steps() const {
  const auto behind_max = static_cast<int64_t>(steps_max() / 2);
  const auto is_waited_for = [&](StepNumber newest, StepNumber heard_at) {
    return typical_newest_ - newest < behind_max && !is_silent_since(heard_at);
  };
  StepNumber sent_by_all = newest_step();
  const bool some_sent_none = static_cast<int32_t>(reporting_) < world_size();
  if (some_sent_none && is_waited_for(first_heard_at_, first_heard_at_)) sent_by_all = kNoStep;
  for (size_t slot = 0; slot < slots(); ++slot) {
    const StepNumber newest = newest_of_slot_[slot];
    if (newest >= 0_step && newest < sent_by_all && is_waited_for(newest, heard_at_of_slot_[slot]))
      sent_by_all = newest;
  }
  complete_.clear();
  compared_.clear();
  compared_rows_ = 0;
  for (const auto& [number, frame] : steps_) {
    if (number > sent_by_all || frame.known.empty()) continue;
    compared_.push_back(number);
    compared_rows_ += frame.known.size() + frame.unknown.size();
    if (!is_warm_up(number)) complete_.push_back(number);
  }
  complete_known_ = true;
}

namespace {
double mean(const std::vector<double>& values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}
}  // namespace

void JobWindow::remember(int64_t attempt) {
  for (StepNumber number : complete_steps()) {
    if (number <= remembered_) continue;
    remembered_ = number;
    const StepFrame& frame = steps_.at(number);
    const StepLateness& late = lateness(*this, frame);
    std::vector<double> own, input, comm, checkpoint, flops, tokens;
    StepFacts facts{.attempt = attempt, .number = number, .duration_ns = late.duration_ns};
    for (size_t slot = 0; slot < frame.rows.size(); ++slot) {
      if (!frame.knows(slot)) continue;
      const StepSummary& row = frame.rows[slot].summary;
      own.push_back(static_cast<double>(late.own_ns[slot]));
      input.push_back(static_cast<double>(row.phase_ns[static_cast<size_t>(Phase::kInput)]));
      comm.push_back(static_cast<double>(row.comm_ns));
      facts.most_own_ns = std::max(facts.most_own_ns, own.back());
      checkpoint.push_back(static_cast<double>(row.phase_ns[static_cast<size_t>(Phase::kCheckpoint)]));
      if (checkpoint.back() > facts.checkpoint_ns) {
        facts.checkpoint_ns = checkpoint.back();
        facts.checkpoint_rank = rank_of(slot);
      }
      for (const StepScalar& scalar : row.scalars) {
        if (scalar.name == "flops" && scalar.value > 0) flops.push_back(scalar.value);
        if (scalar.name == "tokens" && scalar.value > 0) tokens.push_back(scalar.value);
      }
    }
    facts.flops = mean(flops);
    facts.tokens = mean(tokens);
    facts.most_own_ns -= median(own);
    facts.own_ns = quantile(std::move(own), 0.25);
    facts.input_ns = quantile(std::move(input), 0.25);
    facts.comm_ns = median(std::move(comm));
    if (facts.checkpoint_ns > 0) facts.checkpoint_median_ns = median(std::move(checkpoint));
    facts_.push_back(facts);
    if (facts_.size() > kFactsMax) facts_.pop_front();
  }
}

double JobWindow::step_ns_before(StepNumber number) const {
  constexpr size_t kFew = 3, kMany = 16;
  std::vector<double> durations;
  for (auto fact = facts_.rbegin(); fact != facts_.rend() && durations.size() < kMany; ++fact) {
    if (is_warm_up(fact->number)) break;  // or of an attempt before
    if (fact->number < number) durations.push_back(fact->duration_ns);
  }
  return durations.size() < kFew ? 0 : median(std::move(durations));
}

double JobWindow::nats_for(double alarms_per_hour, size_t streams) const {
  const double step_s = own_time_steps_ns_.empty() ? 1 : median(own_time_steps_ns_) / 1e9;
  return threshold_nats(alarms_per_hour, static_cast<double>(streams), 3600 / std::max(1e-3, step_s));
}

const ShiftMonitor& JobWindow::own_time() const {
  constexpr size_t kDurations = 16;
  std::vector<float> shares;
  for (StepNumber number : compared_steps()) {
    if (number <= own_time_through_) continue;
    // What a step takes is not known before those of the warm-up are over.
    if (!is_warm_up(number) && own_time_through_ != kNoStep && is_warm_up(own_time_through_))
      own_time_steps_ns_.clear();
    own_time_through_ = number;
    const StepLateness& late = lateness(*this, steps_.at(number));
    if (late.duration_ns <= 0) continue;
    if (own_time_steps_ns_.size() < kDurations) {
      own_time_steps_ns_.push_back(late.duration_ns);
    } else {
      own_time_steps_ns_[static_cast<size_t>(number.value()) % kDurations] = late.duration_ns;
    }
    // A step that somebody made long must not make him look quicker.
    const double step_ns = median(own_time_steps_ns_);
    shares.resize(late.late_ns.size());
    for (size_t slot = 0; slot < shares.size(); ++slot)
      shares[slot] = static_cast<float>(static_cast<double>(late.late_ns[slot]) / step_ns);
    own_time_.hold_at(sure_nats());
    own_time_.set_head_start(steps_of_the_start(step_ns));
    if (is_warm_up(number)) {
      own_time_.add_warm_up(shares);
    } else {
      own_time_.add_step(number, shares);
    }
  }
  return own_time_;
}

std::string JobWindow::host_of(Rank rank) const {
  auto found = ranks_.find(rank);
  return found == ranks_.end() ? std::string() : found->second.host;
}

Rank JobWindow::world_rank(CommId comm_id, int32_t rank_in_comm) const {
  auto comm = comms_.find(comm_id);
  if (comm == comms_.end()) return kNoRank;
  auto member = comm->second.world_rank.find(rank_in_comm);
  return member == comm->second.world_rank.end() ? kNoRank : member->second;
}

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  size_t at = static_cast<size_t>(q * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

}  // namespace lockstep
