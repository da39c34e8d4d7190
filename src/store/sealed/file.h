// A sealed file as its store has it: where it is, how many rows, and what may become of it while it is read, though its
// bytes never change: a row group turns out unreadable, or the file leaves its folder. Who has it then reads on: its
// descriptor is kept as long as anybody has the file.
//
// Thread rule: Immutable but for its marks (corrupt, removed): Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "store/columns/sealed_file.h"
#include "store/sealed/file_info.h"

namespace lockstep::sealed {

class File {
 public:
  virtual ~File() = default;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  virtual const FileInfo& info() const = 0;
  const std::string& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }
  size_t groups() const { return rows_.size(); }
  uint32_t rows_in(size_t group) const { return rows_[group]; }
  uint64_t rows() const;
  uint64_t readable_rows() const;  // without those of corrupt row groups

  // Its bytes, removed or not; good for a few reads in a row.
  std::unique_ptr<columns::SectionSource> source() const;
  // A row group that turned out unreadable. true: this call marked it.
  bool spoil(size_t group) const { return !corrupt_[group].exchange(true); }
  bool is_corrupt(size_t group) const { return corrupt_[group]; }
  // From its folder. Once, by whoever has taken it out of the list of files.
  void remove() const;

 protected:
  struct Bytes {  // that are no file, for tests and fuzzers
    std::string content;
  };
  explicit File(std::string path) : path_(std::move(path)) {}
  explicit File(Bytes bytes) : content_(std::move(bytes.content)), bytes_(content_.size()) {}

  // Of what is there already.
  Result<std::string> read_footer(const columns::SealedFormat& format);
  Error unreadable(const std::string& problem) const;
  // Groups have `rows`. Once they are all there.
  template <typename Groups>
  void has(uint64_t bytes, const Groups& groups) {
    bytes_ = bytes;
    for (const auto& group : groups) rows_.push_back(group.rows);
    corrupt_ = std::make_unique<std::atomic<bool>[]>(groups.size());
  }

 private:
  const std::string path_;  // empty: it is `content_`
  const std::string content_;
  uint64_t bytes_ = 0;
  std::vector<uint32_t> rows_;
  std::unique_ptr<std::atomic<bool>[]> corrupt_;
  mutable UniqueFd kept_;  // set once, before is_kept_
  mutable std::atomic<bool> is_kept_{false};
};

using FilePointer = std::shared_ptr<const File>;
using Files = std::vector<FilePointer>;

}  // namespace lockstep::sealed
