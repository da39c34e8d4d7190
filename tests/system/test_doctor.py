"""`lockstep doctor` names what is really wrong: a plugin that NCCL would not find, an agent whose records nobody takes, another's page. And what is not
wrong is not called so: the agent of `lockstep run`, any address of the server."""

import contextlib
import http.server
import json
import subprocess
import sys
import threading

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


@contextlib.contextmanager
def somebody_else():
    """A page that is not ours: it answers 404 to everything."""
    answering = type("Answering", (http.server.BaseHTTPRequestHandler,), {
        **{f"do_{method}": lambda self: self.send_error(404) for method in ("GET", "POST")},
        "log_message": lambda *_: None,
    })  # fmt: skip
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), answering) as page:
        threading.Thread(target=page.serve_forever, daemon=True).start()
        yield "127.0.0.1:%d" % page.server_port
        page.shutdown()


@pytest.fixture
def other():
    with somebody_else() as address:
        yield address


def test_an_agent_whose_records_nobody_takes_is_wrong(server, start, tmp_path, other):
    (tmp_path / "recorders").mkdir()
    said = ["--server", server.url]
    for where, why in ((harness.unused_address(), "Connection refused"), (other, "records are lost")):
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


def test_another_page_is_told_apart_from_no_server_and_from_another_port_of_ours(server, other):
    found, code = checks("--server", "http://" + other)
    assert code == 1 and found["server"]["state"] == "wrong", found["server"]
    assert "not as a Lockstep server does" in found["server"]["found"], found["server"]
    for address in (server.http, server.otlp_http, server.otlp_grpc):
        found, _ = checks("--server", "http://" + address)
        assert found["server"]["state"] == "ok" and server.url in found["server"]["found"], found["server"]


def test_the_agent_of_lockstep_run_is_found(server, tmp_path):
    """It has a free port and a folder of its own, so that nobody finds it where agents usually are."""
    recorders, temporary, end = tmp_path / "recorders", tmp_path / "tmp", tmp_path / "end"
    temporary.mkdir()
    environment = {"LOCKSTEP_RECORDER_DIR": str(recorders), "TMPDIR": str(temporary)}
    # It polls, and so it sleeps.
    waiting = f"import os, time\nwhile not os.path.exists({str(end)!r}): time.sleep(0.02)"
    run = subprocess.Popen(
        [harness.BIN / "lockstep", "run", "--server", server.url, "--", sys.executable, "-c", waiting],
        stderr=subprocess.PIPE, text=True, env={**harness.os.environ, **environment},
    )  # fmt: skip
    try:
        assert "agent started" in run.stderr.readline()

        def delivered():
            found, code = checks("--server", server.url, environment=environment)
            assert found["agent"]["state"] == "ok" and code == 0, found
            assert found["delivery"]["state"] == "ok" and server.otlp_http in found["delivery"]["found"], found["delivery"]
            return True

        harness.eventually(delivered, 15, "an agent that delivers")
    finally:
        end.touch()
        assert run.wait(timeout=30) == 0
        run.stderr.close()
    found, _ = checks("--server", server.url, environment=environment)
    assert ":9410" in found["agent"]["found"], "once it is over, the usual place is looked at again"
