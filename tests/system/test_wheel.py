"""The wheel: installed into an environment of its own without network, it is the whole of a node's side."""

import os
import pathlib
import subprocess
import sys
import venv
import zipfile

import pytest

import harness

JOB = """
import ctypes, time
import lockstep
from lockstep import _binaries
api = ctypes.CDLL(_binaries.library_path())
for step in range(3):
    api.lockstep_step_begin(ctypes.c_int64(step))
    time.sleep(0.05)  # the length of a step
    api.lockstep_step_end(ctypes.c_int64(step))
api.lockstep_shutdown()
print(lockstep.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Of the programs that the other tests use, as they are: for this machine alone."""
    out = tmp_path_factory.mktemp("wheel")
    made = subprocess.run(
        [sys.executable, harness.ROOT / "tools" / "make_wheel.py", "--build", harness.BIN.resolve().parent, "--out", out, "--local"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    (path,) = out.glob("lockstep-*-py3-none-linux_*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The environment's bin folder."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder)  # pip is the one of these tests: to install another takes longer than all else here
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "-q", "--no-index", "--disable-pip-version-check", wheel],
        capture_output=True, text=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("PIP_")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "bin"


@pytest.fixture
def environment(tmp_path):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOCKSTEP_", "PYTHONPATH", "NCCL_"))}
    (tmp_path / "tmp").mkdir()
    return {**kept, "LOCKSTEP_RECORDER_DIR": str(tmp_path / "recorders"), "TMPDIR": str(tmp_path / "tmp")}


@pytest.mark.limit(180)
def test_holds_what_a_node_needs_and_says_so(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        assert archive.testzip() is None
        info = next(name.split("/")[0] for name in names if ".dist-info/" in name)
        metadata = archive.read(f"{info}/METADATA").decode()
        recorded = {line.split(",")[0] for line in archive.read(f"{info}/RECORD").decode().splitlines()}
    assert {
        "lockstep/__init__.py", "lockstep/__main__.py", "lockstep/_binaries.py", "lockstep/include/lockstep.h",
        "lockstep/lib/liblockstep.so", "lockstep/lib/libnccl-profiler-lockstep.so",
        "lockstep/bin/lockstep", "lockstep/bin/lockstep-agent", "lockstep/bin/lockstepd", "lockstep/web/index.html",
        "lockstep/web/docs/runbooks/data-loader.md",
    } <= names  # fmt: skip
    assert recorded == names
    assert "Requires-Python: >=3.10" in metadata and "Requires-Dist" not in metadata
    assert not [name for name in names if "__pycache__" in name or name.startswith("/")]


@pytest.mark.limit(180)
def test_the_installed_command_gives_back_a_commands_status(installed, environment):
    run = subprocess.run(
        [installed / "lockstep", "run", "--no-agent", "--", "sh", "-c", "exit 7"],
        capture_output=True, text=True, env=environment, timeout=30,
    )  # fmt: skip
    assert run.returncode == 7, run.stderr
    told = subprocess.run(
        [installed / "python", "-m", "lockstep", "--version"], capture_output=True, text=True, env=environment, timeout=30
    )
    assert told.returncode == 0 and told.stdout.startswith("lockstep "), told.stderr


@pytest.mark.limit(180)
def test_steps_of_a_job_under_the_installed_command_arrive(installed, environment, server, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(JOB)
    run = subprocess.run(
        [installed / "lockstep", "run", "--server", "http://" + server.otlp_http, "--job", "from-wheel", "--",
         installed / "python", script],
        capture_output=True, text=True, env=environment, timeout=60,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    package = pathlib.Path(run.stdout.split()[-1]).parent
    assert installed.parent in package.parents, "the package is the installed one, not the source beside it"
    assert server.get("/api/jobs/from-wheel/steps")["steps"] == [0, 1, 2]
