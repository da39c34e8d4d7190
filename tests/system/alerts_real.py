"""Alerts with the real ones: Debian's Alertmanager takes, groups and silences what we send, and is told again after it or we
were down; promtool and ours agree on the same rule unit tests. Run by ./dev test alerts, which installs them."""

import json
import pathlib
import re
import shutil
import subprocess

import harness
import pytest
from receivers import Receiver
from test_alerts import RULES, xid
from test_feedback import play

DATA = harness.ROOT / "tests" / "data" / "rules"
RUNNER = harness.ROOT / "build" / "dev" / "bin" / "rule_unit_tests"


class Alertmanager:
    def __init__(self, folder, receiver, port):
        self.port = port
        folder.mkdir(exist_ok=True)
        (folder / "am.yml").write_text(
            json.dumps(
                {
                    "route": {"receiver": "hook", "group_by": ["alertname"], "group_wait": "1s", "group_interval": "1s", "repeat_interval": "1h"},
                    "receivers": [{"name": "hook", "webhook_configs": [{"url": receiver.url, "send_resolved": True}]}],
                }
            )
        )
        program = shutil.which("prometheus-alertmanager") or "/usr/bin/prometheus-alertmanager"
        with open(folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [program, f"--config.file={folder}/am.yml", f"--storage.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="],
                stdout=log, stderr=log,
            )
        harness.eventually(lambda: self.ready(), 20, "Alertmanager")

    def ready(self):
        try:
            return harness.request(f"127.0.0.1:{self.port}", "GET", "/-/ready").status == 200 or None
        except OSError:
            return None

    def get(self, path):
        return harness.request(f"127.0.0.1:{self.port}", "GET", "/api/v2/" + path).json()

    def post(self, path, body):
        return harness.request(f"127.0.0.1:{self.port}", "POST", "/api/v2/" + path, json.dumps(body).encode(), {"content-type": "application/json"})

    def stop(self):
        self.process.terminate()
        self.process.wait(20)


@pytest.fixture
def world(tmp_path):
    receiver = Receiver()
    manager = Alertmanager(tmp_path / "am", receiver, harness.unused_port())
    yield receiver, manager
    manager.stop()
    receiver.close()


def names(receiver):
    return [name for name, status in receiver.alerts() if status == "firing"]


def test_alertmanager_takes_groups_and_silences(start, tmp_path, world):
    receiver, manager = world
    silence = {
        "matchers": [{"name": "host", "value": "gpu-quiet", "isRegex": False, "isEqual": True}],
        "startsAt": "2020-01-01T00:00:00Z", "endsAt": "2099-01-01T00:00:00Z", "createdBy": "test", "comment": "known",
    }
    assert manager.post("silences", silence).status == 200
    more = ["--alertmanager", f"http://127.0.0.1:{manager.port}", "--external-url", "https://lockstep.example"]
    server = start(harness.Server, tmp_path / "data", more=more)
    for host in ("gpu-1", "gpu-2", "gpu-quiet"):
        xid(server, host)
    harness.eventually(lambda: len(manager.get("alerts")) == 3 or None, 15, "three alerts")
    by_host = {one["labels"]["host"]: one for one in manager.get("alerts")}
    assert by_host["gpu-quiet"]["status"]["state"] == "suppressed"
    assert by_host["gpu-1"]["generatorURL"].startswith("https://lockstep.example/alerts?id=")
    harness.eventually(lambda: len(names(receiver)) == 2 or None, 15, "a page of two")
    assert len(receiver.posts) == 1, "one group, one page"
    assert server.get("/prometheus/api/v1/alertmanagers")["data"]["activeAlertmanagers"]
    shown = server.get("/api/alerts")
    assert {one["delivery"] for one in shown["alerts"]} == {"delivered"}, shown


@pytest.mark.limit(120)
def test_exactly_one_page_whoever_was_down(start, tmp_path, world):
    receiver, manager = world
    more = ["--alertmanager", f"http://127.0.0.1:{manager.port}"]
    server = start(harness.Server, tmp_path / "data", more=more)
    manager.stop()
    xid(server)
    harness.eventually(lambda: server.get("/api/alerts")["alertmanagers"][0]["error"] or None, 15, "that it is down")
    server.kill()  # between firing and sending
    server = start(harness.Server, tmp_path / "data", more=more)
    manager.__init__(tmp_path / "am", receiver, manager.port)
    harness.eventually(lambda: names(receiver) or None, 30, "a page")
    server.kill()
    server = start(harness.Server, tmp_path / "data", more=more)
    play(server, "train", 40)  # another alert, so that we know that it hears us again
    harness.eventually(lambda: len(names(receiver)) == 2 or None, 30, "the other page")
    assert sorted(names(receiver)) == ["LockstepGpuFault", "LockstepStraggler"]


def test_our_rules_agree_with_promtool():
    theirs = subprocess.run(["promtool", "test", "rules", DATA / "tests.yml"], capture_output=True, text=True, timeout=60)
    ours = subprocess.run([RUNNER, DATA / "tests.yml"], capture_output=True, text=True, timeout=60)
    assert theirs.returncode == 0, theirs.stdout + theirs.stderr
    assert ours.returncode == 0, ours.stdout


@pytest.mark.parametrize("number", range(8))
def test_what_promtool_finds_wrong_ours_does_too(tmp_path, number):
    text = (DATA / "tests.yml").read_text()
    values = [match.span(1) for match in re.finditer(r'(?:value|summary): "?([\w. :+]+?)["}]', text)]
    begin, end = values[number * len(values) // 8]
    shutil.copy(DATA / "rules.yml", tmp_path)
    (tmp_path / "tests.yml").write_text(text[:begin] + "7" + text[begin:end] + text[end:])
    for program in (["promtool", "test", "rules"], [RUNNER]):
        done = subprocess.run([*program, tmp_path / "tests.yml"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1, f"{program}: {done.stdout}"


def test_promtool_takes_the_rule_files_of_our_tests(tmp_path):
    file = pathlib.Path(tmp_path / "rules.yml")
    file.write_text(RULES)
    done = subprocess.run(["promtool", "check", "rules", file], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
