#include "model/stack_groups.h"

#include <algorithm>

#include "base/text.h"
#include "model/rank_text.h"

namespace lockstep {
namespace {

const PythonStack* main_thread(const RankStack& stack) {
  for (const PythonStack& thread : stack.python) {
    if (thread.main) return &thread;
  }
  return stack.python.size() == 1 ? &stack.python.front() : nullptr;
}

std::string place_of(const RankStack& stack) {
  const PythonStack* thread = main_thread(stack);
  if (thread == nullptr || thread->frames.empty()) return where_text(stack);
  const StackFrame& users = *users_frame(thread->frames);
  return format("in %s at %s:%d", thread->frames.front().function.c_str(),
                users.file.substr(users.file.rfind('/') + 1).c_str(), users.line);
}

}  // namespace

std::vector<StackGroup> group_stacks(const std::map<Rank, RankStack>& stacks) {
  std::map<std::string, std::vector<Rank>> by_place;
  for (const auto& [rank, stack] : stacks) by_place[place_of(stack)].push_back(rank);
  std::vector<StackGroup> groups;
  for (auto& [where, ranks] : by_place) groups.push_back({where, std::move(ranks)});
  std::stable_sort(groups.begin(), groups.end(),
                   [](const StackGroup& a, const StackGroup& b) { return a.ranks.size() > b.ranks.size(); });
  return groups;
}

std::string groups_text(const std::vector<StackGroup>& groups, size_t most) {
  std::string text;
  for (size_t i = 0; i < groups.size() && i < most; ++i) {
    const StackGroup& group = groups[i];
    const std::string who = group.ranks.size() > 3 ? with_thousands(static_cast<int64_t>(group.ranks.size())) + " ranks"
                                                   : "rank " + human_ranks(group.ranks);
    text += (text.empty() ? "" : "; ") + who + " " + group.where;
  }
  if (groups.size() > most) text += format("; and %zu more places", groups.size() - most);
  return text;
}

}  // namespace lockstep
