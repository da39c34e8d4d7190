// Rows of the counter table that the store of blobs counts in.
// Parts: received (lockstep_blob_parts_total) = stored + again + refused by their results.
//
// Thread rule: Immutable.
#pragma once

#include "base/counters.h"

namespace lockstep {

inline constexpr CounterDescriptor kBlobCounters[] = {
    {"lockstep_blobs", "gauge", Severity::kInfo, "Files of captures that are stored (profiles of ranks)."},
    {"lockstep_blob_bytes", "gauge", Severity::kInfo,
     "Bytes of files of captures, by state: stored, uploading (parts of files that are not whole yet)."},
    {"lockstep_blob_uploads", "gauge", Severity::kInfo,
     "Uploads that have begun and are neither finished nor removed."},
    {"lockstep_blob_parts_total", "counter", Severity::kInfo,
     "Parts of uploads that came to the server, by result: stored, again (it was there already), mismatch (its "
     "checksum "
     "is another), too_large (over the limit of the file, the job or all), full (the disk), unknown (no such upload), "
     "failed."},
    {"lockstep_blob_finished_total", "counter", Severity::kInfo,
     "Uploads that were to be made a file, by result: stored, again, incomplete (parts are missing), differs (its "
     "checksum is another; it begins anew), full, failed."},
    {"lockstep_blobs_removed_total", "counter", Severity::kNotice,
     "Files and uploads removed, by reason: retention (too old), limit (oldest first, to stay within "
     "--blob-bytes-max), "
     "asked (by a person), abandoned (an upload that nobody went on with)."},
    {"lockstep_blob_failures_total", "counter", Severity::kError,
     "Times that the disk or the bucket failed, by what: write, read, list, remove."},
    {"lockstep_upload_requests_total", "counter", Severity::kInfo,
     "Requests of agents to upload files, by what (begin, part, finish) and HTTP status."},
};

}  // namespace lockstep
