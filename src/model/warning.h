// What will hurt if it goes on: one trend of one GPU or adapter (docs/guide/warnings.md).
//
// Thread rule: Immutable once handed on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json_writer.h"
#include "model/verdict.h"

namespace lockstep {

struct EarlyWarning {
  std::string id;  // stable: the same trend of the same thing
  std::string host;
  std::string gpu_uuid;  // or
  std::string device;
  std::string signal;  // what rises, as the signal is called inside
  Layer layer = Layer::kUnknown;
  Cause cause = Cause::kNone;  // what it will be if it goes on
  double horizon_s = 0;        // until then, counted from updated_unix_ns
  double confidence = 0;       // 0..1
  int64_t raised_unix_ns = 0;
  int64_t updated_unix_ns = 0;  // when it was last looked at and still so
  int64_t gone_unix_ns = 0;     // 0: it lasts
  std::string sentence;         // names the thing as "<gpu_uuid or device> of <host>"
  std::vector<Claim> claims;
  NextAction next;
  int64_t record_raised = 0;  // such warnings in simulation, and how many came true in time; 0: not measured
  int64_t record_came_true = 0;

  bool is_gone() const { return gone_unix_ns != 0; }
};

// The fields of its JSON object, without the braces: whoever shows it may add some.
void write_fields(JsonWriter& json, const EarlyWarning& warning);

}  // namespace lockstep
