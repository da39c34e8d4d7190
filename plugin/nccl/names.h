// NCCL names functions, types, algorithms and protocols by strings (in interface v1: by numbers); records carry small
// numbers of our own.
//
// Thread rule: Thread-safe. A null or unknown name is 0, "unknown".
#pragma once

#include <atomic>
#include <cstdint>

#include "recorder/records.h"

namespace lockstep::nccl {

Function function_of(const char* name);
Datatype datatype_of(const char* name);
uint8_t algorithm_of(const char* name);  // as in OpRecord::algorithm
uint8_t protocol_of(const char* name);   // as in OpRecord::protocol

Function function_of_v1(uint8_t number);
Datatype datatype_of_v1(uint8_t number);
uint8_t algorithm_of_v1(uint8_t number);
uint8_t protocol_of_v1(uint8_t number);

// Remembers names by address: NCCL's are literals inside its library, so an address means the same name for as long as
// that is loaded. forget() when it may have been unloaded: when no communicator is left.
class NameCache {
 public:
  template <typename Read>
  auto of(const char* name, Read read) -> decltype(read(name)) {
    const auto address = reinterpret_cast<uint64_t>(name);
    std::atomic<uint64_t>& place = places_[address * 0x9E3779B97F4A7C15ULL >> 60];
    const uint64_t known = place.load(std::memory_order_relaxed);
    if (known >> 8 == address && address != 0) return static_cast<decltype(read(name))>(known & 0xFF);
    const auto value = read(name);
    if (address >> 56 == 0) place.store(address << 8 | static_cast<uint64_t>(value), std::memory_order_relaxed);
    return value;
  }
  void forget() {
    for (auto& place : places_) place.store(0, std::memory_order_relaxed);
  }

 private:
  std::atomic<uint64_t> places_[16] = {};
};

}  // namespace lockstep::nccl
