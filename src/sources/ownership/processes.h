// What is known of each process from /proc, read once in its life: a pid and its start time name a process, so that a
// reused pid is a new one.
//
// Without permission (another user's environment needs CAP_SYS_PTRACE) the rest is known all the same.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "sources/ownership/process_text.h"

namespace lockstep {

struct ProcessFacts {
  int32_t pid = -1;
  uint64_t start_ticks = 0;
  std::string name;
  std::string user;        // its name, else its number
  int64_t owner_uid = -1;  // whose it is in every respect; -1: it runs, or has run, with another's rights
  int32_t inner_pid = -1;
  bool cgroup_read = false;
  CgroupFacts cgroup;
  bool environment_read = false;
  bool environment_denied = false;
  Environment environment;

  // "" where it is not set.
  const std::string& variable(std::string_view variable_name) const;
};

class Processes {
 public:
  Processes(std::string root, bool read_environment) : root_(std::move(root)), read_environment_(read_environment) {}

  // Before the processes of a look are asked for. again: what may have come late is read once more: the cgroup of those
  // that no scheduler had placed (they may be adopted into a job), an environment that could not be read.
  void begin_look(bool again);
  // nullptr: there is none, or it has ended. Good until end_look().
  const ProcessFacts* find(int32_t pid);
  // Forgets those that were not asked for.
  void end_look();

  size_t known() const { return known_.size(); }

 private:
  struct Known {
    ProcessFacts facts;
    uint64_t look = 0;  // the last one that asked for it
  };
  bool read(int32_t pid, uint64_t start_ticks, ProcessFacts& facts);
  void read_cgroup(ProcessFacts& facts);
  void read_environment(ProcessFacts& facts);
  std::string user_name(int64_t uid);

  const std::string root_;
  const bool read_environment_;
  std::map<int32_t, Known> known_;
  uint64_t look_ = 0;
  bool again_ = false;
  std::map<int64_t, std::string> users_;
  uint64_t users_read_at_look_ = 0;
};

}  // namespace lockstep
