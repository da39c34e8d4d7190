// Plays NCCL for any profiler plugin: opens it as NCCL does, takes the newest interface that it exports (v7 to v4), and
// makes the calls. A version differs in how init is called and in a descriptor's bytes; the rest is one table of six
// pointers, so everything but these two is the same code for all of them.
//
// Thread rule: init() and describe() are Confined; the calls are Thread-safe as far as the plugin is. Not to be moved
//              once init() was called: the plugin may keep the address of the mask.
#pragma once

#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <string_view>

#include "base/result.h"
#include "plugin/nccl/profiler_abi.h"
#include "sim/replay/calls.h"

namespace lockstep::plugin_bench {

// In place of a path. null: answers every call and does nothing. spin:NS: burns NS nanoseconds in every call and
// touches no memory; what happens to it is the machine's doing, and it stands out in the open as long as a real plugin.
inline constexpr const char* kNullPlugin = "null";
inline constexpr const char* kSpinPlugin = "spin:";

union Descriptor {
  nccl::EventDescrV4 v4;
  nccl::EventDescrV5 v5;
  nccl::EventDescrV6 v6;
  nccl::EventDescrV7 v7;
  char bytes[sizeof(nccl::EventDescrV7)];

  // These lie in the same place in every version; static_asserts in host.cc.
  void set_parent(void* parent) { std::memcpy(bytes + 8, &parent, sizeof parent); }
  void set_sequence(uint64_t number) { std::memcpy(bytes + 24, &number, sizeof number); }
  void set_gpu_ns(uint64_t time) { std::memcpy(bytes + 32, &time, sizeof time); }
  void set_group(uint32_t offset, void* group) { std::memcpy(bytes + offset, &group, sizeof group); }
};

class Host {
 public:
  static Result<Host> open(const std::string& path);

  int version() const { return version_; }
  const char* name() const { return table_->name; }
  // What NCCL would send: the plugin's mask as it is now, and the ancestors of each event in it.
  uint64_t wanted() const;

  // Whatever init answers, NCCL (2.28 on) goes on with the context it left.
  void* init(uint64_t id, const char* name, int nodes, int ranks, int rank);
  void finalize(void* context) const { table_->finalize(context); }
  void* start(void* context, Descriptor& descriptor) const {
    void* handle = reinterpret_cast<void*>(0xdeadbeef);  // NCCL leaves an old value there
    table_->start(context, &handle, &descriptor);
    return handle;
  }
  void state(void* handle, int state, void* arguments) const { table_->state(handle, state, arguments); }
  void stop(void* handle) const { table_->stop(handle); }

  // The event of a recorded line, or of a line made up like one, as this version has it. Parents are set later.
  // our_pid: whose transfers are this process's own.
  Descriptor describe(const replay::CallLine& line, int our_pid);
  // Where such an event carries its group; 0: it has none.
  uint32_t group_offset(uint64_t type) const;

 private:
  struct Table {
    const char* name;
    void* init;
    int (*start)(void* context, void** handle, void* descriptor);
    int (*stop)(void* handle);
    int (*state)(void* handle, int state, void* arguments);
    int (*finalize)(void* context);
  };
  static const Table kNullTable, kSpinTable;

  template <typename Event>
  void fill(Event& event, const replay::CallLine& line, int our_pid);
  // NCCL passes pointers to its own literals, and a plugin may compare and keep them.
  const char* literal(std::string_view text) { return literals_.emplace(text).first->c_str(); }

  const Table* table_ = nullptr;
  int version_ = 0;
  int mask_ = 0;  // one for the process, as in NCCL
  std::set<std::string, std::less<>> literals_;
};

}  // namespace lockstep::plugin_bench
