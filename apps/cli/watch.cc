#include "apps/cli/watch.h"

#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>

#include "apps/cli/screen.h"
#include "apps/cli/terminal.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/text.h"
#include "base/utc_time.h"

namespace lockstep::cli {
namespace {

constexpr int64_t kUsualSeconds = 2;
constexpr size_t kFrameBytesMax = 64u << 20;

struct Watch {
  int64_t seconds = 0;  // 0: not asked for
  int (*run)(const Arguments&) = nullptr;
  bool in_frame = false;
};
// One for the process, which runs one command.
Watch& watch() {
  static Watch one;
  return one;
}

// What standard output and standard error get meanwhile, as text.
class Capture {
 public:
  Capture() : output_(::memfd_create("lockstep-frame", MFD_CLOEXEC)) {
    std::fflush(stdout);
    std::fflush(stderr);
    for (int fd : {STDOUT_FILENO, STDERR_FILENO}) {
      before_[fd - STDOUT_FILENO] = UniqueFd(::dup(fd));
      if (output_.valid()) ::dup2(output_.get(), fd);
    }
  }
  std::string end() {
    std::fflush(stdout);
    std::fflush(stderr);
    for (int fd : {STDOUT_FILENO, STDERR_FILENO}) ::dup2(before_[fd - STDOUT_FILENO].get(), fd);
    if (!output_.valid()) return {};
    const off_t bytes = ::lseek(output_.get(), 0, SEEK_END);
    std::string text(std::min(static_cast<size_t>(std::max<off_t>(bytes, 0)), kFrameBytesMax), '\0');
    const ssize_t got = ::pread(output_.get(), text.data(), text.size(), 0);
    text.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return text;
  }

 private:
  UniqueFd output_, before_[2];
};

struct Frame {
  int code = kExitOk;
  std::string text;
};

Frame next_frame(const Arguments& arguments) {
  Capture capture;
  watch().in_frame = true;
  const int code = watch().run(arguments);
  watch().in_frame = false;
  return {code, capture.end()};
}

std::string now_text() {
  return utc_time(SystemClock().unix_ns() / 1'000'000, "%Y-%m-%d %H:%M:%S") + " UTC";
}

int on_screen(const Arguments& arguments, int64_t seconds, const Frame& first) {
  Screen screen(false);
  Frame frame = first;
  std::string when = now_text();
  for (;;) {
    const TerminalSize size = terminal_size().value_or(TerminalSize{});
    std::vector<std::string_view> lines = split(frame.text, '\n');
    while (!lines.empty() && lines.back().empty()) lines.pop_back();
    const size_t room = size.rows > 1 ? size.rows - 1 : 1;
    std::string drawn =
        painted(Paint::kDim, format("every %lld s · %s · Ctrl-C ends", static_cast<long long>(seconds), when.c_str()));
    const size_t shown = lines.size() <= room ? lines.size() : room - 1;
    for (size_t i = 0; i < shown; ++i) drawn += "\n" + std::string(lines[i]);
    if (shown < lines.size()) drawn += "\n" + painted(Paint::kDim, format("%zu more lines", lines.size() - shown));
    screen.draw(drawn);
    if (screen.wait_key(seconds * 1000) == Screen::kEnd) return kExitOk;
    frame = next_frame(arguments);
    when = now_text();
    if (screen.ended()) return kExitOk;
  }
}

volatile sig_atomic_t g_over = 0;
void on_over(int) {
  if (g_over != 0) ::_exit(kExitOk);
  g_over = 1;
}

int in_lines(const Arguments& arguments, int64_t seconds, Frame frame) {
  const bool json = std::find(arguments.begin(), arguments.end(), "--json") != arguments.end();
  struct sigaction action {};
  action.sa_handler = on_over;
  for (int number : {SIGINT, SIGTERM}) ::sigaction(number, &action, nullptr);
  while (g_over == 0) {
    std::fwrite(frame.text.data(), 1, frame.text.size(), stdout);
    // Nobody reads it any more.
    if (std::fflush(stdout) != 0) return kExitOk;
    timespec left{seconds, 0};
    if (g_over != 0 || ::nanosleep(&left, nullptr) != 0) break;
    frame = next_frame(arguments);
    if (!json) std::printf("---- %s\n", now_text().c_str());
  }
  return kExitOk;
}

}  // namespace

Flags& add_watch_flag(Flags& flags, int (*run)(const Arguments&)) {
  if (!watch().in_frame) watch() = {.seconds = 0, .run = run, .in_frame = false};
  return flags.optional_number(&watch().seconds, "--watch", "[SECONDS]", "again every 2 s, or as often, until Ctrl-C",
                               1, 86'400, kUsualSeconds);
}

std::optional<int> watched(const Arguments& arguments) {
  if (watch().run == nullptr || watch().in_frame || watch().seconds == 0) return std::nullopt;
  const int64_t seconds = watch().seconds;
  (void)terminal_size();  // before the output is taken
  Frame first = next_frame(arguments);
  if (first.code == kExitUsage || first.code == kExitNotFound || first.code == kExitUnreachable) {
    std::fputs(first.text.c_str(), stderr);
    return first.code;
  }
  return Screen::possible(false) ? on_screen(arguments, seconds, first)
                                 : in_lines(arguments, seconds, std::move(first));
}

}  // namespace lockstep::cli
