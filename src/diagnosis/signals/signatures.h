// The signature matrix as data: what each cause looks like in the signals of a node, one row of signatures.cc each.
//
// A test asks one thing of one signal: is it higher (lower, ...) than it was before, and than it is at peers that do
// the same? Its strength is 0 (not at all) to 1 (beyond doubt); where the signal is not told, it is unknown, which
// neither proves nor excludes. A cause needs one of its required tests; expected ones make it likelier; contradicting
// ones subtract. Adding a cause is adding a row; adding a signal is a row of signals.cc.
// Thread rule: Immutable after the first call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "model/verdict_terms.h"

namespace lockstep {

// What the steps say about the culprit, before any signal is looked at. One bit each.
enum StepSign : uint32_t {
  kGpuBehind = 1u << 0,          // own time long, collectives queue behind its kernels
  kHostLate = 1u << 1,           // own time long, the GPU had nothing to do
  kInputWaits = 1u << 2,         // waits for its input
  kSlowFlows = 1u << 3,          // data leaves it (or reaches it) slower than comparable flows
  kGroupTransferSlow = 1u << 4,  // a group transfers slower than groups that do the same; nobody is late
  kPauses = 1u << 5,             // stands still now and then
  kTransfersPause = 1u << 6,     // transfers of a pair stand still now and then
  kDead = 1u << 7,               // its process is gone
  kStalled = 1u << 8,            // inside an operation, nothing moves
  kMissing = 1u << 9,            // has not entered an operation
  kWholeJob = 1u << 10,          // all ranks slower than before alike
  kCheckpointLong = 1u << 11,    // checkpoints take longer
};

enum class Compare : uint8_t {
  kHigher,        // than before and than at peers
  kLower,         // likewise
  kIsSet,         // a flag or a count that should be 0
  kBelowSibling,  // than the same thing's greatest value, e.g. PCIe width
  kAboveSibling,  // than another signal, times `relative`
  kHappened,      // an event
  kSilent,        // nothing heard of the host while peers' hosts are
};

struct SignalTest {
  const char* signal;  // key of signals.cc; of an event for kHappened; "" for kSilent
  Compare compare;
  double weight;        // required: how good a proof it is, 0..1; others: how much it counts
  double floor;         // least difference that matters, in the signal's unit
  double relative;      // and as a share of what it is compared with
  const char* sibling;  // kBelowSibling, kAboveSibling
};

struct Signature {
  Cause cause;
  Layer layer;
  const char* component;  // "GPU", "host", "network adapter", "link", "NVLink", "input", "process", "fabric", "job"
  uint32_t fits;          // signs that it shows as
  uint32_t may;           // signs that it may show as
  double unproven;        // by exclusion: what it is worth when nothing it would contradict is seen; 0: needs proof
  double prior;           // share of slow or stuck jobs that have it: reference numbers, before the site is known
  std::vector<SignalTest> required;
  std::vector<SignalTest> expected;
  std::vector<SignalTest> contradicting;
  const char* decided_by;  // the observation that would decide where signals are missing
  const char* action;      // what to do
  const char* command;
};

std::span<const Signature> signatures();
// Of the first signature with that cause; nothing: a cause that steps name alone.
std::optional<Layer> layer_of_cause(Cause cause);

}  // namespace lockstep
