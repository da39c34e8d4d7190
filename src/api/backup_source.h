// What a backup is read from: everything the server keeps as it was at one moment, held as long as somebody reads it.
//
// hold() is consistent: a server started on a copy of the files has everything that was acknowledged before hold() was
// called, and of what came meanwhile each request whole or not at all.
// Limits: kHeldMax at a time, kReadBytesMax for one read. What nobody read from for kLeaseNs is released: held files take
//   room on disk that retention would have given back.
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep {

struct HeldBackup {
  struct File {
    std::string name;  // below the data folder
    uint64_t bytes = 0;
    // The same name, bytes and stamp as in another backup: the same content. Of a file that grows, the same name and
    // stamp: what both have is the same.
    std::string stamp;
    bool grows = false;
  };
  std::string id;
  int64_t unix_ns = 0;        // what was acknowledged before is in it
  uint64_t log_sequence = 0;  // the last record of the durable log in it
  std::vector<File> files;    // by name
};

class BackupSource {
 public:
  static constexpr size_t kHeldMax = 2;
  static constexpr uint64_t kReadBytesMax = 8u << 20;
  static constexpr int64_t kLeaseNs = 120'000'000'000;

  virtual ~BackupSource() = default;
  virtual Result<HeldBackup> hold() = 0;
  // As many bytes as the file has there. kNotFound: no such backup (any more), or no such file in it.
  virtual Result<std::string> read(std::string_view id, std::string_view name, uint64_t from, uint64_t bytes) = 0;
  virtual Result<void> release(std::string_view id) = 0;
};

}  // namespace lockstep
