"""What each kind of event costs NCCL itself: the latency of small collectives under several masks, in turns.

No agent runs and the plugin is the same each time; only what it asks NCCL for differs. So the differences between masks are NCCL's own
cost of telling, plus the plugin's few nanoseconds a call."""
import argparse
import json
import statistics

from programs import PLUGIN, Job, fresh, ready_machine

# mask: what it asks for
MASKS = {"none": "no plugin", "0x06": "operations", "0x1e": "and proxy", "0x46": "operations and kernels", "0x5e": "everything", "auto": "what the plugin chooses"}


def main(out, words):
    parser = argparse.ArgumentParser(prog="run.py OUT masks")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(words)
    times = {}
    with ready_machine():
        for turn in range(options.rounds):
            order = list(MASKS) if turn % 2 == 0 else list(MASKS)[::-1]
            for mask in order:
                folder = fresh(out / f"masks_{mask}_{turn}")
                environment = {"LOCKSTEP_NCCL_MASK": mask} if mask.startswith("0x") else {}
                job = Job(f"masks_{mask}", folder, "small", plugin=PLUGIN if mask != "none" else None, environment=environment)
                try:
                    codes = job.wait(60)
                finally:
                    job.kill()
                if any(codes):
                    raise SystemExit(f"mask {mask}: exit {codes}; see {folder}")
                for bytes_, us in json.loads((folder / "small.json").read_text()).items():
                    times.setdefault(bytes_, {}).setdefault(mask, []).append(us)
                print(f"  turn {turn} mask {mask}", flush=True)
    result = {size: {mask: statistics.median(values) for mask, values in by_mask.items()} for size, by_mask in times.items()}
    (out / "masks.json").write_text(json.dumps({"median_us": result, "all_us": times}, indent=1))
    print("bytes      " + "".join(f"{mask:>12}" for mask in MASKS))
    for size, by_mask in result.items():
        print(f"{size:>9}  " + "".join(f"{by_mask[mask]:>9.1f} us" for mask in MASKS))
