#include "sources/amdsmi/amdsmi_library.h"

#include <dlfcn.h>

#include <vector>

#include "base/text.h"

namespace lockstep::amdsmi {

Result<Functions> load(const std::string& path) {
  std::vector<std::string> names = {path};
  if (path.empty()) {
    names = {"libamd_smi.so", "libamd_smi.so.26", "libamd_smi.so.25", "libamd_smi.so.24",
             "/opt/rocm/lib/libamd_smi.so"};
  }
  void* library = nullptr;
  std::string why;
  for (const std::string& name : names) {
    library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
    const char* said = dlerror();
    if (why.empty() && said != nullptr) why = said;
  }
  if (library == nullptr) return Error{"amdsmi: no library (" + why + ")"};

  Functions functions;
#define LOCKSTEP_AMDSMI_LOAD(member, symbol, needed, parameters)                           \
  functions.member = reinterpret_cast<decltype(functions.member)>(dlsym(library, symbol)); \
  if ((needed) && functions.member == nullptr) return Error{"amdsmi: the library has no " symbol "; not used"};
  LOCKSTEP_AMDSMI_FUNCTIONS(LOCKSTEP_AMDSMI_LOAD)
#undef LOCKSTEP_AMDSMI_LOAD
  return functions;
}

}  // namespace lockstep::amdsmi
