// How often each kind of early warning was right in simulation. Written by tools/make_warning_record.py from
// bench/results/warnings.md; not to be changed by hand.
//
// Thread rule: Immutable.
#pragma once

namespace lockstep {

struct WarningRecord {
  const char* signal;
  int raised;
  int came_true;  // within the horizon that was given
};
// clang-format off
inline constexpr WarningRecord kWarningRecords[] = {
    {"ecc_corrected", 6, 3},
    {"fec_corrected", 1, 1},
    {"fec_uncorrectable", 9, 6},
    {"link_errors", 6, 3},
    {"remap_pending", 3, 3},
    {"sm_clock", 3, 3},
    {"symbol_errors", 8, 6},
    {"temperature_margin", 7, 3},
};
// clang-format on

}  // namespace lockstep
