// A folder that is gone when its owner is.
//
// Thread rule: Confined.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

namespace lockstep::plugin_bench {

class TemporaryFolder {
 public:
  // path() is empty where it could not be made.
  explicit TemporaryFolder(const std::filesystem::path& parent = std::filesystem::temp_directory_path())
      : path_(parent / "plugin-bench-XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace lockstep::plugin_bench
