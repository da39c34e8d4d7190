// Recorders of processes that died, kept on disk for `lockstep postmortem`: shared memory does not survive a reboot,
// and the agent clears it.
//
// Limits: kFilesMax files and kBytesMax bytes; the oldest go first.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace lockstep {

class KeptRecorders {
 public:
  static constexpr size_t kFilesMax = 64;
  static constexpr uint64_t kBytesMax = 512ULL << 20;

  explicit KeptRecorders(std::string folder) : folder_(std::move(folder)) {}

  // Copies the file; the original stays where it is.
  Result<void> keep(const std::string& path);

 private:
  void make_room(uint64_t bytes);

  std::string folder_;
};

}  // namespace lockstep
