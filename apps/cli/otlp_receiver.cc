#include "apps/cli/otlp_receiver.h"

#include <cstdlib>

#include "base/text.h"
#include "net/http_client.h"
#include "net/server_ports.h"

namespace lockstep::cli {
namespace {

constexpr uint16_t kOtlpPort = 4318, kPagePort = 7070;
constexpr int64_t kProbeMs = 1'000;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// What the agent will trust, which reads the same variables.
TlsOptions trusted() {
  TlsOptions tls;
  tls.ca_file = variable("LOCKSTEP_AGENT_CA");
  if (tls.ca_file.empty()) tls.ca_file = variable("OTEL_EXPORTER_OTLP_CERTIFICATE");
  return tls;
}

int status_of(const Url& url, const std::string& path) {  // 0: nobody answers
  HttpClient client(url, kProbeMs, 1 << 20, trusted());
  HttpRequest request;
  request.path = path;
  const Result<HttpResponse> answer = client.send(request);
  return answer.ok() ? answer->status : 0;
}

// Of somebody who does not tell: where the command line looks, else on the same host.
std::string page_beside(const Url& otlp) {
  const std::string given = variable("LOCKSTEP_SERVER");
  Url usual = otlp;
  usual.port = kPagePort;
  usual.path.clear();
  Result<Url> page = given.empty() ? Result<Url>(usual) : parse_url(given, kPagePort);
  return page.ok() && status_of(*page, "/readyz") == 200 ? origin_of(*page) + page->path : "";
}

std::string host_and_port(const std::string& url) {
  const size_t scheme = url.find("://");
  const size_t end = scheme == std::string::npos ? url.size() : std::min(url.find('/', scheme + 3), url.size());
  const Result<Url> parsed = parse_url(url.substr(0, end), kOtlpPort);
  if (!parsed.ok()) return url;
  const bool is_here = parsed->host == "localhost" || parsed->host == "::1";
  return format("%s:%u", is_here ? "127.0.0.1" : parsed->host.c_str(), static_cast<unsigned>(parsed->port));
}

}  // namespace

OtlpReceiver find_otlp_receiver(const std::string& server) {
  OtlpReceiver found{.url = server, .answers = true, .page = "", .problem = ""};
  const Result<Url> url = parse_url(server, kOtlpPort);
  if (!url.ok()) return found;
  const Result<ServerPorts> ports = ask_server_ports(*url, kProbeMs, trusted());
  if (!ports.ok()) {
    found.answers = status_of(*url, "/v1/logs") != 0;
    if (found.answers) found.page = page_beside(*url);
    return found;
  }
  const Result<Url> otlp = url_of(*url, *ports, Listener::kOtlpHttp);
  if (otlp.ok()) found.url = origin_of(*otlp) + otlp->path;
  if (!otlp.ok()) found.problem = otlp.error();
  if (const Result<Url> page = url_of(*url, *ports, Listener::kHttp); page.ok())
    found.page = origin_of(*page) + page->path;
  return found;
}

bool is_same_place(const std::string& url, const std::string& other) {
  return host_and_port(url) == host_and_port(other);
}

}  // namespace lockstep::cli
