// What a backup consists of (docs/formats/backup.md): its files, and the pieces that each is made of. A server lists its
// files without pieces; a manifest is that list with them, and a last line that proves it whole.
//
// Both are read as coming from anybody: a name never leads out of the folder it is written to.
// Limits: kManifestBytesMax, kFilesMax, names of kNameBytesMax.
// On error: one line. Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep::backup {

inline constexpr uint64_t kPieceBytes = 8u << 20;
inline constexpr uint64_t kManifestBytesMax = 512u << 20;
inline constexpr size_t kFilesMax = 1'000'000;
inline constexpr size_t kNameBytesMax = 512;

struct File {
  std::string name;  // below the data folder: "steps/steps-1-1-40.blk"
  uint64_t bytes = 0;
  std::string stamp;  // the server's name for the content (api/backup_source.h)
  bool grows = false;
  std::vector<std::string> pieces;  // SHA-256 of each kPieceBytes in order, the last one shorter; none of an empty file
  bool operator==(const File&) const = default;
};

struct Manifest {
  uint64_t generation = 0;  // within its place; 0: a server's list
  std::string id;           // of a server's list
  std::string lockstep;     // the version of the server
  int64_t unix_ns = 0;      // what was acknowledged before is in it
  uint64_t log_sequence = 0;
  std::map<std::string, uint64_t> formats;  // that the server writes, by name
  std::vector<File> files;
  uint64_t bytes() const;
  bool operator==(const Manifest&) const = default;
};

uint64_t pieces_of(uint64_t bytes);                     // how many
uint64_t piece_bytes(const File& file, size_t number);  // of one of them

// Below a folder, and never elsewhere: segments of letters, digits, '.', '_' and '-', none of them "." or "..".
bool is_safe_name(std::string_view name);
// SHA-256 as pieces are named: 64 digits, lower case.
std::string sha256_hex(std::string_view bytes);
bool is_sha256(std::string_view text);

// What POST /api/backup answers.
Result<Manifest> read_listing(std::string_view json);

std::string write_manifest(const Manifest& manifest);
// A version that is not read, and a checksum that does not match, are errors.
Result<Manifest> read_manifest(std::string_view text);

}  // namespace lockstep::backup
