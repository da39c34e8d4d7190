// What the server has found in a capture's traces, as the analysis wrote it (docs/decisions/0018): exactly what
// `lockstep analyze --json` prints. It is made from traces that users write, so whoever reads it checks every field.
//
// Limits: kSummaryBytesMax. On error: one line; kNotFound: it has none, or its file has gone.
// Thread rule: Thread-safe; waits for the disk or the bucket.
#pragma once

#include <string>

#include "base/result.h"
#include "control/captures.h"
#include "store/blobs/blob_store.h"

namespace lockstep {

Result<std::string> read_capture_summary(const Capture& capture, BlobStore& blobs);

}  // namespace lockstep
