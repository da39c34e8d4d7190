// One backup: a server's files, as held at one moment, into a repository as a new generation. What an earlier generation
// has of the same content (name and stamp) is not read again; of a file that grows only what is behind its last full
// piece.
//
// On error: the generation is not there; pieces that were written serve the next one. The server is told that nobody
// reads any more either way. Thread rule: Confined.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "backup/repository.h"

namespace lockstep::backup {

// A server that is asked.
class HeldFiles {
 public:
  virtual ~HeldFiles() = default;
  virtual Result<std::string> hold() = 0;  // its list: read_listing()
  virtual Result<std::string> read(const std::string& id, const std::string& name, uint64_t from, uint64_t bytes) = 0;
  virtual void release(const std::string& id) = 0;
};

struct Taken {
  Manifest manifest;
  uint64_t bytes = 0;          // of all files
  uint64_t bytes_read = 0;     // from the server
  uint64_t bytes_written = 0;  // to the repository: pieces it did not have
};

using Progress = std::function<void(uint64_t bytes_done, uint64_t bytes)>;
Result<Taken> take_backup(HeldFiles& server, Repository& repository, const Progress& progress);

}  // namespace lockstep::backup
