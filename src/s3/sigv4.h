// How a request to S3 proves who sends it: AWS Signature Version 4, with the signature in the header authorization, or in
// the query, for a request that somebody without the keys is to send.
//
// Secrets stay in what is hashed: nothing here puts one into a text that is sent or shown.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::s3 {

struct AwsKeys {
  std::string access_key;
  std::string secret_key;
  std::string session_token;  // of keys that last for a while; empty: none
  bool operator==(const AwsKeys&) const = default;
};

struct RequestToSign {
  std::string method;
  std::string path;                                          // as sent: percent-encoded, from its first '/'
  std::vector<std::pair<std::string, std::string>> query;    // as meant: not encoded, in any order
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case, in any order; host is among them
  std::string payload_sha256;                                // 64 digits
};

// The query as it is signed, and may be sent.
std::string canonical_query(std::vector<std::pair<std::string, std::string>> query);
// "20130524T000000Z": the header x-amz-date.
std::string amz_date(int64_t unix_s);
// The value of the header authorization. Headers other than these are not signed and may be changed on the way.
std::string authorization_v4(const AwsKeys& keys, const std::string& region, int64_t unix_s, RequestToSign request);

// A URL's query that lets whoever has it send this request, for so long, with any body; only the header host is signed.
// The session token, where there is one, is in it: without the secret key it is of no use.
std::string presigned_query(const AwsKeys& keys, const std::string& region, int64_t unix_s, int64_t expires_s,
                            const std::string& method, const std::string& path, const std::string& host,
                            std::vector<std::pair<std::string, std::string>> query);

}  // namespace lockstep::s3
