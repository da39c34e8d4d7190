#include "server/web_folder.h"

#include <unistd.h>

#include "base/process.h"

namespace lockstep {
namespace {

bool has_index(const std::string& folder) {
  return access((folder + "/index.html").c_str(), R_OK) == 0;
}

}  // namespace

Result<std::string> find_web_folder(const std::string& reported) {
  if (!reported.empty()) {
    if (!has_index(reported)) return Error{"--web: there is no readable index.html in " + reported};
    return reported;
  }
  std::string here = program_directory();
  for (const char* candidate : {"/../web", "/../share/lockstep/web", "/../../web/dist", "/../../../web/dist"}) {
    if (has_index(here + candidate)) return here + candidate;
  }
  return std::string();
}

}  // namespace lockstep
