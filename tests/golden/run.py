#!/usr/bin/env python3
"""Plays the recordings in tests/data/recordings through the real plugin, agent and server, and holds the answer against
what was really wrong. Prints one line a recording and 'N passed, N failed'.

    tests/golden/run.py [--no-steps] [NAME ...]      only these; without their step marks

sampled:NAME plays a recording as if NCCL were 2.31, where kernel events are left out of most steps: the same is found from what is left.
Recordings are short, so every second stretch of steps is seen instead of every eighth, and the first ones are no exception."""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RECORDINGS = ROOT / "tests" / "data" / "recordings"
LOCKSTEP = ROOT / "build" / "bin" / "lockstep"
# What is expected: None (no verdict at all), or kind, rank and the layers that are right, and the share of the job that it costs where the
# recordings tell: steps of the healthy twin, or what was injected, against those of the recording.
EXPECTED = {
    "ddp_healthy": None,
    "hyb_healthy": None,
    "ddp_compute_r2": ("slow", 2, {"gpu", "software"}, 0.46),
    "hyb_compute_r5": ("slow", 5, {"gpu", "software"}),
    "ddp_link_r1": ("slow", 1, {"link", "nic"}, 0.85),
    "hyb_data_r6": ("slow", 6, {"input"}, 0.77),
    "ddp_pulse_r0": ("slow", 0, {"host"}, 0.36),
    "ddp_hang_missing_r1": ("hang", 1, {"software", "host"}),
}

SHARE_ERROR = 0.12  # steps of two runs differ, and one in ten of these is twice as long

# Without the job's own marks nobody knows that a rank waited for its input: it is late on the host.
EXPECTED_WITHOUT_STEPS = EXPECTED | {"hyb_data_r6": ("slow", 6, {"input", "host"}, 0.77)}


SAMPLED = ["sampled:ddp_healthy", "sampled:ddp_compute_r2", "sampled:hyb_data_r6"]
AS_SAMPLED = {"LOCKSTEP_NCCL_VERSION": "23102", "LOCKSTEP_NCCL_SAMPLE": "2"}


def judge(expected, verdicts):
    """Every mistake as a line; none: right."""
    if expected is None:
        return [f"expected no verdict, got: {verdict['sentence']}" for verdict in verdicts]
    kind, rank, layers, *share = expected
    if not verdicts:
        return [f"expected {kind} rank {rank}, got no verdict"]
    wrong = []
    for verdict in verdicts:
        culprit = verdict["culprit"]
        if verdict["kind"] != kind or culprit["rank"] != [rank] or culprit["layer"] not in layers:
            wrong.append(f"{verdict['kind']} rank {culprit['rank']} layer {culprit['layer']}: {verdict['sentence']}")
        if verdict["state"] != "confirmed":
            wrong.append(f"state is {verdict['state']}")
        if share and abs(verdict["lost_share"] - share[0]) > SHARE_ERROR:
            wrong.append(f"costs {verdict['lost_share']:.0%} of the job, really {share[0]:.0%}: {verdict['sentence']}")
        kinds = {claim["kind"] for claim in verdict["chain"]}
        for needed in ("waits_for", "self_time", "exclusion", "counterfactual"):
            if needed not in kinds:
                wrong.append(f"no {needed} claim")
        if any(not claim["query"].startswith("/api/") for claim in verdict["chain"]):
            wrong.append("a claim names no query")
        if kind == "hang":
            after = (verdict["found_unix_ns"] - verdict["since_unix_ns"]) / 1e9
            if not 0 < after <= 5:
                wrong.append(f"found {after:.1f} s after the last callback (limit 5)")
            if "AllReduce" not in verdict["sentence"]:
                wrong.append("the sentence does not name the operation")
    return wrong


def play(name, steps):
    began = time.monotonic()
    recording = name.removeprefix("sampled:")
    command = [LOCKSTEP, "replay", RECORDINGS / recording, "--why", "--json"] + ([] if steps else ["--no-steps"])
    environment = os.environ | (AS_SAMPLED if recording != name else {})
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, env=environment)
    took = time.monotonic() - began
    if done.returncode != 0:
        return name, took, [f"exit {done.returncode}: {done.stderr.strip()[-300:]}"], []
    verdicts = json.loads(done.stdout)
    return name, took, judge((EXPECTED if steps else EXPECTED_WITHOUT_STEPS)[recording], verdicts), verdicts


def main():
    steps = "--no-steps" not in sys.argv[1:]
    names = [name for name in sys.argv[1:] if name != "--no-steps"] or list(EXPECTED) + (SAMPLED if steps else [])
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        for name, took, wrong, verdicts in pool.map(play, names, [steps] * len(names)):
            print(f"{'WRONG' if wrong else 'right'}  {name:22} {took:5.1f} s  {verdicts[0]['sentence'] if verdicts else 'no verdict'}", flush=True)
            for line in wrong:
                print(f"       {line}", flush=True)
            failed += bool(wrong)
    print(f"{len(names) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
