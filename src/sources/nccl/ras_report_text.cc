// The text form of a RAS report: written for people, so it is read line by line by the words that NCCL 2.24 to 2.30
// use.
//
//   NCCL version 2.27.7 compiled with CUDA 12.9
//   ...
//   Communicators... (0.00s)
//   Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
//       #  in group  per comm  per node  per comm  in group
//       0         1         2         4         8         8   RUNNING  MISMATCH
//
//   Errors
//   #0-0 (5a1e9cc4d1f1b2aa) INCOMPLETE
//     Missing communicator data from 1 rank
//     Rank 3 -- GPU 3 managed by process 4242 on node 10.0.0.7
//   Warnings
//   #0-0 (5a1e9cc4d1f1b2aa) MISMATCH
//     Communicator ranks have different AllReduce operation counts
//     6 ranks have launched up to operation 42
//     Rank 5 has launched up to operation 41 -- GPU 1 managed by process 4711 on node 10.0.0.8
//
// A line "N ranks ..." says what holds for the bare "Rank n -- ..." lines after it.
#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>

#include "base/text.h"
#include "sources/nccl/ras_report.h"

namespace lockstep {
namespace {

// Takes `prefix` off the front, if it is there.
bool eat(std::string_view& text, std::string_view prefix) {
  if (text.substr(0, prefix.size()) != prefix) return false;
  text.remove_prefix(prefix.size());
  return true;
}

std::optional<int64_t> eat_number(std::string_view& text) {
  int64_t value = 0;
  auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(stop - text.data()));
  return value;
}

std::vector<std::string_view> words(std::string_view line) {
  std::vector<std::string_view> found;
  for (std::string_view word : split(line, ' ')) {
    if (!word.empty()) found.push_back(word);
  }
  return found;
}

int32_t ncclresult_of(std::string_view name) {
  constexpr std::string_view kNames[] = {"Unhandled CUDA error",      "System error",  "Internal error",
                                         "Invalid argument",          "Invalid usage", "Remote process error",
                                         "NCCL operation in progress"};
  const auto* found = std::find(std::begin(kNames), std::end(kNames), name);
  return 1 + static_cast<int32_t>(found - std::begin(kNames));  // the one after the last: some other error
}

Function function_of(std::string_view name) {
  for (Function function : kRasFunctions) {
    if (name == to_text(function)) return function;
  }
  return Function::kUnknown;
}

class TextReport {
 public:
  Result<RasReport> read(std::string_view text) {
    size_t number = 0;
    bool ended = false;
    for (size_t begin = 0; begin < text.size() && wrong_.empty();) {
      size_t end = std::min(text.find('\n', begin), text.size());
      std::string_view line = trim(text.substr(begin, end - begin));
      begin = end + 1;
      if (++number == 1 && line.substr(0, kFirst.size()) != kFirst)
        return Error{"RAS text: it does not begin with NCCL's version"};
      if (has_control_characters(line)) return Error{format("RAS text: line %zu has control characters", number)};
      if (line == "Warnings") ended = true;
      read_line(line);
      if (!wrong_.empty()) return Error{format("RAS text: line %zu: %s", number, wrong_.c_str())};
    }
    if (!ended) return Error{"RAS text: it is cut short: the part with the warnings is missing"};
    finish();
    return std::move(report_);
  }

 private:
  static constexpr std::string_view kFirst = "NCCL version ";
  using Process = std::pair<std::string, int32_t>;  // host and pid

  enum class Topic { kNone, kMissing, kStatus, kCounts, kInitError, kAsyncError };

  void read_line(std::string_view line) {
    std::string_view rest = line;
    if (line.empty()) {
      in_table_ = false;
    } else if (eat(rest, kFirst)) {
      report_.nccl_version = checked(rest.substr(0, rest.find(' ')));
    } else if (eat(rest, "Communicators... (")) {
      std::optional<double> seconds = parse_double(rest.substr(0, rest.find('s')));
      if (seconds && *seconds > 0 && *seconds < 1e6) report_.collection_ms = static_cast<int64_t>(*seconds * 1e3);
    } else if (eat(rest, "Group ")) {
      in_table_ = true;
    } else if (in_table_) {
      read_group(words(line));
    } else if (eat(rest, "#")) {
      read_comm(rest);
    } else if (line == "DEAD" || line == "INCOMPLETE" || line == "TIMEOUT" || line == "Errors" || line == "Warnings") {
      comm_.reset();
      processes_ = line == "DEAD" ? &dead_ : line == "INCOMPLETE" ? &silent_ : nullptr;
    } else if (eat(rest, "Encountered ")) {
      report_.timeouts = eat_number(rest).value_or(0);
    } else if (eat(rest, "Process ")) {
      read_process(rest);
    } else if (comm_) {
      read_comm_line(line);
    }
  }

  // A row of the table: number, communicators, nodes, ranks per node, ranks per communicator, ...
  void read_group(const std::vector<std::string_view>& row) {
    if (row.size() < 8) return;
    std::optional<int64_t> group = parse_int(row[0]);
    std::optional<int64_t> comms = parse_int(row[1]);
    std::optional<int64_t> size = parse_int(row[4]);
    if (!group || !comms || !size) return;  // the second line of the heading
    bool sane = *group >= 0 && *comms >= 0 && *size > 0 && *size <= kRasCommSizeMax &&
                *comms + report_.comms_count <= static_cast<int64_t>(kRasCommsMax);
    if (!sane)
      return wrong(
          format("more than %zu communicators or %lld ranks", kRasCommsMax, static_cast<long long>(kRasCommSizeMax)));
    report_.comms_count += *comms;
    sizes_[*group] = *size;
  }

  // "0-1 (hash) MISMATCH", without its "#"
  void read_comm(std::string_view rest) {
    topic_ = Topic::kNone;
    processes_ = nullptr;
    std::optional<int64_t> group = eat_number(rest);
    bool dash = eat(rest, "-");
    std::optional<int64_t> index = eat_number(rest);
    uint64_t hash = 0;
    bool open = eat(rest, " (");
    auto [stop, error] = std::from_chars(rest.data(), rest.data() + rest.size(), hash, 16);
    bool close = stop != rest.data() + rest.size() && *stop == ')';
    if (!group || !dash || !index || !open || error != std::errc() || !close)
      return wrong("a communicator without number or hash");
    auto [place, is_new] = comm_places_.try_emplace({*group, *index}, report_.comms.size());
    comm_ = place->second;
    if (!is_new) return;
    if (report_.comms.size() >= kRasCommsMax) return wrong(format("more than %zu communicators", kRasCommsMax));
    RasComm& comm = report_.comms.emplace_back();
    comm.hash = hash;
    auto size = sizes_.find(*group);
    if (size != sizes_.end()) comm.size = size->second;
  }

  // "4242 on node 10.0.0.7 managing GPU 0"
  void read_process(std::string_view rest) {
    std::optional<int64_t> pid = eat_number(rest);
    if (processes_ == nullptr || !pid || *pid > INT32_MAX || !eat(rest, " on node ")) return;
    if (processes_->size() >= kRasRanksMax) return wrong(format("more than %zu processes", kRasRanksMax));
    processes_->insert({checked(rest.substr(0, rest.find(' '))), static_cast<int32_t>(*pid)});
  }

  void read_comm_line(std::string_view line) {
    std::string_view rest = line;
    if (eat(rest, "Missing communicator data")) {
      topic_ = Topic::kMissing;
    } else if (eat(rest, "Communicator ranks have different status")) {
      topic_ = Topic::kStatus;
    } else if (eat(rest, "Communicator ranks have different ")) {
      topic_ = Topic::kCounts;
      comm().mismatches.push_back({function_of(rest.substr(0, rest.find(' '))), {}});
    } else if (eat(rest, "Initialization error")) {
      topic_ = Topic::kInitError;
    } else if (eat(rest, "Asynchronous error")) {
      topic_ = Topic::kAsyncError;
    } else if (eat(rest, "The missing rank") || eat(rest, "The unknown rank")) {
      // NCCL 2.24 and 2.25: a list of numbers
      bool unresponsive = line.substr(4, 7) == "missing";
      rest.remove_prefix(std::min(rest.find(' '), rest.size()));
      for (std::string_view number : split(trim(rest), ',')) {
        std::optional<int64_t> rank = parse_int(number);
        if (!rank) return wrong("a list of ranks that is none");
        add_missing(*rank, unresponsive, {});
      }
    } else if (eat(rest, "Rank ")) {
      std::optional<int64_t> rank = eat_number(rest);
      if (!rank) return wrong("a rank without a number");
      size_t dashes = rest.find(" -- ");
      std::string_view peer = dashes == std::string_view::npos ? std::string_view() : rest.substr(dashes + 4);
      std::string_view claim = rest.substr(0, dashes);
      if (!claim.empty()) take_claim(trim(claim), 1);
      read_rank(*rank, peer);
    } else if (std::optional<int64_t> count = eat_number(rest); count && eat(rest, " ranks ")) {
      take_claim(rest, *count);
    }
  }

  // What is said of one rank ("has launched ...") or of the ranks that follow ("have launched ...").
  void take_claim(std::string_view claim, int64_t ranks_count) {
    if (!eat(claim, "has ")) eat(claim, "have ");
    if (eat(claim, "status ")) {
      status_ = claim;
    } else if (eat(claim, "reported ")) {
      error_ = ncclresult_of(claim);
    } else if (bool some = eat(claim, "launched up to operation "); some || claim == "not launched any operations") {
      std::optional<int64_t> count = some ? eat_number(claim) : 0;
      if (topic_ != Topic::kCounts || !count) return wrong("launches out of place");
      comm().mismatches.back().groups.push_back({static_cast<uint64_t>(*count), ranks_count, {}});
    }
  }

  void read_rank(int64_t rank, std::string_view peer) {
    if (topic_ == Topic::kMissing || (topic_ == Topic::kStatus && status_ == "NOCOMM"))
      return add_missing(rank, topic_ == Topic::kMissing, peer);
    if (topic_ == Topic::kNone || !may_add_rank(rank)) return;
    auto [place, is_new] = rank_places_.try_emplace({*comm_, rank}, comm().ranks.size());
    if (is_new) comm().ranks.emplace_back();
    RasRank& entry = comm().ranks[place->second];
    fill(entry, rank, peer);
    if (topic_ == Topic::kStatus) {
      entry.abort_flag = status_ == "ABORT";
      entry.finalize_called = status_ == "FINALIZE";
      if (status_ == "INIT" && entry.init_state == 0) entry.init_state = kInProgress;
    } else if (topic_ == Topic::kInitError) {
      entry.init_state = error_;
    } else if (topic_ == Topic::kAsyncError) {
      entry.async_error = error_;
    } else if (!comm().mismatches.back().groups.empty()) {
      comm().mismatches.back().groups.back().ranks_in_comm.push_back(entry.rank_in_comm);
    }
  }

  void add_missing(int64_t rank, bool unresponsive, std::string_view peer) {
    if (!may_add_rank(rank)) return;
    RasMissingRank& entry = comm().missing.emplace_back();
    entry.unresponsive = unresponsive;
    fill(entry, rank, peer);
  }

  bool may_add_rank(int64_t rank) {
    int64_t limit = comm().size > 0 ? comm().size : kRasCommSizeMax;
    if (rank < 0 || rank >= limit)
      wrong(format("rank %lld of a communicator of %lld", static_cast<long long>(rank), static_cast<long long>(limit)));
    // Counted each time a rank is named: it may be named once per function.
    if (++ranks_named_ > kRasRanksMax) wrong(format("more than %zu ranks", kRasRanksMax));
    return wrong_.empty();
  }

  // "GPU 3 (NVML 5) managed by process 4242 on node 10.0.0.7", or "[process information not found]"
  void fill(RasPeer& peer, int64_t rank, std::string_view reported) {
    peer.rank_in_comm = static_cast<int32_t>(rank);
    auto number = [&](int32_t& into) {
      std::optional<int64_t> value = eat_number(reported);
      if (value && *value <= INT32_MAX) into = static_cast<int32_t>(*value);
    };
    if (!eat(reported, "GPU ")) return;
    number(peer.cuda_dev);
    peer.nvml_dev = peer.cuda_dev;
    if (eat(reported, " (NVML ")) {
      number(peer.nvml_dev);
      eat(reported, ")");
    }
    if (!eat(reported, " managed by process ")) return;
    number(peer.pid);
    if (eat(reported, " on node ")) peer.host = checked(reported);
  }

  void finish() {
    for (RasComm& comm : report_.comms) {
      for (RasMissingRank& rank : comm.missing) {
        rank.considered_dead = dead_.contains({rank.host, rank.pid});
        rank.unresponsive |= rank.considered_dead || silent_.contains({rank.host, rank.pid});
      }
      for (RasMismatch& mismatch : comm.mismatches)
        std::stable_sort(
            mismatch.groups.begin(), mismatch.groups.end(),
            [](const RasCountGroup& left, const RasCountGroup& right) { return left.launched < right.launched; });
    }
    report_.comms_count = std::max(report_.comms_count, static_cast<int64_t>(report_.comms.size()));
  }

  std::string checked(std::string_view text) {
    if (text.size() > kRasStringMax) wrong(format("a name of over %zu bytes", kRasStringMax));
    return std::string(text.substr(0, kRasStringMax));
  }
  void wrong(std::string what) {
    if (wrong_.empty()) wrong_ = std::move(what);
  }
  RasComm& comm() { return report_.comms[*comm_]; }

  static constexpr int32_t kInProgress = 7;  // ncclInProgress

  RasReport report_;
  std::string wrong_;
  bool in_table_ = false;
  std::map<int64_t, int64_t> sizes_;                           // of the communicators of a group
  std::map<std::pair<int64_t, int64_t>, size_t> comm_places_;  // by group and number
  std::map<std::pair<size_t, int64_t>, size_t> rank_places_;   // by place of the communicator and rank
  std::optional<size_t> comm_;                                 // the one that lines are about
  Topic topic_ = Topic::kNone;
  std::string_view status_;  // what the last "ranks have status" or "ranks reported" said
  int32_t error_ = 0;
  std::set<Process>* processes_ = nullptr;  // which list "Process" lines belong to
  std::set<Process> dead_;
  std::set<Process> silent_;
  size_t ranks_named_ = 0;
};

}  // namespace

Result<RasReport> parse_ras_text(std::string_view text) {
  if (text.size() > kRasBytesMax)
    return Error{format("RAS text: %zu bytes are over the limit of %zu", text.size(), kRasBytesMax)};
  return TextReport().read(text);
}

}  // namespace lockstep
