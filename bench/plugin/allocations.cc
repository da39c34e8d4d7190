#include "bench/plugin/allocations.h"

#include <cerrno>
#include <cstddef>

namespace {
// In the program itself, so that reading it allocates nothing.
constinit thread_local uint64_t count = 0;
}  // namespace

extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t items, size_t size);
void* __libc_realloc(void* old, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

#define INTERPOSED __attribute__((visibility("default")))

INTERPOSED void* malloc(size_t size) noexcept {
  count += 1;
  return __libc_malloc(size);
}
INTERPOSED void* calloc(size_t items, size_t size) noexcept {
  count += 1;
  return __libc_calloc(items, size);
}
INTERPOSED void* realloc(void* old, size_t size) noexcept {
  count += 1;
  return __libc_realloc(old, size);
}
INTERPOSED void* memalign(size_t alignment, size_t size) noexcept {
  count += 1;
  return __libc_memalign(alignment, size);
}
INTERPOSED void* aligned_alloc(size_t alignment, size_t size) noexcept {
  count += 1;
  return __libc_memalign(alignment, size);
}
INTERPOSED int posix_memalign(void** memory, size_t alignment, size_t size) noexcept {
  count += 1;
  void* const got = __libc_memalign(alignment, size);
  if (got == nullptr) return ENOMEM;
  *memory = got;
  return 0;
}
}

namespace lockstep::plugin_bench {

uint64_t allocations_of_this_thread() {
  return count;
}

}  // namespace lockstep::plugin_bench
