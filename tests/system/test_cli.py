"""The command line as a stranger meets it: any address of the server will do, numbers can be typed back, nothing is passed over."""

import json
import os
import re
import subprocess
import sys

import pytest

import harness
from test_feedback import SLOW, STEP_NS, WORLD

JOB = "llama/70b run 1"  # names need not be tame
STEPS = 40


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One for all tests here, with one job of which a rank is slow, and a quiet one."""
    one = harness.Server(tmp_path_factory.mktemp("cli") / "data")
    begin = harness.now_ns() - STEPS * STEP_NS
    for job, bad in ((JOB, 20), ("quiet", STEPS)):
        for rank in range(WORLD):
            events = []
            for step in range(STEPS):
                length = STEP_NS if step >= bad else STEP_NS * 5 // 8
                own = length if rank == SLOW and step >= bad else STEP_NS // 2
                events.append(
                    harness.step_event(
                        step, length, self_ns=own, comm_ns=length - own, start_unix_ns=begin + step * STEP_NS
                    )
                )
            assert one.post("logs", harness.logs_request(harness.identity(job, rank, WORLD), events)).status == 200
    harness.eventually(
        lambda: any(job["health"] == "slow" for job in one.get("/api/jobs")["jobs"]) or None, 15, "a slow job"
    )
    yield one
    assert one.running(), one.log()
    one.kill()


def addresses(server):
    return [server.http, server.otlp_http, server.otlp_grpc]


def test_any_address_of_the_server_will_do_for_every_command(server):
    for address in addresses(server):
        said = harness.lockstep("why", JOB, "--server", "http://" + address)
        assert said.returncode == 1 and said.stdout.startswith(JOB + " · "), (address, said)
        assert f"\n{server.url}/jobs/" in said.stdout, "the link leads to the page, whichever address was given"
        jobs = harness.lockstep("jobs", environment={"LOCKSTEP_SERVER": "http://" + address})
        assert jobs.returncode == 0 and JOB in jobs.stdout, (address, jobs)
    unknown = harness.lockstep("why", "nope", "--server", "http://" + server.otlp_http)
    assert unknown.returncode == 4 and "nope" in unknown.stderr, unknown


def test_the_ports_are_told_to_anybody_and_nothing_else_is(server):
    told = harness.request(server.http, "GET", "/.well-known/lockstep")
    ports = [address.rsplit(":", 1)[1] for address in addresses(server)]
    assert told.status == 200 and told.text == "lockstep listener=http tls=no http={} otlp_http={} otlp_grpc={}\n".format(*ports)
    told = harness.request(server.otlp_http, "GET", "/.well-known/lockstep")
    assert told.status == 200 and told.text.startswith("lockstep listener=otlp_http tls=no ")
    assert harness.request(server.http, "POST", "/.well-known/lockstep", b"", harness.OURS).status in (404, 405)


def test_behind_another_port_the_right_address_is_asked_for(server):
    """As a container's published port, or a proxy, does it: the server's own ports mean nothing there."""
    with harness.forwarded(server.otlp_http) as address:
        said = harness.lockstep("jobs", "--server", "http://" + address)
    assert said.returncode == 2 and said.stderr.count("\n") == 1, said
    assert "by a proxy or another port" in said.stderr and "lockstepd --http" in said.stderr, said.stderr


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_an_agent_sends_to_whichever_address_it_was_given(server, start, tmp_path, protocol):
    (tmp_path / "recorders").mkdir()
    for number, address in enumerate(addresses(server)):
        data = tmp_path / f"agent{number}"
        agent = start(harness.Agent, data, tmp_path / "recorders", address, more=["--protocol", protocol])
        harness.eventually(
            lambda: agent.counters().total("lockstep_agent_records_passed_total") > 0 or None, 15, f"records by {address}"
        )
        assert agent.counters().total("lockstep_agent_records_refused_total") == 0, agent.log()
        right = server.otlp_grpc if protocol == "grpc" else server.otlp_http
        checks = harness.request(agent.ready["metrics"], "GET", "/checks").json()
        assert right in checks["destination"], checks["destination"]
        agent.stop()


def test_a_simulated_job_reaches_the_server_by_its_page(server):
    done = harness.lockstep("sim", "--server", server.url, "--ranks", 2, "--steps", 3, "--speed", 100, "--job", "by-page")
    assert done.returncode == 0, done
    assert "by-page" in [job["job_id"] for job in server.get("/api/jobs")["jobs"]]
