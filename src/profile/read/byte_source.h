// Where the bytes of a trace come from, in pieces: a file, a blob, memory; gzip is undone on the way.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lockstep::profile {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // At most so many bytes; 0: there are no more.
  virtual Result<size_t> read(char* into, size_t bytes_max) = 0;
};

// A file on this machine; "-" is standard input. progress: bytes of the file read so far.
Result<std::unique_ptr<ByteSource>> open_trace_file(const std::string& path,
                                                    std::function<void(uint64_t)> progress = nullptr);
// Bytes that somebody else keeps.
std::unique_ptr<ByteSource> bytes_in_memory(std::string_view bytes);

// These, then what is read from `rest`, or the error that it ended with.
std::unique_ptr<ByteSource> bytes_before(std::string first, std::unique_ptr<ByteSource> rest,
                                         std::optional<Error> ended = std::nullopt);

// What is read from `inner`, inflated where it begins as gzip does, else as it is. A stream that is damaged further on
// gives what came before it, then an error.
std::unique_ptr<ByteSource> inflating(std::unique_ptr<ByteSource> inner);

}  // namespace lockstep::profile
