// What a store of sealed files finds in its folder at the start: the files to open, after a crash at any point.
//  - A name with ".part" is of a file that was not finished: removed. What it was made of is still there, in older
//    files or in a log.
//  - A file whose info says `replaces` was made of those, and a crash came before they were removed: drop_replaced().
// On error: a whole file of another format version, which this program may not touch. What cannot be read is for the
//   caller to keep out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/disk.h"
#include "base/format_versions.h"
#include "base/result.h"

namespace lockstep::sealed {

struct Folder {
  std::string path;
  const formats::Format& format;
  const char* store;                       // in lines of the log
  std::string_view reported_end = ".blk";  // names that end so and are not ours are reported
};

// Names that are_ours, in their order. Their being there, and others' not, is synced: what is concluded from a name
// holds after the next crash too only if the name does.
Result<std::vector<std::string>> names_found(const Folder& folder,
                                             const std::function<bool(std::string_view)>& is_ours);

template <typename Info>
struct Found {
  std::vector<std::pair<std::string, Info>> files;  // name and what it says
  uint64_t next_number = 1;
};
template <typename Info>
Result<Found<Info>> find_files(const Folder& folder) {
  Found<Info> found;
  LOCKSTEP_TRY(names_found(folder, [&](std::string_view name) {
    auto info = Info::from_name(name);
    if (!info) return false;
    found.next_number = std::max(found.next_number, info->number + 1);
    found.files.emplace_back(name, std::move(*info));
    return true;
  }));
  return found;
}

// Files is a list of pointers to files.
template <typename Files>
void drop_replaced(Files& files, const std::set<uint64_t>& replaced) {
  std::erase_if(files, [&](const auto& file) {
    if (!replaced.contains(file->info().number)) return false;
    disk::unlink(file->path());
    return true;
  });
}
template <typename Files>
void drop_replaced(Files& files) {
  std::set<uint64_t> replaced;
  for (const auto& file : files) replaced.insert(file->info().replaces.begin(), file->info().replaces.end());
  drop_replaced(files, replaced);
}

}  // namespace lockstep::sealed
