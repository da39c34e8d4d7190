"""`lockstep doctor` names what is really wrong: a plugin that NCCL would not find, an agent whose records nobody takes, the wrong port."""

import json

import pytest

import harness


def checks(*arguments, environment=None):
    done = harness.lockstep("doctor", *arguments, "--json", environment=environment)
    return {one["name"]: one for one in json.loads(done.stdout)["checks"]}, done.returncode


@pytest.mark.parametrize(
    "chosen, state, part",
    [
        ("/nowhere/liblockstep.so", "wrong", "NCCL would not find it"),
        ("", "note", "is not set in this shell"),
        ("libm.so.6", "wrong", "another plugin than Lockstep's"),
        ("lockstep", "ok", "loadable"),
        (str(harness.BIN.parent / "lib" / "libnccl-profiler-lockstep.so"), "ok", "loadable"),
    ],
)
def test_the_plugin_is_looked_for_as_nccl_does(chosen, state, part):
    environment = {"NCCL_PROFILER_PLUGIN": chosen, "LD_LIBRARY_PATH": str(harness.BIN.parent / "lib")}
    found, code = checks("--server", "http://" + harness.unused_address(), environment=environment)
    assert found["plugin"]["state"] == state and part in found["plugin"]["found"], found["plugin"]
    assert code == 1 and found["server"]["state"] == "wrong" and "lockstepd --data" in found["server"]["todo"]


def test_an_agent_whose_records_nobody_takes_is_wrong(server, start, tmp_path):
    (tmp_path / "recorders").mkdir()
    said = ["--server", server.url]
    for where, why in ((harness.unused_address(), "Connection refused"), (server.http, "records are lost")):
        agent = start(harness.Agent, tmp_path / "agent", tmp_path / "recorders", where)

        def refused():
            found, code = checks(*said, "--agent", "http://" + agent.ready["metrics"])
            assert found["server"]["state"] == "ok" and found["agent"]["state"] == "ok"
            return found["delivery"] if found["delivery"]["state"] == "wrong" and code == 1 else None

        delivery = harness.eventually(refused, 15, "a delivery that fails")
        assert why in delivery["found"] and where in delivery["found"] and "--server" in delivery["todo"], delivery
        agent.stop()
    agent = start(harness.Agent, tmp_path / "agent", tmp_path / "recorders", server.otlp_http)
    harness.eventually(lambda: agent.counters().total("lockstep_agent_records_passed_total") > 0 or None, 15, "records")
    found, _ = checks(*said, "--agent", "http://" + agent.ready["metrics"])
    assert found["delivery"]["state"] == "ok" and server.otlp_http in found["delivery"]["found"]


def test_another_address_of_the_server_is_told_apart_from_no_server(server):
    found, code = checks("--server", "http://" + server.otlp_http)
    assert code == 1 and found["server"]["state"] == "wrong", found["server"]
    assert "not as Lockstep's page and API do" in found["server"]["found"] and "7070" in found["server"]["todo"]
