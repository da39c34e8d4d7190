"""The agent's reading of the node on real hardware: what each driver call costs, whether its values agree with nvidia-smi's, what the
agent costs beside nvidia-smi dmon and an exporter, one GPU and eight (one real, seven replayed), and a real XID."""
import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import urllib.request

from programs import BUILD, ROOT, Job, build, fresh, http_get, restart_mps, start_agent, stop_mps

sys.path.insert(0, str(ROOT / "bench" / "node"))
from cost import use_of  # noqa: E402

LOAD = """
import sys, time, torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
end = time.time() + float(sys.argv[1])
while time.time() < end:
    for _ in range(20):
        b = a @ a
    torch.cuda.synchronize()
    time.sleep(float(sys.argv[2]))  # the pace of the load
"""
# A write to an address that nobody has: the driver ends the program with XID 31, and the GPU is well.
FAULT = """
import ctypes, torch
torch.zeros(1, device="cuda")
cuda = ctypes.CDLL("libcuda.so.1")
ptx = b'''.version 7.0
.target sm_80
.address_size 64
.visible .entry bad() { .reg .u64 %rd<2>; .reg .u32 %r<2>; mov.u64 %rd1, 0x123456789000; mov.u32 %r1, 1; st.global.u32 [%rd1], %r1; ret; }
'''
module, function = ctypes.c_void_p(), ctypes.c_void_p()
print("load", cuda.cuModuleLoadData(ctypes.byref(module), ptx), cuda.cuModuleGetFunction(ctypes.byref(function), module, b"bad"))
print("launch", cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None), "sync", cuda.cuCtxSynchronize())
"""


def load(seconds, pause):
    return subprocess.Popen([sys.executable, "-c", LOAD, str(seconds), str(pause)])


def compile_tools(out):
    sources = [str(one) for one in (ROOT / "src/sources/nvml").glob("*.cc") if not one.name.endswith("_test.cc")]
    common = ["c++", "-std=c++20", "-O2", "-I", ROOT / "src", "-I", ROOT]
    subprocess.run([*common, ROOT / "bench/node/nvml_calls.cc", *sources, ROOT / "src/base/text.cc", "-ldl", "-o", out / "nvml_calls"], check=True)
    standin = list((ROOT / "tests/standins/nvml").glob("*.cc"))
    subprocess.run([*common, "-fPIC", "-shared", *standin, ROOT / "src/sources/nvml/nvml_library.cc", "-ldl", "-o", out / "libnvidia-ml-standin.so"], check=True)
    (out / "eight").write_text("real libnvidia-ml.so.1 copies 8\n")


def call_costs(out):
    """Tables of nvml_calls: one GPU idle, one GPU under load, eight under load."""
    for name, environment, library, busy in (("idle", {}, [], False), ("busy", {}, [], True),
                                             ("eight_busy", {"LOCKSTEP_NVML_STANDIN": str(out / "eight")}, ["--library", out / "libnvidia-ml-standin.so"], True)):
        worker = load(100, 0) if busy else None
        if busy:
            time.sleep(8)  # until the GPU is busy
        with open(out / f"calls_{name}.md", "w") as table, open(out / f"calls_{name}.txt", "w") as values:
            code = subprocess.run([out / "nvml_calls", *library], stdout=table, stderr=values, env={**os.environ, **environment}, timeout=90).returncode
        if worker:
            worker.kill()
            worker.wait()
        print(f"calls {name}: exit {code}", flush=True)


class Agent:
    def __init__(self, folder, *options, environment=None):
        self.folder = fresh(folder)
        command = [BUILD / "bin" / "lockstep-agent", "--data", folder / "data", "--recorders", folder / "rec", "--export", f"file:{folder}/export",
                   "--metrics", "127.0.0.1:0", *options]
        self.log = open(folder / "agent.log", "w")
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=self.log, text=True, env={**os.environ, **(environment or {})})
        self.address = self.process.stdout.readline().split("metrics=")[1].strip()

    def page(self):
        return http_get(self.address, "/metrics")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(15)


# What nvidia-smi calls it, our series, what ours is multiplied by, how far they may be apart (they are read at different moments).
AGREEMENT = [
    ("utilization.gpu", r'hw_gpu_utilization_ratio\{[^}]*hw_gpu_task="general"[^}]*\}', 100, 10),
    ("memory.used", r"hw_gpu_memory_usage_bytes\{[^}]*\}", 1 / 2**20, 700),
    ("memory.total", r"hw_gpu_memory_limit_bytes\{[^}]*\}", 1 / 2**20, 1),
    ("power.draw.average", r"hw_power_watts\{[^}]*\}", 1, 60),
    ("power.draw.instant", r"lockstep_gpu_power_instant_watts\{[^}]*\}", 1, 150),
    ("enforced.power.limit", r'lockstep_gpu_power_limit_watts\{[^}]*limit="enforced"[^}]*\}', 1, 1),
    ("temperature.gpu", r'hw_temperature_celsius\{[^}]*location="gpu"[^}]*\}', 1, 3),
    ("temperature.memory", r'hw_temperature_celsius\{[^}]*location="memory"[^}]*\}', 1, 2),
    ("clocks.sm", r'lockstep_gpu_clock_hertz\{[^}]*clock="sm"[^}]*\}', 1e-6, 200),
    ("clocks.mem", r'lockstep_gpu_clock_hertz\{[^}]*clock="memory"[^}]*\}', 1e-6, 1),
    ("clocks.max.sm", r'lockstep_gpu_clock_max_hertz\{[^}]*clock="sm"[^}]*\}', 1e-6, 1),
    ("pcie.link.gen.current", r"lockstep_gpu_pcie_generation\{[^}]*\}", 1, 0),
    ("pcie.link.width.current", r"lockstep_gpu_pcie_width\{[^}]*\}", 1, 0),
    ("ecc.errors.corrected.volatile.total", r'hw_errors_total\{[^}]*error_type="corrected"[^}]*\}', 1, 0),
    ("ecc.errors.uncorrected.volatile.total", r'hw_errors_total\{[^}]*error_type="uncorrected"[^}]*\}', 1, 0),
    ("pstate", r"lockstep_gpu_pstate\{[^}]*\}", 1, 0),
]


def agreement(out):
    """Beside nvidia-smi, five times under a steady load: differences as a table."""
    worker = load(60, 0)
    time.sleep(8)  # until the GPU is busy and warm
    agent = Agent(out / "agreement", "--names", "dcgm")
    time.sleep(13)  # one slow reading at least
    rows = {name: [] for name, *_ in AGREEMENT}
    for _ in range(5):
        time.sleep(2)  # the pace of the comparisons
        smi = subprocess.run(["nvidia-smi", "--query-gpu=" + ",".join(name for name, *_ in AGREEMENT), "--format=csv,noheader,nounits"],
                             capture_output=True, text=True, check=True).stdout.splitlines()[0].split(", ")
        page = agent.page()
        for (name, pattern, scale, _), theirs in zip(AGREEMENT, smi):
            found = re.search(rf"^{pattern} (\S+)$", page, re.M)
            rows[name].append((theirs.strip().lstrip("P"), float(found.group(1)) * scale if found else None))
    (out / "page.txt").write_text(agent.page())
    (out / "checks.json").write_text(http_get(agent.address, "/checks"))
    agent.stop()
    worker.kill()
    worker.wait()
    lines = ["| nvidia-smi | ours beside it (5 readings) | largest difference | allowed |", "|---|---|---|---|"]
    wrong = 0
    for name, _, _, allowed in AGREEMENT:
        pairs = rows[name]
        numbers = [(float(theirs), ours) for theirs, ours in pairs if ours is not None and re.fullmatch(r"-?[0-9.]+", theirs)]
        far = max((abs(a - b) for a, b in numbers), default=None)
        bad = far is None or far > allowed
        wrong += bad
        shown = ", ".join(f"{theirs}/{'none' if ours is None else f'{ours:.6g}'}" for theirs, ours in pairs)
        lines.append(f"| {name} | {shown} | {'not compared' if far is None else f'{far:.4g}'} | {allowed}{' **no**' if bad else ''} |")
    (out / "agreement.md").write_text("\n".join(lines) + "\n")
    print(f"agreement: {len(AGREEMENT) - wrong} of {len(AGREEMENT)}", flush=True)


def measure(name, process, seconds, rows, each_second=None):
    time.sleep(12)  # past the start and the first slow reading
    before = use_of(process.pid)
    for _ in range(seconds):
        time.sleep(1)  # the pace of what is measured
        if each_second:
            each_second()
    after = use_of(process.pid)
    rows.append(f"| {name} | {seconds} | {100 * (after.cpu_s - before.cpu_s) / seconds:.2f} | {after.rss / 2**20:.1f} | {after.rss_peak / 2**20:.1f} |")
    print(rows[-1], flush=True)


def own_cost(out, exporter, seconds):
    """CPU and memory of the agent, of nvidia-smi dmon and of an exporter, under the same load."""
    rows = ["| what | seconds | % of a core | MiB resident | MiB peak |", "|---|---|---|---|---|"]
    eight = {"LOCKSTEP_NVML_STANDIN": str(out / "eight")}
    library = ["--nvml-library", out / "libnvidia-ml-standin.so"]
    for name, options, environment in (("agent, 1 GPU, 1 Hz", [], {}), ("agent, 8 GPUs (1 real, 7 replayed), 1 Hz", library, eight),
                                       ("agent, 8 GPUs (1 real, 7 replayed), 10 Hz", [*library, "--interval-ms", "100"], eight),
                                       ("agent, 1 GPU, 10 Hz", ["--interval-ms", "100"], {})):
        worker = load(seconds + 40, 0.02)
        agent = Agent(out / "cost", *options, "--cpu-budget", "100", environment=environment)
        measure(name, agent.process, seconds, rows)
        agent.stop()
        worker.kill()
        worker.wait()
    worker = load(2 * seconds + 60, 0.02)
    with open(out / "dmon.txt", "w") as text:
        dmon = subprocess.Popen(["nvidia-smi", "dmon", "-d", "1", "-s", "pucvmet"], stdout=text)
        measure("nvidia-smi dmon -d 1 -s pucvmet, 1 GPU", dmon, seconds, rows)
        dmon.kill()
        dmon.wait()
    if exporter and pathlib.Path(exporter).exists():
        served = subprocess.Popen([exporter, "--web.listen-address=127.0.0.1:29835"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        measure("nvidia_gpu_exporter (starts nvidia-smi at each scrape), 1 GPU, scraped at 1 Hz", served, seconds, rows,
                each_second=lambda: urllib.request.urlopen("http://127.0.0.1:29835/metrics", timeout=10).read())
        served.kill()
        served.wait()
    worker.kill()
    worker.wait()
    (out / "cost.md").write_text("\n".join(rows) + "\n")


def xid(out):
    """A program's own fault, as the driver tells it: which event reaches the export, after how long."""
    agent = Agent(out / "xid", "--interval-ms", "500")
    time.sleep(4)  # past its start
    began = time.time()
    fault = subprocess.run([sys.executable, "-c", FAULT], capture_output=True, text=True, timeout=60)
    print("fault program:", fault.stdout.strip().replace("\n", "; "), "exit", fault.returncode, flush=True)
    time.sleep(5)  # as long as an event may take
    lines = [line for line in agent.page().splitlines() if "xid" in line and not line.startswith("#")]
    events = [path.name for path in sorted((agent.folder / "export").glob("*logs*")) if b"gpu.xid" in path.read_bytes()]
    agent.stop()
    (out / "xid.json").write_text(json.dumps({"page": lines, "files_with_gpu_xid": events, "fault_began": began}, indent=1))
    print("xid:", lines, events, flush=True)
    for name in events[:1]:
        text = re.findall(rb"[ -~]{6,}", (agent.folder / "export" / name).read_bytes())
        print("event text:", b" | ".join(text).decode()[:1500], flush=True)


def job(out):
    """A real NCCL job of four ranks on the GPU: who holds it, and how long its threads wait for a CPU."""
    restart_mps()
    folder = fresh(out / "job")
    agent = start_agent(folder, ["--export", f"file:{folder}/export"])
    ranks = Job("real-job", folder, "ddp", steps=400)
    try:
        ranks.wait(45)
        wanted = ("lockstep_job_gpu_info", "lockstep_gpu_processes", "lockstep_gpu_foreign", "lockstep_thread_runqueue", "lockstep_thread_cpu", "lockstep_gpu_allocated",
                  "lockstep_job_energy")
        lines = [line for line in http_get(agent.address["metrics"], "/metrics").splitlines() if line.startswith(wanted)]
    finally:
        ranks.kill()
        agent.stop()
        stop_mps()
    (out / "job.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines), flush=True)


def watchdog(out):
    """drain lets go of the GPU: nobody of ours has /dev/nvidia* open."""
    agent = Agent(out / "drain")
    time.sleep(5)  # past its start

    def holders():
        found = subprocess.run("ls -l /proc/[0-9]*/fd 2>/dev/null | grep -c '/dev/nvidia[0-9]'", shell=True, capture_output=True, text=True).stdout.strip()
        return int(found or 0)

    held = holders()
    text = subprocess.run([BUILD / "bin" / "lockstep-agent", "drain", "--data", out / "drain" / "data", "--for", "20"], capture_output=True, text=True)
    print(f"drain: {held} open before; {text.stdout.strip()}{text.stderr.strip()}; {holders()} open after", flush=True)
    agent.stop()


def run(out, arguments):
    parser = argparse.ArgumentParser(prog="run.py OUT node")
    parser.add_argument("--exporter", help="nvidia_gpu_exporter, where there is one")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--parts", default="calls,agreement,cost,xid,drain,job")
    options = parser.parse_args(arguments)
    build()
    compile_tools(out)
    parts = {"calls": lambda: call_costs(out), "agreement": lambda: agreement(out),
             "cost": lambda: own_cost(out, options.exporter, options.seconds), "xid": lambda: xid(out), "drain": lambda: watchdog(out),
             "job": lambda: job(out)}
    for part in options.parts.split(","):
        try:
            parts[part]()
        except Exception as problem:  # the others are still worth having
            print(f"{part} failed: {problem!r}", flush=True)
