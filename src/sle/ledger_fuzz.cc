// Records of the ledger's files, from bytes that nobody wrote: no crash, and what was read can be asked.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sle/ledger.h"
#include "sle/ledger_query.h"
#include "store/sle_counters.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  Counters counters(kSleCounters);
  const SystemClock clock;
  auto ledger = sle::Ledger::open({}, clock, counters);
  if (!ledger.ok()) return 0;
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  // A byte says how long the record behind it is.
  while (!bytes.empty()) {
    const size_t length = static_cast<uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    (void)(*ledger)->restore_record(bytes.substr(0, length));
    bytes.remove_prefix(std::min(bytes.size(), length));
  }
  (void)(*ledger)->totals({.scope = {.hosts = {"a"}}, .from = 0, .end = 1'000'000, .bucket_minutes = 1000});
  (void)(*ledger)->affected({.from = 0, .end = 1'000'000}, sle::Sle::kProgress, 10);
  return 0;
}
