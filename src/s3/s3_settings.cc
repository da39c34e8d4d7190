#include "s3/s3_settings.h"

#include <sys/stat.h>

#include <algorithm>

#include "base/files.h"
#include "base/secret_file.h"
#include "base/text.h"
#include "net/http_client.h"

namespace lockstep::s3 {
namespace {

constexpr uint64_t kCredentialsBytesMax = 1 << 20;
constexpr std::string_view kScheme = "s3://";

bool is_region(std::string_view text) {
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

// Segments of letters, digits, '.', '_' and '-', none of them "." or "..".
bool is_prefix(std::string_view text) {
  const std::vector<std::string_view> segments = split(text, '/');
  return text.size() <= 512 && std::all_of(segments.begin(), segments.end(), [](std::string_view segment) {
           return !segment.empty() && segment != "." && segment != ".." &&
                  std::all_of(segment.begin(), segment.end(), [](char c) {
                    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
                           c == '_' || c == '-';
                  });
         });
}

// Lower case, digits, '.' and '-', 3 to 63 of them: as AWS has it, and no way out of a URL's path.
bool is_bucket(std::string_view text) {
  const bool of_these = std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-';
  });
  return of_these && text.size() >= 3 && text.size() <= 63 && text.front() != '.' && text.front() != '-' &&
         text.find("..") == std::string_view::npos;
}

Result<void> check_keys(const AwsKeys& keys) {
  for (const std::string* one : {&keys.access_key, &keys.secret_key, &keys.session_token}) {
    if (!is_printable(*one) || one->find(' ') != std::string::npos)
      return Error{"the keys for S3 are not of printable characters"};
  }
  if (keys.access_key.empty() || keys.secret_key.empty())
    return Error{"of the keys for S3 the id or the secret is missing"};
  return {};
}

Result<AwsKeys> keys_of_file(const Environment& environment) {
  std::string path = environment("AWS_SHARED_CREDENTIALS_FILE");
  if (path.empty()) path = environment("HOME") + "/.aws/credentials";
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    return Error{"no keys for S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or have them in " + path};
  if ((info.st_mode & S_IRWXO) != 0) return Error{path + " is open to every user of this machine: chmod o="};
  const std::string text = LOCKSTEP_TRY(read_file(path, kCredentialsBytesMax));
  const std::string profile = environment("AWS_PROFILE");
  Result<AwsKeys> keys = read_profile(text, profile.empty() ? "default" : profile);
  if (!keys.ok()) return prefixed(keys.failure(), path + ": ");
  return keys;
}

}  // namespace

Result<AwsKeys> read_profile(std::string_view text, std::string_view profile) {
  AwsKeys keys;
  bool is_ours = false, is_there = false;
  for (std::string_view line : split(text, '\n')) {
    line = trim(line);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[') {
      is_ours = line.back() == ']' && trim(line.substr(1, line.size() - 2)) == profile;
      is_there = is_there || is_ours;
      continue;
    }
    const size_t sign = line.find('=');
    if (!is_ours || sign == std::string_view::npos) continue;
    const std::string_view name = trim(line.substr(0, sign));
    const std::string value(trim(line.substr(sign + 1)));
    if (name == "aws_access_key_id") keys.access_key = value;
    if (name == "aws_secret_access_key") keys.secret_key = value;
    if (name == "aws_session_token") keys.session_token = value;
  }
  if (!is_there) return Error{format("there is no profile \"%.60s\"", as_one_line(profile).c_str())};
  LOCKSTEP_TRY(check_keys(keys));
  return keys;
}

Result<S3Settings> s3_settings(const std::string& endpoint, const Environment& environment) {
  S3Settings settings;
  auto first_of = [&](std::initializer_list<const char*> names) {
    std::string value;
    for (const char* name : names) {
      if (value.empty()) value = environment(name);
    }
    return value;
  };
  settings.region = first_of({"AWS_REGION", "AWS_DEFAULT_REGION"});
  if (settings.region.empty()) settings.region = "us-east-1";
  if (!is_region(settings.region)) return Error{"AWS_REGION is no name of a region"};
  settings.endpoint = endpoint.empty() ? first_of({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}) : endpoint;
  if (settings.endpoint.empty()) settings.endpoint = "https://s3." + settings.region + ".amazonaws.com";
  // Keys in a URL would be in process lists and lines of errors.
  if (settings.endpoint.find('@') != std::string::npos)
    return Error{"the endpoint of S3 has a user name in it: keys come from the environment or a file"};
  if (Result<Url> url = parse_url(settings.endpoint); !url.ok()) return prefixed(url.failure(), "S3: ");
  settings.ca_file = environment("AWS_CA_BUNDLE");
  settings.keys = {environment("AWS_ACCESS_KEY_ID"), environment("AWS_SECRET_ACCESS_KEY"),
                   environment("AWS_SESSION_TOKEN")};
  if (settings.keys.access_key.empty() && settings.keys.secret_key.empty()) {
    settings.keys = LOCKSTEP_TRY(keys_of_file(environment));
    return settings;
  }
  LOCKSTEP_TRY(check_keys(settings.keys));
  return settings;
}

bool is_s3_place(std::string_view text) {
  return text.starts_with(kScheme);
}

Result<S3Place> parse_s3_place(std::string_view text) {
  std::string_view rest = text.substr(std::min(kScheme.size(), text.size()));
  while (rest.ends_with('/')) rest.remove_suffix(1);
  const size_t slash = std::min(rest.find('/'), rest.size());
  S3Place place{std::string(rest.substr(0, slash)), std::string(rest.substr(std::min(slash + 1, rest.size())))};
  if (!is_s3_place(text) || !is_bucket(place.bucket) || (!place.prefix.empty() && !is_prefix(place.prefix)))
    return Error{format("%.200s: write s3://BUCKET/PREFIX; a prefix is of letters, digits, '.', '_', '-' and '/'",
                        as_one_line(text).c_str())};
  return place;
}

}  // namespace lockstep::s3
