// When the agent asks a process for less detail, and when for more, through the control word of its recorder.
//
// Less: its ring is overwritten faster than it is drained (kLooks looks within kWithinNs). First the network's steps go
// (they are most of all records), then all but the operations themselves. More: it leaves out kernel events and has
// fallen silent, or moves again after silence: what comes next should be seen whole.
//
// A wish lasts kWishNs; after that the plugin chooses again. A wish that is still good and is not this one's own is an
// operator's (or of an agent before this one), and is left alone.
// Thread rule: Confined. One for each process.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "recorder/control.h"

namespace lockstep {

class DetailPolicy {
 public:
  static constexpr size_t kLooks = 3;
  static constexpr int64_t kWithinNs = 10'000'000'000;
  static constexpr int64_t kWishNs = 60'000'000'000;
  static constexpr uint16_t kNoSteps = 0x4e;

  struct Look {
    int64_t now_ns = 0;        // CLOCK_MONOTONIC
    bool overwritten = false;  // records were lost since the last look
    bool silence = false;      // it was told as quiet, or moves again after that
    uint32_t mask = 0;         // NCCL's event bits in force; 0: no communicator yet
    uint64_t control = 0;      // the control word as it stands
  };
  struct Change {
    DetailWish wish;
    bool up = false;
  };
  // What to write into the control word now, if anything.
  std::optional<Change> decide(const Look& look);
  // The word cannot be written: leave this process alone from now on.
  void give_up() { given_up_ = true; }

 private:
  std::optional<Change> ask(uint16_t mask, bool up, int64_t now_ns);

  std::deque<int64_t> overwritten_at_;
  uint64_t own_word_ = 0;
  bool own_is_up_ = false;
  bool given_up_ = false;
};

// Whether somebody has asked for everything, and it is still good: then channels are told apart.
bool full_detail_asked(uint64_t control, int64_t now_ns);

}  // namespace lockstep
