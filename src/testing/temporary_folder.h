// A folder of a test's own, which goes away with it.
//
// Thread rule: Immutable once made (but for keep()).
// Order:       what writes into the folder is to be declared after it, so that it is gone before the folder is.
#pragma once

#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace lockstep::testing {

class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::filesystem::path& parent = std::filesystem::temp_directory_path())
      : path_(parent / "lockstep-test-XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) std::abort();  // no test means anything without it
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!kept_) std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  void keep() { kept_ = true; }  // for whoever looks into what went wrong

 private:
  std::string path_;
  bool kept_ = false;
};

}  // namespace lockstep::testing
