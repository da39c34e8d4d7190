// Blobs as files of a folder (docs/formats/blobs.md): JOB/CAPTURE/FILE, and .uploads/ID/ for what is not whole yet, with
// a file for each part. A part is written beside, synced and renamed, so what has its name is whole; finish() puts the
// parts together the same way. What a crash leaves half written is removed by open().
//
// What there is is kept in memory: some 300 bytes a blob.
// Limits: those of blob_store.h; and nothing is taken where less than a twentieth of the disk, or 2 GiB, is free, because
//         the server's log may be on the same one. finish() needs room for the file once more.
// Counts: kBlobCounters. Thread rule: Thread-safe. One process has the folder to itself (a lock).
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/clock_witness.h"
#include "base/counters.h"
#include "store/blobs/blob_store.h"

namespace lockstep {

struct DirectoryBlobStoreOptions {
  std::string folder;  // made where it is not there
  BlobLimits limits = {};
  const ClockWitness* witness = nullptr;  // whose time is believed; nullptr: the clock's
};

Result<std::unique_ptr<BlobStore>> open_directory_blob_store(DirectoryBlobStoreOptions options, const Clock& clock,
                                                             Counters& counters);

}  // namespace lockstep
