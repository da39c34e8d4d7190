#!/usr/bin/env python3
"""Writes src/diagnosis/signals/warning_record.h: how often each kind of early warning was right, as measured.

    tools/make_warning_record.py            write it, from the table "what rises" of bench/results/warnings.md
    tools/make_warning_record.py --check    say whether it is as this program would write it

The numbers stand in one place, the measured file; a warning that cites them cites that file.
"""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MEASURED = ROOT / "bench" / "results" / "warnings.md"
HEADER = ROOT / "src" / "diagnosis" / "signals" / "warning_record.h"

TEXT = """// How often each kind of early warning was right in simulation. Written by tools/make_warning_record.py from
// bench/results/warnings.md; not to be changed by hand.
//
// Thread rule: Immutable.
#pragma once

namespace lockstep {{

struct WarningRecord {{
  const char* signal;
  int raised;
  int came_true;  // within the horizon that was given
}};
// clang-format off
inline constexpr WarningRecord kWarningRecords[] = {{
{rows}
}};
// clang-format on

}}  // namespace lockstep
"""


def rows(text: str) -> list[str]:
    table = text.split("| what rises |", 1)
    if len(table) != 2:
        sys.exit(f"{MEASURED.relative_to(ROOT)} has no table \"what rises\"")
    found = []
    for line in table[1].splitlines()[2:]:
        if not line.startswith("| "):
            break
        signal, raised, came_true = [cell.strip() for cell in line.strip("|").split("|")][:3]
        found.append(f'    {{"{signal}", {int(raised)}, {int(came_true)}}},')
    return found


def main() -> int:
    text = TEXT.format(rows="\n".join(rows(MEASURED.read_text())))
    if "--check" in sys.argv[1:]:
        if HEADER.exists() and HEADER.read_text() == text:
            return 0
        print(f"{HEADER.relative_to(ROOT)} is not as tools/make_warning_record.py writes it", file=sys.stderr)
        return 1
    HEADER.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
