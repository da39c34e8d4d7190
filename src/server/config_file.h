// The file of `lockstepd --config`: YAML, one key for each option of the command line, under the option's own name without
// its dashes (docs/guide/configuration.md). Which options there are is not known here: whoever declares them is asked.
//
// On error: one line that names file and line: an unknown key, one that is given twice, a value of another kind than the
//   option takes, or what the option itself refuses. Files of at most Flags::kConfigBytesMax.
// Thread rule: Thread-safe (no state).
#pragma once

#include <string>

#include "base/flags.h"
#include "base/result.h"

namespace lockstep {

Result<void> read_config_file(Flags& flags, const std::string& path);

}  // namespace lockstep
