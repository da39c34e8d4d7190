// What becomes of a capture's summary (control/capture_summary.h) once it is there: the MFU bar of kernels shows the newest
// of a job, and whom it blames is put down as evidence like what agents send (model/profile_finding.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "analysis/cost/kernel_classes.h"
#include "base/mutex.h"
#include "base/result.h"
#include "control/captures.h"
#include "ingest/otlp/sink.h"
#include "store/blobs/blob_store.h"
#include "store/step_store.h"

namespace lockstep {

// What captures say of their kernels. A summary is read once: as it is made, or, after a restart, when it is first asked
// for.
//
// Limits: kKeptMax captures are kept, some 5 kB each; then all are read anew.
// Thread rule: Thread-safe; waits for the disk or the bucket where one is not known yet.
class CaptureKernels {
 public:
  static constexpr size_t kKeptMax = 1'000;

  CaptureKernels(const Captures& captures, BlobStore& blobs) : captures_(captures), blobs_(blobs) {}
  void add(const Capture& capture, std::string_view summary);
  // Of the job's newest capture that has some; kernel_us 0: none has.
  KernelClasses newest_of(std::string_view job_id);

 private:
  struct Known {
    int64_t traces = 0;  // that they were made from; another number: it was analysed again
    KernelClasses classes = {};
  };
  const Captures& captures_;
  BlobStore& blobs_;
  Mutex mutex_;
  std::map<std::string, Known, std::less<>> known_ LOCKSTEP_GUARDED_BY(mutex_);  // by capture
};

// Does nothing where no rank stands out. The job has to be known. Thread rule: Thread-safe (no state).
Result<void> put_down_finding(const Capture& capture, std::string_view summary, const StepStore& steps,
                              IngestSink& sink, int64_t now_unix_ns);

}  // namespace lockstep
