#include "ingest/prometheus/remote_write_receiver.h"

#include <optional>

#include "base/characters.h"
#include "base/text.h"
#include "model/series_labels.h"
#include "wire/compression.h"

namespace lockstep {
namespace {

constexpr int64_t kOverloadedRetryS = 1;
constexpr int64_t kUnavailableRetryS = 5;
// What a thread keeps for its next request; larger ones are rare. All threads together keep little of the budget.
constexpr uint64_t kScratchBytesMax = 64u << 20;
constexpr uint64_t kScratchesMax = 256;

struct Scratch {
  std::string plain;
  remote_write::Walk walk;
  std::string stream;
};

struct TrimAtEnd {  // whatever way a request ends
  Scratch& scratch;
  const uint64_t bytes_max;
  ~TrimAtEnd() {
    if (scratch.plain.capacity() > bytes_max) release_memory(scratch.plain);
    if (scratch.walk.memory_bytes() > bytes_max) release_memory(scratch.walk);
  }
};

HttpResponse text_answer(int status, const std::string& line) {
  return {status, {{"content-type", "text/plain; charset=utf-8"}}, line.empty() ? "" : line + "\n"};
}

std::optional<remote_write::Version> version_of(std::string_view content_type) {
  std::vector<std::string_view> parts = split(content_type, ';');
  if (lower_case(trim(parts[0])) != "application/x-protobuf") return std::nullopt;
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::string_view part = trim(parts[i]);
    const size_t equals = std::min(part.find('='), part.size());
    if (lower_case(trim(part.substr(0, equals))) != "proto") continue;
    std::string_view name = trim(part.substr(std::min(equals + 1, part.size())));
    if (name.size() >= 2 && name.front() == '"' && name.back() == '"') name = name.substr(1, name.size() - 2);
    if (name == "prometheus.WriteRequest") return remote_write::Version::k1;
    if (name == "io.prometheus.write.v2.Request") return remote_write::Version::k2;
    return std::nullopt;
  }
  return remote_write::Version::k1;
}

// A sender repeats itself target by target.
void name_stream(std::string& stream, std::string_view tenant, std::string_view raw_labels) {
  stream.assign(kRemoteWriteReceiver).append(1, '\0').append(tenant).append(1, '\0');
  stream.append(remote_write::Walk::find_label(raw_labels, "job").substr(0, 256)).append(1, '\0');
  for (const char* name : {"instance", "host", "hostname", "Hostname", "host_name", "node"}) {
    const std::string_view value = remote_write::Walk::find_label(raw_labels, name);
    if (value.empty()) continue;
    stream.append(value.substr(0, 256));
    break;
  }
}

}  // namespace

HttpResponse RemoteWriteReceiver::handle(const ServerRequest& request) {
  HttpResponse answer;
  if (request.method == "POST") {
    answer = post(request);
  } else {
    answer = text_answer(405, "only POST is answered here");
    answer.headers.emplace_back("allow", "POST");
  }
  counters_.add("lockstep_ingest_requests_total",
                format("receiver=\"remote_write\",signal=\"metrics\",code=\"%d\"", answer.status));
  return answer;
}

HttpResponse RemoteWriteReceiver::undecodable(int status, const char* reason, const std::string& line) {
  counters_.add("lockstep_ingest_undecodable_requests_total",
                format("receiver=\"remote_write\",reason=\"%s\"", reason));
  log_.warn(reason, "remote_write: request refused: " + as_one_line(line));
  return text_answer(status, line);
}

HttpResponse RemoteWriteReceiver::post(const ServerRequest& request) {
  const std::optional<remote_write::Version> version = version_of(request.header("content-type"));
  if (!version) {
    return undecodable(415, "content_type",
                       format("content type \"%.100s\" is not understood: use application/x-protobuf with "
                              "proto=prometheus.WriteRequest or proto=io.prometheus.write.v2.Request",
                              as_one_line(request.header("content-type")).c_str()));
  }
  Written written;
  HttpResponse answer = take(request, *version, written);
  if (*version == remote_write::Version::k2) {
    for (auto [name, count] : {std::pair("samples", written.samples), std::pair("histograms", written.histograms),
                               std::pair("exemplars", written.exemplars)}) {
      answer.headers.emplace_back(format("x-prometheus-remote-write-%s-written", name), std::to_string(count));
    }
  }
  return answer;
}

HttpResponse RemoteWriteReceiver::take(const ServerRequest& request, remote_write::Version version, Written& written) {
  const std::string encoding = lower_case(trim(request.header("content-encoding")));
  if (!encoding.empty() && encoding != "snappy") {
    return undecodable(415, "content_encoding",
                       format("content encoding \"%.40s\" is not understood: use snappy (block format)",
                              as_one_line(encoding).c_str()));
  }
  // Whoever has a name has shown a token, and the header chose among its tenants.
  const std::string_view tenant = request.caller.name.empty() ? request.header("x-scope-orgid") : std::string_view();
  if (tenant.size() > kTenantBytesMax || has_control_characters(tenant))
    return undecodable(400, "tenant", format("X-Scope-OrgID: at most %zu plain characters", kTenantBytesMax));

  thread_local Scratch scratch;
  const TrimAtEnd trim_at_end{scratch, memory_ == nullptr
                                           ? kScratchBytesMax
                                           : std::min(kScratchBytesMax, memory_->bytes_max() / kScratchesMax)};
  MemoryLease lease(memory_, MemoryUse::kDecoding);
  auto no_memory = [&] {
    HttpResponse answer = undecodable(429, "memory", kMemorySpent);
    answer.headers.emplace_back("retry-after", std::to_string(kOverloadedRetryS));
    return answer;
  };
  Result<std::string_view> plain = snappy_decompress(request.body, body_bytes_max_, scratch.plain, &lease);
  if (lease.was_refused()) return no_memory();
  if (!plain.ok()) {
    const bool too_large = plain.code() == ErrorCode::kTooLarge;
    return undecodable(too_large ? 413 : 400, too_large ? "too_large" : "compression", plain.error());
  }
  counters_.add("lockstep_ingest_bytes_total", "receiver=\"remote_write\"", static_cast<int64_t>(plain->size()));
  if (Result<void> read = scratch.walk.walk(version, *plain, &lease); !read.ok()) {
    if (lease.was_refused()) return no_memory();
    return undecodable(400, "protobuf", read.error());
  }
  if (const Result<void> may = check_owners(scratch.walk, request.caller); !may.ok())
    return undecodable(403, "owner", may.error());
  return push(scratch.walk, tenant, scratch.stream, written);
}

Result<void> RemoteWriteReceiver::check_owners(const remote_write::Walk& walk, const Caller& caller) {
  if (owners_ == nullptr || caller.owner.empty()) return {};
  for (const auto& [kind, label] : {std::pair(OwnedKind::kHost, "host"), std::pair(OwnedKind::kJob, "job_id")}) {
    std::string_view last;  // a sender goes target by target
    for (const auto& series : walk.series()) {
      const std::string_view name = remote_write::Walk::find_label(series.raw_labels, label);
      if (name == last) continue;
      LOCKSTEP_TRY(owners_->check(caller, kind, name));
      last = name;
    }
  }
  return {};
}

// What was read, into the store. stream: room for the stream's name.
HttpResponse RemoteWriteReceiver::push(remote_write::Walk& walk, std::string_view tenant, std::string& stream,
                                       Written& written) {
  const remote_write::Counts& counts = walk.counts();
  intake_.refuse(kRemoteWriteReceiver, "bad_histogram", counts.bad_histograms, counts.first_problem);
  PushOutcome outcome;
  if (!walk.series().empty()) {
    name_stream(stream, tenant, walk.series()[0].raw_labels);
    Result<PushOutcome> pushed =
        intake_.push(kRemoteWriteReceiver, stream, walk.series(), [&](size_t k) -> Result<Labels> {
          Result<Labels> labels = walk.labels(k);
          if (tenant.empty() || !labels.ok()) return labels;
          std::erase_if(*labels, [](const auto& one) { return one.first == kTenantLabel; });  // not theirs to say
          labels->emplace_back(kTenantLabel, tenant);
          return canonical_labels(std::move(*labels));
        });
    if (!pushed.ok()) {
      HttpResponse answer = text_answer(503, pushed.error());
      answer.headers.emplace_back("retry-after", std::to_string(kUnavailableRetryS));
      return answer;
    }
    outcome = std::move(*pushed);
  }
  for (const remote_write::Metadata& one : walk.metadata()) {
    intake_.metadata(one.name, one.type, one.help, one.unit);
  }
  written = {counts.samples, counts.histograms, counts.exemplars};
  for (const RefusedSamples& refused : outcome.refused) {
    written.samples -= std::min(written.samples, refused.samples - std::min(refused.samples, refused.histograms));
    written.histograms -= std::min(written.histograms, refused.histograms);
  }
  std::string problem = refusals_line(outcome, counts.samples + counts.histograms);
  const uint64_t left_out = counts.bad_histograms + counts.empty_series;
  if (left_out > 0) {
    if (!problem.empty()) problem += "; ";
    problem += format("%llu left out: %s", static_cast<unsigned long long>(left_out), counts.first_problem.c_str());
  }
  return problem.empty() ? HttpResponse{204, {}, ""} : text_answer(400, problem);
}

}  // namespace lockstep
