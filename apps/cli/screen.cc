#include "apps/cli/screen.h"

#include <poll.h>
#include <signal.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "apps/cli/terminal.h"
#include "base/text.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kEnterScreen =
    "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[H\x1b[2J";  // no cursor, no line goes over the edge
constexpr std::string_view kLeaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l";

// For signal handlers, so plain values.
volatile sig_atomic_t g_ended = 0, g_resized = 0, g_open = 0, g_with_keys = 0;
int g_fd = -1;
termios g_before{};
struct sigaction g_actions[NSIG];

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EAGAIN) {
      pollfd waiting{fd, POLLOUT, 0};
      ::poll(&waiting, 1, 100);
      continue;
    }
    if (written < 0 && errno != EINTR) return;
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
}

// Signal-safe.
void leave() {
  if (g_open == 0) return;
  g_open = 0;
  (void)!::write(g_fd, kLeaveScreen.data(), kLeaveScreen.size());
  if (g_with_keys != 0) ::tcsetattr(STDIN_FILENO, TCSANOW, &g_before);
}

void enter() {
  if (g_with_keys != 0) {
    termios raw = g_before;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    raw.c_iflag &= ~static_cast<tcflag_t>(ICRNL | IXON);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  }
  g_open = 1;
  write_all(g_fd, kEnterScreen);
}

void on_end(int) {
  if (g_ended != 0) {  // asked twice: whatever is being waited for
    leave();
    ::_exit(130);
  }
  g_ended = 1;
}

void on_resize(int) {
  g_resized = 1;
}

void on_stop(int) {
  const int before = errno;
  const bool was_open = g_open != 0;
  leave();
  ::raise(SIGSTOP);
  if (was_open) enter();
  g_resized = 1;
  errno = before;
}

// Our own mistake, or somebody's kill: the terminal first, then as if we had not been asked.
void on_fatal(int number) {
  leave();
  ::signal(number, SIG_DFL);
  ::raise(number);
}

constexpr int kFatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGQUIT, SIGXCPU, SIGALRM};

void catch_signal(int number, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;  // without SA_RESTART: waiting ends
  ::sigaction(number, &action, &g_actions[number]);
}

// The rest of an escape sequence, as far as it is here already.
int key_of_escape() {
  char rest[8];
  pollfd waiting{STDIN_FILENO, POLLIN, 0};
  if (::poll(&waiting, 1, 25) <= 0) return Screen::kEscape;
  const ssize_t got = ::read(STDIN_FILENO, rest, sizeof rest);
  if (got < 2 || (rest[0] != '[' && rest[0] != 'O')) return Screen::kEscape;
  switch (rest[1]) {
    case 'A':
      return Screen::kUp;
    case 'B':
      return Screen::kDown;
    case '5':
      return Screen::kPageUp;
    case '6':
      return Screen::kPageDown;
    case 'H':
    case '1':
      return Screen::kHome;
    case 'F':
    case '4':
      return Screen::kEndKey;
    default:
      return 0;
  }
}

}  // namespace

bool Screen::possible(bool needs_keys) {
  const char* term = std::getenv("TERM");
  return terminal_size().has_value() && term != nullptr && std::string_view(term) != "dumb" &&
         (!needs_keys || ::isatty(STDIN_FILENO) == 1);
}

Screen::Screen(bool with_keys) {
  g_fd = ::dup(STDOUT_FILENO);
  g_with_keys = with_keys && ::tcgetattr(STDIN_FILENO, &g_before) == 0 ? 1 : 0;
  g_ended = 0;
  g_resized = 0;
  for (int number : {SIGINT, SIGTERM, SIGHUP}) catch_signal(number, on_end);
  catch_signal(SIGWINCH, on_resize);
  catch_signal(SIGTSTP, on_stop);
  for (int number : kFatal) catch_signal(number, on_fatal);
  static const int registered = std::atexit(leave);
  (void)registered;
  enter();
}

Screen::~Screen() {
  leave();
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP}) ::sigaction(number, &g_actions[number], nullptr);
  for (int number : kFatal) ::sigaction(number, &g_actions[number], nullptr);
  ::close(g_fd);
}

void Screen::draw(const std::string& lines) {
  const TerminalSize size = terminal_size().value_or(TerminalSize{});
  std::string out = "\x1b[H";
  size_t row = 0;
  for (std::string_view line : split(lines, '\n')) {
    if (row == size.rows) break;
    // No line end behind the last row: it would scroll.
    out += (row == 0 ? "" : "\r\n") + clipped(line, size.columns) + "\x1b[K";
    ++row;
  }
  write_all(g_fd, out + "\x1b[J");
}

bool Screen::ended() const {
  return g_ended != 0;
}

int Screen::wait_key(int64_t milliseconds) {
  // Signals come while waiting, not between looking and waiting.
  sigset_t held, before;
  sigemptyset(&held);
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGWINCH}) sigaddset(&held, number);
  ::sigprocmask(SIG_BLOCK, &held, &before);
  pollfd waiting{g_with_keys != 0 ? STDIN_FILENO : -1, POLLIN, 0};
  const timespec limit{milliseconds / 1000, milliseconds % 1000 * 1'000'000};
  int ready = 0;
  if (g_ended == 0 && g_resized == 0) ready = ::ppoll(&waiting, 1, &limit, &before);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  if (g_ended != 0) return kEnd;
  if (g_resized != 0) {
    g_resized = 0;
    return kResized;
  }
  if (ready <= 0) return 0;
  unsigned char letter = 0;
  if (::read(STDIN_FILENO, &letter, 1) != 1) {
    g_ended = 1;  // the terminal is gone
    return kEnd;
  }
  return letter == kEscape ? key_of_escape() : letter;
}

}  // namespace lockstep::cli
