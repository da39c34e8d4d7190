"""Profiles through torch.profiler, with one that only writes down what is done to it. With a real one:
tests/system/profiles_hook.py."""

import json
import os
import socket
import tempfile
import time
import types
import unittest
from unittest import mock

import support

from lockstep import _profiler
from lockstep._library import NoSink
from lockstep._marks import Marks

NAME = "lockstep-p-0123456789ab_17.json"


def order(start=3, steps=2, **more):
    values = {"file": NAME, "start": start, "steps": steps, "start_unix_ms": 0, "duration_ms": 1, "limit_s": 60, **more}
    return "".join(f"{name} {value}\n" for name, value in values.items())


class FakeTorch(types.ModuleType):
    """Whatever is done, in order."""

    def __init__(self, version="2.15.0", enabled=False):
        super().__init__("torch")
        done = self.done = []
        metadata = self.metadata = {}
        self.__version__ = version

        class Inner:  # torch.autograd.profiler.profile
            def _prepare_trace(self):
                done.append("prepare")

        class Profile:
            def __init__(self, **options):
                self.profiler = None

            def prepare_trace(self):
                self.profiler = Inner()
                self.profiler._prepare_trace()

            def start_trace(self):
                done.append("start")

            def add_metadata_json(self, key, value):
                metadata[key] = json.loads(value)

            def stop_trace(self):
                done.append("stop")

            def export_chrome_trace(self, path):
                with open(path, "w", encoding="utf-8") as file:
                    file.write("{}")

        class Annotation:
            def __init__(self, name):
                self.name = name

            def __enter__(self):
                done.append(self.name)

            def __exit__(self, *_):
                done.append("end " + self.name)

        self.inner, self.outer = Inner, Profile
        self.cuda = types.SimpleNamespace(is_initialized=lambda: False)
        self.autograd = types.SimpleNamespace(_profiler_enabled=lambda: enabled)
        self.profiler = types.SimpleNamespace(
            profile=Profile,
            record_function=Annotation,
            kineto_available=lambda: True,
            ProfilerActivity=types.SimpleNamespace(CPU=0, CUDA=1),
        )


class ProfilerTest(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.torch = FakeTorch()
        self.marks = Marks(NoSink())
        self.told = []
        modules = {"torch": self.torch, "torch.profiler": self.torch.profiler}
        modules["torch.autograd.profiler"] = types.SimpleNamespace(profile=self.torch.inner)
        self.enterContext(mock.patch.dict("sys.modules", modules))
        self.enterContext(mock.patch.object(_profiler, "_newest", None))
        self.enterContext(mock.patch.object(_profiler._runtime.live, "marks", self.marks))
        listening = {"folder": self.folder, "tell": self.tell}
        self.enterContext(mock.patch.object(_profiler, "_listening", listening))

    def tell(self):
        self.told.append(_profiler._newest.line().partition("ab ")[2])

    def steps(self, *numbers):
        for number in numbers:
            self.marks.step_begin(number)
            self.marks.step_end(number)

    def written(self):
        # The file is there a moment before its thread is done with it; until then no other order is taken.
        there = os.path.join(self.folder, NAME)
        return support.eventually(lambda: os.path.exists(there) and _profiler._newest.state != "writing")

    def test_exactly_the_ordered_steps_are_traced_and_the_profiler_gets_ready_one_step_before(self):
        _profiler.take(order())
        self.assertEqual(self.told, ["waiting"])
        self.steps(0, 1)
        self.assertEqual(self.torch.done, [])
        self.steps(2, 3, 4, 5, 6)
        self.assertEqual(
            self.torch.done,
            ["prepare", "start", "ProfilerStep#3", "end ProfilerStep#3", "ProfilerStep#4", "end ProfilerStep#4", "stop"],
        )
        self.assertEqual(self.torch.metadata, {"pytorch_version": "2.15.0"})
        self.assertTrue(self.written())
        self.assertEqual(self.told[:3], ["waiting", "tracing", "writing"])
        self.assertEqual(self.marks._at_step_begin + self.marks._at_step_end, [], "nothing is left at the steps")

    def test_an_order_that_comes_late_or_twice_changes_nothing(self):
        self.steps(7)
        self.marks.step_begin(8)
        _profiler.take(order(start=8))
        self.assertEqual(self.told, ["failed its order came late: step 8 was over, it is at 8"])
        _profiler.take(order(start=20))
        self.assertEqual(len(self.told), 1, "the same capture")

    def test_an_order_that_takes_the_place_of_another_ends_what_that_had_prepared(self):
        _profiler.take(order(start=3))
        self.steps(2)
        self.assertEqual(self.torch.done, ["prepare"])
        _profiler.take(order(start=5, file="lockstep-p-0123456789acab_18.json"))
        self.steps(3)
        self.assertEqual(self.torch.done, ["prepare", "start", "stop"], "also where the other is never begun")
        self.steps(4, 5, 6, 7)
        traced = ["ProfilerStep#5", "end ProfilerStep#5", "ProfilerStep#6", "end ProfilerStep#6"]
        self.assertEqual(self.torch.done, ["prepare", "start", "stop", "prepare", "start", *traced, "stop"])
        self.assertEqual(self.marks._at_step_begin + self.marks._at_step_end, [], "nothing is left at the steps")

    def test_by_time_it_begins_and_ends_with_a_step(self):
        _profiler.take(order(start=-1, duration_ms=1))
        self.steps(0)
        self.assertEqual(self.torch.done[:3], ["prepare", "start", "ProfilerStep#0"])
        time.sleep(0.002)  # longer than what was ordered
        self.steps(1)
        self.assertEqual(self.torch.done[-1], "stop")

    def test_a_profiler_of_the_jobs_own_goes_first(self):
        self.torch.autograd._profiler_enabled = lambda: True
        _profiler.take(order())
        self.steps(2)
        self.assertEqual(self.told[-1], "failed foreign profiler running: the job profiles itself")
        self.torch.autograd._profiler_enabled = lambda: False
        _profiler.take(order(start=5, file="lockstep-p-0123456789ab_18.json".replace("ab_", "acab_")))
        self.steps(4)
        original = self.torch.inner._prepare_trace
        self.marks.step_begin(5)
        self.torch.outer().prepare_trace()
        self.assertEqual(self.torch.done[-2:], ["stop", "prepare"])
        self.assertIn("foreign profiler running: the job has started one", self.told[-1])
        self.assertIsNot(self.torch.inner._prepare_trace, original, "nothing of ours is left there")

    def test_what_the_profiler_raises_does_not_reach_the_job(self):
        def broken(*_):
            raise RuntimeError("CUPTI\nis not there")

        self.torch.outer.add_metadata_json = broken
        _profiler.take(order(start=1, steps=1))
        self.steps(0, 1)
        self.assertTrue(self.written())
        self.assertEqual(self.torch.metadata, {})
        self.torch.outer.start_trace = broken
        _profiler.take(order(file="lockstep-p-0123456789acab_18.json"))
        self.steps(2, 3, 4)
        self.assertEqual(self.told[-1], "failed torch.profiler: RuntimeError: CUPTI is not there")

    def test_an_order_is_checked(self):
        for text in (
            "",
            "file\nfile",
            order(file="../lockstep-p-ab_1.json"),
            order(file="lockstep-p-ab_1.json/x"),
            order(steps=0),
            order(steps=101),
            order(limit_s=0),
            order(start="x"),
            order()[:20],
        ):
            with self.assertRaises(ValueError, msg=text):
                _profiler.Order(text)
            _profiler.take(text)
        self.assertIsNone(_profiler._newest)

    def test_what_has_the_files_name_already_is_not_written_to(self):
        os.symlink("/dev/full", os.path.join(self.folder, NAME + ".tmp"))
        _profiler.take(order())
        self.steps(2, 3, 4)
        self.assertTrue(support.eventually(lambda: self.told[-1].startswith("failed")))
        self.assertIn("its trace could not be written: FileExistsError", self.told[-1])

    def test_kinetos_daemon_is_left_to_kineto(self):
        with mock.patch.dict("os.environ", {"KINETO_USE_DAEMON": "1"}):
            self.assertTrue(_profiler.daemon_is_asked(self.torch))
            self.assertFalse(_profiler.daemon_is_asked(FakeTorch("2.6.1+cu124")))
        with mock.patch.dict("os.environ"):
            os.environ.pop("KINETO_USE_DAEMON", None)
            self.assertFalse(_profiler.daemon_is_asked(self.torch))


class ListeningTest(unittest.TestCase):
    def test_an_order_over_the_socket_is_taken_and_nobody_else_may_send_one(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(_profiler, "_listening", {}):
            taken, told = [], []
            with mock.patch.object(_profiler, "take", taken.append):
                _profiler._listen(folder + "/17-23", lambda: told.append(1))
                path = folder + "/17-23.orders"
                self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
                self.assertEqual(_profiler.lines(), ["profiler torch"])
                with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
                    client.sendto(order().encode(), path)
                self.assertTrue(support.eventually(lambda: taken))
            self.assertEqual(taken, [order()])
            _profiler.withdraw()
            self.assertFalse(os.path.exists(path))
            self.assertEqual(_profiler.lines(), [])


if __name__ == "__main__":
    unittest.main()
