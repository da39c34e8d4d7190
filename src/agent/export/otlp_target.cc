#include "agent/export/otlp_target.h"

#include <unistd.h>

#include <algorithm>
#include <optional>

#include "base/characters.h"
#include "base/files.h"
#include "base/secret_file.h"
#include "base/text.h"
#include "net/grpc_client.h"
#include "net/http_client.h"
#include "wire/compression.h"

namespace lockstep {
namespace {

constexpr std::string_view kPrefix = "OTEL_EXPORTER_OTLP_";
constexpr const char* kResourceVariable = "OTEL_RESOURCE_ATTRIBUTES";
constexpr const char* kDefaultServer = "http://127.0.0.1";
constexpr uint16_t kHttpPort = 4318;
constexpr uint16_t kGrpcPort = 4317;
constexpr int64_t kTimeoutMsMax = 600'000;

struct SignalNames {
  Signal signal;
  const char* infix;
  const char* http_path;
  const char* grpc_path;
};
constexpr SignalNames kSignals[] = {
    {Signal::kMetrics, "METRICS_", "/v1/metrics", "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"},
    {Signal::kLogs, "LOGS_", "/v1/logs", "/opentelemetry.proto.collector.logs.v1.LogsService/Export"},
    {Signal::kSpans, "TRACES_", "/v1/traces", "/opentelemetry.proto.collector.trace.v1.TraceService/Export"},
};
constexpr const char* kSuffixes[] = {"ENDPOINT",    "PROTOCOL",           "HEADERS",    "COMPRESSION", "TIMEOUT",
                                     "CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY", "INSECURE"};

// A value and who gave it, for error lines.
struct Given {
  std::string value;
  std::string name;
  bool is_option = false;
  bool of_signal = false;  // a variable of one signal
};

Error wrong(const Given& given, const std::string& why) {
  return Error{given.name + ": " + why};
}

class Reader {
 public:
  Reader(const OtelVariables& environment, const SignalNames& names) : environment_(environment), names_(names) {}

  std::optional<Given> find(const std::string& option_value, const char* option, const char* suffix) const {
    if (!option_value.empty()) return Given{option_value, option, true, false};
    for (bool of_signal : {true, false}) {
      const std::string name = std::string(kPrefix) + (of_signal ? names_.infix : "") + suffix;
      auto found = environment_.find(name);
      if (found == environment_.end()) continue;
      const std::string value(trim(found->second));
      if (!value.empty()) return Given{value, name, false, of_signal};
    }
    return std::nullopt;
  }

 private:
  const OtelVariables& environment_;
  const SignalNames& names_;
};

std::optional<std::string> percent_decode(std::string_view text) {
  for (size_t at = 0; at < text.size(); ++at) {
    auto is_digit = [&](size_t i) {
      return i < text.size() && std::isxdigit(static_cast<unsigned char>(text[i])) != 0;
    };
    if (text[at] == '%' && (!is_digit(at + 1) || !is_digit(at + 2))) return std::nullopt;
  }
  return grpc_percent_decode(text);
}

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

// key=value,key=value: what W3C Baggage writes, without properties.
Result<HeaderList> parse_pairs(const Given& given) {
  HeaderList pairs;
  for (std::string_view part : split(given.value, ',')) {
    part = trim(part);
    if (part.empty()) continue;
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos)
      return wrong(
          given, format("'%.*s' is not NAME=VALUE", static_cast<int>(std::min<size_t>(part.size(), 60)), part.data()));
    const std::string name(trim(part.substr(0, equals)));
    std::optional<std::string> value = percent_decode(trim(part.substr(equals + 1)));
    if (name.empty() || has_control_characters(name))
      return wrong(given, format("entry %zu has no usable name", pairs.size() + 1));
    // The value may be a secret: it is not repeated.
    if (!value) return wrong(given, "the value of " + name + " has a % that is not followed by two hex digits");
    pairs.emplace_back(name, std::move(*value));
  }
  return pairs;
}

Result<void> add_headers(HeaderList& headers, const Given& given) {
  static constexpr std::string_view kOurs[] = {"host",           "connection",        "content-type",
                                               "content-length", "content-encoding",  "te",
                                               "grpc-encoding",  "transfer-encoding", "grpc-timeout"};
  HeaderList pairs = LOCKSTEP_TRY(parse_pairs(given));
  for (auto& [given_name, value] : pairs) {
    const std::string name = lower_case(given_name);
    if (!is_token(name)) return wrong(given, "'" + given_name + "' is not a name for a header");
    if (!is_printable(value)) return wrong(given, "the value of " + name + " has bytes that no header can carry");
    if (std::find(std::begin(kOurs), std::end(kOurs), name) != std::end(kOurs))
      return wrong(given, "the header " + name + " is the exporter's own business");
    std::erase_if(headers, [&](const auto& header) { return header.first == name; });
    headers.emplace_back(name, std::move(value));
  }
  return {};
}

Result<OtlpProtocol> read_protocol(const std::optional<Given>& given) {
  if (!given || given->value == "http/protobuf") return OtlpProtocol::kHttp;
  if (given->value == "grpc") return OtlpProtocol::kGrpc;
  if (given->value == "http/json") return wrong(*given, "http/json is not spoken here: use http/protobuf or grpc");
  return wrong(*given, "'" + given->value + "' is no protocol: use http/protobuf or grpc");
}

Result<OtlpCompression> read_compression(const std::optional<Given>& given) {
  if (!given) return OtlpCompression::kBest;
  if (given->value == "none") return OtlpCompression::kNone;
  const bool zstd = given->value == "zstd";
  if (!zstd && given->value != "gzip")
    return wrong(*given, "'" + given->value + "' is no compression: use zstd, gzip or none");
  if (!available(zstd ? Encoding::kZstd : Encoding::kGzip)) return wrong(*given, given->value + " is not built in");
  return zstd ? OtlpCompression::kZstd : OtlpCompression::kGzip;
}

// https://host:port/path?query in its parts. The authority is checked, the rest is kept as it is.
struct Endpoint {
  Url url;
  std::string rest;  // path and query
};
Result<Endpoint> read_url(const Given& given, const std::string& text, uint16_t http_port, uint16_t https_port) {
  const size_t authority = text.find("//") + 2;
  const size_t end = std::min(text.find_first_of("/?#", authority), text.size());
  Result<Url> url = parse_url(text.substr(0, end), text.starts_with("https") ? https_port : http_port);
  if (!url.ok()) return wrong(given, url.error());
  Endpoint endpoint{std::move(url).value(), text.substr(end)};
  if (endpoint.rest.find('#') != std::string::npos || !is_printable(endpoint.rest) ||
      endpoint.rest.find(' ') != std::string::npos)
    return wrong(given, "URL '" + text.substr(0, 200) + "' has a path that cannot be sent");
  return endpoint;
}

Result<void> read_http_endpoint(const Given& given, const SignalNames& names, OtlpTarget& target) {
  if (given.value.find("://") == std::string::npos)
    return wrong(given, "'" + given.value.substr(0, 200) + "' does not start with http:// or https://");
  // Without a port: our receivers' for --server, the scheme's for the variables, as other exporters have it.
  Endpoint endpoint =
      LOCKSTEP_TRY(read_url(given, given.value, given.is_option ? kHttpPort : 80, given.is_option ? kHttpPort : 443));
  target.address = {.host = endpoint.url.host, .port = endpoint.url.port};
  target.tls = endpoint.url.tls;
  std::string path = endpoint.rest;
  if (!given.of_signal) {
    if (path.find('?') != std::string::npos)
      return wrong(given, "URL '" + given.value.substr(0, 200) + "' has a query, which a base URL cannot have");
    while (path.ends_with('/')) path.pop_back();
    path += names.http_path;
  } else if (!path.starts_with('/')) {
    path.insert(0, "/");
  }
  target.path = std::move(path);
  return {};
}

Result<bool> read_insecure(const std::optional<Given>& given) {
  if (!given) return false;
  const std::string value = lower_case(given->value);
  if (value == "true") return true;
  if (value == "false") return false;
  return wrong(*given, "'" + given->value + "' is neither true nor false");
}

Result<void> read_grpc_endpoint(const Given& given, const SignalNames& names, bool insecure, OtlpTarget& target,
                                std::vector<std::string>& notes) {
  target.path = names.grpc_path;
  if (given.value.starts_with("unix:")) {
    Result<GrpcTarget> parsed = parse_grpc_target(given.value, 0);
    if (!parsed.ok()) return wrong(given, parsed.error());
    target.address = parsed->address;
    return {};
  }
  const bool has_scheme = given.value.find("://") != std::string::npos;
  const std::string text = has_scheme ? given.value : (insecure ? "http://" : "https://") + given.value;
  const bool usual_port = given.is_option || !has_scheme;
  Endpoint endpoint = LOCKSTEP_TRY(read_url(given, text, usual_port ? kGrpcPort : 80, usual_port ? kGrpcPort : 443));
  if (!endpoint.rest.empty() && endpoint.rest != "/")
    notes.push_back(given.name + ": gRPC has no use for the path " + endpoint.rest);
  target.address = {.host = endpoint.url.host, .port = endpoint.url.port};
  target.tls = endpoint.url.tls;
  return {};
}

bool on_this_machine(const OtlpTarget& target) {
  return !target.address.unix_path.empty() || target.address.host == "localhost" || target.address.host == "::1" ||
         target.address.host.starts_with("127.");
}

Result<void> read_tls(const OtlpSettings& settings, const Reader& reader, OtlpTarget& target,
                      std::vector<std::string>& notes) {
  const std::optional<Given> ca = reader.find(settings.ca, "--ca", "CERTIFICATE");
  const std::optional<Given> cert = reader.find(settings.cert, "--cert", "CLIENT_CERTIFICATE");
  const std::optional<Given> key = reader.find(settings.key, "--key", "CLIENT_KEY");
  if (!target.tls) {
    for (const std::optional<Given>& given : {ca, cert, key}) {
      if (given) notes.push_back(given->name + " is of no use: " + target.text() + " is not TLS");
    }
    return {};
  }
  if (ca) target.tls_options.ca_file = ca->value;
  if (cert) target.tls_options.certificate_file = cert->value;
  if (key) target.tls_options.key_file = key->value;
  target.tls_options.verify = !settings.insecure;
  if (settings.insecure) notes.push_back("--insecure: whoever answers as " + to_text(target.address) + " is believed");
  TlsClient client(target.tls_options);
  if (Result<void> loaded = client.load(); !loaded.ok()) {
    const TlsFile file = client.at_fault();
    const std::optional<Given> given = file == TlsFile::kCa            ? ca
                                       : file == TlsFile::kCertificate ? cert
                                       : file == TlsFile::kKey         ? key
                                                                       : std::nullopt;
    return given ? prefixed(loaded.failure(), given->name + ": ") : loaded.failure();
  }
  return {};
}

Result<OtlpTarget> choose_one(const OtlpSettings& settings, const OtelVariables& environment, const SignalNames& names,
                              std::vector<std::string>& notes) {
  const Reader reader(environment, names);
  OtlpTarget target;

  target.protocol = LOCKSTEP_TRY(read_protocol(reader.find(settings.protocol, "--protocol", "PROTOCOL")));

  bool insecure = LOCKSTEP_TRY(read_insecure(reader.find("", "", "INSECURE")));
  const Given endpoint =
      reader.find(settings.server, "--server", "ENDPOINT").value_or(Given{kDefaultServer, "--server", true, false});
  const bool grpc = target.protocol == OtlpProtocol::kGrpc;
  LOCKSTEP_TRY(grpc ? read_grpc_endpoint(endpoint, names, insecure || settings.insecure, target, notes)
                    : read_http_endpoint(endpoint, names, target));
  if (target.address.unix_path.empty() && target.address.port == (grpc ? kHttpPort : kGrpcPort))
    notes.push_back(format("%s: port %u is OTLP's for %s, but %s is sent there", endpoint.name.c_str(),
                           target.address.port, grpc ? "HTTP" : "gRPC", grpc ? "grpc" : "http/protobuf"));
  LOCKSTEP_TRY(read_tls(settings, reader, target, notes));

  target.compression =
      LOCKSTEP_TRY(read_compression(reader.find(settings.compression, "--compression", "COMPRESSION")));

  if (const std::optional<Given> timeout = reader.find("", "", "TIMEOUT")) {
    const std::optional<int64_t> ms = parse_int(timeout->value);
    if (!ms || *ms < 1 || *ms > kTimeoutMsMax)
      return wrong(*timeout, format("'%s' is not a number of milliseconds from 1 to %lld", timeout->value.c_str(),
                                    static_cast<long long>(kTimeoutMsMax)));
    target.timeout_ms = *ms;
  }

  if (const std::optional<Given> headers = reader.find("", "", "HEADERS")) {
    LOCKSTEP_TRY(add_headers(target.headers, *headers));
  }
  bool authorization_given = false;
  for (const std::string& header : settings.headers) {
    const Given given{header, "--header", true, false};
    LOCKSTEP_TRY(add_headers(target.headers, given));
    authorization_given |= lower_case(trim(std::string_view(header).substr(0, header.find('=')))) == "authorization";
  }
  if (settings.token.empty() && settings.token_file.empty()) return target;
  if (authorization_given) return Error{"--header authorization: there is a token already; give one of the two"};
  if (!settings.token.empty() && !settings.token_file.empty())
    return Error{"--token-file: there is a token already; give one of the two"};
  std::erase_if(target.headers, [](const auto& header) { return header.first == "authorization"; });
  target.token = settings.token;
  target.token_file = settings.token_file;
  if (!target.token_file.empty()) {
    Result<std::string> token = read_private_file(target.token_file);
    if (!token.ok()) return prefixed(token.failure(), "--token-file: ");
    target.token = std::move(token).value();
  } else if (!is_printable(target.token)) {
    return Error{"the token has bytes that no header can carry"};
  }
  if (!target.tls && !on_this_machine(target))
    notes.push_back("the token travels unencrypted to " + to_text(target.address) + ": use https://");
  return target;
}

void note_variables(const OtelVariables& environment, std::vector<std::string>& notes) {
  std::vector<std::string> known;
  for (const char* suffix : kSuffixes) {
    known.push_back(std::string(kPrefix) + suffix);
    for (const SignalNames& names : kSignals) known.push_back(std::string(kPrefix) + names.infix + suffix);
  }
  for (const auto& [name, value] : environment) {
    if (!name.starts_with(kPrefix) || trim(value).empty()) continue;
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string_view rest = std::string_view(name).substr(kPrefix.size());
    if (rest == "METRICS_TEMPORALITY_PREFERENCE") {
      if (lower_case(trim(value)) != "cumulative")
        notes.push_back(name + ": sums are cumulative here, whatever is preferred");
    } else if (rest == "METRICS_DEFAULT_HISTOGRAM_AGGREGATION") {
      notes.push_back(name + ": histograms have the buckets they are made with, whatever is preferred");
    } else {
      const std::optional<std::string> near = did_you_mean(name, known);
      notes.push_back(name + ": is not a variable that is read here" + (near ? "; did you mean " + *near + "?" : ""));
    }
  }
}

}  // namespace

OtelVariables otel_environment() {
  OtelVariables variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (text.starts_with("OTEL_") && equals != std::string_view::npos)
      variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

std::string OtlpTarget::text() const {
  const bool is_unix = !address.unix_path.empty();
  const std::string where = std::string(is_unix ? "unix://" : tls ? "https://" : "http://") + to_text(address);
  return protocol == OtlpProtocol::kGrpc ? "grpc " + where : where + path;
}

Result<OtlpTargets> choose_otlp_targets(const OtlpSettings& settings, const OtelVariables& environment) {
  OtlpTargets targets;
  for (const SignalNames& names : kSignals) {
    OtlpTarget target = LOCKSTEP_TRY(choose_one(settings, environment, names, targets.notes));
    targets.by_signal[static_cast<size_t>(names.signal)] = std::move(target);
  }
  if (auto found = environment.find(kResourceVariable); found != environment.end()) {
    HeaderList pairs = LOCKSTEP_TRY(parse_pairs({found->second, kResourceVariable}));
    for (auto& [name, value] : pairs) targets.resource.push_back({name, Value(std::move(value))});
  }
  note_variables(environment, targets.notes);
  // The same for every signal is said once.
  std::vector<std::string> once;
  for (std::string& note : targets.notes) {
    if (std::find(once.begin(), once.end(), note) == once.end()) once.push_back(std::move(note));
  }
  targets.notes = std::move(once);
  return targets;
}

}  // namespace lockstep
