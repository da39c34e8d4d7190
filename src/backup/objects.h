// Where the objects of a repository lie: a folder, or a bucket of S3. Objects have names below their place and never
// change; the one that writes has the place to itself.
//
// write():  the object is there whole once it returns, or not at all, whatever happens to us meanwhile.
// sync():   and what was written before is durable.
// Limits:   kPieceBytes for pieces, kManifestBytesMax for manifests: an object is held in memory, and sent in one piece.
// On error: one line that names the object or the place, never a key or a secret. Thread rule: Confined.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep::backup {

enum class Access { kRead, kWrite };

class Objects {
 public:
  virtual ~Objects() = default;
  virtual const std::string& place() const = 0;

  struct Entry {
    std::string name;
    uint64_t bytes = 0;
  };
  // Names that begin with prefix ("pieces/"), in no order. What is half written is not among them.
  virtual Result<std::vector<Entry>> list(const std::string& prefix) = 0;
  // kNotFound: it is not there.
  virtual Result<std::string> read(const std::string& name, uint64_t bytes_max) = 0;
  // sha256: of the content, in 64 digits.
  virtual Result<void> write(const std::string& name, std::string_view content, const std::string& sha256) = 0;
  virtual Result<void> remove(const std::string& name) = 0;
  virtual Result<void> sync() = 0;
};

}  // namespace lockstep::backup
