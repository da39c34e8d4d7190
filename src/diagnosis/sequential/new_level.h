// How sure is it that a quantity is on a level of its own, above what it usually is or what its like are, for its last
// few values?
//
// For what shift_monitor.h is too much: one flow, one group; few values, compared when somebody asks. What is
// usual is a set of values (of its own past, of its like in the same steps): their middle, a scale that outliers do not
// move, and the share of them that is far out. The evidence is the logarithm of a likelihood ratio. That nothing has
// changed: a Student t of three degrees of freedom and, beyond kTailFrom scales, a tail of index one with as many values
// as were seen there and one more. That it is on another level: the first value may be on any level, equally likely by
// its logarithm; the next are predicted by those before; one step in ten may be odd. Whatever is estimated from little is
// taken to the careful side. It is held against the same thresholds as all evidence (threshold_nats).
//
// Values are logarithms or shares, so that a hundredth is little and one is much.
//
// Assumptions: what makes single values large comes and goes from step to step. A healthy job's bursts are the caller's
// business.
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep {

struct Usual {
  double middle = 0;
  double scale = 0;       // to the careful side: what few values do not tell makes it larger
  double tail_share = 1;  // of values that are beyond kTailFrom scales, at least one in so many as were seen
  size_t values = 0;
};

// Of these; none: nothing is unusual.
Usual usual_of(std::vector<double> values);

// In favour of a level above the usual one for all of `since`, in order. 0: nothing is known.
double nats_of_level(const Usual& usual, std::span<const double> since);

}  // namespace lockstep
