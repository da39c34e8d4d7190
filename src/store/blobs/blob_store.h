// Files that are too large for records: profiles of ranks, by capture. A blob comes in parts, is there once finish() has
// said so, whole or not at all, and does not change any more. Each tenant has a store of its own.
//
// Upload:   begin(), then parts in any order and as often as needed, then finish(). All of it may be repeated, also
//           after a restart of either side: begin() says which parts are there. Where begin() gives URLs, parts go there
//           (a bucket) and not to put_part().
// Limits:   kPartBytesMax a part, kPartsMax parts, and those of BlobLimits. What is oldest goes first when the store is
//           too large or too old; an upload that nobody goes on with goes after uploads_keep_ns.
// On error: one line, and nothing half there. kTooLarge: over a limit (trying again does not help, and the upload is gone); kNotFound: no such
//           blob or upload; anything else: the disk or the bucket, and worth another try. is_full(): it was for want of
//           room.
// Thread rule: Thread-safe; waits for the disk or the bucket. Somebody calls maintain() about once a minute.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/blob_key.h"

namespace lockstep {

// 8 MiB: a receiver holds a part in memory while it is written, and S3 wants 5 at least of all but the last.
inline constexpr uint64_t kBlobPartBytes = 8ull << 20;
inline constexpr uint32_t kBlobPartsMax = 10'000;  // as S3 has it

struct BlobLimits {
  uint64_t bytes_max = 64ull << 30;      // of all, uploads among them
  uint64_t job_bytes_max = 16ull << 30;  // of one job; beyond, its uploads are refused
  uint64_t file_bytes_max = 4ull << 30;
  size_t blobs_max = 1'000'000;
  size_t uploads_max = 4096;  // at a time
  int64_t keep_ns = 90ll * 86'400'000'000'000;
  int64_t uploads_keep_ns = 2ll * 86'400'000'000'000;
};

struct BlobInfo {
  std::string path;  // blob_path()
  uint64_t bytes = 0;
  int64_t stored_unix_ns = 0;
};

struct BlobPart {
  uint32_t number = 0;  // from 1
  uint64_t bytes = 0;
  std::string sha256 = {};  // 64 digits; empty where the bucket does not know it
  std::string etag = {};    // of a bucket
};

struct BlobUpload {
  std::optional<BlobInfo> stored = {};  // it is there already: nothing is to be sent
  std::vector<BlobPart> done = {};      // by number
  uint32_t urls_from = 1;               // number of the part that the first URL is for
  std::vector<std::string> urls = {};   // PUT the parts there, within the hour; empty: put_part()
};

struct BlobFinish {
  enum class State {
    kStored,
    kIncomplete,  // parts are missing, or damaged and gone: begin() says what is there
    kDiffers,     // the bytes are not those of this checksum; the upload is gone, or another file has the name
  };
  State state = State::kStored;
  BlobInfo info = {};     // kStored
  std::string line = {};  // why not
};

// In a folder it stays readable while the blob is removed; in a bucket reading fails from then on.
class BlobReader {
 public:
  virtual ~BlobReader() = default;
  virtual uint64_t bytes() const = 0;
  // So many from there, fewer at the end alone; none behind it. bytes_max: as much is held in memory.
  virtual Result<std::string> read(uint64_t from, size_t bytes_max) = 0;
};

class BlobStore {
 public:
  virtual ~BlobStore() = default;

  // from_part: of which on URLs are wanted.
  virtual Result<BlobUpload> begin(const BlobKey& key, uint32_t from_part) = 0;
  // sha256: of these bytes, checked by the caller. Durable once it has returned ok.
  virtual Result<BlobPart> put_part(const BlobKey& key, uint32_t number, std::string_view bytes,
                                    const std::string& sha256) = 0;
  // Of the parts 1 to parts.size(), in order. sha256: of all of it.
  virtual Result<BlobFinish> finish(const BlobKey& key, const std::string& sha256, std::span<const BlobPart> parts) = 0;

  virtual Result<std::unique_ptr<BlobReader>> open(const BlobKey& key) = 0;
  // Those whose path begins so ("JOB/", "JOB/CAPTURE/"), by path.
  virtual Result<std::vector<BlobInfo>> list(const std::string& prefix) = 0;
  // The blob, and what was begun under its name and nobody writes to now, as far as this process knows of it.
  virtual Result<void> remove(const BlobKey& key) = 0;

  // What is too old or too much goes, and abandoned uploads.
  virtual void maintain() = 0;
  virtual uint64_t bytes() const = 0;  // of blobs and parts, as last known
  // Whether the last write failed for want of room.
  virtual bool is_full() const = 0;
  // What is wrong with the place at present, one line; nothing: it works as far as is known.
  virtual std::optional<std::string> trouble() const = 0;
};

}  // namespace lockstep
