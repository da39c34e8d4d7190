#include "sources/nvml/nvml_library.h"

#include <dlfcn.h>

namespace lockstep::nvml {
namespace {

template <typename... Parameters>
void bind(void* file, Function<Parameters...>& function, const char* symbol, const char* older) {
  function.call = reinterpret_cast<int (*)(Parameters...)>(dlsym(file, symbol));
  if (function.call == nullptr && older != nullptr) {
    function.call = reinterpret_cast<int (*)(Parameters...)>(dlsym(file, older));
    function.name = older;
  }
}

}  // namespace

const char* status_text(int status) {
  switch (status) {
    case kOk:
      return "ok";
    case kUninitialized:
      return "not initialised";
    case kInvalidArgument:
      return "invalid argument";
    case kNotSupported:
      return "not supported";
    case kNoPermission:
      return "no permission";
    case kNotFound:
      return "not found";
    case kInsufficientSize:
      return "buffer too small";
    case kDriverNotLoaded:
      return "driver not loaded";
    case kTimeout:
      return "timeout";
    case kFunctionNotFound:
      return "function not in the driver";
    case kGpuLost:
      return "GPU is lost";
    case kResetRequired:
      return "GPU needs a reset";
    case kOperatingSystem:
      return "blocked by the operating system";
    case kVersionMismatch:
      return "library and driver have different versions";
    case kNoData:
      return "no data";
    case kWrongVersion:
      return "struct version not known";
    case kDeprecated:
      return "deprecated";
    case kNotReady:
      return "not ready";
    default:
      return "error";
  }
}

Result<Library> Library::open(const std::string& path) {
  const char* name = path.empty() ? "libnvidia-ml.so.1" : path.c_str();
  void* file = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (file == nullptr) {
    const char* why = dlerror();
    return Error{std::string("NVML: cannot load ") + (why ? why : name)};
  }
  Library library(file);
  Api& api = library.api_;
#define LOCKSTEP_NVML_BIND(member, symbol, older, ...) bind(file, api.member, symbol, older);
  LOCKSTEP_NVML_FUNCTIONS(LOCKSTEP_NVML_BIND)
#undef LOCKSTEP_NVML_BIND
  if (!api.init.call || !api.shutdown.call || !api.count.call || !api.handle_by_index.call || !api.uuid.call) {
    return Error{std::string("NVML: ") + name +
                 " lacks nvmlInit, nvmlShutdown, nvmlDeviceGetCount, "
                 "nvmlDeviceGetHandleByIndex or nvmlDeviceGetUUID; is it the driver's library?"};
  }
  return library;
}

Library::~Library() {
  if (file_ != nullptr) dlclose(file_);
}

}  // namespace lockstep::nvml
