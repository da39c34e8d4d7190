#include "apps/cli/recorder_folder.h"

#include "base/files.h"

namespace lockstep::cli {

std::string nothing_recorded(const std::string& folder) {
  std::string others;
  if (auto names = list_directory("/dev/shm"); names.ok()) {
    for (const std::string& name : *names) {
      if (name.starts_with("lockstep-") && "/dev/shm/" + name != folder)
        others += (others.empty() ? "" : ", ") + ("/dev/shm/" + name);
    }
  }
  return "no flight recorders in " + folder +
         (others.empty() ? "; is NCCL_PROFILER_PLUGIN set in the job? (lockstep doctor)"
                         : "; try --recorders with one of " + others);
}

}  // namespace lockstep::cli
