"""Alerts end to end: a fault of the hardware without a job and a slow rank call whoever is configured, once each, whatever
happens to the server or the receiver meanwhile; the user's rules fire, record and are shown as Grafana asks for them."""

import base64
import json
import signal
import ssl
import subprocess

import harness
import pytest
from certificates import Authority
from receivers import MailServer, Receiver
from secured import secret_file
from test_clock_and_disk import moved  # noqa: F401 (a fixture)
from test_feedback import confirmed, play, say
from test_tenants import Tenant


def xid(server, host="gpu-017", code=79):
    resource = {"service.name": "lockstep-agent", "host.name": host}
    event = {
        "event_name": "gpu.xid",
        "attributes": {"gpu_uuid": "GPU-1", "code": code, "meaning": "GPU fell off the bus", "action": "drain the node"},
        "body": f"NVRM: Xid: {code}",
    }
    message = harness.logs_request(resource, [event])
    for group in message.resource_logs:
        group.scope_logs[0].log_records[0].severity_number = 21
    assert server.post("logs", message).status == 200


def notify_file(folder, *receivers):
    path = folder / "notify.yml"
    path.write_text(json.dumps({"receivers": list(receivers)}))  # JSON is YAML
    return str(path)


def webhook(receiver, name="hook", **more):
    return {"name": name, "type": "webhook", "url": receiver.url + "/hook", "severity": "info", **more}


def once(receiver, name):
    """Exactly one page of that alert, and none more after a while."""
    harness.eventually(lambda: (name, "firing") in receiver.alerts() or None, 10, f"a page of {name}")
    assert receiver.alerts().count((name, "firing")) == 1


def noted(server, count):
    """The server has noted on disk that so many pages are delivered: killed from now on it sends none of them again."""

    def delivered():
        return server.counters().total("lockstep_alert_notifications_total", receiver="hook", result="delivered")

    harness.eventually(lambda: delivered() == count or None, 10, "the deliveries are noted")


def test_a_hardware_fault_without_a_job_and_a_slow_rank_are_one_page_each(start, tmp_path):
    receiver, mail = Receiver(), MailServer()
    token = secret_file(tmp_path, "token", "a-secret-token\n")
    config = notify_file(
        tmp_path,
        webhook(receiver, bearer_token_file=str(token)),
        {"name": "mail", "type": "email", "smtp": f"smtp://127.0.0.1:{mail.port}", "starttls": False, "from": "l@example.com", "to": "o@example.com"},
    )
    server = start(harness.Server, tmp_path / "data", more=["--notify", config, "--external-url", "https://lockstep.example", "--gpu-hour-price", "2"])
    xid(server)
    xid(server)
    once(receiver, "LockstepGpuFault")
    alert = receiver.posts[0]["alerts"][0]
    assert "XID 79" in alert["annotations"]["summary"] and "No job" in alert["annotations"]["summary"]
    assert alert["annotations"]["link"].startswith("https://lockstep.example/alerts?id=")
    assert receiver.heads[0]["authorization"] == "Bearer a-secret-token"
    play(server, "train", 40)
    harness.eventually(lambda: confirmed(server, "train"), 15, "a confirmed verdict")
    once(receiver, "LockstepStraggler")
    alert = next(one for post in receiver.posts for one in post["alerts"] if one["labels"]["alertname"] == "LockstepStraggler")
    assert alert["annotations"]["summary"] == server.get("/api/jobs/train/why")["verdicts"][0]["sentence"]
    assert alert["annotations"]["link"].startswith("https://lockstep.example/jobs/train?") and "rank=5" in alert["annotations"]["link"]

    def all_delivered():  # to the webhook and by mail, which takes longer
        answer = server.get("/api/alerts")
        assert [one["delivery"] for one in answer["alerts"]] == ["delivered", "delivered"], answer
        return answer

    shown = harness.eventually(all_delivered, 10, "both alerts are delivered everywhere")
    verdict = confirmed(server, "train")
    assert say(server, verdict["id"], {"right": False}).status == 200
    noise = server.get("/api/alerts", state="noise")
    assert {one["name"]: one["precision"] for one in noise["noise"]} == {"LockstepGpuFault": None, "LockstepStraggler": 0}
    assert [(one["cause"], one["wrong"]) for one in noise["causes"]] == [(verdict["culprit"]["cause"], 1)]
    said = harness.lockstep("alerts", "--noise", "--server", server.url)
    assert said.returncode == 0 and f"{verdict['culprit']['cause']:<45}      0      1  0 %" in said.stdout, said.stdout
    assert "a-secret" not in json.dumps(shown) + server.log() + harness.request(server.http, "GET", "/metrics").text
    done = harness.lockstep("alerts", "--server", server.url)
    assert done.returncode == 1 and "FIRING   LockstepGpuFault (critical)" in done.stdout, done.stdout + done.stderr
    harness.eventually(lambda: len(mail.mails) == 2 or None, 10, "two mails")
    head, body = mail.mails[0].split("\r\n\r\n", 1)
    assert "To: o@example.com" in head and "XID 79" in base64.b64decode(body).decode()
    receiver.close()
    mail.close()


def test_a_kill_before_anything_could_be_sent_and_a_receiver_that_is_down_cost_no_page(start, tmp_path):
    port = harness.unused_port()
    config = notify_file(tmp_path, {"name": "hook", "type": "webhook", "url": f"http://127.0.0.1:{port}/"})
    server = start(harness.Server, tmp_path / "data", more=["--notify", config])
    xid(server)
    waiting = harness.eventually(lambda: next(iter(server.get("/api/alerts")["alerts"]), None), 10, "an alert")
    harness.eventually(
        lambda: "refused" in str(server.get("/api/alerts")["alerts"][0]["deliveries"]) or None, 10, "an attempt that failed"
    )
    assert waiting["state"] == "firing"
    server.kill()
    server = start(harness.Server, tmp_path / "data", more=["--notify", config])
    receiver = Receiver(port)
    once(receiver, "LockstepGpuFault")
    noted(server, 1)
    server.kill()
    server = start(harness.Server, tmp_path / "data", more=["--notify", config])
    xid(server, host="gpu-018")
    harness.eventually(lambda: len(receiver.alerts()) == 2 or None, 10, "the other node's page")
    assert len(set(post["alerts"][0]["fingerprint"] for post in receiver.posts)) == 2, "none came twice"
    receiver.close()


@pytest.mark.limit(120)
def test_exactly_one_page_whoever_is_down_and_wherever_the_clock_is_set(moved, tmp_path):  # noqa: F811
    port = harness.unused_port()
    more = ["--notify", notify_file(tmp_path, {"name": "hook", "type": "webhook", "url": f"http://127.0.0.1:{port}/"})]

    def firing(count):
        alerts = [one for one in moved.server.get("/api/alerts")["alerts"] if one["state"] == "firing"]
        return alerts if len(alerts) == count and all(one["deliveries"] for one in alerts) else None

    server = moved.start(7200, more)
    xid(server, host="gpu-1")
    harness.eventually(lambda: firing(1) and "refused" in str(firing(1)[0]["deliveries"]) or None, 10, "an attempt that failed")
    moved.move(0)  # set back by two hours
    xid(server, host="gpu-2")
    harness.eventually(lambda: firing(2), 10, "the other node's alert")
    server.kill()  # between firing and sending
    server = moved.start(0, more)
    moved.move(4 * 86400)
    xid(server, host="gpu-3")
    harness.eventually(lambda: firing(3), 10, "the third node's alert")
    receiver = Receiver(port)

    def paged():
        return sorted(one["labels"]["host"] for post in receiver.posts for one in post["alerts"] if one["status"] == "firing")

    harness.eventually(lambda: len(paged()) >= 3 or None, 70, "three pages")
    noted(server, 3)
    moved.move(0)
    server.kill()
    server = moved.start(0, more)
    xid(server, host="gpu-4")
    harness.eventually(lambda: "gpu-4" in paged() or None, 10, "the fourth page")
    assert paged() == ["gpu-1", "gpu-2", "gpu-3", "gpu-4"], "each once"
    receiver.close()


def test_an_action_is_run_once_for_a_cause_that_is_switched_on(start, tmp_path):
    command = tmp_path / "cordon"
    command.write_text(f'#!/bin/sh\necho "$LOCKSTEP_JOB $LOCKSTEP_RANKS" >> {tmp_path}/ran\necho cordoned\n')
    command.chmod(0o700)
    file = tmp_path / "actions.yml"

    def switch(mode):
        causes = {name: mode for name in ("slow-compute", "cpu-contention")}
        file.write_text(json.dumps({"actions": [{"name": "cordon", "causes": causes, "command": str(command)}]}))

    def runs():
        return [one for one in server.get("/api/actions")["runs"] if one["state"] not in ("waiting", "running")] or None

    switch("dry-run")
    server = start(harness.Server, tmp_path / "data", more=["--actions", str(file)])
    play(server, "train", 40)
    run = harness.eventually(runs, 20, "a decision")[0]
    assert (run["state"], run["line"], run["job_id"]) == ("dry-run", f"would run {command}", "train")
    switch("run")
    server.process.send_signal(signal.SIGHUP)
    harness.eventually(lambda: "--actions read again: 1 actions" in server.log() or None, 10, "that it was read")
    play(server, "other", 40)
    done = harness.eventually(lambda: next((one for one in runs() or [] if one["state"] == "done"), None), 20, "that it was run")
    assert (done["job_id"], done["line"]) == ("other", "exit code 0: cordoned")
    server.kill()
    server = start(harness.Server, tmp_path / "data", more=["--actions", str(file)])
    play(server, "third", 40)
    harness.eventually(lambda: any(one["job_id"] == "third" for one in runs() or []) or None, 20, "the third decision")
    assert {one["job_id"]: one["state"] for one in runs()} == {"train": "dry-run", "other": "done", "third": "limited"}
    assert (tmp_path / "ran").read_text() == "other 5\n"
    shown = harness.lockstep("alerts", "actions", "--server", server.url)
    assert shown.returncode == 0 and "exit code 0: cordoned" in shown.stdout, shown.stdout + shown.stderr
    command.chmod(0o777)
    wrong = subprocess.run([harness.BIN / "lockstepd", "--data", tmp_path / "d", "--actions", file], capture_output=True, text=True, timeout=20)
    assert wrong.returncode != 0 and "can be written by" in wrong.stderr, wrong.stderr


def test_alerts_of_a_tenant_go_to_its_own_receivers(start, tmp_path):
    ours, theirs = Receiver(), Receiver()
    secret = "an-admin-token-that-nobody-else-has-0123456789"
    config = notify_file(tmp_path, webhook(ours), webhook(theirs, "theirs", tenant="acme"))
    more = ["--notify", config, "--admin-token-file", secret_file(tmp_path, "admin", secret)]
    server = start(harness.Server, tmp_path / "data", more=more)
    operator = Tenant(server, "default", secret)
    wanted = {"roles": ["read", "ingest"], "tenants": ["acme"], "name": "acme people"}
    acme = Tenant(server, "acme", operator.ask("POST", "/api/tokens", json.dumps(wanted).encode()).json()["token"])
    harness.eventually(lambda: acme.ask("GET", "/api/alerts").status == 200, 20, "acme is opened")
    xid(acme)
    once(theirs, "LockstepGpuFault")
    assert [one["name"] for one in acme.get("/api/alerts")["receivers"]] == ["theirs"]
    assert [one["name"] for one in operator.get("/api/alerts")["receivers"]] == ["hook"]
    assert ours.posts == [] and operator.get("/api/alerts")["alerts"] == []
    ours.close()
    theirs.close()


def test_a_mail_goes_by_starttls_and_password_and_a_server_that_repeats_it_is_not_repeated(start, tmp_path):
    authority = Authority(tmp_path / "authority")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.sign("mail"))
    mail = MailServer(context=context, password="the-right-one")
    config = {"name": "mail", "type": "email", "smtp": f"smtp://127.0.0.1:{mail.port}", "from": "l@example.com", "to": "o@example.com"}
    config |= {"username": "lockstep", "password_file": str(secret_file(tmp_path, "password", "the-wrong-one"))}
    config |= {"tls": {"ca_file": str(authority.certificate)}}
    server = start(harness.Server, tmp_path / "data", more=["--notify", notify_file(tmp_path, config)])
    xid(server)
    harness.eventually(lambda: "AUTH PLAIN with 535" in json.dumps(server.get("/api/alerts")) or None, 20, "that the password is wrong")
    shown = json.dumps(server.get("/api/alerts"))
    secret_file(tmp_path, "password", "the-right-one")
    harness.eventually(lambda: mail.mails or None, 60, "the mail")
    assert mail.recipients == [["o@example.com"]] and "Message-ID:" in mail.mails[0]
    assert "the-wrong" not in shown + server.log() and "the-right" not in server.log()
    mail.close()


def test_rude_receivers_neither_hold_up_others_nor_learn_secrets(start, tmp_path):
    other = Receiver()
    redirects = Receiver(answer=lambda number: (302, {"location": other.url + "/stolen"}, b""))
    huge = Receiver(answer=lambda number: (200, {}, b"x" * 3_000_000))
    refuses = Receiver(answer=lambda number: (400, {}, b"no such thing: a-secret-token"))
    token = secret_file(tmp_path, "token", "a-secret-token")
    config = notify_file(
        tmp_path, webhook(redirects, "redirects", bearer_token_file=str(token)), webhook(huge, "huge"), webhook(refuses, "refuses", bearer_token_file=str(token))
    )
    server = start(harness.Server, tmp_path / "data", more=["--notify", config])
    xid(server)

    def states():
        found = {one["receiver"]: one for one in server.get("/api/alerts")["alerts"][0]["deliveries"]}
        return found if len(found) == 3 and all(one["attempts"] for one in found.values()) else None

    found = harness.eventually(states, 15, "three attempts")
    assert found["huge"]["state"] == "delivered" and len(huge.posts) == 1
    assert found["redirects"]["state"] == "waiting" and "redirect" in found["redirects"]["error"] and other.posts == []
    assert found["refuses"]["state"] == "failed" and "a-secret" not in found["refuses"]["error"]
    assert server.counters().total("lockstep_alert_notifications_lost_total", receiver="refuses") == 1
    for one in (other, redirects, huge, refuses):
        one.close()


def test_a_mail_goes_to_those_who_are_taken_and_the_rest_is_seen(start, tmp_path):
    tries = {}

    def rcpt(address):
        tries[address] = tries.get(address, 0) + 1
        if address == "gone@example.com":
            return "550 no such user"
        return "450 greylisted" if address == "later@example.com" and tries[address] == 1 else "250 ok"

    mail = MailServer(rcpt=rcpt)
    to = ["o@example.com", "gone@example.com", "later@example.com"]
    config = notify_file(tmp_path, {"name": "mail", "type": "email", "smtp": f"smtp://127.0.0.1:{mail.port}", "starttls": False, "from": "l@example.com", "to": to})
    server = start(harness.Server, tmp_path / "data", more=["--notify", config])
    xid(server)

    def delivered():
        found = server.get("/api/alerts")["alerts"]
        return found[0] if found and found[0]["delivery"] == "delivered" else None

    alert = harness.eventually(delivered, 20, "that the mail is delivered")
    assert "gone@example.com: 550 no such user" in alert["deliveries"][0]["error"]
    assert mail.recipients == [["o@example.com"], ["later@example.com"]], "each got it once"
    assert server.counters().total("lockstep_alert_mail_addresses_refused_total", receiver="mail") == 1
    mail.close()


RULES = """groups:
  - name: mine
    interval: 1s
    rules:
      - {record: "mine:double", expr: "2 * mine_ratio"}
      - alert: MineHigh
        expr: mine:double > 5
        for: 1s
        labels: {severity: critical}
        annotations: {summary: "mine is {{ $value | humanize }} on {{ $labels.where }}"}
"""


def prometheus(server, path, **parameters):
    return server.get("/prometheus/api/v1/" + path, **parameters)["data"]


def test_rules_of_the_user_record_fire_are_shown_silenced_and_read_again(start, tmp_path):
    receiver = Receiver()
    rules = tmp_path / "rules.yml"
    rules.write_text(RULES)
    more = ["--notify", notify_file(tmp_path, webhook(receiver)), "--rules", str(tmp_path / "*.yml").replace("*", "rules*")]
    server = start(harness.Server, tmp_path / "data", more=more)
    done = harness.lockstep("alerts", "silence", "alertname=MineHigh", "where=there", "--comment", "known", "--server", server.url)
    assert done.returncode == 0, done.stderr
    done = harness.lockstep("alerts", "silence", "host=node-1", "--planned", "--server", server.url)
    assert done.returncode == 0, done.stderr
    listed = harness.lockstep("alerts", "silences", "--server", server.url).stdout
    (planned,) = [line for line in listed.splitlines() if " planned" in line]
    assert "node-1" in planned, listed

    def send():
        for where in ("here", "there"):
            points = [({"where": where}, harness.now_ns(), 3.0)]
            answer = server.post("metrics", harness.gauge_request({"service.name": "x"}, "mine", points))
            assert answer.status == 200, answer.text

    def firing():
        send()
        found = [one for one in prometheus(server, "alerts")["alerts"] if one["state"] == "firing"]
        return found if len(found) == 2 else None

    found = harness.eventually(firing, 15, "two alerts of the rule")
    assert {one["annotations"]["summary"] for one in found} == {"mine is 6 on here", "mine is 6 on there"}
    group = next(one for one in prometheus(server, "rules")["groups"] if one["name"] == "mine")
    assert [(one["type"], one["health"]) for one in group["rules"]] == [("recording", "ok"), ("alerting", "ok")]
    assert prometheus(server, "query", query='ALERTS{alertstate="firing"}')["result"]
    assert prometheus(server, "query", query="mine:double")["result"][0]["value"][1] == "6"
    harness.eventually(lambda: receiver.alerts() or None, 10, "a page")
    assert [one["labels"]["where"] for post in receiver.posts for one in post["alerts"]] == ["here"], "the other is silenced"

    rules.write_text(RULES.replace("> 5", "> {{"))
    server.process.send_signal(signal.SIGHUP)
    harness.eventually(lambda: "the rules from before still hold" in server.log() or None, 10, "a refusal in the log")
    rules.write_text("groups: []\n")  # not one rule is left
    server.process.send_signal(signal.SIGHUP)
    harness.eventually(lambda: not server.get("/api/alerts")["alerts"] or None, 10, "that it is over")
    assert prometheus(server, "alerts")["alerts"] == []
    receiver.close()


def test_a_wrong_file_is_one_line_with_its_number(tmp_path):
    for option, text, line in (
        ("--notify", "receivers:\n  - {name: a, type: fax}\n", "line 2: type must be"),
        ("--rules", "groups:\n - name: g\n   rules:\n   - {alert: A, expr: 'up ='}\n", "line 4: expr:"),
    ):
        file = tmp_path / "wrong.yml"
        file.write_text(text)
        done = subprocess.run([harness.BIN / "lockstepd", "--data", tmp_path / "d", option, file], capture_output=True, text=True, timeout=20)
        assert done.returncode != 0 and line in done.stderr and done.stderr.strip().count("\n") == 0, done.stderr
