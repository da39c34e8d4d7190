// Ctrl-C and SIGTERM as a question a loop can ask, so that a simulated job still says goodbye.
//
// Thread rule: Thread-safe. One per process at a time.
#pragma once

#include <csignal>

namespace lockstep::sim {

class Interrupt {
 public:
  Interrupt() : before_int_(std::signal(SIGINT, note)), before_term_(std::signal(SIGTERM, note)) { flag() = 0; }
  ~Interrupt() {
    std::signal(SIGINT, before_int_);
    std::signal(SIGTERM, before_term_);
  }
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  bool asked() const { return flag() != 0; }

 private:
  static volatile std::sig_atomic_t& flag() {
    static volatile std::sig_atomic_t asked = 0;
    return asked;
  }
  static void note(int) { flag() = 1; }
  void (*before_int_)(int);
  void (*before_term_)(int);
};

}  // namespace lockstep::sim
