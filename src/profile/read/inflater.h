// Undoes gzip, piece by piece. By ISA-L where the machine has it, which is three times as fast as zlib, else by zlib: most
// of what reading a trace costs is this.
//
// Thread rule: Confined.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace lockstep::profile {

class Inflater {
 public:
  enum class Outcome {
    kMore,       // of the input is wanted, or room for the output
    kMemberEnd,  // of a gzip file; another may follow
    kDamaged,    // and not to be run again
  };
  Inflater();
  ~Inflater();
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Takes from the input and writes to the output as much as goes, and says how much of each.
  Outcome run(const char* input, size_t input_bytes, size_t& taken, char* output, size_t output_bytes, size_t& written);
  // For the next member.
  void begin_member();
  const char* damage() const;  // after kDamaged

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::profile
