"""What the tests on a GPU start: the node's programs built on the spot, the ranks of a training job, agent, server, MPS."""
import contextlib
import functools
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = ROOT / "build" / "gpu"
CARRIED = ROOT / "build" / "carry"  # what bundle.sh made: the server cannot be built on every machine that has a GPU
PLUGIN = BUILD / "lib" / "libnccl-profiler-lockstep.so"
CALLS_RECORDER = BUILD / "calls_recorder.so"
WORLD = {"ddp": 4, "hyb": 8, "graph": 4, "a2a": 4, "messages": 2}


def build():
    began = time.monotonic()
    flags = ["-DLOCKSTEP_NODE_ONLY=ON", "-DLOCKSTEP_TESTS=OFF", "-DLOCKSTEP_WARNINGS_AS_ERRORS=OFF", "-DCMAKE_BUILD_TYPE=Release"]
    subprocess.run(["cmake", "-S", ROOT, "-B", BUILD, *flags], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", BUILD, "-j", str(os.cpu_count())], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", BUILD / "slow_socket.so", HERE / "slow_socket.c", "-ldl", "-pthread"], check=True)
    print(f"built in {time.monotonic() - began:.0f} s", flush=True)


def build_calls_recorder():
    command = ["c++", "-std=c++20", "-O2", "-shared", "-fPIC", "-I", ROOT, "-o", CALLS_RECORDER, HERE / "calls_recorder.cc"]
    subprocess.run(command, check=True)


def stop_mps():
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(["nvidia-cuda-mps-control"], input=b"quit -t 1\n", check=False, timeout=15, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    subprocess.run(["pkill", "-9", "nvidia-cuda-mps"], check=False)
    time.sleep(0.5)  # the driver lets go of what MPS had


def restart_mps():
    """After ranks were killed its server may refuse the next job ("device busy or unavailable")."""
    stop_mps()
    subprocess.run(["nvidia-cuda-mps-control", "-d"], check=False)


@contextlib.contextmanager
def ready_machine():
    """The programs are built, and many ranks can use the GPU at the same time, not in turns (MPS)."""
    build()
    restart_mps()
    try:
        yield
    finally:
        stop_mps()


def run_all(names, cases, run_case):
    """Those of these cases, all without names, one after the other."""
    unknown = [name for name in names if name not in cases]
    if unknown:
        raise SystemExit(f"no such case: {' '.join(unknown)}; there are {' '.join(cases)}")
    with ready_machine():
        for name in names or cases:
            run_case(name)


def fresh(folder):
    """An empty folder: what an earlier run left would be taken for this one's."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def cores_for(ranks):
    """At least two cores for each rank and one for the agent, as far as the machine has them: (one list per rank or None, the agent's
    list or None). None: wherever the scheduler likes."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2 * ranks:
        return None, None
    each = max(2, (len(cores) - 1) // ranks)
    own = [cores[each * rank : each * rank + each] for rank in range(ranks)]
    return own, [cores[-1]] if len(cores) > each * ranks else None


def on_cores(cores):
    return functools.partial(os.sched_setaffinity, 0, cores) if cores else None


def http_get(address, path):
    with urllib.request.urlopen(f"http://{address}{path}", timeout=5) as answer:
        return answer.read().decode()


class Daemon:
    """Agent or server: started and ready, its log beside its data."""

    def __init__(self, command, log, cores=None):
        self.began = time.monotonic()
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=open(log, "w"), text=True, preexec_fn=on_cores(cores))
        line = self.process.stdout.readline()
        if not line.startswith("ready "):
            self.process.kill()
            raise RuntimeError(f"{command[0]} said {line!r} instead of ready; see {log}")
        self.address = dict(word.split("=", 1) for word in line.split()[1:])

    def cpu_s(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def signal(self, number):
        self.process.send_signal(number)

    def stop(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_agent(folder, target, cores=None):
    """target: ["--export", "file:DIR"] or ["--server", URL]."""
    (folder / "recorders").mkdir(parents=True, exist_ok=True)
    command = [BUILD / "bin" / "lockstep-agent", "--data", folder / "agent", "--recorders", folder / "recorders", "--metrics", "127.0.0.1:0", *target]
    return Daemon(command, folder / "agent.log", cores)


def start_server(folder):
    free = "127.0.0.1:0"
    command = [CARRIED / "bin" / "lockstepd", "--data", folder / "server", "--http", free, "--otlp-http", free, "--otlp-grpc", free]
    return Daemon(command, folder / "server.log")


def plugin_numbers(agent):
    """What the agent's page says about the plugin and about losses."""
    lines = http_get(agent.address["metrics"], "/metrics").splitlines()
    told = ("_lost_", "_late_", "_crowded")
    return [line for line in lines if line.startswith("lockstep_plugin_") or (line.startswith("lockstep_agent_") and any(word in line for word in told))]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Job:
    """The ranks of one training job (train.py), each its own "host".

    plugin: path of the NCCL profiler plugin, or None. take_turns: steps in a block; before every block the ranks say "block" and wait
    for go(). environment: more variables for every rank, rank_environment: for one, by rank. command: what every rank runs instead of
    train.py."""

    def __init__(self, name, folder, job, case="healthy", steps=40, world=None, plugin=PLUGIN, from_step=None, slow_rank=None, cores=None,
                 take_turns=0, layers=8, batch=64, destroy=False, environment=None, rank_environment=None, command=None):
        self.folder = folder
        (folder / "recorders").mkdir(parents=True, exist_ok=True)
        self.began_path = folder / "fault_began"
        world = world or WORLD[job]
        port = free_port()
        self.ranks = []
        for rank in range(world):
            variables = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                             NCCL_HOSTID=f"node{rank}", NCCL_SOCKET_IFNAME="lo", LOCKSTEP_HOST=f"node{rank}", LOCKSTEP_JOB_ID=name,
                             LOCKSTEP_RECORDER_DIR=str(folder / "recorders"), TORCH_NCCL_ASYNC_ERROR_HANDLING="0", TORCH_NCCL_ENABLE_MONITORING="0", NCCL_DEBUG="WARN")
            variables.update(environment or {})
            variables.update((rank_environment or {}).get(rank, {}))
            if plugin:
                variables["NCCL_PROFILER_PLUGIN"] = str(plugin)
            if rank == slow_rank:
                variables["LD_PRELOAD"] = str(BUILD / "slow_socket.so")
                variables.setdefault("SLOW_SOCKET_BYTES_PER_S", "150000000")
            words = [sys.executable, str(HERE / "train.py"), "--job", job, "--case", case, "--steps", str(steps), "--log", str(folder),
                     "--began", str(self.began_path), "--layers", str(layers), "--batch", str(batch), "--take-turns", str(take_turns)]
            if from_step is not None:
                words += ["--from-step", str(from_step)]
            if destroy:
                words += ["--destroy"]
            if plugin == PLUGIN:
                words += ["--library", str(BUILD / "lib" / "liblockstep.so")]
            if command:
                words = list(map(str, command))
            log = open(folder / f"rank{rank}.log", "w")
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log} if take_turns else {"stdout": log, "stderr": subprocess.STDOUT}
            self.ranks.append(subprocess.Popen(words, env=variables, text=True, cwd=folder, preexec_fn=on_cores(cores and cores[rank]), **pipes))

    def running(self):
        return any(rank.poll() is None for rank in self.ranks)

    def wait(self, seconds, until=lambda: False):
        """Until the job is over, until() is true or the time is up; returns the exit codes so far."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.running() and not until():
            time.sleep(0.1)  # the interval of the poll
        return [rank.poll() for rank in self.ranks]

    def await_block(self):
        """Until every rank waits for its next block: what each said before, as a list of lines."""
        told = [[] for _ in self.ranks]
        for number, rank in enumerate(self.ranks):
            while (line := rank.stdout.readline()) != "block\n":
                if not line:
                    raise RuntimeError(f"rank {number} ended early; see {self.folder}/rank{number}.log")
                told[number].append(line.rstrip("\n"))
        return told

    def go(self):
        self.say("go")

    def say(self, line):
        for rank in self.ranks:
            rank.stdin.write(f"{line}\n")
            rank.stdin.flush()

    def step_ms(self):
        """One list per rank that ended well: the length of each of its steps."""
        logs = [json.loads(file.read_text()) for file in sorted(self.folder.glob("steps_rank*.json"))]
        return [[entry["total"] / 1e6 for entry in log] for log in logs]

    def fault_began_ns(self):
        return int(self.began_path.read_text()) if self.began_path.exists() else None

    def kill(self):
        for rank in self.ranks:
            rank.kill()
        for rank in self.ranks:
            rank.wait()
