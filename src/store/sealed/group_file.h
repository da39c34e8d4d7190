// A file of row groups (docs/formats/span-blocks.md, log-blocks.md): written once, whole, and never changed.
//
// Kind says of what: Group (what the footer has of a row group: rows, and encode_meta(), decode_meta() beside it), kName
// (what names of files begin with), kFormat.
//
// write() leaves the whole file under its name, synced, or nothing. open() reads the footer alone, which is checksummed;
// sections are checked when they are read.
// On error: a file that is torn, foreign or of another version is one clear line.
// Thread rule: Immutable but for its marks (file.h): Thread-safe.
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
#include "store/sealed/file.h"
#include "store/sealed/file_info.h"

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
class GroupFile final : public File {
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
    std::shared_ptr<GroupFile> file(new GroupFile(folder, info));
    file->groups_ = std::move(groups);
    file->has(size, file->groups_);
    return Pointer(std::move(file));
  }
  static Result<Pointer> open(const std::string& folder, const Info& from_name) {
    return read(std::shared_ptr<GroupFile>(new GroupFile(folder, from_name)));
  }
  // The same from bytes, for tests and the fuzzer.
  static Result<Pointer> from_bytes(std::string content) {
    return read(std::shared_ptr<GroupFile>(new GroupFile(std::move(content))));
  }

  const Info& info() const override { return info_; }
  const Group& group(size_t index) const { return groups_[index]; }

 private:
  static constexpr size_t kGroupsMax = 65'536;

  explicit GroupFile(std::string content) : File(Bytes{std::move(content)}) {}
  GroupFile(const std::string& folder, const Info& info) : File(folder + "/" + info.name()), info_(info) {}
  static Result<Pointer> read(std::shared_ptr<GroupFile> file) {
    const std::string plain = LOCKSTEP_TRY(file->read_footer(Kind::kFormat));
    columns::ByteReader in(plain);
    read_info(in, file->info_);
    const uint64_t groups = in.varint();
    if (groups > kGroupsMax) in.fail();
    for (uint64_t i = 0; i < groups && in.ok(); ++i) decode_meta(in, file->groups_.emplace_back());
    if (!in.ok() || !in.at_end()) return file->unreadable("its footer does not make sense");
    file->has(file->bytes(), file->groups_);
    return Pointer(std::move(file));
  }

  Info info_;
  std::vector<Group> groups_;
};

}  // namespace lockstep::sealed
