// How long a device took to answer. While our own thread waits for a processor, as it does for long on a node without a
// free core, nobody is slow: that is not counted.
//
// Thread rule: Confined to the thread that made it.
#pragma once

#include <cstdint>

namespace lockstep {

class Stopwatch {
 public:
  Stopwatch();
  int64_t elapsed_ns() const;

 private:
  int64_t began_ns_, waited_ns_;
};

}  // namespace lockstep
