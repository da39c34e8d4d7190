// Finds the files of the web UI.
#pragma once

#include <string>

#include "base/result.h"

namespace lockstep {

// told: what --web said, which must be a folder with an index.html. Empty: ../web beside the program (installed), else
// web/dist of the source tree it was built in; an empty answer where there is neither.
Result<std::string> find_web_folder(const std::string& reported);

}  // namespace lockstep
