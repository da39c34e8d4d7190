// For tests of this folder: a small tree of files that stands for a machine, and its readings by name.
#pragma once

#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "base/text.h"
#include "sources/host/host_source.h"
#include "testing/temporary_folder.h"

namespace lockstep::host {

class TestTree {
 public:
  const std::string& root() const { return root_.path(); }

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_.path() + path).parent_path());
    std::ofstream(root_.path() + path, std::ios::trunc) << text;
  }
  void remove(const std::string& path) { std::filesystem::remove_all(root_.path() + path); }

  // A thread as /proc shows it.
  void thread(int pid, int tid, const std::string& comm, uint64_t start, uint64_t run_ns, uint64_t wait_ns,
              uint64_t switches = 0, char state = 'S', int parent = 1, const std::string& cpus = "0-3") {
    std::string stat =
        format("%d (%s) %c %d 1 1 0 -1 4194304 0 0 0 0 1 1 0 0 20 0 1 0 %llu 1000 10 1 1 1 0 0 0 0 0 0 0 0 0 0 17 2 0",
               tid, comm.c_str(), state, parent, static_cast<unsigned long long>(start));
    std::string folder = format("/proc/%d/task/%d", pid, tid);
    write(folder + "/stat", stat);
    write(folder + "/schedstat",
          format("%llu %llu 7\n", static_cast<unsigned long long>(run_ns), static_cast<unsigned long long>(wait_ns)));
    write(folder + "/status", format("Name:\t%s\nState:\tS (sleeping)\nCpus_allowed_list:\t%s\n"
                                     "voluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t%llu\n",
                                     comm.c_str(), cpus.c_str(), static_cast<unsigned long long>(switches)));
    if (pid == tid) write(format("/proc/%d/stat", pid), stat);
  }

 private:
  testing::TemporaryFolder root_;
};

// The value of a metric with these labels ("a=1,b=2", in the order of the source); nullopt: not read.
inline std::optional<double> value_of(const NodeReadings& out, const std::string& name,
                                      const std::string& wanted = "") {
  std::optional<double> value;
  for (const Reading& reading : out.readings) {
    std::string text;
    for (auto& [key, label] : *reading.labels) text += (text.empty() ? "" : ",") + key + "=" + label;
    if (reading.metric->name == name && text == wanted) value = reading.value;
  }
  return value;
}

}  // namespace lockstep::host
