// Makes small exports of Nsight Systems in memory, for tests: times in nanoseconds since the recording began.
//
// Thread rule: Confined.
#pragma once

#include <sqlite3.h>

#include <cstdlib>
#include <string>

#include "base/text.h"

namespace lockstep::profile::testing {

class NsysExport {
 public:
  NsysExport() {
    if (sqlite3_open(":memory:", &database_) != SQLITE_OK) std::abort();
    run("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);"
        "CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);"
        "INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000, '', '');"
        "CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, name TEXT, value TEXT);"
        "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (0, 'Hostname', 'gpu-017');"
        "CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, totalMemory INTEGER, smCount INTEGER);"
        "INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H200', 150000000000, 132);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,"
        " streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER,"
        " registersPerThread INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER,"
        " blockZ INTEGER, staticSharedMemory INTEGER, dynamicSharedMemory INTEGER);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,"
        " correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER,"
        " correlationId INTEGER, nameId INTEGER);"
        "CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER, text TEXT,"
        " globalTid INTEGER, textId INTEGER);");
  }
  ~NsysExport() { sqlite3_close(database_); }
  NsysExport(const NsysExport&) = delete;
  NsysExport& operator=(const NsysExport&) = delete;

  void run(const std::string& sql) {
    if (sqlite3_exec(database_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) std::abort();
  }
  static long long process(int pid) { return static_cast<long long>(pid) << 24; }
  int text(const std::string& value) {
    run(format("INSERT INTO StringIds VALUES (%d, '%s')", ++texts_, value.c_str()));
    return texts_;
  }
  // A kernel and the call that started it.
  void kernel(int pid, const std::string& name, long long launch_ns, long long start_ns, long long end_ns,
              int device = 0, int stream = 7) {
    const int correlation = ++correlations_;
    run(
        format("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (%lld, %lld, %d, 1, %d, %d, %lld, %d, 0, 32, 4, 2, 1,"
               " 128, 1, 1, 1024, 512)",
               start_ns, end_ns, device, stream, correlation, process(pid), text(name)));
    run(format("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (%lld, %lld, %lld, %d, %d)", launch_ns,
               launch_ns + 2'000, process(pid) + pid, correlation, text("cudaLaunchKernel_v7000")));
  }
  void copy(int pid, int kind, long long bytes, long long start_ns, long long end_ns) {
    run(format("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (%lld, %lld, 0, 7, %d, %lld, %lld, %d)", start_ns, end_ns,
               ++correlations_, process(pid), bytes, kind));
  }
  void range(int pid, const std::string& name, long long start_ns, long long end_ns) {
    run(format("INSERT INTO NVTX_EVENTS VALUES (%lld, %lld, 59, '%s', %lld, NULL)", start_ns, end_ns, name.c_str(),
               process(pid) + pid));
  }
  std::string bytes() {
    sqlite3_int64 size = 0;
    unsigned char* const at = sqlite3_serialize(database_, "main", &size, 0);
    std::string out(reinterpret_cast<const char*>(at), static_cast<size_t>(size));
    sqlite3_free(at);
    return out;
  }

 private:
  sqlite3* database_ = nullptr;
  int texts_ = 0;
  int correlations_ = 0;
};

}  // namespace lockstep::profile::testing
