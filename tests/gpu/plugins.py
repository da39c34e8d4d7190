"""Our plugin with another one behind it (chain), and under work that NCCL shows in its own way (graph: a CUDA graph with an
all-reduce, all-to-all, one-byte types)."""
import argparse
import collections
import os
import pathlib

from programs import CALLS_RECORDER, Job, build_calls_recorder, fresh, plugin_numbers, ready_machine, start_agent

ENDS_S = 90


def check_calls(path):
    """What a rank's recorded callbacks hold, and every mistake in them as a line."""
    events, open_handles, ever, mistakes = collections.Counter(), set(), set(), collections.Counter()
    for line in path.read_text().splitlines():
        words = line.split(" ")
        if words[0] == "S":
            events[int(words[5])] += 1
            if words[4] in ever:
                mistakes["handles started twice"] += 1
            open_handles.add(words[4])
            ever.add(words[4])
            # Of another process where the pid is not ours: those are no handles of this one.
            if words[6] != "0" and words[6] not in ever:
                mistakes["parents never given out"] += 1
        elif words[0] in "RX":
            if words[3] not in ever:
                mistakes["handles never given out"] += 1
            elif words[0] == "X":
                if words[3] not in open_handles:
                    mistakes["handles stopped twice"] += 1
                open_handles.discard(words[3])
            events["state " + words[4] if words[0] == "R" else "stop"] += 1
        else:
            events[words[0]] += 1
    return events, [f"{count} {what}" for what, count in sorted(mistakes.items())]


def keep_recorders(folder):
    """A second name for every recorder: the agent removes the first when the job is over."""
    (folder / "kept").mkdir(exist_ok=True)
    for file in (folder / "recorders").glob("*"):
        kept = folder / "kept" / file.name
        if not file.name.endswith(".tmp") and not kept.exists():
            os.link(file, kept)


def run(out, name, job, steps, under_ours=True, environment=None):
    """One healthy job that ends as it should; under our plugin, or under the calls recorder alone. Returns the mistakes."""
    folder = fresh(out / name)
    environment = {"CALLS_DIR": str(folder), **(environment or {})}
    agent = start_agent(folder, ["--export", f"file:{folder}/export"]) if under_ours else None
    ranks = Job(name, folder, job, steps=steps, destroy=True, environment=environment, **({} if under_ours else {"plugin": CALLS_RECORDER}))

    def keep():
        if under_ours:
            keep_recorders(folder)
        return False

    try:
        codes = ranks.wait(ENDS_S, until=keep)
        if agent:
            ranks.wait(1)
            for line in plugin_numbers(agent):
                print(f"  {line}")
    finally:
        ranks.kill()
        if agent:
            agent.stop()
    mistakes = [] if codes == [0] * len(codes) else [f"exit codes {codes}; see {folder}/rank*.log"]
    if under_ours and not any((folder / "export").glob("*")):
        mistakes.append("the agent exported nothing")
    for path in sorted(folder.glob("rank*.calls")):
        events, wrong = check_calls(path)
        print(f"  {path.stem}: {dict(sorted(events.items(), key=str))}", flush=True)
        mistakes += [f"{path.stem}: {one}" for one in wrong]
    return mistakes


def report(name, mistakes):
    print(f"{'right' if not mistakes else 'WRONG'}  {name}", flush=True)
    for mistake in mistakes:
        print(f"       {mistake}", flush=True)


def chain(out, arguments):
    parser = argparse.ArgumentParser(prog="run.py OUT chain")
    parser.add_argument("--second", type=pathlib.Path, help="the other profiler plugin (default: the calls recorder of this folder)")
    options = parser.parse_args(arguments)
    if options.second is not None and not options.second.exists():
        parser.error(f"there is no {options.second}")
    with ready_machine():
        if options.second is None:
            build_calls_recorder()
        report("chain", run_chain(out, (options.second or CALLS_RECORDER).resolve()))


def run_chain(out, second):
    folder = out / "chain"
    # Where known plugins write: the ranks' working folder is OUT/chain for all the others.
    environment = {"LOCKSTEP_CHAIN_PLUGIN": str(second), "NCCL_PROFILE_EVENT_MASK": "4095", "NCCL_PROFILE_DUMP_FILE": str(folder / "second_trace"),
                   "NCCL_INSPECTOR_ENABLE": "1", "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS": "500000",
                   "NCCL_INSPECTOR_DUMP_DIR": str(folder / "second_inspector")}
    before = {"agent", "agent.log", "export", "fault_began", "kept", "recorders"}
    mistakes = run(out, "chain", "ddp", 40, environment=environment)
    written = [file for file in folder.rglob("*") if file.is_file() and file.relative_to(folder).parts[0] not in before
               and not (file.name.startswith(("rank", "steps_rank")) and file.suffix in (".log", ".json"))]
    for file in sorted(written):
        print(f"  second plugin wrote {file.relative_to(folder)}: {file.stat().st_size} bytes", flush=True)
    if sum(file.stat().st_size for file in written) == 0:
        mistakes.append("the second plugin wrote nothing: it saw no events, or writes elsewhere")
    return mistakes


def graph(out, arguments):
    """Each job twice: under our plugin (export and recorders are kept) and under the calls recorder (a recording to replay)."""
    if arguments:
        raise SystemExit("run.py OUT graph takes no arguments")
    with ready_machine():
        build_calls_recorder()
        for job in ("graph", "a2a"):
            report(job, run(out, job, job, 24))
            report(f"{job}_calls", run(out, f"{job}_calls", job, 24, under_ours=False))
