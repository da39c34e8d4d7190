// What is scored: something that is given the bytes of a fleet's telemetry and answers with verdicts. It knows of the
// fleet what comes through here and nothing else, so the truth has no way to it.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "model/telemetry.h"

namespace lockstep::sim {

class Subject {
 public:
  virtual ~Subject() = default;
  // Before anything is received: the operator's file of how switches are cabled (docs/guide/fabric.md).
  virtual void declare(std::string_view /*topology*/) {}
  // The body of an OTLP export request, as it came through the receiver at this time.
  virtual void receive(Signal signal, std::string_view otlp, int64_t now_unix_ns) = 0;
  // Called every so often; time does not go on otherwise.
  virtual void tick(int64_t now_unix_ns) = 0;
  // A JSON array of verdicts as docs/guide/verdicts.md has them: what a client would be shown now.
  virtual std::string verdicts(std::string_view job_id) = 0;
  // A JSON array of early warnings as docs/guide/warnings.md has them, of the whole fleet.
  virtual std::string warnings() { return "[]"; }
};

}  // namespace lockstep::sim
