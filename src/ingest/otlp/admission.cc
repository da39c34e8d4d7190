#include "ingest/otlp/admission.h"

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "model/events.h"

namespace lockstep {
namespace {

struct Refusal {
  const char* reason;
  std::string why;  // follows "sample 12 of 4096 "
};

std::string rough_duration(uint64_t ns) {
  uint64_t minutes = ns / 60'000'000'000;
  if (minutes < 60) return format("%llum", static_cast<unsigned long long>(minutes));
  if (minutes < 48 * 60) return format("%lluh", static_cast<unsigned long long>(minutes / 60));
  return format("%llud", static_cast<unsigned long long>(minutes / (24 * 60)));
}

std::optional<Refusal> check_time(int64_t time_unix_ns, int64_t server_unix_ns) {
  // OTLP's times are unsigned: one beyond the signed range reads as negative here and is centuries ahead.
  uint64_t time = static_cast<uint64_t>(time_unix_ns);
  uint64_t limit = static_cast<uint64_t>(server_unix_ns + kAheadMaxNs);
  if (time <= limit) return std::nullopt;
  uint64_t ahead = time - static_cast<uint64_t>(server_unix_ns);
  return Refusal{"future_time", format("is %s ahead of server time (limit %s)", rough_duration(ahead).c_str(),
                                       rough_duration(kAheadMaxNs).c_str())};
}

std::optional<Refusal> check(const Span& span, const Attributes&, int64_t server_unix_ns) {
  std::optional<Refusal> refusal = check_time(span.start_unix_ns, server_unix_ns);
  return refusal ? refusal : check_time(span.end_unix_ns, server_unix_ns);
}

std::optional<Refusal> check(const LogRecord& record, const Attributes& resource, int64_t server_unix_ns) {
  std::optional<Refusal> refusal =
      check_time(record.time_unix_ns != 0 ? record.time_unix_ns : record.observed_unix_ns, server_unix_ns);
  if (refusal) return refusal;
  auto cannot_be_read = [](const char* reason, const std::string& error) {
    return Refusal{reason, "cannot be read: " + error};
  };
  const std::string& event = record.event_name;
  if (event == kEventTrainStep) {
    Result<StepSummary> step = step_from_record(record);
    if (!step) return cannot_be_read("bad_train_step", step.error());
  } else if (event == kEventRankStatus) {
    Result<RankStatus> status = status_from_record(record);
    if (!status) return cannot_be_read("bad_rank_status", status.error());
  } else if (event == kEventCommInit) {
    Result<CommInit> comm = comm_init_from_record(record);
    if (!comm) return cannot_be_read("bad_comm_init", comm.error());
  } else {
    return std::nullopt;
  }
  Result<Identity> identity = identity_from_resource(resource);
  if (!identity) return cannot_be_read("bad_identity", event + ": " + identity.error());
  return std::nullopt;
}

const char* record_word(Signal signal) {
  switch (signal) {
    case Signal::kMetrics:
      return "sample";
    case Signal::kLogs:
      return "record";
    case Signal::kSpans:
      return "span";
  }
  return "record";
}

struct Admitter {
  AdmissionReport report;
  int64_t total;
  const char* word;
  int64_t server_unix_ns;

  template <typename Record>
  void filter(std::vector<Record>& records, const Attributes& resource) {
    std::erase_if(records,
                  [&](const Record& record) { return !count(check(record, resource, server_unix_ns), resource); });
  }

  // true: kept.
  bool count(const std::optional<Refusal>& refusal, const Attributes& resource) {
    ++report.received;
    if (!refusal) return true;
    refuse(*refusal, find_string(resource, "host.name"));
    return false;
  }

  bool count(const StepReport& step) {
    ++report.received;
    const std::optional<Refusal> refusal = check_time(step.time_unix_ns(), server_unix_ns);
    if (refusal) refuse(*refusal, step.identity.host);
    return !refusal;
  }

  void refuse(const Refusal& refusal, std::string_view host) {
    if (report.refused++ == 0) describe(refusal, host);
    ++report.refused_by_reason[refusal.reason];
  }

  void describe(const Refusal& refusal, std::string_view host) {
    // The line goes into logs and terminals: a name with control characters is not repeated.
    if (!host.empty() && host.size() <= 256 && !has_control_characters(host))
      report.message = format("node %.*s: ", static_cast<int>(host.size()), host.data());
    report.message += format("%s %lld of %lld %s", word, static_cast<long long>(report.received),
                             static_cast<long long>(total), refusal.why.c_str());
    report.first_reason = refusal.reason;
  }
};

AdmissionReport finished(AdmissionReport report) {
  if (report.refused == 0) return report;
  report.message += format("; kept %lld, refused %lld", static_cast<long long>(report.received - report.refused),
                           static_cast<long long>(report.refused));
  if (report.refused_by_reason.size() > 1) {
    const char* separator = " (";
    for (const auto& [reason, count] : report.refused_by_reason) {
      report.message += format("%s%s %lld", separator, reason.c_str(), static_cast<long long>(count));
      separator = ", ";
    }
    report.message += ")";
  }
  return report;
}

}  // namespace

AdmissionReport admit(Batch& batch, int64_t server_unix_ns) {
  Admitter admitter{{}, static_cast<int64_t>(batch.record_count()), record_word(batch.signal), server_unix_ns};
  for (ResourceGroup& group : batch.groups) {
    admitter.filter(group.logs, group.resource);
    admitter.filter(group.spans, group.resource);
  }
  return finished(std::move(admitter.report));
}

AdmissionReport admit(LogsRequest& request, int64_t server_unix_ns) {
  Admitter admitter{{}, static_cast<int64_t>(request.record_count()), record_word(Signal::kLogs), server_unix_ns};
  std::vector<bool> keep;
  request.visit([&](const StepReport& step) { keep.push_back(admitter.count(step)); },
                [&](ResourceGroup& group) { admitter.filter(group.logs, group.resource); });
  if (admitter.report.refused > 0) {
    size_t next = 0;
    std::erase_if(request.steps, [&](const StepReport&) { return !keep[next++]; });
  }
  return finished(std::move(admitter.report));
}

AdmissionReport admit(otlp::MetricsRequest& request, int64_t server_unix_ns) {
  const int64_t total = static_cast<int64_t>(request.points.size());
  const bool all_pass = std::all_of(request.points.begin(), request.points.end(), [&](const otlp::WalkedPoint& point) {
    return !check_time(point.time_unix_ns, server_unix_ns);
  });
  if (all_pass) {
    AdmissionReport report;
    report.received = total;
    return report;
  }
  Admitter admitter{{}, total, record_word(Signal::kMetrics), server_unix_ns};
  std::vector<bool> keep(request.points.size());
  for (const otlp::WalkedScope& scope : request.scopes) {
    for (size_t k = scope.first_metric; k < scope.first_metric + scope.metrics; ++k) {
      const otlp::WalkedMetric& metric = request.metrics[k];
      for (size_t i = metric.first_point; i < metric.first_point + metric.points; ++i) {
        keep[i] = admitter.count(check_time(request.points[i].time_unix_ns, server_unix_ns),
                                 request.resources[scope.resource]);
      }
    }
  }
  request.keep_points(keep);
  return finished(std::move(admitter.report));
}

AdmissionReport admit(spans::SpanColumns& columns, uint64_t latest_unix_ns, int64_t server_unix_ns) {
  const int64_t total = static_cast<int64_t>(columns.size());
  if (!check_time(static_cast<int64_t>(latest_unix_ns), server_unix_ns)) {
    AdmissionReport report;
    report.received = total;
    return report;
  }
  Admitter admitter{{}, total, record_word(Signal::kSpans), server_unix_ns};
  std::vector<bool> keep(columns.size());
  for (size_t i = 0; i < columns.size(); ++i) {
    const spans::SpanRow& row = columns.rows[i];
    std::optional<Refusal> refusal = check_time(row.start_unix_ns, server_unix_ns);
    if (!refusal) refusal = check_time(columns.end_unix_ns(row), server_unix_ns);
    keep[i] = admitter.count(refusal, *columns.sources[row.source]->resource);
  }
  columns.keep_rows(keep);
  return finished(std::move(admitter.report));
}

}  // namespace lockstep
