#include "sources/stacks/faulthandler_text.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/text.h"

namespace lockstep {
namespace {

std::string bounded(std::string_view text) {
  return as_one_line(utf8_prefix(text, kEvidenceTextMax));
}

// `Thread 0x00007f2e4d3ff6c0 [loader] (most recent call first):`; the name is there since Python 3.14.
std::optional<PythonStack> thread_line(std::string_view line) {
  if (!line.ends_with("(most recent call first):")) return std::nullopt;
  constexpr std::string_view kBegins[] = {"Thread 0x", "Current thread 0x"};
  for (std::string_view begin : kBegins) {
    if (!line.starts_with(begin)) continue;
    PythonStack thread;
    const char* digits = line.data() + begin.size();
    const std::from_chars_result read = std::from_chars(digits, line.data() + line.size(), thread.ident, 16);
    if (read.ec != std::errc() || read.ptr == digits) return std::nullopt;
    const size_t open = line.find('['), close = line.rfind(']');
    if (open != std::string_view::npos && close != std::string_view::npos && open < close)
      thread.name = bounded(line.substr(open + 1, close - open - 1));
    return thread;
  }
  return std::nullopt;
}

// `  File "/job/loader.py", line 41 in load_batch`
std::optional<StackFrame> frame_line(std::string_view line) {
  constexpr std::string_view kBegin = "  File \"", kLine = "\", line ", kIn = " in ";
  if (!line.starts_with(kBegin)) return std::nullopt;
  // From the end: a file's name may hold anything.
  const size_t at = line.rfind(kLine);
  if (at == std::string_view::npos || at < kBegin.size()) return std::nullopt;
  const std::string_view rest = line.substr(at + kLine.size());
  const size_t in = rest.find(kIn);
  if (in == std::string_view::npos) return std::nullopt;
  const std::optional<int64_t> number = parse_int(rest.substr(0, in));
  StackFrame frame;
  frame.file = bounded(line.substr(kBegin.size(), at - kBegin.size()));
  frame.line = static_cast<int32_t>(std::clamp<int64_t>(number.value_or(0), 0, INT32_MAX));
  frame.function = bounded(rest.substr(in + kIn.size()));
  return frame;
}

}  // namespace

std::vector<PythonStack> parse_faulthandler_untrusted(std::string_view text, uint64_t main_ident) {
  std::vector<PythonStack> threads;
  bool open = false;  // frames belong to the last thread
  for (std::string_view line : split(text.substr(0, kFaulthandlerBytesMax), '\n')) {
    if (std::optional<PythonStack> thread = thread_line(line)) {
      thread->main = main_ident != 0 && thread->ident == main_ident;
      open = threads.size() < kStackPythonThreadsMax || thread->main;
      if (!open) continue;
      // The main thread is told last; it must not be the one that is left out.
      if (threads.size() == kStackPythonThreadsMax) threads.pop_back();
      threads.push_back(std::move(*thread));
    } else if (std::optional<StackFrame> frame = frame_line(line); frame && open) {
      if (threads.back().frames.size() < kStackFramesMax) threads.back().frames.push_back(std::move(*frame));
    }
  }
  std::stable_sort(threads.begin(), threads.end(),
                   [](const PythonStack& a, const PythonStack& b) { return a.main && !b.main; });
  return threads;
}

}  // namespace lockstep
