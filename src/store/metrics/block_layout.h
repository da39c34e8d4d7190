// What writer and reader of a block agree on, beside docs/formats/metric-blocks.md: for block.cc and block_writer.cc
// alone.
#pragma once

#include <cstddef>

#include "store/columns/sealed_file.h"

namespace lockstep::metrics::block_layout {

inline constexpr columns::SealedFormat kFormat = columns::sealed_format(formats::kMetricBlock, "MBLE");
inline constexpr size_t kStride = 16;  // series or chunks between two places that are told

enum Section : size_t { kSymbols, kNames, kLabels, kGroups, kHistograms, kExemplars, kSections };

inline unsigned bits_for(size_t values) {  // to number so many
  unsigned bits = 0;
  while ((size_t{1} << bits) < values) ++bits;
  return bits;
}

}  // namespace lockstep::metrics::block_layout
