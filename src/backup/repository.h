// Where backups are kept: pieces named by what is in them, shared by all generations, and one manifest for each
// generation, written last. A piece that no manifest names is left over from a backup that did not end.
//
// In a folder: pieces/3f/3f9a..., generations/00000007.manifest, lock. Nothing but the owner may read them.
// After a crash: a generation is there with all its pieces, or not at all.
// Thread rule: Confined. One process at a time writes (a lock of the folder).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backup/manifest.h"
#include "base/result.h"

namespace lockstep::backup {

class Repository {
 public:
  virtual ~Repository() = default;
  virtual const std::string& place() const = 0;

  virtual Result<std::vector<uint64_t>> generations() const = 0;  // oldest first
  virtual Result<std::string> read_generation(uint64_t generation) const = 0;
  // Durable once it returns, and every piece written before it.
  virtual Result<void> write_generation(uint64_t generation, std::string_view manifest) = 0;
  virtual Result<void> remove_generation(uint64_t generation) = 0;

  virtual bool has_piece(const std::string& sha256, uint64_t bytes) const = 0;
  // kNotFound: it is not there. What is there is checked: the error names it.
  virtual Result<std::string> read_piece(const std::string& sha256) const = 0;
  virtual Result<void> write_piece(const std::string& sha256, std::string_view content) = 0;
  virtual Result<void> remove_piece(const std::string& sha256) = 0;
  struct Piece {
    std::string sha256;
    uint64_t bytes = 0;
  };
  virtual Result<std::vector<Piece>> pieces() const = 0;
};

enum class Access { kRead, kWrite };
// place: a folder, made where it is to be written to.
Result<std::unique_ptr<Repository>> open_repository(const std::string& place, Access access);

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
