// Reading small files of /proc and /sys under a root: bounded, without allocation once warm, failures counted and said
// once.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "sources/node_source.h"

namespace lockstep::host {

inline constexpr size_t kSmallFileMax = 64 << 10;
inline constexpr size_t kLargeFileMax = 4 << 20;

// A file that is read again and again stays open.
struct KeptFile {
  std::string path;  // below the root
  UniqueFd fd;
};

// Reads from the start of an open file, at most `bytes_max`. What it says is in `buffer` until the next read into it.
// nullopt: errno tells why.
std::optional<std::string_view> read_fd(int fd, std::string& buffer, size_t bytes_max);

class HostFiles {
 public:
  explicit HostFiles(std::string root);

  // Where failures of this tick are told.
  void begin(NodeReadings* out) { out_ = out; }

  const std::string& root() const { return root_; }
  // The content stays until the next read through this object. nullopt: not there, or not readable (counted).
  std::optional<std::string_view> read(const std::string& path, size_t bytes_max = kSmallFileMax);
  std::optional<std::string_view> read(KeptFile& file, size_t bytes_max = kSmallFileMax);
  // Looks without telling of a failure: there may be another way.
  bool readable(const std::string& path);
  // The file's one number.
  std::optional<uint64_t> read_number(const std::string& path);
  // Names in a folder, sorted, at most `count_max`; empty where it is not there.
  std::vector<std::string> names(const std::string& path, size_t count_max);
  // Counted, and said where it was not said before.
  void failed(const std::string& path, int error);

 private:
  std::string root_;
  NodeReadings* out_ = nullptr;
  std::string buffer_;
  std::set<std::string> said_;
};

// Numbers in a folder's names (pids, tids), at most `count_max`.
void number_names(int folder_fd, size_t count_max, std::vector<int32_t>& numbers);

LabelSet labels(Labels pairs);

}  // namespace lockstep::host
