// Any bytes as a profile's summary: refused with one line, or shares that add up.
#include <cmath>
#include <cstdlib>

#include "analysis/cost/kernel_classes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const Result<KernelClasses> read = kernel_classes_from_summary_untrusted({reinterpret_cast<const char*>(data), size});
  if (!read.ok()) return read.error().find('\n') == std::string::npos ? 0 : (std::abort(), 0);
  for (const auto* list : {&read->by_bound, &read->by_family}) {
    double sum = 0;
    for (const KernelClassShare& one : *list) sum += one.share;
    if (list->size() > kKernelClassesMax + 1 || (!list->empty() && std::fabs(sum - 1) > 1e-6)) std::abort();
  }
  return 0;
}
