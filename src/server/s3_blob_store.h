// Blobs as objects of a bucket (docs/formats/blobs.md): PREFIX/TENANT/JOB/CAPTURE/FILE. Nodes send the parts straight to
// the bucket, by URLs that are signed here; what is here to be read, listed and removed comes from the bucket.
//
// The bucket keeps everything, also which uploads have begun: a server that was restarted, or another one with the same
// place, goes on. Each part is checked by the bucket (Content-MD5, from the node), and finish() completes with the etags
// that the node was given. The checksum of the whole is not checked here, because the server does not see the bytes; it
// is in the event profile.ready, for whoever reads them.
// Limits: those of blob_store.h, by what the bucket had when it was last listed (every ten minutes) and what was finished
//         since; parts of uploads count once they are finished. URLs are valid for an hour, 64 at a time.
// Start:  does not wait for the bucket; trouble() says what is wrong with it.
// Counts: kBlobCounters. Thread rule: Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/clock_witness.h"
#include "base/counters.h"
#include "s3/s3_settings.h"
#include "store/blobs/blob_store.h"

namespace lockstep {

struct S3BlobStoreOptions {
  s3::S3Place place;  // the tenant's own
  s3::S3Settings settings;
  // The keys of a file may be renewed: read again with every list, and after a failure. Empty: they stay.
  std::function<Result<s3::S3Settings>()> read_settings = {};
  BlobLimits limits = {};
  const ClockWitness* witness = nullptr;  // whose time is believed; nullptr: the clock's
  uint32_t urls_max = 64;                 // in one answer
};

Result<std::unique_ptr<BlobStore>> open_s3_blob_store(S3BlobStoreOptions options, const Clock& clock,
                                                      Counters& counters);

}  // namespace lockstep
