// The terminal as a whole screen, for as long as this lives: another page than the shell's, without a cursor, and with keys
// as they are pressed where wanted. What it was before is put back whatever happens: the end of the program, Ctrl-C, a
// signal that ends it, Ctrl-Z and fg.
//
// Thread rule: Confined, one at a time.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::cli {

class Screen {
 public:
  // Whether both ends are a terminal that escapes can be sent to.
  static bool possible(bool needs_keys);
  explicit Screen(bool with_keys);
  Screen(const Screen&) = delete;
  ~Screen();

  // From the upper left corner, one line each; what does not fit is cut. Nothing flickers: each line is written over.
  void draw(const std::string& lines);
  // Waits at most so long for a key, or a change of the terminal's size. 0: neither came.
  // Letters and control characters as they are; kUp and the like for the others; kResized; kEnd where the terminal is
  // gone or somebody asked for the end (SIGINT, SIGTERM, SIGHUP).
  enum Key : int { kUp = 256, kDown, kPageUp, kPageDown, kHome, kEndKey, kResized, kEnd };
  static constexpr int kEscape = 27, kEnter = '\r';
  int wait_key(int64_t milliseconds);
  bool ended() const;
};

}  // namespace lockstep::cli
