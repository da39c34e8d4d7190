#include "profile/analysis.h"

#include <algorithm>
#include <map>
#include <thread>

#include "base/text.h"
#include "profile/read/trace_header.h"

namespace lockstep::profile {
namespace {

struct OneRead {
  std::optional<RankProfile> profile;
  std::string error;
};

OneRead read_one(const TraceInput& input, const AnalyzeOptions& options) {
  OneRead out;
  Result<TraceEvents> events = Error{""};
  if (input.read) {
    events = input.read(options.read);
  } else {
    Result<std::unique_ptr<ByteSource>> source = input.open();
    if (!source.ok()) {
      out.error = source.error();
      return out;
    }
    events = read_trace(std::move(*source), options.read);
  }
  if (!events.ok()) {
    out.error = input.label + ": " + events.error();
    return out;
  }
  RankProfile profile;
  profile.label = input.label;
  profile.events = std::make_unique<const TraceEvents>(std::move(*events));
  profile.index = index_rank(*profile.events, options.index);
  profile.breakdown = break_down(profile.index, options.breakdown);
  out.profile = std::move(profile);
  return out;
}

std::vector<OneRead> read_all(const std::vector<TraceInput>& inputs, const AnalyzeOptions& options) {
  std::vector<OneRead> reads(inputs.size());
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < inputs.size(); i = next++) reads[i] = read_one(inputs[i], options);
  };
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  const size_t threads = std::min(options.threads == 0 ? cores : options.threads, inputs.size());
  std::vector<std::jthread> helpers;
  for (size_t i = 1; i < threads; ++i) helpers.emplace_back(work);
  work();
  return reads;
}

void note_reading(const RankProfile& profile, std::vector<std::string>& notes) {
  const ReadCounts& counts = profile.events->counts;
  if (counts.bad > 0) {
    notes.push_back(format("%s: %s of %s events are not JSON and were left out (the first at byte %s: %s)",
                           profile.label.c_str(), with_thousands(static_cast<int64_t>(counts.bad)).c_str(),
                           with_thousands(static_cast<int64_t>(counts.events)).c_str(),
                           with_thousands(static_cast<int64_t>(counts.first_bad_at)).c_str(),
                           counts.first_bad.c_str()));
  }
  if (counts.truncated) {
    notes.push_back(format("%s: breaks off after %s events%s%s", profile.label.c_str(),
                           with_thousands(static_cast<int64_t>(counts.events)).c_str(),
                           counts.bad == 0 && !counts.first_bad.empty() ? ": " : "",
                           counts.bad == 0 ? counts.first_bad.c_str() : ""));
  }
  if (counts.too_many > 0) {
    notes.push_back(format("%s: %s events over the limit were left out", profile.label.c_str(),
                           with_thousands(static_cast<int64_t>(counts.too_many)).c_str()));
  }
}

// What the caller knows, what the trace says, what its name says, else the first that is free.
void number_ranks(const std::vector<TraceInput>& inputs, std::vector<OneRead>& reads) {
  std::map<Rank, size_t> taken;
  std::vector<size_t> without;
  for (size_t i = 0; i < reads.size(); ++i) {
    if (!reads[i].profile) continue;
    RankProfile& profile = *reads[i].profile;
    std::optional<Rank> rank = inputs[i].rank;
    // Traces on demand of a job without NCCL say no rank, and tools that write traces say 0: the name knows better.
    const std::optional<Rank> named = rank_in_name(inputs[i].label);
    if (!rank && profile.events->rank != kNoRank && !(named && taken.contains(profile.events->rank)))
      rank = profile.events->rank;
    if (!rank) rank = named;
    if (rank && taken.try_emplace(*rank, i).second) {
      profile.rank = *rank;
    } else {
      without.push_back(i);
    }
  }
  Rank next{0};
  for (size_t i : without) {
    while (taken.contains(next)) ++next;
    taken[next] = i;
    reads[i].profile->rank = next;
  }
}

}  // namespace

Result<ProfileAnalysis> analyze(const std::vector<TraceInput>& inputs, const AnalyzeOptions& options) {
  std::vector<OneRead> reads = read_all(inputs, options);
  ProfileAnalysis out;
  number_ranks(inputs, reads);
  for (OneRead& read : reads) {
    if (!read.profile) {
      out.notes.push_back(read.error);
      continue;
    }
    note_reading(*read.profile, out.notes);
    out.bytes += read.profile->events->counts.bytes;
    out.events += read.profile->events->counts.events;
    out.world_size = std::max(out.world_size, read.profile->events->world_size);
    out.ranks.push_back(std::move(*read.profile));
  }
  if (out.ranks.empty()) return Error{out.notes.empty() ? "no trace was given" : out.notes.front()};
  std::sort(out.ranks.begin(), out.ranks.end(),
            [](const RankProfile& a, const RankProfile& b) { return a.rank < b.rank; });
  if (out.ranks.size() > 1 && out.world_size > static_cast<int64_t>(out.ranks.size())) {
    out.notes.push_back(format("traces of %zu of %s ranks: a rank that is not here cannot be named", out.ranks.size(),
                               with_thousands(out.world_size).c_str()));
  }
  out.collectives = match_collectives(out.ranks);
  out.path = critical_path(out.ranks, out.collectives);
  out.verdict = judge(out.ranks, out.collectives);
  return out;
}

}  // namespace lockstep::profile
