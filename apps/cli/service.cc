// `lockstep service [NAME]`: how an inference service does; without a name, which there are.
#include <cstdio>

#include "apps/cli/answer_json.h"
#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/server_call.h"
#include "base/flags.h"
#include "base/text.h"

namespace lockstep::cli {
namespace {

std::string ms_of(const Json& parent, const char* key) {
  double value = 0;
  return parent[key].get_double().get(value) ? "-" : human_duration(value * 1e6);
}

int print_list(const Json& document) {
  simdjson::dom::array services;
  if (document["services"].get_array().get(services)) return kExitFailed;
  if (services.size() == 0) {
    std::printf(
        "No service has sent spans or vLLM metrics. Point its OTLP exporter at the server (vllm serve "
        "--otlp-traces-endpoint).\n");
    return kExitOk;
  }
  for (Json service : services) std::printf("%s\n", std::string(service.get_string().value()).c_str());
  return kExitOk;
}

int print_service(const Json& document) {
  std::printf("%s\n\n%s\n\n", text_of(document, "service").c_str(), text_of(document, "sentence").c_str());
  std::printf("%-22s %10s %10s %10s\n", "", "p50", "p90", "p99");
  for (auto [title, key] : {std::pair{"time to first token", "ttft_ms"},
                            {"  in the queue", "queue_ms"},
                            {"  prefill", "prefill_ms"},
                            {"time per token", "tpot_ms"},
                            {"decode", "decode_ms"},
                            {"whole request", "e2e_ms"}}) {
    Json part;
    if (document[key].get(part) || part.is_null()) {
      std::printf("%-22s %10s\n", title, "not reported");
      continue;
    }
    std::printf("%-22s %10s %10s %10s\n", title, ms_of(part, "p50").c_str(), ms_of(part, "p90").c_str(),
                ms_of(part, "p99").c_str());
  }
  double running = 0, waiting = 0;
  if (!document["requests_running"].get_double().get(running) &&
      !document["requests_waiting"].get_double().get(waiting))
    std::printf("\nnow %.0f running, %.0f waiting\n", running, waiting);
  simdjson::dom::array slowest;
  if (!document["slowest"].get_array().get(slowest) && slowest.size() > 0) {
    std::printf("\nslowest to their first token (trace)\n");
    size_t shown = 0;
    for (Json request : slowest) {
      if (++shown > 3) break;
      std::printf("  %s  %s, %s of it in the queue\n", text_of(request, "trace_id").c_str(),
                  ms_of(request, "ttft_ms").c_str(), ms_of(request, "queue_ms").c_str());
    }
  }
  return kExitOk;
}

}  // namespace

int run_service(const Arguments& arguments) {
  std::string server = default_server();
  std::string name;
  bool json = false;
  int64_t last_s = 900;
  Flags flags("lockstep service", "how an inference service does; without a name, which there are", "[NAME]");
  add_server_flags(flags, &server)
      .number(&last_s, "--last", "SECONDS", "look back so far (default 900)", 1, 7 * 86'400)
      .toggle(&json, "--json", "the answer as JSON");
  if (std::optional<int> code = answered(flags, arguments)) return *code;
  if (!flags.positional().empty()) name = flags.positional().front();
  const std::string path =
      name.empty() ? "/api/services"
                   : format("/api/services/%s?last_s=%lld", url_part(name).c_str(), static_cast<long long>(last_s));
  Response answer = ask(server, path, "lockstep service");
  if (answer.exit_code != kExitOk) return print_failure(answer);
  if (json) {
    std::printf("%s\n", answer.body.c_str());
    return kExitOk;
  }
  simdjson::dom::parser parser;
  Json document;
  if (parser.parse(answer.body).get(document)) return not_understood("lockstep service");
  return name.empty() ? print_list(document) : print_service(document);
}

}  // namespace lockstep::cli
