"""An exception that ends a process leaves its type and one line, and never harms the job."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import support  # noqa: F401  (finds the package)
from lockstep import _failure

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python"

# A process that has a recorder's file, as the library would make it, and the hooks.
SCRIPT = """
import os, sys, threading
sys.path.insert(0, {package!r})
from lockstep import _evidence, _failure
with open('/proc/self/stat', 'rb') as file:
    ticks = file.read().rpartition(b')')[2].split()[19].decode()
stem = os.environ['LOCKSTEP_RECORDER_DIR'] + f'/{{os.getpid()}}-{{ticks}}'
open(stem + '.lsfr', 'w').close()
before = sys.excepthook
def own(*arguments):
    print('own hook', arguments[0].__name__, flush=True)
    before(*arguments)
sys.excepthook = own
_failure.install()
_failure.install()
{body}
"""


class OneLine(unittest.TestCase):
    def test_is_the_first_that_says_anything_without_what_a_terminal_acts_on(self):
        self.assertEqual(_failure.one_line("\n\n  bad \x1b[31mvalue\n at line 2", 200), "bad  [31mvalue")
        self.assertEqual(_failure.one_line("", 200), "")

    def test_is_cut_between_characters(self):
        self.assertEqual(_failure.one_line("é" * 200, 201), "é" * 100)


class Failure(unittest.TestCase):
    def run_script(self, body, recorder=True, off=False):
        with tempfile.TemporaryDirectory() as folder:
            script = SCRIPT.format(package=str(PACKAGE), body=body)
            if not recorder:
                script = script.replace("open(stem + '.lsfr', 'w').close()", "")
            done = subprocess.run(
                [sys.executable, "-c", script],
                capture_output=True,
                text=True,
                timeout=60,
                env={**os.environ, "LOCKSTEP_RECORDER_DIR": folder, "LOCKSTEP_REASONS": "0" if off else ""},
            )
            left = [path.read_text() for path in pathlib.Path(folder).glob("*.failed")]
            self.assertFalse(list(pathlib.Path(folder).glob("*.new")))
        return done, left[0] if left else None

    def test_type_and_one_line_are_left_and_the_jobs_own_hook_runs(self):
        done, left = self.run_script("raise ValueError('index 7 is out of bounds\\nsecret = 42')")
        self.assertEqual(done.returncode, 1)
        self.assertIn("own hook ValueError", done.stdout)
        self.assertIn("secret = 42", done.stderr, "the job's log is as ever")
        self.assertIn("type ValueError\nmessage index 7 is out of bounds\n", left)
        self.assertNotIn("secret", left)
        self.assertNotIn("Traceback", left)

    def test_a_message_that_cannot_be_had_or_never_ends_does_no_harm(self):
        body = "class Odd(Exception):\n    def __str__(self): raise RuntimeError('no')\nraise Odd()"
        done, left = self.run_script(body)
        self.assertEqual(done.returncode, 1)
        self.assertIn("type Odd\nmessage \n", left)
        done, left = self.run_script("raise ValueError('x' * 10_000_000)")
        self.assertEqual(done.returncode, 1)
        self.assertLess(len(left), 600)

    def test_being_asked_to_end_is_no_failure(self):
        for body in ("raise KeyboardInterrupt", "sys.exit(3)"):
            _, left = self.run_script(body)
            self.assertIsNone(left, body)

    def test_nothing_is_left_where_reasons_are_off(self):
        done, left = self.run_script("raise ValueError('x')", off=True)
        self.assertEqual(done.returncode, 1)
        self.assertIsNone(left)

    def test_a_process_without_a_recorder_leaves_nothing(self):
        done, left = self.run_script("raise ValueError('x')", recorder=False)
        self.assertEqual(done.returncode, 1)
        self.assertIsNone(left)

    def test_a_folder_that_is_gone_does_no_harm(self):
        done, left = self.run_script("import shutil; shutil.rmtree(os.environ['LOCKSTEP_RECORDER_DIR']); raise ValueError('x')")
        self.assertEqual(done.returncode, 1)
        self.assertIn("own hook ValueError", done.stdout)

    def test_of_a_thread_it_is_said_so_and_the_main_one_comes_after(self):
        body = "thread = threading.Thread(target=lambda: 1 / 0, name='loader')\nthread.start()\nthread.join()\n"
        done, left = self.run_script(body)
        self.assertEqual(done.returncode, 0)
        self.assertIn("type ZeroDivisionError\n", left)
        self.assertIn("thread loader\n", left)
        _, left = self.run_script(body + "raise ValueError('of the main one')")
        self.assertIn("message of the main one\n", left)
        self.assertNotIn("thread", left)


if __name__ == "__main__":
    unittest.main()
