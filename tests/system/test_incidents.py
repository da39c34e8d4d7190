"""Incidents end to end: what two jobs and the hardware say of one machine is one incident, which outlives the server, is taken and
resolved by people, and leaves as Markdown and JSON with nothing of a hostile name in force."""

import json
import re

import harness
import pytest
from receivers import Receiver
from test_alerts import notify_file, once, webhook, xid
from test_feedback import SLOW, WORLD, confirmed, play

HOSTILE = "a|b [x](javascript:1) <img src=x> # owned"


def incidents(server, **parameters):
    return server.get("/api/incidents", **parameters)["incidents"]


def eventually_one(server, what, **parameters):
    return harness.eventually(lambda: next((one for one in incidents(server, **parameters) if what in one["component"]), None), 15, f"an incident of {what}")


def report_models(server):
    """Six GPUs of a job are H100, one is of a model without a price; of rank SLOW none is known. Not from the ranks' own nodes: of a
    node that reports, diagnosis waits for what else it has to say."""
    model = lambda rank: "NVIDIA L4" if rank == 0 else "NVIDIA H100 80GB HBM3"
    points = [({"gpu_uuid": f"GPU-{rank}", "model": model(rank)}, harness.now_ns(), 1.0) for rank in range(WORLD)]
    inventory = {"service.name": "lockstep-agent", "host.name": "inventory"}
    answer = server.post("metrics", harness.gauge_request(inventory, "lockstep_gpu_info", points))
    assert answer.status == 200, answer.text


def gpu_of(rank):
    return {} if rank == SLOW else {"lockstep.gpu_uuid": f"GPU-{rank}"}


def change(server, incident, what, body=b"{}"):
    return harness.request(server.http, "POST", f"/api/incidents/{incident}/{what}", body, harness.OURS)


def test_two_jobs_that_wait_for_one_host_are_one_incident_that_outlives_a_kill(start, tmp_path):
    server = start(harness.Server, tmp_path / "data", more=["--gpu-hour-price", "H100=200"])
    report_models(server)
    for job in ("first", "second"):
        play(server, job, 40, gpu_of)
    for job in ("first", "second"):
        harness.eventually(lambda job=job: confirmed(server, job), 15, "a confirmed verdict")
    one = harness.eventually(
        lambda: next((found for found in incidents(server) if len(found["job_ids"]) == 2), None), 15, "one incident of both jobs"
    )
    assert one["component"] == "host:node-5" and one["state"] == "open" and one["active"] and len(incidents(server)) == 1

    report = server.get(f"/api/incidents/{one['id']}")
    assert [job["suffers"] for job in report["jobs"]] == [True, True]
    assert report["lost_gpu_seconds"] == sum(job["lost_gpu_seconds"] for job in report["jobs"]) > 0
    money = r"lost, ([\d.]+) at 200\.00 a GPU-hour, and ([\d.]+) GPU-minutes without a price \(GPUs of unknown model, NVIDIA L4\)"
    paid, unpriced = map(float, re.search(money, report["cost"]).groups())
    minutes = report["lost_gpu_seconds"] / 60
    assert paid == pytest.approx(minutes / 60 * 6 / 8 * 200, abs=0.01) and unpriced == pytest.approx(minutes * 2 / 8, abs=0.11), report
    assert "not report how many steps are planned" in report["jobs"][0]["completion"]["sentence"]
    assert report["jobs"][0]["path"].startswith("/jobs/") and "rank=5" in report["jobs"][0]["path"]
    harness.eventually(lambda: server.get(f"/api/incidents/{one['id']}")["blast_radius"]["known"] or None, 10, "who is hit")
    radius = server.get(f"/api/incidents/{one['id']}")["blast_radius"]
    listed = harness.lockstep("incidents", "--server", server.url).stdout
    assert re.search(money, " ".join(listed.split())), listed
    row = incidents(server)[0]
    assert re.search(money, f"lost, {row['money']}") and row["lost_money"] >= paid - 0.005, row
    assert radius["hosts"] == 1 and {job["job_id"] for job in radius["jobs"]} == {"first", "second"}
    verdict = report["verdicts"][0]
    assert verdict["chain"] and verdict["next"], "the evidence is there"

    for job in ("first", "second"):
        whys = server.get(f"/api/jobs/{job}/why")["verdicts"]
        assert whys[0]["incident"] == {"id": one["id"], "state": "open"}, whys
        assert server.get(f"/api/verdicts/{whys[0]['id']}")["incident"]["id"] == one["id"]
    printed = harness.lockstep("why", "first", "--server", server.url).stdout
    assert f"lockstep incidents show {one['id']}   (open)" in printed, printed

    done = harness.lockstep("incidents", "ack", one["id"], "--note", "on it", "--server", server.url)
    assert done.returncode == 0 and "acknowledged" in done.stdout, done.stderr
    server.kill()
    server = start(harness.Server, tmp_path / "data")
    kept = incidents(server)
    assert [(found["id"], found["state"]) for found in kept] == [(one["id"], "acknowledged")]
    harness.eventually(lambda: confirmed(server, "first"), 15, "the verdict, found again")
    timeline = server.get(f"/api/incidents/{one['id']}")["timeline"]
    assert [moment["what"] for moment in timeline].count("began") == 2, timeline
    assert any(moment["what"] == "acknowledged" and moment["text"] == "on it" for moment in timeline)

    assert change(server, one["id"], "feedback", b'{"right": false, "cause": "ecc"}').status == 200
    said = [found["feedback"] for found in server.get(f"/api/incidents/{one['id']}")["verdicts"]]
    assert sorted(found is not None for found in said) == [False, True], "of the one that says most"
    assert change(server, one["id"], "resolve", b'{"note": "drained"}').json()["state"] == "resolved"
    assert incidents(server) == [] and len(incidents(server, state="all")) == 1
    assert harness.lockstep("incidents", "--server", server.url).returncode == 0
    assert harness.lockstep("incidents", "reopen", one["id"], "--server", server.url).returncode == 0
    listed = harness.lockstep("incidents", "--server", server.url)
    assert listed.returncode == 1 and one["id"] in listed.stdout and "host node-5" in listed.stdout, listed.stdout
    shown = harness.lockstep("incidents", "show", one["id"], "--server", server.url)
    assert shown.returncode == 0 and "drained" in shown.stdout and "because" in shown.stdout, shown.stdout + shown.stderr


def test_a_fault_of_the_hardware_is_an_incident_without_a_job_and_its_page_leads_there(start, tmp_path):
    receiver = Receiver()
    more = ["--notify", notify_file(tmp_path, webhook(receiver)), "--external-url", "https://lockstep.example"]
    server = start(harness.Server, tmp_path / "data", more=more)
    xid(server)
    xid(server, code=48)
    one = eventually_one(server, "gpu:GPU-1")
    assert one["severity"] == "critical" and one["job_ids"] == [] and "XID" in one["sentence"]
    once(receiver, "LockstepGpuFault")
    link = receiver.posts[0]["alerts"][0]["annotations"]["incident"]
    assert link == f"https://lockstep.example/incidents/{one['id']}"
    shown = server.get(f"/api/incidents/{one['id']}")
    assert [moment["what"] for moment in shown["timeline"]].count("event") == 2, "what came twice from the log is there once"
    server.kill()
    server = start(harness.Server, tmp_path / "data", more=more)
    again = server.get(f"/api/incidents/{one['id']}")
    assert [moment for moment in again["timeline"] if moment["what"] == "event"] == [
        moment for moment in shown["timeline"] if moment["what"] == "event"
    ]
    receiver.close()


def test_a_hostile_name_is_text_in_every_export_and_nonsense_is_one_line(start, tmp_path):
    server = start(harness.Server, tmp_path / "data")
    play(server, HOSTILE, 40)
    one = harness.eventually(lambda: next(iter(incidents(server, job=HOSTILE)), None), 15, "an incident")
    assert change(server, one["id"], "acknowledge", json.dumps({"note": "see\n# owned"}).encode()).status == 200
    answer = harness.request(server.http, "GET", f"/api/incidents/{one['id']}/markdown")
    assert answer.status == 200 and answer.headers["content-type"].startswith("text/markdown")
    # A command is in a block of code, where nothing is markup.
    prose = "\n".join(line for line in answer.text.splitlines() if not line.startswith("    "))
    assert "\\<img" in prose and "<img" not in prose.replace("\\<img", "") and "[x](" not in prose and "\n# owned" not in prose
    assert server.get(f"/api/incidents/{one['id']}")["jobs"][0]["job_id"] == HOSTILE
    exported = harness.lockstep("incidents", "show", one["id"], "--markdown", "--server", server.url)
    assert exported.returncode == 0 and exported.stdout.startswith(f"# Incident {one['id']}"), exported.stderr
    exported = harness.lockstep("incidents", "show", one["id"], "--json", "--server", server.url)
    assert json.loads(exported.stdout)["id"] == one["id"]
    for path, body, status, part in (
        ("i-none/resolve", b"{}", 404, "no incident"),
        (f"{one['id']}/resolve", b"[", 400, "incident"),
        (f"{one['id']}/acknowledge", json.dumps({"note": "x" * 600}).encode(), 400, "limit 500"),
        (f"{one['id']}/feedback", b'{"right": 3}', 400, "feedback"),
    ):
        refused = harness.request(server.http, "POST", f"/api/incidents/{path}", body, harness.OURS)
        assert refused.status == status and part in refused.json()["error"] and "\n" not in refused.json()["error"], refused.text
    assert harness.request(server.http, "GET", "/api/incidents?state=broken").status == 400
    assert harness.lockstep("incidents", "show", "i-none", "--server", server.url).returncode == 4
    harness.eventually(lambda: server.counters().total("lockstep_incidents", state="acknowledged") == 1, 10, "one that somebody takes care of")
