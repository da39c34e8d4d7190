"""The Python hook on real NCCL jobs: what it costs a step, whether its phases and the split are true, what arrives at a server.

    run.py OUT hook [--parts overhead,phases,run] [--ranks 4,8]

overhead  Plugin and agent are on everywhere; the hook is the only difference. Four ways: time counted inside the hook; one job with the hook on and off
          step by step (on-off-off-on); two jobs in turns as overhead.py does, one with the hook and one without it; the same without it in both (null).
phases    plain.py with the variables of `lockstep run`, a slow loader in rank 2 and a checkpoint every few steps, while the PyTorch profiler records
          the same steps in every rank: phases and split against the trace (hook_compare.py).
run       `lockstep run -- torchrun plain.py` against a real server: what is there afterwards, and the verdict on rank 2's loader.

phases and run need build/carry (bundle.sh). OUT keeps hook.json and hook.md alone; both grow with every call. A part that fails says so with the
end of its ranks' logs, the others go on, and the exit status is 1. --cpu is for trying all of this where there is no GPU (gloo, no NCCL)."""
import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
import traceback
import urllib.error

import hook_compare
import live
import overhead
import programs
from programs import HERE, ROOT, Job, cores_for, free_port, fresh, http_get, ready_machine, restart_mps, start_agent, start_server

PARTS = ("overhead", "phases", "run")
SLOW_RANK = 2
TARGET_US, STEP_US = 100, 100_000
PART_S_MAX = 200  # of one job; a part has several
STEP_MS_WANTED = 100.0
PHASE_PERCENT_MAX = 1.0  # of the step: the median difference of a phase from the trace
LAYERS = {4: 4, 8: 2}  # about 100 ms with loopback TCP and 16 cores; corrected by what the first job shows
SIZES = {"width": 1024, "vocabulary": 4096, "sequence": 512, "batch": 8}
CPU_SIZES = {"width": 64, "vocabulary": 256, "sequence": 32, "batch": 2}


class Failed(RuntimeError):
    """Something to tell, with the logs of whoever failed."""


def tail(path, lines=25):
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except OSError as problem:
        return str(problem)


def tails(folder, codes=()):
    """The logs of the ranks that failed, else of all; and of agent and server."""
    bad = [rank for rank, code in enumerate(codes) if code not in (None, 0)]
    files = [folder / f"rank{rank}.log" for rank in bad] or sorted(folder.glob("rank*.log"))
    files += [path for path in (folder / "agent.log", folder / "server.log", folder / "job.log") if path.exists()]
    return "\n".join(f"--- {path.name}\n{tail(path, 80 if path.name == 'job.log' else 25)}" for path in files)


def complaints(folder):
    """What the hook says on standard error, but for its report of counted FLOPs."""
    lines = [line for path in sorted(folder.glob("*.log")) for line in path.read_text(errors="replace").splitlines()]
    return [line for line in lines if "lockstep: " in line and "lockstep: counted " not in line]


def hook_environment():
    """What `lockstep run` sets for Python."""
    path = os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": str(ROOT / "python" / "lockstep" / "_hook") + (":" + path if path else ""), "LOCKSTEP_AUTO": "1", **library_environment()}


def library_environment():
    return {"LOCKSTEP_LIBRARY": str(programs.BUILD / "lib" / "liblockstep.so"), "OMP_NUM_THREADS": "1"}


def plugin(options):
    return None if options.cpu else programs.BUILD / "lib" / "libnccl-profiler-lockstep.so"


def plain(options, **more):
    """Arguments of plain.py."""
    words = []
    for name, value in {**(CPU_SIZES if options.cpu else SIZES), **more}.items():
        words += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
    return words


@contextlib.contextmanager
def limited(seconds, what):
    def too_long(*_):
        raise Failed(f"{what} did not end in {seconds} s")

    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def ended_well(job, seconds):
    """Waits for the ranks. One that fails ends the others, which would wait for it."""
    codes = job.wait(seconds, until=lambda: any(rank.poll() not in (None, 0) for rank in job.ranks))
    if all(code == 0 for code in codes):
        return
    if any(code not in (None, 0) for code in codes):
        time.sleep(2)  # the others end by themselves, and say why
        codes = [rank.poll() for rank in job.ranks]
    job.kill()
    raise Failed(f"ranks ended with {codes} (None: still running after {seconds} s)\n{tails(job.folder, codes)}")


# Overhead


def one_job(folder, ranks, options, how, layers, steps, take_turns):
    """plain.py under hook_rank.py, with plugin and agent. Returns the step times by rank."""
    rank_cores, agent_cores = cores_for(ranks)
    fresh(folder)
    agent = job = None
    with limited(PART_S_MAX + 60, folder.name):
        try:
            agent = start_agent(folder, ["--export", f"file:{folder}/export"], agent_cores)
            command = [sys.executable, HERE / "hook_rank.py", how, folder, "--", *plain(options, layers=layers, steps=steps, take_turns=take_turns, log=folder)]
            job = Job(folder.name, folder, "ddp", world=ranks, plugin=plugin(options), cores=rank_cores, environment=library_environment(), command=command)
            ended_well(job, 60 + steps // 4)
            if said := complaints(folder):
                raise Failed(f"the hook complained: {said[0]}")
            step_ms = job.step_ms()
            if len(step_ms) != ranks:
                raise Failed(f"{len(step_ms)} of {ranks} ranks left their step times")
            return step_ms
        finally:
            if job:
                job.kill()
            if agent:
                agent.stop()


class Side(overhead.Side):
    """One of two jobs in turns: plugin and agent in both, the hook in one."""

    def __init__(self, folder, ranks, options, layers, hook):
        self.on_s = 0.0
        rank_cores, agent_cores = cores_for(ranks)
        self.agent = start_agent(folder, ["--export", f"file:{folder}/export"], agent_cores)
        command = [sys.executable, HERE / "plain.py", *plain(options, layers=layers, steps=options.pair_steps, take_turns=overhead.BLOCK, log=folder)]
        self.job = Job(folder.name, folder, "ddp", world=ranks, plugin=plugin(options), cores=rank_cores, take_turns=overhead.BLOCK, command=command,
                       environment=hook_environment() if hook else library_environment())


def one_pair(folder, ranks, index, options, layers, null):
    settings = argparse.Namespace(ranks=ranks, steps=options.pair_steps, apart=False)
    pair = overhead.run_pair(folder, index, settings, lambda name, side: Side(side, ranks, options, layers, name == "on" and not null))
    return {key: value for key, value in pair.items() if key != "metrics"}


def overhead_part(out, ranks, options):
    began = time.monotonic()
    budget_s = options.minutes * 60 / len(options.ranks)
    layers = options.layers or (2 if options.cpu else LAYERS.get(ranks, 4))
    steps = 40 if options.cpu else 120
    step_ms = one_job(out / f"counted{ranks}", ranks, options, "counted", layers, steps, overhead.BLOCK)
    counted = hook_compare.counted_of([json.loads(path.read_text()) for path in sorted((out / f"counted{ranks}").glob("counted_rank*.json"))])
    typical = statistics.median(value for rank in step_ms for value in rank[20:])
    result = {"ranks": ranks, "counted": {**counted, "step_ms": typical, "layers": layers}}
    print(f"  counted, {ranks} ranks: {counted['us_per_step']:.1f} us per step in the hook (slowest rank {counted['us_slowest_rank']:.1f}), step {typical:.1f} ms", flush=True)
    if not options.layers and not options.cpu and not 70 <= typical <= 140:
        layers = max(1, round(layers * STEP_MS_WANTED / typical))
        print(f"  {layers} layers from here on, for a step of about 100 ms", flush=True)
    result["layers"] = layers
    restart_gpu(options)

    steps = options.turn_steps
    step_ms = one_job(out / f"turns{ranks}", ranks, options, "turns", layers, steps, 1)
    result["turns"] = hook_compare.turns_of(step_ms)
    print(f"  on and off in turns, {ranks} ranks: {interval(result['turns']['difference'])}; null {interval(result['turns']['null'])}", flush=True)

    result.update(pairs=[], null_pairs=[])
    longest, wanted = 0.0, [kind for _ in range(options.pairs) for kind in ("pairs", "null_pairs")]
    for index, kind in enumerate(wanted):
        at = time.monotonic()
        if at - began + max(longest, 40.0 if not options.cpu else 0.0) > budget_s:
            print(f"  no time for {len(wanted) - index} of {len(wanted)} pairs", flush=True)
            break
        restart_gpu(options)
        with limited(PART_S_MAX, "a pair of jobs"):
            try:
                pair = one_pair(out / f"pair{ranks}", ranks, index, options, layers, kind == "null_pairs")
            except (Failed, RuntimeError, OSError) as problem:
                # Two jobs side by side are the most fragile of the four ways; what was found so far is worth having.
                logs = "\n".join(tails(path) for path in sorted((out / f"pair{ranks}").glob(f"pair{index}_*")))
                result["pair_failed"] = f"{problem}\n{logs}"[-6000:]
                print(f"FAILED pair of jobs, {ranks} ranks: {result['pair_failed']}", flush=True)
                break
        longest = max(longest, time.monotonic() - at)
        result[kind].append(pair)
        print(f"  {kind} {ranks} ranks: off {pair['off_ms']:.2f} ms, on {pair['on_ms']:.2f} ms, {pair['difference'] * 100:+.2f} %, {time.monotonic() - at:.0f} s", flush=True)
    for kind in ("pairs", "null_pairs"):
        if result[kind]:
            result[kind + "_summary"] = overhead.summary(result[kind])
    return result


def interval(told):
    return f"{told['median'] * 100:+.3f} % ({told['low'] * 100:+.3f} to {told['high'] * 100:+.3f}; mean {told['mean'] * 100:+.3f} ± {told['half_width'] * 100:.3f}; {told['count']} couples)"


def overhead_lines(results):
    lines = ["## What the hook costs a step", "", "| ranks | way | step, ms | cost | |", "|---|---|---|---|---|"]
    for result in results.values():
        ranks, counted, turns = result["ranks"], result["counted"], result["turns"]
        share = counted["us_per_step"] / STEP_US * 100
        kept = "kept" if counted["us_slowest_rank"] < TARGET_US else "MISSED"
        lines.append(f"| {ranks} | time counted inside the hook | {counted['step_ms']:.1f} | **{counted['us_per_step']:.1f} us** per step (slowest rank {counted['us_slowest_rank']:.1f}, blocks"
                     f" {counted['us_best_block']:.1f} to {counted['us_worst_block']:.1f}; CPU time {counted['cpu_us_per_step']:.1f}), {share:.4f} % of 100 ms | target < 0.1 %: {kept}; {counted['calls_per_step']:.0f} calls, {counted['clock_us_per_step']:.1f} us of it the clock's; by call, us: "
                     + ", ".join(f"{name} {value:.1f}" for name, value in sorted(counted["entry_points_us"].items(), key=lambda item: -item[1])) + " |")
        lines.append(f"| {ranks} | one job, hook on and off by the step | {turns['off_ms']:.2f} | {interval(turns['difference'])} | null: {interval(turns['null'])} |")
        for kind, text in (("pairs", "two jobs in turns, with and without"), ("null_pairs", "two jobs in turns, both without (null)")):
            if kind + "_summary" in result:
                told = result[kind + "_summary"]
                lines.append(f"| {ranks} | {text} | {told['off_ms']:.2f} | {overhead.percent(told['difference'], told['half_width'])} over {told['pairs']} pairs"
                             f" | block by block {overhead.percent(told['difference_of_blocks'], told['half_width_of_blocks'])} |")
        if "pair_failed" in result:
            lines.append(f"| {ranks} | two jobs in turns | | FAILED | {result['pair_failed'].splitlines()[0]} |")
    return lines


# Phases


def steps_at(server, job, rank, last_step, seconds=25):
    """All told steps of a rank, once the last of them has arrived."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            steps = json.loads(http_get(server.address["http"], f"/api/jobs/{job}/ranks/{rank}?last=500"))["steps"]
        except urllib.error.HTTPError as problem:  # 404: not heard of yet
            steps, why = [], f"{problem}: {problem.read().decode(errors='replace')[:200]}"
        else:
            why = f"{len(steps)} steps"
        if any(step["step"] >= last_step for step in steps):
            return steps
        if time.monotonic() > deadline:
            raise Failed(f"step {last_step} of rank {rank} of {job} did not arrive at the server in {seconds} s: {why}")
        time.sleep(0.3)  # the interval of the poll


def phases_part(out, ranks, options):
    name = f"phases{ranks}"
    folder = fresh(out / name)
    steps, first, traced = (24, 6, 14) if options.cpu else (46, 20, 20)
    layers = options.layers or (2 if options.cpu else LAYERS.get(ranks, 4))
    server = agent = job = None
    with limited(PART_S_MAX, name):
        try:
            server = start_server(folder)
            agent = start_agent(folder, ["--server", f"http://{server.address['otlp_http']}"])
            command = [sys.executable, HERE / "plain.py", *plain(options, layers=layers, steps=steps, slow_input=SLOW_RANK, slow_ms=40, checkpoint=folder / "model.pt", **({} if options.cpu else {"batch": 16}),
                                                                checkpoint_every=5, trace=folder, trace_from=first, trace_steps=traced)]
            job = Job(name, folder, "ddp", world=ranks, plugin=plugin(options), cores=cores_for(ranks)[0], environment=hook_environment(), command=command)
            ended_well(job, PART_S_MAX - 60)
            (folder / "model.pt").unlink(missing_ok=True)
            if said := complaints(folder):
                raise Failed(f"the hook complained: {said[0]}")
            entries, typical_input, not_split = [], {}, 0
            for rank in range(ranks):
                told = steps_at(server, name, rank, steps - 1)
                path = folder / f"trace_rank{rank}.json"
                if not path.exists():
                    raise Failed(f"rank {rank} left no trace\n{tail(folder / f'rank{rank}.log')}")
                mine = hook_compare.compared(rank, hook_compare.read_trace(path), [step for step in told if not step["inferred"]])
                path.unlink()
                if len(mine) < traced - 3:
                    raise Failed(f"rank {rank}: of {traced} traced steps only {[entry['step'] for entry in mine]} are told and covered")
                entries += mine
                not_split += sum(entry["parts"] is None for entry in mine)
                typical_input[rank] = statistics.median(entry["phases"]["input"][1] for entry in mine)
        except (Failed, OSError, RuntimeError) as problem:
            text = str(problem)
            raise Failed(text if "---" in text else f"{text}\n{tails(folder)}") from problem
        finally:
            for one in (job, agent, server):
                if one:
                    (one.kill if one is job else one.stop)()
    ends = [abs(entry["end_us"]) for entry in entries]
    phases, parts = hook_compare.rows_of(entries, "phases"), hook_compare.rows_of(entries, "parts")
    wrong = [f"{row['name']}: {row['median_percent']:.2f} % of the step" for row in phases if row["median_percent"] > PHASE_PERCENT_MAX]
    if not parts and not options.cpu:
        wrong.append("no step was told with a split")
    if wrong:
        print(f"WRONG phases, {ranks} ranks: {'; '.join(wrong)}", flush=True)
    return {"ranks": ranks, "wrong": wrong, "layers": layers, "rank_steps": len(entries), "not_split": not_split, "step_ms": statistics.median(entry["duration_ms"] for entry in entries),
            "end_us_median": statistics.median(ends), "end_us_worst": max(ends), "input_ms_by_rank": typical_input,
            "phases": phases, "parts": parts,
            "by_rank": {rank: hook_compare.rows_of([entry for entry in entries if entry["rank"] == rank], "parts") for rank in sorted({0, SLOW_RANK})}}


def phases_lines(results):
    lines = ["## Phases and split against the profiler's trace of the same steps"]
    for result in results.values():
        told = ", ".join(f"{rank}: {value:.1f}" for rank, value in result["input_ms_by_rank"].items())
        lines += ["", f"{result['ranks']} ranks, {result['rank_steps']} steps of ranks, step {result['step_ms']:.1f} ms (median). A step as told ends {result['end_us_median']:.0f} us"
                  f" (median; worst {result['end_us_worst']:.0f}) from the end of the optimizer's step in the trace. Input told by rank, ms: {told} (rank {SLOW_RANK} has a slow loader).", ""]
        lines += hook_compare.table(result["phases"], "phase")
        if result["parts"]:
            lines += ["", *hook_compare.table(result["parts"], "part")]
            for rank, rows in result["by_rank"].items():
                lines += ["", f"Rank {rank} alone:", "", *hook_compare.table(rows, "part")]
        if result["wrong"]:
            lines += ["", f"**WRONG**: {'; '.join(result['wrong'])}"]
        if result["not_split"]:
            lines += ["", f"{result['not_split']} of these steps were told without a split."]
    return lines


# lockstep run


def cli(server, *words):
    command = [programs.CARRIED / "bin" / "lockstep", *words, "--server", f"http://{server.address['http']}"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=30, check=False)
    return "\n".join((done.stdout + done.stderr).splitlines()[:45])


def flops_of_step(sizes, layers):
    """Of plain.py: two matrices of 4 width^2 a block, the head; forward and backward."""
    return 6.0 * sizes["batch"] * sizes["sequence"] * (8 * sizes["width"] ** 2 * layers + sizes["width"] * sizes["vocabulary"])


def launch(name, folder, ranks, server, options, arguments, log):
    variables = dict(os.environ, LOCKSTEP_RECORDER_DIR=str(folder / "recorders"), LOCKSTEP_SERVER=f"http://{server.address['http']}", LOCKSTEP_COUNT_FLOPS="1",
                     NCCL_SOCKET_IFNAME="lo", NCCL_DEBUG="WARN", OMP_NUM_THREADS="1")
    if options.cpu:
        variables["LOCKSTEP_PEAK_FLOPS"] = "1e12"
    # All ranks share a GPU, which NCCL allows on different hosts only.
    as_own_host = 'NCCL_HOSTID=node$RANK LOCKSTEP_HOST=node$RANK exec "$0" "$@"'
    command = [programs.BUILD / "bin" / "lockstep", "run", "--server", f"http://{server.address['otlp_http']}", "--job", name, "--",
               sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc_per_node", ranks, "--master_addr", "127.0.0.1", "--master_port", free_port(),
               "--no_python", "sh", "-c", as_own_host, sys.executable, HERE / "plain.py", *arguments]
    return subprocess.Popen(list(map(str, command)), env=variables, cwd=folder, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)


def run_one(out, ranks, options, tell):
    """tell: the script says its loss in a line, and nothing is slow. Else it is unmodified, and rank 2's loader is slow."""
    name = f"run{ranks}" + ("_told" if tell else "")
    folder = fresh(out / name)
    (folder / "recorders").mkdir(mode=0o700)
    layers = options.layers or (2 if options.cpu else LAYERS.get(ranks, 4))
    steps = (30 if options.cpu else 50) if tell else (80 if options.cpu else 160)
    arguments = plain(options, layers=layers, steps=steps, **({"tell": True} if tell else {"slow_input": SLOW_RANK, "checkpoint": folder / "model.pt", "checkpoint_every": 50}))
    truth = None if tell else live.slow(SLOW_RANK, "input")
    server = process = None
    with limited(PART_S_MAX, name):
        try:
            server = start_server(folder)
            began = time.monotonic()
            with open(folder / "job.log", "w") as log:
                if tell:
                    os.environ["PYTHONPATH"], before = str(ROOT / "python"), os.environ.get("PYTHONPATH")
                process = launch(name, folder, ranks, server, options, arguments, log)
                if tell:
                    os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)
            said, _ = live.watch(server.address["http"], name, truth, lambda: None, lambda: process.poll() is None)
            try:
                code = process.wait(PART_S_MAX - 60)
            except subprocess.TimeoutExpired:
                code = None
            if code != 0:
                raise Failed(f"lockstep run ended with {code} (None: not at all)\n{tails(folder)}")
            seconds = time.monotonic() - began
            told = {rank: steps_at(server, name, rank, steps - 1) for rank in range(ranks)}
            result = examined(ranks, steps, told, options, layers)
            result["comms"] = [{key: comm[key] for key in ("role", "name", "told", "size", "ranks")}
                               for comm in json.loads(http_get(server.address["http"], f"/api/jobs/{name}/comms"))["comms"]]
            first_ns = min(step["start_unix_ns"] for step in told[0])
            judged = live.judge(said, truth, first_ns)
            result.update(complaints=complaints(folder)[:5], name=name, unmodified=not tell, exit=code, seconds=seconds, verdict={key: judged[key] for key in ("right", "named", "suspected_s", "confirmed_s", "false", "sentence")},
                          said=tail(folder / "job.log", 400).splitlines()[:1], step_text=cli(server, "step", name, steps // 2), why_text=cli(server, "why", name))
            result["checks"] = checks(result, options)
            return result
        except (Failed, OSError, RuntimeError, subprocess.TimeoutExpired) as problem:
            text = str(problem)
            raise Failed(text if "---" in text else f"{text}\n{tails(folder)}") from problem
        finally:
            if process and process.poll() is None:
                process.terminate()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            if server:
                server.stop()


def examined(ranks, steps, told, options, layers):
    """What the server has of the steps. told: by rank."""
    counted = [step for rank in told.values() for step in rank if not step["inferred"] and 5 <= step["step"] < steps]
    phases = [set(step["phases_ms"]) for step in counted]
    flops = [step["scalars"]["flops"] for step in counted if "flops" in step["scalars"]]
    mfu = [step["mfu"] for step in counted if step["mfu"]]
    expected = flops_of_step(CPU_SIZES if options.cpu else SIZES, layers)
    return {
        "ranks": ranks, "steps_wanted": steps, "steps": {rank: sum(not step["inferred"] and step["step"] < steps for step in mine) for rank, mine in told.items()},
        "step_ms": statistics.median(step["duration_ms"] for step in counted), "phases": sorted(set.intersection(*phases)) if phases else [],
        "saved": sum("checkpoint" in one for one in phases), "losses": sum("loss" in step["scalars"] for step in counted),
        "mfu": statistics.median(mfu) if mfu else None, "flops": statistics.median(flops) if flops else None, "flops_expected": expected,
        "input_ms": {rank: statistics.median(step["phases_ms"].get("input", 0.0) for step in mine if step["step"] >= 5) for rank, mine in told.items()},
        "parts_ms": {rank: {part: statistics.median(step["parts_ms"][part] for step in mine if step["parts_ms"]) for part in hook_compare.PARTS}
                     for rank, mine in told.items() if any(step["parts_ms"] for step in mine)},
    }


def checks(result, options):
    """What must be true, by name."""
    others = [value for rank, value in result["input_ms"].items() if rank != SLOW_RANK]
    held = {
        "every step of every rank": all(count == result["steps_wanted"] for count in result["steps"].values()),
        "phases in every step": {"input", "forward", "backward", "optimizer"} <= set(result["phases"]),
        "no complaint of the hook": not result["complaints"],
        "communicator of all ranks named world": options.cpu or any(comm["role"] == "world" and comm["told"] and comm["size"] == result["ranks"] for comm in result["comms"]),
    }
    if options.can_count:
        held["FLOPs counted as computed by hand, within 5 %"] = result["flops"] is not None and abs(result["flops"] / result["flops_expected"] - 1) < 0.05
        held["MFU"] = result["mfu"] is not None
    if result["unmodified"]:
        held["slow loader is input of rank 2 alone"] = result["input_ms"][SLOW_RANK] >= 55 and all(value < 20 for value in others)
        held["checkpoints"] = result["saved"] > 0
        if not options.cpu:
            held["input of rank 2 in the split"] = result["parts_ms"].get(SLOW_RANK, {}).get("input", 0.0) >= 50
            held["verdict names the input of rank 2"] = result["verdict"]["confirmed_s"] is not None
    if options.cpu or not result["unmodified"]:  # a loss on a GPU is told only by the script: reading it would stop the GPU
        held["loss"] = result["losses"] > 0
    return held


def run_part(out, ranks, options):
    result = {"unmodified": run_one(out, ranks, options, tell=False)}
    if ranks == options.ranks[0]:
        restart_gpu(options)
        result["told"] = run_one(out, ranks, options, tell=True)
    wrong = [f"{kind}: {name}" for kind, one in result.items() for name, held in one["checks"].items() if not held]
    if wrong:
        print(f"WRONG run, {ranks} ranks: {'; '.join(wrong)}", flush=True)
    return {"ranks": ranks, "wrong": wrong, **result}


def parts_table(parts_ms):
    if not parts_ms:
        return []
    rows = [f"| {rank} | " + " | ".join(f"{parts[name]:.1f}" for name in hook_compare.PARTS) + " |" for rank, parts in parts_ms.items()]
    return ["| rank | " + " | ".join(f"{name}, ms" for name in hook_compare.PARTS) + " |", "|---" * (1 + len(hook_compare.PARTS)) + "|", *rows, ""]


def run_lines(results):
    lines = ["## lockstep run -- torchrun, against a real server"]
    for both in results.values():
        for kind in ("unmodified", "told"):
            if kind not in both:
                continue
            result = both[kind]
            mfu = "none" if result["mfu"] is None else f"{100 * result['mfu']:.3f} %"
            flops = "none" if result["flops"] is None else f"{result['flops']:.4g} (by hand {result['flops_expected']:.4g})"
            verdict = result["verdict"]
            lines += ["", f"### {result['ranks']} ranks, {'unmodified script' if kind == 'unmodified' else 'the script tells its loss in one line; nothing is slow'}", "",
                      f"Steps at the server by rank: {', '.join(map(str, result['steps'].values()))} of {result['steps_wanted']}; step {result['step_ms']:.1f} ms; phases in every step: {', '.join(result['phases'])};"
                      f" steps with a checkpoint {result['saved']}, with a loss {result['losses']}; MFU {mfu}, FLOPs counted {flops}; input by rank, ms: "
                      + ", ".join(f"{rank}: {value:.1f}" for rank, value in result["input_ms"].items()) + ".", "",
                      f"Communicators: {json.dumps(result['comms'])}. Verdict: {verdict['named']}, suspected {live.seconds(verdict['suspected_s'])}, confirmed {live.seconds(verdict['confirmed_s'])}"
                      f" after the first step; false: {', '.join(verdict['false']) or 'none'}.", "",
                      *parts_table(result["parts_ms"]), *[f"- complaint: {line}" for line in result["complaints"]],
                      *[f"- {'held' if held else '**WRONG**'}: {name}" for name, held in result["checks"].items()], ""]
            if kind == "unmodified":
                lines += ["```", *result["said"], f"$ lockstep why {result['name']}", *result["why_text"].splitlines(), f"$ lockstep step {result['name']} {result['steps_wanted'] // 2}",
                          *result["step_text"].splitlines(), "```"]
    return lines


# All of it


def restart_gpu(options):
    if not options.cpu:
        restart_mps()


@contextlib.contextmanager
def this_machine():
    """--cpu: what ./dev build left, no GPU."""
    programs.BUILD = programs.CARRIED = ROOT / "build"
    yield


LINES = {"overhead": overhead_lines, "phases": phases_lines, "run": run_lines}
FUNCTIONS = {"overhead": overhead_part, "phases": phases_part, "run": run_part}


def machine():
    """The machine in words, and whether its PyTorch can count FLOPs."""
    ask = ("import importlib.util, torch; gpu = torch.cuda.is_available(); print(torch.__version__, torch.cuda.get_device_name(0) if gpu else 'no GPU',"
           " '.'.join(map(str, torch.cuda.nccl.version())) if gpu else '-', importlib.util.find_spec('torch.utils.flop_counter') is not None, sep='|')")
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{sys.executable} has no PyTorch that works: {done.stderr[-2000:]}")
    torch, gpu, nccl, can_count = done.stdout.strip().splitlines()[-1].split("|")
    return f"{gpu}, {os.cpu_count()} cores, Python {sys.version.split()[0]}, PyTorch {torch}, NCCL {nccl}", can_count == "True"


def report(out, document):
    (out / "hook.json").write_text(json.dumps(document, indent=1))
    lines = ["# The Python hook on real jobs", "", f"`tests/gpu/run.py OUT hook`: {document['machine']}, {document['date']}."]
    for part in PARTS:
        good = {key: value for key, value in document["results"].get(part, {}).items() if "failed" not in value}
        if good:
            try:
                lines += ["", *LINES[part](good)]
            except (KeyError, TypeError, ValueError):  # the numbers are in hook.json all the same
                lines += ["", f"## {part}", "", "```", *traceback.format_exc().splitlines(), "```"]
        for key, value in document["results"].get(part, {}).items():
            if "failed" in value:
                lines += ["", f"## FAILED: {part}, {key} ranks", "", "```", *value["failed"].splitlines()[-80:], "```"]
    (out / "hook.md").write_text("\n".join(lines) + "\n")


def main(out, arguments):
    parser = argparse.ArgumentParser(prog="run.py OUT hook")
    parser.add_argument("--parts", default=",".join(PARTS), help="of overhead,phases,run")
    parser.add_argument("--ranks", default="4,8")
    parser.add_argument("--minutes", type=float, default=7.0, help="of overhead, all rank counts together: no pair of jobs is begun that would not end within it")
    parser.add_argument("--pairs", type=int, default=3, help="couples of jobs in turns, and as many null ones, as far as there is time")
    parser.add_argument("--pair-steps", type=int, default=120)
    parser.add_argument("--turn-steps", type=int, default=620, help="of the job with the hook on and off by the step")
    parser.add_argument("--layers", type=int, default=0, help="of the model; default for a step of about 100 ms")
    parser.add_argument("--cpu", action="store_true", help="no GPU: try the script itself")
    options = parser.parse_args(arguments)
    parts = options.parts.split(",")
    options.ranks = [int(word) for word in options.ranks.split(",")]
    if any(part not in PARTS for part in parts):
        parser.error(f"--parts: of {','.join(PARTS)}")
    if any(ranks <= SLOW_RANK for ranks in options.ranks):
        parser.error(f"--ranks: more than {SLOW_RANK}")
    if options.pair_steps < overhead.SKIPPED_STEPS + 2 * overhead.BLOCK or options.pair_steps % overhead.BLOCK:
        parser.error(f"--pair-steps: a multiple of {overhead.BLOCK}, at least {overhead.SKIPPED_STEPS + 2 * overhead.BLOCK}")
    if {"phases", "run"} & set(parts) and not options.cpu and not (programs.CARRIED / "bin" / "lockstepd").exists():
        parser.error(f"no server in {programs.CARRIED}: run bundle.sh where it can be built, and carry that folder along")
    words, options.can_count = machine()
    file = out / "hook.json"
    document = json.loads(file.read_text()) if file.exists() else {"results": {}}
    document.update(machine=words, date=time.strftime("%Y-%m-%d"))
    if os.stat(out).st_dev != os.stat("/dev/shm").st_dev:
        print("OUT is not in /dev/shm: recorders on a disk cost what they would not cost in use", flush=True)
    failed = False
    work = out / "work"
    with this_machine() if options.cpu else ready_machine():
        for part in [part for part in PARTS if part in parts]:
            for ranks in options.ranks:
                at = time.monotonic()
                restart_gpu(options)
                fresh(work)
                try:
                    result = FUNCTIONS[part](work, ranks, options)
                except Exception as problem:  # the other parts are worth having
                    text = str(problem) if isinstance(problem, Failed) else traceback.format_exc() + tails_below(work)
                    result = {"failed": text[-12_000:]}
                    print(f"FAILED {part}, {ranks} ranks: {text[-6000:]}", flush=True)
                failed = failed or "failed" in result or bool(result.get("wrong")) or "pair_failed" in result
                document["results"].setdefault(part, {})[str(ranks)] = result
                report(out, document)
                print(f"{part}, {ranks} ranks: {time.monotonic() - at:.0f} s", flush=True)
    shutil.rmtree(work, ignore_errors=True)
    print((out / "hook.md").read_text(), flush=True)
    if failed:
        raise SystemExit("hook: something failed; see above")


def tails_below(work):
    return "\n".join(tails(folder) for folder in [work, *sorted(path for path in work.glob("*") if path.is_dir())] if list(folder.glob("*.log")))
