#include "diagnosis/detectors/hang/hang_phrasing.h"

#include <algorithm>

#include "base/text.h"
#include "diagnosis/phrasing.h"
#include "model/rank_text.h"
#include "model/step_detail.h"

namespace lockstep {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr size_t kWaitingClaimsMax = 3;
constexpr size_t kCircleClaimsMax = 4;

std::string op_text(const OpStatus& op) {
  if (op.function == "Send" || op.function == "Recv")
    return format("%s (rank %d of its group)", op.function.c_str(), op.peer);
  return format("%s %llu", op.function.c_str(), static_cast<unsigned long long>(op.seq));
}

std::string rank_path(Rank rank) {
  return format("/api/jobs/{job}/ranks/%d", rank.value());
}

// What a rank has entered of a communicator ("entered"), or NCCL has launched ("launched").
std::string count_query(const char* of, Rank rank, CommId comm_id) {
  return format("/api/jobs/{job}/evidence?of=%s&ranks=%d&comm=%s", of, rank.value(), comm_id_text(comm_id).c_str());
}

}  // namespace

HangPhrasing::HangPhrasing(const JobWindow& window, const HangInput& input, const WaitGraph& graph, int64_t limit_ns)
    : window_(window),
      input_(input),
      graph_(graph),
      limit_ns_(limit_ns),
      waits_text_(human_duration(static_cast<double>(graph.longest_quiet_ns()))) {}

Finding HangPhrasing::begin() const {
  Finding finding;
  finding.kind = emits<Emitter::kHang, VerdictKind::kHang>;
  finding.layer = emits<Emitter::kHang, Layer::kUnknown>;
  for (const auto& [rank, op] : graph_.waiting()) finding.victims.push_back(rank);
  finding.sure = graph_.shortest_quiet_ns() >= limit_ns_ + kSecond / 2;
  finding.since_step = window_.newest_step() + 1;
  finding.through_step = finding.since_step;
  finding.confidence = finding.sure ? 0.95 : 0.6;
  finding.coverage = coverage_of(window_, input_.status.size());
  finding.lost_ns_per_step = graph_.longest_quiet_ns();
  finding.clear_after_steps = 0;
  return finding;
}

std::string HangPhrasing::longest_quiet_query() const {
  Rank longest = kNoRank;
  const RankStatus* its = nullptr;
  for (const auto& [rank, op] : graph_.waiting()) {
    const auto status = input_.status.find(rank);
    if (status == input_.status.end() || (its != nullptr && status->second.quiet_ns <= its->quiet_ns)) continue;
    its = &status->second;
    longest = rank;
  }
  return its == nullptr ? "/api/jobs/{job}/ranks" : quiet_query(longest, *its);
}

void HangPhrasing::add(Finding& finding, ClaimKind kind, std::string subject, std::string text, double value,
                       const char* unit, std::string query, double baseline) const {
  finding.chain.push_back(claim(kind, std::move(subject), std::move(text),
                                {.value = value, .unit = unit, .baseline = baseline}, finding.since_step,
                                finding.since_step, std::move(query)));
}

Finding HangPhrasing::missing(const std::vector<Rank>& culprits, Absence absence, const WaitingOp& operation) const {
  struct Words {
    Layer layer;
    Cause cause;
    const char* verb;
    const char* not_the_network;
    NextAction next;
  };
  const Words words =
      absence == Absence::kDead ? Words{emits<Emitter::kHang, Layer::kHost>, emits<Emitter::kHang, Cause::kRankDead>,
                                        "died before", "the process does not exist any more.", after_death()}
      : absence == Absence::kStopped
          ? Words{emits<Emitter::kHang, Layer::kHost>, emits<Emitter::kHang, Cause::kProcessPaused>,
                  "{is|was} stopped and {has|had} not entered", "the process is stopped by a signal or a debugger.",
                  after_stop()}
          : Words{
                emits<Emitter::kHang, Layer::kSoftware>,
                emits<Emitter::kHang, Cause::kRankMissing>,
                "never entered",
                "the operation has not begun on the missing rank, so no transfer of it can be stuck.",
                {"take a stack of its main thread: it is somewhere the other ranks are not", "py-spy dump --pid PID"}};
  Finding finding = begin();
  const size_t waiting = graph_.waiting().size();
  const Rank first = culprits.front();
  finding.ranks = culprits;
  finding.layer = words.layer;
  finding.cause = words.cause;
  finding.component = format("process of rank %s", human_ranks(culprits).c_str());
  const std::string who = culprits.size() == 1 ? name_of(window_, first) : "Ranks " + human_ranks(culprits);
  finding.sentence = format("%s %s %s of %s; %zu rank%swaited for it for %s.", who.c_str(), words.verb,
                            op_text(operation.op).c_str(), group_name(window_, operation.comm_id).c_str(), waiting,
                            waiting == 1 ? " {has |}" : "s {have |}", waits_text_.c_str());
  add_who_waits(finding);
  add_where_it_stands(finding, first, absence, operation);
  add(finding, ClaimKind::kExclusion, "network", std::string("Not the network: ") + words.not_the_network, 0, "",
      rank_path(first));
  add(finding, ClaimKind::kCounterfactual, format("rank %d", first.value()),
      "As soon as it enters, the operation can complete; until then every rank is lost time.", longest_quiet_s(), "s",
      longest_quiet_query());
  finding.next.push_back(words.next);
  finding.alternatives.push_back({"the waiting ranks (took another branch than the rest)", 0.2,
                                  "they are the majority and agree with each other",
                                  "stacks of one waiting rank and of the missing one"});
  return finding;
}

void HangPhrasing::add_who_waits(Finding& finding) const {
  for (const auto& [name, entry] : graph_.operations()) {
    const WaitingOp& operation = entry.second;
    std::vector<Rank> members;
    for (const auto& [rank, op] : graph_.waiting()) {
      if (op.comm_id == operation.comm_id && op.op.ordinal == operation.op.ordinal &&
          op.op.function == operation.op.function)
        members.push_back(rank);
    }
    add(finding, ClaimKind::kWaitsFor, format("rank %s", human_ranks(members).c_str()),
        format("Rank %s %s in %s of %s (%s, %s).", human_ranks(members).c_str(), members.size() == 1 ? "is" : "are",
               op_text(operation.op).c_str(), group_name(window_, operation.comm_id).c_str(),
               human_bytes(static_cast<double>(operation.op.bytes)).c_str(), operation.op.datatype.c_str()),
        longest_quiet_s(), "s", longest_quiet_query());
    if (finding.chain.size() >= kWaitingClaimsMax) break;
  }
}

void HangPhrasing::add_where_it_stands(Finding& finding, Rank rank, Absence absence, const WaitingOp& operation) const {
  const std::string subject = format("rank %d", rank.value());
  const auto found = input_.status.find(rank);
  if (found == input_.status.end()) {
    add(finding, ClaimKind::kEvent, subject,
        "Nothing has been heard of it: its agent or its process is gone, or the plugin is not loaded there.", 0, "",
        "/api/agents");
    return;
  }
  const RankStatus& status = found->second;
  uint64_t entered = 0;
  int64_t launched = -1;
  for (const CommStatus& comm : status.comms) {
    if (comm.comm_id != operation.comm_id) continue;
    entered = comm.collectives_enqueued;
    launched = comm.launched;
  }
  const auto here = static_cast<unsigned long long>(entered);
  const auto others = static_cast<unsigned long long>(operation.op.ordinal);
  const std::string quiet = human_duration(static_cast<double>(status.quiet_ns));
  add(finding, ClaimKind::kEvent, subject,
      absence == Absence::kDead
          ? format("Its process is gone; it had entered %llu collectives of this group, the others are in number "
                   "%llu.",
                   here, others)
          : format("It has entered %llu collectives of this group, the others are in number %llu; it has made no "
                   "call for %s and waits in no operation.",
                   here, others, quiet.c_str()),
      static_cast<double>(entered), "operations", count_query("entered", rank, operation.comm_id),
      static_cast<double>(operation.op.ordinal));
  if (launched >= 0) {
    add(finding, ClaimKind::kEvent, subject,
        format("NCCL's own count (RAS): it has launched %lld here; %llu by ours.", static_cast<long long>(launched),
               here),
        static_cast<double>(launched), "operations", count_query("launched", rank, operation.comm_id),
        static_cast<double>(entered));
  }
  const std::string phase = status.phase == Phase::kOther ? "" : format(" (last phase: %s)", to_text(status.phase));
  add(finding, ClaimKind::kSelfTime, subject,
      format("It has been outside of any collective for %s%s.", quiet.c_str(), phase.c_str()),
      static_cast<double>(status.quiet_ns) / 1e9, "s", quiet_query(rank, status));
}

Finding HangPhrasing::mismatch(CommId comm_id) const {
  Finding finding = begin();
  std::map<std::string, std::vector<Rank>> kinds;
  for (const auto& [rank, op] : graph_.waiting()) {
    if (op.comm_id == comm_id)
      kinds[format("%s of %lld bytes %s", op.op.function.c_str(), static_cast<long long>(op.op.bytes),
                   op.op.datatype.c_str())]
          .push_back(rank);
  }
  const auto fewer = [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); };
  const auto fewest = std::min_element(kinds.begin(), kinds.end(), fewer);
  const auto most = std::max_element(kinds.begin(), kinds.end(), fewer);
  finding.ranks = fewest->second;
  finding.layer = emits<Emitter::kHang, Layer::kSoftware>;
  finding.cause = emits<Emitter::kHang, Cause::kOpMismatch>;
  finding.component = format("program of rank %s", human_ranks(finding.ranks).c_str());
  finding.sentence = format("%s called %s where the others of %s called %s; all {have |}waited for %s.",
                            name_of(window_, finding.ranks.front()).c_str(), fewest->first.c_str(),
                            group_name(window_, comm_id).c_str(), most->first.c_str(), waits_text_.c_str());
  add(finding, ClaimKind::kWaitsFor, "all",
      "Every member is in the same place of the sequence, with different operations.", longest_quiet_s(), "s",
      longest_quiet_query());
  add(finding, ClaimKind::kExclusion, "network", "Not the network: such an operation cannot complete on any network.",
      0, "", "/api/jobs/{job}/ranks");
  finding.next.push_back(
      {"compare the code path of the odd rank with its peers' at this step", "py-spy dump --pid PID"});
  return finding;
}

Finding HangPhrasing::deadlock(std::vector<Rank> circle) const {
  Finding finding = begin();
  std::sort(circle.begin(), circle.end());
  finding.ranks = circle;
  finding.layer = emits<Emitter::kHang, Layer::kSoftware>;
  finding.cause = emits<Emitter::kHang, Cause::kDeadlock>;
  finding.component = format("order of operations on ranks %s", human_ranks(circle).c_str());
  finding.sentence = format(
      "Ranks %s {wait|waited} for each other in different groups: a deadlock, %zu ranks {have |}stood still for %s.",
      human_ranks(circle).c_str(), graph_.waiting().size(), waits_text_.c_str());
  for (Rank rank : circle) {
    const auto op = graph_.waiting().find(rank);
    if (op == graph_.waiting().end() || finding.chain.size() >= kCircleClaimsMax) continue;
    add(finding, ClaimKind::kWaitsFor, format("rank %d", rank.value()),
        format("Rank %d is in %s of %s.", rank.value(), op_text(op->second.op).c_str(),
               group_name(window_, op->second.comm_id).c_str()),
        longest_quiet_s(), "s", longest_quiet_query());
  }
  add(finding, ClaimKind::kExclusion, "network", "Not the network: no member has entered what the next one waits in.",
      0, "", "/api/jobs/{job}/ranks");
  finding.next.push_back({"make all ranks issue operations of different groups in the same order", ""});
  return finding;
}

Finding HangPhrasing::begin_inside() const {
  Finding finding = begin();
  finding.sure = false;
  finding.cause = emits<Emitter::kHang, Cause::kInOperationStall>;
  finding.component = group_name(window_, graph_.most_common_operation().comm_id);
  finding.confidence = 0.3;
  add(finding, ClaimKind::kWaitsFor, "all", "Every member has entered the same operation.", longest_quiet_s(), "s",
      longest_quiet_query());
  return finding;
}

Finding& HangPhrasing::end_inside(Finding& finding) const {
  add(finding, ClaimKind::kExclusion, "program",
      "Not a missing rank and not a mismatch: all entered, with the same arguments.", 0, "", "/api/jobs/{job}/ranks");
  return finding;
}

Finding HangPhrasing::stopped_inside(const std::vector<Rank>& stopped) const {
  Finding finding = begin_inside();
  const WaitingOp& operation = graph_.most_common_operation();
  const Rank first = stopped.front();
  finding.ranks = stopped;
  finding.sure = true;
  finding.layer = emits<Emitter::kHang, Layer::kHost>;
  finding.cause = emits<Emitter::kHang, Cause::kProcessPaused>;
  finding.confidence = 0.95;
  finding.component = format("process of rank %s", human_ranks(stopped).c_str());
  finding.sentence = format("%s {is|was} stopped inside %s of %s; %zu ranks {have |}waited for it for %s.",
                            name_of(window_, first).c_str(), op_text(operation.op).c_str(),
                            group_name(window_, operation.comm_id).c_str(), graph_.waiting().size() - stopped.size(),
                            waits_text_.c_str());
  add(finding, ClaimKind::kEvent, format("rank %d", first.value()), "Its process is stopped by a signal or a debugger.",
      0, "", rank_path(first));
  finding.next.push_back(after_stop());
  return end_inside(finding);
}

Finding HangPhrasing::silent_first(Rank rank, int64_t margin_ns) const {
  Finding finding = begin_inside();
  const WaitingOp& operation = graph_.most_common_operation();
  const double margin = static_cast<double>(margin_ns);
  finding.ranks = {rank};
  finding.layer = emits<Emitter::kHang, Layer::kHost>;
  finding.confidence = 0.5;
  finding.component = format("rank %d", rank.value());
  finding.sentence =
      format("%s fell silent first inside %s of %s; nothing {has |}moved for %s.", name_of(window_, rank).c_str(),
             op_text(operation.op).c_str(), group_name(window_, operation.comm_id).c_str(), waits_text_.c_str());
  add(finding, ClaimKind::kSelfTime, format("rank %d", rank.value()),
      format("Its last call was %s before anybody else's last call, if the hosts' clocks agree that well.",
             human_duration(margin).c_str()),
      static_cast<double>(input_.status.at(rank).quiet_ns) / 1e9, "s", quiet_query(rank, input_.status.at(rank)));
  finding.alternatives.push_back({"a link or another member of the group", 0.4,
                                  "only the order of falling silent speaks against this rank",
                                  "its process state and stack; NIC counters of the group"});
  finding.next.push_back({"look at its process (running, stopped, in the kernel?) and take a stack",
                          "cat /proc/PID/status; py-spy dump --pid PID"});
  return end_inside(finding);
}

Finding HangPhrasing::stuck_inside() const {
  Finding finding = begin_inside();
  const WaitingOp& operation = graph_.most_common_operation();
  finding.sentence =
      format("All %zu ranks of %s {are|were} inside %s and nothing {has |}moved for %s.", graph_.waiting().size(),
             group_name(window_, operation.comm_id).c_str(), op_text(operation.op).c_str(), waits_text_.c_str());
  finding.next.push_back({"look at links and NICs of the group; take NCCL's proxy state", "ncclras -v"});
  return end_inside(finding);
}

}  // namespace lockstep
