// The limits of what comes over the wire, at their very borders: the last that is taken and the first that is not.
#include <gtest/gtest.h>

#include <functional>

#include "base/protobuf_wire.h"
#include "base/text.h"
#include "model/series_labels.h"
#include "wire/compression.h"
#include "wire/exposition.h"
#include "wire/otlp.h"
#include "wire/remote_write.h"

namespace lockstep {
namespace {

using protobuf::WireWriter;

// The largest number up to `most` for which it is taken; it is for all smaller ones.
size_t largest(size_t most, const std::function<bool(size_t)>& taken) {
  size_t low = 0, high = most + 1;
  while (low + 1 < high) {
    const size_t middle = low + (high - low) / 2;
    (taken(middle) ? low : high) = middle;
  }
  return low;
}

Labels many_labels(size_t count) {
  Labels labels = {{"__name__", "m"}};
  for (size_t i = 1; i < count; ++i) labels.emplace_back(format("l%03zu", i), "v");
  return labels;
}

TEST(RemoteWriteLimits, AsManyAndAsLongLabelsAsAreTaken) {
  auto taken = [](const Labels& labels) {
    return remote_write::Walk::labels_of(remote_write::raw_labels_of(labels)).ok();
  };
  EXPECT_EQ(largest(300, [&](size_t n) { return taken(many_labels(n)); }), kLabelsMax);
  EXPECT_EQ(largest(1 << 16,
                    [&](size_t n) {
                      return taken({{"__name__", "m"}, {"l", std::string(n, 'v')}});
                    }),
            kLabelValueBytesMax);
  EXPECT_EQ(largest(1 << 16,
                    [&](size_t n) {
                      return taken({{"__name__", "m"}, {std::string(n, 'l'), "v"}});
                    }),
            kLabelNameBytesMax);
  // In all: values of 1,000 bytes, and the last as long as is left.
  EXPECT_EQ(largest(kLabelsBytesMax + 100,
                    [&](size_t n) {
                      Labels labels = {{"__name__", "m"}};
                      size_t left = n - std::min<size_t>(n, 9);
                      for (size_t i = 0; left > 0; ++i) {
                        const size_t part = std::min<size_t>(left, 1'000);
                        if (part < 5) {
                          labels.back().second += std::string(part, 'v');
                          break;
                        }
                        labels.emplace_back(format("l%03zu", i), std::string(part - 4, 'v'));
                        left -= part;
                      }
                      return taken(labels);
                    }),
            kLabelsBytesMax);
}

TEST(RemoteWriteLimits, OfVersion2AreTheSameThoughItSpellsOutLess) {
  auto walked = [](size_t labels, size_t value_bytes) {
    std::string request;
    WireWriter out(request);
    out.bytes(4, "");
    out.bytes(4, "__name__");
    out.bytes(4, "m");
    out.bytes(4, std::string(value_bytes, 'v'));
    for (size_t i = 1; i < labels; ++i) out.bytes(4, format("l%03zu", i));
    const size_t series = out.begin(5);
    const size_t refs = out.begin(1);
    out.raw_varint(1);
    out.raw_varint(2);
    for (size_t i = 1; i < labels; ++i) {
      out.raw_varint(3 + i);
      out.raw_varint(3);
    }
    out.end(refs);
    const size_t sample = out.begin(2);
    out.real(1, 1);
    out.varint(2, 1'700'000'000'000);
    out.end(sample);
    out.end(series);
    remote_write::Walk walk;
    EXPECT_TRUE(walk.walk(remote_write::Version::k2, request).ok());
    EXPECT_EQ(walk.series().size(), 1u);
    return walk.labels(0).ok();
  };
  EXPECT_EQ(largest(300, [&](size_t n) { return walked(n, 1); }), kLabelsMax);
  EXPECT_EQ(largest(1 << 16, [&](size_t n) { return walked(2, n); }), kLabelValueBytesMax);
}

TEST(RemoteWriteLimits, TextsOfMetadataAndExemplars) {
  auto metadata = [](size_t name, size_t help, size_t unit) {
    std::string request;
    WireWriter out(request);
    const size_t began = out.begin(3);
    out.varint(1, 1);
    out.bytes(2, std::string(name, 'n'));
    out.bytes(4, std::string(help, 'h'));
    out.bytes(5, std::string(unit, 'u'));
    out.end(began);
    remote_write::Walk walk;
    EXPECT_TRUE(walk.walk(remote_write::Version::k1, request).ok());
    EXPECT_EQ(walk.metadata().size() + walk.counts().bad_metadata, 1u);
    return walk.metadata().size() == 1;
  };
  EXPECT_FALSE(metadata(0, 1, 1));
  EXPECT_EQ(largest(1 << 16, [&](size_t n) { return metadata(n, 1, 1) || n == 0; }), kLabelValueBytesMax);
  EXPECT_EQ(largest(1 << 16, [&](size_t n) { return metadata(1, n, 1); }), 4096u);
  EXPECT_EQ(largest(1 << 16, [&](size_t n) { return metadata(1, 1, n); }), kLabelNameBytesMax);
  auto exemplar = [](const Labels& labels) {
    std::string request;
    const std::string raw = remote_write::raw_labels_of({{"__name__", "m"}});
    const std::vector<int64_t> times = {1'700'000'000'000};
    const std::vector<double> values = {1};
    const std::vector<PushedExemplar> exemplars = {{labels, 1, 2}};
    remote_write::append_series(request,
                                {.raw_labels = raw, .times_ms = times, .values = values, .exemplars = exemplars});
    remote_write::Walk walk;
    EXPECT_TRUE(walk.walk(remote_write::Version::k1, request).ok());
    EXPECT_EQ(walk.counts().exemplars + walk.counts().bad_exemplars, 1u);
    return walk.counts().exemplars == 1;
  };
  EXPECT_EQ(largest(1 << 16,
                    [&](size_t n) {
                      return exemplar({{"l", std::string(n, 'v')}});
                    }) +
                1,
            std::min(kExemplarBytesMax, kLabelValueBytesMax + 1));
  EXPECT_EQ(largest(1 << 16,
                    [&](size_t n) {
                      return exemplar({{std::string(n, 'l'), ""}});
                    }),
            std::min(kExemplarBytesMax, kLabelNameBytesMax));
}

TEST(PageLimits, LinesSamplesAndTextsOfAPage) {
  exposition::Walk walk;
  auto taken = [&](const std::string& page, uint64_t samples_max = UINT64_MAX) {
    return walk.walk(exposition::Format::kText, page, "", 1, samples_max).ok();
  };
  EXPECT_EQ(
      largest(exposition::kLineBytesMax + 10,
              [&](size_t n) {
                return taken("m{l=\"" + std::string(n < 10 ? 0 : n - 10, 'v') + "\"} 1" + (n < 10 ? "" : " ") + "\n");
              }),
      exposition::kLineBytesMax)
      << "without its end";
  EXPECT_TRUE(taken("a 1\nb 2\n", 2));
  EXPECT_FALSE(taken("a 1\nb 2\nc 3\n", 2));
  EXPECT_TRUE(taken("a 1\nb 2\n# c\n\n", 2)) << "comments are none";
  auto help = [&](size_t bytes) {
    EXPECT_TRUE(taken("# HELP m " + std::string(bytes, 'h') + "\nm 1\n"));
    return walk.metadata().size() == 1;
  };
  EXPECT_EQ(largest(1 << 16, help), 4096u);
  auto name = [&](size_t bytes) {
    EXPECT_TRUE(taken("# TYPE " + std::string(bytes, 'n') + " gauge\nm 1\n"));
    return walk.metadata().size() == 1 || bytes == 0;
  };
  EXPECT_EQ(largest(1 << 16, name), kLabelValueBytesMax);
  auto labels = [&](size_t count) {
    std::string page = "m{";
    for (size_t i = 1; i < count; ++i) page += format("l%03zu=\"v\",", i);
    EXPECT_TRUE(taken(page + "} 1\n"));
    return exposition::Walk::labels_of(exposition::target_prefix({}, false) + page + "}").ok();
  };
  EXPECT_EQ(largest(300, labels), kLabelsMax);
}

std::string json_error(Signal signal, const std::string& text) {
  const Result<Batch> batch = otlp::decode_json(signal, text);
  if (!batch.ok()) return batch.error();
  std::string shown;
  for (const ResourceGroup& group : batch->groups) {
    for (const LogRecord& log : group.logs)
      shown += format("%lld %d %u %s", static_cast<long long>(log.time_unix_ns), log.severity, log.flags,
                      plain_text(log.body).c_str());
    for (const MetricPoint& point : group.points)
      shown += format("%llu %d", static_cast<unsigned long long>(point.count), point.scale);
  }
  return shown;
}
std::string log_of(const std::string& fields) {
  return json_error(Signal::kLogs, R"({"resourceLogs":[{"scopeLogs":[{"logRecords":[{)" + fields + "}]}]}]}");
}
std::string point_of(const std::string& fields) {
  return json_error(Signal::kMetrics,
                    R"({"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"exponentialHistogram":{"dataPoints":[{)" +
                        fields + "}]}}]}]}]}");
}

TEST(JsonLimits, NumbersAtTheEndsOfTheirRange) {
  const std::string wrong = "otlp logs as JSON: ";
  auto body = [](const std::string& number) { return log_of(R"("body":{"intValue":)" + number + "}"); };
  EXPECT_EQ(body("9223372036854775807"), "0 0 0 9223372036854775807");
  EXPECT_EQ(body("\"-9223372036854775808\""), "0 0 0 -9223372036854775808");
  EXPECT_EQ(body("9223372036854775808"), wrong + "intValue is not a 64-bit integer");
  EXPECT_EQ(body("\"9223372036854775808\""), wrong + "intValue is not a 64-bit integer");
  EXPECT_EQ(body("-9.223372036854775808e18"), "0 0 0 -9223372036854775808");
  EXPECT_EQ(body("9.223372036854775808e18"), wrong + "intValue is not a 64-bit integer");
  EXPECT_EQ(body("9.2233720368547748e18"), "0 0 0 9223372036854774784");
  EXPECT_EQ(body("1.5"), wrong + "intValue is not a 64-bit integer");
  EXPECT_EQ(body("true"), wrong + "intValue is not a 64-bit integer");
  EXPECT_EQ(point_of(R"("count":18446744073709551615)"), "18446744073709551615 0");
  EXPECT_EQ(point_of(R"("count":1.8446744073709550e19)"), "18446744073709549568 0");
  EXPECT_EQ(point_of(R"("count":1.8446744073709552e19)"),
            "otlp metrics as JSON: count is not an unsigned 64-bit integer");
  EXPECT_EQ(point_of(R"("count":0.0)"), "0 0");
  EXPECT_EQ(point_of(R"("count":-1)"), "otlp metrics as JSON: count is not an unsigned 64-bit integer");
  EXPECT_EQ(point_of(R"("count":-1.0)"), "otlp metrics as JSON: count is not an unsigned 64-bit integer");
  EXPECT_EQ(point_of(R"("scale":2147483647)"), "0 2147483647");
  EXPECT_EQ(point_of(R"("scale":-2147483648)"), "0 -2147483648");
  EXPECT_EQ(point_of(R"("scale":2147483648)"), "otlp metrics as JSON: scale does not fit 32 bits");
  EXPECT_EQ(point_of(R"("scale":-2147483649)"), "otlp metrics as JSON: scale does not fit 32 bits");
  EXPECT_EQ(log_of(R"("flags":4294967295)"), "0 0 4294967295 null");
  EXPECT_EQ(log_of(R"("flags":4294967296)"), wrong + "flags does not fit 32 bits");
  EXPECT_EQ(log_of(R"("timeUnixNano":"18446744073709551615")"), "9223372036854775807 0 0 null") << "the last there is";
  EXPECT_EQ(log_of(R"("severityNumber":"SEVERITY_NUMBER_FATAL4")"), "0 24 0 null");
  EXPECT_EQ(log_of(R"("severityNumber":"SEVERITY_NUMBER_TRACE")"), "0 1 0 null");
  EXPECT_EQ(log_of(R"("severityNumber":"TRACE")"), wrong + "severityNumber is not a name this field knows");
}

TEST(JsonLimits, BytesInBase64OfEveryLengthAndNoOther) {
  auto bytes = [](const std::string& text) { return log_of(R"("body":{"bytesValue":")" + text + "\"}"); };
  const std::string wrong = "otlp logs as JSON: bytesValue is not base64";
  EXPECT_EQ(bytes("="), wrong);
  EXPECT_EQ(bytes("=="), wrong);
  EXPECT_EQ(bytes("A"), wrong);
  EXPECT_EQ(bytes("AA==="), wrong);
  EXPECT_EQ(bytes("AAAAA"), wrong);
  EXPECT_EQ(bytes("AA.A"), wrong);
  EXPECT_EQ(bytes("AA=A"), wrong);
  for (const char* same : {"aGk=", "aGk"}) EXPECT_EQ(bytes(same), bytes("aGk="));
  EXPECT_EQ(bytes("-_-_"), bytes("+/+/"));
  EXPECT_EQ(bytes("aGVsbG8h===="), wrong);
}

TEST(JsonLimits, ALongNameIsCopiedForItsOwnPointsAlone) {
  std::string points;
  for (int i = 0; i < 1'000; ++i) points += i == 0 ? "{}" : ",{}";
  const std::string name(300'000, 'n');
  auto taken = [&](const std::string& long_one) {
    return otlp::decode_json(Signal::kMetrics,
                             R"({"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"a","gauge":{"dataPoints":[)" +
                                 points + R"(]}},{"name":")" + name + R"(","gauge":{"dataPoints":[)" + long_one +
                                 "]}}]}]}]}")
        .ok();
  };
  EXPECT_TRUE(taken("{}"));
  EXPECT_FALSE(taken(points)) << "300 MB of names";
}

TEST(CompressionMemory, IsTakenForWhatComesOutAndNotForTheLimit) {
  std::string text;
  for (int i = 0; text.size() < 200'000; ++i) text += std::to_string(i * 7919);
  for (const Encoding encoding : {Encoding::kGzip, Encoding::kZstd}) {
    if (!available(encoding)) continue;
    MemoryBudget budget(1u << 30, [] { return 0; });
    MemoryLease lease(&budget, MemoryUse::kDecoding);
    const Result<std::string> out = decompress(encoding, *compress(encoding, text), 64u << 20, &lease);
    ASSERT_TRUE(out.ok()) << out.error();
    EXPECT_EQ(*out, text);
    EXPECT_GE(lease.bytes(), text.size());
    EXPECT_LE(lease.bytes(), 4 * text.size());
    EXPECT_GE(lease.bytes(), out->capacity());
    EXPECT_TRUE(decompress(encoding, *compress(encoding, text), text.size(), nullptr).ok());
    EXPECT_FALSE(decompress(encoding, *compress(encoding, text), text.size() - 1, nullptr).ok());
  }
}

TEST(JsonLimits, ValuesNestAsDeepAsTheyMay) {
  auto nested = [](size_t depth) {
    std::string value = R"({"intValue":1})";
    for (size_t i = 1; i < depth; ++i) value = R"({"arrayValue":{"values":[)" + value + "]}}";
    return otlp::decode_json(Signal::kLogs,
                             R"({"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":)" + value + "}]}]}]}")
        .ok();
  };
  EXPECT_EQ(largest(100, [&](size_t n) { return n == 0 || nested(n); }), static_cast<size_t>(otlp::kNestingMax));
}

}  // namespace
}  // namespace lockstep
