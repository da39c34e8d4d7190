#include "alert/notify_config.h"

#include <map>

#include "access/tenant_name.h"
#include "alert/yaml_reader.h"
#include "base/files.h"
#include "base/secret_file.h"
#include "net/listen_address.h"

namespace lockstep {
namespace {

using yaml::absolute_path;
using yaml::line_of;
using yaml::scalar;
using yaml::Wrong;

constexpr const char* kPagerDutyUrl = "https://events.pagerduty.com/v2/enqueue";

constexpr uint32_t of(ReceiverType type) {
  return 1u << static_cast<uint32_t>(type);
}
constexpr uint32_t kEmail = of(ReceiverType::kEmail);
constexpr uint32_t kHttp = of(ReceiverType::kWebhook) | of(ReceiverType::kSlack) | of(ReceiverType::kPagerDuty);

// Which types a key is for: one that would be ignored is refused.
struct Key {
  const char* name;
  uint32_t types;
};
constexpr Key kKeys[] = {{"name", kHttp | kEmail},
                         {"type", kHttp | kEmail},
                         {"tenant", kHttp | kEmail},
                         {"severity", kHttp | kEmail},
                         {"send_resolved", kHttp | kEmail},
                         {"url", kHttp},
                         {"url_file", kHttp},
                         {"tls", kHttp | kEmail},
                         {"bearer_token_file", of(ReceiverType::kWebhook)},
                         {"routing_key_file", of(ReceiverType::kPagerDuty)},
                         {"channel", of(ReceiverType::kSlack)},
                         {"smtp", kEmail},
                         {"starttls", kEmail},
                         {"from", kEmail},
                         {"to", kEmail},
                         {"username", kEmail},
                         {"password_file", kEmail}};

std::vector<std::string> key_names() {
  std::vector<std::string> names;
  for (const Key& key : kKeys) names.emplace_back(key.name);
  return names;
}

ReceiverType type_of(const YAML::Node& node) {
  const std::string& text = scalar(node, "type");
  for (const ReceiverType type :
       {ReceiverType::kWebhook, ReceiverType::kSlack, ReceiverType::kPagerDuty, ReceiverType::kEmail}) {
    if (text == to_text(type)) return type;
  }
  throw Wrong{line_of(node), "type must be webhook, slack, pagerduty or email"};
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
    receiver.name = yaml::plain_name(value);
  } else if (key == "tenant") {
    receiver.tenant = scalar(value, "tenant");
    if (!is_tenant_name(receiver.tenant))
      throw Wrong{line_of(value), "tenant must be a tenant's name: small letters, digits, _ and -"};
    if (receiver.tenant == kDefaultTenant) receiver.tenant.clear();
  } else if (key == "url") {
    receiver.url = scalar(value, "url");
    if (const Result<RequestUrl> url = parse_request_url(receiver.url); !url.ok())
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
    receiver.tls = yaml::tls_options(value);
  }
}

// What its type needs.
void check(const ReceiverConfig& receiver, int line) {
  if (receiver.name.empty()) throw Wrong{line, "a receiver needs a name"};
  if (receiver.type == ReceiverType::kEmail) {
    if (receiver.smtp_host.empty() || receiver.from.empty() || receiver.to.empty())
      throw Wrong{line, format("email receiver \"%s\" needs smtp, from and to", receiver.name.c_str())};
    if (receiver.username.empty() != receiver.password_file.empty())
      throw Wrong{line, "username and password_file go together"};
    if (!receiver.password_file.empty() && !receiver.sends_passwords())
      throw Wrong{line, "a password is not sent without TLS: take starttls: false or password_file away"};
    return;
  }
  if (receiver.url.empty() == receiver.url_file.empty())
    throw Wrong{line, format("receiver \"%s\" needs a url or a url_file, one of them", receiver.name.c_str())};
  if (receiver.type == ReceiverType::kPagerDuty && receiver.routing_key_file.empty())
    throw Wrong{line, format("pagerduty receiver \"%s\" needs a routing_key_file", receiver.name.c_str())};
}

ReceiverConfig read_receiver(const YAML::Node& item) {
  ReceiverConfig receiver;
  std::optional<ReceiverType> type;
  std::optional<bool> starttls;
  std::map<std::string, int> given;  // key and its line
  yaml::each_key(item, "a receiver", key_names(), [&](const std::string& key, const YAML::Node& value) {
    given[key] = line_of(value);
    if (key == "type") {
      type = type_of(value);
    } else if (key == "starttls") {
      starttls = yaml::flag(value, "starttls");
    } else {
      take_key(receiver, key, value);
    }
  });
  const int line = line_of(item);
  if (!type) throw Wrong{line, "a receiver needs a type: webhook, slack, pagerduty or email"};
  receiver.type = *type;
  for (const Key& known : kKeys) {
    const auto found = given.find(known.name);
    if (found != given.end() && (known.types & of(*type)) == 0)
      throw Wrong{found->second, format("%s is not for type %s", known.name, to_text(*type))};
  }
  if (starttls && receiver.smtp_tls)
    throw Wrong{line, "starttls is for smtp://, smtps:// is TLS from the first byte on"};
  if (*type == ReceiverType::kPagerDuty && receiver.url.empty() && receiver.url_file.empty())
    receiver.url = kPagerDutyUrl;
  receiver.smtp_starttls = *type == ReceiverType::kEmail && !receiver.smtp_tls && starttls.value_or(true);
  check(receiver, line);
  return receiver;
}

}  // namespace

const char* to_text(ReceiverType type) {
  static constexpr const char* kNames[] = {"webhook", "slack", "pagerduty", "email"};
  return kNames[static_cast<size_t>(type)];
}

NotifyConfig NotifyConfig::of_tenant(std::string_view tenant) const {
  NotifyConfig own;
  std::copy_if(receivers.begin(), receivers.end(), std::back_inserter(own.receivers),
               [&](const ReceiverConfig& receiver) { return receiver.tenant == tenant; });
  return own;
}

bool ReceiverConfig::sends_passwords() const {
  return smtp_tls || smtp_starttls || is_loopback({smtp_host, smtp_port});
}

Result<NotifyConfig> parse_notify_config(std::string_view text) {
  NotifyConfig config;
  const auto take = [&](const YAML::Node& root) {
    yaml::each_key(root, "the file", {"receivers"}, [&](const std::string&, const YAML::Node& list) {
      yaml::each_item(list, "receivers", [&](const YAML::Node& item) {
        ReceiverConfig receiver = read_receiver(item);
        const int line = line_of(item);
        for (const ReceiverConfig& other : config.receivers) {
          if (other.name == receiver.name)
            throw Wrong{line, format("two receivers are called \"%s\"", receiver.name.c_str())};
        }
        if (config.receivers.size() == kReceiversMax)
          throw Wrong{line, format("more than %zu receivers", kReceiversMax)};
        config.receivers.push_back(std::move(receiver));
      });
    });
  };
  LOCKSTEP_TRY(yaml::read(text, take));
  if (config.receivers.empty()) return Error{"line 1: the file has no receivers"};
  return config;
}

Result<NotifyConfig> read_notify_file(const std::string& path) {
  if (path.empty()) return NotifyConfig{};
  const Result<std::string> text = read_file(path, 1 << 20);
  if (!text.ok()) return prefixed(text.failure(), "--notify: ");
  Result<NotifyConfig> config = parse_notify_config(*text);
  if (!config.ok()) return prefixed(config.failure(), "--notify " + path + ": ");
  for (const ReceiverConfig& receiver : config->receivers) {
    for (const std::string* file :
         {&receiver.url_file, &receiver.bearer_token_file, &receiver.routing_key_file, &receiver.password_file}) {
      if (file->empty()) continue;
      if (const Result<std::string> secret = read_private_file(*file); !secret.ok())
        return prefixed(secret.failure(), format("--notify %s: receiver %s: ", path.c_str(), receiver.name.c_str()));
    }
  }
  return config;
}

}  // namespace lockstep
