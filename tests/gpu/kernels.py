"""Which kernel, and which line: jobs with a fault inside one rank's kernels or Python, under `lockstep run` against a real server,
profiled by `lockstep profile` while they train, and what `lockstep analyze` and `lockstep lines` name. And what a profile costs: the
length of steps without Lockstep, with it idle, while it traces, and afterwards."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import urllib.error

from programs import BUILD, CARRIED, HERE, fresh, free_port, http_get, ready_machine, restart_mps, start_server

CULPRIT = 1
SETTLED_STEPS = 25  # before anything is asked
START_S, PROFILE_S = 90, 90
STEPS = 5
# fault: what `analyze` calls its reason, or whose line `lines` names
KERNELS = {"none": None, "fp32": "higher_precision", "unaligned": "unaligned_shapes", "copies": "extra_copies"}
LINES = {"loader": "the slow line of --fault loader", "loop": "the slow line of --fault loop"}
CASES = [f"{wrap}{ranks}_{fault}" for wrap, ranks, faults in (("ddp", 4, (*KERNELS, *LINES)), ("fsdp2", 4, (*KERNELS, *LINES)), ("ddp", 8, ("fp32", "copies")),
                                                             ("fsdp2", 8, ("fp32", "unaligned"))) for fault in faults]


def parts_of(name):
    job, fault = name.split("_")
    return job[:-1], int(job[-1]), fault


def cli(server, *words):
    command = [CARRIED / "bin" / "lockstep", *words, "--server", f"http://{server.address['http']}"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=PROFILE_S + 60, check=False)
    return done.returncode, done.stdout, done.stderr


class Ranks:
    """The job under torchrun, under `lockstep run` where a server is given."""

    def __init__(self, name, folder, server=None):
        wrap, ranks, fault = parts_of(name)
        self.folder, self.count = folder, ranks
        (folder / "recorders").mkdir(mode=0o700)
        variables = dict(os.environ, LOCKSTEP_RECORDER_DIR=str(folder / "recorders"), NCCL_SOCKET_IFNAME="lo", NCCL_DEBUG="WARN", OMP_NUM_THREADS="1")
        # All ranks share a GPU, which NCCL allows on different hosts only.
        as_own_host = 'NCCL_HOSTID=node$RANK LOCKSTEP_HOST=node$RANK exec "$0" "$@"'
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc_per_node", ranks, "--master_addr", "127.0.0.1", "--master_port",
                   free_port(), "--no_python", "sh", "-c", as_own_host, sys.executable, HERE / "kernel_rank.py", "--wrap", wrap, "--fault", fault, "--rank", CULPRIT,
                   "--into", folder]
        if server:
            command = [BUILD / "bin" / "lockstep", "run", "--server", f"http://{server.address['otlp_http']}", "--job", name, "--", *command]
        self.process = subprocess.Popen(list(map(str, command)), env=variables, cwd=folder, stdout=open(folder / "job.log", "w"), stderr=subprocess.STDOUT,
                                        stdin=subprocess.DEVNULL)

    def steps(self, rank=0):
        file = self.folder / f"rank{rank}.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def wait_for(self, steps):
        deadline = time.monotonic() + START_S
        while len(self.steps()) < steps:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{len(self.steps())} steps instead of {steps}: {(self.folder / 'job.log').read_text()[-1500:]}")
            time.sleep(0.2)  # the interval of the poll

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def slow_line(fault):
    for number, line in enumerate((HERE / "kernel_rank.py").read_text().splitlines(), 1):
        if LINES[fault] in line:
            return number
    raise ValueError(fault)


def profile(server, name):
    """(capture, what went wrong, from when, to when)"""
    began = time.time_ns()
    code, said, wrong = cli(server, "profile", name, "--ranks", "all", "--steps", STEPS, "--shapes", "--wait", "--limit", PROFILE_S)
    if code != 0:
        return None, f"profile ended with {code}: {(said + wrong)[-600:]}", began, time.time_ns()
    return said.split(":")[0].split()[0], None, began, time.time_ns()


def judge_kernels(server, name, folder):
    fault = parts_of(name)[2]
    capture, wrong, began, ended = profile(server, name)
    if wrong:
        return {"right": False, "said": wrong}
    code, said, wrong = cli(server, "analyze", f"{name}/{capture}", "--json")
    (folder / "analysis.json").write_text(said)
    if code not in (0, 1):
        return {"right": False, "said": f"analyze ended with {code}: {wrong[-600:]}"}
    verdict = json.loads(said)["verdict"]
    hidden = verdict.get("hidden")  # what communication hides costs nobody anything, but is to be said
    named = [(rank, verdict["reason"]) for rank in verdict["ranks"]] + ([(hidden["rank"], hidden["reason"])] if hidden else [])
    right = named == ([] if fault == "none" else [(CULPRIT, KERNELS[fault])])
    return {"right": right, "said": verdict["sentence"], "reason": verdict["reason"], "profile_s": (ended - began) / 1e9, "began": began, "ended": ended}


def judge_line(server, name, folder):
    fault = parts_of(name)[2]
    code, said, wrong = cli(server, "lines", name, "--ranks", f"{CULPRIT},0,2", "--seconds", 5, "--json")
    (folder / "lines.json").write_text(said)
    near = [f"kernel_rank.py:{slow_line(fault) + more} " for more in (0, 1)]  # the loop, or what is in it
    text = json.loads(said)["difference"]["sentence"] if code in (0, 1) else (said + wrong)[-400:]
    return {"right": code == 0 and text.startswith(tuple(near)), "said": text}


def typical_ms(steps, from_ns, to_ns):
    inside = [length / 1e6 for _, at, length in steps if from_ns <= at < to_ns]
    return {"steps": len(inside), "median_ms": statistics.median(inside), "p95_ms": sorted(inside)[int(0.95 * len(inside))]} if inside else None


def cost_of(ranks, name, out, result):
    """The length of rank 0's steps around a profile, and of the same job without Lockstep."""
    time.sleep(8)  # steps after the profile, to compare with
    steps = ranks.steps()
    longest = max((length, at) for _, at, length in steps if result["began"] <= at)
    cost = {"idle": typical_ms(steps[SETTLED_STEPS:], 0, result["began"]), "ordered to done": typical_ms(steps, result["began"], result["ended"]),
            "after": typical_ms(steps, result["ended"] + 10**9, 2**63), "longest_ms": longest[0] / 1e6}
    ranks.stop()
    restart_mps()
    alone = Ranks(name, fresh(out / f"{name}_alone"))
    try:
        alone.wait_for(SETTLED_STEPS)
        time.sleep(10)  # steps enough for a median
        cost["without Lockstep"] = typical_ms(alone.steps()[SETTLED_STEPS:], 0, 2**63)
    finally:
        alone.stop()
    return cost


def run_case(name, out):
    fault = parts_of(name)[2]
    folder = fresh(out / name)
    server = start_server(folder)
    ranks = None
    try:
        ranks = Ranks(name, folder, server)
        ranks.wait_for(SETTLED_STEPS)
        time.sleep(8 if fault == "none" else 2)  # steps enough for a verdict, or for none
        result = judge_line(server, name, folder) if fault in LINES else judge_kernels(server, name, folder)
        try:
            result["open"] = [verdict["sentence"] for verdict in json.loads(http_get(server.address["http"], f"/api/jobs/{name}/why"))["verdicts"]]
        except urllib.error.HTTPError:
            result["open"] = []
        if fault == "none" and "began" in result:
            result["cost"] = cost_of(ranks, name, out, result)
        return result
    finally:
        if ranks:
            ranks.stop()
        server.stop()


def main(out, arguments):
    parser = argparse.ArgumentParser(prog="run.py OUT kernels")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"all without; of {' '.join(CASES)}, or their beginning (ddp4)")
    parser.add_argument("--minutes", type=float, default=9.0, help="no case is begun after this")
    options = parser.parse_args(arguments)
    names = [name for name in CASES if not options.cases or any(name.startswith(word) for word in options.cases)]
    if not (CARRIED / "bin" / "lockstepd").exists():
        parser.error(f"no server in {CARRIED}: run bundle.sh where it can be built, and carry that folder along")
    file = out / "kernels.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    began = time.monotonic()
    with ready_machine():
        for name in names:
            if time.monotonic() - began > options.minutes * 60:
                print(f"no time for {name}", flush=True)
                continue
            at = time.monotonic()
            restart_mps()
            try:
                results[name] = run_case(name, out)
            except (OSError, RuntimeError, ValueError, KeyError, subprocess.TimeoutExpired) as problem:  # the other cases are worth having
                print(f"FAILED {name}: {str(problem)[-1500:]}", flush=True)
                continue
            result = results[name]
            print(f"{'right' if result['right'] else 'WRONG'}  {name:18} {result['said']} ({time.monotonic() - at:.0f} s)", flush=True)
            for sentence in result["open"]:
                print(f"       verdict: {sentence}", flush=True)
            for when, times in result.get("cost", {}).items():
                print(f"       {when}: {times}", flush=True)
            file.write_text(json.dumps(results, indent=1))
    print(f"{sum(result['right'] for result in results.values())} of {len(results)} right", flush=True)
