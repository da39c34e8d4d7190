#!/usr/bin/env python3
"""Real NCCL jobs on one GPU, each rank its own "host", under the real plugin and agent. For a machine with an NVIDIA GPU,
PyTorch and a C++ compiler; nothing is installed. Writes one folder per case with what the agent exported.

    tests/gpu/run.py OUT [CASE ...]        all cases without names; `overhead` measures step time with and without
"""
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = ROOT / "build" / "gpu"
# name: job, case, rank whose sockets are slow (or None), whether it ends by itself
CASES = {
    "ddp_healthy": ("ddp", "healthy", None, True),
    "ddp_input_r3": ("ddp", "input:3", None, True),
    "ddp_host_r1": ("ddp", "host:1", None, True),
    "ddp_gpu_r0": ("ddp", "gpu:0:0.5", None, True),
    "ddp_rarehost_r2": ("ddp", "rarehost:2", None, True),
    "ddp_packing": ("ddp", "packing", None, True),
    "ddp_gc": ("ddp", "gc", None, True),
    "ddp_checkpoint": ("ddp", "checkpoint", None, True),
    "ddp_eval": ("ddp", "eval", None, True),
    "ddp_warmup_r2": ("ddp", "warmup:2", None, True),
    "ddp_logging_r0": ("ddp", "logging:0", None, True),
    "ddp_link_r2": ("ddp", "healthy", 2, True),
    "ddp_dead_r2": ("ddp", "dead:2", None, False),
    "hyb_healthy": ("hyb", "healthy", None, True),
    "hyb_stage": ("hyb", "stage", None, True),
    "hyb_packing": ("hyb", "packing", None, True),
    "hyb_host_r3": ("hyb", "host:3", None, True),
    "hyb_gpu_r6": ("hyb", "gpu:6", None, True),
    "hyb_pulse_r3": ("hyb", "pulse:3", None, True),
    "hyb_link_r5": ("hyb", "healthy", 5, True),
    "hyb_missing_r4": ("hyb", "missing:4", None, False),
    "ddp_pulse_r1": ("ddp", "pulse:1", None, True),
    "ddp_silentsave": ("ddp", "silentsave", None, True),
    "ddp_missing_r3": ("ddp", "missing:3", None, False),
    "hyb_input_r2": ("hyb", "input:2", None, True),
    "hyb_rarehost_r7": ("hyb", "rarehost:7", None, True),
    "hyb_gc": ("hyb", "gc", None, True),
    "hyb_checkpoint": ("hyb", "checkpoint", None, True),
    "hyb_eval": ("hyb", "eval", None, True),
    "hyb_warmup_r5": ("hyb", "warmup:5", None, True),
    "hyb_link_r2": ("hyb", "healthy", 2, True),
    "hyb_dead_r1": ("hyb", "dead:1", None, False),
}


def build():
    flags = ["-DLOCKSTEP_NODE_ONLY=ON", "-DLOCKSTEP_TESTS=OFF", "-DLOCKSTEP_WARNINGS_AS_ERRORS=OFF", "-DCMAKE_BUILD_TYPE=Release"]
    subprocess.run(["cmake", "-S", ROOT, "-B", BUILD, *flags], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", BUILD, "-j", str(os.cpu_count())], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", BUILD / "slow_socket.so", HERE / "slow_socket.c", "-ldl"], check=True)


def start_ranks(job, case, slow_rank, folder, steps, plugin, port, name):
    world = 4 if job == "ddp" else 8
    ranks = []
    for rank in range(world):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                           NCCL_HOSTID=f"node{rank}", NCCL_SOCKET_IFNAME="lo", LOCKSTEP_HOST=f"node{rank}", LOCKSTEP_JOB_ID=name,
                           LOCKSTEP_RECORDER_DIR=str(folder / "recorders"), TORCH_NCCL_ASYNC_ERROR_HANDLING="0", TORCH_NCCL_ENABLE_MONITORING="0")
        if plugin:
            environment["NCCL_PROFILER_PLUGIN"] = str(BUILD / "lib" / "libnccl-profiler-lockstep.so")
        if rank == slow_rank:
            environment["LD_PRELOAD"] = str(BUILD / "slow_socket.so")
            environment["SLOW_SOCKET_BYTES_PER_S"] = "150000000"
        command = [sys.executable, str(HERE / "train.py"), "--job", job, "--case", case, "--steps", str(steps), "--log", str(folder / "steps")]
        if plugin:
            command += ["--library", str(BUILD / "lib" / "liblockstep.so")]
        ranks.append(subprocess.Popen(command, env=environment, stdout=open(folder / f"rank{rank}.log", "w"), stderr=subprocess.STDOUT))
    return ranks


def run_case(name, out, port, steps=40, plugin=True):
    job, case, slow_rank, ends = CASES[name]
    folder = out / name
    (folder / "recorders").mkdir(parents=True, exist_ok=True)
    agent = None
    if plugin:
        agent = subprocess.Popen([BUILD / "bin" / "lockstep-agent", "--data", folder / "agent", "--recorders", folder / "recorders", "--export", f"file:{folder}/export",
                                  "--metrics", "127.0.0.1:0"], stdout=open(folder / "agent.out", "w"), stderr=open(folder / "agent.log", "w"))
    began = time.monotonic()
    ranks = start_ranks(job, case, slow_rank, folder, steps, plugin, port, name)
    deadline = began + (70 if ends else 45)
    while time.monotonic() < deadline and any(rank.poll() is None for rank in ranks):
        time.sleep(0.2)
    codes = [rank.poll() for rank in ranks]
    if agent:
        time.sleep(0.5)
        cost = pathlib.Path(f"/proc/{agent.pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks = int(cost[11]) + int(cost[12])
        print(f"  agent: {ticks / os.sysconf('SC_CLK_TCK'):.2f} s CPU in {time.monotonic() - began:.1f} s", flush=True)
        agent.send_signal(signal.SIGTERM)
        agent.wait(10)
    for rank in ranks:
        rank.kill()
        rank.wait()
    times = []
    for file in sorted(folder.glob("steps.*")):
        times += json.loads(file.read_text())[5:]
    typical = statistics.median(times) if times else float("nan")
    print(f"{name}: exit {codes}, step {typical:.1f} ms, {time.monotonic() - began:.1f} s", flush=True)
    return typical


def main():
    out = pathlib.Path(sys.argv[1]).resolve()
    names = sys.argv[2:] or list(CASES)
    build()
    subprocess.run(["nvidia-cuda-mps-control", "-d"], check=False)
    port = 29600
    try:
        for name in names:
            port += 1
            if name == "overhead":
                with_plugin, without = [], []
                for turn in range(4):
                    port += 2
                    without.append(run_case("ddp_healthy", out / f"off{turn}", port, 120, plugin=False))
                    with_plugin.append(run_case("ddp_healthy", out / f"on{turn}", port + 1, 120, plugin=True))
                print("overhead: step ms without", without, "with", with_plugin, f"ratio {statistics.median(with_plugin) / statistics.median(without):.4f}", flush=True)
                continue
            run_case(name, out, port)
    finally:
        subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n", check=False)


if __name__ == "__main__":
    main()
