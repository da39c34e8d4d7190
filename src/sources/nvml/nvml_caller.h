// Calls on one GPU, and what came of them: what it does not support is asked once and never again, what is forbidden is
// said once, and "the GPU is lost" or "the driver is gone" is remembered for the caller to act upon.
//
// Thread rule: Confined.
#pragma once

#include <bitset>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sources/nvml/nvml_abi.h"

namespace lockstep::nvml {

// Lines for the log, each said once in the life of a reader.
class Notes {
 public:
  // key: what it is about, e.g. a function; a second note with the same key is dropped.
  void say_once(const std::string& key, std::string line) {
    if (said_.insert(key).second) waiting_.push_back(std::move(line));
  }
  std::vector<std::string> take() { return std::exchange(waiting_, {}); }

 private:
  std::set<std::string> said_;
  std::vector<std::string> waiting_;
};

// A status after which asking again is in vain, as long as the driver stays as it is.
bool is_final(int status);

class Caller {
 public:
  // A function with an argument that decides whether it is supported (a clock, a threshold) is remembered per argument.
  static constexpr size_t kVariants = 8;

  Caller(Handle device, std::string who, Notes& notes) : device_(device), who_(std::move(who)), notes_(&notes) {}

  // True: the call was made and went well. False: it is missing, not supported, or failed this time.
  template <typename... Parameters, typename... Arguments>
  bool ask(const Function<Handle, Parameters...>& function, Arguments... arguments) {
    return ask_variant(0, function, arguments...);
  }
  template <typename... Parameters, typename... Arguments>
  bool ask_variant(size_t variant, const Function<Handle, Parameters...>& function, Arguments... arguments) {
    if (!may_ask(function, variant)) return false;
    return judge(function.id, function.name, function.call(device_, arguments...), variant);
  }
  template <typename... Parameters>
  bool may_ask(const Function<Parameters...>& function, size_t variant = 0) const {
    return function.call != nullptr && lost_ == 0 && fatal_ == 0 && !off_[bit(function.id, variant)];
  }
  // For a call that was made elsewhere: remembers the status, true where it is kOk.
  bool judge(Call call, const char* name, int status, size_t variant = 0);
  // For the status of one field or metric within a call: lost, fatal and forbidden are remembered, nothing is put off.
  void judge_part(const char* name, int status);

  void forget() { off_.reset(); }  // the GPU was reconfigured: everything may be supported now

  Handle device() const { return device_; }
  const std::string& who() const { return who_; }
  int last_status() const { return last_; }
  int lost() const { return lost_; }    // kGpuLost, kResetRequired, or 0
  int fatal() const { return fatal_; }  // kDriverNotLoaded, kVersionMismatch, kUninitialized, or 0
  Notes& notes() { return *notes_; }

 private:
  static size_t bit(Call call, size_t variant) { return static_cast<size_t>(call) * kVariants + variant; }

  Handle device_;
  std::string who_;
  Notes* notes_;
  std::bitset<kCallCount * kVariants> off_;
  int last_ = 0;
  int lost_ = 0;
  int fatal_ = 0;
};

}  // namespace lockstep::nvml
