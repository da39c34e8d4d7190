// What a slowness costs a step: what steps take longer since it began, wherever there were steps before it. What a
// detector adds up (a rank's lateness, a flow's time on the wire) says who it is, and only about how much it costs: where
// communication runs beside the work a part of a delay is hidden, and whoever waits is measured as quicker than it is.
//
// Thread rule: Thread-safe (pure function); the window as its owner has it.
#pragma once

#include "diagnosis/window.h"

namespace lockstep {

// `added_up_ns` where it is within what chance explains, or where there is too little to compare: it was there from the
// start, or has just begun. At most `most_ns`.
double cost_of_a_step(const JobWindow& window, StepNumber since, double added_up_ns, double most_ns);

}  // namespace lockstep
