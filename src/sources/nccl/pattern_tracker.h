// Finds what repeats in a rank's operations, and cuts steps by it: the engine of step_inference.h, which says what it
// is for.
//
// Between two occurrences of an operation lies a segment; the set of what was in it is kept as one number (a sum of
// hashes, so that the order in which threads make their calls does not count). Where an operation's last segments are
// all alike, they are the period. Among what occurs once in it one operation is the anchor: it ends a step, which is
// over with the next operation of weight. The anchor is a reduction before anything else, then the one with most bytes.
// Of sends and receives, which are all alike, it is the one after the longest pause, and the step is over in front of
// it.
//
// Limits: kSignaturesMax different operations (further ones do not count), kPastMax operations looked back. Thread
// rule: Confined.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/ids.h"
#include "recorder/records.h"

namespace lockstep {

// What an operation is compared by.
struct PatternKey {
  CommId comm_id;
  int64_t bytes = 0;     // 0 where sizes do not count
  uint64_t context = 0;  // what came before it; 0 where that does not count
  int32_t comm_size = 0;
  int32_t peer = -1;  // p2p alone
  Function function = Function::kUnknown;
  Datatype datatype = Datatype::kUnknown;
  bool operator==(const PatternKey&) const = default;
};
uint64_t hash_of(const PatternKey& key);

// An operation as one way of looking sees it.
struct PatternSight {
  PatternKey key;
  uint64_t ordinal = 0;  // on its communicator, from 1; 0: of another kind, its numbers say nothing here
  int64_t at_ns = 0;
  bool counts = false;  // part of the pattern
  bool ends = false;    // a step may end in front of it
};

struct InferredStep {
  StepNumber step;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

class PatternTracker {
 public:
  static constexpr size_t kSignaturesMax = 1024;
  static constexpr size_t kPastMax = 4096;
  // Segments alike in a row that make a period; a single operation that follows itself proves less.
  static constexpr uint32_t kRunMin = 3;
  static constexpr uint32_t kRunOfOneMin = 16;
  // A layer is shorter, a step longer. Shorter steps are believed after kShortRunNs of nothing else, down to
  // kPeriodNsLeast.
  static constexpr int64_t kPeriodNsMin = 20'000'000;
  static constexpr int64_t kPeriodNsLeast = 5'000'000;
  static constexpr int64_t kShortRunNs = 60'000'000'000;
  // Periods that repeat inside a longer one at most so often are parts of it (micro-batches).
  static constexpr uint64_t kPartsMax = 16;
  // Segments in a row unlike the period after which it is given up.
  static constexpr uint32_t kUnlikeMax = 16;

  // run_ops_min: operations that alike segments must span before they are believed.
  explicit PatternTracker(uint64_t run_ops_min) : run_ops_min_(run_ops_min) {}

  void add(const PatternSight& op);
  bool has_steps() const { return !steps_.empty(); }
  std::vector<InferredStep> take() { return std::exchange(steps_, {}); }
  // The rank has ended: so has the step whose anchor has come.
  void finish(int64_t at_ns);

  bool following() const { return anchor_ >= 0; }
  uint64_t breaks() const { return breaks_; }
  // Somebody else told steps up to this one: ours come after.
  void number_after(StepNumber step) {
    number_ = std::max(number_, step + 1);
    last_step_ = std::max(last_step_, step);
  }
  // Start of the open step; 0: none.
  int64_t open_since_ns() const { return following() ? open_since_ns_ : 0; }

 private:
  struct Signature {
    PatternKey key;
    uint64_t hash = 0;
    uint64_t occurrences = 0;
    uint64_t last_sum = 0;  // of everything up to and with its last occurrence
    uint64_t last_count = 0;
    int64_t last_ns = 0;
    uint64_t segment_sum = 0;  // its newest segment
    uint64_t segment_ops = 0;
    uint32_t run = 0;  // segments like the newest, in a row
    int64_t run_since_ns = 0;
  };
  struct Past {
    int32_t signature;  // -1: it only ends steps
    bool ends;
    uint64_t ordinal;
    int64_t at_ns;
  };
  struct Ordinals {
    uint64_t first = 0;
    uint64_t last = 0;
  };
  struct Hash {
    size_t operator()(const PatternKey& key) const { return hash_of(key); }
  };

  const Signature& anchor() const { return signatures_[static_cast<size_t>(anchor_)]; }
  bool anchor_begins() const { return anchor().key.peer >= 0; }  // a step; else it ends one
  int32_t signature_of(const PatternKey& key);
  void note_ordinal(const PatternSight& op);
  void note_segment(Signature& one, int64_t at_ns);
  bool is_regular(const Signature& one) const;
  bool is_better(const Signature& one) const;
  void lock(int32_t regular);
  size_t period_begin(uint64_t ops) const;
  int32_t anchor_in(size_t begin, int32_t otherwise) const;
  void report_past(uint32_t periods);
  void on_anchor(uint64_t ordinal);
  void end_step(int64_t at_ns);
  void unlock();
  StepNumber number_of_anchor(uint64_t ordinal) const;

  const uint64_t run_ops_min_;
  std::unordered_map<PatternKey, int32_t, Hash> ids_;
  std::vector<Signature> signatures_;
  std::deque<Past> past_;
  std::map<CommId, Ordinals> ordinals_;  // by communicator
  uint64_t sum_ = 0;
  uint64_t count_ = 0;
  uint64_t breaks_ = 0;

  int32_t anchor_ = -1;
  uint64_t period_ops_ = 0;
  uint64_t period_sum_ = 0;
  std::vector<CommId> period_comms_;
  uint64_t ordinals_per_step_ = 0;
  uint64_t anchor_ordinal_ = 0;
  uint32_t unlike_run_ = 0;
  bool hole_ = false;          // on the anchor's communicator, since the anchor
  bool anchor_seen_ = false;   // the step is over with the next operation that may end it
  int64_t open_since_ns_ = 0;  // 0: its start is not known
  StepNumber number_;          // of the open step
  StepNumber last_step_ = kNoStep;
  std::vector<InferredStep> steps_;
};

}  // namespace lockstep
