// How far a backup or a restore is, on one line of a terminal; nothing where standard error is none.
//
// Thread rule: Confined.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdio>

#include "base/text.h"

namespace lockstep::cli {

inline constexpr const char* kS3EndpointHelp =
    "of a store that speaks S3 (default $AWS_ENDPOINT_URL_S3, $AWS_ENDPOINT_URL, else AWS)";

class BackupProgress {
 public:
  explicit BackupProgress(const char* verb) : verb_(verb), is_shown_(isatty(STDERR_FILENO) == 1) {}
  ~BackupProgress() {
    if (percent_ >= 0) std::fputs("\r\033[K", stderr);
  }
  void operator()(uint64_t done, uint64_t all) {
    const int percent = all == 0 ? 100 : static_cast<int>(static_cast<double>(done) / static_cast<double>(all) * 100);
    if (!is_shown_ || percent == percent_) return;
    percent_ = percent;
    std::fprintf(stderr, "\r\033[K%s %d %% of %s", verb_, percent, human_bytes(static_cast<double>(all)).c_str());
  }

 private:
  const char* const verb_;
  const bool is_shown_;
  int percent_ = -1;
};

}  // namespace lockstep::cli
