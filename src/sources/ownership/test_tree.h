// A small machine in a temporary folder: processes with their files under /proc, for tests.
//
// Thread rule: Confined.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/text.h"
#include "testing/temporary_folder.h"

namespace lockstep::testing {

struct TestProcess {
  int32_t pid = 0;
  uint64_t start_ticks = 1000;
  int64_t uid = 1000;
  std::string cgroup = "0::/user.slice\n";
  std::string environment;  // "A=1;B=2"
  std::string name = "python3";
  int32_t inner_pid = 0;  // 0: same
};

class TestTree {
 public:
  TestTree() {
    write("/etc/passwd", "root:x:0:0::/root:/bin/sh\nanna:x:1000:100::/home/anna:/bin/sh\nbob:x:1001:100::/:/bin/sh\n");
  }

  const std::string& root() const { return root_.path(); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_.path() + path).parent_path());
    std::ofstream(root_.path() + path, std::ios::binary | std::ios::trunc) << text;
  }
  void remove(const std::string& path) { std::filesystem::remove_all(root_.path() + path); }

  void start(const TestProcess& process) {
    const std::string folder = format("/proc/%d", process.pid);
    std::string stat = format("%d (a) b) S 1", process.pid);
    for (int field = 5; field < 22; ++field) stat += " 0";
    write(folder + "/stat", stat + format(" %llu 0\n", static_cast<unsigned long long>(process.start_ticks)));
    write(folder + "/status", format("Name:\t%s\nUid:\t%lld\t%lld\t%lld\t%lld\nNSpid:\t%d\t%d\n", process.name.c_str(),
                                     static_cast<long long>(process.uid), static_cast<long long>(process.uid),
                                     static_cast<long long>(process.uid), static_cast<long long>(process.uid),
                                     process.pid, process.inner_pid > 0 ? process.inner_pid : process.pid));
    write(folder + "/cgroup", process.cgroup);
    std::string environment = process.environment.empty() ? "" : process.environment + ";";
    for (char& c : environment) c = c == ';' ? '\0' : c;
    write(folder + "/environ", environment);
  }
  void end(int32_t pid) { remove(format("/proc/%d", pid)); }

 private:
  testing::TemporaryFolder root_;
};

}  // namespace lockstep::testing
