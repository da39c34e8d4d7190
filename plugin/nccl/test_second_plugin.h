// The profiler plugin that the tests chain to: writes down everything it is called with and answers as it is told.
//
// Thread rule: calls are thread-safe; what is told and read, Confined to times without calls.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::nccl {

struct SecondCall {
  enum What { kInit, kFinalize, kStart, kStop, kState };
  What what = kInit;
  int version = 0;
  void* context = nullptr;  // of init: the one that it gave
  void* handle = nullptr;   // of start: the one that it gave
  uint64_t type = 0;
  void* parent = nullptr;
  void* parent_group = nullptr;
  int rank = 0;
  int state = 0;
  bool has_args = false;
  uint64_t value = 0;  // of a state: its argument; of an operation: count; of a kernel: pTimer
  uint64_t seq = 0;
  std::string function;  // v1: the number
  std::string datatype;
  std::string algorithm;
  std::string protocol;
  std::string name;  // of the communicator
  uint64_t comm_id = 0;
  int channel = 0;  // of an operation: how many
  int peer = 0;
  const void* descriptor = nullptr;
};

struct SecondPlugin {
  // What to do; set before the first init.
  int mask = 0x5E;
  uint64_t declined = 0;  // event bits that get no handle
  int init_result = 0;
  bool null_context = false;
  bool keep_calls = true;  // false: only check that stops match starts

  std::vector<SecondCall> calls;
  int* nccl_mask = nullptr;
  uint64_t stops_without_start = 0;  // unknown, or stopped before
  uint64_t states_without_start = 0;
  uint64_t open = 0;

  // All calls, or those of one kind.
  std::vector<SecondCall> of(SecondCall::What what, uint64_t type = ~0ULL) const {
    std::vector<SecondCall> found;
    for (const SecondCall& call : calls) {
      if (call.what == what && (call.type & type) != 0) found.push_back(call);
    }
    return found;
  }
};

using SecondPluginSymbol = SecondPlugin* (*)();
inline constexpr const char* kSecondPluginSymbol = "test_second_plugin";

}  // namespace lockstep::nccl
