#include "alert/notification_sender.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "alert/notify_messages.h"
#include "alert/smtp_client.h"
#include "base/contained.h"
#include "base/secret_file.h"
#include "base/text.h"

namespace lockstep {

SenderThread::SenderThread() : stop_event_(::eventfd(0, EFD_CLOEXEC)) {}

void SenderThread::start() {
  thread_ = std::thread([this] {
    while (!stopping_) {
      contained("alerts", "a round of notifications", [this] { round(); });
      pollfd waits{stop_event_.get(), POLLIN, 0};
      ::poll(&waits, 1, kEveryMs);
    }
  });
}

void SenderThread::stop() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t reported = ::write(stop_event_.get(), &one, sizeof one);
  thread_.join();
}

NotificationSender::NotificationSender(ReceiverConfig config, std::string external_url, AlertRegistry& alerts,
                                       const Clock& clock)
    : config_(std::move(config)),
      external_url_(std::move(external_url)),
      alerts_(alerts),
      clock_(clock),
      log_(clock, "alerts") {}

void NotificationSender::round() {
  const size_t most = config_.type == ReceiverType::kPagerDuty ? 1 : kAlertsPerMessage;
  while (!stopping()) {
    const std::vector<Delivery> due = alerts_.due(config_.name, most == 1 ? 0 : kGroupNs, most);
    if (due.empty()) return;
    const Outcome outcome = send(due);
    if (outcome.delivered) {
      alerts_.delivered(due);
      continue;
    }
    if (stopping()) return;  // interrupted: not the receiver's fault
    log_.warn(config_.name, format("receiver %s: %s; %s", config_.name.c_str(), outcome.line.c_str(),
                                   outcome.again ? "trying again" : "given up"));
    alerts_.failed(due, outcome.line, outcome.again, outcome.retry_ns);
  }
}

NotificationSender::Outcome NotificationSender::send(const std::vector<Delivery>& deliveries) {
  if (config_.type == ReceiverType::kEmail) return mail(deliveries);
  std::string url = config_.url, secret;
  const auto read = [&](const std::string& file, std::string& to) -> std::string {
    if (file.empty()) return {};
    Result<std::string> text = read_secret_file(file);
    if (!text.ok()) return text.error();
    to = std::move(*text);
    return {};
  };
  std::string problem = read(config_.url_file, url);
  if (problem.empty())
    problem =
        read(config_.type == ReceiverType::kPagerDuty ? config_.routing_key_file : config_.bearer_token_file, secret);
  if (!problem.empty()) return {.line = problem};
  std::string body, bearer;
  if (config_.type == ReceiverType::kPagerDuty) {
    body = pagerduty_body(deliveries.front(), external_url_, secret);
  } else if (config_.type == ReceiverType::kSlack) {
    body = slack_body(deliveries, external_url_, config_.channel);
  } else {
    body = webhook_body(deliveries, external_url_);
    bearer = secret;
  }
  return post(url, body, bearer, deliveries.front().id);
}

NotificationSender::Outcome NotificationSender::post(const std::string& url, const std::string& body,
                                                     const std::string& bearer, const std::string& id) {
  Result<Url> parsed = parse_url(url, 80);
  if (!parsed.ok()) return {.line = "its url is none"};  // the text of the error would show it
  HttpRequest request{"POST",
                      parsed->path.empty() ? "/" : parsed->path,
                      {{"content-type", "application/json"},
                       {"user-agent", "lockstepd"},
                       {"connection", "close"},
                       {"idempotency-key", id}},
                      body};
  if (!bearer.empty()) request.headers.emplace_back("authorization", "Bearer " + bearer);
  Url server = *parsed;
  server.path.clear();
  HttpClient client(server, kNotifyTimeoutMs, kNotifyAnswerBytesMax, config_.tls);
  client.interrupt_by(stop_fd());
  const Result<HttpResponse> answer = client.send(request);
  if (!answer.ok()) {
    // Whoever answers at such length has taken it.
    if (answer.code() == ErrorCode::kTooLarge) return {.delivered = true};
    return {.line = answer.error()};
  }
  if (answer->status / 100 == 2) return {.delivered = true};
  Outcome outcome;
  outcome.again = answer->status != 400 && answer->status != 413 && answer->status != 422;
  outcome.retry_ns = std::clamp<int64_t>(parse_int(answer->header("retry-after")).value_or(0), 0, 3600) * 1'000'000'000;
  std::string said = as_one_line(answer->body.substr(0, 200));
  // Some receivers repeat what they were sent.
  for (const std::string& secret : {bearer, parsed->path}) {
    for (size_t at = 0; secret.size() > 3 && (at = said.find(secret, at)) != std::string::npos;)
      said.replace(at, secret.size(), "...");
  }
  if (config_.type == ReceiverType::kPagerDuty) said.clear();
  outcome.line = format("%s answers %d%s%s",
                        to_text(StreamAddress{.host = server.host, .port = server.port, .unix_path = {}}).c_str(),
                        answer->status, answer->status / 100 == 3 ? " (a redirect, which is not followed)" : "",
                        said.empty() ? "" : (": " + said).c_str());
  return outcome;
}

NotificationSender::Outcome NotificationSender::mail(const std::vector<Delivery>& deliveries) {
  SmtpServer server{.host = config_.smtp_host,
                    .port = config_.smtp_port,
                    .tls = config_.smtp_tls,
                    .starttls = config_.smtp_starttls,
                    .tls_options = config_.tls,
                    .username = config_.username};
  if (!config_.password_file.empty()) {
    Result<std::string> password = read_secret_file(config_.password_file);
    if (!password.ok()) return {.line = password.error()};
    server.password = std::move(*password);
  }
  const std::string text = mail_text(deliveries, external_url_, config_.from, config_.to, clock_.unix_ns() / 1'000'000);
  Outcome outcome;
  const Result<void> sent =
      send_mail(server, config_.from, config_.to, text, kNotifyTimeoutMs, stop_fd(), &outcome.again);
  outcome.delivered = sent.ok();
  if (!sent.ok()) outcome.line = sent.error();
  return outcome;
}

namespace {

// Its alerts, and which of them fire: what an Alertmanager should hear of at once.
std::string state_text(const std::vector<Alert>& alerts) {
  std::string text;
  for (const Alert& alert : alerts)
    text += format("%s %lld %d\n", alert.fingerprint.c_str(), static_cast<long long>(alert.starts_unix_ns),
                   alert.firing ? 1 : 0);
  return text;
}

Url without_path(Url url) {
  url.path.clear();
  return url;
}

}  // namespace

AlertmanagerSender::AlertmanagerSender(Url url, std::string external_url, AlertRegistry& alerts, const Clock& clock,
                                       Counters& counters)
    : url_(std::move(url)),
      external_url_(std::move(external_url)),
      shown_((url_.tls ? "https://" : "http://") + host_header(url_)),
      alerts_(alerts),
      clock_(clock),
      counters_(counters),
      log_(clock, "alerts"),
      client_(without_path(url_), kNotifyTimeoutMs, kNotifyAnswerBytesMax) {
  client_.interrupt_by(stop_fd());
  MutexLock lock(mutex_);
  state_.url = shown_;
}

AlertmanagerState AlertmanagerSender::state() const {
  MutexLock lock(mutex_);
  return state_;
}

void AlertmanagerSender::round() {
  const int64_t now_ns = clock_.monotonic_ns();
  const std::vector<Alert> alerts = alerts_.to_hold(clock_.unix_ns() - kOverNs);
  const std::string text = state_text(alerts);
  if (now_ns < next_ns_ && text == sent_) return;
  if (state().error.empty() ? false : now_ns < next_ns_) return;  // it is down: what is new waits for the next try too
  next_ns_ = now_ns + kEveryNs;
  if (alerts.empty() && text == sent_) return;
  const HttpRequest request{"POST",
                            url_.path + "/api/v2/alerts",
                            {{"content-type", "application/json"}, {"user-agent", "lockstepd"}},
                            alertmanager_body(alerts, external_url_, clock_.unix_ns() / 1'000'000, kHoldMs)};
  const Result<HttpResponse> answer = client_.send(request);
  const bool sent = answer.ok() && answer->status / 100 == 2;
  if (stopping() && !sent) return;
  counters_.add("lockstep_alertmanager_posts_total",
                format("address=\"%s\",result=\"%s\"", host_header(url_).c_str(), sent ? "sent" : "failed"));
  MutexLock lock(mutex_);
  if (sent) {
    sent_ = text;
    state_.sent_unix_ns = clock_.unix_ns();
    state_.error.clear();
    return;
  }
  next_ns_ = now_ns + kRetryNs;
  state_.error = answer.ok()
                     ? format("answers %d: %s", answer->status, as_one_line(answer->body.substr(0, 200)).c_str())
                     : answer.error();
  log_.warn("alertmanager", format("Alertmanager %s: %s; trying again", shown_.c_str(), state_.error.c_str()));
}

}  // namespace lockstep
