// The fast way into steps against otlp::decode(): both take a request or neither does, with the same line, the records
// are the same, and a step that was walked is the one that its record holds.
#include <cstdio>
#include <cstdlib>

#include "model/events.h"
#include "wire/otlp.h"
#include "wire/step_walk.h"

namespace {

using namespace lockstep;

// Steps are a group each, and neighbours of one source are one group here. A NaN is equal to itself as bytes.
std::string comparable(const Batch& batch) {
  Batch joined{.signal = Signal::kLogs, .groups = {}};
  std::string last;
  for (const ResourceGroup& group : batch.groups) {
    if (group.logs.empty()) continue;
    Batch head{.signal = Signal::kLogs, .groups = {{group.resource, group.scope_name, group.scope_version}}};
    const std::string key = otlp::encode(head);
    if (joined.groups.empty() || key != last) {
      joined.groups.push_back(group);
    } else {
      auto& logs = joined.groups.back().logs;
      logs.insert(logs.end(), group.logs.begin(), group.logs.end());
    }
    last = key;
  }
  return otlp::encode(joined);
}

std::string as_bytes(const StepSummary& step) {
  return otlp::encode({.signal = Signal::kLogs, .groups = {{.logs = {to_record(step)}}}});
}

[[noreturn]] void differ(const char* how) {
  std::fprintf(stderr, "%s\n", how);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  Result<Batch> plain = otlp::decode(Signal::kLogs, bytes);
  Result<LogsRequest> fast = otlp::decode_logs(bytes);
  if (plain.ok() != fast.ok()) differ("one takes it, the other does not");
  if (!plain.ok()) {
    if (plain.error() != fast.error()) differ("refused with another line");
    return 0;
  }
  for (const StepReport& report : fast->steps) {
    const Result<StepSummary> read = step_from_record(to_record(report));
    if (!read.ok() || as_bytes(*read) != as_bytes(report.summary)) differ("not the step of its record");
    const Result<Identity> identity = identity_from_resource(*resource_of(report));
    if (!identity.ok() || *identity != report.identity) differ("not the identity of its resource");
  }
  if (fast->record_count() != plain->record_count()) differ("another number of records");
  if (comparable(to_batch(std::move(*fast))) != comparable(*plain)) differ("read differently");
  return 0;
}
