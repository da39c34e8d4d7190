#include "base/file_limit.h"

#include <sys/resource.h>

#include <algorithm>

namespace lockstep {

void raise_file_limit(uint64_t most) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, most);
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace lockstep
