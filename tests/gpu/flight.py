"""Real dumps of PyTorch's Flight Recorder, of jobs that are stuck: asked for through its pipes, as the agent does, and read by
`lockstep hang --dumps` where build/carry has the command (see bundle.sh)."""
import os
import subprocess
import time

from programs import CARRIED, Job, fresh, ready_machine

CASES = {"flight_missing_r3": ("missing:3", 3), "flight_mismatch_r2": ("mismatch:2", 2), "flight_sizes_r1": ("sizes:1", 1)}
START_S = 60
STUCK_S = 6
DUMP_S = 15


def ask(pipe):
    """One byte into a pipe that somebody reads; an error tells that nobody does."""
    descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    os.write(descriptor, b"1")
    os.close(descriptor)


def run_case(name, out):
    case, guilty = CASES[name]
    folder = fresh(out / name)
    dumps = folder / "dumps"
    dumps.mkdir()
    environment = {"TORCH_NCCL_TRACE_BUFFER_SIZE": "2000", "TORCH_FR_BUFFER_SIZE": "2000", "TORCH_NCCL_ENABLE_MONITORING": "1",
                   "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "600", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1"}
    for name_of in ("TORCH_NCCL", "TORCH_FR"):
        environment[f"{name_of}_DEBUG_INFO_TEMP_FILE"] = str(dumps / "dump_")
        environment[f"{name_of}_DEBUG_INFO_PIPE_FILE"] = str(folder / "pipe_")
        environment[f"{name_of}_DUMP_TEMP_FILE"] = str(dumps / "dump_")
    job = Job(name, folder, "ddp", case, steps=200, from_step=20, environment=environment)
    try:
        job.wait(START_S, job.began_path.exists)
        time.sleep(STUCK_S)  # until a watchdog would call it stuck
        pipes = sorted(path for path in folder.iterdir() if path.name.startswith("pipe_"))
        for pipe in pipes:
            try:
                ask(pipe)
            except OSError as error:
                print(f"  {pipe.name}: {error}", flush=True)
        deadline = time.monotonic() + DUMP_S
        while time.monotonic() < deadline and len(list(dumps.iterdir())) < len(job.ranks):
            time.sleep(0.2)  # the interval of the poll
        time.sleep(1)  # until the last of them is whole
    finally:
        job.kill()
    sizes = {path.name: path.stat().st_size for path in sorted(dumps.iterdir())}
    print(f"{name}: {len(pipes)} pipes, dumps {sizes}", flush=True)
    if (CARRIED / "bin" / "lockstep").exists() and sizes:
        said = subprocess.run([CARRIED / "bin" / "lockstep", "hang", "--dumps", str(dumps)], capture_output=True, text=True, check=False)
        print(f"  rank {guilty} is guilty; said: {said.stdout.strip()} {said.stderr.strip()}", flush=True)


def main(out, names):
    with ready_machine():
        for name in names or CASES:
            run_case(name, out)
