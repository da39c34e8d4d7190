"""Faults injected into real jobs while a real server watches: what it names, and how long after the fault began.

The job trains well for 20 steps first. The answer is asked for four times a second, as `lockstep why` does."""
import argparse
import json
import statistics
import subprocess
import time
import urllib.error

from programs import CARRIED, Job, fresh, http_get, ready_machine, restart_mps, start_agent, start_server

POLL_S = 0.25
FROM_STEP = 20
STEPS = 600  # more than any case needs: live ends the job
HEALTHY_STEPS = 120
START_S = 60  # until the fault begins
FAULT_S = 20  # then the verdict must be there
AFTER_S = 4  # and this long it must stay the right one


def slow(rank, *layers):
    return {"kind": "slow", "rank": rank, "layers": layers}


def hang(rank, *layers, cause=None):
    return {"kind": "hang", "rank": rank, "layers": layers, "cause": cause}


# name: job, case of train.py, truth (None: nobody is to blame). Jobs that get stuck come last: nothing of theirs can spoil another.
CASES = {
    "ddp_healthy": ("ddp", "healthy", None),
    "ddp_gpu_r1": ("ddp", "gpu:1:4", slow(1, "gpu")),
    "ddp_input_r3": ("ddp", "input:3", slow(3, "input")),
    "ddp_host_r0": ("ddp", "host:0", slow(0, "host")),
    "ddp_link_r2": ("ddp", "link:2", slow(2, "link", "nic")),
    "ddp_pulse_r1": ("ddp", "pulse:1", slow(1, "host")),
    "ddp_missing_r3": ("ddp", "missing:3", hang(3, "software", cause="rank-missing")),
    "ddp_mismatch_r2": ("ddp", "mismatch:2", hang(2, "software", cause="op-mismatch")),
    "ddp_sizes_r1": ("ddp", "sizes:1", hang(1, "software", cause="op-mismatch")),
    "hyb_healthy": ("hyb", "healthy", None),
    "hyb_gpu_r6": ("hyb", "gpu:6:2", slow(6, "gpu")),
    "hyb_input_r2": ("hyb", "input:2", slow(2, "input")),
    "hyb_host_r5": ("hyb", "host:5", slow(5, "host")),
    "hyb_link_r5": ("hyb", "link:5", slow(5, "link", "nic")),
    "hyb_pulse_r3": ("hyb", "pulse:3", slow(3, "host")),
    "hyb_missing_r4": ("hyb", "missing:4", hang(4, "software", cause="rank-missing")),
    "hyb_mismatch_r6": ("hyb", "mismatch:6", hang(6, "software", cause="op-mismatch")),
    "hyb_sizes_r1": ("hyb", "sizes:1", hang(1, "software", cause="op-mismatch")),
}


class Answers:
    """Every different thing the server said about a job, with the time at which it was first seen."""

    def __init__(self):
        self.said = []
        self.seen = set()

    def add(self, now_ns, why):
        for verdict in why["verdicts"]:
            culprit = verdict["culprit"]
            said = {"id": verdict["id"], "state": verdict["state"], "kind": verdict["kind"], "ranks": culprit["rank"], "layer": culprit["layer"],
                    "cause": culprit["cause"]}
            key = json.dumps(said)
            if key not in self.seen:
                self.seen.add(key)
                self.said.append({**said, "at_unix_ns": now_ns, "found_unix_ns": verdict["found_unix_ns"], "sentence": verdict["sentence"]})


def is_right(said, truth):
    return truth is not None and said["kind"] == truth["kind"] and said["ranks"] == [truth["rank"]] and said["layer"] in truth["layers"]


def name_of(said):
    return f"{said['kind']} {','.join(map(str, said['ranks']))} {said['layer']}/{said['cause']}"


def judge(said, truth, began_ns):
    """said: Answers.said in order. began_ns: None where no fault began."""
    confirmed = [one for one in said if one["state"] == "confirmed"]
    right = [one for one in confirmed if is_right(one, truth)]

    def seconds_until(states):
        times = [one["at_unix_ns"] for one in said if one["state"] in states and is_right(one, truth)]
        return (min(times) - began_ns) / 1e9 if times and began_ns else None

    def wrong(state):
        return sorted({(one["id"], name_of(one)) for one in said if one["state"] == state and not is_right(one, truth)})

    false = [name for _, name in wrong("confirmed")]
    last = (right or confirmed or said)[-1] if said else None
    return {
        "right": not false and (truth is None or bool(right)),
        "named": name_of(last) + ("" if last["state"] == "confirmed" else f" ({last['state']})") if last else "nobody",
        "cause_right": truth is None or (last is not None and truth.get("cause") in (None, last["cause"])),
        "suspected_s": seconds_until(("suspected", "confirmed")),
        "confirmed_s": seconds_until(("confirmed",)),
        "false": false,
        "false_suspicions": [name for _, name in wrong("suspected")],
        "sentence": last["sentence"] if last else "",
    }


def watch(address, job_id, truth, fault_began_ns, running):
    """Asks until the answer is known and has lasted. fault_began_ns(), running(): how the job is."""
    answers, began, settled = Answers(), time.monotonic(), None
    while True:
        now = time.monotonic()
        try:
            answers.add(time.time_ns(), json.loads(http_get(address, f"/api/jobs/{job_id}/why")))
        except urllib.error.HTTPError as problem:
            if problem.code != 404:  # not heard of yet
                raise
        fault_ns = fault_began_ns()
        if settled is None:
            found = any(one["state"] == "confirmed" and is_right(one, truth) for one in answers.said)
            late = fault_ns is not None and time.time_ns() - fault_ns > FAULT_S * 1e9
            if found or late or not running() or now - began > START_S + FAULT_S:
                settled = now
        elif now - settled > AFTER_S:
            return answers.said, fault_ns
        time.sleep(max(0.0, POLL_S - (time.monotonic() - now)))  # the interval of the poll


def seconds(value):
    return "never" if value is None else f"{value:.1f} s"


def line_of(name, result):
    truth = result["truth"]
    expected = "nobody" if truth is None else f"{truth['kind']} {truth['rank']} {'|'.join(truth['layers'])}"
    text = f"{'right' if result['right'] else 'WRONG'}  {name:16} truth {expected:22} named {result['named']:34}"
    if truth is not None:
        text += f" suspected {seconds(result['suspected_s'])}, confirmed {seconds(result['confirmed_s'])};"
    text += f" false {len(result['false'])}, false suspicions {len(result['false_suspicions'])}"
    return text + f"; step {result['step_ms'] or 0:.0f} ms"


def run_case(name, out):
    job, case, truth = CASES[name]
    folder = fresh(out / name)
    server = start_server(folder)
    agent = ranks = None
    try:
        agent = start_agent(folder, ["--server", f"http://{server.address['otlp_http']}"])
        ranks = Job(name, folder, job, case, steps=HEALTHY_STEPS if truth is None else STEPS, from_step=FROM_STEP)
        said, began_ns = watch(server.address["http"], name, truth, ranks.fault_began_ns, ranks.running)
        steps = json.loads(http_get(server.address["http"], f"/api/jobs/{name}/steps?last=500"))["step_ms"]
        known = [value for value in steps if value is not None]
        result = {"truth": truth, **judge(said, truth, began_ns), "fault_began_unix_ns": began_ns, "exit_codes": [rank.poll() for rank in ranks.ranks],
                  "steps": len(steps), "step_ms": statistics.median(known) if known else None, "said": said}
        with open(folder / "why.txt", "w") as file:
            command = [CARRIED / "bin" / "lockstep", "why", name, "--server", f"http://{server.address['http']}"]
            subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False)
        return result
    finally:
        if ranks:
            ranks.kill()
        for daemon in (agent, server):
            if daemon:
                daemon.stop()


def check(parser, unknown):
    """Refuses what cannot be played before anything is built."""
    if unknown:
        parser.error(f"no such case: {' '.join(unknown)}")
    if not (CARRIED / "bin" / "lockstepd").exists():
        parser.error(f"no server in {CARRIED}: run bundle.sh where it can be built, and carry that folder along")


def run_cases(file, names, minutes, run_case, line_of):
    """Those that begin within so many minutes, one after the other; the results by name, those of earlier calls too, are in the file."""
    results = json.loads(file.read_text()) if file.exists() else {}
    with ready_machine():
        began = time.monotonic()
        for name in names:
            if time.monotonic() - began > minutes * 60:
                print(f"no time for {name}", flush=True)
                continue
            at = time.monotonic()
            restart_mps()
            try:
                results[name] = run_case(name)
            except (OSError, RuntimeError, ValueError, KeyError) as problem:  # the other cases are worth having
                print(f"FAILED {name}: {problem!r}", flush=True)
                continue
            print(f"{line_of(name, results[name])}; {time.monotonic() - at:.0f} s", flush=True)
            for wrong in results[name]["false"]:
                print(f"       false: {wrong}", flush=True)
            file.write_text(json.dumps(results, indent=1))
    return results


def main(out, arguments):
    parser = argparse.ArgumentParser(prog="run.py OUT live")
    parser.add_argument("cases", nargs="+", metavar="CASE", help=f"ddp, hyb, all, or of: {' '.join(CASES)}")
    parser.add_argument("--minutes", type=float, default=9.0, help="no case is begun after this")
    options = parser.parse_args(arguments)
    names = [name for name in CASES if name in options.cases or name.split("_")[0] in options.cases or "all" in options.cases]
    check(parser, [case for case in options.cases if case not in CASES and case not in ("ddp", "hyb", "all")])
    results = run_cases(out / "live.json", names, options.minutes, lambda name: run_case(name, out), line_of)
    print(f"{sum(result['right'] for result in results.values())} of {len(results)} right", flush=True)
