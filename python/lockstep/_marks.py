"""From what a job does to step and phase marks.

Hooks and callbacks report events (a fetch begins, backward ends, an optimizer has stepped); this state machine decides
where steps begin and which phase is open, and sends marks to the recorder. It knows no framework, so that the rules are
tested without one. docs/guide/python.md has the rules for people.

Thread rule: Thread-safe. Automatic events count on one thread only, the one that trains (the main thread, or the thread
of the first backward or optimizer step): a loader that is read ahead on another thread costs the step nothing.

Between two events of a real step lie tens of milliseconds of other work, so whatever an event touches comes from far
memory: a lock costs 10 us there, a C function that converts its argument by type 20 (bench/results/python-hook.md). So
each of the six events of a plain step has a quick way at its head: one function, no lock, few objects. It is taken only
where `_quick` says that nothing unusual goes on, and does there exactly what the general way below it
would do. Whoever takes the general way holds the lock, and waits for a quick way that another thread is on (_General).
"""

import threading
import time
from threading import get_ident

from ._library import PHASES

OTHER, INPUT, FORWARD, BACKWARD, OPTIMIZER, CHECKPOINT, EVAL, SYNC = range(8)

# Automatic phases without a name of their own; `_auto` is one of these very objects or has a name.
_PLAIN = tuple((phase, None) for phase in range(8))
_INPUT, _FORWARD, _BACKWARD, _OPTIMIZER = _PLAIN[INPUT], _PLAIN[FORWARD], _PLAIN[BACKWARD], _PLAIN[OPTIMIZER]
_BEGUN = (None,)  # what a quick begin gives its end

# So many fetches in a row from one iterator without a backward are taken for training: loaders that keep a batch ahead
# fetch twice. More are an evaluation, until a job shows that it fetches more before it trains (gradient accumulation
# over batches fetched together).
FETCHES_IN_A_ROW = 3
# An optimizer that closes the round and has not been seen while another stepped more than twice as often as usual, plus
# so many, is gone (a frozen part of the model).
ROUNDS_WITHOUT_THE_LAST = 8
WAITS_FOR_QUICK = 1000  # of a tenth of a millisecond; a quick way takes microseconds, and the job must not hang


class _General:
    """with marks._lock: the lock of the general way, and what makes it safe against the quick one."""

    __slots__ = ("_marks", "_lock")

    def __init__(self, marks):
        self._marks, self._lock = marks, threading.RLock()

    def __enter__(self):
        self._lock.acquire()
        marks = self._marks
        if marks._alone and get_ident() != marks._owner:
            marks._alone = marks._quick = False
            for _ in range(WAITS_FOR_QUICK):
                if not marks._inside:
                    break
                time.sleep(1e-4)

    def __exit__(self, *_):
        marks = self._marks
        marks._quick = (
            marks.step is not None
            and marks._alone
            and marks._owner_fixed
            and not marks._phases
            and not marks._evaluating
            and not marks._eval_reported
            and not (marks._told and marks._deferred)
        )
        self._lock.release()


class Marks:
    # Slots, not a dictionary: what an event looks at lies together.
    __slots__ = (
        "sink", "step", "steps", "steps_ns", "phase_ns", "optimizer_steps",
        "_clock", "_lock", "_owner", "_owner_fixed", "_alone", "_quick", "_inside",
        "_begin_phase", "_end_phase", "_begin_step",
        "_next", "_told", "_deferred", "_ahead", "_step_since", "_at_step_end", "_at_step_begin",
        "_phases", "_auto", "_phase_since", "_phase_sums",
        "_source", "_row", "_row_max", "_evaluating", "_eval_reported", "_backward_depth", "_backwards", "_backwards_usual",
        "_boundary_after_backward", "_optimizer_depth", "_last_optimizer", "_optimizers", "_usual", "_round_known",
        "_sole", "_counting",
    )  # fmt: skip

    def __init__(self, sink, clock=time.perf_counter_ns, first_step=0):
        self.sink = sink
        # Of a phase without a name, as directly as the sink can.
        self._begin_phase = getattr(sink, "phase_begin_plain", sink.phase_begin)
        self._end_phase = sink.phase_end
        self._begin_step = sink.step_begin
        self._clock = clock
        self._alone = True  # no other thread than the one that trains has reported anything
        self._quick = False  # nothing unusual goes on: kept by _General
        self._inside = False  # a quick way is being taken
        self._lock = _General(self)
        self._owner = threading.main_thread().ident
        self._owner_fixed = False

        # Steps
        self.step: int | None = None  # the one that is open
        self._next = first_step
        self._told = False  # by the job itself: automatic boundaries are off
        self._deferred = False  # told: the next step begins with the next training activity
        self._ahead = False  # told: the open step was begun by such activity, and is not yet claimed
        self._step_since = 0
        self._at_step_end = []  # called with (step, duration_ns) while the step is still open
        self._at_step_begin = []

        # Phases: the reported ones nest; what is automatic is silent while a reported one is open
        self._phases: list[tuple[int, str | None]] = []
        self._auto: tuple[int, str | None] | None = None
        self._phase_since = 0

        # What training looks like
        self._source = None  # iterator of the newest fetch
        self._row = 0  # fetches in a row from it
        self._row_max = FETCHES_IN_A_ROW
        self._evaluating = False
        self._eval_reported = False  # by a framework: fetches are of the evaluation until it says otherwise
        self._backward_depth = 0
        self._backwards = 0  # in this step
        self._backwards_usual = 1  # in the step before
        self._boundary_after_backward = False
        self._optimizer_depth = 0
        self.optimizer_steps = 0  # ever

        # The round of optimizers
        self._last_optimizer = None
        self._optimizers: dict[int, int] = {}  # steps of each since the boundary
        self._usual: dict[int, int] = {}  # and in the round before
        self._round_known = False  # the last one has come round again
        self._sole = None  # the one whose single step was the whole of the newest round

        # For summary()
        self.steps = 0
        self.steps_ns = 0
        self.phase_ns = [0] * len(PHASES)  # within steps that are over
        self._phase_sums = [0] * len(PHASES)  # and with the open one

    # Steps

    @property
    def told(self) -> bool:
        return self._told

    def _begin(self, number: int) -> None:
        now = self._clock()
        if self.step is not None:
            self._close(now)
        for call in self._at_step_begin:
            call(number)
        self.sink.step_begin(number)
        self.step, self._next, self._step_since = number, number + 1, now
        self._deferred = False
        if self._phases or self._auto:  # a step's end ends its phases
            self._phase_since = now
            phase, name = self._phases[-1] if self._phases else self._auto
            self.sink.phase_begin(phase, name)

    def _close(self, now: int) -> None:
        """Counts the open step, whose end comes next."""
        phase = self._open_phase()
        if phase is not None:
            self._phase_sums[phase[0]] += now - self._phase_since
            self._phase_since = now
        duration = now - self._step_since
        for call in self._at_step_end:
            call(self.step, duration)
        self.steps += 1
        self.steps_ns += duration
        self.phase_ns = self._phase_sums.copy()
        self._backwards_usual, self._backwards = max(self._backwards, 1), 0

    def _end(self) -> None:
        if self.step is None:
            return
        number = self.step
        self._close(self._clock())
        self.sink.step_end(number)
        self.step = None

    def step_begin(self, number: int | None = None) -> int:
        """The job reports its steps from now on. A step that its first fetch has begun already is not begun again."""
        with self._lock:
            self._told = True
            if self._ahead and self.step is not None and number in (None, self.step):
                self._ahead = False
                return self.step
            self._ahead = False
            self._begin(self._next if number is None else int(number))
            return self.step

    def step_end(self, number: int | None = None) -> None:
        """Ends the open step; the fetch that follows belongs to the next one."""
        with self._lock:
            self._told = True
            if self.step is not None and (number is None or number == self.step):
                self._end()
            self._ahead, self._deferred = False, True

    def step_done(self, next_number: int) -> None:
        """For callbacks: the step stays open (logging, evaluation, checkpoint count to it) until training goes on."""
        with self._lock:
            self._told = True
            self._next, self._deferred, self._ahead = int(next_number), True, False

    def finish(self) -> None:
        with self._lock:
            if self._told and not self._ahead:
                self._end()
            self._deferred = False

    def _training(self) -> None:
        """Something of a training step happens now: there has to be a step."""
        self._evaluating = self._eval_reported = False
        if self._told:
            if self._deferred:
                self._ahead = True
                self._begin(self._next)
        elif self.step is None:
            self._begin(self._next)

    # Phases

    def _open_phase(self):
        return self._phases[-1] if self._phases else self._auto

    def _account(self, phase) -> None:
        now = self._clock()
        if phase is not None and self.step is not None:
            self._phase_sums[phase[0]] += now - self._phase_since
        self._phase_since = now

    def _set_auto(self, phase: int | None, name: str | None = None) -> None:
        before = self._auto
        wanted = None if phase is None else (phase, name) if name else _PLAIN[phase]
        if wanted == before:
            return
        if not self._phases:
            self._account(before)
            if wanted is not None:
                self.sink.phase_begin(phase, name)
            else:
                self.sink.phase_end(before[0])
        self._auto = wanted

    def phase_begin(self, name) -> tuple[int, str | None] | None:
        """Told by the job; a known name is that phase, any other is a phase of its own. None: not on this thread."""
        if self._owner_fixed and get_ident() != self._owner:
            return None
        with self._lock:
            text = str(name)
            phase = (PHASES[text], None) if text in PHASES and text != "other" else (OTHER, text)
            self._account(self._open_phase())
            self._phases.append(phase)
            self.sink.phase_begin(*phase)
            return phase

    def phase_end(self, phase) -> None:
        if phase is None:
            return
        with self._lock:
            for at in range(len(self._phases) - 1, -1, -1):
                if self._phases[at] is phase:
                    self._account(self._open_phase())
                    del self._phases[at:]  # what was opened inside and not closed ends with it
                    back = self._open_phase()
                    self.sink.phase_end(phase[0]) if back is None else self.sink.phase_begin(*back)
                    return

    # Automatic events. Each returns what its end needs, or None where it does not count.

    def _mine(self, fix: bool) -> bool:
        if self._owner == get_ident():
            self._owner_fixed = self._owner_fixed or fix
            return True
        if fix and not self._owner_fixed:
            self._owner, self._owner_fixed, self._alone = get_ident(), True, True
            return True
        return False

    def loader_begin(self):
        """A loader makes its iterator: workers start."""
        if get_ident() != self._owner:
            return None
        with self._lock:
            if not self._mine(False) or self._evaluating:
                return None
            if self._told or self.step is not None:  # before the first step the first fetch begins it
                self._set_auto(INPUT)
                return True
            return None

    def loader_end(self, token) -> None:
        if token is None:
            return
        with self._lock:
            if self._auto == (INPUT, None):
                self._set_auto(None)

    def fetch_begin(self, source, grad_on: bool):
        """`source` is the same for fetches of one iterator."""
        if get_ident() != self._owner:
            return None  # read ahead, or not known to train: no general way would count it either
        self._inside = True
        try:
            if self._quick and grad_on and source == self._source and self._row < self._row_max:
                before = self._auto
                if before is not _INPUT:
                    self._row += 1
                    self._optimizer_depth = 0
                    now = self._clock()
                    if before is not None:
                        self._phase_sums[before[0]] += now - self._phase_since
                    self._phase_since = now
                    self._begin_phase(INPUT)
                    self._auto = _INPUT
                    return True
        finally:
            self._inside = False
        with self._lock:
            if not self._mine(False):
                return None
            self._optimizer_depth = 0  # a step that ended in an exception did not report its end
            same = source == self._source
            if not grad_on or self._eval_reported:
                evaluating = True
            elif same:
                self._row += 1
                evaluating = self._evaluating or self._row > self._row_max
            else:
                self._row, evaluating = 1, False
            self._source = source
            if evaluating:
                self._evaluating = True
                self._set_auto(EVAL)
            else:
                self._training()
                self._set_auto(INPUT)
            return True

    def fetch_end(self, token, got: bool) -> None:
        """`got` is false where the loader was at its end."""
        if token is None:
            return
        self._inside = True
        try:
            if got and self._quick and self._auto is _INPUT:
                now = self._clock()
                self._phase_sums[INPUT] += now - self._phase_since
                self._phase_since = now
                self._begin_phase(FORWARD)
                self._auto = _FORWARD
                return
        finally:
            self._inside = False
        with self._lock:
            if not got:
                self._source, self._row, self._evaluating = None, 0, self._eval_reported
                self._set_auto(EVAL if self._eval_reported else None)
            elif not self._evaluating:
                self._set_auto(FORWARD)

    def backward_begin(self):
        if get_ident() == self._owner:
            self._inside = True
            try:
                before = self._auto
                if self._quick and not self._backward_depth and (before is _FORWARD or before is None):
                    self._backward_depth = 1
                    if self._row > self._row_max:
                        self._row_max = self._row
                    self._row = 0
                    self._backwards += 1
                    now = self._clock()
                    if before is not None:
                        self._phase_sums[FORWARD] += now - self._phase_since
                    self._phase_since = now
                    self._begin_phase(BACKWARD)
                    self._auto = _BACKWARD
                    return _BEGUN
            finally:
                self._inside = False
        elif self._owner_fixed:
            return None
        with self._lock:
            if not self._mine(True):
                return None
            self._backward_depth += 1
            if self._backward_depth > 1:
                return ()  # backward within backward (activation checkpointing): one phase
            self._row_max, self._row = max(self._row_max, self._row), 0
            self._training()
            self._backwards += 1
            before = self._auto
            self._set_auto(BACKWARD)
            return (before,)

    def backward_end(self, token) -> None:
        if token is None:
            return
        self._inside = True
        try:
            if token is _BEGUN and self._quick and self._auto is _BACKWARD and not self._boundary_after_backward:
                self._backward_depth -= 1
                now = self._clock()
                self._phase_sums[BACKWARD] += now - self._phase_since
                self._phase_since = now
                if self._backwards < self._backwards_usual:
                    self._begin_phase(FORWARD)
                    self._auto = _FORWARD
                else:
                    self._end_phase(BACKWARD)
                    self._auto = None
                return
        finally:
            self._inside = False
        with self._lock:
            self._backward_depth -= 1
            if not token:
                return
            if token[0] == (OPTIMIZER, None):  # an optimizer that evaluates its model again
                self._set_auto(OPTIMIZER)
            elif self._boundary_after_backward:
                self._boundary_after_backward = False
                self._set_auto(None)
                self._boundary(lazy=False)
            else:
                self._set_auto(FORWARD if self._backwards < self._backwards_usual else None)

    def backward_lost(self) -> None:
        """Nobody will report the end of the backward that is open: what follows is not inside it."""
        with self._lock:
            self._backward_depth = 0

    def optimizer_begin(self):
        if get_ident() == self._owner:
            self._inside = True
            try:
                before = self._auto
                if (
                    self._quick
                    and before is not _OPTIMIZER
                    and not self._backward_depth
                    and not self._optimizer_depth
                ):
                    self._optimizer_depth = 1
                    if self._row > self._row_max:
                        self._row_max = self._row
                    self._row = 0
                    now = self._clock()
                    if before is not None:
                        self._phase_sums[before[0]] += now - self._phase_since
                    self._phase_since = now
                    self._begin_phase(OPTIMIZER)
                    self._auto = _OPTIMIZER
                    return _BEGUN
            finally:
                self._inside = False
        elif self._owner_fixed:
            return None
        with self._lock:
            if self._backward_depth > 0 or not self._mine(True):
                return None
            self._optimizer_depth += 1
            if self._optimizer_depth > 1:
                return ()  # an optimizer's step calls that of its base class, or of one inside it
            before = self._auto
            if self._told or self.step is not None or self._last_optimizer is None:
                self._training()
            self._row_max, self._row = max(self._row_max, self._row), 0
            self._set_auto(OPTIMIZER)
            return (before,)

    def optimizer_end(self, token, optimizer: int) -> None:
        """`optimizer` is the same for steps of one optimizer."""
        if token is _BEGUN:
            self._inside = True
            try:
                told = self._told
                if (
                    self._quick
                    and self._auto is _OPTIMIZER
                    and self._optimizer_depth == 1
                    and (told or optimizer == self._sole)
                ):
                    self.optimizer_steps += 1
                    self._optimizer_depth = 0
                    now = self._clock()
                    self._phase_sums[OPTIMIZER] += now - self._phase_since
                    self._phase_since = now
                    self._end_phase(OPTIMIZER)
                    self._auto = None
                    if told:
                        return
                    # The round of a sole optimizer is as the one before it. So the boundary comes here: _close() and
                    # _begin() where no phase is open.
                    duration = now - self._step_since
                    for call in self._at_step_end:
                        call(self.step, duration)
                    self.steps += 1
                    self.steps_ns += duration
                    self.phase_ns = self._phase_sums.copy()
                    self._backwards_usual = self._backwards or 1
                    self._backwards = 0
                    number = self._next
                    for call in self._at_step_begin:
                        call(number)
                    self._begin_step(number)
                    self.step = number
                    self._next = number + 1
                    self._step_since = now
                    return
            finally:
                self._inside = False
        with self._lock:
            self.optimizer_steps += 1
            if token is not None:
                self._optimizer_depth = max(self._optimizer_depth - 1, 0)
                if not token:
                    return
            else:
                if self._backward_depth > 0 and not self._told:  # an optimizer fused into backward
                    self._boundary_after_backward = True
                return
            self._set_auto(None)
            if not self._told and self._closes_round(optimizer):
                self._boundary(lazy=not self._round_known)

    def optimizer_skipped(self, optimizer: int) -> None:
        """A gradient scaler found infinities and let the optimizer out: the step is one all the same."""
        with self._lock:
            if not self._mine(True):
                return
            self.sink.scalar("skipped", 1.0)
            if not self._told and self._closes_round(optimizer):
                self._boundary(lazy=not self._round_known)

    def _closes_round(self, optimizer: int) -> bool:
        """Of several optimizers the one that was new last closes the round. Which one that is shows in the first round,
        where every new one is taken for the last."""
        self._sole = None
        count = self._optimizers[optimizer] = self._optimizers.get(optimizer, 0) + 1
        if optimizer == self._last_optimizer:
            self._round_known = True
        elif optimizer not in self._usual and count == 1:
            self._last_optimizer, self._round_known = optimizer, False
        elif count > 2 * self._usual.get(optimizer, 1) + ROUNDS_WITHOUT_THE_LAST:
            self._last_optimizer, self._round_known = optimizer, True
            self._usual.clear()
        else:
            return False
        if self._round_known and count == 1 and len(self._optimizers) == 1 and self._usual.get(optimizer) == 1:
            self._sole = optimizer
        self._usual.update(self._optimizers)
        self._optimizers.clear()
        return True

    def _boundary(self, lazy: bool) -> None:
        """Lazy: another optimizer may follow at once, so the next step waits for the next fetch or backward."""
        if self.step is None:
            return
        if lazy:
            self._end()
        else:
            self._begin(self._next)

    def save_begin(self):
        if get_ident() != self._owner:
            return None  # saved in the background
        with self._lock:
            if not self._mine(False) or self._auto == (CHECKPOINT, None):
                return None
            before = self._auto
            self._set_auto(CHECKPOINT)
            return (before,)

    def save_end(self, token) -> None:
        if token is None:
            return
        with self._lock:
            before = token[0]
            self._set_auto(None) if before is None else self._set_auto(*before)

    def eval_begin(self) -> None:
        """Told by a framework's callback."""
        with self._lock:
            self._evaluating = self._eval_reported = True
            self._set_auto(EVAL)

    def eval_end(self) -> None:
        with self._lock:
            self._evaluating = self._eval_reported = False
            if self._auto == (EVAL, None):
                self._set_auto(None)

    def training(self) -> None:
        """Told by a framework's wrapper: something of a training step begins now."""
        with self._lock:
            if self._mine(True):
                self._training()

    def set_phase(self, phase: int | None, name: str | None = None) -> None:
        """For wrappers that see a phase's beginning but not its end."""
        with self._lock:
            self._set_auto(phase, name)

    # Everything else

    def scalar(self, name: str, value: float) -> None:
        self.sink.scalar(name, value)

    def after_fork_in_child(self) -> None:
        """A fork while another thread held the lock would leave it locked for good."""
        self._lock, self._inside = _General(self), False
