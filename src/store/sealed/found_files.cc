#include "store/sealed/found_files.h"

#include "base/files.h"
#include "base/log.h"
#include "store/columns/sealed_file.h"

namespace lockstep::sealed {

Result<std::vector<std::string>> names_found(const Folder& folder,
                                             const std::function<bool(std::string_view)>& is_ours) {
  std::vector<std::string> names = LOCKSTEP_TRY(list_directory(folder.path));
  LOCKSTEP_TRY(sync_directory(folder.path));
  std::vector<std::string> found;
  for (const std::string& name : names) {
    const std::string path = folder.path + "/" + name;
    if (name.ends_with(".part")) {
      disk::unlink(path);
      continue;
    }
    if (!is_ours(name)) {
      if (name.ends_with(folder.reported_end))
        LOCKSTEP_LOG_WARN(folder.store, "%s: not a name of ours; left alone", path.c_str());
      continue;
    }
    LOCKSTEP_TRY(columns::check_sealed_version(folder.format, path));
    found.push_back(name);
  }
  return found;
}

}  // namespace lockstep::sealed
