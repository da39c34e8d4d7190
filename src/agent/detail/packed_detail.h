// A StepDetail in few bytes: what an agent keeps of every step. Exact: what comes out is what went in.
//
// The problem: minutes of detail of eight ranks must fit into a few megabytes, and an OpSpan with its strings takes
// some 200 bytes. The method: operations of a step repeat themselves, so each distinct shape (communicator, function,
// type, peer, bytes, ...) is written once per step and an operation is its shape's number, how its sequence numbers
// differ from the next expected (mostly not at all), and three times as differences, all as varints: 13 to 18 bytes
// (docs/guide/sampling.md has the measurement). Every packed step stands alone, so that any may go first.
//
// unpack() trusts nothing: bytes that pack() did not write are an error, never a crash.
// Thread rule: Thread-safe (no state).
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "model/step_detail.h"

namespace lockstep {

std::string pack(const StepDetail& detail);
Result<StepDetail> unpack(std::string_view bytes);

}  // namespace lockstep
