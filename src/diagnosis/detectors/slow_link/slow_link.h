// Slow link: transfers from one rank move much slower than everybody else's while nobody arrives late.
//
// The idea: the network proxy tells how long data was on the wire (posted, not yet acknowledged). A flow's rate is its
// bytes over the time with at least one transfer on the wire; flows that carry about as much are comparable. A flow
// that is far slower than its like and is on the wire for a good part of the step is what the collective waits for.
// Late arrival looks different (the straggler detector goes first), and in a slow transfer all ranks spend equally long
// in the collective. Where the sender's system buffers hide the wire (small messages on sockets), groups are compared
// instead: the shortest time any member spends in a large collective is its pure transfer time, and groups that do the
// same should take the same; of a slow pair the member whose other groups are slow too is named. Where ranks receive from
// several at once, it is whose data comes last in step after step.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <vector>

#include "diagnosis/finding.h"
#include "diagnosis/window.h"

namespace lockstep {

std::vector<Finding> find_slow_links(const JobWindow& window, const std::vector<AttributedRange>& explained);

}  // namespace lockstep
