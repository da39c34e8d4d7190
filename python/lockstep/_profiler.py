"""Kernel profiles through torch.profiler, ordered by the agent, where Kineto's daemon cannot be asked: a process that was
started without KINETO_USE_DAEMON, or a PyTorch that is older than that protocol.

An order is one datagram to <recorder>.orders, a socket of this user alone. A thread sleeps there: while nobody orders
anything, nothing runs and no step looks at anything. torch.profiler sees the thread that starts it, so it is started and
stopped at step marks, on the thread that trains; the file is written on a thread of its own, as FILE.tmp and then renamed,
as Kineto does. What becomes of an order is reported in <recorder>.hook: "profile CAPTURE STATE REASON".

The agent is never waited for. A profiler of the job's own goes first: ours is not started beside it, and ends when the
job starts its own. LOCKSTEP_PROFILER=0 forbids it.
"""

import json
import os
import re
import socket
import sys
import threading
import time

from . import _guard, _runtime

ORDER_BYTES_MAX = 4096
DAEMON_SINCE = (2, 7)  # PyTorch's version that asks a daemon
FILE = re.compile(r"lockstep-(p-[0-9a-f]{1,32})_[0-9]{1,10}\.json")
REASON_MAX = 200

_lock = threading.Lock()
_listening: dict = {}  # socket, folder, tell; of this process
_newest = None  # the capture that was ordered last


class Order:
    def __init__(self, text: str):
        """ValueError: it is none."""
        values = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
        try:
            self.file = values["file"]
            self.start, self.steps, self.start_unix_ms, self.duration_ms, self.limit_s = (
                int(values[name]) for name in ("start", "steps", "start_unix_ms", "duration_ms", "limit_s")
            )
        except KeyError as missing:
            raise ValueError(f"it has no {missing}") from None
        self.shapes, self.stacks = values.get("shapes") == "1", values.get("stacks") == "1"
        named = FILE.fullmatch(self.file)
        if named is None:
            raise ValueError("its file has another name than a trace has")
        self.capture = named[1]
        if not 1 <= self.steps <= 100 or not 1 <= self.limit_s <= 3600 or self.duration_ms < 1:
            raise ValueError("its numbers are out of their limits")


def _torch_version(torch) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])


def daemon_is_asked(torch) -> bool:
    """Whether Kineto takes the agent's orders by itself."""
    return (
        os.environ.get("KINETO_USE_DAEMON") is not None
        and _torch_version(torch) >= DAEMON_SINCE
        and torch.profiler.kineto_available()
    )


def forbidden() -> bool:
    return os.environ.get("LOCKSTEP_PROFILER", "") == "0"


class Capture:
    """One order. begins() and ends() are called at the marks of steps, and raise nothing."""

    def __init__(self, order: Order, marks, folder: str, clock=time.monotonic, wall=time.time):
        self.order, self.marks, self.clock, self.wall = order, marks, clock, wall
        self.path = os.path.join(folder, order.file)
        self.deadline = clock() + order.limit_s
        self.state, self.reason = "waiting", ""
        self.profiler = self.annotation = self.guard = None
        self.traces = False
        self.since = self.since_wall = 0.0

    def line(self) -> str:
        return f"profile {self.order.capture} {self.state}" + (f" {self.reason}" if self.reason else "")

    def _is(self, state: str, reason: str = "") -> None:
        self.state, self.reason = state, " ".join(reason.split())[:REASON_MAX]
        tell = _listening.get("tell")
        if tell is not None and _newest is self:
            tell()

    def arm(self) -> None:
        at = self.marks.step
        if self.order.start >= 0 and at is not None and at >= self.order.start:
            return self._is("failed", f"its order came late: step {self.order.start} was over, it is at {at}")
        self.marks._at_step_begin.append(self.begins)
        self.marks._at_step_end.append(self.ends)
        self._is("waiting")

    def _leave(self) -> None:
        # Another list each: somebody may be going through them.
        self.marks._at_step_begin = [call for call in self.marks._at_step_begin if call != self.begins]
        self.marks._at_step_end = [call for call in self.marks._at_step_end if call != self.ends]

    def give_up(self, reason: str) -> None:
        """On the thread that trains, or before anything was started."""
        self._leave()
        profiler, self.profiler = self.profiler, None
        self._unguard()
        try:
            self._annotate(None)
            if profiler is not None:
                if not self.traces:  # what was prepared ends only as what was started
                    profiler.start_trace()
                profiler.stop_trace()
        except Exception as error:
            _guard.say_once("profiler ends", f"torch.profiler did not end well ({str(error)[:200]})")
        self._is("failed", reason)

    def _annotate(self, step) -> None:
        annotation, self.annotation = self.annotation, None
        if annotation is not None:
            annotation.__exit__(None, None, None)
        if step is not None:
            self.annotation = sys.modules["torch"].profiler.record_function(f"ProfilerStep#{step}")
            self.annotation.__enter__()

    # A profiler of the job's own that starts beside ours would raise there: ours ends first.

    def _guard_job(self) -> None:
        kind = sys.modules["torch.autograd.profiler"].profile
        original, own = kind._prepare_trace, self.profiler

        def _prepare_trace(profile):
            if own is self.profiler and profile is not getattr(own, "profiler", None):
                self.give_up("foreign profiler running: the job has started one of its own")
            return original(profile)

        kind._prepare_trace = _prepare_trace
        self.guard = (kind, original, _prepare_trace)

    def _unguard(self) -> None:
        if self.guard is not None:
            kind, original, ours = self.guard
            self.guard = None
            if kind._prepare_trace is ours:
                kind._prepare_trace = original

    def _prepare(self) -> bool:
        torch = sys.modules["torch"]
        if torch.autograd._profiler_enabled():
            self.give_up("foreign profiler running: the job profiles itself")
            return False
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_initialized():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        profiler = torch.profiler.profile(
            activities=activities, record_shapes=self.order.shapes, with_stack=self.order.stacks
        )
        profiler.prepare_trace()
        self.profiler = profiler
        self._guard_job()
        return True

    def _is_due(self, step: int) -> bool:
        if self.order.start >= 0:
            return step >= self.order.start
        return self.wall() * 1000 >= self.order.start_unix_ms

    def begins(self, step: int) -> None:
        try:
            if self.state == "tracing":
                return self._annotate(step)
            if self.clock() >= self.deadline:
                return self.give_up(f"no optimizer step: it did not begin within {self.order.limit_s} s")
            if not self._is_due(step):
                # One step ahead: what a profiler needs to get ready is no part of a step that is looked at.
                if step == self.order.start - 1:
                    self._prepare()
                return
            if self.profiler is None and not self._prepare():
                return
            self.profiler.start_trace()
            self.traces, self.since, self.since_wall = True, self.clock(), self.wall()
            self._say_version()
            self._is("tracing")
            self._annotate(step)
        except Exception as error:
            self.give_up(f"torch.profiler: {type(error).__name__}: {error}")

    def _say_version(self) -> None:
        """Kineto writes the versions of CUDA and NCCL; two runs are compared by PyTorch's as well. A trace without it is a trace."""
        try:
            self.profiler.add_metadata_json("pytorch_version", json.dumps(str(sys.modules["torch"].__version__)))
        except Exception as error:
            _guard.say_once("profiler metadata", f"no version of PyTorch in the profile ({str(error)[:200]})")

    def ends(self, step: int, duration_ns: int) -> None:
        if self.state != "tracing":
            return
        try:
            if self.order.start >= 0:
                if step < self.order.start + self.order.steps - 1:
                    return
            elif (self.clock() - self.since) * 1000 < self.order.duration_ms:
                return
            self._annotate(None)
            self._leave()
            self._unguard()
            profiler, self.profiler = self.profiler, None
            profiler.stop_trace()
            self._is("writing")
            threading.Thread(target=self._write, args=(profiler,), name="lockstep-profile", daemon=True).start()
        except Exception as error:
            self.give_up(f"torch.profiler: {type(error).__name__}: {error}")

    def _write(self, profiler) -> None:
        draft = self.path + ".tmp"
        try:
            # Made here, as nobody else's: what has this name already is no file of ours.
            os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            if sys.modules["torch"].profiler.kineto_available():
                profiler.export_chrome_trace(draft)
            else:
                self._write_plain(profiler, draft)
            os.replace(draft, self.path)
            self._is("written")
        except Exception as error:
            try:
                os.unlink(draft)
            except OSError:
                pass
            self._is("failed", f"its trace could not be written: {type(error).__name__}: {error}")

    def _write_plain(self, profiler, path: str) -> None:
        """A PyTorch that was built without Kineto reports neither what an event is nor when it was."""
        start_us = self.since_wall * 1e6
        with open(path, "w", encoding="utf-8") as file:
            file.write('{"traceEvents": [\n')
            separator = ""
            for event in profiler.events():
                name = event.trace_name  # event.name has no numbers of steps
                if name is None:
                    continue
                line = {
                    "ph": "X",
                    "cat": "user_annotation" if name.startswith("ProfilerStep#") else "cpu_op",
                    "name": name,
                    "pid": os.getpid(),
                    "tid": event.thread,
                    "ts": start_us + event.time_range.start,
                    "dur": event.time_range.end - event.time_range.start,
                }
                if event.input_shapes:
                    line["args"] = {"Input Dims": event.input_shapes}
                file.write(separator + json.dumps(line))
                separator = ",\n"
            file.write("\n]}\n")


@_guard.guarded("profiler's orders")
def take(text: str) -> None:
    """An order has come."""
    global _newest
    try:
        order = Order(text)
    except ValueError as reason:
        _guard.say_once("order", f"an order for a profile is not taken: {reason}")
        return
    marks = _runtime.live.marks
    if marks is None:
        return  # switched off: the agent sees that nobody takes it
    with _lock:
        before = _newest
        # An order may come twice; one that comes while another is being traced comes again.
        if before is not None and (before.order.capture == order.capture or before.state in ("tracing", "writing")):
            return
        if before is not None:
            before.deadline = 0  # given up by whoever ordered it; what it has prepared ends on the thread that trains
        _newest = Capture(order, marks, _listening["folder"])
    _newest.arm()


def _run(listener) -> None:
    while True:
        try:
            order = listener.recv(ORDER_BYTES_MAX)
        except OSError:
            return  # closed: the job is over for this process
        if not order:
            return
        take(order.decode("utf-8", "replace"))


def _listen(stem: str, tell) -> None:
    folder, name = os.path.split(stem + ".orders")
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        try:
            os.unlink(name, dir_fd=held)
        except FileNotFoundError:
            pass
        # Before it has a name: no moment in which others than this user could write to it. A path of any length.
        os.fchmod(listener.fileno(), 0o600)
        listener.bind(f"/proc/self/fd/{held}/{name}")
        os.chmod(name, 0o600, dir_fd=held)
    except Exception:
        listener.close()
        raise
    finally:
        os.close(held)
    _listening.update(socket=listener, path=stem + ".orders", folder=folder, tell=tell)
    threading.Thread(target=_run, args=(listener,), name="lockstep-orders", daemon=True).start()


@_guard.guarded("profiler")
def offer(stem: str, tell) -> None:
    """Once the recorder is there; tell() writes what lines() says to where the agent reads it."""
    if forbidden() or _listening:
        return
    from . import _import_hook

    def listen(_):
        if not daemon_is_asked(sys.modules["torch"]) and not _listening:
            _listen(stem, tell)
            tell()

    _import_hook.after_import("torch.profiler", listen)


def lines() -> list[str]:
    if "socket" not in _listening:
        return []
    return ["profiler torch"] + ([_newest.line()] if _newest is not None else [])


def withdraw() -> None:
    listener, path = _listening.pop("socket", None), _listening.pop("path", None)
    _listening.pop("tell", None)
    if listener is None:
        return
    for end in (lambda: os.unlink(path), lambda: listener.shutdown(socket.SHUT_RDWR)):  # which wakes the thread
        try:
            end()
        except OSError:
            pass


def after_fork_in_child() -> None:
    """The child is not the rank."""
    global _lock, _newest
    _lock, _newest = threading.Lock(), None
    listener = _listening.pop("socket", None)
    _listening.clear()
    if listener is not None:
        listener.close()
