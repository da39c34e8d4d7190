// For tests: a disk that is soon full.
#pragma once

#include <sys/mount.h>

#include <string>

#include "agent/testing.h"
#include "testing/temporary_folder.h"

namespace lockstep::testing {

// A file system of 64 kB, where this process may mount one.
class SmallDisk {
 public:
  SmallDisk() { mounted_ = ::mount("tmpfs", folder_.path().c_str(), "tmpfs", 0, "size=64k,mode=700") == 0; }
  ~SmallDisk() {
    if (mounted_) ::umount2(folder_.path().c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  const std::string& path() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
  bool mounted_ = false;
};

}  // namespace lockstep::testing
