#include "apps/cli/whatif_step.h"

#include <algorithm>
#include <map>

#include "apps/cli/answer_json.h"
#include "apps/cli/server_call.h"
#include "base/text.h"
#include "model/events.h"
#include "model/rank_text.h"
#include "model/step_detail.h"

namespace lockstep::cli {
namespace {

constexpr const char* kCommand = "lockstep whatif";
constexpr size_t kRanksAtOnce = 64;
constexpr int kSpansAtOnce = 20'000;  // the most that the server sends

TracedStep failed(int exit_code, std::string message) {
  TracedStep step;
  step.exit_code = exit_code;
  step.message = std::move(message);
  return step;
}

class Fetch {
 public:
  Fetch(const std::string& server, const std::string& job) : server_(server), base_("/api/jobs/" + url_part(job)) {}

  TracedStep run(const std::string& wanted) {
    Json step;
    if (!get("/steps/" + wanted + "?limit=1000&path=1", step)) return failed(exit_code_, message_);
    result_.step = StepNumber{static_cast<int64_t>(number_of(step, "step", -1))};
    std::map<Rank, size_t> place;
    for (const Json rank : list_of(step, "ranks")) {
      bool detail = false;
      if (rank["detail"].get_bool().get(detail) || !detail) continue;
      const double begin_s = number_of(rank, "start_ms") / 1e3;
      const Rank number{static_cast<int32_t>(number_of(rank, "rank", -1))};
      place.emplace(number, result_.ranks.size());
      result_.ranks.push_back({number, begin_s, begin_s + number_of(rank, "duration_ms") / 1e3, {}});
    }
    const double total = number_of(step, "ranks_total");
    if (result_.ranks.empty())
      return failed(kExitNotFound, format("%s: no rank has detail of step %lld; steps that have: GET %s/traced",
                                          kCommand, static_cast<long long>(result_.step.value()), base_.c_str()));
    if (static_cast<double>(result_.ranks.size()) < total)
      result_.notes.push_back(
          format("%zu of %.0f ranks: the others have no detail here, or are more than the server "
                 "shows at once",
                 result_.ranks.size(), total));
    // A step's document is gone with the next answer, so what is needed of it is taken first.
    for (const Json comm : list_of(step, "comms")) {
      const std::optional<CommId> id = comm_id_from_text(text_of(comm, "comm_id"));
      Result<std::vector<Rank>> ranks = ranks_from_text(text_of(comm, "ranks"), kGroupRanksMax);
      if (id && ranks.ok()) members_[*id] = std::move(*ranks);
    }
    std::vector<Rank> ranks;
    for (const auto& entry : place) ranks.push_back(entry.first);
    for (size_t begin = 0; begin < ranks.size();) {
      const size_t asked = std::min(at_once_, ranks.size() - begin);
      const int got = spans_of(std::span<const Rank>(ranks).subspan(begin, asked), place);
      if (got < 0) return failed(exit_code_, message_);
      if (got == 0) {
        if (asked == 1)
          return failed(kExitFailed, format("%s: rank %d has more operations in this step than the server sends",
                                            kCommand, ranks[begin].value()));
        at_once_ = asked / 2;
        continue;
      }
      begin += asked;
    }
    return std::move(result_);
  }

 private:
  bool get(const std::string& path, Json& into) {
    Response answer = ask(server_, base_ + path, kCommand);
    exit_code_ = answer.exit_code;
    message_ = answer.message;
    if (exit_code_ != kExitOk) return false;
    if (parser_.parse(answer.body).get(into)) {
      exit_code_ = kExitFailed;
      message_ = format("%s: the server's answer is not what this version understands", kCommand);
      return false;
    }
    return true;
  }

  // 1: taken; 0: too many at once; -1: failed.
  int spans_of(std::span<const Rank> ranks, const std::map<Rank, size_t>& place) {
    Json timeline;
    if (!get(format("/steps/%lld/timeline?columns=1&lines=1&spans=%d&ranks=%s",
                    static_cast<long long>(result_.step.value()), kSpansAtOnce, ranks_text(ranks).c_str()),
             timeline))
      return -1;
    const simdjson::dom::array spans = list_of(timeline, "spans");
    if (spans.size() == 0 && number_of(timeline, "spans_in_view") > 0) return 0;
    for (const Json span : spans) {
      const std::optional<CommId> comm = comm_id_from_text(text_of(span, "comm_id"));
      const auto found = place.find(Rank{static_cast<int32_t>(number_of(span, "rank", -1))});
      if (!comm || found == place.end()) continue;  // a phase
      TracedOp op;
      op.comm_id = *comm;
      op.ordinal = static_cast<uint64_t>(number_of(span, "ordinal"));
      op.function = text_of(span, "name").substr(0, 64);
      op.bytes = static_cast<int64_t>(number_of(span, "bytes"));
      op.start_s = number_of(span, "from_ns") / 1e9;
      op.end_s = op.start_s + number_of(span, "duration_ns") / 1e9;
      if (const auto peer = static_cast<int64_t>(number_of(span, "peer", -1)); peer >= 0) {
        op.p2p = true;
        op.send = op.function == "Send";
        if (const auto members = members_.find(*comm);
            members != members_.end() && static_cast<size_t>(peer) < members->second.size())
          op.peer = members->second[static_cast<size_t>(peer)];
      }
      result_.ranks[found->second].ops.push_back(std::move(op));
    }
    return 1;
  }

  const std::string& server_;
  const std::string base_;
  simdjson::dom::parser parser_;
  TracedStep result_;
  std::map<CommId, std::vector<Rank>> members_;
  size_t at_once_ = kRanksAtOnce;
  int exit_code_ = kExitOk;
  std::string message_;
};

}  // namespace

TracedStep fetch_traced_step(const std::string& server, const std::string& job, const std::string& step) {
  return Fetch(server, job).run(step);
}

}  // namespace lockstep::cli
