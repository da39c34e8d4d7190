// How little chance explains that one of many is hit again and again.
//
// In a healthy job steps in which somebody is late alone come now and then, and hit anybody. Who is hit so much oftener
// than all the others that chance shows it less often than was promised (threshold_nats) has something.
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <cstddef>

namespace lockstep {

// What a signal of the node that explains a finding is worth: some node has something to report at any time, so that one
// suspicion in ten would find one by chance.
double witness_nats();

// A fault from the first step on is as likely as one that begins within any one hour: in steps, and what it is worth.
double steps_of_the_start(double step_ns);
double nats_of_the_start(double step_ns);

// What hit one of many, and what hits the others.
struct Repetition {
  size_t hits = 0, steps = 0;                // of the one
  double size = 0;                           // of a typical hit
  size_t others_hits = 0, others_steps = 0;  // steps times others
  double others_largest = 0;                 // of anything that the others had, a hit or not
};

// Minus the logarithm of the chance to be hit so often. Healthy ones differ for good in how often they are hit, so the
// rate of the one is drawn from an exponential distribution around that of the others, which makes its hits a geometric
// one. The others are taken to have been hit once more, since what was not seen yet may still be; what is far larger than
// anything that was seen is as much rarer (the heaviest power law, one that has no mean).
double nats_of(const Repetition& seen);
// Minus the logarithm of the chance that one of so many alike has at least `hits` of `all` events (Chernoff's bound). It
// holds however events come in time: all at a job's start, or in bursts.
double nats_of_share(size_t hits, size_t all, size_t alike);
// The same evidence is asked for once in so many steps: what a threshold for every step has too much.
double nats_of_windows(size_t steps);

}  // namespace lockstep
