"""Faults from outside into real jobs on a full node while a real server watches: what it names, and how long after the fault began.

The programs, the faults and the healthy oddities are those of outside.py, other ranks and rates than its recordings have. The answer is
asked for four times a second, as `lockstep why` does, from the first step to the end of the job."""
import argparse
import json
import threading
import time
import urllib.error

import live
import outside
from programs import fresh, http_get, start_agent, start_server

# As outside.CASES.
CASES = {
    "fsdp_cpu_r1": {"job": "fsdp", "outside": "cpu", "rank": 1, "seconds": 26},
    "fsdp_stop_r4": {"job": "fsdp", "outside": "stop", "rank": 4, "seconds": 24},
    "fsdp_wire_r3": {"job": "fsdp", "outside": "wire", "rank": 3, "bytes_per_s": 100_000_000, "seconds": 26},
    "fsdp_link_first_r6": {"job": "fsdp", "slow_wire": 6, "bytes_per_s": 80_000_000, "seconds": 26},
    "fsdp_narrow_r2": {"job": "fsdp", "outside": "narrow", "rank": 2, "seconds": 24},
    "fsdp_worker_r5": {"job": "fsdp", "odd": "loader", "outside": "worker", "rank": 5, "seconds": 26},
    "fsdp_feed_r4": {"job": "fsdp", "odd": "feed", "outside": "feed", "rank": 4, "seconds": 24},
    "fsdp_freeze_r0": {"job": "fsdp", "outside": "freeze", "rank": 0, "seconds": 24},
    "fsdp_kill_r5": {"job": "fsdp", "outside": "kill", "rank": 5, "seconds": 20},
    "pipe_cpu_r2": {"job": "pipe", "outside": "cpu", "rank": 2, "seconds": 26},
    "pipe_wire_r5": {"job": "pipe", "outside": "wire", "rank": 5, "bytes_per_s": 40_000_000, "seconds": 26},
    "pipe_narrow_r3": {"job": "pipe", "outside": "narrow", "rank": 3, "seconds": 26},
    "pipe_freeze_r6": {"job": "pipe", "outside": "freeze", "rank": 6, "seconds": 24},
    "pipe_kill_r1": {"job": "pipe", "outside": "kill", "rank": 1, "seconds": 20},
    "hyb_stop_r1": {"job": "hyb", "outside": "stop", "rank": 1, "seconds": 22},
    "hyb_cpu_r6": {"job": "hyb", "outside": "cpu", "rank": 6, "seconds": 22},
    "hyb_gpu_r5_and_link_r2": {"job": "hyb", "case": "gpu:5:2", "slow_wire": 2, "bytes_per_s": 150_000_000, "seconds": 22},
    "experts_cpu_r3": {"job": "experts", "outside": "cpu", "rank": 3, "seconds": 26},
    "experts_wire_r6": {"job": "experts", "outside": "wire", "rank": 6, "bytes_per_s": 50_000_000, "seconds": 26},
    "experts_link_first_r6": {"job": "experts", "slow_wire": 6, "bytes_per_s": 50_000_000, "seconds": 26},
    "experts_proxy_r1": {"job": "experts", "outside": "proxy", "rank": 1, "seconds": 26},
    "experts_freeze_r4": {"job": "experts", "outside": "freeze", "rank": 4, "seconds": 24},
    "accumulate_stop_r2": {"job": "accumulate", "outside": "stop", "rank": 2, "seconds": 24},
    "accumulate_wire_r5": {"job": "accumulate", "outside": "wire", "rank": 5, "bytes_per_s": 60_000_000, "seconds": 26},
    "accumulate_cpu_r0": {"job": "accumulate", "outside": "cpu", "rank": 0, "seconds": 26},
    "serve_cpu_r2": {"job": "serve", "world": 4, "outside": "cpu", "rank": 2, "seconds": 26},
    "serve_stop_r1": {"job": "serve", "world": 4, "outside": "stop", "rank": 1, "seconds": 24},
    "serve_wire_r3": {"job": "serve", "world": 4, "outside": "wire", "rank": 3, "bytes_per_s": 20_000_000, "seconds": 26},
    "fsdp_five_cpu_r4": {"job": "fsdp", "world": 5, "outside": "cpu", "rank": 4, "seconds": 26},
    "fsdp_five_wire_r1": {"job": "fsdp", "world": 5, "outside": "wire", "rank": 1, "bytes_per_s": 80_000_000, "seconds": 26},
    "fsdp_proxy_r7": {"job": "fsdp", "outside": "proxy", "rank": 7, "seconds": 26},
    "experts_healthy": {"job": "experts", "seconds": 60},
    "accumulate_healthy": {"job": "accumulate", "seconds": 60},
    "serve_healthy": {"job": "serve", "world": 4, "seconds": 60},
    "fsdp_healthy": {"job": "fsdp", "seconds": 90},
    "pipe_healthy": {"job": "pipe", "seconds": 90},
    "fsdp_compile": {"job": "fsdp", "odd": "compile", "seconds": 90},
    "fsdp_evaluate": {"job": "fsdp", "odd": "evaluate", "seconds": 90},
    "fsdp_checkpoint": {"job": "fsdp", "odd": "checkpoint", "seconds": 90},
    "fsdp_lengths": {"job": "fsdp", "odd": "lengths", "seconds": 90},
    "fsdp_loader": {"job": "fsdp", "odd": "loader", "seconds": 90},
}
# What is to be named, by what was done.
TRUTHS = {
    "cpu": ("slow", "host"), "stop": ("slow", "host"), "narrow": ("slow", "host"), "proxy": ("slow", "host"), "nice": ("slow", "host"),
    "wire": ("slow", "link", "nic"), "worker": ("slow", "input", "host"), "feed": ("slow", "input"), "freeze": ("hang", "host", "software"), "kill": ("fail", "host", "software"),
}


def truths_of(case):
    """All that is wrong with a job; nothing where it is healthy."""
    found = []
    if "outside" in case:
        kind, *layers = TRUTHS[case["outside"]]
        found.append({"kind": kind, "rank": case["rank"], "layers": layers})
    if "slow_wire" in case:
        found.append(live.slow(case["slow_wire"], "link", "nic"))
    if "case" in case:
        layer, rank, *_ = case["case"].split(":")
        found.append(live.slow(int(rank), layer))
    return found


def judge(said, truths, began_ns):
    """said: Answers.said in order."""
    def is_right(one):
        return any(live.is_right(one, truth) for truth in truths)

    confirmed = [one for one in said if one["state"] == "confirmed"]
    return {
        "named": [any(live.is_right(one, truth) for one in confirmed) for truth in truths],
        "confirmed_s": [min(((one["at_unix_ns"] - began_ns) / 1e9 for one in confirmed if live.is_right(one, truth)), default=None) for truth in truths],
        "false": sorted({live.name_of(one) for one in confirmed if not is_right(one)}),
        "suspected": sorted({live.name_of(one) for one in said if one["state"] == "suspected"}),
    }


class Watch:
    """Asks the server what is wrong with a job, until stop()."""

    def __init__(self, address, job_id, truths):
        self.address, self.job_id, self.truths, self.answers, self.over, self.named_at = address, job_id, truths, live.Answers(), threading.Event(), None
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.over.wait(live.POLL_S):
            try:
                self.answers.add(time.time_ns(), json.loads(http_get(self.address, f"/api/jobs/{self.job_id}/why")))
            except urllib.error.HTTPError as problem:
                if problem.code != 404:  # not heard of yet
                    raise

    def is_settled(self):
        """Whether all that is wrong was named some seconds ago."""
        if self.named_at is None and self.truths and all(judge(self.answers.said, self.truths, 0)["named"]):
            self.named_at = time.monotonic()
        return self.named_at is not None and time.monotonic() - self.named_at > live.AFTER_S

    def stop(self):
        self.over.set()
        self.thread.join()


def run_case(name, out):
    case, folder = CASES[name], fresh(out / name)
    truths = truths_of(case)
    server = start_server(folder)
    agent = None
    try:
        agent = start_agent(folder, ["--server", f"http://{server.address['otlp_http']}"])
        watch = Watch(server.address["http"], name, truths)
        began_ns, codes = outside.play(name, case, folder, at_end=watch.stop, until=watch.is_settled)
        (folder / "why.json").write_text(http_get(server.address["http"], f"/api/jobs/{name}/why"))
    finally:
        for daemon in (agent, server):
            if daemon:
                daemon.stop()
    return {"truths": truths, **judge(watch.answers.said, truths, began_ns), "exit_codes": codes, "said": watch.answers.said}


def line_of(name, result):
    right = all(result["named"]) and not result["false"]
    after = ", ".join("missed" if seconds is None else f"{seconds:.1f} s" for seconds in result["confirmed_s"]) or "healthy"
    return f"{'right' if right else 'WRONG'}  {name:24} {after}; suspected: {', '.join(result['suspected']) or 'nobody'}; exit {result['exit_codes']}"


def main(out, arguments):
    parser = argparse.ArgumentParser(prog="run.py OUT live-outside")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"none: all of {' '.join(CASES)}")
    parser.add_argument("--minutes", type=float, default=9.0, help="no case is begun after this")
    options = parser.parse_args(arguments)
    live.check(parser, [case for case in options.cases if case not in CASES])
    results = live.run_cases(out / "live-outside.json", options.cases or CASES, options.minutes, lambda name: run_case(name, out), line_of)
    faults = [named for result in results.values() for named in result["named"]]
    print(f"{sum(faults)} of {len(faults)} faults named, {sum(len(result['false']) for result in results.values())} false verdicts", flush=True)
