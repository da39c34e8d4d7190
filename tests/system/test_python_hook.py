"""The Python package under real torch (CPU, gloo, four ranks), with the real recorder, agent and server.

Training runs with the system's Python, for which Debian has torch; LOCKSTEP_TORCH_PYTHON names another.
"""

import ast
import os
import pathlib
import statistics
import subprocess
import sys

import pytest

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

import harness

PYTHON = os.environ.get("LOCKSTEP_TORCH_PYTHON", "/usr/bin/python3")
PACKAGE = harness.ROOT / "python"
SCRIPT = harness.ROOT / "tests" / "python" / "train_ddp.py"
LIBRARY = harness.BIN.resolve().parent / "lib" / "liblockstep.so"
RANKS = 4
STEPS = 12
SURE_STEPS = 160  # a verdict is sure once the node had six seconds to say what it knows
SLOW_RANK = 2
TRAINED_S = 200  # four processes that import torch, on a small machine
DELIVERED_S = 40

pytestmark = pytest.mark.limit(300)


@pytest.fixture(scope="module", autouse=True)
def torch():
    """Asked for when the first test is run: to import it takes seconds, and every worker of pytest reads every file."""
    found = subprocess.run([PYTHON, "-c", "import torch.distributed as d; assert d.is_available()"], capture_output=True)
    if found.returncode != 0:
        pytest.skip(f"{PYTHON} has no torch with torch.distributed (Debian: python3-torch)")


@pytest.fixture
def recorders(tmp_path):
    folder = tmp_path / "recorders"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def ranks(recorders):
    """ranks(name, script, arguments, environment): trains on four ranks, or `count`; returns what each printed."""
    running = []

    def train(name, script, *arguments, count=RANKS, fails=False, **environment):
        port = harness.unused_port()
        for rank in range(count):
            running.append(
                subprocess.Popen(
                    [PYTHON, str(script), *map(str, arguments)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    env={
                        **os.environ,
                        "RANK": str(rank),
                        "LOCAL_RANK": str(rank),
                        "WORLD_SIZE": str(count),
                        "MASTER_ADDR": "127.0.0.1",
                        "MASTER_PORT": str(port),
                        "OMP_NUM_THREADS": "1",
                        "LOCKSTEP_JOB_ID": name,
                        "LOCKSTEP_RECORDER_DIR": str(recorders),
                        "LOCKSTEP_LIBRARY": str(LIBRARY),
                        **{key: str(value) for key, value in environment.items()},
                    },
                )
            )
        said = [process.communicate(timeout=TRAINED_S) for process in running]
        for process, (_, errors) in zip(running, said):
            assert (process.returncode != 0) == fails, errors
            assert "lockstep:" not in errors, errors
        return [out for out, _ in said]

    yield train
    for process in running:
        process.kill()
        process.wait()


@pytest.fixture
def job(tmp_path, server, start, ranks, recorders):
    """The same, under an agent that sends to the server."""
    start(harness.Agent, tmp_path / "agent", recorders, server=server.otlp_http)
    return ranks


def steps_of(server, name, rank, wanted=range(STEPS)):
    """The steps of a rank, once all of them have arrived."""

    def look():
        answer = server.get(f"/api/jobs/{name}/ranks/{rank}", last=500)
        steps = {step["step"]: step for step in answer["steps"]}
        assert set(wanted) <= set(steps), sorted(steps)
        return steps

    return harness.eventually(look, DELIVERED_S, f"steps {wanted} of rank {rank} at the server")


def median(values):
    return sorted(values)[len(values) // 2]


def check_slow_input(server, name):
    """Fetching 4 samples of 10 ms each is rank 2's input time, and nobody else's."""
    typical = {}
    for rank in range(RANKS):
        steps = steps_of(server, name, rank)
        typical[rank] = median([steps[n]["phases_ms"].get("input", 0) for n in range(2, STEPS)])
    assert typical[SLOW_RANK] >= 38, typical
    assert all(typical[rank] < typical[SLOW_RANK] / 2 for rank in typical if rank != SLOW_RANK), typical


def test_an_unmodified_script_tells_steps_phases_loss_and_mfu_through_the_hook_alone(job, server, tmp_path):
    job(
        "unmodified",
        SCRIPT,
        f"--slow-input={SLOW_RANK}",
        f"--steps={SURE_STEPS}",
        f"--checkpoint={tmp_path / 'model.pt'}",
        PYTHONPATH=PACKAGE / "lockstep" / "_hook",
        LOCKSTEP_AUTO=1,
        LOCKSTEP_FLOPS_PER_STEP=6e6,
        LOCKSTEP_PEAK_FLOPS=1e9,
    )
    for rank in range(RANKS):
        steps = steps_of(server, "unmodified", rank, range(SURE_STEPS))
        assert set(steps) == set(range(SURE_STEPS)), "evaluation and what follows the last step are no steps"
        for number in range(2, STEPS):
            step = steps[number]
            assert not step["inferred"]
            assert {"input", "forward", "backward", "optimizer"} <= set(step["phases_ms"]), step
            assert sum(step["phases_ms"].values()) <= step["duration_ms"] + 0.1, step
            assert step["duration_ms"] >= 10, step
            assert step["scalars"]["loss"] > 0
            assert step["mfu"] == pytest.approx(6e6 / (step["duration_ms"] / 1e3 * 1e9), rel=0.01)
        # Steps follow each other without a hole; now and then another process gets the core just there.
        gaps_ns = [
            steps[number]["start_unix_ns"] - steps[number - 1]["start_unix_ns"] - steps[number - 1]["duration_ms"] * 1e6
            for number in range(3, STEPS)
        ]
        assert statistics.median(map(abs, gaps_ns)) < 50_000, gaps_ns
    losses = [steps_of(server, "unmodified", 0)[n]["scalars"]["loss"] for n in range(STEPS)]
    assert len(set(losses)) > STEPS // 2, "the loss of each step, not one of them"
    check_slow_input(server, "unmodified")
    # gloo reports no communicator, and all steps are equally long: phases tell who makes the others wait.
    def named():
        why = server.get("/api/jobs/unmodified/why")
        assert why["communication_seen"] is False
        verdicts = [(verdict["culprit"]["rank"], verdict["culprit"]["layer"]) for verdict in why["verdicts"]]
        assert ([SLOW_RANK], "input") in verdicts, why["verdicts"]  # a busy machine may have more to tell
        return True

    harness.eventually(named, DELIVERED_S, "the verdict on the slow input")


def test_one_line_is_enough_and_loader_workers_do_not_count_as_ranks(job, server):
    said = job("one-line", SCRIPT, "--one-line", "--slow-input=1", "--workers=2", count=2, PYTHONPATH=PACKAGE)
    for rank in range(2):
        steps = steps_of(server, "one-line", rank)
        assert steps[5]["scalars"]["tokens"] == 64
        assert steps[5]["mfu"] > 0
    ranks = server.get("/api/jobs/one-line/ranks")["ranks"]
    assert sorted(rank["rank"] for rank in ranks) == [0, 1]
    summary = ast.literal_eval(said[0].strip().splitlines()[-1])
    assert summary["steps"] == STEPS and 0 < summary["input_share"] < 1 and summary["mfu"] > 0, summary


CALLBACK_SCRIPT = """
import sys, types
import torch, torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset
dist.init_process_group("gloo")
kind = sys.argv[1]
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = DataLoader(TensorDataset(torch.randn(48, 8), torch.randn(48, 1)), batch_size=2)  # two batches make a step
if kind == "hf":
    from lockstep.integrations import hf
    callback = hf.make_callback(object)(flops_per_step=6e6, peak=1e9)
    args, state = types.SimpleNamespace(world_size=dist.get_world_size()), types.SimpleNamespace(global_step=100)
    control = types.SimpleNamespace(should_log=False, should_evaluate=False, should_save=False)
    callback.on_train_begin(args, state, control, model=model)
else:
    from lockstep.integrations import lightning
    callback = lightning.make_callback(object)(flops_per_step=6e6, peak=1e9)
    trainer = types.SimpleNamespace(global_step=100, log_every_n_steps=1, loggers=[])
    callback.on_train_start(trainer, model)
for index, (x, y) in enumerate(data):
    first, last = index % 2 == 0, index % 2 == 1
    if kind == "hf" and first:
        callback.on_step_begin(args, state, control)
    if kind == "lightning":
        callback.on_train_batch_start(trainer, model, (x, y), index)
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    if last:
        optimizer.step()
        optimizer.zero_grad()
    if kind == "hf" and last:
        state.global_step += 1
        control.should_log = state.global_step % 2 == 0
        callback.on_step_end(args, state, control)
        if control.should_log:
            control.should_log = False
            callback.on_log(args, state, control, logs={"loss": float(state.global_step), "learning_rate": 0.01})
    if kind == "lightning":
        trainer.global_step += last
        callback.on_train_batch_end(trainer, model, {"loss": loss.detach()}, (x, y), index)
if kind == "hf":
    callback.on_train_end(args, state, control)
else:
    callback.on_train_end(trainer, model)
"""


@pytest.mark.parametrize("kind", ["hf", "lightning"])
def test_a_callback_tells_the_frameworks_own_step_numbers(kind, job, server, tmp_path):
    script = tmp_path / "loop.py"
    script.write_text(CALLBACK_SCRIPT)
    job(kind, script, kind, count=2, PYTHONPATH=PACKAGE)
    numbers = range(100, 112)
    for rank in range(2):
        steps = steps_of(server, kind, rank, wanted=numbers)
        assert set(steps) <= {*numbers, 112}, sorted(steps)
        for number in range(101, 112):
            assert {"input", "forward", "backward", "optimizer"} <= set(steps[number]["phases_ms"]), steps[number]
            assert steps[number]["mfu"] > 0
    steps = steps_of(server, kind, 0, wanted=numbers)
    if kind == "hf":  # step 101 is the one that made 102 of them, and was logged then
        assert steps[101]["scalars"]["loss"] == 102
        assert "learning_rate" not in steps[102]["scalars"]
    else:
        assert all(steps[number]["scalars"]["loss"] > 0 for number in numbers)


def test_names_of_process_groups_and_notes_are_sent(ranks, recorders, start, tmp_path):
    script = tmp_path / "groups.py"
    script.write_text(
        "import lockstep; lockstep.init()\n"
        "import torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "rank = dist.get_rank()\n"
        "lockstep.group('tp', [rank // 2 * 2, rank // 2 * 2 + 1])\n"
        "with lockstep.step(0):\n    lockstep.note('made groups')\n"
        "dist.barrier()\n"
    )
    agent = start(harness.Agent, tmp_path / "agent", recorders, export=tmp_path / "export")
    ranks("groups", script, PYTHONPATH=PACKAGE)
    harness.eventually(lambda: not list(recorders.glob("*.lsfr")), DELIVERED_S, "the recorders are drained")
    assert agent.stop() == 0
    told = set()
    for path in (tmp_path / "export").glob("*-logs.otlp"):
        for group in ExportLogsServiceRequest.FromString(path.read_bytes()).resource_logs:
            rank = next(
                (pair.value.int_value for pair in group.resource.attributes if pair.key == "lockstep.rank"), None
            )
            for record in (record for scope in group.scope_logs for record in scope.log_records):
                if record.event_name == "comm.group":
                    values = {pair.key: pair.value.string_value for pair in record.attributes}
                    told.add((rank, values["name"], values["ranks"]))
    assert {(rank, name) for rank, name, _ in told} == {(r, name) for r in range(RANKS) for name in ("world", "tp")}
    members = {rank: listed for rank, name, listed in told if name == "tp"}
    assert members[0] == members[1] != members[2] == members[3], told


def test_lockstep_run_watches_an_unmodified_script(server, recorders, tmp_path):
    environment = {**os.environ, "LOCKSTEP_RECORDER_DIR": str(recorders), "TMPDIR": str(tmp_path)}
    run = [str(harness.BIN / "lockstep"), "run"]
    found = subprocess.run(
        [*run, "--no-agent", "--", "env"], env=environment, capture_output=True, text=True, timeout=30
    )
    if "LOCKSTEP_AUTO=1" not in found.stdout.splitlines():
        pytest.skip(f"the Python package is not beside {harness.BIN}")
    launcher = (
        f"status=0; for rank in 0 1; do RANK=$rank LOCAL_RANK=$rank {PYTHON} {SCRIPT} & done;"
        " for pid in $(jobs -p); do wait $pid || status=$?; done; exit $status"
    )
    done = subprocess.run(
        [*run, "--server", "http://" + server.otlp_http, "--job", "watched", "--", "bash", "-c", launcher],
        env={
            **environment, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(harness.unused_port()),
            "OMP_NUM_THREADS": "1",
        },  # fmt: skip
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TRAINED_S,
    )
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        steps = steps_of(server, "watched", rank)
        assert {"input", "forward", "backward", "optimizer"} <= set(steps[5]["phases_ms"]), steps[5]


def test_the_first_to_raise_is_named_though_the_others_abort_within_a_second(job, server):
    raising = 2
    began = harness.now_ns()
    job("raises", SCRIPT, f"--raise={raising}:8", "--steps=40", count=3, fails=True, PYTHONPATH=PACKAGE / "lockstep" / "_hook", LOCKSTEP_AUTO=1)

    def failures():
        told = server.get("/api/jobs/raises/why")["verdicts"]
        return [one for one in told if one["kind"] == "fail" and one["state"] == "confirmed"]

    (verdict,) = harness.eventually(failures, 10, "the failure is a verdict")
    assert verdict["culprit"]["rank"] == [raising], verdict
    assert "died of ValueError: the shard of rank 2 is empty" in verdict["sentence"], verdict
    assert "/home/secret" not in str(verdict), "of the message, one line alone"
    logs = server.get("/api/logs", event="job.end", job="raises", rank=raising)["logs"]
    raised_ns, died_ns = logs[0]["attributes"]["reason_unix_ns"], logs[0]["time_unix_ns"]
    assert began < raised_ns < died_ns
    assert raised_ns < verdict["found_unix_ns"] < died_ns + 5 * 10**9, "within five seconds"


if __name__ == "__main__":
    sys.exit(pytest.main([str(pathlib.Path(__file__))]))
