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

// A request of steps as agents write it, with every field that a step can have.
std::string steps_request() {
  StepSummary step;
  step.step = 7_step;
  step.start_unix_ns = 1'700'000'000'000'000'000;
  step.duration_ns = 540'000'000;
  step.unseen = 3;
  step.split_known = true;
  step.scalars = {{"loss", 2.5}, {"tokens", 8192}};
  step.comms = {{.comm_id = CommId{9}, .size = 8, .rank_in_comm = 3, .count = 2, .unseen = 1}, {.size = 2}};
  step.flows = {{.comm_id = CommId{9}, .peer = 4, .transfers = 8, .bytes = 4096}};
  Batch batch{.signal = Signal::kLogs, .groups = {}};
  for (const int rank : {3, 4}) {
    const Identity who{"job", 1, Rank{rank}, 8, rank, "node-0", "GPU-3"};
    batch.groups.push_back(
        {.resource = to_resource(who), .scope_name = std::string(kAgentScopeName), .logs = {to_record(step)}});
  }
  return otlp::encode(batch);
}

[[noreturn]] void differ(const char* how) {
  std::fprintf(stderr, "%s\n", how);
  std::abort();
}

void compare(std::string_view bytes) {
  Result<Batch> plain = otlp::decode(Signal::kLogs, bytes);
  Result<LogsRequest> fast = otlp::decode_logs(bytes);
  if (plain.ok() != fast.ok()) differ("one takes it, the other does not");
  if (!plain.ok()) {
    if (plain.error() != fast.error()) differ("refused with another line");
    return;
  }
  for (const StepReport& report : fast->steps) {
    const Result<StepSummary> read = step_from_record(to_record(report));
    if (!read.ok() || as_bytes(*read) != as_bytes(report.summary)) differ("not the step of its record");
    const Result<Identity> identity = identity_from_resource(*resource_of(report));
    if (!identity.ok() || *identity != report.identity) differ("not the identity of its resource");
  }
  if (fast->record_count() != plain->record_count()) differ("another number of records");
  if (comparable(to_batch(std::move(*fast))) != comparable(*plain)) differ("read differently");
}

}  // namespace

// The bytes as they are, and as changes to a request that is walked: where (two bytes), and to what.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  compare({reinterpret_cast<const char*>(data), size});
  static const std::string kRequest = steps_request();
  if (otlp::decode_logs(kRequest)->steps.size() != 2) differ("not walked");
  std::string changed = kRequest;
  for (size_t at = 0; at + 2 < size; at += 3)
    changed[(data[at] * 256u + data[at + 1]) % changed.size()] = static_cast<char>(data[at + 2]);
  compare(changed);
  return 0;
}
