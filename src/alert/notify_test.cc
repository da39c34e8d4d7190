#include <gtest/gtest.h>

#include "alert/notify_config.h"
#include "alert/notify_messages.h"
#include "alert/smtp_client.h"
#include "base/base64.h"
#include "base/json_reader.h"

namespace lockstep {
namespace {

constexpr const char* kGood = R"(receivers:
  - name: oncall
    type: pagerduty
    routing_key_file: /etc/key
    severity: critical
  - {name: chat, type: slack, url_file: /etc/url, channel: "#gpu"}
  - {name: query, type: webhook, url: "https://hooks.example/a/?key=1", tenant: acme}
  - {name: hook, type: webhook, url: "http://127.0.0.1:9/x", bearer_token_file: /etc/token, send_resolved: false}
  - name: mail
    type: email
    smtp: smtps://mail.example:465
    from: lockstep@example.com
    to: [a@example.com, b@example.com]
    username: u
    password_file: /etc/password
)";

TEST(NotifyConfig, ReadsReceiversOfEveryType) {
  const Result<NotifyConfig> config = parse_notify_config(kGood);
  ASSERT_TRUE(config.ok()) << config.error();
  ASSERT_EQ(config->receivers.size(), 5u);
  EXPECT_EQ(config->receivers[0].url, "https://events.pagerduty.com/v2/enqueue");
  EXPECT_EQ(config->receivers[0].least, AlertSeverity::kCritical);
  EXPECT_EQ(config->of_tenant("").receivers.size(), 4u);
  ASSERT_EQ(config->of_tenant("acme").receivers.size(), 1u);
  EXPECT_EQ(config->of_tenant("acme").receivers[0].name, "query");
  EXPECT_EQ(config->of_tenant("other").receivers.size(), 0u);
  EXPECT_FALSE(config->receivers[3].send_resolved);
  EXPECT_TRUE(config->receivers[4].smtp_tls);
}

TEST(NotifyConfig, SaysInWhichLineItIsWrongAndShowsNoSecret) {
  struct Case {
    const char *text, *line;
  };
  for (const Case& one : std::initializer_list<Case>{
           {"receivers:\n  - {name: a, type: fax}\n", "line 2: type must be"},
           {"receivers:\n  - {name: a, type: webhook}\n", "line 2: receiver \"a\" needs a url"},
           {"receivers:\n  - {name: a, type: webhook, url: 'http://x'}\n  - {name: a, type: webhook, url: "
            "'http://x'}\n",
            "line 3: two receivers"},
           {"receivers:\n  - {name: a, type: webhook, ulr: 'http://x'}\n", "did you mean url?"},
           {"receivers:\n  - {name: a, type: webhook, url: 'ftp://secret'}\n", "line 2: url must be"},
           {"receivers:\n  - {name: a, type: email, smtp: 'smtp://m', from: \"a@b\\r\\nBcc: c@d\", to: a@b}\n",
            "line 2:"},
           {"receivers:\n  - {name: a, type: pagerduty}\n", "routing_key_file"},
           {"receivers:\n  - {name: a, type: webhook, url: 'http://x', tenant: A B}\n", "line 2: tenant must be"},
           {"receivers:\n  - {name: a, type: slack, url: 'http://x', bearer_token_file: /x}\n",
            "bearer_token_file is not for type slack"},
           {"receivers:\n  - {name: a, type: webhook, url: 'http://x', starttls: false}\n",
            "starttls is not for type webhook"},
           {"receivers:\n  - {name: a, type: webhook, url: 'http://x/#secret'}\n", "line 2: url must be"},
           {"receivers:\n  - {name: a, type: email, smtp: 'smtps://m', starttls: true, from: a@b, to: a@b}\n",
            "starttls is for smtp://"},
           {"receivers:\n  - {name: a, type: email, smtp: 'smtp://m', starttls: false, from: a@b, to: a@b, username: "
            "u, "
            "password_file: /x}\n",
            "a password is not sent without TLS"},
           {"receivers: []\n", "no receivers"},
           {"receivers: [", "not YAML"},
           {"", "line 1"}}) {
    const Result<NotifyConfig> config = parse_notify_config(one.text);
    ASSERT_FALSE(config.ok()) << one.text;
    EXPECT_NE(config.error().find(one.line), std::string::npos) << config.error();
    EXPECT_EQ(config.error().find("secret"), std::string::npos) << config.error();
  }
}

Delivery hostile() {
  Delivery delivery{.id = "hook/f/1/firing", .receiver = "hook"};
  delivery.alert = {.fingerprint = "f",
                    .name = "LockstepHang",
                    .severity = AlertSeverity::kCritical,
                    .firing = true,
                    .labels = {{"alertname", "LockstepHang"}, {"host", "n1"}},
                    .annotations = {{"summary", "Job <!channel> \"x\"\r\nBcc: evil@example.com\r\n.\r\nQUIT"}},
                    .path = "/jobs/x",
                    .starts_unix_ns = 1'700'000'000'000'000'000};
  return delivery;
}

TEST(NotifyMessages, WhatOthersSentStaysText) {
  const std::vector<Delivery> one{hostile()};
  for (const std::string& body :
       {webhook_body(one, "http://l"), slack_body(one, "http://l", "#x"), pagerduty_body(one[0], "http://l", "key"),
        alertmanager_body(std::vector<Alert>{one[0].alert}, "http://l", 1, 1)})
    EXPECT_TRUE(JsonDocument::parse(body).ok()) << body;
  EXPECT_EQ(slack_body(one, "", "").find("<!channel>"), std::string::npos);
  const std::string mail = mail_text(one, "http://l", "a@b", {"c@d"}, 1'700'000'000'000);
  const std::string head = mail.substr(0, mail.find("\r\n\r\n"));
  EXPECT_EQ(head.find("evil"), std::string::npos) << head;
  EXPECT_EQ(mail.find("\r\n."), std::string::npos);
  EXPECT_EQ(mail.find("QUIT"), std::string::npos);
}

TEST(NotifyMessages, AGroupThatHasGrownIsAnotherMessage) {
  std::vector<Delivery> group{hostile()};
  const std::string before = message_id(group), mail = mail_text(group, "", "a@b", {"c@d"}, 1);
  EXPECT_EQ(message_id(group), before);
  group.push_back(hostile());
  group[1].id = "hook/g/1/firing";
  EXPECT_NE(message_id(group), before) << "a receiver that knows the first would drop the second unseen";
  const auto id_line = [](const std::string& text) { return text.substr(text.find("Message-ID"), 60); };
  EXPECT_NE(id_line(mail_text(group, "", "a@b", {"c@d"}, 1)), id_line(mail));
}

TEST(NotifyMessages, EachCarriesTheSentenceAndTheLink) {
  const std::vector<Delivery> one{hostile()};
  const std::string body = webhook_body(one, "https://lockstep.example/");
  const JsonDocument document = *JsonDocument::parse(body);
  const JsonValue alert = *document.root()["alerts"].begin();
  EXPECT_EQ(alert["annotations"]["link"].string(), "https://lockstep.example/jobs/x");
  EXPECT_EQ(alert["status"].string(), "firing");
  EXPECT_NE(slack_body(one, "https://l", "").find("https://l/jobs/x"), std::string::npos);
}

// The plain text of a mail.
std::string body_of(const std::string& mail) {
  std::string encoded;
  for (const char letter : mail.substr(mail.find("\r\n\r\n") + 4)) {
    if (letter != '\r' && letter != '\n') encoded += letter;
  }
  return decode_base64(encoded).value_or("");
}

TEST(NotifyMessages, EachLeadsToThePageOnItsCause) {
  Delivery delivery = hostile();
  set_label(delivery.alert.labels, "cause", "data-loader");
  const std::vector<Delivery> one{delivery};
  const std::string link = "https://l/docs/runbooks/data-loader";
  for (const std::string& body : {webhook_body(one, "https://l/"), slack_body(one, "https://l/", ""),
                                  pagerduty_body(delivery, "https://l/", "key"),
                                  alertmanager_body(std::vector<Alert>{delivery.alert}, "https://l/", 1, 1),
                                  body_of(mail_text(one, "https://l/", "a@b", {"c@d"}, 1'700'000'000'000))})
    EXPECT_NE(body.find(link), std::string::npos) << body;
  EXPECT_EQ(webhook_body(std::vector<Delivery>{hostile()}, "https://l").find("runbooks"), std::string::npos);
}

TEST(NotifyMessages, ARuleMayNameARunbookOfItsOwn) {
  Delivery delivery = hostile();
  delivery.alert.from_rule = true;
  set_label(delivery.alert.labels, "cause", "ecc");
  set_label(delivery.alert.annotations, "runbook_url", "https://wiki/ecc");
  const Labels annotations = annotations_with_link(delivery.alert, "https://l");
  EXPECT_NE(std::find(annotations.begin(), annotations.end(), Labels::value_type{"runbook_url", "https://wiki/ecc"}),
            annotations.end());
}

TEST(NotifyMessages, EachLeadsToItsIncidentWhereThereIsOne) {
  Delivery delivery = hostile();
  set_label(delivery.alert.annotations, "incident", "/incidents/i-1");
  const std::vector<Delivery> one{delivery};
  const std::string link = "https://l/incidents/i-1";
  const std::string mail = mail_text(one, "https://l/", "a@b", {"c@d"}, 1'700'000'000'000);
  for (const std::string& body :
       {webhook_body(one, "https://l/"), slack_body(one, "https://l/", ""),
        pagerduty_body(delivery, "https://l/", "key"),
        alertmanager_body(std::vector<Alert>{delivery.alert}, "https://l/", 1, 1), body_of(mail)})
    EXPECT_NE(body.find(link), std::string::npos) << body;
  EXPECT_EQ(webhook_body(std::vector<Delivery>{hostile()}, "https://l").find("incident"), std::string::npos);
}

TEST(Smtp, AnswersAreReadWholeOrRefused) {
  EXPECT_EQ(parse_smtp_answer("250-a\r\n250 b\r\nrest")->bytes, 14u);
  EXPECT_EQ(parse_smtp_answer("250-a\r\n250 b\r\n")->code, 250);
  EXPECT_EQ(parse_smtp_answer("250-a\r\n250 ")->bytes, 0u);
  for (const std::string& wrong : {std::string("HTTP/1.1 200 OK\r\n"), std::string("250-a\r\n550 b\r\n"),
                                   std::string("99\r\n"), std::string(20'000, '2')})
    EXPECT_FALSE(parse_smtp_answer(wrong).ok()) << wrong.substr(0, 20);
}

}  // namespace
}  // namespace lockstep
