// The product as something that can be scored: the applier with stores in memory and the diagnosis engine behind it, as
// in lockstepd, without receivers, disk and threads. Bytes in, the JSON of verdicts out.
//
// Thread rule: Confined.
#pragma once

#include <memory>

#include "sim/score/subject.h"

namespace lockstep::cli {

std::unique_ptr<sim::Subject> make_product();

}  // namespace lockstep::cli
