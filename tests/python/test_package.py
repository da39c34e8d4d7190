"""The package as a job meets it: cheap to import, idempotent, silent when off, and never the reason a job fails."""

import contextlib
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from support import PACKAGE, ROOT, Marked

import lockstep
from lockstep import _groups, _guard, _import_hook, _library, _runtime, install_hook


def python(code, path=(PACKAGE,), **environment):
    """A process of its own."""
    environment = {key: str(value) for key, value in environment.items()}
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), **environment},
    )


class Package(unittest.TestCase):
    def setUp(self):
        _guard._said.clear()
        _groups.forget()
        self.sink = Marked()
        _runtime.use_sink(self.sink)
        self.said = io.StringIO()
        redirect = contextlib.redirect_stderr(self.said)
        redirect.__enter__()
        self.addCleanup(redirect.__exit__, None, None, None)
        self.addCleanup(_runtime.reset)

    def test_steps_phases_numbers_notes_and_groups_reach_the_recorder(self):
        with lockstep.step(3):
            with lockstep.phase("input"):
                pass
            with lockstep.phase("rollout"):
                lockstep.log(loss=2.5, tokens=100, reward=1)
            lockstep.note("a new data set")
        lockstep.group("tp", [0, 1])
        self.assertEqual(
            self.sink.take(),
            "step 3 +input -input +rollout loss=2.5 tokens=100 reward=1 -other note a new data set end 3 group tp 0,1",
        )

    def test_an_exception_of_the_job_passes_through_step_and_phase(self):
        with self.assertRaises(KeyError):
            with lockstep.step(), lockstep.phase("x"):
                raise KeyError("the job's own")
        self.assertEqual(self.sink.take(), "step 0 +x -other end 0")

    def test_an_error_inside_says_one_line_and_switches_that_function_off(self):
        class Broken(Marked):
            def scalar(self, name, value):
                raise OSError("the recorder is gone")

        _runtime.use_sink(Broken())
        inner = lockstep.log.__wrapped__
        log = _guard.guarded("log")(inner)
        for _ in range(3):
            self.assertIsNone(log(loss=1.0))
        self.assertEqual(self.said.getvalue().count("\n"), 1, self.said.getvalue())
        self.assertIn("the recorder is gone", self.said.getvalue())

    def test_what_is_not_a_number_is_left_out_with_one_line(self):
        for _ in range(2):
            lockstep.log(loss="high", grad_norm=1.5)
        self.assertEqual(self.sink.take(), "grad_norm=1.5 grad_norm=1.5")
        self.assertEqual(self.said.getvalue().count("\n"), 1)

    def test_a_number_on_a_gpu_is_never_read(self):
        class Device:
            type = "cuda"

        class Tensor:
            device = Device()

            def detach(self):
                raise AssertionError("this would stop the GPU")

            __float__ = detach

        lockstep.log(loss=Tensor(), tokens=5)
        self.assertEqual(self.sink.take(), "tokens=5")
        self.assertIn("cuda", self.said.getvalue())

    def test_flops_and_peak_go_with_every_step_and_give_mfu(self):
        now = [0]
        _runtime.use_sink(self.sink, clock=lambda: now[0])
        lockstep.set_flops(per_step=3e9, peak=1e12)
        for _ in range(4):
            with lockstep.step():
                now[0] += 10_000_000
        self.assertEqual(self.sink.take().split(" end ")[0], "step 0 flops=3e+09 peak_flops=1e+12")
        summary = lockstep.summary()
        self.assertEqual(summary["steps"], 4)
        self.assertAlmostEqual(summary["mean_step_ms"], 10)
        self.assertAlmostEqual(summary["mfu"], 0.3)

    def test_flops_by_formula_follow_the_tokens_of_the_step(self):
        lockstep.set_flops(model={"parameters": 1e6}, peak=1e12)
        with lockstep.step():
            lockstep.log(tokens=50)
        self.assertIn("flops=3e+08", self.sink.take())

    def test_a_group_is_told_once_and_again_to_a_recorder_made_later(self):
        _runtime.reset()
        _groups.add("dp", [0, 2])
        later = Marked()
        _groups.tell_all(later)
        self.assertFalse(_groups.add("dp", [0, 2], later))
        self.assertEqual(later.take(), "group dp 0,2")

    def test_descriptions_of_groups_become_roles(self):
        names = [
            _groups.role(text) for text in ("TENSOR_MODEL_PARALLEL_GROUP", "undefined", "", None, "default_pg", "mine")
        ]
        self.assertEqual(names, ["tp", None, None, None, "world", "mine"])

    def test_an_unknown_option_is_one_line_not_an_error(self):
        lockstep.init(loudness=11, hooks=())
        self.assertIn("loudness", self.said.getvalue())

    def test_shutdown_ends_what_is_open_and_everything_after_is_nothing(self):
        lockstep.step_begin(1)
        lockstep.shutdown()
        lockstep.step_begin(2)
        lockstep.shutdown()
        self.assertEqual(self.sink.take(), "step 1 end 1 shutdown")
        self.assertFalse(lockstep.enabled())

    def test_a_forked_child_marks_nothing(self):
        lockstep.step_begin(1)
        self.sink.take()
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            lockstep.step_begin(2)
            lockstep.log(loss=1)
            os.write(writer, (self.sink.take() + "|" + str(lockstep.enabled())).encode())
            os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)
        with os.fdopen(reader) as pipe:
            self.assertEqual(pipe.read(), "|False")
        lockstep.step_begin(3)
        self.assertEqual(self.sink.take(), "step 3")


class Processes(unittest.TestCase):
    def test_the_import_brings_next_to_nothing(self):
        # What it costs in time is in bench/results/python-hook.md; a test counts what is imported.
        code = "import sys; before = set(sys.modules); import lockstep; print(*sorted(set(sys.modules) - before))"
        brought = set(python("import contextlib, functools, os\n" + code).stdout.split())
        self.assertEqual(brought, {"lockstep", "lockstep._guard"})

    def test_a_job_without_the_library_runs_on_with_one_line(self):
        code = (
            "import lockstep\nfor n in range(3):\n with lockstep.step(): lockstep.log(loss=1)\n"
            "print(lockstep.enabled(), lockstep.summary())"
        )
        done = python(code, LOCKSTEP_LIBRARY="/nowhere/liblockstep.so")
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "False {'steps': 0}"))
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_a_library_that_is_none_is_one_line_too(self):
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            done = python("import lockstep; lockstep.step_begin(); print('on')", LOCKSTEP_LIBRARY=file.name)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "on"))
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_disabled_means_silent_and_without_a_trace(self):
        with tempfile.TemporaryDirectory() as folder:
            code = (
                "import lockstep, sys; print(lockstep.init(), lockstep.enabled()); lockstep.step_begin();"
                "finders = [f for f in sys.meta_path if 'lockstep' in type(f).__module__];"
                "print(lockstep.summary(), len(finders))"
            )
            done = python(code, LOCKSTEP_DISABLE=1, RANK=0, LOCKSTEP_RECORDER_DIR=folder)
            self.assertEqual(done.stdout.split("\n")[:2], ["False False", "{'steps': 0} 0"])
            self.assertEqual((done.stderr, os.listdir(folder)), ("", []))

    @unittest.skipUnless(_library.find(), "liblockstep.so is not built")
    def test_the_real_library_records_and_a_worker_that_is_forked_does_not(self):
        with tempfile.TemporaryDirectory() as folder:
            code = """
import os, lockstep
lockstep.init(job_id="j", rank=0, world_size=1)
for n in range(3):
    with lockstep.step(n), lockstep.phase("rollout"):
        lockstep.log(loss=n)
lockstep.note("done"); lockstep.group("world", [0])
child = os.fork()
if child == 0:
    lockstep.step_begin(99)
    os._exit(0)
os.waitpid(child, 0)
print(lockstep.enabled(), lockstep.summary()["steps"])
"""
            done = python(code, LOCKSTEP_RECORDER_DIR=folder)
            self.assertEqual((done.stdout.strip(), done.stderr), ("True 3", ""))
            self.assertEqual(len([name for name in os.listdir(folder) if name.endswith(".lsfr")]), 1)


@unittest.skipUnless(_library.find(), "liblockstep.so is not built")
class Stacks(unittest.TestCase):
    """What the agent may ask for is offered beside the recorder, and only there."""

    BEGIN = """
import os, pathlib, signal, sys, time, lockstep
folder = pathlib.Path(os.environ["LOCKSTEP_RECORDER_DIR"])
lockstep.init(job_id="j", rank=0, world_size=1)
def word():
    return dict(line.split(" ", 1) for line in next(folder.glob("*.hook")).read_text().splitlines())
def answer():
    return next(folder.glob("*.stacks")).read_text()
"""

    def run_with(self, code, **environment):
        with tempfile.TemporaryDirectory() as folder:
            done = python(self.BEGIN + code, LOCKSTEP_RECORDER_DIR=folder, **environment)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertFalse([name for name in os.listdir(folder) if not name.endswith(".lsfr")], "left behind")
            return done.stdout.strip()

    def test_the_signal_that_is_told_gives_the_stack_and_nothing_else_happens(self):
        said = self.run_with("""
def stuck():
    os.kill(os.getpid(), int(word()["signal"]))
    while "in stuck" not in answer():
        time.sleep(0.01)  # the interval of the poll
stuck()
assert f"{int(word()['main'], 16):#018x}" in answer(), answer()
print("lives")
""")
        self.assertEqual(said, "lives")

    def test_a_signal_that_somebody_uses_is_left_to_them(self):
        said = self.run_with("print(int(word()['signal']) - signal.SIGRTMIN)")
        code = "import signal; signal.signal(signal.SIGRTMIN + %s, lambda *_: None)\n" % said
        with tempfile.TemporaryDirectory() as folder:
            done = python(
                code + self.BEGIN + "print(int(word()['signal']) - signal.SIGRTMIN)", LOCKSTEP_RECORDER_DIR=folder
            )
        self.assertNotEqual(done.stdout.strip(), said, done.stderr)

    def test_a_forked_child_neither_answers_for_its_parent_nor_dies_of_it(self):
        said = self.run_with("""
number = int(word()["signal"])
child = os.fork()
if child == 0:
    os.kill(os.getpid(), number)  # which arrives before the call is over: nobody else can take it
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), repr(answer()))
""")
        self.assertEqual(said, "7 ''")

    def test_forbidden_it_offers_no_stack_but_says_so(self):
        said = self.run_with("print(word(), list(folder.glob('*.stacks')))", LOCKSTEP_STACKS=0)
        self.assertEqual(said, "{'stacks': 'off'} []")

    def test_what_a_script_sets_before_it_makes_its_groups_is_told(self):
        said = self.run_with("""
os.environ["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] = "/tmp/trace_"
os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] = "/tmp/pipe_"
lockstep.group("world", [0])
print(word()["dump"], word()["pipe"])
""")
        self.assertEqual(said, "/tmp/trace_ /tmp/pipe_")


class ImportHooks(unittest.TestCase):
    def modules(self, **files):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for name, text in files.items():
            path = pathlib.Path(folder.name, *name.split("__")).with_suffix(".py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return pathlib.Path(folder.name)

    def test_a_function_runs_right_after_the_module_and_before_its_importer_goes_on(self):
        folder = self.modules(waited="x = 1", importer="import waited\ny = waited.x", other="z = 1")
        sys.path.insert(0, str(folder))
        self.addCleanup(sys.path.remove, str(folder))
        _import_hook.after_import("waited", lambda module: setattr(module, "x", 2))
        import importer
        import waited

        self.assertEqual(importer.y, 2)
        self.assertNotIn("lockstep", type(waited.__spec__.loader).__module__)
        seen = []
        _import_hook.after_import("waited", seen.append)  # already there: at once
        self.assertEqual(seen, [waited])

    def test_an_error_of_the_module_is_the_one_it_would_be_without_us(self):
        folder = self.modules(fails="raise ValueError('its own')")
        sys.path.insert(0, str(folder))
        self.addCleanup(sys.path.remove, str(folder))
        _import_hook.after_import("fails", lambda module: None)
        _import_hook.after_import("absent_module", lambda module: None)
        with self.assertRaisesRegex(ValueError, "its own"):
            import fails  # noqa: F401
        with self.assertRaises(ModuleNotFoundError):
            import absent_module  # noqa: F401

    def test_sitecustomize_waits_for_torch_and_runs_the_one_it_hides(self):
        folder = self.modules(
            sitecustomize="import builtins; builtins.hidden = 'ran'",
            torch____init__="",
        )
        hook = PACKAGE / "lockstep" / "_hook"
        code = (
            "import sys; before = 'lockstep._torch_hooks' in sys.modules; import torch;"
            "print(hidden, before, 'lockstep._torch_hooks' in sys.modules, sys.modules['sitecustomize'].__file__)"
        )
        done = python(code, path=(hook, folder), LOCKSTEP_AUTO=1)
        self.assertEqual(done.stdout.split(), ["ran", "False", "True", str(folder / "sitecustomize.py")], done.stderr)
        for off in ({"LOCKSTEP_AUTO": "0"}, {"LOCKSTEP_AUTO": "1", "LOCKSTEP_DISABLE": "1"}):
            done = python(code, path=(hook, folder), **off)
            self.assertEqual(done.stdout.split()[:3], ["ran", "False", "False"], done.stderr)

    def test_sitecustomize_makes_no_recorder_in_a_process_that_does_not_train(self):
        folder = self.modules(torch____init__="")
        with tempfile.TemporaryDirectory() as recorders:
            done = python(
                "import torch",
                path=(PACKAGE / "lockstep" / "_hook", folder),
                LOCKSTEP_AUTO=1,
                RANK=0,
                LOCKSTEP_RECORDER_DIR=recorders,
            )
            self.assertEqual((done.returncode, done.stderr, os.listdir(recorders)), (0, "", []))

    def test_a_broken_package_does_not_stop_python(self):
        folder = self.modules(_hook__sitecustomize=(PACKAGE / "lockstep" / "_hook" / "sitecustomize.py").read_text())
        done = python("print('on')", path=(folder / "_hook",), LOCKSTEP_AUTO=1)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "on"))
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_install_hook_writes_and_removes_a_pth_that_switches_the_hook_on(self):
        folder = self.modules(torch____init__="")
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(install_hook.main(["--to", str(folder)]), 0)
        code = (
            f"import site, sys; site.addsitedir({str(folder)!r}); import torch;"
            "print('lockstep._torch_hooks' in sys.modules)"
        )
        self.assertEqual(python(code, path=()).stdout.strip(), "True")
        self.assertEqual(python(code, path=(), LOCKSTEP_DISABLE=1).stdout.strip(), "False")
        with contextlib.redirect_stdout(io.StringIO()):
            for _ in range(2):
                self.assertEqual(install_hook.main(["--to", str(folder), "--remove"]), 0)
        self.assertEqual(list(folder.glob("*.pth")), [])


class Table(unittest.TestCase):
    def test_the_versions_agree(self):
        text = (ROOT / "CMakeLists.txt").read_text()
        self.assertIn(f"VERSION {lockstep.__version__} ", text)


if __name__ == "__main__":
    unittest.main()
