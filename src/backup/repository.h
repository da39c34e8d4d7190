// Where backups are kept: pieces named by what is in them, shared by all generations, and one manifest for each
// generation, written last. A piece that no manifest names is left over from a backup that did not end.
//
// Objects (backup/objects.h): pieces/3f/3f9a..., generations/00000007.manifest, lock; in a folder or in S3.
// After a crash: a generation is there with all its pieces, or not at all.
// Thread rule: Confined. One process at a time writes (a lock).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backup/manifest.h"
#include "backup/objects.h"
#include "base/result.h"

namespace lockstep::backup {

class Repository {
 public:
  explicit Repository(std::unique_ptr<Objects> objects) : objects_(std::move(objects)) {}
  const std::string& place() const { return objects_->place(); }

  Result<std::vector<uint64_t>> generations() const;  // oldest first
  Result<std::string> read_generation(uint64_t generation) const;
  // Durable once it returns, and every piece written before it.
  Result<void> write_generation(uint64_t generation, std::string_view manifest);
  Result<void> remove_generation(uint64_t generation);

  // Pieces are listed once, by the first of these.
  Result<bool> has_piece(const std::string& sha256, uint64_t bytes);
  Result<void> write_piece(const std::string& sha256, std::string_view content);
  Result<void> remove_piece(const std::string& sha256);
  using Pieces = std::map<std::string, uint64_t>;  // bytes by SHA-256
  Result<Pieces> pieces();

  // kNotFound: it is not there. What is there is checked: the error names it.
  Result<std::string> read_piece(const std::string& sha256) const;

 private:
  Result<void> list_pieces();

  const std::unique_ptr<Objects> objects_;
  std::optional<Pieces> pieces_;  // as listed, and as changed since
};

// place: a folder, made where it is to be written to; or "s3://BUCKET/PREFIX", reached as the environment says
// (s3_settings.h). s3_endpoint: instead of what the environment says; empty: nothing.
Result<std::unique_ptr<Repository>> open_repository(const std::string& place, Access access,
                                                    const std::string& s3_endpoint = "");

// The generation's manifest, parsed; 0: the newest.
Result<Manifest> find_generation(const Repository& repository, uint64_t generation);

struct Pruned {
  size_t generations = 0;
  size_t pieces = 0;
  uint64_t bytes = 0;
};
// All but the newest `keep` generations go, and every piece that none of the others needs. A manifest that cannot be
// read ends it before a piece is removed.
Result<Pruned> prune(Repository& repository, size_t keep);

}  // namespace lockstep::backup
