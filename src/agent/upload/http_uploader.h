// Uploads over HTTP: to the server that commands come from, with the same TLS, token and headers, or, where that gives
// out URLs of a bucket, straight to these, with none of them.
//
// What is sent is gzip: a file that is not is compressed while it is read, always to the same bytes, so that an upload
// that was interrupted goes on behind the parts that are there, also after a restart of this process or of the server.
// Server away, restarted, 5xx, 429, no room (507): tried again with back-off, until nothing has got through for
//   give_up_ms. Refused for good (no token, another's job, too large, wrong keys of the bucket): ends at once.
// The file is only read; whoever gave it keeps it or not.
//
// Limits: memory of three parts (8 MiB each); file_bytes_max before compression, and no more than the file had at the
//         beginning, or the order says: it may be one that a user goes on writing to.
// On error: one line. Counts: lockstep_agent_uploads_total, lockstep_agent_upload_bytes_total,
//         lockstep_agent_upload_retries_total.
// Thread rule: Thread-safe; each call has connections of its own.
#pragma once

#include <cstdint>
#include <string>

#include "agent/export/otlp_target.h"
#include "agent/upload/uploader.h"
#include "base/counters.h"
#include "base/files.h"

namespace lockstep {

struct HttpUploaderOptions {
  OtlpTarget target;  // as upload_target() gives it
  int64_t timeout_ms = 60'000;
  int64_t finish_timeout_ms = 300'000;  // the server puts the parts together
  int64_t backoff_first_ms = 500;
  int64_t backoff_most_ms = 30'000;
  int64_t give_up_ms = 900'000;
  uint64_t file_bytes_max = 64ull << 30;
};

// Beside where commands come from (command_target(), or --commands).
OtlpTarget upload_target(OtlpTarget commands);

class HttpUploader final : public Uploader {
 public:
  HttpUploader(HttpUploaderOptions options, Counters& counters);
  Result<Uploaded> upload(int fd, const UploadOrder& order, const std::function<void(uint64_t)>& progress) override;
  void stop() override;

 private:
  const HttpUploaderOptions options_;
  Counters& counters_;
  const UniqueFd stop_;  // readable: stopped
};

}  // namespace lockstep
