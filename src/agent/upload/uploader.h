// Sends a file of this node to where the server keeps files of captures (docs/formats/blobs.md).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"

namespace lockstep {

struct UploadOrder {
  std::string job;
  std::string capture;
  std::string file;  // rank-17.json.gz
  // Read no further: whoever checked the file's size has agreed to that much, and its user may go on writing.
  uint64_t bytes_max = UINT64_MAX;
};
struct Uploaded {
  std::string key;
  uint64_t bytes = 0;  // as stored
  std::string sha256;  // hex, of the stored bytes
};
// Takes an open file, because paths below a user's folder are opened once and carefully, by whoever found them.
class Uploader {
 public:
  virtual ~Uploader() = default;
  // Compresses while it reads; keeps what it has sent over failures and calls; blocks the calling thread (never one that
  // polls recorders). progress: bytes read so far.
  virtual Result<Uploaded> upload(int fd, const UploadOrder& order, const std::function<void(uint64_t)>& progress) = 0;
  // Ends every upload with an error, now and from now on. What was sent stays sent.
  virtual void stop() {}
};

}  // namespace lockstep
