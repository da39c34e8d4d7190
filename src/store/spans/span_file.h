// A file of row groups (docs/formats/span-blocks.md): written once, whole, and never changed.
//
// write() leaves the whole file under its name, synced, or nothing. open() reads the footer alone, which is
// checksummed; sections are checked when they are read.
// On error: a file that is torn, foreign or of another version is one clear line.
// Thread rule: Immutable but for its marks (file_marks.h): Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "store/sealed/file_info.h"
#include "store/sealed/file_marks.h"
#include "store/spans/row_group.h"

namespace lockstep::spans {

// What is in a file, besides its rows. The spans of its records of the log are all in here or in older files.
struct SpanFileInfo : sealed::FileInfo {
  std::string name() const { return sealed::file_name("spans", *this); }
  static std::optional<SpanFileInfo> from_name(std::string_view name);
};

class SpanFile : public sealed::FileMarks {
 public:
  // `groups` were written into `content` by write_row_group(), which began with start_content().
  static std::string start_content();
  static Result<std::shared_ptr<const SpanFile>> write(const std::string& folder, const SpanFileInfo& info,
                                                       std::vector<RowGroupMeta> groups, std::string content);
  static Result<std::shared_ptr<const SpanFile>> open(const std::string& folder, const SpanFileInfo& from_name);
  // The same from bytes, for tests and the fuzzer.
  static Result<std::shared_ptr<const SpanFile>> from_bytes(std::string content);

  const SpanFileInfo& info() const { return info_; }
  const std::string& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }
  size_t groups() const { return groups_.size(); }
  const RowGroupMeta& group(size_t index) const { return groups_[index]; }
  uint64_t rows() const { return rows_of(groups_); }
  uint64_t readable_rows() const { return readable_rows_of(groups_); }

  // Something to read sections from, good for a few reads in a row.
  std::unique_ptr<SectionSource> source() const;

 private:
  SpanFile() = default;
  static Result<std::shared_ptr<const SpanFile>> read_footer(std::shared_ptr<SpanFile> file, uint64_t size,
                                                             const SectionSource& bytes);

  SpanFileInfo info_;
  std::string path_;
  std::string content_;  // of from_bytes()
  uint64_t bytes_ = 0;
  std::vector<RowGroupMeta> groups_;
};

}  // namespace lockstep::spans
