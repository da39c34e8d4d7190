// How a request to S3 proves who sends it: AWS Signature Version 4, with the signature in the header authorization.
//
// Secrets stay in what is hashed: nothing here puts one into a text that is sent or shown.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::backup {

struct AwsKeys {
  std::string access_key;
  std::string secret_key;
  std::string session_token;  // of keys that last for a while; empty: none
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

}  // namespace lockstep::backup
