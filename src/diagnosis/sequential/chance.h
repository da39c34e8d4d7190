// How little chance explains that one of many is hit again and again.
//
// In a healthy job steps in which somebody is late alone come now and then, and hit anybody. Who is hit so much oftener
// than all the others that chance shows it less often than was promised (threshold_nats) has something.
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <cstddef>

namespace lockstep {

// What a signal of the node that explains a finding is worth: as a witness it stands for the factor between the rates of
// what is suspected and what is sure.
double witness_nats();

// What hit one of many, and what hits the others.
struct Repetition {
  size_t hits = 0, steps = 0;                // of the one
  double size = 0;                           // of a typical hit
  size_t others_hits = 0, others_steps = 0;  // steps times others
  double others_largest = 0;                 // of anything that the others had, a hit or not
};

// Minus the logarithm of the chance to be hit so often (the binomial tail), for one that is hit in each step with the
// probability that the others show, and once more, since what was not seen yet may still be. What is far larger than
// anything that was seen is as much rarer: the tail is taken for the heaviest power law that has no mean.
double nats_of(const Repetition& seen);

}  // namespace lockstep
