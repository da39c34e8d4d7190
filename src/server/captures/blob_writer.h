// A blob that the server itself makes, piece by piece: into a folder, or through the URLs that the store gives out.
//
// On error: one line, and nothing is there under the name; what was begun is given up (blob_store.h says when it goes).
// Thread rule: Confined.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"
#include "net/http_client.h"
#include "store/blobs/blob_store.h"

namespace lockstep {

class BlobWriter {
 public:
  // What has the name already is replaced: removed now, there anew with finish().
  static Result<BlobWriter> begin(BlobStore& store, BlobKey key);
  Result<void> add(std::string_view bytes);
  Result<void> finish();
  uint64_t bytes() const { return bytes_; }

 private:
  BlobWriter(BlobStore& store, BlobKey key, BlobUpload upload)
      : store_(&store), key_(std::move(key)), upload_(std::move(upload)) {}
  Result<void> send_part();
  Result<std::string> put_to_bucket(uint32_t number);

  BlobStore* store_;
  BlobKey key_;
  BlobUpload upload_;
  std::string part_;  // less than kBlobPartBytes
  std::vector<BlobPart> parts_;
  Sha256Stream sum_;
  uint64_t bytes_ = 0;
  std::unique_ptr<HttpClient> bucket_;
};

}  // namespace lockstep
