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
                                       const Clock& clock, Counters& counters)
    : config_(std::move(config)),
      external_url_(std::move(external_url)),
      alerts_(alerts),
      clock_(clock),
      counters_(counters),
      log_(clock, "alerts") {}

void NotificationSender::round() {
  const size_t most = config_.type == ReceiverType::kPagerDuty ? 1 : kAlertsPerMessage;
  while (!stopping() && clock_.monotonic_ns() >= quiet_until_ns_) {
    const std::vector<Delivery> due = alerts_.due(config_.name, most == 1 ? 0 : kGroupNs, most);
    if (due.empty()) return;
    const Outcome outcome = send(due);
    if (!outcome.line.empty() && !stopping())
      log_.warn(config_.name, format("receiver %s: %s; %s", config_.name.c_str(), outcome.line.c_str(),
                                     outcome.delivered ? "delivered to the others"
                                     : outcome.again   ? "trying again"
                                                       : "given up"));
    if (outcome.delivered) {
      failures_ = 0;
      alerts_.delivered(due, outcome.line);
      continue;
    }
    if (stopping()) return;  // interrupted: not the receiver's fault
    alerts_.failed(due, outcome.line, outcome.again);
    if (!outcome.again) continue;
    quiet_until_ns_ = clock_.monotonic_ns() + std::max(AlertRegistry::retry_wait_ns(failures_++), outcome.retry_ns);
  }
}

NotificationSender::Outcome NotificationSender::send(const std::vector<Delivery>& deliveries) {
  if (config_.type == ReceiverType::kEmail) return mail(deliveries);
  std::string url = config_.url, secret;
  const auto read = [&](const std::string& file, std::string& to) -> std::string {
    if (file.empty()) return {};
    Result<std::string> text = read_private_file(file);
    if (!text.ok()) return text.error();
    to = std::move(*text);
    return {};
  };
  std::string problem = read(config_.url_file, url);
  if (problem.empty())
    problem =
        read(config_.type == ReceiverType::kPagerDuty ? config_.routing_key_file : config_.bearer_token_file, secret);
  if (!problem.empty()) return {.line = problem};
  std::string body;
  if (config_.type == ReceiverType::kPagerDuty) {
    body = pagerduty_body(deliveries.front(), external_url_, secret);
  } else if (config_.type == ReceiverType::kSlack) {
    body = slack_body(deliveries, external_url_, config_.channel);
  } else {
    body = webhook_body(deliveries, external_url_);
  }
  return post(url, body, secret, message_id(deliveries));
}

NotificationSender::Outcome NotificationSender::post(const std::string& url, const std::string& body,
                                                     const std::string& secret, const std::string& id) {
  const Result<RequestUrl> parsed = parse_request_url(url);
  if (!parsed.ok()) return {.line = "its url is none"};  // the text of the error would show its host
  HttpRequest request{"POST",
                      parsed->target,
                      {{"content-type", "application/json"},
                       {"user-agent", "lockstepd"},
                       {"connection", "close"},
                       {"idempotency-key", id}},
                      body};
  if (config_.type == ReceiverType::kWebhook && !secret.empty())
    request.headers.emplace_back("authorization", "Bearer " + secret);
  HttpClient client(parsed->server, kNotifyTimeoutMs, kNotifyAnswerBytesMax, config_.tls);
  client.interrupt_by(stop_fd());
  client.cut_long_answers();
  const Result<HttpResponse> answer = client.send(request);
  if (!answer.ok()) return {.line = answer.error()};
  if (answer->status / 100 == 2) return {.delivered = true};
  Outcome outcome;
  outcome.again = answer->status != 400 && answer->status != 413 && answer->status != 422;
  outcome.retry_ns =
      std::clamp<int64_t>(parse_int(answer->header("retry-after")).value_or(0), 0, kRetryAfterMaxS) * 1'000'000'000;
  const std::string said = shown_answer(answer->body, {secret, parsed->target});
  outcome.line = format("%s answers %d%s%s", host_header(parsed->server).c_str(), answer->status,
                        answer->status / 100 == 3 ? " (a redirect, which is not followed)" : "",
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
    Result<std::string> password = read_private_file(config_.password_file);
    if (!password.ok()) return {.line = password.error()};
    server.password = std::move(*password);
  }
  std::vector<std::string> to;
  for (const std::string& address : config_.to) {
    const bool has_all = std::all_of(deliveries.begin(), deliveries.end(), [&](const Delivery& one) {
      const auto known = mailed_.find(one.id);
      return known != mailed_.end() && known->second.contains(address);
    });
    if (!has_all) to.push_back(address);
  }
  const std::string text = mail_text(deliveries, external_url_, config_.from, config_.to, clock_.unix_ns() / 1'000'000);
  const MailOutcome sent = send_mail(server, config_.from, to, text, kNotifyTimeoutMs, stop_fd());
  const Outcome outcome{.delivered = !sent.taken.empty() && !sent.again, .again = sent.again, .line = sent.line};
  if (outcome.delivered && !sent.refused.empty())
    counters_.add("lockstep_alert_mail_addresses_refused_total", format("receiver=\"%s\"", config_.name.c_str()),
                  static_cast<int64_t>(sent.refused.size()));
  if (mailed_.size() > kMailedMax) mailed_.clear();  // then somebody gets a mail twice
  for (const Delivery& one : deliveries) {
    if (!outcome.again)
      mailed_.erase(one.id);
    else if (!sent.taken.empty())
      mailed_[one.id].insert(sent.taken.begin(), sent.taken.end());
  }
  return outcome;
}

AlertmanagerSender::AlertmanagerSender(Url url, std::string external_url, AlertRegistry& alerts, const Clock& clock,
                                       Counters& counters)
    : url_(std::move(url)),
      external_url_(std::move(external_url)),
      shown_(origin_of(url_)),
      alerts_(alerts),
      clock_(clock),
      counters_(counters),
      log_(clock, "alerts"),
      client_(url_, kNotifyTimeoutMs, kNotifyAnswerBytesMax) {
  client_.interrupt_by(stop_fd());
  client_.cut_long_answers();
  MutexLock lock(mutex_);
  state_.url = shown_;
}

AlertmanagerState AlertmanagerSender::state() const {
  MutexLock lock(mutex_);
  return state_;
}

void AlertmanagerSender::round() {
  const int64_t now_ns = clock_.monotonic_ns();
  const uint64_t version = alerts_.version();
  // While it is down what is new waits for the next try too.
  if (now_ns < next_ns_ && (version == sent_version_ || !state().error.empty())) return;
  next_ns_ = now_ns + kEveryNs;
  const std::vector<Alert> alerts = alerts_.to_hold(clock_.unix_ns() - kOverNs);
  if (alerts.empty() && version == sent_version_) return;
  const HttpRequest request{"POST",
                            "/api/v2/alerts",
                            {{"content-type", "application/json"}, {"user-agent", "lockstepd"}},
                            alertmanager_body(alerts, external_url_, clock_.unix_ns() / 1'000'000, kHoldMs)};
  const Result<HttpResponse> answer = client_.send(request);
  const bool sent = answer.ok() && answer->status / 100 == 2;
  if (stopping() && !sent) return;
  counters_.add("lockstep_alertmanager_posts_total",
                format("address=\"%s\",result=\"%s\"", host_header(url_).c_str(), sent ? "sent" : "failed"));
  MutexLock lock(mutex_);
  if (sent) {
    sent_version_ = version;
    state_.sent_unix_ns = clock_.unix_ns();
    state_.error.clear();
    return;
  }
  next_ns_ = now_ns + kRetryNs;
  state_.error = answer.ok() ? format("answers %d: %s", answer->status, shown_answer(answer->body, {url_.path}).c_str())
                             : answer.error();
  log_.warn("alertmanager", format("Alertmanager %s: %s; trying again", shown_.c_str(), state_.error.c_str()));
}

}  // namespace lockstep
