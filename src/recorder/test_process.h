// For tests of code that lives once per process: each case runs in a child of its own, in a folder of its own.
//
// Thread rule: Confined; no threads may be running when a child is made.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "recorder/reader.h"
#include "testing/temporary_folder.h"

namespace lockstep::testing {

class RecorderFolder {
 public:
  RecorderFolder() {
    ::setenv("LOCKSTEP_RECORDER_DIR", path().c_str(), 1);
    ::setenv("LOCKSTEP_RECORDER_LANES", "4", 1);
    ::setenv("LOCKSTEP_RECORDER_LANE_RECORDS", "1024", 1);
  }
  ~RecorderFolder() {
    for (const char* name : {"LOCKSTEP_RECORDER_DIR", "LOCKSTEP_RECORDER_LANES", "LOCKSTEP_RECORDER_LANE_RECORDS"}) {
      ::unsetenv(name);
    }
  }
  const std::string& path() const { return folder_.path(); }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path())) names.push_back(entry.path());
    return names;
  }
  // The only file there is, opened; null (and a failed test) otherwise.
  std::unique_ptr<RecorderReader> reader() const {
    const auto names = files();
    EXPECT_EQ(names.size(), 1u);
    if (names.size() != 1) return nullptr;
    auto reader = RecorderReader::open(names[0]);
    EXPECT_TRUE(reader.ok()) << reader.error();
    return reader.ok() ? std::move(*reader) : nullptr;
  }

 private:
  TemporaryFolder folder_;
};

inline std::vector<Record> drain_all(RecorderReader& reader, RecorderReader::Drained* counts = nullptr) {
  std::vector<Record> records;
  const auto drained = reader.drain([&](uint32_t, const Record& record) { records.push_back(record); });
  if (counts != nullptr) *counts = drained;
  return records;
}

// In a child: a failed check says where and ends the child with 1.
#define CHILD_CHECK(condition)                                                     \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
      ::_exit(1);                                                                  \
    }                                                                              \
  } while (false)

template <typename Body>
void in_child(Body body) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    body();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "child ended with wait status " << status;
}

}  // namespace lockstep::testing
