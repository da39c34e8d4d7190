// What the decoders of the wire make of requests with each of their bytes changed in turn: another field, another type,
// another length, text that is none. Errors with their place, and what is read, as lines with checksums
// (testing/changed_bytes.h).
#include "testing/changed_bytes.h"

#include <gtest/gtest.h>

#include "base/protobuf_wire.h"
#include "base/text.h"
#include "wire/commands.h"
#include "wire/exposition.h"
#include "wire/otlp.h"
#include "wire/otlp_metric_walk.h"
#include "wire/remote_write.h"

namespace lockstep {
namespace {

using protobuf::WireWriter;
using testing::read_changed;

std::string message(uint32_t field, const std::function<void(WireWriter&)>& write) {
  std::string bytes;
  WireWriter out(bytes);
  const size_t began = out.begin(field);
  write(out);
  out.end(began);
  return bytes;
}

std::string text_of(const NativeHistogram& histogram) {
  std::string text = format("h%d %d %.17g %.17g %.17g %.17g", histogram.schema, static_cast<int>(histogram.reset),
                            histogram.count, histogram.sum, histogram.zero_count, histogram.zero_threshold);
  for (const auto* spans : {&histogram.positive_spans, &histogram.negative_spans}) {
    for (const HistogramSpan& span : *spans) text += format(" %d+%u", span.offset, span.length);
    text += ";";
  }
  for (const auto* list : {&histogram.positive, &histogram.negative, &histogram.custom_bounds}) {
    for (const double number : *list) text += format(" %.17g", number);
    text += ";";
  }
  return text;
}

std::string text_of(const PushedExemplar& exemplar) {
  std::string text = format("x%.17g %lld", exemplar.value, static_cast<long long>(exemplar.time_ms));
  for (const auto& [name, value] : exemplar.labels) text += " " + name + "=" + value;
  return text;
}

std::string text_of(std::span<const PushedSeries> all,
                    const std::function<Result<Labels>(std::string_view)>& labels_of) {
  std::string text;
  for (const PushedSeries& series : all) {
    const Result<Labels> labels = labels_of(series.raw_labels);
    text += labels.ok() ? "{" : labels.error();
    if (labels.ok()) {
      for (const auto& [name, value] : *labels) text += name + "=" + value + ",";
    }
    for (const int64_t time_ms : series.times_ms) text += format(" @%lld", static_cast<long long>(time_ms));
    for (const double value : series.values) text += format(" %.17g", value);
    for (const NativeHistogram& histogram : series.histograms) text += " " + text_of(histogram);
    for (const PushedExemplar& exemplar : series.exemplars) text += " " + text_of(exemplar);
    text += "\n";
  }
  return text;
}

std::optional<std::string> read_remote_write(remote_write::Version version, const std::string& bytes) {
  remote_write::Walk walk;
  if (Result<void> walked = walk.walk(version, bytes); !walked.ok()) return walked.error();
  const remote_write::Counts& counts = walk.counts();
  std::string text = format(
      "%llu %llu %llu %llu %llu %llu %llu %s\n", static_cast<unsigned long long>(counts.samples),
      static_cast<unsigned long long>(counts.histograms), static_cast<unsigned long long>(counts.exemplars),
      static_cast<unsigned long long>(counts.bad_histograms), static_cast<unsigned long long>(counts.bad_exemplars),
      static_cast<unsigned long long>(counts.bad_metadata), static_cast<unsigned long long>(counts.empty_series),
      counts.first_problem.c_str());
  text += text_of(walk.series(), remote_write::Walk::labels_of);
  for (const PushedSeries& series : walk.series())
    text += std::string(remote_write::Walk::find_label(series.raw_labels, "host")) + ";";
  for (const remote_write::Metadata& metadata : walk.metadata())
    text += format("%s %s ", std::string(metadata.name).c_str(), metadata.type) + std::string(metadata.help) + " " +
            std::string(metadata.unit);
  return text;
}

// Integers as Prometheus sends them, and floats.
void put_histogram(WireWriter& out, bool is_float, bool is_custom) {
  if (is_float) {
    out.real(2, 7);
  } else {
    out.varint(1, 7);
  }
  out.real(3, 2.5);
  out.varint(4, protobuf::zigzag_encode(is_custom ? -53 : 3));
  if (!is_custom) {
    out.real(5, 0.001);
    if (is_float) {
      out.real(7, 1);
    } else {
      out.varint(6, 1);
    }
    const size_t negative = out.begin(8);
    out.varint(1, 0);
    out.varint(2, 1);
    out.end(negative);
    if (is_float) {
      out.real(10, 2);
    } else {
      out.varint(9, protobuf::zigzag_encode(2));
    }
  }
  const size_t positive = out.begin(11);
  out.varint(1, protobuf::zigzag_encode(is_custom ? 0 : 2));
  out.varint(2, 2);
  out.end(positive);
  const double total = is_custom ? 7 : 4;
  if (is_float) {
    out.real(13, 1);
    out.real(13, total - 1);
  } else {
    const size_t deltas = out.begin(12);
    out.raw_varint(protobuf::zigzag_encode(1));
    out.raw_varint(protobuf::zigzag_encode(static_cast<int64_t>(total) - 2));
    out.end(deltas);
  }
  out.varint(14, 2);
  out.varint(15, 1'700'000'000'123);
  if (is_custom) {
    out.real(16, 0.5);
    out.real(16, 2);
  }
}

std::string request_1() {
  std::string request;
  const std::string labels = remote_write::raw_labels_of({{"__name__", "power"}, {"host", "n1"}});
  const std::vector<int64_t> times = {1'700'000'000'000, 5};
  const std::vector<double> values = {640.25, -0.0};
  const std::vector<PushedExemplar> exemplars = {{{{"trace_id", "ab"}}, 1.5, 1'700'000'000'001}};
  remote_write::append_series(request,
                              {.raw_labels = labels, .times_ms = times, .values = values, .exemplars = exemplars});
  for (const bool is_float : {false, true}) {
    for (const bool is_custom : {false, true}) {
      request += message(1, [&](WireWriter& out) {
        const size_t label = out.begin(1);
        out.bytes(1, "__name__");
        out.bytes(2, "h");
        out.end(label);
        const size_t histogram = out.begin(4);
        put_histogram(out, is_float, is_custom);
        out.end(histogram);
      });
    }
  }
  request += message(3, [](WireWriter& out) {
    out.varint(1, 2);
    out.bytes(2, "power");
    out.bytes(4, "watts drawn");
    out.bytes(5, "W");
  });
  return request;
}

std::string request_2() {
  std::string request;
  WireWriter symbols(request);
  for (const char* symbol : {"", "__name__", "power", "host", "n1", "watts", "W", "trace_id", "ab", "n2"})
    symbols.bytes(4, symbol);
  for (const uint64_t host : {4u, 9u}) {
    request += message(5, [&](WireWriter& out) {
      const size_t refs = out.begin(1);
      for (const uint64_t ref : {uint64_t{1}, uint64_t{2}, uint64_t{3}, host}) out.raw_varint(ref);
      out.end(refs);
      const size_t sample = out.begin(2);
      out.real(1, 640.25);
      out.varint(2, 1'700'000'000'000);
      out.end(sample);
      if (host == 4) {
        const size_t histogram = out.begin(3);
        put_histogram(out, false, false);
        out.end(histogram);
      }
      const size_t exemplar = out.begin(4);
      const size_t exemplar_refs = out.begin(1);
      out.raw_varint(7);
      out.raw_varint(8);
      out.end(exemplar_refs);
      out.real(2, 1.5);
      out.varint(3, 1'700'000'000'001);
      out.end(exemplar);
      const size_t metadata = out.begin(5);
      out.varint(1, 2);
      out.varint(3, 5);
      out.varint(4, 6);
      out.end(metadata);
    });
  }
  return request;
}

TEST(ChangedBytes, OfRemoteWriteRequests) {
  EXPECT_EQ(read_changed(request_1(),
                         [](const std::string& bytes) { return read_remote_write(remote_write::Version::k1, bytes); }),
            "0 refused, 3241 of 873569 bytes, 0655c058");
  EXPECT_EQ(read_changed(request_2(),
                         [](const std::string& bytes) { return read_remote_write(remote_write::Version::k2, bytes); }),
            "0 refused, 1554 of 279299 bytes, dbb3c3f3");
}

// Metrics: points of every kind, with exemplars, that no Batch has, and with lists that are packed and not.
void put_attribute(WireWriter& out, uint32_t field, const char* key, int64_t value) {
  const size_t began = out.begin(field);
  out.bytes(1, key);
  const size_t any = out.begin(2);
  out.varint(3, static_cast<uint64_t>(value));
  out.end(any);
  out.end(began);
}

void put_exemplar(WireWriter& out, uint32_t field, bool is_int) {
  const size_t began = out.begin(field);
  out.fixed64(2, 1'700'000'000'000'000'000);
  if (is_int) {
    out.fixed64(6, 9);
  } else {
    out.real(3, 2.5);
  }
  out.bytes(4, "spanid78");
  out.bytes(5, "traceid_16_bytes");
  put_attribute(out, 7, "user", 3);
  out.end(began);
}

void put_number(WireWriter& out, bool is_int) {
  const size_t began = out.begin(1);
  out.fixed64(2, 1'600'000'000'000'000'000);
  out.fixed64(3, 1'700'000'000'000'000'000);
  if (is_int) {
    out.fixed64(6, 7);
  } else {
    out.real(4, 0.5);
  }
  put_attribute(out, 7, "gpu", 3);
  put_exemplar(out, 5, is_int);
  put_attribute(out, 7, "rack", 4);
  out.varint(8, 1);
  out.end(began);
}

void put_metric(WireWriter& out, const char* name, uint32_t kind, const std::function<void()>& points) {
  const size_t began = out.begin(2);
  out.bytes(1, name);
  out.bytes(2, "help");
  out.bytes(3, "W");
  const size_t data = out.begin(kind);
  points();
  if (kind != 5 && kind != 11) out.varint(2, 2);
  if (kind == 7) out.varint(3, 1);
  out.end(data);
  out.end(began);
}

void put_histogram(WireWriter& out) {
  const size_t point = out.begin(1);
  put_attribute(out, 9, "gpu", 1);
  out.fixed64(2, 5);
  out.fixed64(3, 6);
  out.fixed64(4, 3);
  out.real(5, 9.5);
  const size_t counts = out.begin(6);
  out.raw_fixed(uint64_t{1});
  out.raw_fixed(uint64_t{2});
  out.end(counts);
  out.real(7, 0.25);
  put_exemplar(out, 8, false);
  out.varint(10, 0);
  out.end(point);
}

void put_exponential_histogram(WireWriter& out) {
  const size_t point = out.begin(1);
  put_attribute(out, 1, "gpu", 1);
  out.fixed64(3, 6);
  out.fixed64(4, 6);
  out.real(5, 9.5);
  out.varint(6, protobuf::zigzag_encode(-1));
  out.fixed64(7, 1);
  for (const uint32_t side : {8u, 9u}) {
    const size_t began = out.begin(side);
    out.varint(1, protobuf::zigzag_encode(-2));
    if (side == 8) {
      const size_t counts = out.begin(2);
      out.raw_varint(1);
      out.raw_varint(2);
      out.end(counts);
    } else {
      out.varint(2, 2);
    }
    out.end(began);
  }
  put_exemplar(out, 11, true);
  out.real(14, 0.125);
  out.end(point);
}

void put_summary(WireWriter& out) {
  const size_t point = out.begin(1);
  put_attribute(out, 7, "gpu", 1);
  out.fixed64(3, 6);
  out.fixed64(4, 3);
  out.real(5, 9.5);
  const size_t quantile = out.begin(6);
  out.real(1, 0.5);
  out.real(2, 8);
  out.end(quantile);
  out.varint(8, 1);
  out.end(point);
}

std::string metrics_request() {
  return message(1, [&](WireWriter& out) {
    const size_t resource = out.begin(1);
    put_attribute(out, 1, "host", 1);
    out.end(resource);
    for (int scope_number = 0; scope_number < 2; ++scope_number) {
      const size_t scope = out.begin(2);
      const size_t named = out.begin(1);
      out.bytes(1, "scope");
      out.bytes(2, "1.0");
      out.end(named);
      if (scope_number == 1) {
        put_metric(out, "a", 5, [&] { put_number(out, false); });
      } else {
        put_metric(out, "b", 7, [&] { put_number(out, true); });
        put_metric(out, "c", 9, [&] { put_histogram(out); });
        put_metric(out, "d", 10, [&] { put_exponential_histogram(out); });
        put_metric(out, "e", 11, [&] { put_summary(out); });
      }
      out.end(scope);
    }
  });
}

TEST(ChangedBytes, OfOtlpMetrics) {
  const std::string request = metrics_request();
  ASSERT_EQ(otlp::decode_metrics(request)->points.size(), 5u);
  EXPECT_EQ(read_changed(request,
                         [](const std::string& bytes) -> std::optional<std::string> {
                           const Result<otlp::MetricsRequest> read = otlp::decode_metrics(bytes);
                           if (!read.ok()) return read.error();
                           std::string text = otlp::encode(otlp::to_batch(*read));
                           for (const otlp::WalkedPoint& point : read->points)
                             text += format("%u %u %d %d;", point.first_exemplar, point.exemplars, point.has_value,
                                            point.is_stale());
                           for (const otlp::WalkedHistogram& histogram : read->histograms)
                             text += format("%.17g;", histogram.zero_threshold);
                           for (const otlp::WalkedMetric& metric : read->metrics)
                             text += format("%s %zu;", std::string(metric.help).c_str(), metric.points);
                           for (const PushedExemplar& exemplar : read->exemplars) text += text_of(exemplar);
                           return text;
                         }),
            "0 refused, 4963 of 2567634 bytes, 1d99df22");
}

const char* const kJson[] = {  // logs, spans and metrics
    R"({"resourceLogs":[{"resource":{"attributes":[{"key":"host","value":{"stringValue":"n1"}}]},"scopeLogs":[{"scope":{"name":"s","version":"1"},"logRecords":[{"timeUnixNano":"17","observedTimeUnixNano":18,"severityNumber":9,"severityText":"INFO","eventName":"e","body":{"arrayValue":{"values":[{"intValue":"-5"},{"boolValue":true},{"doubleValue":0.5},{"bytesValue":"aGk="}]}},"attributes":[{"key":"m","value":{"kvlistValue":{"values":[{"key":"a","value":{"doubleValue":"NaN"}}]}}}],"traceId":"0102030405060708090a0b0c0d0e0f10","spanId":"0102030405060708","flags":1}]}]}]})", R"({"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"0102030405060708090A0B0C0D0E0F10","spanId":"0102030405060708","parentSpanId":"","traceState":"t","name":"n","kind":"SPAN_KIND_SERVER","startTimeUnixNano":"1","endTimeUnixNano":2e0,"attributes":[],"events":[{"timeUnixNano":3,"name":"x","attributes":[{"key":"k","value":{"intValue":7}}]}],"links":[{"traceId":"","spanId":"0102030405060708"}],"status":{"message":"bad","code":"STATUS_CODE_ERROR"}}]}]}]})", R"({"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"a","unit":"W","sum":{"dataPoints":[{"asInt":"7","timeUnixNano":"5","startTimeUnixNano":"4","flags":1}],"aggregationTemporality":2,"isMonotonic":true}},{"name":"b","gauge":{"dataPoints":[{"asDouble":0.5}]}},{"name":"c","histogram":{"dataPoints":[{"count":"3","sum":9.5,"bucketCounts":["1","2"],"explicitBounds":[0.25]}],"aggregationTemporality":"AGGREGATION_TEMPORALITY_DELTA"}},{"name":"d","exponentialHistogram":{"dataPoints":[{"count":6,"scale":-1,"zeroCount":1,"positive":{"offset":-2,"bucketCounts":[1,2]},"negative":{"offset":1,"bucketCounts":["2"]}}]}},{"name":"e","summary":{"dataPoints":[{"count":3,"sum":1,"quantileValues":[{"quantile":0.5,"value":8}]}]}}]}]}]})"};

TEST(ChangedBytes, OfOtlpLogsAndSpans) {
  for (const Signal signal : {Signal::kLogs, Signal::kSpans}) {
    const Result<Batch> batch = otlp::decode_json(signal, kJson[signal == Signal::kLogs ? 0 : 1]);
    ASSERT_TRUE(batch.ok()) << batch.error();
    const std::string request = otlp::encode(*batch);
    EXPECT_EQ(read_changed(request,
                           [&](const std::string& bytes) -> std::optional<std::string> {
                             const Result<Batch> read = otlp::decode(signal, bytes);
                             return read.ok() ? otlp::encode(*read) : read.error();
                           }),
              signal == Signal::kLogs ? "0 refused, 1099 of 111836 bytes, 5b8ba483"
                                      : "0 refused, 728 of 58900 bytes, 7c6c7d56");
  }
}

TEST(ChangedBytes, OfOtlpAsJson) {
  const Signal kSignals[] = {Signal::kLogs, Signal::kSpans, Signal::kMetrics};
  std::string lines;
  for (size_t i = 0; i < 3; ++i) {
    lines += read_changed(kJson[i], [&](const std::string& text) -> std::optional<std::string> {
      const Result<Batch> read = otlp::decode_json(kSignals[i], text);
      if (read.ok()) return otlp::encode(*read);
      // What is no JSON at all is told in the words of simdjson.
      if (read.error().find("not valid JSON") != std::string::npos) return std::nullopt;
      return read.error();
    });
    lines += "\n";
  }
  EXPECT_EQ(lines,
            "2887 refused, 1075 of 137571 bytes, cf70fde3\n"
            "2274 refused, 911 of 73885 bytes, 0b6f0ad3\n"
            "3747 refused, 1349 of 240367 bytes, 0c23a239\n");
}

TEST(ChangedBytes, OfPagesOfMetrics) {
  const char* const kPages[] = {
      "# HELP power Watts\\ndrawn.\n# TYPE power gauge\npower{gpu=\"3\",name=\"a\\\"b\"} 640.25 1700000000000\n"
      "# a comment\n\nplain 1e3\n  {\"quoted.name\", x=\"y\"} +Inf\nup{} -0x\n",
      "# TYPE a counter\n# UNIT a s\n# HELP a Help.\na_total{gpu=\"y\"} 5 17.5 # {trace_id=\"t\"} 2.5 17.25\n"
      "b 1 # {} 3\n# TYPE c info\nc_info{v=\"1\"} 1\n# EOF\n"};
  std::string lines;
  for (const exposition::Format page_format : {exposition::Format::kText, exposition::Format::kOpenMetrics}) {
    for (const bool honor : {false, true}) {
      const std::string prefix = exposition::target_prefix({{"gpu", "t"}, {"job", "j"}}, honor);
      const char* page = kPages[page_format == exposition::Format::kText ? 0 : 1];
      lines += read_changed(page, [&](const std::string& text) -> std::optional<std::string> {
        exposition::Walk walk;
        // The value of the last line is changed until it is one.
        Result<void> walked = walk.walk(page_format, text, prefix, 1'234);
        const std::string before = text.substr(0, text.rfind("up{}"));
        if (!walked.ok()) walked = walk.walk(page_format, before, prefix, 1'234);
        if (!walked.ok()) return walked.error();
        std::string made = text_of(walk.series(), exposition::Walk::labels_of);
        for (size_t k = 0; k < walk.series().size(); ++k) made += walk.has_own_time(k) ? 't' : '.';
        for (const exposition::Metadata& one : walk.metadata())
          made += std::string(one.name) + "|" + one.type + "|" + one.help + "|" + one.unit + "\n";
        return made;
      });
      lines += "\n";
    }
  }
  EXPECT_EQ(lines,
            "0 refused, 1092 of 147112 bytes, 39b84e83\n"
            "0 refused, 1092 of 138349 bytes, c1b339f3\n"
            "0 refused, 987 of 119033 bytes, 0c98cd4e\n"
            "0 refused, 987 of 111830 bytes, 89afdbec\n");
}

TEST(ChangedBytes, OfCommands) {
  const std::string text =
      "lockstep-commands 1\ncursor 3f-1\ndetail job%201 0 5 9 0-3,7\ndetail b 1 4 4 *\nstacks job%2f2 2 1,4\nnewer x\n";
  ASSERT_TRUE(parse_commands(text).ok());
  EXPECT_EQ(read_changed(text,
                         [](const std::string& changed) -> std::optional<std::string> {
                           const Result<CommandList> list = parse_commands(changed);
                           if (!list.ok()) return list.error();
                           return encode_commands(*list) + std::to_string(list->unknown);
                         }),
            "0 refused, 735 of 44548 bytes, d5143bc1");
}

}  // namespace
}  // namespace lockstep
