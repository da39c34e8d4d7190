// A sealed file on its way: written under its name and ".part", and renamed once all of it is on disk. So it is there
// whole or not at all; parts that a crash leaves are removed at the next start (found_files.h).
//
// On error: what the system says, without the path; nothing is left once this is gone.
// Thread rule: Confined.
#pragma once

#include <string>
#include <string_view>

#include "base/files.h"
#include "base/result.h"

namespace lockstep::sealed {

class PartFile {
 public:
  PartFile(const std::string& folder, const std::string& name);
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  const std::string& path() const { return path_; }  // that it will have
  std::string part_path() const { return path_ + ".part"; }
  // What follows is only called after ok.
  Result<void> opened() const;
  Result<void> write(std::string_view bytes);
  Result<void> sync();
  // After sync(). Durable once the folder is synced too.
  Result<void> rename();

 private:
  const std::string path_;
  UniqueFd file_;
  int open_error_;
  bool renamed_ = false;
};

}  // namespace lockstep::sealed
