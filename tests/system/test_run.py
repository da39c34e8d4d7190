"""`lockstep run`: the command's own status, what its processes find in their environment, one agent for all runs of a
node, and nothing left behind."""

import gzip
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys

import pytest

import harness

# A rank: the library that `lockstep run` names, three steps.
RANK = """
import ctypes, os, sys, time
api = ctypes.CDLL(os.environ["LOCKSTEP_LIBRARY"])
api.lockstep_scalar.argtypes = [ctypes.c_char_p, ctypes.c_double]
assert api.lockstep_init() == 1
for step in range(3):
    api.lockstep_step_begin(ctypes.c_int64(step))
    time.sleep(0.05)  # the length of a step
    api.lockstep_scalar(b"loss", 2.0 - step)
    api.lockstep_step_end(ctypes.c_int64(step))
while len(sys.argv) > 1 and not os.path.exists(sys.argv[1]):
    time.sleep(0.02)  # the interval of the poll
api.lockstep_shutdown()
"""


@pytest.fixture
def world(tmp_path):
    """A node of its own: recorder folder and folder for temporary files. At the end, nobody may be left in it."""
    recorders, temporary = tmp_path / "recorders", tmp_path / "tmp"
    temporary.mkdir()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("LOCKSTEP_", "OTEL_", "NCCL_"))},
        "LOCKSTEP_RECORDER_DIR": str(recorders),
        "TMPDIR": str(temporary),
    }

    class World:
        env = environment

        @staticmethod
        def command(*arguments):
            return [str(harness.BIN / "lockstep"), "run", *map(str, arguments)]

        def run(self, *arguments, timeout=40, **more):
            return subprocess.run(
                self.command(*arguments), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout,
                env={**environment, **more},
            )  # fmt: skip

        def start(self, *arguments, **more):
            return subprocess.Popen(
                self.command(*arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True, env={**environment, **more},
            )  # fmt: skip

        @staticmethod
        def agents():
            """Processes of lockstep-agent that read this world's recorders, without a child of theirs that is still called like them."""
            parents = {}
            for entry in pathlib.Path("/proc").glob("[0-9]*"):
                try:
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                    if words[0].endswith(b"/lockstep-agent") and str(recorders).encode() in words:
                        parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                except OSError:
                    continue
            return [pid for pid, parent in parents.items() if parent not in parents]

        @staticmethod
        def leftovers():
            names = [path.name for path in recorders.glob("*")] if recorders.exists() else []
            return sorted(set(names) - {"run.lock"}) + [path.name for path in temporary.glob("lockstep-run-*")]

    one = World()
    yield one
    for pid in one.agents():
        os.kill(pid, signal.SIGKILL)


def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(RANK)
    return path


def job_of(run):
    assert run.stderr.startswith("lockstep run: job "), run.stderr
    return run.stderr.split()[3].rstrip(";")


def test_ends_with_the_commands_own_status(world):
    assert world.run("--no-agent", "--", "sh", "-c", "exit 7").returncode == 7
    assert world.run("--no-agent", "--", "sh", "-c", "kill -KILL $$").returncode == 128 + signal.SIGKILL
    assert world.run("--no-agent", "sh", "-c", "exit 3").returncode == 3, "also without --"
    printed = world.run("--no-agent", "--", "echo", "--server", "x")
    assert (printed.returncode, printed.stdout) == (0, "--server x\n"), "what follows the command is the command's"


def test_says_in_one_line_what_is_wrong_with_the_command(world, tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("no program")
    for arguments, code, words in [
        (["--"], 2, "no command"),
        ([], 2, "no command"),
        (["--jbo", "x", "--", "true"], 2, "--job"),
        (["--", "no-such-command-anywhere"], 127, 'no command "no-such-command-anywhere"'),
        (["--", tmp_path / "nowhere"], 127, "no command"),
        (["--", plain], 126, "cannot be executed"),
    ]:
        run = world.run(*arguments)
        assert (run.returncode, run.stdout) == (code, ""), (arguments, run.stderr)
        assert words in run.stderr and run.stderr.count("\n") == 1, run.stderr
    assert not world.leftovers() and not world.agents()


def environment_of(run):
    return dict(line.split("=", 1) for line in run.stdout.splitlines() if "=" in line)


def test_the_commands_processes_find_plugin_library_hook_and_job(world):
    found = environment_of(world.run("--no-agent", "--", "env", PYTHONPATH="/somewhere"))
    assert os.path.isabs(found["NCCL_PROFILER_PLUGIN"]) and os.path.isfile(found["NCCL_PROFILER_PLUGIN"])
    assert os.path.isfile(found["LOCKSTEP_LIBRARY"])
    assert found["LOCKSTEP_JOB_ID"].startswith("env-")
    assert found["TORCH_FR_BUFFER_SIZE"] == "2000"
    assert "LOCKSTEP_CHAIN_PLUGIN" not in found
    if "LOCKSTEP_AUTO" in found:  # the hook is beside the program, as in a build tree and in a wheel
        hook, rest = found["PYTHONPATH"].split(":", 1)
        assert os.path.isfile(os.path.join(hook, "sitecustomize.py")) and rest == "/somewhere"
    found = environment_of(world.run("--no-agent", "--no-hook", "--job", "mine", "--", "env"))
    assert found["LOCKSTEP_JOB_ID"] == "mine"
    assert "LOCKSTEP_AUTO" not in found and "PYTHONPATH" not in found


def test_what_the_user_has_set_stands(world):
    found = environment_of(
        world.run("--no-agent", "--", "env", NCCL_PROFILER_PLUGIN="inspector", SLURM_JOB_ID="4711", TORCH_FR_BUFFER_SIZE="10")
    )  # fmt: skip
    assert found["LOCKSTEP_CHAIN_PLUGIN"] == "inspector" and "lockstep" in found["NCCL_PROFILER_PLUGIN"]
    assert found["TORCH_FR_BUFFER_SIZE"] == "10"
    assert "LOCKSTEP_JOB_ID" not in found, "the scheduler's name is found by every rank itself"
    assert environment_of(world.run("--no-agent", "--", "env", NCCL_PROFILER_PLUGIN="none"))["NCCL_PROFILER_PLUGIN"] == "none"
    assert "LOCKSTEP_JOB_ID" not in environment_of(world.run("--no-agent", "--", "env", RANK="3")), "a launcher's rank"
    found = environment_of(world.run("--", "env", LOCKSTEP_DISABLE="1"))
    assert "NCCL_PROFILER_PLUGIN" not in found and not world.leftovers()


# Two processes of one group; neither passes anything on to the other.
TWO = """
import os, signal, sys, time
number, path = int(sys.argv[1]), sys.argv[2]
def write(word):
    with open(path, "a") as file:
        file.write(word + " ")
def handler(name, code):
    def on_signal(*_):
        write(name)
        if name == "parent":
            os.wait()
        os._exit(code)
    signal.signal(number, on_signal)
handler("parent", 9)  # before there is a child that says "up"
if os.fork() == 0:
    handler("child", 0)
    write("up")
while True:
    time.sleep(0.02)  # until a signal ends it
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1], ids=lambda number: number.name)
def test_passes_signals_on_to_the_commands_group(world, tmp_path, number):
    told = tmp_path / "told"
    with world.start("--no-agent", "--no-hook", "--", sys.executable, "-c", TWO, int(number), told) as run:
        try:
            harness.eventually(lambda: told.exists() and told.read_text() == "up ", 20, "the command runs")
            run.send_signal(number)
            assert run.wait(timeout=20) == 9
        finally:
            run.kill()
    assert sorted(told.read_text().split()) == ["child", "parent", "up"]


def test_a_job_of_one_arrives_and_nothing_is_left_behind(world, server, tmp_path):
    run = world.run("--server", "http://" + server.otlp_http, "--", sys.executable, script(tmp_path), LOCKSTEP_SERVER=server.url)
    assert run.returncode == 0, run.stderr
    job = job_of(run)
    assert job.startswith("train-")
    assert "agent started" in run.stderr and f"{server.url}/jobs/{job}" in run.stderr
    assert run.stderr.count("\n") == 1, run.stderr
    # Sent before `lockstep run` ended: no waiting here.
    window = server.get(f"/api/jobs/{job}/steps", last=10)
    assert window["steps"] == [0, 1, 2] and window["ranks"] == [0]
    assert all(50 <= ms < 500 for ms in window["duration_ms"][0]), window
    assert server.get(f"/api/jobs/{job}")["state"] == "ended"
    assert not world.agents() and not world.leftovers()


def test_without_a_server_the_job_runs(world, tmp_path):
    run = world.run("--", sys.executable, script(tmp_path), OTEL_EXPORTER_OTLP_ENDPOINT="http://" + harness.unused_address())
    assert run.returncode == 0, run.stderr
    assert "no server answers" in run.stderr and run.stderr.count("\n") == 1, run.stderr
    assert not world.agents() and not world.leftovers()


def test_what_a_server_that_was_asked_for_has_not_got_is_kept(world, tmp_path):
    run = world.run("--server", "http://" + harness.unused_address(), "--", sys.executable, script(tmp_path))
    assert run.returncode == 0, run.stderr
    assert "has not got everything" in run.stderr, run.stderr
    kept = pathlib.Path(run.stderr.split()[-1])
    assert list((kept / "spool").glob("*.otlp"))
    assert not world.agents()


def test_runs_of_one_node_share_an_agent_and_the_last_ends_it(world, server, tmp_path):
    train, go = script(tmp_path), [tmp_path / "go0", tmp_path / "go1"]
    where = ["--server", "http://" + server.otlp_http, "--job", "shared"]
    runs = [
        world.start(*where, "--", sys.executable, train, go[rank], RANK=str(rank), WORLD_SIZE="2") for rank in range(2)
    ]
    harness.eventually(lambda: len(list(pathlib.Path(world.env["LOCKSTEP_RECORDER_DIR"]).glob("*.lsfr"))) == 2, 20, "both record")
    assert len(world.agents()) == 1
    go[0].touch()
    assert runs[0].wait(timeout=20) == 0
    assert len(world.agents()) == 1, "the other still needs it"
    go[1].touch()
    assert runs[1].wait(timeout=20) == 0
    said = [run.communicate()[1] for run in runs]
    assert sorted(["agent started" in text for text in said]) == [False, True], said
    assert not world.agents() and not world.leftovers()
    assert server.get("/api/jobs/shared/steps", last=10)["ranks"] == [0, 1]


def test_a_running_agent_is_used_and_left_alone(world, start, server, tmp_path):
    recorders = pathlib.Path(world.env["LOCKSTEP_RECORDER_DIR"])
    recorders.mkdir(mode=0o700)
    agent = start(harness.Agent, tmp_path / "agent", recorders, server=server.otlp_http)
    run = world.run("--job", "there", "--", sys.executable, script(tmp_path))
    assert run.returncode == 0 and "an agent is running" in run.stderr, run.stderr
    assert world.agents() == [agent.pid] and world.leftovers() == ["dynolog"], "where profilers ask it"
    harness.eventually(lambda: server.get("/api/jobs/there/steps")["steps"] == [0, 1, 2], 10, "the steps arrive")


def test_pytorchs_profiler_is_told_to_ask_only_where_an_agent_listens(world, start, server, tmp_path):
    recorders = harness.short_folder()  # the path of a socket is short
    try:
        run = ["--server", "http://" + server.otlp_http, "--", "env"]
        found = environment_of(world.run(*run, LOCKSTEP_RECORDER_DIR=str(recorders)))
        assert found["KINETO_USE_DAEMON"] == "1" and found["KINETO_IPC_SOCKET_DIR"] == str(recorders)
        # An agent that takes no orders, and what one that was killed has left.
        start(harness.Agent, tmp_path / "agent", recorders, server=server.otlp_http, more=["--commands", "off"])
        assert "KINETO_USE_DAEMON" not in environment_of(world.run(*run, LOCKSTEP_RECORDER_DIR=str(recorders)))
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as killed:
            killed.bind(str(recorders / "dynolog"))
        assert "KINETO_USE_DAEMON" not in environment_of(world.run(*run, LOCKSTEP_RECORDER_DIR=str(recorders)))
    finally:
        shutil.rmtree(recorders, ignore_errors=True)


def test_the_recorder_of_a_rank_that_was_killed_is_on_the_server_with_its_verdict(world, server, tmp_path):
    killed = tmp_path / "killed.py"
    killed.write_text(RANK.replace("api.lockstep_shutdown()", "os.kill(os.getpid(), 9)"))
    run = world.run("--server", "http://" + server.otlp_http, "--job", "dies", "--", sys.executable, killed)
    assert run.returncode == 128 + signal.SIGKILL, run.stderr
    with_file = lambda: [v for v in server.get("/api/jobs/dies/why")["verdicts"] if v["files"]]
    (verdict,) = harness.eventually(with_file, 30, "the verdict and the recorder")
    (file,) = verdict["files"]
    assert file["rank"] == 0 and file["kind"] == "recorder", file
    recorder = gzip.decompress(harness.request(server.http, "GET", file["query"]).body)
    assert recorder.startswith(b"LOCKSTEP") and b"dies\0" in recorder
    assert file["query"] in harness.lockstep("why", "dies", "--server", server.url).stdout
    for folder in pathlib.Path(world.env["TMPDIR"]).glob("lockstep-run-*"):
        shutil.rmtree(folder)  # what lockstep postmortem would read


def test_a_run_inside_a_run_starts_no_second_agent(world, server, tmp_path):
    inner = world.command("--", sys.executable, script(tmp_path))
    run = world.run("--server", "http://" + server.otlp_http, "--job", "outer", "--", *inner)
    assert run.returncode == 0, run.stderr
    assert "the agent of the run around it" in run.stderr and run.stderr.count("agent started") == 1
    assert server.get("/api/jobs/outer/steps")["steps"] == [0, 1, 2]
    assert not world.agents() and not world.leftovers()


def test_an_agent_whose_runs_were_killed_ends_by_itself(world, server):
    with world.start("--server", "http://" + server.otlp_http, "--", "sh", "-c", "echo up; exec sleep 60") as run:
        assert run.stdout.readline() == "up\n" and world.agents()
        run.kill()
    harness.eventually(lambda: not world.agents(), 15, "the agent has noticed that nobody needs it")


def test_a_server_that_the_agent_does_not_send_to_is_refused_not_ignored(world, server, start, tmp_path):
    end = tmp_path / "end"
    first = world.start("--server", server.url, "--", sys.executable, script(tmp_path), end)
    try:
        line = first.stderr.readline()
        assert f"agent started, sends to http://{server.otlp_http};" in line and f"{server.url}/jobs/" in line, line
        for same in (server.http, server.otlp_http, server.otlp_grpc):
            run = world.run("--server", "http://" + same, "--", "true")
            assert run.returncode == 0 and "the agent of another run serves" in run.stderr, run.stderr
        elsewhere = harness.unused_address()
        run = world.run("--server", "http://" + elsewhere, "--", "touch", tmp_path / "was-run")
        assert run.returncode == 2 and run.stderr.count("\n") == 1, run.stderr
        assert elsewhere in run.stderr and f"sends to http://{server.otlp_http}" in run.stderr, run.stderr
        assert not (tmp_path / "was-run").exists()
    finally:
        end.touch()
        first.communicate(timeout=30)
    assert first.returncode == 0
    run = world.run("--no-agent", "--server", server.url, "--", "true")
    assert run.returncode == 2 and "--no-agent" in run.stderr, run.stderr
    other = start(harness.Agent, tmp_path / "agent", world.env["LOCKSTEP_RECORDER_DIR"], server.otlp_http)
    run = world.run("--server", server.url, "--", "true")
    assert run.returncode == 2 and "where its own settings say" in run.stderr, "its page is not where agents usually are"
    assert world.run("--", "true").returncode == 0
    other.stop()


def test_the_server_of_the_command_line_is_the_agents_too(world, server):
    run = world.run("--", "true", LOCKSTEP_SERVER=server.url)
    assert run.returncode == 0 and f"sends to http://{server.otlp_http}" in run.stderr, run.stderr
