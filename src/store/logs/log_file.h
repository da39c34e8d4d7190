// A file of row groups of log records (docs/formats/log-blocks.md): written once, whole, and never changed.
//
// write() leaves the whole file under its name, synced, or nothing. open() reads the footer alone, which is checksummed;
// sections are checked when they are read.
// On error: a file that is torn, foreign or of another version is one clear line.
// Thread rule: Immutable but for its marks (file_marks.h): Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "store/logs/log_columns.h"
#include "store/sealed/file_info.h"
#include "store/sealed/file_marks.h"

namespace lockstep::logs {

struct LogFileInfo : sealed::FileInfo {
  std::string name() const { return sealed::file_name("logs", *this); }
  static std::optional<LogFileInfo> from_name(std::string_view name);
};

class LogFile : public sealed::FileMarks {
 public:
  // `groups` were written into `content` by write_group(), which began with start_content().
  static std::string start_content();
  static Result<std::shared_ptr<const LogFile>> write(const std::string& folder, const LogFileInfo& info,
                                                      std::vector<GroupMeta> groups, std::string content);
  static Result<std::shared_ptr<const LogFile>> open(const std::string& folder, const LogFileInfo& from_name);
  // The same from bytes, for tests and the fuzzer.
  static Result<std::shared_ptr<const LogFile>> from_bytes(std::string content);

  const LogFileInfo& info() const { return info_; }
  const std::string& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }
  size_t groups() const { return groups_.size(); }
  const GroupMeta& group(size_t index) const { return groups_[index]; }
  uint64_t rows() const { return rows_of(groups_); }
  uint64_t readable_rows() const { return readable_rows_of(groups_); }
  std::unique_ptr<columns::SectionSource> source() const;

 private:
  LogFile() = default;
  static Result<std::shared_ptr<const LogFile>> read_footer(std::shared_ptr<LogFile> file, uint64_t size,
                                                            const columns::SectionSource& bytes);

  LogFileInfo info_;
  std::string path_;
  std::string content_;  // of from_bytes()
  uint64_t bytes_ = 0;
  std::vector<GroupMeta> groups_;
};

}  // namespace lockstep::logs
