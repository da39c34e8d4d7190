// A file of row groups of spans (docs/formats/span-blocks.md).
#pragma once

#include "store/sealed/group_file.h"
#include "store/spans/row_group.h"

namespace lockstep::spans {

// Groups are written by write_row_group(). The spans of a file's records of the log are all in it or in older files.
struct SpanFileKind {
  using Group = RowGroupMeta;
  static constexpr const char* kName = "spans";
  static constexpr columns::SealedFormat kFormat = columns::sealed_format(formats::kSpanFile, "LSSE");
};
using SpanFile = sealed::GroupFile<SpanFileKind>;
using SpanFileInfo = SpanFile::Info;

}  // namespace lockstep::spans
