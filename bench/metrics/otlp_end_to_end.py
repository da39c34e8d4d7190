"""What OTLP metrics cost one lockstepd, end to end: CPU, bytes on disk by folder, and the start after a kill.

    build/venv/bin/python bench/metrics/otlp_end_to_end.py build/bin [OTHER-FOLDER-OF-PROGRAMS ...]

Servers are measured one after the other, with the same requests: HOSTS agents of 8 GPUs, of each GPU NAMES series that diagnosis
hears and as many that it does not, all of them changed in each of STEPS reports 15 s apart.
"""

import pathlib
import random
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "system"), str(ROOT / "bench")]
import harness  # noqa: E402
from processes import cpu_s, size_of  # noqa: E402

HOSTS, GPUS, STEPS = 40, 8, 60
HEARD = [
    "lockstep_gpu_clock_hertz", "lockstep_gpu_sm_active", "lockstep_gpu_tensor_active", "hw.temperature",
    "lockstep_gpu_power_limit_watts", "lockstep_gpu_pcie_replays_total", "lockstep_gpu_links_up",
    "lockstep_gpu_foreign_processes", "lockstep_gpu_processes", "lockstep_gpu_up",
]  # fmt: skip
LABELS = {"lockstep_gpu_clock_hertz": {"clock": "sm"}, "hw.temperature": {"hw.sensor_location": "gpu"}}


def requests(begin_ns):
    numbers = random.Random(1)
    names = HEARD + [f"other_{number}" for number in range(len(HEARD))]
    for step in range(STEPS):
        at = begin_ns + step * 15_000_000_000
        for host in range(HOSTS):
            whole = harness.ExportMetricsServiceRequest()
            for gpu in range(GPUS):
                resource = {"service.name": "lockstep-agent", "host.name": f"n{host}", "lockstep.gpu_uuid": f"GPU-{host}-{gpu}"}
                for name in names:
                    value = numbers.gauss(100, 10)
                    whole.MergeFrom(harness.gauge_request(resource, name, [(LABELS.get(name, {}), at, value)]))
            yield whole.SerializeToString()


def measure(programs, bodies):
    harness.BIN = pathlib.Path(programs).resolve()
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "data"
        server = harness.Server(data)
        began_cpu, began = cpu_s(server.process.pid), time.monotonic()
        for body in bodies:
            assert server.post("metrics", body).status == 200
        wall, cpu = time.monotonic() - began, cpu_s(server.process.pid) - began_cpu
        server.kill()
        log, samples = size_of(data / "log"), size_of(data / "metrics")
        began = time.monotonic()
        again = harness.Server(data)
        start = time.monotonic() - began
        clock = again.get("/api/signals", signal="sm_clock", host="n1", gpu="GPU-1-1", **{"from": 0, "to": harness.now_ns()})
        assert clock["value"] > 0, "diagnosis knows again what it heard"
        again.kill()
    return cpu, wall, log, samples, start


def main():
    bodies = list(requests(harness.now_ns() - STEPS * 15_000_000_000))
    points = HOSTS * GPUS * 2 * len(HEARD) * STEPS
    print(f"{points:,} points in {len(bodies):,} requests, {sum(map(len, bodies)) / points:.0f} bytes a point\n")
    print("| programs | CPU-us a point | requests a second | log, bytes a point | metrics, bytes a point | start after a kill, s |")
    print("|---|---|---|---|---|---|")
    for programs in sys.argv[1:]:
        cpu, wall, log, samples, start = measure(programs, bodies)
        print(
            f"| {programs} | {1e6 * cpu / points:.2f} | {len(bodies) / wall:.0f} | {log / points:.1f} | {samples / points:.1f} | {start:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
