#include "sim/replay/recording.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>

#include "base/files.h"
#include "base/text.h"
#include "model/rank_text.h"
#include "wire/compression.h"

namespace lockstep::replay {
namespace {

// Ranks of one machine share a monotonic clock; their anchors then differ only by the time between two clock readings.
constexpr int64_t kSameClockNs = 1'000'000;

struct File {
  std::string path;
  Encoding encoding = Encoding::kIdentity;
};

// "rank12.calls.zst" -> 12 for prefix "rank", suffix ".calls".
std::optional<int64_t> number_in(std::string_view name, std::string_view prefix, std::string_view suffix,
                                 Encoding& encoding) {
  encoding = Encoding::kIdentity;
  if (name.ends_with(".zst")) {
    encoding = Encoding::kZstd;
    name.remove_suffix(4);
  } else if (name.ends_with(".gz")) {
    encoding = Encoding::kGzip;
    name.remove_suffix(3);
  }
  if (!name.starts_with(prefix) || !name.ends_with(suffix) || name.size() <= prefix.size() + suffix.size()) return {};
  const std::optional<uint64_t> number =
      parse_uint(name.substr(prefix.size(), name.size() - prefix.size() - suffix.size()));
  if (!number || *number > INT32_MAX) return {};
  return static_cast<int64_t>(*number);
}

Result<std::string> read_unpacked(const File& file) {
  Result<std::string> bytes = read_file(file.path, kCallsBytesMax);
  if (!bytes.ok() || file.encoding == Encoding::kIdentity) return bytes;
  Result<std::string> text = decompress(file.encoding, *bytes, kCallsBytesMax);
  if (!text.ok()) return prefixed(text.failure(), file.path + ": ");
  return text;
}

uint64_t fnv1a(uint64_t hash, std::string_view text) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

Result<RankRecording> load_rank(const File& calls_file, const File* steps_file, bool skip_bad, uint64_t& hash,
                                std::vector<std::string>& notes) {
  RankRecording rank;
  std::string text = LOCKSTEP_TRY(read_unpacked(calls_file));
  rank.text = std::make_unique<std::string>(std::move(text));
  hash = fnv1a(hash, *rank.text);
  rank.calls = LOCKSTEP_TRY(parse_calls(*rank.text, calls_file.path, skip_bad));
  if (rank.calls.bad_lines > 0) {
    notes.push_back(format("%llu malformed lines skipped, the first: %s",
                           static_cast<unsigned long long>(rank.calls.bad_lines), rank.calls.first_bad.c_str()));
  }
  if (!steps_file) return rank;
  std::string json = LOCKSTEP_TRY(read_unpacked(*steps_file));
  hash = fnv1a(hash, json);
  Result<std::vector<LoggedStep>> steps = parse_steps(json, steps_file->path);
  if (steps.ok()) {
    rank.steps = std::move(*steps);
    rank.has_steps = true;
  } else if (skip_bad) {
    notes.push_back("step log skipped: " + steps.error());
  } else {
    return steps.failure();
  }
  return rank;
}

// Brings every rank onto the first rank's clock and measures the span of it all.
void align(Recording& recording) {
  const auto unix_minus_monotonic = [](const RankRecording& rank) {
    return static_cast<int64_t>(rank.calls.who.realtime_ns - rank.calls.who.time_ns);
  };
  bool empty = true;
  const auto include = [&](const RankRecording& rank, uint64_t time_ns) {
    time_ns += static_cast<uint64_t>(rank.to_common_ns);
    recording.first_ns = empty ? time_ns : std::min(recording.first_ns, time_ns);
    recording.last_ns = empty ? time_ns : std::max(recording.last_ns, time_ns);
    empty = false;
  };
  for (RankRecording& rank : recording.ranks) {
    const int64_t difference = static_cast<int64_t>(static_cast<uint64_t>(unix_minus_monotonic(rank)) -
                                                    static_cast<uint64_t>(unix_minus_monotonic(recording.ranks[0])));
    rank.to_common_ns = difference > -kSameClockNs && difference < kSameClockNs ? 0 : difference;
    for (const Call& call : rank.calls.calls) include(rank, call.time_ns);
    for (const LoggedStep& step : rank.steps) {
      include(rank, step.begin_ns);
      include(rank, step.begin_ns + step.length_ns);
    }
    recording.calls_total += rank.calls.calls.size();
  }
}

}  // namespace

Result<Recording> load_recording(const std::string& directory, const RecordingOptions& options) {
  const std::vector<std::string> names = LOCKSTEP_TRY(list_directory(directory));
  std::map<int64_t, File> calls_files, steps_files;
  for (const std::string& name : names) {
    Encoding encoding;
    for (const auto& [prefix, suffix, files] :
         {std::tuple("rank", ".calls", &calls_files), std::tuple("steps_rank", ".json", &steps_files)}) {
      const std::optional<int64_t> number = number_in(name, prefix, suffix, encoding);
      if (!number) continue;
      if (!files->emplace(*number, File{directory + "/" + name, encoding}).second) {
        return Error{format("%s: there twice, plain and packed; keep one", (directory + "/" + name).c_str())};
      }
    }
  }
  if (calls_files.empty()) return Error{directory + ": no rankR.calls, rankR.calls.zst or rankR.calls.gz in it"};

  Recording recording;
  recording.content_hash = 0xcbf29ce484222325;
  std::vector<Rank> without_steps;
  for (const auto& [number, calls_file] : calls_files) {
    const auto steps = steps_files.find(number);
    RankRecording rank = LOCKSTEP_TRY(load_rank(calls_file, steps == steps_files.end() ? nullptr : &steps->second,
                                                options.skip_bad, recording.content_hash, recording.notes));
    if (!rank.has_steps) without_steps.push_back(Rank{rank.calls.who.rank});
    recording.ranks.push_back(std::move(rank));
  }
  const auto rank_of = [](const RankRecording& rank) { return rank.calls.who.rank; };
  std::sort(recording.ranks.begin(), recording.ranks.end(),
            [&](const auto& a, const auto& b) { return rank_of(a) < rank_of(b); });
  const int world = recording.ranks[0].calls.who.world;
  for (size_t i = 0; i < recording.ranks.size(); ++i) {
    if (i > 0 && rank_of(recording.ranks[i]) == rank_of(recording.ranks[i - 1])) {
      return Error{format("%s: two files say that they are rank %d", directory.c_str(), rank_of(recording.ranks[i]))};
    }
    if (recording.ranks[i].calls.who.world != world) {
      return Error{format("%s: rank %d says %d ranks, rank %d says %d: not one job", directory.c_str(),
                          rank_of(recording.ranks[0]), world, rank_of(recording.ranks[i]),
                          recording.ranks[i].calls.who.world)};
    }
  }
  if (!without_steps.empty()) {
    recording.notes.push_back("no step log for rank " + human_ranks(without_steps) + ": no step marks there");
  }
  if (recording.ranks.size() < static_cast<size_t>(world)) {
    recording.notes.push_back(format("%zu of %d ranks are in the recording", recording.ranks.size(), world));
  }
  align(recording);
  if (recording.calls_total == 0) return Error{directory + ": no callbacks in it, nothing to play"};
  return recording;
}

}  // namespace lockstep::replay
