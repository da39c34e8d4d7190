#include "control/capture_summary.h"

#include <algorithm>

#include "model/capture_results.h"

namespace lockstep {

Result<std::string> read_capture_summary(const Capture& capture, BlobStore& blobs) {
  if (capture.summary.state != SummaryState::kReady) return Error{"this capture has no summary", ErrorCode::kNotFound};
  const std::unique_ptr<BlobReader> file =
      LOCKSTEP_TRY(blobs.open({capture.order.job_id, capture.order.capture, std::string(kSummaryFile)}));
  return file->read(0, std::min<uint64_t>(file->bytes(), kSummaryBytesMax));
}

}  // namespace lockstep
