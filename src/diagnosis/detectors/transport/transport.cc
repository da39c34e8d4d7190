#include "diagnosis/detectors/transport/transport.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "base/evenly.h"
#include "base/text.h"
#include "diagnosis/measure.h"
#include "diagnosis/phrasing.h"
#include "diagnosis/roles.h"

namespace lockstep {
namespace {

// Evenly chosen over the job.
constexpr size_t kHostsMax = 16;
// Of those whose adapters tell both numbers.
constexpr double kHostsShare = 0.75;
constexpr size_t kHostsMin = 2;
// The interface carries this much, and so many times what goes by RDMA.
constexpr double kSentMin = 50;  // MB/s
constexpr double kSentTimes = 10;
// A job that hardly communicates has nothing to gain.
constexpr double kCommunicationMin = 0.05;
constexpr size_t kStepsSuspect = 2;
constexpr size_t kStepsSure = 4;
constexpr int64_t kLookNs = 30'000'000'000;

// What the last steps take, and what of it communication does.
struct LastSteps {
  std::vector<StepNumber> steps;
  double step_ns = 0, communication_ns = 0;
};

LastSteps last_steps(const JobWindow& window) {
  const std::vector<StepNumber>& all = window.steps_to_compare();
  LastSteps last{.steps = {all.end() - static_cast<std::ptrdiff_t>(std::min<size_t>(8, all.size())), all.end()}};
  std::vector<double> communications;
  for (StepNumber number : last.steps) {
    std::vector<double> of_ranks;
    for (const auto& [rank, row] : *window.step(number)) of_ranks.push_back(static_cast<double>(row.summary.comm_ns));
    communications.push_back(median(std::move(of_ranks)));
  }
  last.step_ns = median(step_durations(window, last.steps));
  last.communication_ns = median(std::move(communications));
  return last;
}

// What a host's adapters send.
struct Sent {
  double net = 0, rdma = 0;  // MB/s
  int64_t through_unix_ns = 0;
};

// Nothing where no adapter tells both numbers.
std::optional<Sent> sent_by(const SignalStore& signals, const std::string& host, const SignalSpan& span) {
  const SignalIndex by_net = signal_index("net_sent"), by_rdma = signal_index("rdma_sent");
  std::optional<Sent> sent;
  for (const std::string& adapter : signals.adapters_of(host, "")) {
    const std::optional<EntityReadings> readings = signals.read(Place::kNic, host, adapter, span);
    if (!readings) continue;
    const SignalReading net_now = readings->of(by_net), rdma_now = readings->of(by_rdma);
    if (!net_now.known || !rdma_now.known) continue;
    if (!sent) sent = Sent{};
    sent->net += net_now.now;
    sent->rdma += rdma_now.now;
    sent->through_unix_ns = std::max(sent->through_unix_ns, readings->through_unix_ns);
  }
  return sent;
}

// How many hosts send by TCP, of those that were asked.
struct Hosts {
  size_t asked = 0, reported = 0, over_tcp = 0;
  Sent most;
  std::string most_host;
  double share() const { return static_cast<double>(over_tcp) / static_cast<double>(reported); }
};

Hosts ask_hosts(const JobWindow& window, const SignalStore& signals, const SignalSpan& span) {
  std::set<std::string> all_hosts;
  for (const auto& [rank, identity] : window.ranks()) all_hosts.insert(identity.host);
  if (all_hosts.size() < kHostsMin) return {};
  const std::vector<std::string> hosts(all_hosts.begin(), all_hosts.end());
  const std::vector<size_t> asked = evenly(hosts.size(), kHostsMax);
  Hosts found{.asked = asked.size()};
  for (size_t at : asked) {
    const std::optional<Sent> sent = sent_by(signals, hosts[at], span);
    if (!sent) continue;
    ++found.reported;
    if (sent->net < kSentMin || sent->net < kSentTimes * sent->rdma) continue;
    ++found.over_tcp;
    if (sent->net <= found.most.net) continue;
    found.most = *sent;
    found.most_host = hosts[at];
  }
  return found;
}

void add_claims(const LastSteps& last, const Hosts& hosts, std::string sent_query, Finding& finding) {
  const StepNumber from = finding.since_step, to = finding.through_step;
  finding.chain.push_back(claim(ClaimKind::kCounter, finding.component,
                                format("On %zu of %zu hosts the interfaces send and RDMA next to nothing; those of %s "
                                       "send %.0f MB/s.",
                                       hosts.over_tcp, hosts.reported, hosts.most_host.c_str(), hosts.most.net),
                                {.value = hosts.most.net, .unit = "MB/s"}, from, to, std::move(sent_query)));
  finding.chain.push_back(claim(ClaimKind::kExclusion, "adapters",
                                "Not a slow link: the adapters are there and carry the job's bytes, by TCP.", {}, from,
                                to, "/api/metrics?name=hw.network.up"));
  finding.chain.push_back(
      claim(ClaimKind::kCounterfactual, finding.component,
            format("A step of %s has %s of communication: that is the most that RDMA could save.",
                   human_duration(last.step_ns).c_str(), human_duration(last.communication_ns).c_str()),
            {.value = (last.step_ns - last.communication_ns) / 1e6, .unit = "ms", .baseline = last.step_ns / 1e6}, from,
            to, Measure{.of = "step_ms", .steps = last.steps}.query()));
}

}  // namespace

std::optional<Finding> find_tcp_instead_of_rdma(const JobWindow& window, const SignalStore& signals,
                                                int64_t now_unix_ns) {
  const std::vector<StepNumber>& all = window.steps_to_compare();
  if (all.size() < kStepsSuspect) return std::nullopt;
  const LastSteps last = last_steps(window);
  if (last.step_ns <= 0 || last.communication_ns < kCommunicationMin * last.step_ns) return std::nullopt;
  const SignalSpan span{.since_unix_ns = now_unix_ns - kLookNs};
  const Hosts hosts = ask_hosts(window, signals, span);
  if (hosts.reported < kHostsMin || hosts.share() < kHostsShare) return std::nullopt;

  Finding finding;
  finding.kind = emits<Emitter::kTransport, VerdictKind::kInefficient>;
  finding.subject = "transport";
  finding.layer = emits<Emitter::kTransport, Layer::kSoftware>;
  finding.cause = emits<Emitter::kTransport, Cause::kTcpFallback>;
  finding.component = "NCCL transport";
  finding.sure = all.size() >= kStepsSure;
  finding.since_step = all.front();
  finding.through_step = all.back();
  finding.step_ns = finding.step_without_ns = static_cast<int64_t>(last.step_ns);
  finding.coverage = static_cast<double>(hosts.reported) / static_cast<double>(hosts.asked);
  finding.confidence = 0.9 * static_cast<double>(hosts.over_tcp) / static_cast<double>(hosts.reported);
  add_claims(last, hosts,
             signal_query(signal_index("net_sent"), hosts.most_host, signals.adapters_of(hosts.most_host, ""),
                          span.since_unix_ns, hosts.most.through_unix_ns),
             finding);
  finding.alternatives.push_back({"a job that is meant to use TCP", 0.2, "its hosts have RDMA adapters",
                                  "NCCL's init log (NCCL_DEBUG=INFO) says which transport it took, and why"});
  finding.next.push_back(
      {"make NCCL use RDMA again: NCCL_IB_DISABLE, NCCL_IB_HCA, the network plugin, the container's devices",
       "NCCL_DEBUG=INFO"});
  finding.sentence = format(
      "Data between hosts {goes|went} over TCP though they have RDMA adapters, {when}: communication {takes|took} %s "
      "of a step of %s.",
      human_duration(last.communication_ns).c_str(), human_duration(last.step_ns).c_str());
  return finding;
}

}  // namespace lockstep
