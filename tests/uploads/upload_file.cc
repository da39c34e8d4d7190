// Uploads a file as the agent does, for tests that interrupt it:
//
//     upload_file URL JOB CAPTURE FILE PATH [--token TOKEN] [--give-up-ms N]
//
// Prints "read N" as it reads, then "done KEY BYTES SHA256" (exit 0) or one line on standard error (exit 1).
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "agent/counters_table.h"
#include "agent/upload/http_uploader.h"
#include "base/flags.h"
#include "net/http_client.h"

int main(int count, char** words) {
  using namespace lockstep;
  std::vector<std::string> named, flags;
  for (int i = 1; i < count; ++i) (i <= 5 ? named : flags).emplace_back(words[i]);
  std::string token;
  int64_t give_up_ms = 30'000;
  Flags more("upload_file", "uploads a file as the agent does");
  more.text(&token, "--token", "TOKEN", "to show").number(&give_up_ms, "--give-up-ms", "N", "patience", 1, 3'600'000);
  const Result<void> parsed = more.parse(flags);
  const Result<Url> url = parse_url(named.size() == 5 ? named[0] : "", 4318);
  if (!parsed.ok() || !url.ok()) {
    std::fprintf(stderr, "%s\n", parsed.ok() ? url.error().c_str() : parsed.error().c_str());
    return 2;
  }
  HttpUploaderOptions options;
  options.target.address = {.host = url->host, .port = url->port, .unix_path = {}};
  options.target = upload_target(options.target);
  options.target.token = token;
  options.backoff_first_ms = 50;
  options.backoff_most_ms = 200;
  options.give_up_ms = give_up_ms;
  const UniqueFd file(::open(named[4].c_str(), O_RDONLY | O_CLOEXEC));
  Counters counters{kAgentCounters};
  HttpUploader uploader(options, counters);
  const Result<Uploaded> done = uploader.upload(file.get(), {named[1], named[2], named[3]}, [](uint64_t bytes) {
    std::printf("read %llu\n", static_cast<unsigned long long>(bytes));
    std::fflush(stdout);
  });
  if (!done.ok()) {
    std::fprintf(stderr, "%s\n", done.error().c_str());
    return 1;
  }
  std::printf("done %s %llu %s\n", done->key.c_str(), static_cast<unsigned long long>(done->bytes),
              done->sha256.c_str());
  return 0;
}
