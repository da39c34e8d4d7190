// Objects in a bucket of S3, or of what speaks like it (s3/s3_client.h), each written by one PUT.
//
// One writer at a time: an object `lock`, written where none is there (If-None-Match) and renewed while we write. One
//   whose writer is dead, as seen from the same machine, or that was not renewed for 15 minutes, is taken over; who lost
//   it writes no manifest any more.
// On error: one line with the object's name and what the store says, never with a key. Thread rule: Confined.
#pragma once

#include <memory>
#include <string>

#include "backup/objects.h"
#include "s3/s3_settings.h"

namespace lockstep::backup {

// place: "s3://BUCKET/PREFIX". kRead: kNotFound where it holds no backup. kWrite: where the bucket is, and the prefix
// holds backups or nothing.
Result<std::unique_ptr<Objects>> open_s3(const std::string& place, Access access, s3::S3Settings settings);

}  // namespace lockstep::backup
