#include "profile/read/trace_header.h"

#include <simdjson.h>

#include <algorithm>
#include <charconv>

#include "base/text.h"

namespace lockstep::profile {
namespace {

using Json = simdjson::dom::element;

constexpr int64_t kBaseTimeMax = 4'000'000'000'000'000'000;

int64_t integer_of(const Json& object, const char* key, int64_t otherwise = 0) {
  int64_t value = otherwise;
  if (object[key].get(value)) return otherwise;
  return value;
}
std::string text_of(const Json& object, const char* key) {
  std::string_view value;
  if (object[key].get(value)) return {};
  return std::string(value);
}

// Members that are a version, and how it is written: as one number CUDA has 12080 for 12.8, HIP 60342131 for 6.3.42131.
struct VersionKey {
  const char* key;
  const char* name;
  int64_t major;  // what the number is divided by; 0: it is a text
  int64_t minor;
};
constexpr VersionKey kVersionKeys[] = {
    {"cuda_runtime_version", "CUDA", 1000, 10},
    {"cuda_driver_version", "CUDA driver", 1000, 10},
    {"hip_runtime_version", "HIP", 10'000'000, 100'000},
    {"hip_driver_version", "HIP driver", 10'000'000, 100'000},
    {"pytorch_version", "PyTorch", 0, 0},  // not Kineto's own: added by prof.add_metadata_json
};
const VersionKey* version_key(std::string_view key) {
  const auto* const found = std::find_if(std::begin(kVersionKeys), std::end(kVersionKeys),
                                         [&](const VersionKey& one) { return one.key == key; });
  return found == std::end(kVersionKeys) ? nullptr : found;
}

void keep_version(const char* name, std::string_view text, TraceEvents& out) {
  if (text.empty() || text == "unknown") return;
  out.versions[name] = as_one_line(utf8_prefix(text, 60));
}
void read_version(const VersionKey& key, const Json& value, TraceEvents& out) {
  int64_t number = 0;
  std::string_view text;
  if (key.major > 0 && !value.get(number) && number >= key.major) {
    keep_version(key.name,
                 format("%lld.%lld", static_cast<long long>(number / key.major),
                        static_cast<long long>(number % key.major / key.minor)),
                 out);
  } else if (key.major == 0 && !value.get(text)) {
    keep_version(key.name, text, out);
  }
}

void read_devices(const Json& list, TraceEvents& out) {
  simdjson::dom::array devices;
  if (list.get(devices)) return;
  out.devices.clear();
  for (const Json device : devices) {
    out.devices.push_back({integer_of(device, "id"), text_of(device, "name"), integer_of(device, "numSms"),
                           integer_of(device, "totalGlobalMem"), integer_of(device, "computeMajor"),
                           integer_of(device, "computeMinor")});
  }
}

// Ranks are a list, or as the profiler of a daemon writes them, a text that is cut after 30.
std::vector<Rank> group_ranks(const Json& group) {
  std::string_view text;
  if (!group["ranks"].get(text)) return ranks_of_list(text);
  std::vector<Rank> ranks;
  simdjson::dom::array list;
  if (group["ranks"].get(list)) return ranks;
  for (const Json item : list) {
    int64_t rank = -1;
    if (item.get(rank) || rank < 0 || rank >= kRanksMost) return {};
    ranks.push_back(Rank{static_cast<int32_t>(rank)});
  }
  return ranks;
}

void read_distributed(const Json& info, TraceEvents& out) {
  const int64_t rank = integer_of(info, "rank", -1);
  if (rank >= 0 && rank < kRanksMost) out.rank = Rank{static_cast<int32_t>(rank)};
  out.world_size = std::clamp<int64_t>(integer_of(info, "world_size", out.world_size), 0, kRanksMost);
  if (std::string backend = text_of(info, "backend"); !backend.empty()) out.backend = std::move(backend);
  keep_version("NCCL", text_of(info, "nccl_version"), out);
  simdjson::dom::array groups;
  if (info["pg_config"].get(groups)) return;
  out.groups.clear();
  for (const Json group : groups) {
    out.groups.push_back({text_of(group, "pg_name"), text_of(group, "pg_desc"), group_ranks(group)});
  }
}

}  // namespace

void read_header_value(std::string_view key, std::string_view raw, TraceEvents& out) {
  const VersionKey* const version = version_key(key);
  const bool is_wanted = version != nullptr || key == "deviceProperties" || key == "distributedInfo" ||
                         key == "baseTimeNanoseconds" || key == "host_name" || key == "trace_id" ||
                         key == "PT_PROFILER_JOB_NAME";
  if (!is_wanted) return;
  simdjson::dom::parser parser;
  Json value;
  if (parser.parse(raw.data(), raw.size(), true).get(value)) return;
  std::string_view text;
  if (version != nullptr) read_version(*version, value, out);
  if (key == "deviceProperties") read_devices(value, out);
  if (key == "distributedInfo") read_distributed(value, out);
  if (key == "baseTimeNanoseconds") {
    int64_t base = 0;
    if (!value.get(base) && base >= 0 && base <= kBaseTimeMax) out.base_time_ns = base;
  }
  if (value.get(text)) return;
  if (key == "host_name") out.host = text;
  if (key == "trace_id") out.trace_id = text;
  if (key == "PT_PROFILER_JOB_NAME") out.job = text;
}

std::optional<Rank> rank_in_name(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  for (size_t at = name.find("rank"); at != std::string_view::npos; at = name.find("rank", at + 1)) {
    size_t digits = at + 4;
    if (digits < name.size() && (name[digits] == '-' || name[digits] == '_' || name[digits] == '.')) ++digits;
    int32_t rank = 0;
    const auto [stop, code] = std::from_chars(name.data() + digits, name.data() + name.size(), rank);
    if (code == std::errc() && rank >= 0 && rank < kRanksMost) return Rank{rank};
  }
  return std::nullopt;
}

std::vector<Rank> ranks_of_list(std::string_view text) {
  text = trim(text);
  if (text.size() < 2 || text.front() != '[' || text.back() != ']' || text.find("..") != std::string_view::npos) {
    return {};
  }
  std::vector<Rank> ranks;
  for (std::string_view part : split(text.substr(1, text.size() - 2), ',')) {
    const std::optional<int64_t> rank = parse_int(trim(part));
    if (!rank || *rank < 0 || *rank >= kRanksMost) return {};
    ranks.push_back(Rank{static_cast<int32_t>(*rank)});
  }
  return ranks;
}

}  // namespace lockstep::profile
