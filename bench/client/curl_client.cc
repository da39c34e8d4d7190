// What it would be with libcurl, whose HTTP/2 is nghttp2: five bytes before the message, grpc-status among the trailers.
#include <curl/curl.h>

#include <cstring>

#include "client.h"

namespace {
size_t drop(char*, size_t size, size_t count, void*) {
  return size * count;
}
size_t header(char* text, size_t size, size_t count, void* status) {
  if (size * count > 12 && std::memcmp(text, "grpc-status:", 12) == 0)
    *static_cast<int*>(status) = std::atoi(text + 12);
  return size * count;
}
}  // namespace

int main(int count, char** words) {
  const Arguments arguments = read_arguments(count, words);
  curl_global_init(CURL_GLOBAL_DEFAULT);
  CURL* curl = curl_easy_init();
  const std::string message = request_of(arguments.bytes);
  std::string body(5, '\0');
  for (int byte = 0; byte < 4; ++byte)
    body[static_cast<size_t>(1 + byte)] = static_cast<char>(message.size() >> (24 - 8 * byte));
  body += message;
  curl_slist* headers = curl_slist_append(nullptr, "content-type: application/grpc");
  headers = curl_slist_append(headers, "te: trailers");
  int status = -1;
  curl_easy_setopt(curl, CURLOPT_URL, (arguments.url + kMethod).c_str());
  const long version =
      arguments.url.starts_with("https:") ? CURL_HTTP_VERSION_2TLS : CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE;
  curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, version);
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body.data());
  curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, drop);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &status);
  if (!arguments.ca.empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, arguments.ca.c_str());
  double first_ms = 0;
  for (long call = 0; call < arguments.calls; ++call) {
    status = -1;
    const CURLcode result = curl_easy_perform(curl);
    if (result != CURLE_OK || status != 0)
      return std::fprintf(stderr, "%s, grpc-status %d\n", curl_easy_strerror(result), status), 1;
    if (call == 0) first_ms = now_ms();
  }
  report(first_ms);
}
