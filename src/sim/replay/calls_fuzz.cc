// A file of calls never crashes the parser, and what it takes is consistent: every index is inside its table, and the
// lines add up.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "sim/replay/calls.h"
#include "sim/replay/recording.h"

using namespace lockstep::replay;

static void require(bool holds) {
  if (!holds) abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)parse_call_line(text.substr(0, text.find('\n')));
  (void)parse_steps(text, "steps.json");
  for (const bool skip_bad : {false, true}) {
    const auto parsed = parse_calls(text, "rank0.calls", skip_bad);
    if (!parsed.ok()) continue;
    const RankCalls& rank = *parsed;
    require(rank.lines == 1 + rank.calls.size() + rank.bad_lines);
    require(skip_bad || rank.bad_lines == 0);
    for (const Call& call : rank.calls) {
      require(call.thread < rank.threads.size() && call.context < rank.inits.size());
      for (const uint32_t object : {call.object, call.parent, call.group}) {
        require(object == kNone || object < rank.object_count);
      }
      require(call.kind != CallKind::kStart || call.start < rank.starts.size());
    }
  }
  return 0;
}
