#include "agent/export/otlp_target.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "agent/testing.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

using testing::TemporaryFolder;

std::string otel(const char* suffix) {
  return std::string("OTEL_EXPORTER_OTLP_") + suffix;
}

OtlpTargets chosen(const OtlpSettings& settings, const OtelVariables& environment = {}) {
  Result<OtlpTargets> targets = choose_otlp_targets(settings, environment);
  EXPECT_TRUE(targets.ok()) << targets.error();
  return targets.ok() ? *targets : OtlpTargets{};
}

struct Expected {
  std::string metrics, logs, spans;
};
Expected everything_to(const std::string& place) {
  return {place, place, place};
}
Expected below(const std::string& base) {
  return {base + "/v1/metrics", base + "/v1/logs", base + "/v1/traces"};
}
struct Where {
  const char* case_name;
  OtlpSettings settings;
  OtelVariables environment;
  Expected expected;
};

TEST(OtlpTarget, SendsWhereOptionsAndVariablesSay) {
  const Where cases[] = {
      {"default", {}, {}, below("http://127.0.0.1:4318")},
      {"--server", {.server = "http://gpu-server:99/base/"}, {}, below("http://gpu-server:99/base")},
      {"--server without a port", {.server = "https://gpu-server"}, {}, below("https://gpu-server:4318")},
      {"--server, gRPC",
       {.server = "http://gpu-server", .protocol = "grpc"},
       {},
       everything_to("grpc http://gpu-server:4317")},
      {"base endpoint", {}, {{otel("ENDPOINT"), "http://collector:4318"}}, below("http://collector:4318")},
      {"base endpoint with a path, scheme's port",
       {},
       {{otel("ENDPOINT"), "https://collector/otlp/"}},
       below("https://collector:443/otlp")},
      {"endpoint of a signal as it is",
       {},
       {{otel("METRICS_ENDPOINT"), "http://mimir:9009/otlp/v1/metrics/?a=b"}, {otel("LOGS_ENDPOINT"), "http://loki:1"}},
       {"http://mimir:9009/otlp/v1/metrics/?a=b", "http://loki:1/", "http://127.0.0.1:4318/v1/traces"}},
      {"signal before general",
       {},
       {{otel("ENDPOINT"), "http://all:1"}, {otel("TRACES_ENDPOINT"), "http://tempo:2/x"}},
       {"http://all:1/v1/metrics", "http://all:1/v1/logs", "http://tempo:2/x"}},
      {"option before both",
       {.server = "http://mine:3"},
       {{otel("ENDPOINT"), "http://all:1"}, {otel("TRACES_ENDPOINT"), "http://tempo:2/x"}},
       below("http://mine:3")},
      {"empty is not set", {}, {{otel("ENDPOINT"), " "}, {otel("PROTOCOL"), ""}}, below("http://127.0.0.1:4318")},
      {"protocol by signal",
       {},
       {{otel("PROTOCOL"), "grpc"}, {otel("LOGS_PROTOCOL"), "http/protobuf"}},
       {"grpc http://127.0.0.1:4317", "http://127.0.0.1:4318/v1/logs", "grpc http://127.0.0.1:4317"}},
      {"gRPC without a scheme is TLS",
       {},
       {{otel("PROTOCOL"), "grpc"}, {otel("ENDPOINT"), "collector"}},
       everything_to("grpc https://collector:4317")},
      {"unless insecure",
       {},
       {{otel("PROTOCOL"), "grpc"},
        {otel("ENDPOINT"), "collector:5"},
        {otel("LOGS_INSECURE"), "TRUE"},
        {otel("INSECURE"), "false"}},
       {"grpc https://collector:5", "grpc http://collector:5", "grpc https://collector:5"}},
      {"a scheme wins over insecure",
       {},
       {{otel("PROTOCOL"), "grpc"}, {otel("ENDPOINT"), "https://collector"}, {otel("INSECURE"), "true"}},
       everything_to("grpc https://collector:443")},
      {"UNIX socket",
       {.server = "unix:///run/otel.sock", .protocol = "grpc"},
       {},
       everything_to("grpc unix:///run/otel.sock")},
      {"IPv6", {.server = "http://[::1]:8"}, {}, below("http://[::1]:8")},
  };
  for (const Where& one : cases) {
    if (!tls_available() && one.expected.metrics.find("https") != std::string::npos) continue;
    const OtlpTargets targets = chosen(one.settings, one.environment);
    EXPECT_EQ(targets.of(Signal::kMetrics).text(), one.expected.metrics) << one.case_name;
    EXPECT_EQ(targets.of(Signal::kLogs).text(), one.expected.logs) << one.case_name;
    EXPECT_EQ(targets.of(Signal::kSpans).text(), one.expected.spans) << one.case_name;
  }
}

TEST(OtlpTarget, AMistakeIsOneLineThatNamesTheOptionOrVariable) {
  TemporaryFolder folder;
  const std::string empty = folder.path() + "/empty";
  std::ofstream{empty};
  const std::string two_lines = folder.path() + "/two";
  std::ofstream(two_lines) << "one\ntwo\n";
  const struct {
    OtlpSettings settings;
    OtelVariables environment;
    std::string line;
  } cases[] = {
      {{.protocol = "http/json"}, {}, "--protocol: http/json is not spoken here: use http/protobuf or grpc"},
      {{},
       {{otel("LOGS_PROTOCOL"), "http/json"}},
       "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL: http/json is not spoken here: use http/protobuf or grpc"},
      {{},
       {{otel("PROTOCOL"), "http"}},
       "OTEL_EXPORTER_OTLP_PROTOCOL: 'http' is no protocol: use http/protobuf or grpc"},
      {{.server = "gpu-server:4318"}, {}, "--server: 'gpu-server:4318' does not start with http:// or https://"},
      {{},
       {{otel("ENDPOINT"), "ftp://x"}},
       "OTEL_EXPORTER_OTLP_ENDPOINT: URL 'ftp://x' does not start with http:// or https://"},
      {{},
       {{otel("ENDPOINT"), "http://x:0"}},
       "OTEL_EXPORTER_OTLP_ENDPOINT: URL 'http://x:0' has a port that is not a number from 1 to 65535"},
      {{},
       {{otel("ENDPOINT"), "http://x/?q=1"}},
       "OTEL_EXPORTER_OTLP_ENDPOINT: URL 'http://x/?q=1' has a query, which a base URL cannot have"},
      {{},
       {{otel("METRICS_ENDPOINT"), "http://x/a b"}},
       "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: URL 'http://x/a b' has a path that cannot be sent"},
      {{},
       {{otel("TIMEOUT"), "10s"}},
       "OTEL_EXPORTER_OTLP_TIMEOUT: '10s' is not a number of milliseconds from 1 to 600000"},
      {{},
       {{otel("TRACES_TIMEOUT"), "0"}},
       "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT: '0' is not a number of milliseconds from 1 to 600000"},
      {{.compression = "snappy"}, {}, "--compression: 'snappy' is no compression: use zstd, gzip or none"},
      {{},
       {{otel("COMPRESSION"), "br"}},
       "OTEL_EXPORTER_OTLP_COMPRESSION: 'br' is no compression: use zstd, gzip or none"},
      {{}, {{otel("HEADERS"), "api-key"}}, "OTEL_EXPORTER_OTLP_HEADERS: 'api-key' is not NAME=VALUE"},
      {{},
       {{otel("HEADERS"), "api-key=%zz"}},
       "OTEL_EXPORTER_OTLP_HEADERS: the value of api-key has a % that is not followed by two hex digits"},
      {{}, {{otel("HEADERS"), "a b=c"}}, "OTEL_EXPORTER_OTLP_HEADERS: 'a b' is not a name for a header"},
      {{},
       {{otel("HEADERS"), "a=%0d%0aX"}},
       "OTEL_EXPORTER_OTLP_HEADERS: the value of a has bytes that no header can carry"},
      {{.headers = {"Content-Length=5"}}, {}, "--header: the header content-length is the exporter's own business"},
      {{}, {{otel("INSECURE"), "yes"}}, "OTEL_EXPORTER_OTLP_INSECURE: 'yes' is neither true nor false"},
      {{.token_file = "/nowhere/token"}, {}, "--token-file: cannot open /nowhere/token: No such file or directory"},
      {{.token_file = empty}, {}, "--token-file: " + empty + " is empty"},
      {{.token_file = two_lines}, {}, "--token-file: " + two_lines + " holds more than one line of printable text"},
      {{.token = "a", .headers = {"Authorization=Basic%20x"}},
       {},
       "--header authorization: there is a token already; give one of the two"},
      {{.server = "https://x", .ca = "/nowhere/ca"}, {}, "--ca: CA file /nowhere/ca: No such file or directory"},
      {{.server = "https://x"},
       {{otel("CERTIFICATE"), "/nowhere/ca"}},
       "OTEL_EXPORTER_OTLP_CERTIFICATE: CA file /nowhere/ca: No such file or directory"},
      {{.server = "https://x"},
       {{otel("CLIENT_KEY"), "/nowhere/key"}},
       "OTEL_EXPORTER_OTLP_CLIENT_KEY: key /nowhere/key: is of no use without its certificate"},
      {{.server = "https://x", .cert = "/nowhere/cert", .key = "/nowhere/key"},
       {},
       "--cert: certificate /nowhere/cert: No such file or directory"},
      {{}, {{"OTEL_RESOURCE_ATTRIBUTES", "a=b,c"}}, "OTEL_RESOURCE_ATTRIBUTES: 'c' is not NAME=VALUE"},
  };
  for (const auto& one : cases) {
    if (!tls_available() && one.settings.server.starts_with("https")) continue;
    Result<OtlpTargets> targets = choose_otlp_targets(one.settings, one.environment);
    ASSERT_FALSE(targets.ok()) << one.line;
    EXPECT_EQ(targets.error(), one.line);
  }
}

TEST(OtlpTarget, ReadsHeadersAsBaggageAndLetsOptionsWin) {
  const OtlpTargets targets =
      chosen({.headers = {"X-Team=mine"}},
             {{otel("HEADERS"), " api-key = a%20b%2Cc , X-Team=theirs ,,authorization=Basic x=="},
              {otel("LOGS_HEADERS"), "only=logs"}});
  EXPECT_EQ(targets.of(Signal::kMetrics).headers,
            (HeaderList{{"api-key", "a b,c"}, {"authorization", "Basic x=="}, {"x-team", "mine"}}));
  EXPECT_EQ(targets.of(Signal::kLogs).headers, (HeaderList{{"only", "logs"}, {"x-team", "mine"}}));
}

TEST(OtlpTarget, ATokenTakesThePlaceOfAnAuthorizationFromTheEnvironment) {
  TemporaryFolder folder;
  std::ofstream(folder.path() + "/token") << "secret\n";
  chmod((folder.path() + "/token").c_str(), 0600);
  const OtlpTargets targets =
      chosen({.token_file = folder.path() + "/token"}, {{otel("HEADERS"), "authorization=Basic x,a=b"}});
  EXPECT_EQ(targets.of(Signal::kLogs).token, "secret");
  EXPECT_EQ(targets.of(Signal::kLogs).headers, (HeaderList{{"a", "b"}}));
  EXPECT_TRUE(targets.notes.empty());
}

TEST(OtlpTarget, ReadsCompressionAndTimeoutBySignal) {
  const OtlpTargets targets = chosen({}, {{otel("COMPRESSION"), "gzip"},
                                          {otel("METRICS_COMPRESSION"), "none"},
                                          {otel("TIMEOUT"), "2500"},
                                          {otel("LOGS_TIMEOUT"), "700"}});
  EXPECT_EQ(targets.of(Signal::kMetrics).compression, OtlpCompression::kNone);
  EXPECT_EQ(targets.of(Signal::kLogs).compression, OtlpCompression::kGzip);
  EXPECT_EQ(targets.of(Signal::kMetrics).timeout_ms, 2500);
  EXPECT_EQ(targets.of(Signal::kLogs).timeout_ms, 700);
  EXPECT_EQ(chosen({}).of(Signal::kLogs).compression, OtlpCompression::kBest);
  EXPECT_EQ(chosen({.compression = "zstd"}, {{otel("COMPRESSION"), "gzip"}}).of(Signal::kLogs).compression,
            OtlpCompression::kZstd);
}

TEST(OtlpTarget, NotesWhatIsOddButUsable) {
  const struct {
    OtlpSettings settings;
    OtelVariables environment;
    const char* note;
  } cases[] = {
      {{},
       {{otel("ENDPONT"), "x"}},
       "OTEL_EXPORTER_OTLP_ENDPONT: is not a variable that is read here; did you mean OTEL_EXPORTER_OTLP_ENDPOINT?"},
      {{},
       {{otel("METRICS_TEMPORALITY_PREFERENCE"), "delta"}},
       "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE: sums are cumulative here, whatever is preferred"},
      {{.server = "http://x:4317"}, {}, "--server: port 4317 is OTLP's for gRPC, but http/protobuf is sent there"},
      {{.protocol = "grpc"},
       {{otel("ENDPOINT"), "http://x:4317/v1/logs"}},
       "OTEL_EXPORTER_OTLP_ENDPOINT: gRPC has no use for the path /v1/logs"},
      {{.server = "http://gpu-server", .token = "t"},
       {},
       "the token travels unencrypted to gpu-server:4318: use https://"},
      {{.server = "http://gpu-server:4318", .ca = "/any"},
       {},
       "--ca is of no use: http://gpu-server:4318/v1/metrics is not TLS"},
  };
  for (const auto& one : cases) {
    const OtlpTargets targets = chosen(one.settings, one.environment);
    ASSERT_FALSE(targets.notes.empty()) << one.note;
    EXPECT_EQ(targets.notes.front(), one.note);
  }
  EXPECT_TRUE(
      chosen({}, {{otel("METRICS_TEMPORALITY_PREFERENCE"), "Cumulative"}, {"OTEL_SERVICE_NAME", "x"}}).notes.empty());
}

TEST(OtlpTarget, InsecureBelievesAnybodyOnlyAsAnOption) {
  if (!tls_available()) GTEST_SKIP();
  EXPECT_FALSE(chosen({.server = "https://x", .insecure = true}).of(Signal::kLogs).tls_options.verify);
  EXPECT_TRUE(chosen({.server = "https://x"}, {{otel("INSECURE"), "true"}}).of(Signal::kLogs).tls_options.verify);
}

TEST(OtlpTarget, ReadsResourceAttributes) {
  const OtlpTargets targets = chosen({}, {{"OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=lab,site=a%2Cb"}});
  EXPECT_EQ(targets.resource, (Attributes{{"deployment.environment", "lab"}, {"site", "a,b"}}));
}

TEST(OtlpTarget, ReadsTheProcesssOwnVariables) {
  setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1234", 1);
  setenv("NOT_OTEL_EXPORTER", "x", 1);
  const OtelVariables variables = otel_environment();
  EXPECT_EQ(variables.at("OTEL_EXPORTER_OTLP_TIMEOUT"), "1234");
  EXPECT_FALSE(variables.contains("NOT_OTEL_EXPORTER"));
  unsetenv("OTEL_EXPORTER_OTLP_TIMEOUT");
}

}  // namespace
}  // namespace lockstep
