// A file of row groups of log records (docs/formats/log-blocks.md).
#pragma once

#include "store/logs/log_columns.h"
#include "store/sealed/group_file.h"

namespace lockstep::logs {

// Groups are written by write_group().
struct LogFileKind {
  using Group = GroupMeta;
  static constexpr const char* kName = "logs";
  static constexpr columns::SealedFormat kFormat = columns::sealed_format(formats::kLogFile, "LSLE");
};
using LogFile = sealed::GroupFile<LogFileKind>;
using LogFileInfo = LogFile::Info;

}  // namespace lockstep::logs
