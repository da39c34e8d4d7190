"""Which line is slow, asked of real jobs: DDP over gloo on CPU, four ranks, one of them slow in one function.

    python3 bench/lines/run.py --bin build/bin [--python /usr/bin/python3] [--out bench/results/lines.md]

For each place the agent samples the slow rank and two peers while it trains; the line that is named is compared with the
one that is slow. Then the same job, healthy, with and without sampling in turns: what sampling costs its steps.
"""

import argparse
import json
import os
import pathlib
import platform
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "bench" / "lines" / "train_lines.py"
RANKS, SLOW = 4, 2
PLACES = {"loader": "decode", "worker": "decode", "loop": "log_metrics", "spin": "checksum"}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def lines_of(place):
    """The numbers of the lines that are slow."""
    return [
        number
        for number, text in enumerate(SCRIPT.read_text().splitlines(), 1)
        if "# LINE" in text and place in text.split("# LINE")[1].split()
    ]


class Daemon:
    def __init__(self, *arguments, log):
        self.log = open(log, "ab")
        self.process = subprocess.Popen(
            list(map(str, arguments)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        line = self.process.stdout.readline()
        if not line.startswith("ready "):
            raise SystemExit(f"{arguments[0]} said {line!r}: {log}")
        self.ready = dict(word.split("=", 1) for word in line.split()[1:])

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)
        self.log.close()


class Job:
    def __init__(self, options, folder, name, slow, seconds):
        port = free_port()
        self.outputs = [folder / f"{name}-{rank}.txt" for rank in range(RANKS)]
        self.processes = []
        for rank, output in enumerate(self.outputs):
            with open(output, "w") as out:
                self.processes.append(
                    subprocess.Popen(
                        [options.python, str(SCRIPT), "--slow", slow, "--rank", str(SLOW), "--seconds", str(seconds)],
                        stdin=subprocess.DEVNULL,
                        stdout=out,
                        stderr=subprocess.STDOUT,
                        env={
                            **os.environ,
                            "RANK": str(rank),
                            "LOCAL_RANK": str(rank),
                            "WORLD_SIZE": str(RANKS),
                            "MASTER_ADDR": "127.0.0.1",
                            "MASTER_PORT": str(port),
                            "OMP_NUM_THREADS": "1",
                            "LOCKSTEP_JOB_ID": name,
                            "LOCKSTEP_PACKAGE": str(ROOT / "python"),
                            "LOCKSTEP_RECORDER_DIR": str(folder / "recorders"),
                            "LOCKSTEP_LIBRARY": str(options.bin.resolve().parent / "lib" / "liblockstep.so"),
                        },
                    )
                )

    def trains(self):
        """Once every rank has made ten steps."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if all(len(output.read_text().splitlines()) > 10 for output in self.outputs):
                return
            if any(process.poll() for process in self.processes):
                break
            time.sleep(0.2)
        raise SystemExit("the job does not train: " + self.outputs[0].read_text()[-500:])

    def end(self):
        for process in self.processes:
            if process.wait(timeout=120) != 0:
                raise SystemExit("a rank failed: " + self.outputs[self.processes.index(process)].read_text()[-500:])

    def steps(self, rank):
        """(when, milliseconds) of each step."""
        rows = []
        for line in self.outputs[rank].read_text().splitlines():
            words = line.split()
            if len(words) == 2:
                rows.append((float(words[0]), float(words[1])))
        return rows[5:]


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def lines(options, server, job, *more):
    """`lockstep lines` as JSON; it takes so long as it samples."""
    said = subprocess.run(
        [str(options.bin / "lockstep"), "lines", job, "--server", "http://" + server, "--json", *map(str, more)],
        capture_output=True,
        text=True,
    )
    if not said.stdout:
        raise SystemExit(said.stderr)
    return json.loads(said.stdout)


def known(server, job):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://{server}/api/jobs/{job}/ranks") as answer:
                if len(json.load(answer)["ranks"]) == RANKS:
                    return
        except urllib.error.HTTPError:
            pass
        time.sleep(0.2)
    raise SystemExit("the server does not know the ranks")


def named_lines(options, folder, server):
    rows = []
    for place, function in PLACES.items():
        job = Job(options, folder, place, place, 25)
        job.trains()
        known(server, place)
        answer = lines(options, server, place, "--ranks", f"{SLOW},1,3", "--seconds", 5)
        job.end()
        named = answer["difference"]["named"]
        slow = next(rank for rank in answer["ranks"] if rank["rank"] == SLOW)
        right = bool(named) and named["function"] == function and named["line"] in lines_of(place)
        rows.append(
            f"| {place} | {', '.join(map(str, lines_of(place)))} | {answer['difference']['sentence']} | "
            f"{'yes' if right else '**no**'} | {slow['looks']} | "
            f"{slow['stacks_whole']} / {slow['stacks_cut']} / {slow['stacks_dropped']} |"
        )
        print(rows[-1], file=sys.stderr)
    return rows


def cost(options, folder, server, agent):
    """Steps of a healthy job in turns: ten seconds sampled at each rate, ten seconds not."""
    turns = [100, 0, 250, 0] * options.turns
    job = Job(options, folder, "cost", "none", 26 * len(turns) + 30)
    job.trains()
    known(server, "cost")
    stretches = []
    for hz in turns:
        time.sleep(11)  # a process is left alone for ten seconds after it was sampled
        began, cpu = time.time(), cpu_seconds(agent.process.pid)
        if hz:
            lines(options, server, "cost", "--ranks", "0,1,2,3", "--seconds", 10, "--hz", hz)
        else:
            time.sleep(10)
        stretches.append((hz, began + 0.5, began + 9.5, (cpu_seconds(agent.process.pid) - cpu) / (time.time() - began)))
    job.end()
    rows = []
    steps = job.steps(0)
    medians = {}
    for hz in (0, 100, 250):
        each = [
            statistics.median(ms for when, ms in steps if begin <= when < end) for one, begin, end, _ in stretches if one == hz
        ]
        cpu = statistics.median(share for one, *_, share in stretches if one == hz)
        medians[hz] = statistics.median(each)
        rows.append(
            f"| {'not sampled' if hz == 0 else f'{hz} Hz, all four ranks'} | {medians[hz]:.3f} | "
            f"{min(each):.3f} to {max(each):.3f} | {'' if hz == 0 else f'{100 * (medians[hz] / medians[0] - 1):+.1f} %'} | {100 * cpu:.1f} % |"
        )
        print(rows[-1], file=sys.stderr)
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--python", default="/usr/bin/python3", help="one that has torch")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "recorders").mkdir(mode=0o700)
        (folder / "kmsg").touch()
        server = Daemon(
            options.bin / "lockstepd", "--data", folder / "server", "--http", "127.0.0.1:0", "--otlp-http", "127.0.0.1:0",
            "--otlp-grpc", "127.0.0.1:0", log=folder / "server.log",
        )  # fmt: skip
        agent = Daemon(
            options.bin / "lockstep-agent", "--data", folder / "agent", "--metrics", "127.0.0.1:0", "--recorders",
            folder / "recorders", "--kernel-log", folder / "kmsg", "--server", "http://" + server.ready["otlp_http"],
            log=folder / "agent.log",
        )  # fmt: skip
        try:
            found = named_lines(options, folder, server.ready["http"])
            costs = cost(options, folder, server.ready["http"], agent)
        finally:
            agent.stop()
            server.stop()
    torch = subprocess.run(
        [options.python, "-c", "import sys, torch; print(sys.version.split()[0], torch.__version__)"],
        capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    text = f"""# Which line is slow, and what asking costs

Made by `./dev bench lines` on {os.cpu_count()} cores ({platform.machine()}), Python {torch[0]}, PyTorch {torch[1]}: four unmodified DDP ranks over gloo on CPU
(`bench/lines/train_lines.py`), of which rank {SLOW} is slow in one function, 30 ms a call. Sampled from outside for 5 s at 100 Hz, with two peers.

| slow in | its line | what `lockstep lines` says | right | looks | stacks whole / cut / dropped |
|---|---|---|---|---|---|
{chr(10).join(found)}

*worker*: in the two worker processes of the rank's DataLoader. *spin*: computes instead of waiting.

What sampling costs the job: the same script, healthy, its steps' median while all four ranks are sampled and while they are not, in turns
of ten seconds. The ranks and the agent share the machine's cores, so the agent's CPU is part of what the job loses here.

| | step, ms | medians of the turns | against not sampled | agent's CPU, of one core |
|---|---|---|---|---|
{chr(10).join(costs)}
"""
    if options.out:
        options.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
