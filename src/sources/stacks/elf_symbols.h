// Addresses of a loaded ELF file's exported symbols, found in the process's memory alone: no file of the user's is
// opened, so there is no path to be tricked with, and a file that was replaced since cannot mislead.
//
// Every number read is the user's word: counts, chains and texts are bounded, and what does not fit is "not found".
// Limits: 64-bit little-endian files with a GNU hash table (all of today's Linux).
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sources/stacks/process_memory.h"

namespace lockstep {

// A file's first mapping: where its ELF header lies.
struct LoadedFile {
  uint64_t base = 0;
  std::string path;
};
// Of /proc/PID/maps: files whose name begins like this, mapped from their beginning on; in order, at most `most`.
std::vector<LoadedFile> loaded_files_untrusted(std::string_view maps, std::string_view name_begins, size_t most = 16);

class ElfSymbols {
 public:
  static Result<ElfSymbols> open(MemoryReader& memory, uint64_t base);
  std::optional<uint64_t> find(MemoryReader& memory, std::string_view name) const;

 private:
  uint64_t bias_ = 0;
  uint64_t symbols_ = 0, strings_ = 0, strings_bytes_ = 0;
  uint64_t buckets_ = 0, chains_ = 0;  // of the hash table
  uint32_t bucket_count_ = 0, first_ = 0;
};

}  // namespace lockstep
