"""What can and cannot be judged of a job: said for one of which all is heard, and for one whose plugin is off."""

import harness
import pytest

FLEET = """
name: coverage
steps: 40
jobs:
  - {job: heard, tp: 4, dp: 8, step_ms: 200}
"""


def rows(server, job):
    answer = server.get(f"/api/jobs/{job}/coverage")
    assert answer["total"] == len(answer["coverage"])
    assert all(row["judged"] in ("judged", "partly", "not") and row["question"] and row["why"] for row in answer["coverage"])
    assert all((row["todo"] == "") == (row["judged"] == "judged") for row in answer["coverage"]), answer
    return {row["key"]: row for row in answer["coverage"]}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("coverage")
    one = harness.Server(folder / "data")
    (folder / "fleet.yaml").write_text(FLEET)
    played = harness.lockstep("sim", folder / "fleet.yaml", "--server", f"http://{one.otlp_http}", timeout=120)
    assert played.returncode == 0, played.stdout + played.stderr
    # Four ranks with marks from Python alone, of eight: no plugin, no agent's metrics, one with lost records.
    for rank in range(4):
        more = {"records_lost": 7} if rank == 3 else {}
        events = [
            harness.step_event(step, self_ns=500_000_000, comm_ns=0, phases=[0, 3_000_000], **more) for step in range(10)
        ]
        assert one.post("logs", harness.logs_request(harness.identity("marks", rank, 8), events)).status == 200
    harness.eventually(lambda: one.get("/api/jobs/marks")["last_step"] == 9, 20, "the steps are there")
    yield one
    assert one.running(), one.log()
    one.stop()


@pytest.mark.limit(120)
def test_a_job_of_which_all_is_heard_is_judged(server):
    told = rows(server, "heard")
    for key in ("ranks", "steps", "groups", "links", "history", "gpu clocks", "gpu temperature", "adapters", "host cpu", "run delay", "hang", "records"):
        assert told[key]["judged"] == "judged", told[key]
    assert told["ranks"]["why"].startswith("32 of 32 ranks report")
    assert told["flight recorder"]["judged"] == "not"


def test_a_job_without_the_plugin_and_with_silent_ranks_says_so(server):
    told = rows(server, "marks")
    assert told["ranks"]["judged"] == "partly" and "4 of 8" in told["ranks"]["why"] and "4-7" in told["ranks"]["why"]
    for key in ("groups", "links", "gpu clocks", "host cpu", "run delay", "clocks"):
        assert told[key]["judged"] == "not", told[key]
    assert "NCCL_PROFILER_PLUGIN" in told["groups"]["todo"]
    assert told["input"]["judged"] == "judged", told["input"]
    assert told["hang"]["judged"] == "partly" and told["records"]["judged"] == "partly"


def test_doctor_prints_it_with_what_is_missing_last(server):
    done = harness.lockstep("doctor", "marks", "--server", server.url)
    assert done.returncode == 0, done.stderr
    states = [line.split()[0] for line in done.stdout.splitlines() if line[:1] in "jpn" and line[:1].strip()]
    order = [state for state in states if state in ("judged", "partly", "not")]
    assert order == sorted(order, key=("judged", "partly", "not").index) and len(order) > 15, done.stdout
    assert "do: " in done.stdout and "marks: " in done.stdout
    wrong = harness.lockstep("doctor", "nobody", "--server", server.url)
    assert wrong.returncode != 0 and "nobody" in wrong.stderr
