#include "s3/s3_client.h"

#include <chrono>
#include <ctime>
#include <thread>

#include "base/sha256.h"
#include "base/text.h"

namespace lockstep::s3 {
namespace {

// What a person can do about it, by the store's word for it.
struct Advice {
  std::string_view code;
  const char* text;
};
constexpr Advice kAdvice[] = {
    {"AccessDenied", "these keys may not do that there"},
    {"InvalidAccessKeyId", "the store does not know this AWS_ACCESS_KEY_ID"},
    {"SignatureDoesNotMatch", "the secret key is wrong, or the region (AWS_REGION)"},
    {"RequestTimeTooSkewed", "this machine's clock is wrong"},
    {"ExpiredToken", "the keys have expired"},
    {"InvalidToken", "AWS_SESSION_TOKEN is none of these keys"},
    {"NoSuchBucket", "there is no such bucket; make it first"},
    {"PermanentRedirect", "the bucket is in another region: set AWS_REGION"},
    {"AuthorizationHeaderMalformed", "the bucket is in another region: set AWS_REGION"},
};

bool is_worth_another_try(const HttpResponse& answer) {
  return answer.status >= 500
             ? answer.status != 501
             : answer.status == 429 || (answer.status == 400 && refusal_code(answer.body) == "RequestTimeout");
}

}  // namespace

Result<Client> Client::make(S3Place place, S3Settings settings, uint64_t answer_bytes_max) {
  Url endpoint = LOCKSTEP_TRY(parse_url(settings.endpoint));
  return Client(std::move(place), std::move(settings), std::move(endpoint), answer_bytes_max);
}

Client::Client(S3Place place, S3Settings settings, Url endpoint, uint64_t answer_bytes_max)
    : place_(std::move(place)),
      text_("s3://" + place_.bucket + (place_.prefix.empty() ? "" : "/" + place_.prefix)),
      settings_(std::move(settings)),
      endpoint_(std::move(endpoint)),
      client_(endpoint_, settings_.timeout_ms, answer_bytes_max, {.ca_file = settings_.ca_file}) {}

// As sent, behind the endpoint's own path.
std::string Client::path_of(std::string_view name) const {
  std::string path = "/" + place_.bucket;
  if (name.empty()) return path;
  const std::string key = key_of(name);
  for (const std::string_view part : split(key, '/')) path += "/" + url_part(part);
  return path;
}

std::string Client::shown(std::string_view name) const {
  return name.empty() ? text_ : "s3://" + place_.bucket + "/" + key_of(name);
}

Error Client::refused(std::string_view name, const HttpResponse& answer) const {
  const std::string code = refusal_code(answer.body);
  std::string line =
      format("%s: the store answers %d%s%s", shown(name).c_str(), answer.status, code.empty() ? "" : " ", code.c_str());
  for (const Advice& advice : kAdvice) {
    if (advice.code == code) line += std::string(": ") + advice.text;
  }
  if (const std::string_view region = answer.header("x-amz-bucket-region"); !region.empty() && answer.status == 301)
    line += " to " + as_one_line(region.substr(0, 40));
  return Error{std::move(line), code == "NoSuchBucket" ? ErrorCode::kNotFound : ErrorCode::kUnspecified};
}

Result<HttpResponse> Client::ask_once(const Request& request) {
  const int64_t now_s = static_cast<int64_t>(std::time(nullptr));
  const std::string path = path_of(request.name);
  const std::string sum = request.sha256.empty() ? to_text(sha256(request.body)) : request.sha256;
  HttpRequest sent;
  sent.method = request.method;
  sent.body = request.body;
  sent.headers = request.headers;
  sent.headers.emplace_back("x-amz-date", amz_date(now_s));
  sent.headers.emplace_back("x-amz-content-sha256", sum);
  if (!settings_.keys.session_token.empty())
    sent.headers.emplace_back("x-amz-security-token", settings_.keys.session_token);
  RequestToSign signing{sent.method, endpoint_.path + path, request.query, sent.headers, sum};
  signing.headers.emplace_back("host", host_header(endpoint_));
  sent.headers.emplace_back("authorization",
                            authorization_v4(settings_.keys, settings_.region, now_s, std::move(signing)));
  const std::string query = canonical_query(request.query);
  sent.path = path + (query.empty() ? "" : "?" + query);
  Result<HttpResponse> answer = client_.send(sent);
  is_answering_ = answer.ok();
  return answer;
}

Result<HttpResponse> Client::ask(const Request& request) {
  int64_t wait_ms = settings_.retry_wait_ms;
  for (int tried = 1;; ++tried, wait_ms *= 2) {
    Result<HttpResponse> answer = ask_once(request);
    if (answer.ok() && !is_worth_another_try(*answer)) return answer;
    if (tried >= settings_.tries) {
      const std::string times = format(" (tried %d times)", tried);
      if (!answer.ok()) return Error{shown(request.name) + ": " + answer.error() + times, answer.code()};
      return Error{refused(request.name, *answer).message + times};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
  }
}

Result<ListPage> Client::list_page(const std::string& prefix, const std::string& from) {
  const std::string begin = key_of(prefix);
  Request wanted{.query = {{"list-type", "2"}, {"prefix", begin}}};
  if (!from.empty()) wanted.query.emplace_back("continuation-token", from);
  const HttpResponse answer = LOCKSTEP_TRY(ask(wanted));
  if (answer.status != 200) return refused("", answer);
  Result<ListPage> page = read_list_page(answer.body);
  if (!page.ok()) return prefixed(page.failure(), shown("") + ": ");
  for (ListEntry& entry : page->entries) {
    if (!entry.name.starts_with(begin)) return Error{shown("") + ": the store lists what was not asked for"};
    entry.name.erase(0, key_of("").size());
  }
  if (!page->next.empty() && (page->next == from || page->entries.empty()))
    return Error{shown("") + ": the store's list does not end"};
  return page;
}

std::string Client::presigned_url(const std::string& method, const std::string& name, Pairs query,
                                  int64_t expires_s) const {
  const std::string path = path_of(name), host = host_header(endpoint_);
  return std::string(endpoint_.tls ? "https://" : "http://") + host + endpoint_.path + path + "?" +
         presigned_query(settings_.keys, settings_.region, static_cast<int64_t>(std::time(nullptr)), expires_s, method,
                         endpoint_.path + path, host, std::move(query));
}

}  // namespace lockstep::s3
