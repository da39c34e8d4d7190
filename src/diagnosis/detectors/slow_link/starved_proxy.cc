#include "diagnosis/detectors/slow_link/starved_proxy.h"

#include <algorithm>

#include "base/median.h"
#include "base/text.h"
#include "diagnosis/measure.h"
#include "diagnosis/phrasing.h"

namespace lockstep {

bool Handling::starved(double slow_flow_ns) const {
  return peers_ns > 0 && own_ns >= kSlowTimes * peers_ns && step_ns >= 0.5 * slow_flow_ns;
}

Handlings::Handlings(const JobWindow& window, const std::vector<StepNumber>& steps)
    : window_(window), of_slot_(window.slots()) {
  for (StepNumber number : steps) {
    const StepFrame* frame = window.frame(number);
    if (frame == nullptr) continue;
    for (size_t slot = 0; slot < frame->rows.size(); ++slot) {
      if (!frame->knows(slot)) continue;
      bool reported = false;
      for (const FlowStep& flow : frame->rows[slot].summary.flows) {
        if (flow.send || flow.transfers <= 0) continue;
        of_slot_[slot].ns += static_cast<double>(flow.wire_ns);
        of_slot_[slot].transfers += static_cast<double>(flow.transfers);
        reported = true;
      }
      of_slot_[slot].steps += reported ? 1 : 0;
    }
  }
}

Handling Handlings::of(Rank rank) const {
  const int32_t own = window_.slot_of(rank);
  Handling handling;
  std::vector<double> peers;
  for (size_t slot = 0; slot < of_slot_.size(); ++slot) {
    const Sum& sum = of_slot_[slot];
    if (sum.transfers <= 0) continue;
    if (static_cast<int32_t>(slot) == own) {
      handling.own_ns = sum.ns / sum.transfers;
      handling.step_ns = sum.ns / std::max(1.0, sum.steps);
    } else {
      peers.push_back(sum.ns / sum.transfers);
    }
  }
  if (peers.size() >= 2) handling.peers_ns = median(std::move(peers));
  return handling;
}

void blame_starved_proxy(const JobWindow& window, const std::vector<StepNumber>& steps, Rank rank,
                         const Handling& handling, Finding& finding) {
  finding.layer = emits<Emitter::kSlowLink, Layer::kHost>;
  finding.cause = emits<Emitter::kSlowLink, Cause::kCpuContention>;
  finding.component = format("NCCL's proxy thread of rank %d", rank.value());
  finding.chain.push_back(claim(
      ClaimKind::kSelfTime, format("rank %d", rank.value()),
      format("What has arrived for it waits %s a transfer until its proxy hands it on, its peers' %s: the thread does "
             "not get the CPU, so all its transfers crawl.",
             human_duration(handling.own_ns).c_str(), human_duration(handling.peers_ns).c_str()),
      {.value = handling.own_ns / 1e6, .unit = "ms", .peers = handling.peers_ns / 1e6}, steps.front(), steps.back(),
      Measure{.of = "handling_ms", .ranks = {rank}, .steps = steps}.query()));
  finding.alternatives = {{format("link of rank %d", rank.value()), 0.2,
                           "a slow link would leave what has arrived alone; here that is slow too",
                           "NIC and switch port counters of both ends"}};
  finding.next = {{"look at the CPUs of this rank: other processes on its cores, its cgroup's quota, its affinity",
                   "ps -eLo psr,pcpu,comm --sort=-pcpu | head; cat /proc/PID/status | grep Cpus_allowed_list"}};
  finding.sentence = format(
      "%s {gets|got} no CPU for its transfers: all %d ranks {wait|waited} %s {when}: %s of the job.",
      name_of(window, rank).c_str(), window.world_size(),
      per_step(static_cast<double>(finding.lost_ns_per_step)).c_str(),
      percent(static_cast<double>(finding.lost_ns_per_step) / std::max(1.0, static_cast<double>(finding.step_ns)))
          .c_str());
}

}  // namespace lockstep
