"""What is fetched when a job hangs: stacks of real Python processes through the hook, dumps of PyTorch's Flight Recorder
through the agent, and `lockstep hang` of a job and of a folder of dumps.

Debian's PyTorch has no Flight Recorder. Dumps of real stuck jobs are in tests/data/h200/flight; the others are written by
Python's own pickle, in the structure that PyTorch documents.
"""

import contextlib
import gzip
import hashlib
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import time

import pytest

import harness

PACKAGE = harness.ROOT / "python"
LIBRARY = harness.BIN.resolve().parent / "lib" / "liblockstep.so"
JOB = "stuck"
RANKS = 4
ODD = 3
COMM = 0x4D7E
ARRIVES_S = 30

STUCK = """
import sys, threading, time
import lockstep
lockstep.init()

def load_batch(lock):
    lock.acquire()  # never given back

def train():
    held = threading.Lock()
    held.acquire()
    threading.Thread(target=time.sleep, args=(600,), name="prefetch", daemon=True).start()
    lockstep.step_begin(0)
    print("in", flush=True)
    load_batch(held)

train()
"""

# Ranks that wait for each other in every step by something that nobody watches.
PACED = """
import multiprocessing, os, time

def rank(number, barrier):
    os.environ["RANK"] = str(number)
    import lockstep
    lockstep.init()
    for step in range(100_000):
        lockstep.step_begin(step)
        time.sleep(0.02)  # the pace of the job
        barrier.wait()
        lockstep.step_end(step)

barrier = multiprocessing.Barrier(4)
ranks = [multiprocessing.Process(target=rank, args=(number, barrier), daemon=True) for number in range(4)]
for one in ranks:
    one.start()
print(*[one.pid for one in ranks], flush=True)
for one in ranks:
    one.join()
"""

DUMPS_ON_REQUEST = """
import os, pickle, select, sys
os.environ["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] = sys.argv[1] + "/trace_"
os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] = sys.argv[1] + "/pipe_"
import lockstep
lockstep.init()
lockstep.step_begin(0)
sys.path.insert(0, sys.argv[2])
pipe = sys.argv[1] + "/pipe_" + os.environ["RANK"] + ".pipe"
os.mkfifo(pipe)
fd = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
print("in", flush=True)
while True:
    select.select([fd], [], [], 0.1)
    try:
        asked = os.read(fd, 128)
    except BlockingIOError:
        asked = b""
    if asked:
        import test_hang_evidence as here
        with open(sys.argv[1] + "/trace_" + os.environ["RANK"], "wb") as file:
            pickle.dump(here.dump_of(int(os.environ["RANK"])), file, 2)
        break
import time; time.sleep(600)  # it hangs
"""


def entry(seq, state, operation="all_reduce", sizes=((3, 4),), line=88, created_ns=None):
    library = {"name": "all_reduce", "filename": "/x/site-packages/torch/distributed/distributed_c10d.py", "line": 2696}
    return {
        "frames": [library, {"name": "train_step", "filename": "/job/train.py", "line": line}],
        "record_id": seq,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "op_id": seq,
        "profiling_name": "nccl:" + operation,
        "time_created_ns": created_ns or 1_724_779_239_000_000_000 + seq,
        "input_sizes": sizes,
        "input_dtypes": ["Float"],
        "output_sizes": sizes,
        "output_dtypes": ["Float"],
        "state": state,
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": state == "completed",
        "timeout_ms": 600000,
        "is_p2p": False,
    }


def dump_of(rank, last=57, ranks=RANKS, **of_last):
    """A rank that is in its operation `last`; its last complete one is the one before."""
    return {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))}},
        "pg_status": {},
        "entries": [entry(seq, "completed") for seq in range(30, last)] + [entry(last, "started", **of_last)],
    }


@pytest.fixture
def recorders(tmp_path):
    folder = tmp_path / "recorders"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def python_rank(tmp_path, recorders):
    """Starts a script as rank ODD of the job and waits until it is where it shall be."""
    running = []

    def start(script, *arguments, **environment):
        file = tmp_path / "loader.py"
        file.write_text(script)
        process = subprocess.Popen(
            [sys.executable, str(file), *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": str(PACKAGE),
                "RANK": str(ODD),
                "WORLD_SIZE": str(RANKS),
                "LOCKSTEP_JOB_ID": JOB,
                "LOCKSTEP_RECORDER_DIR": str(recorders),
                "LOCKSTEP_LIBRARY": str(LIBRARY),
                **{name: str(value) for name, value in environment.items()},
            },
        )
        running.append(process)
        if script != PACED:
            assert process.stdout.readline() == "in\n"
        return process

    yield start
    for process in running:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def agent(tmp_path, server, start, recorders):
    return start(harness.Agent, tmp_path / "agent", recorders, server=server.otlp_http)


def known(server, ranks=1):
    harness.eventually(
        lambda: len(server.get(f"/api/jobs/{JOB}/ranks")["ranks"]) >= ranks
        if JOB in [job["job_id"] for job in server.get("/api/jobs")["jobs"]]
        else False,
        ARRIVES_S,
        "the rank is known",
    )


def test_the_stack_of_a_stuck_python_process_comes_by_command(server, agent, python_rank):
    process = python_rank(STUCK, LOCKSTEP_CODE_VERSION="9f3a1c2")
    known(server)
    started = server.get("/api/logs", event="job.start", job=JOB)["logs"]
    assert [log["attributes"].get("version") for log in started] == ["9f3a1c2"], "which code its environment names"
    said = harness.lockstep("hang", JOB, "--server", server.url, "--stacks", ODD)
    assert said.returncode == 0, said.stderr
    assert "main thread is in load_batch, loader.py:7, waiting in a futex" in " ".join(said.stdout.split()), said.stdout
    assert "load_batch  loader.py:7\n    train  loader.py:15" in said.stdout, said.stdout
    assert process.poll() is None, "the process lives on"

    stack = server.get(f"/api/jobs/{JOB}/stacks", ranks=ODD)["stacks"][0]
    assert stack["pid"] == process.pid and stack["threads_count"] == 2 and stack["note"] == ""
    assert {frame["function"] for thread in stack["python"] for frame in thread["frames"]} >= {"load_batch", "train"}

    # Once a minute and process: the old answer is shown, and a line says why it is old.
    again = harness.lockstep("hang", JOB, "--server", server.url, "--stacks", ODD)
    assert "asked within the last minute" in again.stderr and "load_batch" in again.stdout
    assert agent.counters().total("lockstep_agent_stacks_total", result="told") == 1
    assert agent.counters().total("lockstep_agent_stacks_total", result="again") == 1


def test_a_stopped_process_is_its_own_answer(server, agent, python_rank):
    process = python_rank(STUCK)
    known(server)
    process.send_signal(signal.SIGSTOP)
    said = harness.lockstep("hang", JOB, "--server", server.url, "--stacks", ODD, "--json")
    process.send_signal(signal.SIGCONT)
    assert said.returncode == 0, said.stderr
    stack = json.loads(said.stdout)["stacks"][0]
    assert stack["threads"][0]["state"] == "T"
    assert "stopped by a signal or a debugger" in stack["where"] and "cannot answer" in stack["note"]


def test_a_job_without_communicators_hangs_and_fails_as_others_do(server, agent, python_rank):
    pids = list(map(int, python_rank(PACED).stdout.readline().split()))

    def of_kind(kind, state):
        return [one for one in server.get("/api/verdicts", state="all")["verdicts"] if (one["kind"], one["state"]) == (kind, state)]

    def hangs(state):
        return of_kind("hang", state)

    def healthy():
        why = server.get(f"/api/jobs/{JOB}/why")
        return "Healthy" in why["summary"] and not hangs("confirmed")

    try:
        known(server, RANKS)
        harness.eventually(healthy, ARRIVES_S, "it has found its pace")
        os.kill(pids[1], signal.SIGSTOP)
        (verdict,) = harness.eventually(lambda: hangs("confirmed"), ARRIVES_S, "the hang is a verdict")
        assert verdict["culprit"]["rank"] == [1] and verdict["culprit"]["cause"] == "process-paused", verdict
        assert "GPU" not in verdict["sentence"], "there is none"
        os.kill(pids[1], signal.SIGCONT)
        harness.eventually(lambda: hangs("cleared"), ARRIVES_S, "it goes on")
        os.kill(pids[3], signal.SIGKILL)
        (verdict,) = harness.eventually(lambda: of_kind("fail", "confirmed"), ARRIVES_S, "the death is a verdict")
        assert verdict["culprit"]["rank"] == [3] and "died of SIGKILL in step" in verdict["sentence"], verdict
        assert not hangs("confirmed"), "one trouble, one verdict"
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # with the first gone the launcher ends the rest
                os.kill(pid, signal.SIGKILL)


def test_lockstep_stacks_0_forbids_it(server, agent, python_rank, recorders):
    python_rank(STUCK, LOCKSTEP_STACKS=0)
    known(server)
    said = harness.lockstep("hang", JOB, "--server", server.url, "--stacks", ODD)
    assert said.returncode == 5 and "LOCKSTEP_STACKS=0" in said.stderr, said
    assert agent.counters().total("lockstep_agent_stacks_total", result="off") == 1
    assert not list(recorders.glob("*.stacks"))


def status_of(rank, now_ns):
    """rank.status: in collective 101 of the communicator, quiet for five seconds (docs/formats/events.md)."""
    return "rank.status", {
        "quiet_ns": 5_000_000_000,
        "step": 7,
        "comms": [
            [COMM, RANKS, rank, 101, 100, 0, 0, 2, 101, 100, "AllReduce", "float32", 4096, -1, now_ns - 5_000_000_000]
            + [0, 0, 0, "", "", 0, -1, 0]
        ],
    }


def otlp(rank, *events):
    """OTLP/JSON of events of one rank; the odd one is on this machine."""

    def value(of):
        if isinstance(of, bool):
            return {"boolValue": of}
        if isinstance(of, int):
            return {"intValue": str(of)}
        if isinstance(of, list):
            return {"arrayValue": {"values": [value(item) for item in of]}}
        return {"stringValue": of}

    def attributes(of):
        return [{"key": key, "value": value(item)} for key, item in of.items()]

    who = {
        "service.name": "lockstep-agent",
        "lockstep.job_id": JOB,
        "lockstep.attempt": 0,
        "lockstep.rank": rank,
        "lockstep.world_size": RANKS,
        "host.name": socket.gethostname() if rank == ODD else "elsewhere",
    }
    now = str(time.time_ns())
    records = [{"timeUnixNano": now, "eventName": name, "attributes": attributes(of)} for name, of in events]
    return json.dumps(
        {"resourceLogs": [{"resource": {"attributes": attributes(who)}, "scopeLogs": [{"logRecords": records}]}]}
    ).encode()


def send(server, rank, *events):
    answer = server.post("logs", otlp(rank, *events), content_type="application/json")
    assert answer.status == 200, answer.text


def others_wait(server):
    """Ranks 0 to 2, on another node, are in an operation that rank 3 has not entered."""
    for rank in range(RANKS):
        if rank != ODD:
            init = ("comm.init", {"comm_id": COMM, "size": RANKS, "rank_in_comm": rank, "nodes": 2, "name": "world"})
            send(server, rank, init, status_of(rank, time.time_ns()))


def test_a_hang_asks_for_the_stack_of_the_odd_rank_and_the_verdict_tells_it(server, agent, python_rank):
    python_rank(STUCK)
    known(server)
    # The odd rank is a member too; its own agent tells where its process stands.
    send(server, ODD, ("comm.init", {"comm_id": COMM, "size": RANKS, "rank_in_comm": ODD, "nodes": 2, "name": "world"}))

    def verdict():
        others_wait(server)
        open_ones = [v for v in server.get(f"/api/jobs/{JOB}/why")["verdicts"] if v["kind"] == "hang"]
        assert open_ones and open_ones[0]["culprit"]["rank"] == [ODD], open_ones
        claims = [claim["claim"] for claim in open_ones[0]["chain"]]
        assert any("load_batch" in claim for claim in claims), claims
        return open_ones[0]

    found = harness.eventually(verdict, ARRIVES_S, "a verdict that tells the odd rank's stack", every_s=0.3)
    assert found["culprit"]["cause"] == "rank-missing"
    assert found["chain"][0]["claim"] == f"Rank {ODD}: main thread is in load_batch, loader.py:7, waiting in a futex."
    assert found["chain"][0]["query"] == f"/api/jobs/{JOB}/stacks?ranks={ODD}"
    said = harness.lockstep("hang", JOB, "--server", server.url)
    assert said.returncode == 1 and said.stdout.startswith("HANG") and "load_batch" in said.stdout, said
    assert server.counters().total("lockstep_stack_asks_total", reason="verdict") >= 1


def test_a_dump_is_asked_for_through_the_pipe_and_told_once(server, agent, python_rank, tmp_path):
    folder = tmp_path / "dumps"
    folder.mkdir()
    python_rank(DUMPS_ON_REQUEST, folder, harness.ROOT / "tests" / "system")
    known(server)
    harness.lockstep("hang", JOB, "--server", server.url, "--stacks", ODD)

    def dump():
        dumps = server.get(f"/api/jobs/{JOB}/stacks")["dumps"]
        return dumps[0] if dumps else None

    told = harness.eventually(dump, ARRIVES_S, "the dump at the server")
    # The file itself, too, where files of captures are.
    stored = f"/api/jobs/{JOB}/profiles/h-{hashlib.sha256(f'0/{JOB}'.encode()).hexdigest()[:12]}/files"
    files = harness.eventually(lambda: server.get(stored)["files"], ARRIVES_S, "the file of the dump")
    whole = harness.request(server.http, "GET", f"{stored}/{files[0]['file']}").body
    assert files[0]["file"].startswith("rank-") and gzip.decompress(whole) == next(folder.glob("trace_*")).read_bytes()
    assert told["rank"] == ODD and told["entries"] == 28
    assert told["last"]["caller"] == "train_step, train.py:88"
    assert told["groups"][0]["last_enqueued"] == 57 and told["groups"][0]["last_completed"] == 56
    assert agent.counters().total("lockstep_agent_dumps_total", result="asked") == 1
    # A later one: had the first been told at every look, there would be more than the two.
    (folder / f"trace_{ODD}").write_bytes(pickle.dumps(dump_of(ODD, last=58), 2))
    later = lambda: any(one["groups"][0]["last_enqueued"] == 58 for one in server.get(f"/api/jobs/{JOB}/stacks")["dumps"])
    harness.eventually(later, ARRIVES_S, "the later dump at the server")
    assert agent.counters().total("lockstep_agent_dumps_total", result="told") == 2


# Folders of dumps


def write_dumps(folder, dumps):
    for rank, dump in dumps.items():
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump, 2 + rank % 4))


def test_dumps_name_the_rank_that_never_came(tmp_path):
    dumps = {rank: dump_of(rank) for rank in range(RANKS)}
    dumps[1]["entries"].pop()  # its last is 56, complete, and called from another line
    dumps[1]["entries"][-1]["frames"][1]["line"] = 41
    write_dumps(tmp_path, dumps)
    said = harness.lockstep("hang", "--dumps", tmp_path)
    assert said.returncode == 1, said
    text = " ".join(said.stdout.split())
    assert "HANG Rank missing (software): Rank 1 never entered all_reduce 57 of all 4 ranks; 3 ranks have waited for it." in text, said.stdout
    assert "Rank 1 last called all_reduce 56 of default_pg from train_step, train.py:41 (completed)." in text, said.stdout
    answer = json.loads(harness.lockstep("hang", "--dumps", tmp_path, "--json").stdout)
    assert answer["finding"]["ranks"] == [1] and answer["finding"]["cause"] == "rank-missing"


@pytest.mark.parametrize(
    "odd", [{"operation": "broadcast"}, {"sizes": ((4, 5),)}], ids=["another operation", "another size"]
)
def test_dumps_name_the_rank_that_called_something_else(tmp_path, odd):
    dumps = {rank: dump_of(rank) for rank in range(RANKS)}
    dumps[2] = dump_of(2, line=99, **odd)
    write_dumps(tmp_path, dumps)
    answer = json.loads(harness.lockstep("hang", "--dumps", tmp_path, "--json").stdout)
    assert answer["outcome"] == "hang" and answer["finding"]["ranks"] == [2], answer
    assert answer["finding"]["cause"] == "op-mismatch"
    assert "from train_step, train.py:99" in answer["finding"]["claims"][0]["claim"], answer["finding"]["claims"]


def test_healthy_dumps_accuse_nobody_and_a_missing_one_is_said(tmp_path):
    dumps = {rank: dump_of(rank) for rank in range(RANKS)}
    for dump in dumps.values():
        dump["entries"][-1]["state"] = "completed"
    write_dumps(tmp_path, dumps)
    said = harness.lockstep("hang", "--dumps", tmp_path)
    assert said.returncode == 0 and "Nothing is stuck" in said.stdout, said
    (tmp_path / "nccl_trace_rank_2").unlink()
    said = harness.lockstep("hang", "--dumps", tmp_path)
    assert said.returncode == 0 and "rank 2 left no dump" in said.stdout, said


@pytest.mark.parametrize(
    "case, guilty, cause, says",
    [
        ("missing_r3", 3, "rank-missing", "Rank 3 never entered all_reduce 179 of all 4 ranks"),
        ("sizes_r1", 1, "op-mismatch", "from agree, train.py:165"),
    ],
)
def test_dumps_of_real_stuck_jobs_name_the_guilty_rank(case, guilty, cause, says):
    folder = harness.ROOT / "tests" / "data" / "h200" / "flight" / case
    said = harness.lockstep("hang", "--dumps", folder)
    assert said.returncode == 1 and says in " ".join(said.stdout.split()), said
    finding = json.loads(harness.lockstep("hang", "--dumps", folder, "--json").stdout)["finding"]
    assert finding["ranks"] == [guilty] and finding["cause"] == cause


def test_what_is_no_dump_is_skipped_with_one_line(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.system, ("touch /tmp/lockstep-was-here",)

    write_dumps(tmp_path, {0: dump_of(0), 1: Evil(), 2: [1, 2]})
    (tmp_path / "nccl_trace_rank_3").write_bytes(pickle.dumps(dump_of(3))[:-20])
    (tmp_path / "notes.txt").write_text("hello")
    said = harness.lockstep("hang", "--dumps", tmp_path)
    lines = said.stderr.splitlines()
    assert len(lines) == 4, said.stderr
    assert any("only plain data is read" in line for line in lines), lines
    assert any("cut short" in line for line in lines), lines
    assert not os.path.exists("/tmp/lockstep-was-here")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert harness.lockstep("hang", "--dumps", empty).returncode == 4
