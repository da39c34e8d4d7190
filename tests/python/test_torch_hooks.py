"""The hooks in real torch, on the CPU. Each test is a process of its own, a fork of one that has imported torch unless the test needs more:
hooks stay where they are put.
"""

import functools
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

import support

HAS_TORCH = importlib.util.find_spec("torch") is not None


def support_library():
    from lockstep import _library

    return _library.find()


HEAD = """
import sys, json
sys.path[:0] = [{here!r}]
import support
import lockstep
from lockstep import _runtime
sink = support.Marked()
def start():
    lockstep.init()
    _runtime.use_sink(sink)
{early}
import torch
from torch.utils.data import DataLoader, TensorDataset
{late}
def loader(batches, workers=0):
    data = TensorDataset(torch.randn(batches * 2, 4), torch.randn(batches * 2, 1))
    return DataLoader(data, batch_size=2, num_workers=workers)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def train(data):
    for x, y in data:
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""


class TorchParent:
    """Runs code in forks of a process that has imported torch (torch_parent.py)."""

    def __init__(self):
        script = pathlib.Path(__file__).parent / "torch_parent.py"
        self.process = subprocess.Popen(
            [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, code):
        self.process.stdin.write(json.dumps(code) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        return subprocess.CompletedProcess("fork", answer["status"], answer["stdout"], answer["stderr"])

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


torch_parent = functools.cache(TorchParent)


def tearDownModule():
    if torch_parent.cache_info().currsize:
        torch_parent().close()


def play(body, early=False):
    """Runs the body after the head; returns what it prints as JSON. early: hooks before torch is imported."""
    head = HEAD.format(
        here=str(pathlib.Path(__file__).parent), early="start()" if early else "", late="" if early else "start()"
    )
    code = head + textwrap.dedent(body)
    if early:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    else:
        done = torch_parent().run(code)
    assert done.returncode == 0, done.stderr
    assert "lockstep:" not in done.stderr, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def play_broken(entry_point, general):
    """Trains 12 batches; that entry point of Marks raises from the first call on, or from the sixth batch on."""
    head = HEAD.format(here=str(pathlib.Path(__file__).parent), early="", late="start()")
    body = f"""
    from lockstep._marks import Marks
    kept, calls = Marks.{entry_point}, []
    def broken(self, *arguments):
        calls.append(1)
        raise RuntimeError("broken {entry_point}")
    trained, made = [], model.forward
    def forward(x):
        trained.append(1)
        if len(trained) == 6:
            Marks.{entry_point} = broken
        return made(x)
    model.forward = forward
    if {general}:
        Marks.{entry_point} = broken
    train(loader(9))
    sink.take()
    train(loader(3))
    print(json.dumps(dict(trained=len(trained), calls=len(calls), later=sink.take())))
    """
    done = torch_parent().run(head + textwrap.dedent(body))
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if "lockstep:" in line]
    return json.loads(done.stdout.splitlines()[-1]), said


def without_loss(marks):
    return [mark for mark in marks if not mark.startswith("loss=")]


STEP = ["+input", "+forward", "+backward", "-backward", "+optimizer", "-optimizer"]


@unittest.skipUnless(HAS_TORCH, "torch is not installed for this Python")
class TorchHooks(unittest.TestCase):
    def check_plain_loop(self, early):
        steps = play("train(loader(5)); print(json.dumps(sink.steps()))", early=early)
        self.assertEqual(sorted(map(int, steps)), [0, 1, 2, 3, 4, 5])
        for number in range(1, 5):
            self.assertEqual(without_loss(steps[str(number)]), STEP)

    def test_a_plain_loop_is_seen_with_hooks_before_torch_is_imported(self):
        self.check_plain_loop(early=True)

    def test_a_plain_loop_is_seen_with_hooks_after_torch_was_imported(self):
        self.check_plain_loop(early=False)

    def test_an_optimizer_made_before_the_hooks_is_seen(self):
        steps = play("""
            start()
            train(loader(3))
            print(json.dumps(sink.steps()))
            """)
        self.assertEqual(without_loss(steps["1"]), STEP)

    def test_a_loss_on_the_host_is_told(self):
        steps = play("train(loader(3)); print(json.dumps(sink.steps()))")
        self.assertEqual(len([mark for mark in steps["1"] if mark.startswith("loss=")]), 1)

    def test_loader_workers_that_are_forked_change_nothing(self):
        steps = play("train(loader(4, workers=2)); print(json.dumps(sink.steps()))")
        self.assertEqual(sorted(map(int, steps)), [0, 1, 2, 3, 4])
        self.assertEqual(without_loss(steps["2"]), STEP)

    def test_an_evaluation_is_no_step(self):
        steps = play("""
            train(loader(3))
            model.eval()
            with torch.no_grad():
                for x, y in loader(20):
                    model(x)
            train(loader(2))
            print(json.dumps(sink.steps()))
            """)
        self.assertEqual(sorted(map(int, steps)), [0, 1, 2, 3, 4, 5])
        self.assertEqual([mark for mark in steps["3"] if "eval" in mark], ["+eval", "-eval"])

    def test_saving_is_a_checkpoint(self):
        steps = play("""
            import io
            train(loader(2))
            torch.save(model.state_dict(), io.BytesIO())
            train(loader(2))
            print(json.dumps(sink.steps()))
            """)
        self.assertEqual([mark for mark in steps["2"] if "checkpoint" in mark], ["+checkpoint", "-checkpoint"])

    def test_an_exception_of_the_job_passes_and_the_hooks_go_on(self):
        answer = play("""
            caught = []
            try:
                torch.nn.functional.mse_loss(model(torch.ones(1, 4)), torch.ones(1, 1)).detach().backward()
            except RuntimeError as error:
                caught.append(str(error))
            train(loader(3))
            print(json.dumps([caught, sink.steps()]))
            """)
        self.assertIn("grad", answer[0][0])
        self.assertEqual(without_loss(answer[1]["2"]), STEP)

    def test_a_loss_on_a_device_is_not_read(self):
        steps = play("""
            for x, y in loader(3):
                loss = torch.empty((), device="meta", requires_grad=True)
                torch.autograd.backward(loss, torch.empty((), device="meta"))
                optimizer.step()
            print(json.dumps(sink.steps()))
            """)
        self.assertEqual(steps["1"], STEP)

    def test_switched_off_the_hooks_pass_through(self):
        marks = play("""
            train(loader(3))
            _runtime.switch(False)
            sink.take()
            train(loader(3))
            off = sink.take()
            _runtime.switch(True)
            train(loader(1))
            print(json.dumps([off, sink.take()]))
            """)
        self.assertEqual(marks[0], "")
        self.assertIn("+backward", marks[1])

    def test_an_error_in_any_entry_point_says_one_line_and_switches_that_hook_off(self):
        entry_points = {
            "fetch_begin": "input", "fetch_end": "input", "backward_begin": "backward", "backward_end": "backward",
            "optimizer_begin": "optimizer", "optimizer_end": "optimizer",
        }  # fmt: skip
        for entry_point, hook in entry_points.items():
            for general in (True, False):  # at the first call of all, or amid quick steps
                with self.subTest(entry_point=entry_point, general=general):
                    answer, said = play_broken(entry_point, general)
                    self.assertEqual(answer["trained"], 12)
                    self.assertEqual(answer["calls"], 1)
                    self.assertEqual(len(said), 1, said)
                    self.assertIn(f"lockstep: {hook} hook failed (RuntimeError: broken {entry_point}) and is off", said[0])
                    others = {"input": "+forward", "backward": "+backward", "optimizer": "+optimizer"}
                    for other, mark in others.items():
                        seen = mark in answer["later"]
                        self.assertEqual(seen, other != hook, (other, answer["later"]))

    def test_learning_rate_schedulers_and_subclasses_count_once(self):
        steps = play("""
            class Mine(torch.optim.SGD):
                def step(self, closure=None):
                    return super().step(closure)
            optimizer = Mine(model.parameters(), lr=0.1)
            schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
            for x, y in loader(4):
                torch.nn.functional.mse_loss(model(x), y).backward()
                optimizer.step()
                schedule.step()
            print(json.dumps(sink.steps()))
            """)
        self.assertEqual(sorted(map(int, steps)), [0, 1, 2, 3, 4])

    def test_world_and_named_groups_are_told(self):
        marks = play("""
            import tempfile
            with tempfile.TemporaryDirectory() as folder:
                store = "file://" + folder + "/store"
                torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
                group = torch.distributed.new_group([0])
            print(json.dumps(sink.marks))
            """)
        self.assertEqual([mark for mark in marks if mark.startswith("group")], ["group world 0"])

    @unittest.skipUnless(support_library(), "liblockstep.so is not built")
    def test_a_job_without_a_launcher_is_known_by_what_it_tells_torch(self):
        with tempfile.TemporaryDirectory() as folder:
            code = f"""
import os, sys
sys.path.insert(0, {str(support.PACKAGE)!r})
import lockstep
lockstep.init()
from lockstep import _runtime
early = _runtime.started()
import torch.distributed as dist
dist.init_process_group("gloo", init_method="file://{folder}/store", rank=0, world_size=1)
print(early, os.environ.get("LOCKSTEP_RANK"), os.environ.get("LOCKSTEP_WORLD_SIZE"), _runtime.started())
"""
            environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "SLURM_PROCID")}
            environment["LOCKSTEP_RECORDER_DIR"] = folder
            done = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment
            )
            self.assertEqual((done.stdout.split(), done.stderr), (["False", "0", "1", "True"], ""))

    def test_torch_save_can_still_be_pickled_by_reference(self):
        self.assertTrue(play("import pickle; print(json.dumps(pickle.loads(pickle.dumps(torch.save)) is torch.save))"))

    def test_without_the_input_hook_there_is_no_input(self):
        code = f"""
import sys, json
sys.path.insert(0, {str(support.PACKAGE)!r})
import lockstep
lockstep.init(hooks=("optimizer",))
import torch
from torch.utils.data import dataloader
hooked = (dataloader._BaseDataLoaderIter.__next__, torch.autograd.backward)
print(json.dumps([hasattr(function, "_lockstep") for function in hooked]))
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
        self.assertEqual(json.loads(done.stdout), [False, False], done.stderr)


if __name__ == "__main__":
    unittest.main()
