#include "apps/cli/score_receivers.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "apps/cli/own_daemon.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/process.h"
#include "base/text.h"
#include "net/http_client.h"
#include "sim/fleet/otlp_sender.h"
#include "sim/score/observe.h"

namespace lockstep::cli {
namespace {

constexpr int64_t kPollNs = 250'000'000;
constexpr int64_t kLingerNs = 10'000'000'000;
constexpr int64_t kLeadNs = 1'000'000'000;

// Attributes that say who or where something is. Two scenarios have the same ones.
constexpr std::string_view kNames[] = {"lockstep.job_id", "host.name", "lockstep.gpu_uuid", "gpu_uuid", "hw.id",
                                       "hw.parent",       "host.id"};

void rename(Attributes& attributes, const std::string& prefix) {
  for (Attribute& attribute : attributes) {
    if (std::find(std::begin(kNames), std::end(kNames), attribute.key) == std::end(kNames)) continue;
    if (auto* text = std::get_if<std::string>(&attribute.value.data); text && !text->empty()) *text = prefix + *text;
  }
}

void rename(Batch& batch, const std::string& prefix) {
  for (ResourceGroup& group : batch.groups) {
    rename(group.resource, prefix);
    for (MetricPoint& point : group.points) rename(point.attributes, prefix);
    for (LogRecord& record : group.logs) rename(record.attributes, prefix);
    for (Span& span : group.spans) rename(span.attributes, prefix);
  }
}

void sleep_until(int64_t unix_ns, const std::function<bool()>& keep_on) {
  const SystemClock clock;
  while (!keep_on || keep_on()) {
    const int64_t left = unix_ns - clock.unix_ns();
    if (left <= 0) return;
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min<int64_t>(left, 100'000'000)));
  }
}

}  // namespace

struct ScoreServer::Impl {
  std::optional<TemporaryFolder> folder;
  std::optional<Daemon> server;
  Url http, otlp;
};

ScoreServer::ScoreServer() : impl_(std::make_unique<Impl>()) {}
ScoreServer::~ScoreServer() {
  if (impl_->server) impl_->server->process.stop();
}

Result<std::unique_ptr<ScoreServer>> ScoreServer::start() {
  std::unique_ptr<ScoreServer> made(new ScoreServer());
  Impl& impl = *made->impl_;
  TemporaryFolder folder = LOCKSTEP_TRY(TemporaryFolder::make("lockstep-score"));
  impl.folder.emplace(std::move(folder));
  Daemon server = LOCKSTEP_TRY(start_daemon("lockstepd",
                                            {"--data", impl.folder->path() + "/server", "--http", "127.0.0.1:0",
                                             "--otlp-http", "127.0.0.1:0", "--otlp-grpc", "127.0.0.1:0"},
                                            impl.folder->path()));
  impl.server.emplace(std::move(server));
  for (const auto& [receiver, url] : {std::pair("http", &impl.http), std::pair("otlp_http", &impl.otlp)}) {
    *url = LOCKSTEP_TRY(parse_url("http://" + impl.server->receivers[receiver], 80));
  }
  return made;
}

Result<sim::CaseScore> ScoreServer::play(const sim::Scenario& scenario, size_t number,
                                         const std::function<bool()>& keep_on) {
  const std::string prefix = format("s%zu-", number);
  const SystemClock clock;
  sim::ScenarioRun run(scenario, clock.unix_ns() + kLeadNs);
  sim::OtlpSender sender(impl_->otlp);
  HttpClient client(impl_->http);
  sim::Observed observed;
  sim::Watcher watcher(observed);
  std::string problem;

  const auto poll = [&] {
    for (const auto& entry : observed.jobs) {
      const Result<HttpResponse> answer = client.send({.path = "/api/jobs/" + url_part(prefix + entry.first) + "/why"});
      if (!answer.ok()) {
        problem = answer.error();
      } else if (answer->status == 200) {
        watcher.read(entry.first, answer->body, clock.unix_ns());
      }
    }
  };
  int64_t poll_at = clock.unix_ns() + kLeadNs;
  const auto wait_until = [&](int64_t unix_ns) {
    while (poll_at <= unix_ns && (!keep_on || keep_on())) {
      sleep_until(poll_at, keep_on);
      poll();
      poll_at = std::max(poll_at + kPollNs, clock.unix_ns());
    }
    sleep_until(unix_ns, keep_on);
  };

  while (std::optional<sim::Sent> sent = run.next()) {
    if (keep_on && !keep_on()) break;
    wait_until(sent->at_unix_ns);
    sim::note_jobs(sent->batch, clock.unix_ns(), observed);
    observed.requests += 1;
    observed.records += static_cast<int64_t>(sent->batch.record_count());
    rename(sent->batch, prefix);
    if (!sender.send(sent->batch, {})) problem = sender.totals().last_error;
  }
  wait_until(clock.unix_ns() + kLingerNs);
  if (!problem.empty()) return Error{problem};
  sim::CaseScore score = sim::compare(scenario, sim::answers_of(scenario), run.onsets(), observed);
  return score;
}

std::string ScoreServer::cost() const {
  const pid_t pid = impl_->server ? impl_->server->process.pid() : -1;
  std::string memory = "?";
  const Result<std::string> status = read_file(format("/proc/%d/status", static_cast<int>(pid)), 1 << 16);
  if (status.ok()) {
    const size_t at = status->find("VmHWM:");
    if (at != std::string::npos)
      memory = std::string(trim(std::string_view(*status).substr(at + 6, status->find('\n', at) - at - 6)));
  }
  return format("server: %.1f s of CPU, %s at most", process_cpu_seconds(pid), memory.c_str());
}

}  // namespace lockstep::cli
