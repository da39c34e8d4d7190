// Objects as files of a folder (docs/formats/backup.md). Nothing but the owner may read them.
//
// Thread rule: Confined. One process at a time writes (a lock of the folder).
#pragma once

#include <memory>
#include <string>

#include "backup/objects.h"

namespace lockstep::backup {

// kRead: kNotFound where it holds no backup. kWrite: the folder is made, or is empty, or holds backups.
Result<std::unique_ptr<Objects>> open_folder(const std::string& folder, Access access);

}  // namespace lockstep::backup
