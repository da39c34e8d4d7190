#include "diagnosis/detectors/straggler/own_time.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "base/text.h"
#include "diagnosis/measure.h"
#include "diagnosis/phrasing.h"
#include "diagnosis/roles.h"

namespace lockstep {
namespace straggler {
namespace {

// Of one host so many are looked at to explain them.
constexpr size_t kAttributedRanksMax = 8;

double sum_bytes(const StepSummary& summary) {
  double bytes = 0;
  for (const CommStep& comm : summary.comms) bytes += static_cast<double>(comm.bytes);
  return bytes;
}

double own_ns_of(const JobWindow& window, StepNumber number, Rank rank) {
  return static_cast<double>(lateness(window, *window.frame(number)).own_ns[static_cast<size_t>(window.slot_of(rank))]);
}

}  // namespace

std::vector<Peer> peers_in(const JobWindow& window, const StepFrame& frame, Rank rank,
                           const std::vector<Rank>& accused) {
  const StepLateness& step = lateness(window, frame);
  const int32_t slot = window.slot_of(rank);
  std::vector<Peer> peers;
  auto add = [&](bool of_its_role) {
    for (size_t other = 0; other < frame.rows.size(); ++other) {
      if (of_its_role && step.role[other] != step.role[static_cast<size_t>(slot)]) continue;
      if (!frame.knows(other) || std::binary_search(accused.begin(), accused.end(), window.rank_of(other))) continue;
      peers.push_back({&frame.rows[other], static_cast<double>(step.own_ns[other])});
    }
  };
  if (slot >= 0) add(true);
  if (peers.empty()) add(false);
  return peers;
}

bool has_more_work(const JobWindow& window, Rank rank, const std::vector<StepNumber>& steps) {
  std::vector<double> bytes_ratio, own_ratio;
  for (StepNumber number : steps) {
    const RankRows* rows = window.step(number);
    if (rows == nullptr || !rows->contains(rank)) continue;
    std::vector<double> bytes, own;
    for (const Peer& peer : peers_in(window, *window.frame(number), rank, {rank})) {
      bytes.push_back(sum_bytes(peer.row->summary));
      own.push_back(peer.own_ns);
    }
    double peer_bytes = median(bytes), peer_own = median(own);
    if (peer_bytes <= 0 || peer_own <= 0) continue;
    bytes_ratio.push_back(sum_bytes(rows->at(rank).summary) / peer_bytes);
    own_ratio.push_back(own_ns_of(window, number, rank) / peer_own);
  }
  double more_bytes = median(bytes_ratio);
  return more_bytes > 1.1 && median(own_ratio) < more_bytes * 1.2;
}

double input_excess(const JobWindow& window, Rank rank, const std::vector<StepNumber>& steps) {
  constexpr size_t kIn = static_cast<size_t>(Phase::kInput);
  std::vector<double> more;
  for (StepNumber number : steps) {
    const StepFrame& frame = *window.frame(number);
    const auto row = frame.known.find(rank);
    if (row == frame.known.end()) continue;
    std::vector<double> theirs;
    for (const Peer& peer : peers_in(window, frame, rank, {rank}))
      theirs.push_back(static_cast<double>(peer.row->summary.phase_ns[kIn]));
    more.push_back(static_cast<double>(row->second.summary.phase_ns[kIn]) - median(std::move(theirs)));
  }
  return median(std::move(more));
}

namespace {

// A step of the late ranks on average, beside one of their peers.
struct Compared {
  double own = 0, peers = 0;
  double excess() const { return own - peers; }
};
struct OwnTime {
  Compared time, queue;
  std::array<Compared, kPhaseCount> phases;
  bool gpu_seen = false;  // what the GPU does, by the times of communication on it
  const Compared& input() const { return phases[static_cast<size_t>(Phase::kInput)]; }
  bool phases_reported() const {
    return std::any_of(phases.begin(), phases.end(), [](const Compared& phase) { return phase.own > 0; });
  }
};

std::optional<OwnTime> measure_own_time(const JobWindow& window, const std::vector<Rank>& ranks,
                                        const std::vector<StepNumber>& steps) {
  OwnTime sums;
  double counted = 0;
  for (StepNumber number : steps) {
    const StepFrame* frame = window.frame(number);
    if (frame == nullptr) continue;
    for (size_t i = 0; i < ranks.size() && i < kAttributedRanksMax; ++i) {
      auto row = frame->known.find(ranks[i]);
      if (row == frame->known.end()) continue;
      const StepSummary& own = row->second.summary;
      std::vector<double> queue, time;
      std::array<std::vector<double>, kPhaseCount> phases;
      for (const Peer& peer : peers_in(window, *frame, ranks[i], ranks)) {
        queue.push_back(static_cast<double>(peer.row->summary.queue_ns));
        time.push_back(peer.own_ns);
        for (size_t phase = 0; phase < kPhaseCount; ++phase)
          phases[phase].push_back(static_cast<double>(peer.row->summary.phase_ns[phase]));
      }
      for (size_t phase = 0; phase < kPhaseCount; ++phase) {
        sums.phases[phase].own += static_cast<double>(own.phase_ns[phase]);
        sums.phases[phase].peers += median(phases[phase]);
      }
      sums.queue.own += static_cast<double>(own.queue_ns);
      sums.queue.peers += median(queue);
      sums.time.own += own_ns_of(window, number, ranks[i]);
      sums.gpu_seen |= !own.comms.empty();
      sums.time.peers += median(time);
      counted += 1;
    }
  }
  if (counted == 0) return std::nullopt;
  const auto divide = [&](Compared& sum) {
    sum.own /= counted;
    sum.peers /= counted;
  };
  for (Compared& phase : sums.phases) divide(phase);
  divide(sums.queue);
  divide(sums.time);
  return sums;
}

// The claims about ranks that are late in these steps.
class OwnTimeClaims {
 public:
  OwnTimeClaims(const std::vector<Rank>& ranks, const std::vector<StepNumber>& steps, const OwnTime& found,
                Finding& finding)
      : ranks_(ranks),
        steps_(steps),
        found_(found),
        finding_(finding),
        who_(ranks.size() == 1 ? format("rank %d", ranks.front().value()) : finding.subject) {}

  void add_own_work();
  void blame_input();
  void blame_gpu();
  void blame_host();

 private:
  void add(ClaimKind kind, std::string text, const Compared& compared, const char* of);
  void exclude_input();
  void exclude_gpu();
  const Compared& input() const { return found_.input(); }

  const std::vector<Rank>& ranks_;
  const std::vector<StepNumber>& steps_;
  const OwnTime& found_;
  Finding& finding_;
  const std::string who_;
};

void OwnTimeClaims::add(ClaimKind kind, std::string text, const Compared& compared, const char* of) {
  const size_t asked = std::min(ranks_.size(), kAttributedRanksMax);
  const Measure measure{
      .of = of, .ranks = {ranks_.begin(), ranks_.begin() + static_cast<std::ptrdiff_t>(asked)}, .steps = steps_};
  finding_.chain.push_back(claim(kind, who_, std::move(text),
                                 {.value = compared.own / 1e6, .unit = "ms", .peers = compared.peers / 1e6},
                                 steps_.front(), steps_.back(), measure.query()));
}

void OwnTimeClaims::add_own_work() {
  add(ClaimKind::kSelfTime,
      format("Its own work takes %s, its peers' %s.", per_step(found_.time.own).c_str(),
             human_duration(found_.time.peers).c_str()),
      found_.time, "own_ms");
}

void OwnTimeClaims::exclude_input() {
  if (!found_.phases_reported()) return;
  add(ClaimKind::kExclusion,
      format("Not the input: %s, its peers %s.", per_step(input().own).c_str(), human_duration(input().peers).c_str()),
      input(), "input_ms");
}

void OwnTimeClaims::exclude_gpu() {
  if (!found_.gpu_seen) return;
  add(ClaimKind::kExclusion,
      format("Not its GPU: work is queued on it for %s, on its peers' %s.", per_step(found_.queue.own).c_str(),
             human_duration(found_.queue.peers).c_str()),
      found_.queue, "queue_ms");
}

void OwnTimeClaims::blame_input() {
  finding_.layer = emits<Emitter::kStraggler, Layer::kInput>;
  finding_.cause = emits<Emitter::kStraggler, Cause::kDataLoader>;
  finding_.component = "input of " + who_;
  add(ClaimKind::kSelfTime,
      format("It waits %s for its input, its peers %s.", per_step(input().own).c_str(),
             human_duration(input().peers).c_str()),
      input(), "input_ms");
  exclude_gpu();
  finding_.alternatives.push_back({"storage behind " + who_, 0.3,
                                   "only this rank waits; shared storage would slow others too",
                                   "disk and NFS latency on its host"});
  finding_.next.push_back({"look at its data loader: workers, CPU, the shard it reads", "lockstep lines {job}"});
}

void OwnTimeClaims::blame_gpu() {
  finding_.layer = emits<Emitter::kStraggler, Layer::kGpu>;
  finding_.cause = emits<Emitter::kStraggler, Cause::kSlowCompute>;
  finding_.component = (ranks_.size() == 1 ? "GPU of " : "GPUs of ") + who_;
  add(ClaimKind::kSelfTime,
      format("Its collectives wait %s behind its own kernels, its peers' %s: the host is on time, the GPU is behind.",
             per_step(found_.queue.own).c_str(), human_duration(found_.queue.peers).c_str()),
      found_.queue, "queue_ms");
  exclude_input();
  finding_.alternatives.push_back({"software of " + who_ + " (more or other kernels than its peers)", 0.4,
                                   "cannot be told apart from a slow GPU without its clocks",
                                   "GPU clocks and throttle time of its host, or a kernel profile of it and one peer"});
  finding_.next.push_back({"compare its GPU's clocks, temperature and processes with a peer's",
                           "nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE,PIDS"});
}

void OwnTimeClaims::blame_host() {
  finding_.layer = emits<Emitter::kStraggler, Layer::kHost>;
  finding_.cause = emits<Emitter::kStraggler, Cause::kCpuContention>;
  finding_.component = "host side of " + who_;
  exclude_gpu();
  exclude_input();
  finding_.alternatives.push_back({"software of " + who_ + " (garbage collection, extra work in Python)", 0.4,
                                   "looks the same from outside", "a stack sample of its main thread"});
  finding_.next.push_back({"look at its host: CPU load, cgroup throttling, other processes, a stack of its main thread",
                           "py-spy dump --pid PID"});
}

}  // namespace
}  // namespace straggler

void explain_own_time(const JobWindow& window, const std::vector<Rank>& ranks, const std::vector<StepNumber>& steps,
                      Finding& finding) {
  using namespace straggler;
  const std::optional<OwnTime> found = measure_own_time(window, ranks, steps);
  if (!found) return;
  const double excess = std::max(1.0, found->time.excess());
  OwnTimeClaims claims(ranks, steps, *found, finding);
  claims.add_own_work();
  if (found->input().excess() >= 0.5 * excess) {
    claims.blame_input();
  } else if (found->queue.excess() >= 0.4 * excess) {
    claims.blame_gpu();
  } else {
    claims.blame_host();
  }
}

}  // namespace lockstep
