// Who of the late ranks makes the delay: the straggler's decision. Some wait for another one, some are late because they
// have more to do, some are late together because their host is, and some are hidden behind who is later.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "diagnosis/detectors/straggler/late_ranks.h"
#include "diagnosis/window.h"

namespace lockstep::straggler {

// Most ranks of a host late together, each by a good part of what the latest is: it is the host.
inline constexpr double kHostShare = 0.6;
inline constexpr double kHostPart = 0.4;
// Who costs less than this of a step besides others is hidden behind them.
inline constexpr double kHiddenShare = 0.01;
// So many late ranks are asked whether they wait for others.
inline constexpr size_t kAskedMax = 64;

// Late together, in the job or in a role: the work is shaped so.
bool is_structural(size_t late, size_t all);
// Nobody of these stands out.
bool are_alike(const std::vector<Late>& late);
// Takes out of `late` (the latest first) who waits for others, and gives the slots of those.
std::set<size_t> take_victims(const JobWindow& window, const LastSteps& last, std::vector<Late>& late);
// The hosts on which most ranks are late together, while few hosts are. Of a host with a late rank, those count that
// are late by a good part of what the latest is, and not because they wait for it.
std::map<std::string, std::vector<Late>> late_hosts(const JobWindow& window, const std::vector<Late>& late,
                                                    const std::set<size_t>& victims,
                                                    const std::vector<double>& typical);
// The late ones have one place in their groups of some kind, and there is one in most of these groups: that place has
// more to do (an expert, a shard), whatever hosts it is on. They are late alike then: where one is far later than the
// others these wait for it in a group of their own, which has one place in those others.
bool same_place_everywhere(const JobWindow& window, const StepFrame& frame, const std::vector<Late>& late);
// Takes out of `late` those of whose role too many are late.
void take_structural(const LastSteps& last, const std::vector<double>& typical, std::vector<Late>& late);
// Who is late behind others that are later costs nothing now, and may well be late because of them: what evidence alone
// has found there is small; who shares a group with one of them waits for it in ways that nobody sees; and so, in a
// pipeline of tensor-parallel stages, does who shares one with those, unless its own GPU or input says that it is late.
bool is_shadow(const JobWindow& window, const std::vector<Late>& late, const std::vector<Late>& later, double saved,
               const LastSteps& last);

}  // namespace lockstep::straggler
