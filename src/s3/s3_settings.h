// How a bucket is reached: what AWS's own tools read from the environment and from the file of credentials, and the
// place that a person names. Keys are never in an option, a URL, a line of a log or of an error.
//
// On error: one line. Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "s3/sigv4.h"

namespace lockstep::s3 {

struct S3Settings {
  std::string endpoint;  // "https://s3.us-east-1.amazonaws.com"
  std::string region;
  AwsKeys keys;
  std::string ca_file;           // empty: the CAs this machine trusts
  int tries = 5;                 // of a request that the store could not serve or that got no answer
  int64_t retry_wait_ms = 500;   // before the second, doubled for each further one
  int64_t timeout_ms = 120'000;  // of a try
};

// A variable of the environment; empty where it is not set.
using Environment = std::function<std::string(const char* name)>;
// endpoint: of the option; empty: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, else AWS itself. AWS_REGION or
// AWS_DEFAULT_REGION, else us-east-1. AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, else the profile
// AWS_PROFILE ("default") of AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials), which others may not read.
// AWS_CA_BUNDLE.
Result<S3Settings> s3_settings(const std::string& endpoint, const Environment& environment);

struct S3Place {
  std::string bucket;
  std::string prefix;  // "backups/lockstep"; may be empty
};
bool is_s3_place(std::string_view text);
// "s3://BUCKET/PREFIX"
Result<S3Place> parse_s3_place(std::string_view text);

// The keys of a profile in the text of a file of credentials.
Result<AwsKeys> read_profile(std::string_view text, std::string_view profile);

}  // namespace lockstep::s3
