"""Steps outlive the durable log: what left it is read from disk."""

import shutil

import harness

JOB = "kept"
RANKS = 4
STEPS = 30


def send_steps(server, job=JOB, steps=range(STEPS)):
    for rank in range(RANKS):
        resource = harness.identity(job, rank, RANKS)
        events = [harness.step_event(step, (1000 + 10 * rank + step) * 1_000_000) for step in steps]
        assert server.post("logs", harness.logs_request(resource, events)).status == 200


def test_a_job_whose_log_is_gone_is_still_listed_with_ranks_and_steps(start, tmp_path):
    data = tmp_path / "data"
    first = start(harness.Server, data)
    send_steps(first)
    before_job = first.get(f"/api/jobs/{JOB}")
    before_ranks = first.get(f"/api/jobs/{JOB}/ranks")
    before_steps = first.get(f"/api/jobs/{JOB}/steps", **{"from": 0, "to": STEPS})
    assert first.stop() == 0
    assert list((data / "steps").glob("steps-*.blk"))
    shutil.rmtree(data / "log")

    second = start(harness.Server, data)
    assert [job["job_id"] for job in second.get("/api/jobs")["jobs"]] == [JOB]
    after_job = second.get(f"/api/jobs/{JOB}")
    for field in ("attempt", "world_size", "last_step"):
        assert after_job[field] == before_job[field], field
    after_ranks = second.get(f"/api/jobs/{JOB}/ranks")
    for before, after in zip(before_ranks["ranks"], after_ranks["ranks"], strict=True):
        for field in ("rank", "host", "gpu_uuid", "last_step"):
            assert after.get(field) == before.get(field), field
    assert second.get(f"/api/jobs/{JOB}/steps", **{"from": 0, "to": STEPS}) == before_steps


def test_the_log_read_back_doubles_nothing_that_is_on_disk(start, tmp_path):
    data = tmp_path / "data"
    first = start(harness.Server, data)
    send_steps(first)
    assert first.stop() == 0
    files = sorted((data / "steps").iterdir())
    second = start(harness.Server, data)
    counters = second.counters()
    assert counters.total("lockstep_store_rows", table="steps") == RANKS * STEPS
    assert counters.total("lockstep_step_rows_unsealed") == 0
    send_steps(second, steps=range(STEPS, STEPS + 5))  # a log that goes on
    assert second.counters().total("lockstep_step_rows_unsealed") == RANKS * 5
    second.kill()
    third = start(harness.Server, data)
    counters = third.counters()
    assert counters.total("lockstep_store_rows", table="steps") == RANKS * (STEPS + 5)
    assert counters.total("lockstep_step_rows_unsealed") == RANKS * 5
    assert sorted((data / "steps").iterdir()) == files
    assert len(third.get(f"/api/jobs/{JOB}/steps", **{"from": 0, "to": STEPS + 5})["steps"]) == STEPS + 5


def test_a_torn_file_is_one_line_and_its_steps_come_from_the_log(start, tmp_path):
    data = tmp_path / "data"
    first = start(harness.Server, data)
    send_steps(first)
    assert first.stop() == 0
    (file,) = (data / "steps").glob("steps-*.blk")
    file.write_bytes(file.read_bytes()[:-10])
    second = start(harness.Server, data)
    assert second.counters().total("lockstep_step_files_refused_total") == 1
    assert "torn: it has no end; kept out" in second.log()
    assert len(second.get(f"/api/jobs/{JOB}/steps", **{"from": 0, "to": STEPS})["steps"]) == STEPS
