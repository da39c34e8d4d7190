"""What Kineto counts, in steps of the job."""

import os
import socket
import tempfile
import types
import unittest
from unittest import mock

import support  # noqa: F401: finds the package

from lockstep import _kineto, _runtime


class MappingTest(unittest.TestCase):
    def test_a_resumed_job_and_two_optimizers_are_told_apart_from_kinetos_count(self):
        mapping = _kineto.Mapping()
        self.assertFalse(mapping.saw(1000, 0), "one look says nothing of how fast it counts")
        self.assertTrue(mapping.saw(1004, 8))
        self.assertEqual(mapping.told, (-2000, 2))
        self.assertFalse(mapping.saw(1020, 40), "the same")
        self.assertTrue(mapping.saw(1021, 41), "an optimizer that was left out")
        self.assertEqual(mapping.told, (-980, 1))

    def test_what_does_not_go_together_is_not_told(self):
        mapping = _kineto.Mapping()
        mapping.saw(0, 0)
        mapping.saw(10, 7)
        self.assertEqual(mapping.told, (0, 0))
        with mock.patch.object(_kineto, "mapping", mapping):
            self.assertEqual(_kineto.lines(), [])
        mapping.saw(20, 7)
        self.assertEqual(mapping.told, (0, 0), "no optimizer steps at all")
        mapping.saw(5, 9)  # back to a checkpoint
        self.assertTrue(mapping.saw(6, 10))
        with mock.patch.object(_kineto, "mapping", mapping):
            self.assertEqual(_kineto.lines(), ["kineto 4 1"])


class LeaveTest(unittest.TestCase):
    def test_a_socket_that_nobody_reads_any_more_goes_and_one_that_is_read_stays(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict("os.environ", {"KINETO_IPC_SOCKET_DIR": folder}):
            path = folder + "/dynolog"
            _kineto.leave()  # there is none
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent:
                agent.bind(path)
                _kineto.leave()
                self.assertTrue(os.path.exists(path))
            _kineto.leave()
            self.assertFalse(os.path.exists(path))


class HookTest(unittest.TestCase):
    def look(self, steps, optimizers):
        """What is told of a job with so many optimizers a step, whose Kineto count is one for each of their steps."""
        hooks, told = [], []
        tracker = types.SimpleNamespace(count=0)
        tracker.current_step = lambda: tracker.count
        marks = types.SimpleNamespace(step=None)
        profiler = types.SimpleNamespace(KinetoStepTracker=tracker)
        torch = types.SimpleNamespace(register_optimizer_step_pre_hook=hooks.append)
        with (
            mock.patch.dict("os.environ", {"KINETO_USE_DAEMON": "1"}),
            mock.patch.dict("sys.modules", {"torch.autograd.profiler": profiler}),
            mock.patch.object(_kineto, "mapping", _kineto.Mapping()),
            mock.patch.object(_runtime.live, "marks", marks),
            mock.patch("lockstep._evidence.tell", lambda: told.append(_kineto.mapping.told)),
        ):
            _kineto.hook_optimizer(torch)
            for step in range(500, 500 + steps):
                marks.step = step
                for _ in range(optimizers):
                    hooks[0](None, (), {})
                    tracker.count += 1
        return told

    def test_it_is_told_within_a_few_steps_and_once(self):
        self.assertEqual(self.look(6, 1), [(-500, 1)])
        self.assertEqual(self.look(200, 1), [(-500, 1)])

    def test_of_several_optimizers_the_first_of_a_step_counts(self):
        self.assertEqual(self.look(200, 3), [(-1500, 3)])

    def test_nothing_is_hooked_where_no_daemon_is_asked(self):
        hooks = []
        with mock.patch.dict("os.environ", {"KINETO_USE_DAEMON": ""}):
            _kineto.hook_optimizer(types.SimpleNamespace(register_optimizer_step_pre_hook=hooks.append))
        self.assertEqual(hooks, [])


if __name__ == "__main__":
    unittest.main()
