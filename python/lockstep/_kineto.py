"""What PyTorch's profiler (Kineto) counts, in steps of the job: for who wants it to begin at one of them.

Kineto counts optimizer steps of this process, from 0; a job that was resumed is at another number, and one with two
optimizers counts twice a step. So what both are is looked at now and then, at the first optimizer step of a step of the
job, and reported in <recorder>.hook: when step N begins, Kineto's count is OFFSET + EACH * N. Only where a daemon is asked
(KINETO_USE_DAEMON), and nothing is reported while the two do not go together.
"""

import atexit
import os
import socket
import sys

from . import _guard, _runtime

EVERY = 16  # optimizer steps between two looks, once the first two have shown what EACH is


def _count_of(tracker) -> int | None:
    count = getattr(tracker, "current_step", None)
    return count() if count is not None else getattr(tracker, "_current_step", None)


class Mapping:
    """OFFSET and EACH of what was seen so far."""

    def __init__(self):
        self.last: tuple[int, int] | None = None  # step, count
        self.told: tuple[int, int] | None = None  # offset, each; each 0: not known

    def saw(self, step: int, count: int) -> bool:
        """Whether what is to be reported has changed."""
        last, self.last = self.last, (step, count)
        if last is None or step <= last[0]:
            return False
        each, rest = divmod(count - last[1], step - last[0])
        now = (count - each * step, each) if rest == 0 and each > 0 else (0, 0)
        changed, self.told = now != self.told, now
        return changed


mapping = Mapping()


def lines() -> list[str]:
    told = mapping.told
    return [f"kineto {told[0]} {told[1]}"] if told and told[1] > 0 else []


@_guard.guarded("profiler's socket")
def leave() -> None:
    """At exit. Kineto asks once more while the process ends, and where the agent's socket is there but nobody reads it (the
    agent was killed) it goes on asking for six seconds; where there is no socket it does not ask at all."""
    folder = os.environ.get("KINETO_IPC_SOCKET_DIR")
    if not folder:
        return
    path = os.path.join(folder, "dynolog")
    try:
        before = os.lstat(path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
            client.connect(path)
    except ConnectionRefusedError:
        now = os.lstat(path)
        if (now.st_dev, now.st_ino) == (before.st_dev, before.st_ino):  # not one that an agent has just made
            os.unlink(path)
    except OSError:
        pass


def hook_optimizer(module) -> None:
    """After torch.optim.optimizer was imported, after the hook that makes the marks."""
    if not os.environ.get("KINETO_USE_DAEMON"):
        return
    atexit.register(leave)
    register = getattr(module, "register_optimizer_step_pre_hook", None)
    if register is None:
        return
    left, last = 1, None
    live = _runtime.live

    def look(optimizer, arguments, options):
        nonlocal left, last
        left -= 1
        if left > 0:
            return
        try:
            marks = live.marks
            if marks is None:
                left = EVERY
                return
            step = marks.step
            if last is None:  # the first optimizer step of the next step is waited for
                last = step
                return
            if step == last or step is None:
                return
            last = None
            profiler = sys.modules.get("torch.autograd.profiler")
            tracker = getattr(profiler, "KinetoStepTracker", None)
            count = None if tracker is None else _count_of(tracker)
            if count is None:
                left = 1 << 62
                return
            if mapping.saw(step, count):
                from . import _evidence

                _evidence.tell()
            left = EVERY if mapping.told else 1
        except Exception as error:
            left = 1 << 62
            _guard.broken("profiler's steps", error)

    look._torchdynamo_disable = True
    register(look)
