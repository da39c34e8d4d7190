#include "diagnosis/phrasing.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "base/text.h"
#include "diagnosis/measure.h"
#include "model/rank_text.h"

namespace lockstep {

std::string name_of(const JobWindow& window, Rank rank) {
  auto found = window.ranks().find(rank);
  if (found == window.ranks().end() || found->second.host.empty()) return format("Rank %d", rank.value());
  // Where nobody speaks of a GPU there may be none.
  if (found->second.gpu_uuid.empty() && window.comms().empty())
    return format("Rank %d (%s)", rank.value(), found->second.host.c_str());
  return format("Rank %d (%s, GPU %d)", rank.value(), found->second.host.c_str(), found->second.local_rank);
}

std::string group_name(const JobWindow& window, CommId comm_id) {
  auto found = window.comms().find(comm_id);
  if (found == window.comms().end()) return "a group";
  std::vector<Rank> ranks;
  for (const auto& [in_comm, world] : found->second.world_rank) ranks.push_back(world);
  if (found->second.size == window.world_size()) return format("all %d ranks", found->second.size);
  return format("group of %d (%s)", found->second.size, human_ranks(ranks, 6).c_str());
}

NextAction after_death() {
  return {"look why the process ended: OOM killer, signal, exception; restart from the last checkpoint",
          "dmesg -T | tail; journalctl -k"};
}

NextAction after_stop() {
  return {"find out who stopped the process; let it go on", "kill -CONT PID"};
}

Claim claim(ClaimKind kind, std::string subject, std::string text, ClaimNumbers numbers, StepNumber from, StepNumber to,
            std::string query) {
  return {.claim = std::move(text),
          .kind = kind,
          .subject = std::move(subject),
          .value = numbers.value,
          .unit = std::move(numbers.unit),
          .baseline = numbers.baseline,
          .peers = numbers.peers,
          .from_step = from,
          .to_step = to,
          .query = std::move(query)};
}

std::string steps_query(StepNumber from, StepNumber to) {
  return format("/api/jobs/{job}/steps?from=%lld&to=%lld", static_cast<long long>(from.value()),
                static_cast<long long>(to.value()));
}

std::string quiet_query(Rank rank, const RankStatus& status) {
  return format("/api/jobs/{job}/evidence?of=quiet_s&ranks=%d&at=%lld", rank.value(),
                static_cast<long long>(status.time_unix_ns));
}

std::string per_step(double ns) {
  return human_duration(ns) + " a step";
}

std::string percent(double share) {
  return format(share < 0.0995 ? "%.1f %%" : "%.0f %%", share * 100);
}

std::string one_step_of(double every) {
  return every < 1.05 ? "every step" : format("one step of %.1f", every);
}

double coverage_of(const JobWindow& window, size_t ranks) {
  return window.world_size() > 0 ? static_cast<double>(ranks) / window.world_size() : 1;
}

std::vector<Rank> victims_of(const JobWindow& window, const std::vector<Rank>& culprits) {
  const std::unordered_set<Rank> guilty(culprits.begin(), culprits.end());
  std::vector<Rank> victims;
  // Whom groups join with a culprit, directly or through others, waits for it. Where no group is known, all do.
  if (window.comms().empty()) {
    for (const auto& [rank, identity] : window.ranks())
      if (!guilty.contains(rank)) victims.push_back(rank);
    return victims;
  }
  const std::unordered_map<Rank, Rank>& parts = window.parts();
  std::unordered_set<Rank> hit;
  for (Rank rank : culprits) {
    if (auto part = parts.find(rank); part != parts.end()) hit.insert(part->second);
  }
  for (const auto& [rank, part] : parts) {
    if (hit.contains(part) && !guilty.contains(rank)) victims.push_back(rank);
  }
  std::sort(victims.begin(), victims.end());
  return victims;
}

namespace {

// What the ranks of a step spend in each communicator, together.
struct TimeInGroups {
  struct Sum {
    double ns = 0;  // what a peer sends may be absurd: no integer overflows here
    int64_t count = 0;
  };
  std::unordered_map<CommId, Sum> by_comm;
};

TimeInGroups time_in_groups(const StepFrame& frame) {
  TimeInGroups all;
  for (size_t slot = 0; slot < frame.rows.size(); ++slot) {
    if (!frame.knows(slot)) continue;
    for (const CommStep& comm : frame.rows[slot].summary.comms) {
      TimeInGroups::Sum& sum = all.by_comm[comm.comm_id];
      sum.ns += static_cast<double>(comm.gpu_ns);
      ++sum.count;
    }
  }
  return all;
}

// What each rank of a step sends over the network.
struct SentBySlot {
  struct Sum {
    double bytes = 0;
    double wire_ns = 0;
  };
  std::vector<Sum> of_slot;
};

SentBySlot sent_by_slot(const StepFrame& frame) {
  SentBySlot sent;
  sent.of_slot.resize(frame.rows.size());
  for (size_t slot = 0; slot < frame.rows.size(); ++slot) {
    if (!frame.knows(slot)) continue;
    for (const FlowStep& flow : frame.rows[slot].summary.flows) {
      if (!flow.send) continue;
      sent.of_slot[slot].bytes += static_cast<double>(flow.bytes);
      sent.of_slot[slot].wire_ns += static_cast<double>(flow.wire_ns);
    }
  }
  return sent;
}

}  // namespace

void add_wait_claims(const JobWindow& window, Rank culprit, const std::vector<StepNumber>& steps, Finding& finding) {
  if (steps.empty()) return;
  // Per communicator of the culprit: what its members spend in it against what the culprit does.
  std::map<CommId, std::pair<double, TimeInGroups::Sum>> time_in;  // its own, the others'
  double own_steps = 0;
  for (StepNumber number : steps) {
    const StepFrame* frame = window.frame(number);
    if (frame == nullptr || !frame->known.contains(culprit)) continue;
    own_steps += 1;
    const TimeInGroups& all = frame->derived<TimeInGroups>([&] { return time_in_groups(*frame); });
    std::set<CommId> mine;
    for (const CommStep& comm : frame->known.at(culprit).summary.comms) {
      auto& [own, others] = time_in[comm.comm_id];
      own += static_cast<double>(comm.gpu_ns);
      others.ns -= static_cast<double>(comm.gpu_ns);
      others.count -= 1;
      if (!mine.insert(comm.comm_id).second) continue;
      others.ns += all.by_comm.at(comm.comm_id).ns;
      others.count += all.by_comm.at(comm.comm_id).count;
    }
  }
  struct Wait {
    CommId comm_id;
    double own;
    double others;
  };
  std::vector<Wait> waits;
  for (const auto& [id, times] : time_in) {
    auto members = window.comms().find(id);
    if (times.second.count == 0 || members == window.comms().end() || members->second.size < 2) continue;
    double own = times.first / own_steps;
    double others = times.second.ns / static_cast<double>(times.second.count);
    if (others > own) waits.push_back({id, own, others});
  }
  std::sort(waits.begin(), waits.end(),
            [](const Wait& a, const Wait& b) { return a.others - a.own > b.others - b.own; });
  for (size_t i = 0; i < waits.size() && i < 3; ++i) {
    const Wait& wait = waits[i];
    std::string group = group_name(window, wait.comm_id);
    finding.chain.push_back(claim(
        ClaimKind::kWaitsFor, format("rank %d", culprit.value()),
        format("In the collectives of %s the others spend %s, rank %d only %s: it arrives last and they wait for it.",
               group.c_str(), per_step(wait.others).c_str(), culprit.value(), human_duration(wait.own).c_str()),
        {.value = (wait.others - wait.own) / 1e6, .unit = "ms", .peers = wait.others / 1e6}, steps.front(),
        steps.back(), Measure{.of = "waited_ms", .ranks = {culprit}, .steps = steps, .comm_id = wait.comm_id}.query()));
    finding.victim_groups.push_back(group);
  }
  if (waits.empty()) {
    finding.chain.push_back(
        claim(ClaimKind::kWaitsFor, format("rank %d", culprit.value()),
              window.comms().empty() ? format("All %d ranks keep one pace, though no communicator is reported: what "
                                              "rank %d takes longer, the others wait.",
                                              window.world_size(), culprit.value())
                                     : format("%zu ranks share collectives with rank %d, directly or through others.",
                                              finding.victims.size(), culprit.value()),
              {.value = static_cast<double>(finding.victims.size()), .unit = "ranks"}, steps.front(), steps.back(),
              Measure{.of = "sharing_ranks", .ranks = finding.ranks, .steps = {steps.back()}}.query()));
  }
}

void add_network_exclusion(const JobWindow& window, Rank culprit, const std::vector<StepNumber>& steps,
                           Finding& finding) {
  double own_bytes = 0, own_wire = 0;
  std::vector<double> rates;
  std::vector<std::pair<double, double>> of_slot(window.slots());
  for (StepNumber number : steps) {
    const StepFrame* frame = window.frame(number);
    if (frame == nullptr) continue;
    const std::vector<SentBySlot::Sum>& sent = frame->derived<SentBySlot>([&] { return sent_by_slot(*frame); }).of_slot;
    for (size_t slot = 0; slot < sent.size(); ++slot) {
      of_slot[slot].first += sent[slot].bytes;
      of_slot[slot].second += sent[slot].wire_ns;
    }
  }
  for (size_t slot = 0; slot < of_slot.size(); ++slot) {
    const auto& [bytes, wire] = of_slot[slot];
    if (wire <= 0) continue;
    if (window.rank_of(slot) == culprit) {
      own_bytes = bytes;
      own_wire = wire;
    } else {
      rates.push_back(bytes / wire);
    }
  }
  if (own_wire <= 0 || rates.empty()) return;
  double own = own_bytes / own_wire;  // bytes per ns = GB/s
  double peers = median(rates);
  if (own < peers * 0.5) return;  // would contradict: then it is not an exclusion
  finding.chain.push_back(
      claim(ClaimKind::kExclusion, format("network of rank %d", culprit.value()),
            format("Not the network: its links carry %.1f GB/s while sending, its peers' %.1f.", own, peers),
            {.value = own, .unit = "GB/s", .peers = peers}, steps.front(), steps.back(),
            Measure{.of = "sent_gb_s", .ranks = {culprit}, .steps = steps}.query()));
}

NextAction look_at_path(Rank from, Rank to) {
  return {"see the way between them: every hop, its load and errors, beside like pairs",
          format("lockstep path %d %d --job {job}", from.value(), to.value())};
}

}  // namespace lockstep
