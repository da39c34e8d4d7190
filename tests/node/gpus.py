"""What the GPUs of the node do, as the NVML stand-in is told it: tests/standins/nvml/standin_script.h has the language.

Healthy GPUs are the stand-in's own defaults; here are the processes on them, a training step's shape, and faults."""

import math
import os

MIB = 1 << 20
STEP_S = 2.5
# NVML's fields: errors of memory corrected (since load, since made), clocks held back by the power brake (ns), the
# action that the driver asks for.
CORRECTED, CORRECTED_EVER, BRAKE_NS, RECOVERY = 3, 5, 271, 230


class Gpus:
    """script: the file, written whole and put in place; None: nowhere."""

    def __init__(self, script, rails):
        self.script, self.rails = script, rails
        self._values = [{} for _ in rails]
        self._lost, self._events = set(), []
        self._corrected, self._brake_ns = [0] * len(rails), [0] * len(rails)
        self._changed = True

    def set(self, gpu, pcie_width=None, recovery_action=None):
        if pcie_width is not None:
            self._put(gpu, "pcie.width", pcie_width)
        if recovery_action is not None:
            self._put(gpu, f"field.{RECOVERY}", recovery_action)
            self._event(gpu, "recovery", recovery_action)

    def xid(self, gpu, number):
        self._event(gpu, "xid", number)

    def lose(self, gpu):
        self._lost.add(gpu)
        self._changed = True

    def brake(self, gpu, on, seconds=0.0):
        """Half the clock while it is on; seconds: more time that it was held back."""
        for clock in ("clock.0", "clock.1"):
            self._put(gpu, clock, 990 if on else 1980)
        self._brake_ns[gpu] += int(seconds * 1e9)
        self._put(gpu, f"field.{BRAKE_NS}", self._brake_ns[gpu])

    def add_corrected_errors(self, gpu, more):
        self._corrected[gpu] += more
        for field in (CORRECTED, CORRECTED_EVER):
            self._put(gpu, f"field.{field}", self._corrected[gpu])

    def activity(self, played):
        """The square wave of a step: compute, then communication; a little different on each GPU."""
        for gpu in range(len(self.rails)):
            computing = (played / STEP_S) % 1 < 0.8
            wobble = 1 + 0.02 * math.sin(played * 1.7 + gpu)
            for metric, busy, waiting in ((2, 93, 35), (3, 48, 14), (5, 61, 4), (7, 60, 4), (10, 41, 12)):
                self._put(gpu, f"gpm.{metric}", round((busy if computing else waiting) * wobble, 2))
            self._put(gpu, "field.185", round((620 if computing else 330) * wobble) * 1000)

    def flush(self):
        if self.script is None or not self._changed:
            return
        self._changed = False
        # Put in place whole: the stand-in may read it at any moment.
        beside = f"{self.script}.new"
        with open(beside, "w") as file:
            file.write(self._text())
        os.replace(beside, self.script)

    def _put(self, gpu, key, value):
        if self._values[gpu].get(key) != value:
            self._values[gpu][key] = value
            self._changed = True

    def _event(self, gpu, kind, data):
        self._events.append((gpu, kind, data))
        self._changed = True

    def _text(self):
        lines = [f"gpus {len(self.rails)}", "model NVIDIA H100 80GB HBM3", "driver 575.57.08"]
        lines += [f"set memory.total {81559 * MIB}", f"set memory.used {71203 * MIB}"]
        for gpu, rail in enumerate(self.rails):
            lines.append(f"gpu {gpu} process {rail['pid']} {70120 * MIB}")
            lines += [f"gpu {gpu} set {key} {value}" for key, value in sorted(self._values[gpu].items())]
            if gpu in self._lost:
                lines.append(f"gpu {gpu} lost")
        lines += [f"event {i} gpu {gpu} {kind} {data}" for i, (gpu, kind, data) in enumerate(self._events, 1)]
        return "\n".join(lines) + "\n"
