#include "store/sealed/part_file.h"

#include <cerrno>
#include <cstring>

#include "base/disk.h"

namespace lockstep::sealed {

PartFile::PartFile(const std::string& folder, const std::string& name)
    : path_(folder + "/" + name), file_(disk::open(part_path(), disk::Open::kReplace)), open_error_(errno) {}

PartFile::~PartFile() {
  if (file_.valid() && !renamed_) disk::unlink(part_path());
}

Result<void> PartFile::opened() const {
  if (!file_.valid()) return Error{std::strerror(open_error_)};
  return {};
}

Result<void> PartFile::write(std::string_view bytes) {
  return write_all(file_.get(), bytes);
}

Result<void> PartFile::sync() {
  if (disk::sync(file_.get()) != 0) return Error{std::strerror(errno)};
  return {};
}

Result<void> PartFile::rename() {
  if (disk::rename(part_path(), path_) != 0) return Error{std::strerror(errno)};
  renamed_ = true;
  return {};
}

}  // namespace lockstep::sealed
