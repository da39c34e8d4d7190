#include "alert/notify_config.h"

#include "alert/yaml_reader.h"
#include "base/files.h"
#include "base/secret_file.h"

namespace lockstep {
namespace {

using yaml::line_of;
using yaml::scalar;
using yaml::Wrong;

constexpr const char* kPagerDutyUrl = "https://events.pagerduty.com/v2/enqueue";

const std::vector<std::string> kKeys = {
    "name",     "type", "url", "url_file", "bearer_token_file", "routing_key_file", "channel", "smtp",
    "starttls", "from", "to",  "username", "severity",          "send_resolved",    "tls",     "password_file"};

ReceiverType type_of(const YAML::Node& node) {
  const std::string& text = scalar(node, "type");
  for (const ReceiverType type :
       {ReceiverType::kWebhook, ReceiverType::kSlack, ReceiverType::kPagerDuty, ReceiverType::kEmail}) {
    if (text == to_text(type)) return type;
  }
  throw Wrong{line_of(node), "type must be webhook, slack, pagerduty or email"};
}

std::string absolute_path(const YAML::Node& node, const char* what) {
  const std::string& path = scalar(node, what);
  if (!path.starts_with('/')) throw Wrong{line_of(node), format("%s must be an absolute path", what)};
  return path;
}

// Goes into SMTP commands and headers: nothing but what an address is made of.
std::string mail_address(const YAML::Node& node) {
  const std::string& text = scalar(node, "an address");
  const size_t at = text.find('@');
  const bool plain =
      text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.!#$%&'*+-/=?^_`{|}~@") ==
      std::string::npos;
  if (!plain || at == 0 || at == std::string::npos || at + 1 == text.size() ||
      text.find('@', at + 1) != std::string::npos || text.size() > 254)
    throw Wrong{line_of(node), format("\"%s\" is no mail address", yaml::shown(text).c_str())};
  return text;
}

void take_tls(TlsOptions& tls, const YAML::Node& node) {
  yaml::each_key(node, "tls", {"ca_file", "cert_file", "key_file", "server_name"},
                 [&](const std::string& key, const YAML::Node& value) {
                   if (key == "ca_file") tls.ca_file = absolute_path(value, "ca_file");
                   if (key == "cert_file") tls.certificate_file = absolute_path(value, "cert_file");
                   if (key == "key_file") tls.key_file = absolute_path(value, "key_file");
                   if (key == "server_name") tls.server_name = scalar(value, "server_name");
                 });
  if (tls.certificate_file.empty() != tls.key_file.empty())
    throw Wrong{line_of(node), "cert_file and key_file go together"};
}

void take_smtp(ReceiverConfig& receiver, const YAML::Node& node) {
  const std::string& text = scalar(node, "smtp");
  const bool tls = text.starts_with("smtps://");
  if (!tls && !text.starts_with("smtp://"))
    throw Wrong{line_of(node), "smtp must be smtp://HOST:PORT or smtps://HOST:PORT"};
  const Result<Url> url = parse_url("http" + text.substr(text.find(':')), tls ? 465 : 587);
  if (!url.ok() || !url->path.empty()) throw Wrong{line_of(node), "smtp must be smtp://HOST:PORT or smtps://HOST:PORT"};
  receiver.smtp_host = url->host;
  receiver.smtp_port = url->port;
  receiver.smtp_tls = tls;
}

void take_key(ReceiverConfig& receiver, const std::string& key, const YAML::Node& value) {
  if (key == "name") {
    receiver.name = scalar(value, "name");
    const bool plain = receiver.name.find_first_not_of(
                           "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == std::string::npos;
    if (!plain || receiver.name.empty() || receiver.name.size() > 60)
      throw Wrong{line_of(value), "name must be letters, digits, _ and -, at most 60"};
  } else if (key == "url") {
    receiver.url = scalar(value, "url");
    if (const Result<Url> url = parse_url(receiver.url, 80); !url.ok())
      throw Wrong{line_of(value), "url must be http://... or https://..."};
  } else if (key == "url_file") {
    receiver.url_file = absolute_path(value, "url_file");
  } else if (key == "bearer_token_file") {
    receiver.bearer_token_file = absolute_path(value, "bearer_token_file");
  } else if (key == "routing_key_file") {
    receiver.routing_key_file = absolute_path(value, "routing_key_file");
  } else if (key == "password_file") {
    receiver.password_file = absolute_path(value, "password_file");
  } else if (key == "channel") {
    receiver.channel = scalar(value, "channel");
  } else if (key == "smtp") {
    take_smtp(receiver, value);
  } else if (key == "from") {
    receiver.from = mail_address(value);
  } else if (key == "to") {
    if (value.IsScalar()) {
      receiver.to.push_back(mail_address(value));
    } else {
      yaml::each_item(value, "to", [&](const YAML::Node& item) { receiver.to.push_back(mail_address(item)); });
    }
    if (receiver.to.empty() || receiver.to.size() > 100) throw Wrong{line_of(value), "to has 1 to 100 addresses"};
  } else if (key == "username") {
    receiver.username = scalar(value, "username");
  } else if (key == "severity") {
    const std::string& text = scalar(value, "severity");
    if (text != "info" && text != "warning" && text != "critical")
      throw Wrong{line_of(value), "severity must be info, warning or critical"};
    receiver.least = severity_of(text);
  } else if (key == "send_resolved") {
    receiver.send_resolved = yaml::flag(value, "send_resolved");
  } else if (key == "tls") {
    take_tls(receiver.tls, value);
  }
}

// What one type needs, and the others must not have.
void check(const ReceiverConfig& receiver, int line) {
  const bool is_email = receiver.type == ReceiverType::kEmail;
  const auto only = [&](const std::string& value, ReceiverType type, const char* key) {
    if (!value.empty() && receiver.type != type) throw Wrong{line, format("%s is for type %s", key, to_text(type))};
  };
  if (receiver.name.empty()) throw Wrong{line, "a receiver needs a name"};
  only(receiver.bearer_token_file, ReceiverType::kWebhook, "bearer_token_file");
  only(receiver.routing_key_file, ReceiverType::kPagerDuty, "routing_key_file");
  only(receiver.channel, ReceiverType::kSlack, "channel");
  only(receiver.smtp_host, ReceiverType::kEmail, "smtp");
  only(receiver.from, ReceiverType::kEmail, "from");
  only(receiver.username, ReceiverType::kEmail, "username");
  if (is_email) {
    if (receiver.smtp_host.empty() || receiver.from.empty() || receiver.to.empty())
      throw Wrong{line, format("email receiver \"%s\" needs smtp, from and to", receiver.name.c_str())};
    if (receiver.username.empty() != receiver.password_file.empty())
      throw Wrong{line, "username and password_file go together"};
    if (!receiver.url.empty() || !receiver.url_file.empty()) throw Wrong{line, "an email receiver has no url"};
    return;
  }
  if (receiver.url.empty() == receiver.url_file.empty())
    throw Wrong{line, format("receiver \"%s\" needs a url or a url_file, one of them", receiver.name.c_str())};
  if (receiver.type == ReceiverType::kPagerDuty && receiver.routing_key_file.empty())
    throw Wrong{line, format("pagerduty receiver \"%s\" needs a routing_key_file", receiver.name.c_str())};
}

}  // namespace

const char* to_text(ReceiverType type) {
  static constexpr const char* kNames[] = {"webhook", "slack", "pagerduty", "email"};
  return kNames[static_cast<size_t>(type)];
}

Result<NotifyConfig> parse_notify_config(std::string_view text) {
  NotifyConfig config;
  const Result<void> read = yaml::read(text, [&](const YAML::Node& root) {
    yaml::each_key(root, "the file", {"receivers"}, [&](const std::string&, const YAML::Node& list) {
      yaml::each_item(list, "receivers", [&](const YAML::Node& item) {
        ReceiverConfig receiver;
        bool type_given = false;
        std::optional<bool> starttls;
        yaml::each_key(item, "a receiver", kKeys, [&](const std::string& key, const YAML::Node& value) {
          if (key == "type") {
            receiver.type = type_of(value);
            type_given = true;
          } else if (key == "starttls") {
            starttls = yaml::flag(value, "starttls");
          } else {
            take_key(receiver, key, value);
          }
        });
        const int line = line_of(item);
        if (!type_given) throw Wrong{line, "a receiver needs a type: webhook, slack, pagerduty or email"};
        if (receiver.type == ReceiverType::kPagerDuty && receiver.url.empty() && receiver.url_file.empty())
          receiver.url = kPagerDutyUrl;
        receiver.smtp_starttls = receiver.type == ReceiverType::kEmail && !receiver.smtp_tls && starttls.value_or(true);
        check(receiver, line);
        for (const ReceiverConfig& other : config.receivers) {
          if (other.name == receiver.name)
            throw Wrong{line, format("two receivers are called \"%s\"", receiver.name.c_str())};
        }
        if (config.receivers.size() == kReceiversMax)
          throw Wrong{line, format("more than %zu receivers", kReceiversMax)};
        config.receivers.push_back(std::move(receiver));
      });
    });
  });
  if (!read.ok()) return read.failure();
  if (config.receivers.empty()) return Error{"line 1: the file has no receivers"};
  return config;
}

Result<NotifyConfig> read_notify_file(const std::string& path) {
  if (path.empty()) return NotifyConfig{};
  const Result<std::string> text = read_file(path, 1 << 20);
  if (!text.ok()) return Error{"--notify: " + text.error()};
  Result<NotifyConfig> config = parse_notify_config(*text);
  if (!config.ok()) return Error{"--notify " + path + ": " + config.error()};
  for (const ReceiverConfig& receiver : config->receivers) {
    for (const std::string* file :
         {&receiver.url_file, &receiver.bearer_token_file, &receiver.routing_key_file, &receiver.password_file}) {
      if (file->empty()) continue;
      if (const Result<std::string> secret = read_secret_file(*file); !secret.ok())
        return Error{
            format("--notify %s: receiver %s: %s", path.c_str(), receiver.name.c_str(), secret.error().c_str())};
    }
  }
  return config;
}

}  // namespace lockstep
