// A file of row groups (docs/formats/span-blocks.md): written once, whole, and never changed.
//
// write() leaves the whole file under its name, synced, or nothing. open() reads the footer alone, which is
// checksummed; sections are checked when they are read.
// On error: a file that is torn, foreign or of another version is one clear line.
// Thread rule: Immutable but for its row groups' `corrupt` marks, which any thread may set: Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "store/spans/row_group.h"

namespace lockstep::spans {

// What is in a file, besides its rows. Its name says number and sequences too, so that they are known even of a file
// that cannot be read.
struct SpanFileInfo {
  uint64_t number = 0;  // rising; no two files have the same
  // Records of the durable log whose spans are all in here or in older files; 0: not from a log.
  uint64_t first_sequence = 0;
  uint64_t last_sequence = 0;
  Range<int64_t> received_unix_ns;
  std::vector<uint64_t> replaces;  // files that were put together into this one

  std::string name() const;
  static std::optional<SpanFileInfo> from_name(std::string_view name);
};

class SpanFile {
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
  uint64_t rows() const;
  uint64_t readable_rows() const;  // without those of corrupt row groups

  // Something to read sections from, good for a few reads in a row; where the file has been removed, reading fails.
  std::unique_ptr<SectionSource> source() const;

  // A row group that turned out unreadable. true: this call marked it.
  bool spoil(size_t index) const { return !corrupt_[index].exchange(true); }
  bool is_corrupt(size_t index) const { return corrupt_[index]; }
  void mark_removed() const { removed_ = true; }
  bool is_removed() const { return removed_; }

 private:
  SpanFile() = default;
  static Result<std::shared_ptr<const SpanFile>> read_footer(std::shared_ptr<SpanFile> file, uint64_t size,
                                                             const SectionSource& bytes);

  SpanFileInfo info_;
  std::string path_;
  std::string content_;  // of from_bytes()
  uint64_t bytes_ = 0;
  std::vector<RowGroupMeta> groups_;
  std::unique_ptr<std::atomic<bool>[]> corrupt_;
  mutable std::atomic<bool> removed_{false};
};

}  // namespace lockstep::spans
