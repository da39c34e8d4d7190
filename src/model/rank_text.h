// Many ranks in one text: for formats, and for people.
//
// Thread rule: Immutable.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/ids.h"

namespace lockstep {

// "0-3,8,10-11", as ranks are written where they are many; "" for none.
std::string ranks_text(std::span<const Rank> ranks);
// At most `most` of them; one clear line on error.
Result<std::vector<Rank>> ranks_from_text(std::string_view text, size_t most);

// For a sentence, sorted: "3, 5 and 9"; "0-7" for runs; at most `most` items, then "and N more".
std::string human_ranks(std::span<const Rank> ranks, size_t most = 8);

}  // namespace lockstep
