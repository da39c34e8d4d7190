#include "analysis/lines/line_difference.h"

#include <algorithm>
#include <array>
#include <set>
#include <tuple>

#include "base/text.h"
#include "model/rank_text.h"

namespace lockstep {
namespace {

// Of the largest difference: callees of the line that is looked for have all of it, what they call in turn less.
constexpr double kMostOfIt = 0.6;
constexpr size_t kLinesMax = 200;

using Key = std::tuple<ThreadRole, std::string, std::string, int32_t>;  // role, file, function, line
struct Share {
  double with = 0, own = 0;
  size_t depth = 0;  // the deepest place from the outermost
};
using Shares = std::map<Key, Share>;

Key key_of(ThreadRole role, const StackFrame& frame, bool by_line) {
  return {role, frame.file, frame.function, by_line ? frame.line : 0};
}

StackFrame frame_of(const Key& key) {
  return {std::get<2>(key), std::get<1>(key), std::get<3>(key)};
}

// Where Python's own library waits until somebody hands it something.
bool waits_for_work(const StackFrame& frame) {
  for (std::string_view file :
       {"/threading.py", "/queue.py", "/selectors.py", "/socketserver.py", "/multiprocessing/connection.py",
        "/multiprocessing/queues.py", "/multiprocessing/popen_fork.py", "/concurrent/futures/thread.py"}) {
    if (frame.file.ends_with(file)) return true;
  }
  return false;
}

// Worker processes do the same side by side: their mean, so that four of them are not four times as slow.
std::array<double, 3> weights(const RankSamples& samples) {
  std::set<int32_t> workers;
  for (const SampledThread& thread : samples.threads) {
    if (thread.role == ThreadRole::kWorker) workers.insert(thread.pid);
  }
  const double looks = static_cast<double>(std::max<int64_t>(1, samples.looks));
  return {1 / looks, 1 / looks, 1 / looks / static_cast<double>(std::max<size_t>(1, workers.size()))};
}

Shares shares_of(const RankSamples& samples, bool by_line) {
  Shares shares;
  const std::array<double, 3> weight = weights(samples);
  for (const CountedStack& stack : samples.stacks) {
    const ThreadRole role = samples.threads[stack.thread].role;
    if (stack.frames.empty() || (role != ThreadRole::kMain && waits_for_work(samples.frames[stack.frames.front()])))
      continue;
    const double part = static_cast<double>(stack.count) * weight[static_cast<size_t>(role)];
    std::set<Key> seen;  // a recursion counts once
    for (size_t i = 0; i < stack.frames.size(); ++i) {
      const Key key = key_of(role, samples.frames[stack.frames[i]], by_line);
      Share& share = shares[key];
      if (seen.insert(key).second) share.with += part;
      share.depth = std::max(share.depth, stack.frames.size() - i);
      if (i == 0) share.own += part;
    }
  }
  return shares;
}

std::vector<LineShare> differences(const Shares& ours, const std::vector<Shares>& peers) {
  std::map<Key, LineShare> all;
  for (const auto& [key, share] : ours) {
    LineShare& line = all[key];
    line.share = share.with;
    line.own = share.own;
  }
  for (const Shares& peer : peers) {
    for (const auto& [key, share] : peer) all[key].peer_share += share.with / static_cast<double>(peers.size());
  }
  std::vector<LineShare> lines;
  for (auto& [key, line] : all) {
    line.role = std::get<0>(key);
    line.share = std::min(1.0, line.share);  // several threads may be in it at once
    line.peer_share = std::min(1.0, line.peer_share);
    line.frame = frame_of(key);
    lines.push_back(std::move(line));
  }
  std::stable_sort(lines.begin(), lines.end(),
                   [](const LineShare& a, const LineShare& b) { return a.difference() > b.difference(); });
  return lines;
}

// The innermost of the job's own functions that has most of the largest difference.
const LineShare* guilty_function(const std::vector<LineShare>& functions, const Shares& shares) {
  std::array<const LineShare*, 3> found{};  // by role
  std::array<size_t, 3> depth{};
  double most = 0;
  for (const LineShare& function : functions) {  // by difference
    if (is_library_frame(function.frame)) continue;
    if (most == 0) most = function.difference();
    if (most < kLineDifferenceLeast || function.difference() < kMostOfIt * most) break;
    const auto share = shares.find(key_of(function.role, function.frame, false));
    const auto role = static_cast<size_t>(function.role);
    if (share == shares.end() || (found[role] != nullptr && share->second.depth <= depth[role])) continue;
    found[role] = &function;
    depth[role] = share->second.depth;
  }
  for (ThreadRole role : {ThreadRole::kWorker, ThreadRole::kThread, ThreadRole::kMain}) {
    if (found[static_cast<size_t>(role)] != nullptr) return found[static_cast<size_t>(role)];
  }
  return nullptr;
}

const LineShare* line_of(const std::vector<LineShare>& lines, const LineShare& function) {
  for (const LineShare& line : lines) {
    if (line.role == function.role && line.frame.function == function.frame.function &&
        line.frame.file == function.frame.file)
      return &line;
  }
  return nullptr;
}

std::string percent(double share) {
  return format("%.0f %%", 100 * share);
}

std::string sentence_of(const LineDifference& difference) {
  if (!difference.named) {
    if (difference.peers.empty())
      return format("No line of rank %d can be named: there is no peer to compare it with.", difference.rank.value());
    return format("No line of rank %d has %s more of its time than of rank %s's.", difference.rank.value(),
                  percent(kLineDifferenceLeast).c_str(), human_ranks(difference.peers).c_str());
  }
  const LineShare& line = *difference.named;
  std::string text = line_text(line.frame);
  if (line.role != ThreadRole::kMain) text += format(" (%s)", to_text(line.role));
  text += format(": %s of rank %d's time, %s of rank %s's", percent(line.share).c_str(), difference.rank.value(),
                 percent(line.peer_share).c_str(), human_ranks(difference.peers).c_str());
  // A loop is on several lines in turn.
  if (difference.function.difference() > 1.25 * line.difference())
    text += format(" (the whole function: %s, %s)", percent(difference.function.share).c_str(),
                   percent(difference.function.peer_share).c_str());
  return text + ".";
}

}  // namespace

std::string line_text(const StackFrame& frame) {
  const std::string file = frame.file.substr(frame.file.rfind('/') + 1);
  return frame.line > 0 ? format("%s:%d in %s", file.c_str(), frame.line, frame.function.c_str())
                        : format("%s in %s", file.c_str(), frame.function.c_str());
}

LineDifference line_difference(const SampledRanks& samples, Rank rank, std::span<const Rank> peers) {
  LineDifference result;
  result.rank = rank;
  const RankSamples& ours = samples.at(rank);
  std::vector<Shares> peer_lines, peer_functions;
  for (Rank peer : peers) {
    const auto found = samples.find(peer);
    if (peer == rank || found == samples.end() || found->second.stacks.empty()) continue;
    result.peers.push_back(peer);
    peer_lines.push_back(shares_of(found->second, true));
    peer_functions.push_back(shares_of(found->second, false));
  }
  const Shares our_functions = shares_of(ours, false);
  result.lines = differences(shares_of(ours, true), peer_lines);
  result.functions = differences(our_functions, peer_functions);
  if (!result.peers.empty()) {
    if (const LineShare* function = guilty_function(result.functions, our_functions)) {
      result.function = *function;
      if (const LineShare* line = line_of(result.lines, *function)) result.named = *line;
    }
    for (auto line = result.lines.rbegin(); line != result.lines.rend() && !result.instead; ++line) {
      if (line->difference() > -kLineDifferenceLeast) break;
      if (!is_library_frame(line->frame)) result.instead = *line;
    }
  }
  result.sentence = sentence_of(result);
  for (std::vector<LineShare>* list : {&result.lines, &result.functions}) {
    if (list->size() <= kLinesMax) continue;
    // Both ends say something; what is alike in the middle does not.
    std::vector<LineShare> ends(list->begin(), list->begin() + kLinesMax / 2);
    ends.insert(ends.end(), list->end() - kLinesMax / 2, list->end());
    *list = std::move(ends);
  }
  return result;
}

}  // namespace lockstep
