#include "s3/sigv4.h"

#include <algorithm>

#include "base/sha256.h"
#include "base/text.h"
#include "base/utc_time.h"

namespace lockstep::s3 {
namespace {

constexpr const char* kAlgorithm = "AWS4-HMAC-SHA256";

std::string_view bytes_of(const Sha256& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

std::string scope_of(const std::string& region, int64_t unix_s) {
  return utc_time(unix_s * 1000, "%Y%m%d") + "/" + region + "/s3/aws4_request";
}

struct Signed {
  std::string signature;
  std::string names;  // of the headers that are signed
};

Signed sign(const AwsKeys& keys, const std::string& region, int64_t unix_s, RequestToSign request) {
  std::sort(request.headers.begin(), request.headers.end());
  std::string headers, names;
  for (const auto& [name, value] : request.headers) {
    headers += name + ":" + std::string(trim(value)) + "\n";
    names += (names.empty() ? "" : ";") + name;
  }
  const std::string canonical = request.method + "\n" + request.path + "\n" +
                                canonical_query(std::move(request.query)) + "\n" + headers + "\n" + names + "\n" +
                                request.payload_sha256;
  const std::string to_sign = std::string(kAlgorithm) + "\n" + amz_date(unix_s) + "\n" + scope_of(region, unix_s) +
                              "\n" + to_text(sha256(canonical));
  Sha256 key = hmac_sha256("AWS4" + keys.secret_key, utc_time(unix_s * 1000, "%Y%m%d"));
  for (const std::string& part : {region, std::string("s3"), std::string("aws4_request")})
    key = hmac_sha256(bytes_of(key), part);
  return {to_text(hmac_sha256(bytes_of(key), to_sign)), std::move(names)};
}

}  // namespace

std::string canonical_query(std::vector<std::pair<std::string, std::string>> query) {
  for (auto& [name, value] : query) {
    name = url_part(name);
    value = url_part(value);
  }
  std::sort(query.begin(), query.end());
  std::string text;
  for (const auto& [name, value] : query) text += (text.empty() ? "" : "&") + name + "=" + value;
  return text;
}

std::string amz_date(int64_t unix_s) {
  return utc_time(unix_s * 1000, "%Y%m%dT%H%M%SZ");
}

std::string authorization_v4(const AwsKeys& keys, const std::string& region, int64_t unix_s, RequestToSign request) {
  const Signed done = sign(keys, region, unix_s, std::move(request));
  return std::string(kAlgorithm) + " Credential=" + keys.access_key + "/" + scope_of(region, unix_s) +
         ", SignedHeaders=" + done.names + ", Signature=" + done.signature;
}

std::string presigned_query(const AwsKeys& keys, const std::string& region, int64_t unix_s, int64_t expires_s,
                            const std::string& method, const std::string& path, const std::string& host,
                            std::vector<std::pair<std::string, std::string>> query) {
  query.emplace_back("X-Amz-Algorithm", kAlgorithm);
  query.emplace_back("X-Amz-Credential", keys.access_key + "/" + scope_of(region, unix_s));
  query.emplace_back("X-Amz-Date", amz_date(unix_s));
  query.emplace_back("X-Amz-Expires", std::to_string(expires_s));
  query.emplace_back("X-Amz-SignedHeaders", "host");
  if (!keys.session_token.empty()) query.emplace_back("X-Amz-Security-Token", keys.session_token);
  const Signed done = sign(keys, region, unix_s, {method, path, query, {{"host", host}}, "UNSIGNED-PAYLOAD"});
  return canonical_query(std::move(query)) + "&X-Amz-Signature=" + done.signature;
}

}  // namespace lockstep::s3
