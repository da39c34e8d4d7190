#include "model/rank_text.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "base/text.h"

namespace lockstep {

std::string ranks_text(std::span<const Rank> ranks) {
  std::string text;
  for (size_t at = 0; at < ranks.size();) {
    // As far as the steps are even: "first-last", or "first-last/step".
    size_t end = at + 1;
    int32_t step = end < ranks.size() ? ranks[end] - ranks[at] : 0;
    while (step > 0 && end < ranks.size() && ranks[end] - ranks[end - 1] == step) ++end;
    if (end - at < 3) end = at + 1;
    text += format("%s%d", text.empty() ? "" : ",", ranks[at].value());
    if (end - at > 1) text += format(step == 1 ? "-%d" : "-%d/%d", ranks[end - 1].value(), step);
    at = end;
  }
  return text;
}

Result<std::vector<Rank>> ranks_from_text(std::string_view text, size_t most) {
  std::vector<Rank> ranks;
  for (std::string_view part : split(text, ',')) {
    size_t slash = part.find('/');
    std::string_view range = part.substr(0, slash);
    size_t dash = range.find('-');
    std::optional<int64_t> first = parse_int(range.substr(0, dash));
    std::optional<int64_t> last = dash == std::string_view::npos ? first : parse_int(range.substr(dash + 1));
    std::optional<int64_t> step = slash == std::string_view::npos ? 1 : parse_int(part.substr(slash + 1));
    if (!first || !last || !step || *first < 0 || *last < *first || *last > kRanksMost || *step < 1)
      return Error{format("\"%.40s\" is not a rank, nor FIRST-LAST, nor FIRST-LAST/STEP", std::string(part).c_str())};
    if (static_cast<size_t>((*last - *first) / *step) >= most - ranks.size())
      return Error{format("more than %zu ranks in a list", most)};
    for (int64_t rank = *first; rank <= *last; rank += *step) ranks.push_back(Rank{static_cast<int32_t>(rank)});
  }
  return ranks;
}

std::string human_ranks(std::span<const Rank> ranks, size_t most) {
  std::vector<int> numbers;
  numbers.reserve(ranks.size());
  for (Rank rank : ranks) numbers.push_back(rank.value());
  return human_numbers(std::move(numbers), most);
}

}  // namespace lockstep
