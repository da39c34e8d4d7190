#include "store/sealed/file.h"

#include <utility>

#include "base/disk.h"

namespace lockstep::sealed {

uint64_t File::rows() const {
  uint64_t rows = 0;
  for (uint32_t of_group : rows_) rows += of_group;
  return rows;
}

uint64_t File::readable_rows() const {
  uint64_t rows = 0;
  for (size_t group = 0; group < rows_.size(); ++group) rows += is_corrupt(group) ? 0 : rows_[group];
  return rows;
}

std::unique_ptr<columns::SectionSource> File::source() const {
  if (path_.empty()) return columns::bytes_source(content_);
  UniqueFd fd(disk::open(path_, disk::Open::kRead));
  return columns::disk_source(path_, bytes_, fd.valid() || !is_kept_ ? std::move(fd) : kept_.duplicate());
}

void File::remove() const {
  kept_ = UniqueFd(disk::open(path_, disk::Open::kRead));
  is_kept_ = kept_.valid();
  disk::unlink(path_);
}

Result<std::string> File::read_footer(const columns::SealedFormat& format) {
  if (!path_.empty()) bytes_ = LOCKSTEP_TRY(columns::file_size(path_));
  Result<std::string> footer = columns::read_footer(format, bytes_, *source());
  if (!footer.ok()) return unreadable(footer.error());
  return footer;
}

Error File::unreadable(const std::string& problem) const {
  return Error{path_.empty() ? problem : path_ + ": " + problem};
}

}  // namespace lockstep::sealed
