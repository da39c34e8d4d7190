"""A job's numbers as series, and metrics by the names of other tools, through the real server."""

import statistics

import harness
import pytest

S = 1_000_000_000
RANKS = 4
PEAK = 1e15


def ask(server, query):
    answer = server.get("/prometheus/api/v1/query", query=query)
    assert answer["status"] == "success"
    return answer["data"]["result"]


def value_of(server, query):
    result = ask(server, query)
    assert len(result) <= 1, result
    return float(result[0]["value"][1]) if result else None


def samples_of(server, series):
    """Every stored sample of the last hour, as it was written."""
    (one,) = ask(server, f"{series}[1h]")
    return [(time, float(value)) for time, value in one["values"]]


def send_steps(server, start_ns, steps, job="train"):
    """Steps of a second and a little, one after the other; gives the end of each in ns."""
    ends = []
    for step in steps:
        duration = S + step % 7 * 10_000_000
        end = (ends[-1] if ends else start_ns) + duration
        for rank in range(RANKS):
            wait = 20_000_000 * rank
            event = harness.step_event(
                step,
                duration,
                self_ns=800_000_000,
                split=[duration - 200_000_000 - wait, 200_000_000 + wait, 0, 0, 0, 0],
                scalars={"flops": 0.4 * PEAK, "peak_flops": PEAK},
            )
            event["time_unix_nano"] = end
            answer = server.post("logs", harness.logs_request(harness.identity(job, rank, RANKS), [event]))
            assert answer.status == 200, answer.text
        ends.append(end)
    return ends


def test_a_jobs_series_agree_with_its_page_and_are_not_written_twice(start, tmp_path):
    server = start(harness.Server, tmp_path / "data")
    begin = harness.now_ns() - 100 * S
    ends = send_steps(server, begin, range(46))
    steps = 'lockstep_job_steps_total{job_id="train"}'
    harness.eventually(lambda: value_of(server, steps) == 46, 20, "the sample of step 45")

    (job,) = server.get("/api/jobs")["jobs"]
    p50 = value_of(server, 'lockstep_job_step_time_seconds{job_id="train",quantile="0.5"}')
    assert p50 == pytest.approx(job["step_ms"] / 1e3, rel=0.005)
    mfu = server.get("/api/jobs/train/mfu", last=20)
    assert mfu["to_step"] == 45
    assert value_of(server, 'lockstep_job_mfu_ratio{job_id="train"}') == pytest.approx(mfu["mfu"], abs=0.0005)
    bars = {bar["key"]: bar["points"] for bar in mfu["bars"]}
    share = value_of(server, 'lockstep_job_communication_share_ratio{job_id="train"}')
    assert share == pytest.approx(bars["waiting"] + bars["communication"], abs=0.001)
    assert value_of(server, 'lockstep_job_ranks{job_id="train"}') == RANKS
    assert value_of(server, 'lockstep_job_straggler_spread_ratio{job_id="train"}') == pytest.approx(0, abs=1e-6)
    spans = [later - earlier for earlier, later in zip([begin, *ends], ends)]
    pace = min(statistics.median(spans[k : k + 20]) for k in range(4, 27))
    goodput = value_of(server, 'lockstep_job_goodput_ratio{job_id="train"}')
    assert goodput == pytest.approx(20 * pace / (ends[45] - ends[25]), abs=0.002)

    before, mfu_before = samples_of(server, steps), samples_of(server, 'lockstep_job_mfu_ratio{job_id="train"}')
    assert before[-1][0] == pytest.approx(ends[45] / 1e9, abs=0.002), "at the job's own time"
    server.kill()
    server = start(harness.Server, tmp_path / "data")
    assert samples_of(server, steps) == before
    assert samples_of(server, 'lockstep_job_mfu_ratio{job_id="train"}') == mfu_before
    send_steps(server, ends[-1], range(46, 57))
    harness.eventually(lambda: value_of(server, steps) == 56, 20, "the sample of step 55")
    assert samples_of(server, steps)[: len(before)] == before
    rows = server.counters()
    assert rows.total("lockstep_job_rollup_rows_total", result="received") == 57 * RANKS
    assert rows.total("lockstep_job_rollup_rows_total", result="folded") == 57 * RANKS


@pytest.fixture
def dcgm_exporter():
    page = (
        "# TYPE DCGM_FI_DEV_SM_CLOCK gauge\n"
        'DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-b",device="nvidia0",modelName="NVIDIA H100",Hostname="node-b"} 1155\n'
        "# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n"
        'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-b",device="nvidia0",modelName="NVIDIA H100",Hostname="node-b"} 64\n'
    )

    with harness.exporter(lambda look: page) as address:
        yield address


def test_a_dashboard_for_dcgm_exporter_works_on_our_agents_and_ours_on_its_exporter(start, tmp_path, dcgm_exporter):
    scrape = tmp_path / "scrape.yaml"
    scrape.write_text(
        "scrape_configs:\n"
        "- job_name: dcgm\n"
        "  scrape_interval: 1s\n"
        "  scrape_timeout: 1s\n"
        f'  static_configs: [{{targets: ["{dcgm_exporter}"]}}]\n'
    )
    server = start(harness.Server, tmp_path / "data", more=["--scrape", scrape])
    now = harness.now_ns()
    agent = {"service.name": "lockstep-agent", "host.name": "node-a"}
    for name, points in {
        "hw.gpu.utilization": [({"gpu_uuid": "GPU-a", "hw.gpu.task": "general"}, now, 0.75)],
        "lockstep_gpu_info": [
            ({"gpu_uuid": "GPU-a", "model": "NVIDIA H200", "index": "3", "pci": "0000:1b:00.0", "driver": "580"}, now, 1.0)
        ],
    }.items():
        assert server.post("metrics", harness.gauge_request(agent, name, points)).status == 200
    harness.eventually(lambda: len(ask(server, "DCGM_FI_DEV_GPU_UTIL")) == 2, 20, "both GPUs under dcgm-exporter's name")

    # As the dashboard asks: its variables, then its panels.
    values = lambda label, match: server.get(f"/prometheus/api/v1/label/{label}/values", **match)["data"]
    assert values("gpu", {"match[]": "DCGM_FI_DEV_GPU_UTIL"}) == ["0", "3"]
    instances = values("instance", {"match[]": "DCGM_FI_DEV_GPU_UTIL"})
    assert sorted(instances) == sorted(["node-a", dcgm_exporter])
    (line,) = ask(server, 'DCGM_FI_DEV_GPU_UTIL{instance=~"node-a",gpu=~"3"}')
    assert line["value"][1] == "75"
    assert line["metric"]["UUID"] == "GPU-a" and line["metric"]["Hostname"] == "node-a"
    assert line["metric"]["modelName"] == "NVIDIA H200" and line["metric"]["device"] == "nvidia3"
    assert value_of(server, "sum(DCGM_FI_DEV_GPU_UTIL)") == 75 + 64
    names = values("__name__", {})
    assert "DCGM_FI_DEV_GPU_UTIL" in names and "DCGM_FI_DEV_ENC_UTIL" not in names

    # Ours from the exporter, for people and for diagnosis.
    assert value_of(server, 'hw_gpu_utilization_ratio{host="node-b"}') == pytest.approx(0.64)
    assert value_of(server, 'lockstep_gpu_clock_hertz{gpu_uuid="GPU-b",clock="sm"}') == 1155e6
    # Diagnosis is told after the store.
    harness.eventually(lambda: server.counters().total("lockstep_alias_points_total") > 0, 20, "points for diagnosis")
