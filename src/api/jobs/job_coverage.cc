#include "api/jobs/job_coverage.h"

#include <algorithm>

#include "base/text.h"
#include "model/ids.h"
#include "model/rank_text.h"

namespace lockstep {
namespace {

// A job is compared with its own past after so many steps (docs/guide/verdicts.md).
constexpr int64_t kHistorySteps = 20;

constexpr const char* kPluginTodo =
    "start the job with lockstep run, or set NCCL_PROFILER_PLUGIN (docs/guide/nccl-plugin.md)";
constexpr const char* kPythonTodo = "start the job with lockstep run, or call lockstep.init() (docs/guide/python.md)";
constexpr const char* kAgentTodo = "start lockstep-agent on every host of the job (docs/guide/agent.md)";

constexpr const char* kCommandsTodo =
    "agents that send by gRPC ask for commands where --commands says (docs/guide/agent.md)";
constexpr const char* kGatewayTodo =
    "at gateways, lockstep_commands_acknowledged_total counts what agents took (docs/guide/cluster.md)";

std::string of(size_t some, size_t all, const char* what) {
  return format("%s of %s %s", with_thousands(static_cast<int64_t>(some)).c_str(),
                with_thousands(static_cast<int64_t>(all)).c_str(), what);
}

Judged share(size_t some, size_t all) {
  return some == 0 ? Judged::kNo : some < all ? Judged::kPartly : Judged::kYes;
}

class Coverage {
 public:
  explicit Coverage(const JobSeen& seen) : seen_(seen) {}

  std::vector<CoverageRow> rows() {
    ranks();
    steps();
    comms();
    links();
    phases();
    history();
    for (const HeardOnHosts& signal : seen_.signals) node(signal);
    events();
    clocks();
    hangs();
    numbers();
    lost();
    return std::move(rows_);
  }

 private:
  void add(std::string_view key, std::string_view question, Judged judged, std::string why, std::string_view todo) {
    rows_.push_back({key, question, judged, std::move(why), judged == Judged::kYes ? "" : std::string(todo)});
  }

  void ranks() {
    std::string why = of(seen_.ranks_reporting, seen_.ranks_expected, "ranks report");
    if (!seen_.missing.empty()) {
      why += "; nothing is heard of rank " + human_ranks(seen_.missing, 8);
    }
    if (seen_.ended) why += "; the job has ended";
    add("ranks", "which rank is slow or stuck", share(seen_.ranks_reporting, seen_.ranks_expected), std::move(why),
        "start lockstep-agent on their hosts, and the job with lockstep run");
  }

  void steps() {
    if (seen_.steps == 0) {
      add("steps", "since which step", Judged::kNo, "no step is known", kPythonTodo);
      return;
    }
    const bool all = seen_.ranks_heard >= seen_.ranks_expected;
    std::string why =
        of(seen_.steps_complete, seen_.steps, "newest steps came from every rank") + (all ? "" : " that was heard of");
    Judged judged = share(seen_.steps_complete, seen_.steps);
    if (!all) judged = std::max(judged, Judged::kPartly);
    if (seen_.rows_inferred > 0) {
      why += "; " + of(seen_.rows_inferred, seen_.rows, "have boundaries that are guessed from collectives");
      judged = std::max(judged, Judged::kPartly);
    }
    add("steps", "since which step", judged, std::move(why),
        seen_.rows_inferred > 0 ? kPythonTodo : "have all ranks heard, and no report late or lost");
  }

  void comms() {
    if (seen_.ranks_with_comms == 0) {
      add("groups", "who waits for whom", Judged::kNo,
          seen_.ranks_with_phases > 0 ? "no communicator is known: only phases and the shared pace show who is late"
                                      : "no communicator is known",
          kPluginTodo);
      return;
    }
    std::string why = format("%s communicators, of ", with_thousands(static_cast<int64_t>(seen_.comms)).c_str()) +
                      of(seen_.ranks_with_comms, seen_.ranks_expected, "ranks");
    Judged judged = share(seen_.ranks_with_comms, seen_.ranks_expected);
    if (seen_.rows_unseen > seen_.rows_lost) {
      why += "; " + of(seen_.rows_unseen - seen_.rows_lost, seen_.rows, "have operations that NCCL gives no times of");
      judged = std::max(judged, Judged::kPartly);
    }
    add("groups", "who waits for whom", judged, std::move(why), kPluginTodo);
  }

  void links() {
    std::string_view todo =
        "transfers are recorded at LOCKSTEP_DETAIL=full, and always in some steps (docs/guide/nccl-plugin.md)";
    if (seen_.ranks_with_comms == 0) {
      add("links", "which link is slow", Judged::kNo, "no communicator is known, so no transfer is seen", kPluginTodo);
    } else if (seen_.steps_with_flows == 0) {
      add("links", "which link is slow", Judged::kNo,
          "no transfer over the network was seen: one host, a network that NCCL's proxy does not drive, or not "
          "recorded",
          todo);
    } else {
      // A sample of the steps is enough: flows are compared where they were recorded.
      add("links", "which link is slow", Judged::kYes,
          "transfers were recorded in " + of(seen_.steps_with_flows, seen_.steps, "newest steps"), todo);
    }
  }

  void phases() {
    add("input", "who waits for its input", share(seen_.ranks_with_input, seen_.ranks_heard),
        of(seen_.ranks_with_input, seen_.ranks_heard, "ranks report an input phase"), kPythonTodo);
    const bool any = seen_.ranks_with_checkpoint > 0;
    const bool hooked = seen_.ranks_with_phases > 0;
    add("checkpoints", "whether checkpoints are slow",
        any      ? Judged::kYes
        : hooked ? Judged::kPartly
                 : Judged::kNo,
        any      ? of(seen_.ranks_with_checkpoint, seen_.ranks_heard, "ranks report checkpoints")
        : hooked ? "phases are reported, and no checkpoint among them in the newest steps"
                 : "no phase is reported",
        hooked ? "where the job does not save with torch, mark it: with lockstep.phase(\"checkpoint\")" : kPythonTodo);
  }

  void history() {
    const bool enough = seen_.steps_stored >= kHistorySteps;
    add("history", "whether the whole job is slower than it was",
        enough                   ? Judged::kYes
        : seen_.steps_stored > 0 ? Judged::kPartly
                                 : Judged::kNo,
        format("%s steps are known%s", with_thousands(seen_.steps_stored).c_str(),
               enough ? "" : format("; %lld are needed", static_cast<long long>(kHistorySteps)).c_str()),
        "wait; a job that was slow from its first step has only siblings and the hardware to be compared with");
  }

  void node(const HeardOnHosts& signal) {
    std::string why = std::string(signal.what) + " of " + of(signal.hosts, seen_.hosts, "hosts");
    for (size_t i = 0; i < signal.without.size(); ++i) why += (i == 0 ? ", not of " : ", ") + signal.without[i];
    if (signal.hosts + signal.without.size() < seen_.hosts) why += " ...";
    add(signal.key, signal.question, share(signal.hosts, seen_.hosts), std::move(why),
        seen_.hosts_with_agent == 0 ? kAgentTodo : signal.todo);
  }

  // That no event has come is no proof that one would.
  void events() {
    add("events", "why: XID, OOM kill, link down", seen_.hosts_with_agent == 0 ? Judged::kNo : Judged::kPartly,
        "agents of " + of(seen_.hosts_with_agent, seen_.hosts, "hosts report") +
            (seen_.hosts_with_agent == 0 ? "" : "; whether each may read the kernel log is not known here"),
        seen_.hosts_with_agent == 0 ? kAgentTodo : "lockstep doctor on a node says whether its agent may");
  }

  void clocks() {
    const Judged judged = seen_.ranks_with_comms == 0 ? Judged::kNo : share(seen_.clocks_known, seen_.ranks_heard);
    std::string why = of(seen_.clocks_known, seen_.ranks_heard, "ranks' clocks are aligned");
    if (seen_.clocks_known > 0) why += format(", within %.0f us", seen_.clock_error_us);
    add("clocks", "what came first, across ranks", judged, std::move(why),
        seen_.ranks_with_comms == 0
            ? kPluginTodo
            : "nothing is needed for verdicts; for a step's picture ask for one: lockstep trace JOB");
  }

  void hangs() {
    const bool who = seen_.ranks_with_comms > 0 || seen_.ranks_with_phases > 0;
    add("hang", "who is missing when the job hangs",
        seen_.ranks_with_comms > 0 ? share(seen_.ranks_with_comms, seen_.ranks_expected)
        : who                      ? Judged::kPartly
                                   : Judged::kNo,
        seen_.ranks_with_comms > 0
            ? "operations in flight of " + of(seen_.ranks_with_comms, seen_.ranks_expected, "ranks")
        : who ? "by phases and silence alone: what ranks wait for is not seen"
              : "neither operations nor phases are reported",
        kPluginTodo);
    stacks();
    add("flight recorder", "which call differs (PyTorch's Flight Recorder)",
        seen_.ranks_with_dumps > 0 ? Judged::kYes : Judged::kNo,
        seen_.ranks_with_dumps > 0 ? of(seen_.ranks_with_dumps, seen_.ranks_heard, "ranks' dumps have come")
                                   : "no dump has come; PyTorch writes one only when an operation times out",
        "export TORCH_NCCL_TRACE_BUFFER_SIZE=2000 (docs/guide/hang.md)");
    // It is asked when ranks stand still: until then nobody knows whether it would answer.
    const bool may = seen_.ranks_with_ras == 0 && seen_.ranks_with_comms > 0;
    add("ras", "NCCL's own account of a hang (RAS)",
        may ? Judged::kPartly : share(seen_.ranks_with_ras, seen_.ranks_heard),
        may ? "it has not been needed; it is asked when ranks stand still"
            : of(seen_.ranks_with_ras, seen_.ranks_heard, "ranks' counts were given by RAS"),
        "NCCL 2.24 and later has it unless NCCL_RAS_ENABLE=0");
  }

  void stacks() {
    const size_t unknown = seen_.hosts_with_stacks_unknown;
    std::string why;
    if (seen_.ranks_with_stacks > 0) {
      why = of(seen_.ranks_with_stacks, seen_.ranks_heard, "ranks' stacks have been taken");
    } else if (unknown > 0) {
      why = "agents of " + of(unknown, seen_.hosts, "hosts report to a gateway: whether they take stacks is not known");
    } else {
      why = "agents of " + of(seen_.hosts_with_stacks, seen_.hosts, "hosts can be asked for stacks when it hangs");
    }
    add("stacks", "in which line it hangs", unknown > 0 ? Judged::kPartly : share(seen_.hosts_with_stacks, seen_.hosts),
        std::move(why),
        unknown > 0                                        ? kGatewayTodo
        : seen_.hosts_with_agent > seen_.hosts_with_stacks ? kCommandsTodo
                                                           : kAgentTodo);
  }

  void numbers() {
    add("loss", "whether the loss is a number",
        share(seen_.ranks_with_loss, seen_.ranks_heard) == Judged::kNo ? Judged::kNo : Judged::kYes,
        of(seen_.ranks_with_loss, seen_.ranks_heard, "ranks report a loss or a gradient norm"),
        "lockstep.log(loss=value) in the step, or a callback (docs/guide/python.md)");
    add("work", "whether the same work is done in a step",
        seen_.ranks_with_work > 0 ? share(seen_.ranks_with_work, seen_.ranks_heard) : Judged::kNo,
        of(seen_.ranks_with_work, seen_.ranks_heard, "ranks report tokens or FLOPs"),
        "lockstep.log(tokens=n) in the step (docs/guide/mfu.md)");
  }

  void lost() {
    const bool clean = seen_.rows_lost == 0 && seen_.records_lost == 0;
    add("records", "whether anything was lost on the way",
        clean                                             ? Judged::kYes
        : seen_.rows > 0 && seen_.rows_lost == seen_.rows ? Judged::kNo
                                                          : Judged::kPartly,
        clean ? "no record was lost"
              : format("%s records were lost; ", with_thousands(seen_.records_lost).c_str()) +
                    of(seen_.rows_lost, seen_.rows, "of the newest steps' rows are unknown for it"),
        "give the agent more CPU, or record less: lockstep detail low (docs/guide/agent.md)");
  }

  const JobSeen& seen_;
  std::vector<CoverageRow> rows_;
};

}  // namespace

const char* to_text(Judged judged) {
  switch (judged) {
    case Judged::kYes:
      return "judged";
    case Judged::kPartly:
      return "partly";
    case Judged::kNo:
      return "not";
  }
  return "not";
}

std::vector<CoverageRow> coverage_of_job(const JobSeen& seen) {
  return Coverage(seen).rows();
}

std::string coverage_sentence(const std::vector<CoverageRow>& rows) {
  size_t judged = 0;
  std::string partly, not_at_all;
  for (const CoverageRow& row : rows) {
    judged += row.judged == Judged::kYes;
    if (row.judged == Judged::kYes) continue;
    std::string& list = row.judged == Judged::kPartly ? partly : not_at_all;
    list += (list.empty() ? "" : ", ") + std::string(row.key);
  }
  std::string text = format("%zu of %zu questions can be judged", judged, rows.size());
  if (!partly.empty()) text += "; partly: " + partly;
  if (!not_at_all.empty()) text += "; not: " + not_at_all;
  return text + ".";
}

}  // namespace lockstep
