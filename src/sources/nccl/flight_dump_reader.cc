#include "sources/nccl/flight_dump_reader.h"

#include <algorithm>
#include <map>

#include "base/pickle_reader.h"
#include "base/text.h"
#include "model/events.h"
#include "model/rank_text.h"

namespace lockstep {
namespace {

constexpr int64_t kElementsMost = INT64_MAX / 64;
constexpr int64_t kSeqMost = 1'000'000'000'000'000;
constexpr size_t kSizesShown = 8;  // tensors, and numbers of each

std::string text_of(PickleValue value) {
  const std::optional<std::string_view> text = value.text();
  return text ? as_one_line(utf8_prefix(*text, kEvidenceTextMax)) : std::string();
}

int64_t int_of(PickleValue value, int64_t fallback) {
  if (std::optional<int64_t> whole = value.integer()) return *whole;
  // Some versions write numbers as text.
  if (std::optional<std::string_view> text = value.text()) return parse_int(*text).value_or(fallback);
  return fallback;
}

int64_t seq_of(PickleValue entry) {
  return std::clamp<int64_t>(int_of(entry["collective_seq_id"], int_of(entry["seq_id"], -1)), -1, kSeqMost);
}

// "nccl:all_reduce" -> "all_reduce"
std::string operation_name(PickleValue value) {
  const std::string name = text_of(value);
  const size_t colon = name.find(':');
  return colon == std::string::npos ? name : name.substr(colon + 1);
}

OpState state_of(PickleValue value) {
  const std::string_view state = value.text().value_or("");
  return state == "completed" ? OpState::kCompleted : state == "started" ? OpState::kStarted : OpState::kEnqueued;
}

// "[[3, 4], [2]]", and how many elements that are in all.
std::string sizes_text(PickleValue tensors, int64_t& elements) {
  std::string text = "[";
  elements = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const PickleValue tensor = tensors.at(i);
    int64_t product = 1;
    std::string dimensions;
    for (size_t j = 0; j < tensor.size(); ++j) {
      const int64_t length = std::clamp<int64_t>(tensor.at(j).integer().value_or(0), 0, kElementsMost);
      product = length != 0 && product > kElementsMost / length ? kElementsMost : product * length;
      if (j < kSizesShown) dimensions += format("%s%lld", j == 0 ? "" : ", ", static_cast<long long>(length));
      if (j == kSizesShown) dimensions += ", ...";
    }
    elements = std::min(kElementsMost, elements + product);
    if (i < kSizesShown) text += format("%s[%s]", i == 0 ? "" : ", ", dimensions.c_str());
    if (i == kSizesShown) text += ", ...";
  }
  return text + "]";
}

std::vector<StackFrame> frames_of(PickleValue list) {
  std::vector<StackFrame> frames;
  for (size_t i = 0; i < std::min<size_t>(list.size(), kStackFramesMax); ++i) {
    const PickleValue frame = list.at(i);
    frames.push_back({text_of(frame["name"]), text_of(frame["filename"]),
                      static_cast<int32_t>(std::clamp<int64_t>(int_of(frame["line"], 0), 0, INT32_MAX))});
  }
  return frames;
}

DumpOp op_of(PickleValue entry) {
  DumpOp op;
  op.seq = seq_of(entry);
  op.name = operation_name(entry["profiling_name"]);
  op.sizes = sizes_text(entry["input_sizes"], op.elements);
  op.dtype = text_of(entry["input_dtypes"].at(0));
  op.state = state_of(entry["state"]);
  op.created_unix_ns = std::max<int64_t>(0, int_of(entry["time_created_ns"], 0));
  const std::vector<StackFrame> frames = frames_of(entry["frames"]);
  if (const StackFrame* caller = users_frame(frames)) op.caller = *caller;
  return op;
}

// "[0, 1]" as PyTorch writes them, or a list.
std::vector<Rank> members_of(PickleValue value) {
  std::vector<Rank> ranks;
  auto add = [&](std::optional<int64_t> rank) {
    if (rank && *rank >= 0 && *rank <= INT32_MAX && ranks.size() < kGroupRanksMax)
      ranks.push_back(Rank{static_cast<int32_t>(*rank)});
  };
  if (std::optional<std::string_view> text = value.text()) {
    std::string_view list = trim(*text);
    if (list.starts_with('[') && list.ends_with(']')) list = list.substr(1, list.size() - 2);
    for (std::string_view word : split(list, ',')) add(parse_int(trim(word)));
  }
  for (size_t i = 0; i < (value.is_list() ? value.size() : 0); ++i) add(value.at(i).integer());
  return ranks;
}

struct Collected {
  PickleValue config;
  int64_t number = -1;  // by which pg_status knows it
  std::string desc;
  std::vector<PickleValue> collectives;
};

bool in_flight(const DumpGroup& group) {
  return std::any_of(group.ops.begin(), group.ops.end(),
                     [](const DumpOp& op) { return op.state != OpState::kCompleted; });
}

// What another rank's place is compared with: the newest complete before the first that is not, some that are not, and
// the newest.
void choose_ops(const std::vector<PickleValue>& collectives, DumpGroup& group) {
  struct Place {
    int64_t seq;
    bool completed;
    PickleValue entry;
  };
  std::vector<Place> places;
  for (PickleValue entry : collectives) {
    const int64_t seq = seq_of(entry);
    const OpState state = state_of(entry["state"]);
    if (seq < 0) continue;
    places.push_back({seq, state == OpState::kCompleted, entry});
    group.last_enqueued = std::max(group.last_enqueued, seq);
    if (state != OpState::kEnqueued) group.last_started = std::max(group.last_started, seq);
    if (state == OpState::kCompleted) group.last_completed = std::max(group.last_completed, seq);
  }
  std::stable_sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.seq < b.seq; });
  size_t first = 0;
  while (first < places.size() && places[first].completed) ++first;
  const size_t begin = first == 0 ? 0 : first - 1;
  for (size_t i = begin; i < places.size() && group.ops.size() < kDumpOpsMax - 1; ++i)
    group.ops.push_back(op_of(places[i].entry));
  if (!places.empty() && places.size() > begin + group.ops.size()) group.ops.push_back(op_of(places.back().entry));
}

}  // namespace

namespace {

using Groups = std::map<std::string, Collected, std::less<>>;  // by name

Groups groups_of(PickleValue config) {
  Groups groups;
  for (size_t i = 0; i < config.size(); ++i) {
    const std::optional<std::string_view> name = config.key(i).text();
    if (!name || groups.size() >= kGroupRanksMax) continue;
    Collected& group = groups[std::string(name->substr(0, kEvidenceTextMax))];
    group.config = config.at(i);
    group.desc = text_of(config.at(i)["desc"]);
  }
  return groups;
}

// Gives how many of the entries are sends and receives, which belong to no collective.
int64_t sort_entries(PickleValue entries, Groups& groups) {
  int64_t p2p = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const PickleValue entry = entries.at(i);
    const PickleValue named = entry["process_group"];
    Collected& group = groups[named.is_list() ? text_of(named.at(0)) : text_of(entry["pg_name"])];
    group.number = int_of(entry["pg_id"], -1);
    if (group.desc.empty() && named.is_list()) group.desc = text_of(named.at(1));
    if (entry["is_p2p"].boolean().value_or(false)) {
      ++p2p;
      continue;
    }
    group.collectives.push_back(entry);
  }
  return p2p;
}

DumpGroup dump_group(const std::string& name, const Collected& collected, PickleValue status) {
  DumpGroup group{.name = as_one_line(name), .desc = collected.desc};
  const std::vector<Rank> members = members_of(collected.config["ranks"]);
  group.size = static_cast<int64_t>(members.size());
  group.ranks = ranks_text(members);
  if (group.ranks.size() > kDumpRanksTextMax) group.ranks.clear();
  choose_ops(collected.collectives, group);
  // Where all of its operations have left the ring, the counts are what remains.
  const PickleValue counts = status[collected.number >= 0 ? std::to_string(collected.number) : name];
  if (group.ops.empty() && counts.is_dict()) {
    auto count = [&](const char* key) { return std::clamp<int64_t>(int_of(counts[key], -1), -1, kSeqMost); };
    group.last_enqueued = count("last_enqueued_collective");
    group.last_started = count("last_started_collective");
    group.last_completed = count("last_completed_collective");
  }
  return group;
}

// The groups in which something is under way matter most, and of those the ones that were used last.
bool matters_more(const DumpGroup& a, const DumpGroup& b) {
  if (in_flight(a) != in_flight(b)) return in_flight(a);
  const int64_t a_ns = a.ops.empty() ? 0 : a.ops.back().created_unix_ns;
  const int64_t b_ns = b.ops.empty() ? 0 : b.ops.back().created_unix_ns;
  return a_ns > b_ns;
}

}  // namespace

Result<FlightDump> read_flight_dump(std::string bytes_untrusted) {
  Pickle pickle = LOCKSTEP_TRY(Pickle::parse_untrusted(
      std::move(bytes_untrusted), {.bytes_max = kFlightDumpBytesMax, .values_max = kFlightDumpValuesMax}));
  const PickleValue root = pickle.root();
  const PickleValue entries = root["entries"], config = root["pg_config"], status = root["pg_status"];
  if (!root.is_dict() || (!entries.is_list() && !config.is_dict()))
    return Error{"a pickle, but no dump of PyTorch's Flight Recorder (neither entries nor pg_config)"};
  FlightDump dump;
  dump.version = text_of(root["version"]);
  dump.entries = static_cast<int64_t>(entries.size());
  Groups groups = groups_of(config);
  dump.p2p = sort_entries(entries, groups);
  for (const auto& [name, collected] : groups) {
    DumpGroup group = dump_group(name, collected, status);
    if (!group.ops.empty() || group.last_enqueued >= 0) dump.groups.push_back(std::move(group));
  }
  std::stable_sort(dump.groups.begin(), dump.groups.end(), matters_more);
  if (dump.groups.size() > kDumpGroupsMax) dump.groups.resize(kDumpGroupsMax);
  const PickleValue newest = entries.size() > 0 ? entries.at(entries.size() - 1) : PickleValue();
  if (newest.is_dict()) {
    dump.last = op_of(newest);
    dump.last_group = text_of(newest["process_group"].at(0));
    dump.frames = frames_of(newest["frames"]);
  }
  return dump;
}

std::optional<Rank> rank_of_dump(std::string_view file) {
  size_t begin = file.size();
  while (begin > 0 && file[begin - 1] >= '0' && file[begin - 1] <= '9') --begin;
  const std::optional<int64_t> rank = parse_int(file.substr(begin));
  if (!rank || *rank > 10'000'000) return std::nullopt;
  return Rank{static_cast<int32_t>(*rank)};
}

}  // namespace lockstep
