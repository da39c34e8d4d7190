"""Alerts end to end: a fault of the hardware without a job and a slow rank call whoever is configured, once each, whatever
happens to the server or the receiver meanwhile; the user's rules fire, record and are shown as Grafana asks for them."""

import base64
import json
import signal
import subprocess

import harness
from receivers import MailServer, Receiver
from secured import secret_file
from test_feedback import confirmed, play


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

    shown = server.get("/api/alerts")
    assert [one["delivery"] for one in shown["alerts"]] == ["delivered", "delivered"], shown
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
    server.kill()
    server = start(harness.Server, tmp_path / "data", more=["--notify", config])
    xid(server, host="gpu-018")
    harness.eventually(lambda: len(receiver.alerts()) == 2 or None, 10, "the other node's page")
    assert len(set(post["alerts"][0]["fingerprint"] for post in receiver.posts)) == 2, "none came twice"
    receiver.close()


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
