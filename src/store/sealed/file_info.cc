#include "store/sealed/file_info.h"

#include <optional>

#include "base/text.h"

namespace lockstep::sealed {
namespace {
constexpr std::string_view kEnding = ".blk";
}

std::string file_name(std::string_view kind, const FileInfo& info) {
  return format("%.*s-%llu-%llu-%llu.blk", static_cast<int>(kind.size()), kind.data(),
                static_cast<unsigned long long>(info.number), static_cast<unsigned long long>(info.first_sequence),
                static_cast<unsigned long long>(info.last_sequence));
}

void put_info(std::string& out, const FileInfo& info) {
  columns::put_varint(out, info.number);
  columns::put_varint(out, info.first_sequence);
  columns::put_varint(out, info.last_sequence);
  columns::put_signed(out, info.received_unix_ns.least);
  columns::put_signed(out, info.received_unix_ns.most);
  columns::put_varint(out, info.replaces.size());
  for (uint64_t number : info.replaces) columns::put_varint(out, number);
}

void read_info(columns::ByteReader& in, FileInfo& info) {
  info.number = in.varint();
  info.first_sequence = in.varint();
  info.last_sequence = in.varint();
  info.received_unix_ns.least = in.signed_varint();
  info.received_unix_ns.most = in.signed_varint();
  info.replaces.resize(in.count());
  for (uint64_t& number : info.replaces) number = in.varint();
}

bool parse_file_name(std::string_view kind, std::string_view name, FileInfo& info) {
  if (!name.starts_with(kind) || !name.ends_with(kEnding) || name.size() < kind.size() + 1 + kEnding.size() ||
      name[kind.size()] != '-')
    return false;
  name.remove_prefix(kind.size() + 1);
  name.remove_suffix(kEnding.size());
  const std::vector<std::string_view> parts = split(name, '-');
  if (parts.size() != 3) return false;
  const std::optional<uint64_t> number = parse_uint(parts[0]);
  const std::optional<uint64_t> first = parse_uint(parts[1]);
  const std::optional<uint64_t> last = parse_uint(parts[2]);
  if (!number || !first || !last) return false;
  info.number = *number;
  info.first_sequence = *first;
  info.last_sequence = *last;
  return true;
}

}  // namespace lockstep::sealed
