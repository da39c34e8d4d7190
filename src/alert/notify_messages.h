// What receivers are sent: alerts as the body of each kind of notification. Pure text, so that tests read it.
//
// Sentences hold what others sent (names of jobs, lines of a kernel's log): each format escapes them its own way, and a
// mail's headers get one line of them, encoded. Long texts are cut.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "alert/alert_registry.h"

namespace lockstep {

// The same for every attempt at a message of these notifications, and no other's.
std::string message_id(std::span<const Delivery> deliveries);

// The beginning of what a receiver answers, for people. Some repeat what they were sent: no piece of a secret stays in it.
std::string shown_answer(std::string body, std::initializer_list<std::string_view> secrets);

// The address of a page: external_url is where people reach this server; empty: only the path is known.
std::string absolute_link(std::string_view path, std::string_view external_url);
// The same of the evidence.
std::string link_of(const Alert& alert, std::string_view external_url);
// Its annotations with the link.
Labels annotations_with_link(const Alert& alert, std::string_view external_url);

// Alertmanager's API v2, POST /api/v2/alerts: firing ones hold until hold_ms from now, others end when they ended.
std::string alertmanager_body(std::span<const Alert> alerts, std::string_view external_url, int64_t now_unix_ms,
                              int64_t hold_ms);
// As Alertmanager's webhook_config sends it (version 4), of alerts of one name and status.
std::string webhook_body(std::span<const Delivery> deliveries, std::string_view external_url);
std::string slack_body(std::span<const Delivery> deliveries, std::string_view external_url, std::string_view channel);
// Events API v2; one alert each.
std::string pagerduty_body(const Delivery& delivery, std::string_view external_url, std::string_view routing_key);
// Headers and body, lines ended by CR LF, dots not doubled.
std::string mail_text(std::span<const Delivery> deliveries, std::string_view external_url, std::string_view from,
                      const std::vector<std::string>& to, int64_t now_unix_ms);

}  // namespace lockstep
