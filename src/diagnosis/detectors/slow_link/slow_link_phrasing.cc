#include "diagnosis/detectors/slow_link/slow_link_phrasing.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/text.h"
#include "diagnosis/evidence.h"
#include "diagnosis/measure.h"
#include "diagnosis/phrasing.h"
#include "diagnosis/sequential/chance.h"
#include "model/rank_text.h"

namespace lockstep::slow_link {
namespace {

// A finding with what it costs, of these ranks.
Finding slow_link(const JobWindow& window, const ComparedSteps& compared, std::vector<Rank> ranks, StepNumber since,
                  double saved) {
  Finding finding;
  finding.kind = emits<Emitter::kSlowLink, VerdictKind::kSlow>;
  finding.layer = emits<Emitter::kSlowLink, Layer::kLink>;
  finding.cause = emits<Emitter::kSlowLink, Cause::kNicDegraded>;
  finding.ranks = std::move(ranks);
  finding.since_step = since;
  finding.through_step = compared.steps.back();
  finding.step_ns = static_cast<int64_t>(compared.step_ns);
  finding.step_without_ns = static_cast<int64_t>(compared.step_ns - saved);
  finding.lost_ns_per_step = static_cast<int64_t>(saved);
  finding.victims = victims_of(window, finding.ranks);
  finding.coverage = coverage_of(window, compared.ranks_seen);
  return finding;
}

// Claims over the steps that were compared.
class Claims {
 public:
  Claims(const JobWindow& window, const ComparedSteps& compared, Rank rank)
      : compared_(compared), rank_(rank), subject_(format("rank %d", rank.value())) {
    std::vector<double> own, peers;
    for (StepNumber number : compared.steps) {
      for (const auto& [other, row] : *window.step(number))
        (other == rank ? own : peers).push_back(static_cast<double>(row.own_ns()));
    }
    own_ns_ = median(std::move(own));
    peers_ns_ = median(std::move(peers));
  }

  const std::string& subject() const { return subject_; }
  Claim of(ClaimKind kind, const std::string& about, std::string text, ClaimNumbers numbers, std::string query) const {
    return claim(kind, about, std::move(text), std::move(numbers), compared_.steps.front(), compared_.steps.back(),
                 std::move(query));
  }
  Claim own_work() const {
    return own_time(ClaimKind::kSelfTime, format("Its own work takes %s, its peers' %s.", per_step(own_ns_).c_str(),
                                                 human_duration(peers_ns_).c_str()));
  }
  Claim not_own_work(bool with_numbers) const {
    const std::string numbers =
        with_numbers ? format(" (%s, they %s)", human_duration(own_ns_).c_str(), human_duration(peers_ns_).c_str())
                     : "";
    return own_time(ClaimKind::kExclusion,
                    "Not its GPU and not its input: its own time is like its peers'" + numbers + ".");
  }
  Claim without(const std::string& about, const char* at_whose_pace, double saved) const {
    const double step_ns = compared_.step_ns, without_ns = step_ns - saved;
    return of(ClaimKind::kCounterfactual, about,
              format("At %s a step would take %s instead of %s.", at_whose_pace, human_duration(without_ns).c_str(),
                     human_duration(step_ns).c_str()),
              {.value = without_ns / 1e6, .unit = "ms", .baseline = step_ns / 1e6},
              Measure{.of = "step_ms", .steps = compared_.steps}.query());
  }

 private:
  Claim own_time(ClaimKind kind, std::string text) const {
    return of(kind, subject_, std::move(text), {.value = own_ns_ / 1e6, .unit = "ms", .peers = peers_ns_ / 1e6},
              Measure{.of = "own_median_ms", .ranks = {rank_}, .steps = compared_.steps}.query());
  }

  const ComparedSteps& compared_;
  const Rank rank_;
  const std::string subject_;
  double own_ns_ = 0, peers_ns_ = 0;
};

NextAction look_at_nics(const char* whose) {
  return {format("check the %s: speed, errors, rate limits", whose),
          "ethtool DEV; ethtool -S DEV; tc -s qdisc show dev DEV"};
}

// At the other ends of these flows.
std::vector<Rank> others_of(const BlamedEnd& end) {
  std::vector<Rank> others;
  for (const SlowFlow& entry : end.flows) {
    const Rank other = end.receiving ? entry.flow.from : entry.flow.to;
    if (other != kNoRank) others.push_back(other);
  }
  return others;
}

void set_certainty(const JobWindow& window, const SlowEnd& slow, Finding& finding) {
  // What is far out of all noise for a step or two may be anything, and be over. Connections are set up in the first.
  const bool settled = window.complete_steps().size() >= kFlowStepsMin;
  finding.sure = slow.nats >= window.sure_nats() && slow.steps_seen >= kPlainSteps && settled;
  finding.sure_with_signals = slow.nats >= window.sure_nats() - witness_nats() && settled;
  finding.only_with_signals = slow.nats < window.suspect_nats();
  finding.confidence = std::min(0.95, 0.5 + 0.05 * static_cast<double>(slow.steps_seen));
}

void add_flow_claims(const JobWindow& window, const ComparedSteps& compared, const SlowEnd& slow, Finding& finding) {
  const Claims claims(window, compared, slow.end.rank);
  const Flow& worst = slow.worst.flow;
  const auto flow_query = [&](const char* of) {
    return Measure{
        .of = of, .ranks = {worst.from}, .steps = compared.steps, .comm_id = worst.comm_id, .peer = worst.peer}
        .query();
  };
  finding.chain.push_back(claims.of(
      ClaimKind::kWaitsFor, claims.subject(),
      format("Nobody arrives late; all ranks spend equally long in the collectives of %s, waiting for its transfers.",
             finding.victim_groups.front().c_str()),
      {.value = worst.typical_wire / 1e6, .unit = "ms"}, flow_query("wire_median_ms")));
  finding.chain.push_back(claims.of(
      ClaimKind::kPath, finding.component,
      format("Its transfers move at %.2f GB/s, comparable ones at %.2f, and are on the wire for %s.",
             worst.typical_rate, slow.worst.peers_rate, per_step(worst.typical_wire).c_str()),
      {.value = worst.typical_rate, .unit = "GB/s", .peers = slow.worst.peers_rate}, flow_query("flow_gb_s")));
  finding.chain.push_back(claims.own_work());
  finding.chain.push_back(claims.not_own_work(true));
  finding.chain.push_back(claims.without(finding.component, "its peers' rate", slow.saved_ns));
}

void add_group_claims(const JobWindow& window, const ComparedSteps& compared, const SlowGroup& slow,
                      const std::string& name, Finding& finding) {
  const Rank first = finding.ranks.front();
  const Claims claims(window, compared, first);
  const Group& group = slow.group;
  const std::string transfer_query =
      Measure{.of = "transfer_ms", .steps = compared.steps, .comm_id = group.comm_id}.query();
  const ClaimNumbers times{.value = group.typical / 1e6, .unit = "ms", .peers = slow.usual_ns / 1e6};
  finding.chain.push_back(
      claims.of(ClaimKind::kWaitsFor, name,
                format("Nobody arrives late; even the last to arrive in the collectives of %s spends %s there.",
                       name.c_str(), per_step(group.typical).c_str()),
                times, transfer_query));
  finding.chain.push_back(
      claims.of(ClaimKind::kPath, finding.component,
                format("The same transfer takes the other groups %s, this one %s.",
                       human_duration(slow.usual_ns).c_str(), human_duration(group.typical).c_str()),
                times, transfer_query));
  if (slow.stands_apart) {
    finding.chain.push_back(
        claims.of(ClaimKind::kPath, finding.component,
                  format("Its other groups are slow as well (%.1f times their like), its partner's are not (%.1f).",
                         slow.suspects[0].first, slow.suspects[1].first),
                  {}, format("/api/jobs/{job}/ranks/%d", first.value())));
  }
  finding.chain.push_back(claims.own_work());
  finding.chain.push_back(claims.not_own_work(false));
  finding.chain.push_back(claims.without(finding.component, "the other groups' pace", slow.saved_ns()));
}

void add_last_data_claims(const JobWindow& window, const ComparedSteps& compared, const LastData& last,
                          Finding& finding) {
  const Claims claims(window, compared, last.rank);
  finding.chain.push_back(claims.of(
      ClaimKind::kWaitsFor, claims.subject(),
      format("In %zu of %zu steps its data was the last to come at most ranks of %s that receive it: what others sent "
             "waited there for longer.",
             last.hits, last.events, finding.victim_groups.front().c_str()),
      {}, format("/api/jobs/{job}/ranks/%d", last.rank.value())));
  finding.chain.push_back(claims.own_work());
  finding.chain.push_back(claims.not_own_work(true));
  finding.chain.push_back(claims.without(finding.component, "the pace of before", last.saved_ns));
}

}  // namespace

Finding finding_of(const JobWindow& window, const ComparedSteps& compared, const SlowEnd& slow,
                   const Handlings& handlings) {
  const BlamedEnd& end = slow.end;
  const std::vector<Rank> others = others_of(end);
  const bool pair = end.partner != kNoRank;
  std::vector<Rank> ranks{end.rank};
  if (pair) ranks = {std::min(end.rank, end.partner), std::max(end.rank, end.partner)};
  Finding finding = slow_link(window, compared, std::move(ranks), slow.since, slow.saved_ns);
  if (pair) {
    finding.subject = finding.component = format("link between ranks %s", human_ranks(finding.ranks).c_str());
  } else {
    finding.component = format(end.receiving ? "link into rank %d from rank %s" : "link from rank %d to rank %s",
                               end.rank.value(), human_ranks(others).c_str());
  }
  set_certainty(window, slow, finding);
  finding.victim_groups.push_back(group_name(window, end.flows.front().flow.comm_id));
  add_flow_claims(window, compared, slow, finding);
  finding.alternatives.push_back({format("receiving side of rank %s", human_ranks(others).c_str()), 0.3,
                                  "a slow receiver would be seen as waiting for its credit, not as time on the wire",
                                  "NIC and switch port counters of both ends"});
  finding.next.push_back(look_at_nics("NIC, its cable and its switch port"));
  if (!others.empty()) finding.next.push_back(look_at_path(end.rank, others.front()));
  std::string name = name_of(window, end.rank);
  name[0] = 'r';
  finding.sentence =
      format("The %s {is|was} slow: all %d ranks {wait|waited} %s {when}: %s of the job.",
             pair ? finding.component.c_str() : format("link of %s", name.c_str()).c_str(), window.world_size(),
             per_step(slow.saved_ns).c_str(), percent(slow.saved_ns / compared.step_ns).c_str());
  if (const Handling handling = handlings.of(end.rank); handling.starved(slow.worst.flow.typical_wire))
    blame_starved_proxy(window, compared.steps, end.rank, handling, finding);
  return finding;
}

Finding finding_of(const JobWindow& window, const ComparedSteps& compared, const SlowGroup& slow,
                   const Handlings& handlings) {
  const Group& group = slow.group;
  const double saved = slow.saved_ns();
  std::vector<Rank> ranks;
  for (const auto& [worst, rank] : slow.suspects)
    if (!slow.stands_apart || rank == slow.suspects[0].second) ranks.push_back(rank);
  std::sort(ranks.begin(), ranks.end());
  Finding finding = slow_link(window, compared, std::move(ranks), compared.steps.front(), saved);
  finding.subject = format("group-%llx", static_cast<unsigned long long>(group.comm_id.value()));
  finding.component = slow.stands_apart ? format("link of rank %d", finding.ranks.front().value())
                                        : format("link between ranks %s", human_ranks(finding.ranks).c_str());
  // Where nothing tells the members apart there is one witness only: the machine may be busy, not the link slow.
  finding.sure_with_signals = group.transfer.size() >= kGroupStepsMin;
  finding.sure = finding.sure_with_signals && slow.stands_apart;
  finding.confidence = slow.stands_apart ? 0.8 : 0.6;
  const std::string name = group_name(window, group.comm_id);
  finding.victim_groups.push_back(name);
  add_group_claims(window, compared, slow, name, finding);
  finding.alternatives.push_back(
      {format("another member of %s", name.c_str()), slow.stands_apart ? 0.3 : 0.5,
       slow.stands_apart ? "its other groups are as fast as their like" : "nothing tells the members apart",
       "NIC and switch port counters of the members"});
  finding.next.push_back(look_at_nics("NICs, cables and switch ports of the group"));
  finding.sentence = format("The %s {is|was} slow: %s {waits|waited} %s for its transfers {when}: %s of the job.",
                            finding.component.c_str(), name.c_str(), per_step(saved).c_str(),
                            percent(saved / compared.step_ns).c_str());
  for (const auto& [in_comm, rank] : window.comms().at(group.comm_id).world_rank) {
    const Handling handling = handlings.of(rank);
    if (!handling.starved(saved)) continue;
    finding.ranks = {rank};
    blame_starved_proxy(window, compared.steps, rank, handling, finding);
    break;
  }
  return finding;
}

Finding finding_of(const JobWindow& window, const ComparedSteps& compared, const LastData& last,
                   const Handlings& handlings) {
  Finding finding = slow_link(window, compared, {last.rank}, last.steps.front(), last.saved_ns);
  finding.component = format("link from rank %d", last.rank.value());
  finding.victim_groups.push_back(group_name(window, last.comm_id));
  finding.sure = last.nats >= window.sure_nats();
  finding.sure_with_signals = last.nats >= window.sure_nats() - witness_nats();
  finding.confidence = std::min(0.9, 0.4 + 0.03 * static_cast<double>(last.hits));
  add_last_data_claims(window, compared, last, finding);
  finding.next.push_back(look_at_nics("NIC, its cable and its switch port"));
  std::string name = name_of(window, last.rank);
  name[0] = 'r';
  finding.sentence =
      format("The link of %s {is|was} slow: all %d ranks {wait|waited} %s {when}: %s of the job.", name.c_str(),
             window.world_size(), per_step(last.saved_ns).c_str(), percent(last.saved_ns / compared.step_ns).c_str());
  // The wire is not seen; the rank's own network thread is.
  if (const Handling handling = handlings.of(last.rank); handling.starved(0))
    blame_starved_proxy(window, compared.steps, last.rank, handling, finding);
  return finding;
}

}  // namespace lockstep::slow_link
