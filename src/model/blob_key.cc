#include "model/blob_key.h"

#include <algorithm>
#include <optional>

#include "base/characters.h"
#include "base/text.h"
#include "model/evidence_files.h"
#include "model/step.h"

namespace lockstep {
bool is_capture_id(std::string_view text) {
  return text.size() == 14 && text.starts_with("p-") && is_lower_hex(text.substr(2));
}

bool is_blob_file(std::string_view text) {
  return !text.empty() && text.size() <= 100 && text[0] != '.' && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  });
}

std::string blob_job_part(std::string_view job) {
  std::string part = url_part(job);
  if (part.starts_with('.')) part.replace(0, 1, "%2E");
  return part;
}

Result<void> check_blob_key(const BlobKey& key) {
  if (key.job.empty() || key.job.size() > kIdentityTextMax || blob_job_part(key.job).size() > kBlobPartBytesMax)
    return Error{format("a job's id has 1 to %zu bytes, and no more than %zu percent-encoded", kIdentityTextMax,
                        kBlobPartBytesMax)};
  if (!is_capture_id(key.capture) && !is_evidence_id(key.capture))
    return Error{"a capture's id is p- (of a hang's files h-) and 12 hex digits in lower case"};
  if (!is_blob_file(key.file))
    return Error{"a file's name is 1 to 100 letters, digits, '.', '_' and '-', no '.' first"};
  return {};
}

std::string blob_path(const BlobKey& key) {
  return blob_job_part(key.job) + "/" + key.capture + "/" + key.file;
}

Result<BlobKey> parse_blob_path(std::string_view path_untrusted) {
  const Error wrong{"that is no path of a blob: JOB/CAPTURE/FILE"};
  if (path_untrusted.size() > 4 * kBlobPartBytesMax) return wrong;
  const std::vector<std::string_view> parts = split(path_untrusted, '/');
  if (parts.size() != 3) return wrong;
  std::optional<std::string> job = from_url_part(parts[0]);
  if (!job) return wrong;
  BlobKey key{std::move(*job), std::string(parts[1]), std::string(parts[2])};
  LOCKSTEP_TRY(check_blob_key(key));
  if (blob_path(key) != path_untrusted) return wrong;  // one path for a key
  return key;
}

}  // namespace lockstep
