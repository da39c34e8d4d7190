// Programs of ours that a command starts for itself: on free ports, over a temporary folder, gone when it ends.
//
// Thread rule: Confined.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/process.h"
#include "base/result.h"

namespace lockstep::cli {

// Removed with everything in it at the end.
class TemporaryFolder {
 public:
  // In $TMPDIR or /tmp; name: what it begins with.
  static Result<TemporaryFolder> make(const std::string& name);
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TemporaryFolder(const TemporaryFolder&) = delete;
  ~TemporaryFolder();
  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// A daemon of ours and what its ready line said.
struct Daemon {
  ChildProcess process;
  std::map<std::string, std::string, std::less<>> receivers;
};

// Starts the program that lies beside this one and waits until its receivers are open. Its log is FOLDER/PROGRAM.log,
// the recorder folder FOLDER/recorder.
Result<Daemon> start_daemon(const std::string& program, std::vector<std::string> arguments, const std::string& folder);

std::string last_log_line(const std::string& path);

}  // namespace lockstep::cli
