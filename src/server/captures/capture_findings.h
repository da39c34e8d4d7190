// What becomes of a capture's summary once it is there: the MFU bar of kernels reads the newest of a job, and whom it blames
// is put down as evidence like what agents send (model/profile_finding.h).
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <string>

#include "base/result.h"
#include "control/captures.h"
#include "ingest/otlp/sink.h"
#include "store/blobs/blob_store.h"
#include "store/step_store.h"

namespace lockstep {

// As the analysis wrote it; "": there is none, or its file has gone.
std::string summary_of(const Capture& capture, BlobStore& blobs);
std::string newest_summary(const Captures& captures, BlobStore& blobs, std::string_view job_id);

// Does nothing where no rank stands out. The job has to be known.
Result<void> put_down_finding(const Capture& capture, BlobStore& blobs, const StepStore& steps, IngestSink& sink,
                              int64_t now_unix_ns);

}  // namespace lockstep
