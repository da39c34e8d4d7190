// Baselines by name in a folder that a CI job can carry: NAME.baseline, one file each.
//
// Names are letters, digits, '.', '_' and '-', and begin with none of the last three, so that a name is never a path. The
// folder is held by a descriptor, and no symbolic link in it is followed: one is not read, and is replaced or removed
// itself. A crash leaves the old or the new baseline, never half of one, and a hidden file beside it, which a later write
// removes.
//
// On error:    one line that names the file; kNotFound: there is no such baseline (or folder).
// Limits:      kNameLengthMax, kListedMax names, kBaselineBytesMax a file.
// Thread rule: Immutable once open; several processes may write into one folder, the last one wins.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "profile/baseline/baseline_file.h"

namespace lockstep::profile {

class BaselineFolder {
 public:
  static constexpr size_t kNameLengthMax = 100;
  static constexpr size_t kListedMax = 10'000;

  // An error where it is no name of a baseline.
  static Result<void> check_name(std::string_view name);

  static Result<BaselineFolder> open(const std::string& path);
  static Result<BaselineFolder> make(const std::string& path);  // and its parents, where they are not there

  Result<Baseline> read(const std::string& name) const;
  Result<void> write(const std::string& name, const Baseline& baseline) const;
  Result<void> remove(const std::string& name) const;
  Result<std::vector<std::string>> names() const;  // sorted; what is named otherwise is passed over

  std::string file_of(const std::string& name) const;

 private:
  BaselineFolder(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  Error failed(const char* what, const std::string& name) const;
  Result<std::string> read_text(const std::string& name) const;
  Result<void> write_beside(const std::string& beside, std::string_view text) const;
  void remove_left_behind(int64_t now_unix_s) const;

  std::string path_;
  UniqueFd fd_;
};

}  // namespace lockstep::profile
