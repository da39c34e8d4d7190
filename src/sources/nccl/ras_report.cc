// The JSON form of a RAS report. The text form is in ras_report_text.cc.
#include "sources/nccl/ras_report.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <optional>

#include "base/json_reader.h"
#include "base/text.h"

namespace lockstep {
namespace {

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

// NCCL 2.28.7 and 2.28.9 write, in a missing rank, `"nvml_dev": 3` and then `"status"` without a comma between. Puts it
// there and nowhere else. The pattern cannot lie inside a string: there, quotes have a backslash before them.
std::string with_missing_commas(std::string_view text) {
  constexpr std::string_view kBefore = "\"nvml_dev\":";
  constexpr std::string_view kAfter = "\"status\"";
  std::string repaired;
  size_t copied = 0;
  for (size_t found = text.find(kBefore); found != std::string_view::npos; found = text.find(kBefore, found + 1)) {
    size_t at = found + kBefore.size();
    while (at < text.size() && is_space(text[at])) ++at;
    size_t number = at;
    while (at < text.size() && ((text[at] >= '0' && text[at] <= '9') || text[at] == '-')) ++at;
    size_t number_end = at;
    while (at < text.size() && is_space(text[at])) ++at;
    if (number_end == number || text.substr(at, kAfter.size()) != kAfter) continue;
    repaired.append(text.substr(copied, number_end - copied));
    repaired += ',';
    copied = number_end;
  }
  repaired.append(text.substr(copied));
  return repaired;
}

std::optional<uint64_t> hash_of(const JsonValue& value) {
  if (std::optional<uint64_t> number = value.unsigned_integer()) return number;
  std::optional<std::string> text = value.string();
  if (!text || text->size() < 3 || text->compare(0, 2, "0x") != 0) return std::nullopt;
  uint64_t hash = 0;
  const char* end = text->data() + text->size();
  auto [stop, error] = std::from_chars(text->data() + 2, end, hash, 16);
  if (error != std::errc() || stop != end) return std::nullopt;
  return hash;
}

// Groups the ranks by what they have launched of one function; equal everywhere is no mismatch. The function after the
// last of kRasFunctions stands for those that have no name here.
void add_mismatch(RasComm& comm, size_t function) {
  bool named = function < kRasFunctions.size();
  std::map<uint64_t, std::vector<int32_t>> ranks_by_count;
  for (const RasRank& rank : comm.ranks)
    ranks_by_count[named ? rank.counts.by_function[function] : rank.counts.other].push_back(rank.rank_in_comm);
  if (ranks_by_count.size() < 2) return;
  RasMismatch mismatch{named ? kRasFunctions[function] : Function::kUnknown, {}};
  for (auto& [count, ranks] : ranks_by_count) {
    std::sort(ranks.begin(), ranks.end());
    int64_t ranks_count = static_cast<int64_t>(ranks.size());
    mismatch.groups.push_back({count, ranks_count, std::move(ranks)});
  }
  comm.mismatches.push_back(std::move(mismatch));
}

// Walks the document and remembers the first thing that is wrong, and where.
class JsonReport {
 public:
  Result<RasReport> read(const JsonValue& root) {
    if (!root["communicators"].is_array()) return Error{"RAS JSON: there is no list of communicators in it"};
    report_.counts_reported = true;
    string(root, "nccl_version", report_.nccl_version);
    string(root, "timestamp", report_.timestamp);
    integer(root, "communicators_count", report_.comms_count, 0, kRasCommsMax);
    integer(root["ras"], "timeouts_count", report_.timeouts, 0, INT32_MAX);
    double seconds = root["ras"]["collection_time_sec"].number().value_or(0);
    if (seconds > 0 && seconds < 1e6) report_.collection_ms = static_cast<int64_t>(seconds * 1e3);
    for (JsonValue comm : root["communicators"]) {
      place_ = format("communicator %zu", report_.comms.size());
      if (report_.comms.size() >= kRasCommsMax) wrong(format("more than %zu communicators", kRasCommsMax));
      if (!wrong_.empty()) break;
      report_.comms.push_back(read_comm(comm));
    }
    if (!wrong_.empty()) return Error{std::move(wrong_)};
    report_.comms_count = std::max(report_.comms_count, static_cast<int64_t>(report_.comms.size()));
    return std::move(report_);
  }

 private:
  RasComm read_comm(const JsonValue& value) {
    RasComm comm;
    std::optional<uint64_t> hash = hash_of(value["hash"]);
    if (!hash) wrong("no hash");
    comm.hash = hash.value_or(0);
    integer(value, "size", comm.size, 1, kRasCommSizeMax);
    if (comm.size == 0) wrong("no size");
    const std::string comm_place = place_;
    for (JsonValue item : value["ranks"]) {
      place_ = format("%s, entry %zu of ranks", comm_place.c_str(), comm.ranks.size());
      if (!may_add_rank()) return comm;
      RasRank& rank = comm.ranks.emplace_back();
      read_peer(item, comm.size, rank);
      JsonValue status = item["status"];
      integer(status, "init_state", rank.init_state, INT32_MIN, INT32_MAX);
      integer(status, "async_error", rank.async_error, INT32_MIN, INT32_MAX);
      boolean(status, "finalize_called", rank.finalize_called);
      boolean(status, "destroy_flag", rank.destroy_flag);
      boolean(status, "abort_flag", rank.abort_flag);
      read_counts(item["collective_counts"], rank.counts);
    }
    for (JsonValue item : value["missing_ranks"]) {
      place_ = format("%s, entry %zu of missing_ranks", comm_place.c_str(), comm.missing.size());
      if (!may_add_rank()) return comm;
      RasMissingRank& rank = comm.missing.emplace_back();
      read_peer(item, comm.size, rank);
      boolean(item["status"], "unresponsive", rank.unresponsive);
      boolean(item["status"], "considered_dead", rank.considered_dead);
    }
    for (size_t function = 0; function <= kRasFunctions.size(); ++function) add_mismatch(comm, function);
    return comm;
  }

  bool may_add_rank() {
    if (++ranks_count_ > kRasRanksMax) wrong(format("more than %zu ranks in all", kRasRanksMax));
    return wrong_.empty();
  }

  void read_peer(const JsonValue& value, int64_t comm_size, RasPeer& peer) {
    integer(value, "rank", peer.rank_in_comm, 0, comm_size - 1);
    if (peer.rank_in_comm < 0) wrong("no rank");
    string(value, "host", peer.host);
    integer(value, "pid", peer.pid, -1, INT32_MAX);
    integer(value, "cuda_dev", peer.cuda_dev, -1, INT32_MAX);
    integer(value, "nvml_dev", peer.nvml_dev, -1, INT32_MAX);
  }

  void read_counts(const JsonValue& value, RasCounts& counts) {
    for (JsonValue member : value) {
      std::string name = member.key();
      std::optional<uint64_t> count = member.unsigned_integer();
      if (!count) return wrong("a collective count is not a whole number");
      auto known = std::find_if(kRasFunctions.begin(), kRasFunctions.end(),
                                [&](Function function) { return name == to_text(function); });
      if (known == kRasFunctions.end()) {
        counts.other += *count;
      } else {
        counts.by_function[static_cast<size_t>(known - kRasFunctions.begin())] = *count;
      }
    }
  }

  void wrong(std::string_view what) {
    if (wrong_.empty())
      wrong_ = format("RAS JSON: %s: %.*s", place_.c_str(), static_cast<int>(what.size()), what.data());
  }

  // Each leaves `into` as it is where the field is not told.
  template <typename T>
  void integer(const JsonValue& object, const char* name, T& into, int64_t min, int64_t max) {
    JsonValue value = object[name];
    if (!value.present()) return;
    std::optional<int64_t> number = value.integer();
    if (!number) return wrong(format("%s is not a whole number", name));
    if (*number < min || *number > max)
      return wrong(format("%s is %lld (limits %lld and %lld)", name, static_cast<long long>(*number),
                          static_cast<long long>(min), static_cast<long long>(max)));
    into = static_cast<T>(*number);
  }
  void boolean(const JsonValue& object, const char* name, bool& into) {
    JsonValue value = object[name];
    if (!value.present()) return;
    std::optional<bool> reported = value.boolean();
    if (!reported) return wrong(format("%s is neither true nor false", name));
    into = *reported;
  }
  void string(const JsonValue& object, const char* name, std::string& into) {
    JsonValue value = object[name];
    if (!value.present()) return;
    std::optional<std::string> reported = value.string();
    if (!reported || reported->size() > kRasStringMax || has_control_characters(*reported))
      return wrong(format("%s is not a plain string of at most %zu bytes", name, kRasStringMax));
    into = std::move(*reported);
  }

  RasReport report_;
  size_t ranks_count_ = 0;
  std::string place_ = "the report";
  std::string wrong_;
};

}  // namespace

uint64_t RasCounts::launched() const {
  return std::accumulate(by_function.begin(), by_function.end(), other);
}

Result<RasReport> parse_ras_json(std::string_view text) {
  if (text.size() > kRasBytesMax)
    return Error{format("RAS JSON: %zu bytes are over the limit of %zu", text.size(), kRasBytesMax)};
  Result<JsonDocument> document = JsonDocument::parse(text, {.bytes_max = text.size()});
  if (document) return JsonReport().read(document->root());
  // Only a text that is not JSON as it stands is worth repairing.
  std::string repaired = with_missing_commas(text);
  Result<JsonDocument> second = JsonDocument::parse(repaired, {.bytes_max = repaired.size()});
  if (!second) return prefixed(document.failure(), "RAS ");
  return JsonReport().read(second->root());
}

}  // namespace lockstep
