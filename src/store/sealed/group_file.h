// A file of row groups (docs/formats/span-blocks.md, log-blocks.md): written once, whole, and never changed.
//
// Kind says of what: Group (what the footer has of a row group: rows, and encode_meta(), decode_meta() beside it), kName
// (what names of files begin with), kFormat.
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
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "store/columns/byte_codec.h"
#include "store/columns/sealed_file.h"
#include "store/sealed/file_info.h"
#include "store/sealed/file_marks.h"

namespace lockstep::sealed {

template <typename Kind>
struct GroupFileInfo : FileInfo {
  std::string name() const { return file_name(Kind::kName, *this); }
  static std::optional<GroupFileInfo> from_name(std::string_view name) {
    GroupFileInfo info;
    return parse_file_name(Kind::kName, name, info) ? std::optional(info) : std::nullopt;
  }
};

template <typename Kind>
class GroupFile : public FileMarks {
 public:
  using Group = typename Kind::Group;
  using Info = GroupFileInfo<Kind>;
  using Pointer = std::shared_ptr<const GroupFile>;

  // What a file begins with; then row groups.
  static std::string start_content() { return columns::start_content(Kind::kFormat); }
  static Result<Pointer> write(const std::string& folder, const Info& info, std::vector<Group> groups,
                               std::string content) {
    std::string footer;
    put_info(footer, info);
    columns::put_varint(footer, groups.size());
    for (const Group& group : groups) encode_meta(footer, group);
    const uint64_t size =
        LOCKSTEP_TRY(columns::write_sealed(Kind::kFormat, folder, info.name(), std::move(content), footer));
    std::shared_ptr<GroupFile> file(new GroupFile(info, folder));
    file->groups_ = std::move(groups);
    file->finish(size);
    return Pointer(std::move(file));
  }
  static Result<Pointer> open(const std::string& folder, const Info& from_name) {
    std::shared_ptr<GroupFile> file(new GroupFile(from_name, folder));
    const uint64_t size = LOCKSTEP_TRY(columns::file_size(file->path_));
    Result<Pointer> read = read_footer(file, size, *columns::disk_source(file->path_, size));
    if (!read.ok()) return Error{file->path_ + ": " + read.error()};
    return read;
  }
  // The same from bytes, for tests and the fuzzer.
  static Result<Pointer> from_bytes(std::string content) {
    std::shared_ptr<GroupFile> file(new GroupFile());
    file->content_ = std::move(content);
    return read_footer(file, file->content_.size(), *columns::bytes_source(file->content_));
  }

  const Info& info() const { return info_; }
  const std::string& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }
  size_t groups() const { return groups_.size(); }
  const Group& group(size_t index) const { return groups_[index]; }
  uint64_t rows() const { return rows_of(groups_); }
  uint64_t readable_rows() const { return readable_rows_of(groups_); }

  // Something to read sections from, good for a few reads in a row.
  std::unique_ptr<columns::SectionSource> source() const {
    if (path_.empty()) return columns::bytes_source(content_);
    return columns::disk_source(path_, bytes_, FileMarks::open(path_));
  }

 private:
  static constexpr size_t kGroupsMax = 65'536;

  GroupFile() = default;
  GroupFile(const Info& info, const std::string& folder) : info_(info), path_(folder + "/" + info.name()) {}
  static Result<Pointer> read_footer(const std::shared_ptr<GroupFile>& file, uint64_t size,
                                     const columns::SectionSource& bytes) {
    const std::string plain = LOCKSTEP_TRY(columns::read_footer(Kind::kFormat, size, bytes));
    columns::ByteReader in(plain);
    read_info(in, file->info_);
    const uint64_t groups = in.varint();
    if (groups > kGroupsMax) in.fail();
    for (uint64_t i = 0; i < groups && in.ok(); ++i) decode_meta(in, file->groups_.emplace_back());
    if (!in.ok() || !in.at_end()) return Error{"its footer does not make sense"};
    file->finish(size);
    return Pointer(file);
  }
  void finish(uint64_t size) {
    bytes_ = size;
    mark_none(groups_.size());
  }

  Info info_;
  std::string path_;
  std::string content_;  // of from_bytes()
  uint64_t bytes_ = 0;
  std::vector<Group> groups_;
};

}  // namespace lockstep::sealed
