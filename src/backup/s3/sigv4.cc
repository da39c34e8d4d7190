#include "backup/s3/sigv4.h"

#include <algorithm>

#include "base/sha256.h"
#include "base/text.h"
#include "base/utc_time.h"

namespace lockstep::backup {
namespace {

constexpr const char* kAlgorithm = "AWS4-HMAC-SHA256";

std::string_view bytes_of(const Sha256& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
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
  std::sort(request.headers.begin(), request.headers.end());
  std::string headers, names;
  for (const auto& [name, value] : request.headers) {
    headers += name + ":" + std::string(trim(value)) + "\n";
    names += (names.empty() ? "" : ";") + name;
  }
  const std::string canonical = request.method + "\n" + request.path + "\n" +
                                canonical_query(std::move(request.query)) + "\n" + headers + "\n" + names + "\n" +
                                request.payload_sha256;
  const std::string day = utc_time(unix_s * 1000, "%Y%m%d");
  const std::string scope = day + "/" + region + "/s3/aws4_request";
  const std::string to_sign =
      std::string(kAlgorithm) + "\n" + amz_date(unix_s) + "\n" + scope + "\n" + to_text(sha256(canonical));
  Sha256 key = hmac_sha256("AWS4" + keys.secret_key, day);
  for (const std::string& part : {region, std::string("s3"), std::string("aws4_request")})
    key = hmac_sha256(bytes_of(key), part);
  return std::string(kAlgorithm) + " Credential=" + keys.access_key + "/" + scope + ", SignedHeaders=" + names +
         ", Signature=" + to_text(hmac_sha256(bytes_of(key), to_sign));
}

}  // namespace lockstep::backup
