// When the agent asks a process for less detail, and when for more, through the control word of its recorder.
//
// Less: its ring is overwritten faster than it is drained (kLooks looks within kWithinNs). First the network's steps go
// (they are most of all records), then all but the operations themselves. Or the node has no core to spare and its
// transfers come fast (kDearPerS): then single transfers are recorded in some steps only, the same ones on all ranks,
// because what NCCL, the plugin and the agent spend on the others is taken from the job.
// More: it leaves something out and has fallen silent, moves again after silence, or has become slow (half as many
// operations as when less was first asked for), or is being profiled: what comes next should be seen whole.
//
// A request lasts kRequestNs; after that the plugin chooses again. A request that is still good and is not this one's
// own is an operator's (or of an agent before this one), and is left alone.
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
  static constexpr int64_t kRequestNs = 60'000'000'000;
  static constexpr uint16_t kNoSteps = 0x4e;
  static constexpr int64_t kRateNs = 5'000'000'000;
  // Transfers of one process a second: below this all of them cost the thread that drives them less than 0.2 % of a
  // core (four callbacks of up to 250 ns each), and the agent about as much.
  static constexpr double kDearPerS = 2'000;

  struct Look {
    int64_t now_ns = 0;        // CLOCK_MONOTONIC
    bool overwritten = false;  // records were lost since the last look
    bool silence = false;      // it was told as quiet, or moves again after that
    uint32_t mask = 0;         // NCCL's event bits in force; 0: no communicator yet
    uint64_t control = 0;      // the control word as it stands
    bool crowded = false;      // the node's cores are all taken
    uint64_t operations = 0;   // recorded since the process started
    uint64_t transfers = 0;    // likewise
    bool profiled = false;     // a kernel profile of it is being taken
  };
  struct Change {
    DetailControl request;
    bool up = false;
    const char* why = "";
  };
  // What to write into the control word now, if anything.
  std::optional<Change> decide(const Look& look);
  // The word cannot be written: leave this process alone from now on.
  void give_up() { given_up_ = true; }

 private:
  enum class Asked { kLess, kSampled, kMore };
  std::optional<Change> ask(uint16_t mask, Asked what, const char* why, int64_t now_ns);
  void note_rates(const Look& look);

  std::deque<int64_t> overwritten_at_;
  uint64_t own_word_ = 0;
  Asked own_ = Asked::kMore;
  bool given_up_ = false;
  // Rates over the last kRateNs that are whole.
  int64_t rates_since_ns_ = 0;  // 0: none yet
  uint64_t operations_then_ = 0;
  uint64_t transfers_then_ = 0;
  double operations_per_s_ = 0;
  double transfers_per_s_ = 0;
  double usual_per_s_ = 0;  // operations, when less was first asked for
};

// Whether somebody has asked for everything, and it is still good: then channels are told apart.
bool full_detail_asked(uint64_t control, int64_t now_ns);

}  // namespace lockstep
