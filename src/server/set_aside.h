// Records of the durable log in whose applying the server died, again and again. An exception is contained where it is
// thrown (apply/applier.h); this is for what is not one: a crash, or the kernel's hand when memory is out. Without it
// such a record would end every start, for ever.
//
// A page of the file `applying` says which record is being applied; it costs two stores to memory and outlives the
// process. One that is found there at start has ended the process before; at the kDeathsMax-th time it is named in the
// file `set_aside`, counted, told in one line, and left out from then on. The log keeps it.
// A record is known by its sequence and when it was received: a log that was made anew counts from one again. What is
// read back of metrics (heard_metrics.h) has kMetrics for a sequence, and its own time.
// Without room on disk for the page nothing is remembered, and that is said.
// Thread rule: begin() and end() Confined to whoever applies; is_set_aside() Thread-safe after open().
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/counters.h"

namespace lockstep {

class SetAside {
 public:
  static constexpr uint64_t kDeathsMax = 3;
  static constexpr uint64_t kMetrics = UINT64_MAX;
  static constexpr size_t kListMax = 10'000;  // records; more are not remembered

  // folder: of the server's data.
  SetAside(const std::string& folder, Counters& counters);
  ~SetAside();
  SetAside(const SetAside&) = delete;
  SetAside& operator=(const SetAside&) = delete;

  bool is_set_aside(uint64_t sequence, int64_t received_unix_ns) const;

  // As long as it lives, this record is being applied.
  class Applying {
   public:
    Applying(SetAside& owner, uint64_t sequence, int64_t received_unix_ns) : owner_(owner) {
      owner_.begin(sequence, received_unix_ns);
    }
    ~Applying() { owner_.end(); }
    Applying(const Applying&) = delete;
    Applying& operator=(const Applying&) = delete;

   private:
    SetAside& owner_;
  };

 private:
  struct Page;
  void begin(uint64_t sequence, int64_t received_unix_ns);
  void end();
  void read_list(const std::string& path);
  void note_death(const std::string& path, Counters& counters);

  Page* page_ = nullptr;  // nullptr: nothing is remembered
  std::set<std::pair<uint64_t, int64_t>> records_;
};

}  // namespace lockstep
