#include "store/logs/log_file.h"

#include "base/text.h"
#include "store/columns/byte_codec.h"

namespace lockstep::logs {

using columns::put_signed;
using columns::put_varint;

namespace {

constexpr columns::SealedFormat kFormat = columns::sealed_format(formats::kLogFile, "LSLE");
constexpr size_t kGroupsMax = 65'536;

std::string encode_footer(const LogFileInfo& info, const std::vector<GroupMeta>& groups) {
  std::string out;
  put_varint(out, info.number);
  put_varint(out, info.first_sequence);
  put_varint(out, info.last_sequence);
  put_signed(out, info.received_unix_ns.least);
  put_signed(out, info.received_unix_ns.most);
  put_varint(out, info.replaces.size());
  for (uint64_t number : info.replaces) put_varint(out, number);
  put_varint(out, groups.size());
  for (const GroupMeta& group : groups) encode_meta(out, group);
  return out;
}

}  // namespace

std::optional<LogFileInfo> LogFileInfo::from_name(std::string_view name) {
  LogFileInfo info;
  if (!sealed::parse_file_name("logs", name, info)) return std::nullopt;
  return info;
}

std::string LogFile::start_content() {
  return columns::start_content(kFormat);
}

Result<std::shared_ptr<const LogFile>> LogFile::write(const std::string& folder, const LogFileInfo& info,
                                                      std::vector<GroupMeta> groups, std::string content) {
  uint64_t size = LOCKSTEP_TRY(
      columns::write_sealed(kFormat, folder, info.name(), std::move(content), encode_footer(info, groups)));
  std::shared_ptr<LogFile> file(new LogFile());
  file->info_ = info;
  file->path_ = folder + "/" + info.name();
  file->bytes_ = size;
  file->groups_ = std::move(groups);
  file->mark_none(file->groups_.size());
  return std::shared_ptr<const LogFile>(std::move(file));
}

Result<std::shared_ptr<const LogFile>> LogFile::open(const std::string& folder, const LogFileInfo& from_name) {
  std::shared_ptr<LogFile> file(new LogFile());
  file->info_ = from_name;
  file->path_ = folder + "/" + from_name.name();
  uint64_t size = LOCKSTEP_TRY(columns::file_size(file->path_));
  std::unique_ptr<columns::SectionSource> source = columns::disk_source(file->path_, size);
  const std::string path = file->path_;
  Result<std::shared_ptr<const LogFile>> read = read_footer(std::move(file), size, *source);
  if (!read.ok()) return Error{path + ": " + read.error()};
  return read;
}

Result<std::shared_ptr<const LogFile>> LogFile::from_bytes(std::string content) {
  std::shared_ptr<LogFile> file(new LogFile());
  file->content_ = std::move(content);
  std::unique_ptr<columns::SectionSource> source = columns::bytes_source(file->content_);
  const uint64_t size = file->content_.size();
  return read_footer(std::move(file), size, *source);
}

Result<std::shared_ptr<const LogFile>> LogFile::read_footer(std::shared_ptr<LogFile> file, uint64_t size,
                                                            const columns::SectionSource& source) {
  std::string plain = LOCKSTEP_TRY(columns::read_footer(kFormat, size, source));
  columns::ByteReader in(plain);
  LogFileInfo& info = file->info_;
  info.number = in.varint();
  info.first_sequence = in.varint();
  info.last_sequence = in.varint();
  info.received_unix_ns.least = in.signed_varint();
  info.received_unix_ns.most = in.signed_varint();
  info.replaces.resize(in.count());
  for (uint64_t& number : info.replaces) number = in.varint();
  const uint64_t groups = in.varint();
  if (groups > kGroupsMax) in.fail();
  for (uint64_t i = 0; i < groups && in.ok(); ++i) decode_meta(in, file->groups_.emplace_back());
  if (!in.ok() || !in.at_end()) return Error{"its footer does not make sense"};
  file->bytes_ = size;
  file->mark_none(file->groups_.size());
  return std::shared_ptr<const LogFile>(std::move(file));
}

std::unique_ptr<columns::SectionSource> LogFile::source() const {
  if (path_.empty()) return columns::bytes_source(content_);
  return columns::disk_source(path_, bytes_, FileMarks::open(path_));
}

}  // namespace lockstep::logs
