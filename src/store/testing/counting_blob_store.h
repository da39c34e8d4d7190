// A store of blobs that counts what it is asked for, and hands it on.
//
// Thread rule: Confined. For tests.
#pragma once

#include "store/blobs/blob_store.h"

namespace lockstep::testing {

class CountingBlobStore final : public BlobStore {
 public:
  explicit CountingBlobStore(BlobStore& store) : store_(store) {}

  Result<BlobUpload> begin(const BlobKey& key, uint32_t from_part) override { return store_.begin(key, from_part); }
  Result<BlobPart> put_part(const BlobKey& key, uint32_t number, std::string_view bytes,
                            const std::string& sha256) override {
    return store_.put_part(key, number, bytes, sha256);
  }
  Result<BlobFinish> finish(const BlobKey& key, const std::string& sha256, std::span<const BlobPart> parts) override {
    return store_.finish(key, sha256, parts);
  }
  Result<std::unique_ptr<BlobReader>> open(const BlobKey& key) override {
    ++opened;
    return store_.open(key);
  }
  Result<std::vector<BlobInfo>> list(const std::string& prefix) override {
    ++listed;
    return store_.list(prefix);
  }
  Result<void> remove(const BlobKey& key) override { return store_.remove(key); }
  void maintain() override { store_.maintain(); }
  uint64_t bytes() const override { return store_.bytes(); }
  bool is_full() const override { return store_.is_full(); }
  std::optional<std::string> trouble() const override { return store_.trouble(); }

  int opened = 0;
  int listed = 0;

 private:
  BlobStore& store_;
};

}  // namespace lockstep::testing
