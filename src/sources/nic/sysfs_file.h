// Small kernel files that are read again and again: kept open within a budget, so that a reading is one system call.
//
// An open file of sysfs does not hold a driver back: after the device has gone it answers ENODEV, and is opened anew.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/files.h"

namespace lockstep {

// How many descriptors may stay open. Beyond it, a file is opened for each reading.
class FileBudget {
 public:
  explicit FileBudget(int most) : left_(most) {}
  // A quarter of what the process may open, at most 2048.
  static int from_process_limit();
  bool take() { return left_ > 0 && left_-- > 0; }
  void give_back() { ++left_; }

 private:
  int left_;
};

struct FileText {
  std::string_view text;  // without white space around; valid until the next reading with the same buffer
  int error = 0;          // errno; 0: read
  bool reopened = false;  // the file that was open had gone: another one, by the same name, was read
  bool ok() const { return error == 0; }
};

class SysfsFile {
 public:
  SysfsFile() = default;
  SysfsFile(std::string path, FileBudget* budget) : path_(std::move(path)), budget_(budget) {}
  SysfsFile(SysfsFile&& other) noexcept;
  SysfsFile& operator=(SysfsFile&& other) noexcept;
  ~SysfsFile() { close(); }

  const std::string& path() const { return path_; }
  FileText read();

 private:
  void close();

  std::string path_;
  FileBudget* budget_ = nullptr;
  UniqueFd fd_;
};

// One reading of a file that is not kept.
FileText read_small_file(const std::string& path);

}  // namespace lockstep
