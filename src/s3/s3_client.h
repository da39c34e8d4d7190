// Requests to a bucket of S3, or of what speaks like it: addressed by path and signed (sigv4.h). What backups and files of
// captures are written with.
//
// A request that the store could not serve (5xx, 429) or that got no answer is sent again, S3Settings::tries times in
// all. What a store answers is taken for bytes from anybody.
// Limits: bodies of both directions are held in memory, answers up to answer_bytes_max.
// On error: one line with the object's name and what the store says, never with a key. Thread rule: Confined.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "net/http_client.h"
#include "s3/s3_settings.h"
#include "s3/s3_xml.h"

namespace lockstep::s3 {

using Pairs = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method = "GET";
  std::string name = {};  // of the object, below the place; empty: the bucket
  Pairs query = {};
  Pairs headers = {};  // names in lower case
  std::string_view body = {};
  std::string sha256 = {};  // of the body; empty: computed
};

class Client {
 public:
  static Result<Client> make(S3Place place, S3Settings settings, uint64_t answer_bytes_max);

  const std::string& place() const { return text_; }  // "s3://BUCKET/PREFIX"

  // With whatever status; an error: none after all tries.
  Result<HttpResponse> ask(const Request& request);
  // What an answer that refuses says, for people. kNotFound: there is no such bucket.
  Error refused(std::string_view name, const HttpResponse& answer) const;
  // One page of the names below the place that begin so; `from`: where the former page says that it goes on.
  Result<ListPage> list_page(const std::string& prefix, const std::string& from);
  // A URL by which somebody without keys may send such a request, for so long.
  std::string presigned_url(const std::string& method, const std::string& name, Pairs query, int64_t expires_s) const;
  // As the bucket has it.
  std::string key_of(std::string_view name) const {
    return place_.prefix.empty() ? std::string(name) : place_.prefix + "/" + std::string(name);
  }
  bool is_answering() const { return is_answering_; }  // as of the last request

 private:
  Client(S3Place place, S3Settings settings, Url endpoint, uint64_t answer_bytes_max);
  std::string path_of(std::string_view name) const;
  std::string shown(std::string_view name) const;
  Result<HttpResponse> ask_once(const Request& request);

  S3Place place_;
  std::string text_;
  S3Settings settings_;
  Url endpoint_;
  HttpClient client_;
  bool is_answering_ = false;
};

}  // namespace lockstep::s3
