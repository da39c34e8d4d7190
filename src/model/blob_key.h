// The name of a blob: one file of one capture of a job (docs/formats/blobs.md).
//
//     default/llama%2F70b/p-0123456789ab/rank-17.json.gz
//     tenant  job         capture        file
//
// A job's id may hold anything, so it is percent-encoded into one part of the path, its first '.' too: no part is ever
// empty, "." or "..", or hidden.
// Thread rule: Thread-safe (no state).
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace lockstep {

struct BlobKey {
  std::string job;      // as the job calls itself
  std::string capture;  // "p-0123456789ab"; of a hang's files evidence_id()
  std::string file;     // "rank-17.json.gz"
  bool operator==(const BlobKey&) const = default;
};

inline constexpr size_t kBlobPartBytesMax = 255;  // of a path: what a file system takes

// "p-" and 12 hex digits in lower case.
bool is_capture_id(std::string_view text);
// Letters, digits, '.', '_' and '-', not beginning with '.'; at most 100.
bool is_blob_file(std::string_view text);
// One line that says what is wrong with it.
Result<void> check_blob_key(const BlobKey& key);

// A job as one part of a path.
std::string blob_job_part(std::string_view job);
// Without the tenant. Only of a key that was checked.
std::string blob_path(const BlobKey& key);
Result<BlobKey> parse_blob_path(std::string_view path_untrusted);

}  // namespace lockstep
