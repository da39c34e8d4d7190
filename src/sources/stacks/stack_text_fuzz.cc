// Any bytes as faulthandler's text and as the kernel's: stacks within their limits.
#include "sources/stacks/faulthandler_text.h"
#include "sources/stacks/thread_stacks.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  RankStack stack;
  stack.python = parse_faulthandler_untrusted(text, 0x7f00);
  if (stack.python.size() > kStackPythonThreadsMax) __builtin_trap();
  for (const PythonStack& thread : stack.python) {
    if (thread.frames.size() > kStackFramesMax) __builtin_trap();
  }
  stack.threads.push_back({.tid = 1, .syscall = syscall_name_untrusted(text), .kernel = kernel_stack_untrusted(text)});
  if (stack.threads[0].kernel.size() > kKernelFramesMax) __builtin_trap();
  (void)signal_sets_untrusted(text);
  if (!rank_stack_from_record(to_record(stack)).ok()) __builtin_trap();
  return 0;
}
