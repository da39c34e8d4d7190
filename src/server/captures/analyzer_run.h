// One run of the process that reads a capture's traces (analyzer_child.h), from its start to its end.
//
// Whatever becomes of the child, it is one line: it is ended where it takes longer than kWallFactor times its CPU time,
// says what it may not, or `stop` comes. Nothing of it outlives run_analyzer().
// Thread rule: Confined; blocks.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/captures/analyzer_child.h"
#include "store/blobs/blob_store.h"

namespace lockstep {

inline constexpr int64_t kWallFactor = 10;

struct AnalyzerSettings {
  std::vector<std::string> command;  // the program and kAnalyzerArgument
  uint64_t memory_bytes = 0;
  int64_t cpu_s = 0;
};

struct AnalyzerInput {
  AnalyzerTrace trace;
  std::unique_ptr<BlobReader> reader;
};

struct AnalyzerOutcome {
  enum class State {
    kDone,
    kFailed,   // the traces cannot be analysed
    kNotNow,   // they could not be read, or what was found not be kept: worth another try
    kStopped,  // by `stop`
  };
  State state = State::kDone;
  std::string line;  // why not
};

// take: a piece of what was found; its failure is kNotNow.
AnalyzerOutcome run_analyzer(const AnalyzerSettings& settings, std::vector<AnalyzerInput> inputs,
                             const std::function<Result<void>(AnalyzerFrame, std::string_view)>& take,
                             const std::stop_token& stop);

}  // namespace lockstep
