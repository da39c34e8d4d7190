"""Gateways write what agents send to Kafka, analyzers read it and diagnose: the same verdict as one process alone gives, every
acknowledged record applied once though the broker is killed, and jobs that go to another analyzer with their verdict."""

import json
import pathlib
import secrets
import subprocess
import threading
import time

import harness
from conftest import PARTITIONS, RULES, Analyzer, Gateway
from kafka_world import seconds_until

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

# A job with a GPU that throttles, which its node reports and its steps do not say, and two that are well.
FLEET = """name: fleet
seed: 4711
steps: {steps}
jobs:
  - {{job: {prefix}-a, dp: 16, step_ms: 500}}
  - {{job: {prefix}-b, dp: 16, step_ms: 500}}
  - {{job: {prefix}-c, dp: 8, step_ms: 500}}
faults:
  - {{cause: throttle-thermal, rank: {rank}, from_step: 40, severity: 0.5}}
"""


def play(folder, gateway, prefix, steps, speed, rank=5):
    """A fleet on its way to a gateway, or a server. Ranks of the same number have the same GPU, and alerts are of GPUs."""
    path = pathlib.Path(folder) / f"{prefix}-{gateway.pid}.yaml"
    path.write_text(FLEET.format(steps=steps, prefix=prefix, rank=rank))
    return subprocess.Popen(
        [str(harness.BIN / "lockstep"), "sim", str(path), "--server", "http://" + gateway.otlp_http, "--speed", str(speed)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )


def end(sim):
    said = sim.communicate(timeout=300)[0]
    assert sim.returncode == 0, said
    return said


def confirmed(server, job):
    """Its verdicts that were confirmed, whether they are over or not."""
    return [one for one in server.get(f"/api/jobs/{job}/why")["verdicts"] if one["state"] != "suspected"]


def explained(server, job):
    """The same, once nodes have said why."""
    verdicts = confirmed(server, job)
    return verdicts if verdicts and all(one["culprit"]["cause"] == "throttle-thermal" for one in verdicts) else None


def essence(verdict):
    """What a verdict says, without when it was said."""
    culprit = verdict["culprit"]
    return {
        "id": verdict["id"],
        "kind": verdict["kind"],
        "state": verdict["state"],
        "ranks": culprit["ranks"] if "ranks" in culprit else culprit.get("rank"),
        "host": culprit["host"],
        "layer": culprit["layer"],
        "cause": culprit["cause"],
        "since_step": verdict["since_step"],
    }


def is_same(after, before):
    """Found again from the same records. When it began is an estimate of the look that found it: a step more or less."""
    rest = [{key: value for key, value in essence(one).items() if key != "since_step"} for one in (after, before)]
    return rest[0] == rest[1] and abs(after["since_step"] - before["since_step"]) <= 2


def is_over(cluster, job):
    """Whether its analyzer has read its end, and all that is there to be read."""
    return cluster.total("lockstep_bus_waiting_records") == 0 and all(one.get(f"/api/jobs/{job}")["state"] == "ended" for one in cluster.owners(job))


def test_the_verdict_is_that_of_one_process_alone(cluster, result, tmp_path):
    alone = harness.Server(tmp_path / "alone")
    try:
        end(play(tmp_path, alone, "same", 120, 8))
        expected = harness.eventually(lambda: confirmed(alone, "same-a"), 30, "the verdict of one process alone")
    finally:
        alone.kill()
    end(play(tmp_path, cluster.gateways[0], "same", 120, 8))
    harness.eventually(lambda: len(cluster.owners("same-a")) == 1, 30, "one analyzer has the job")
    (owner,) = cluster.owners("same-a")
    harness.eventually(lambda: confirmed(owner, "same-a"), 30, "the verdict of the cluster")
    jobs = ("same-a", "same-b", "same-c")
    harness.eventually(lambda: all(is_over(cluster, job) for job in jobs), 30, "nothing more is to come")
    seen = [essence(one) for one in confirmed(owner, "same-a")]
    assert seen == [essence(one) for one in expected]
    assert seen[0]["cause"] == "throttle-thermal", "what nodes say reaches the analyzer of the job"
    for job in jobs[1:]:
        (one,) = cluster.owners(job)
        assert confirmed(one, job) == []
    result("verdict of the same fleet and seed, by one process and by the cluster", f"equal: `{seen[0]['id']}`, {seen[0]['cause']}")
    result("jobs of the fleet, by analyzer", ", ".join(f"{one.instance}: {len(one.jobs())}" for one in cluster.analyzers))


def test_lag_and_skew_are_metrics(cluster):
    harness.eventually(lambda: cluster.total("lockstep_bus_waiting_records") == 0, 10, "all of it is read")
    texts = [harness.request(one.http, "GET", "/metrics").body.decode() for one in cluster.running()]
    partitions = {line.split('"')[1] for text in texts for line in text.splitlines() if line.startswith("lockstep_bus_waiting_records{")}
    assert 1 < len(partitions) <= PARTITIONS, "by partition"
    assert cluster.total("lockstep_bus_read_bytes_total") > 10_000
    for one in cluster.running():
        (ours,) = [group for group in one.get("/prometheus/api/v1/rules")["data"]["groups"] if group["file"].endswith(RULES.name)]
        assert [rule["health"] for rule in ours["rules"] if rule["health"] == "err"] == [], "and rules that can be asked"


def test_kcat_reads_plain_otlp(cluster, result):
    requests = {}
    for topic, message in (("otlp_logs", ExportLogsServiceRequest), ("otlp_metrics", ExportMetricsServiceRequest)):
        for record in cluster.broker.records(topic):
            request = message()
            request.ParseFromString(record.payload)
            groups = request.resource_logs if topic == "otlp_logs" else request.resource_metrics
            assert groups, "a request has resources"
            jobs = {a.value.string_value for g in groups for a in g.resource.attributes if a.key == "lockstep.job_id"}
            assert jobs <= {record.key}, "a record has one job, which is its key"
            assert abs(record.time_ms / 1000 - time.time()) < 600, "its time is when it was received"
            requests.setdefault(topic, []).append((record.key, record.partition))
    places = {}
    for pairs in requests.values():
        for key, partition in pairs:
            places.setdefault(key, set()).add(partition)
    assert all(len(partitions) == 1 for partitions in places.values()), "a key is in one partition number of all topics"
    assert "same-a" in {key for key, _ in requests["otlp_metrics"]}, "metrics of nodes are keyed by the job that runs there"
    result("records that kcat reads and protobuf decodes", ", ".join(f"{topic} {len(all)}" for topic, all in requests.items()))


class Agent(threading.Thread):
    """An agent that asks a gateway for commands until it is asked for stacks."""

    def __init__(self, gateway, host, cursor=None):
        super().__init__(daemon=True)
        self.gateway, self.host, self.cursor, self.stacks = gateway, host, cursor, []
        self.start()

    def run(self):
        until = time.monotonic() + 40
        while not self.stacks and time.monotonic() < until:
            path = f"/v1/lockstep/commands?host={self.host}" + (f"&after={self.cursor}" if self.cursor else "")
            answer = harness.request(self.gateway.otlp_http, "GET", path, headers={"X-Lockstep": "1"}, timeout=40)
            lines = answer.body.decode().splitlines()
            self.cursor = next((line.split()[1] for line in lines if line.startswith("cursor ")), self.cursor)
            self.stacks += [line for line in lines if line.startswith("stacks ")]

    def asked(self):
        self.join(45)
        return self.stacks


def test_a_command_reaches_an_agent_at_whichever_gateway_it_asks(cluster, result, tmp_path):
    (owner,) = cluster.owners("same-a")
    host = confirmed(owner, "same-a")[0]["culprit"]["host"]
    agents = [Agent(gateway, host) for gateway in cluster.gateways]
    began = time.monotonic()
    answer = harness.request(owner.http, "POST", "/api/jobs/same-a/stacks?ranks=5", headers={"X-Lockstep": "1"})
    assert answer.status == 202, answer.body
    wanted = ["stacks same-a 0 5"]
    assert [agent.asked() for agent in agents] == [wanted, wanted], "each gateway has it"
    took = time.monotonic() - began
    # The gateway that handed it out dies before the agent could say that it has it; the agent asks another, begun after it.
    late = Gateway(tmp_path / "late", cluster.broker)
    try:
        assert Agent(late, host, agents[0].cursor).asked() == wanted
    finally:
        late.kill()
    assert owner.counters().total("lockstep_commands_forwarded_total") >= 1
    result("an order for stacks, from the analyzer to an agent at each of two gateways; at a gateway begun after it", f"{took:.2f} s; there")


def numbered(number, service):
    event = ExportLogsServiceRequest()
    group = event.resource_logs.add()
    attribute = group.resource.attributes.add(key="service.name")
    attribute.value.string_value = service
    record = group.scope_logs.add().log_records.add(time_unix_nano=time.time_ns())
    record.body.string_value = f"n{number}"
    return event


class Sender(threading.Thread):
    """Numbered log records, one to a request, each until it is acknowledged."""

    def __init__(self, gateway, service):
        super().__init__(daemon=True)
        self.gateway, self.service, self.acknowledged, self.answers, self.ends = gateway, service, 0, {}, threading.Event()

    def run(self):
        while not self.ends.is_set():
            request = numbered(self.acknowledged, self.service)
            while True:
                try:
                    answer = self.gateway.post("logs", request)
                    status = answer.status
                except OSError:
                    status = "no answer"
                self.answers[status] = self.answers.get(status, 0) + 1
                if status == 200:
                    break
                if status == 503:
                    assert "retry-after" in answer.headers
                time.sleep(0.05)  # the pace of who was not acknowledged
            self.acknowledged += 1
            time.sleep(0.005)  # and of who was


def stored(cluster, service):
    """The bodies of all records of a service, over all analyzers."""
    bodies = []
    for one in cluster.running():
        bodies += [log["body"] for log in one.get("/api/logs", service=service, limit=10000)["logs"]]
    return bodies


def balanced(cluster):
    """Nothing that was read is unaccounted for."""
    for one in cluster.running():
        counters = one.counters()
        outcome = [counters.total(f"lockstep_bus_records_{what}_total") for what in ("received", "applied", "refused", "dropped")]
        assert outcome[0] == sum(outcome[1:]), (one.instance, outcome)
    return True


def readiness(gateway):
    """The rows of /readyz with what they say is wrong."""
    answer = harness.request(gateway.http, "GET", "/readyz?format=json")
    rows = {row["name"]: row.get("problem") for row in json.loads(answer.body)["checks"]}
    return answer.status, rows


def test_every_acknowledged_record_is_applied_once_though_the_broker_is_killed(cluster, result):
    applied = cluster.total("lockstep_bus_records_applied_total")
    senders = [Sender(gateway, f"numbered-{i}") for i, gateway in enumerate(cluster.gateways)]
    for sender in senders:
        sender.start()
    harness.eventually(lambda: all(sender.acknowledged > 100 for sender in senders), 30, "there is a load")
    cluster.broker.kill()
    down = seconds_until(
        lambda: all(g.counters().total("lockstep_bus_records_spooled_total") > 0 for g in cluster.gateways), 20, "gateways keep what they take"
    )
    kept = [sender.acknowledged for sender in senders]
    harness.eventually(lambda: all(s.acknowledged > k + 100 for s, k in zip(senders, kept)), 30, "gateways go on without a broker")
    for gateway in cluster.gateways:
        status, rows = readiness(gateway)
        assert status == 200 and rows["bus"] and rows["spooled"] and not rows["spool"], "it is ready, and says what is wrong"
    # One is killed with what it has kept, and started again while there is still no broker.
    cluster.gateways[0].kill()
    cluster.gateways[0] = senders[0].gateway = Gateway(cluster.folder / "gateway-0", cluster.broker)
    kept = senders[0].acknowledged
    harness.eventually(lambda: senders[0].acknowledged > kept + 20, 30, "a gateway begins without a broker")
    spooled = [gateway.counters().total("lockstep_bus_spool_records") for gateway in cluster.gateways]
    cluster.broker.start()
    back = seconds_until(
        lambda: all(g.counters().total("lockstep_bus_spool_records") == 0 for g in cluster.gateways), 60, "what was kept is forwarded"
    )
    for sender in senders:
        sender.ends.set()
        sender.join(30)
    wanted = sum(sender.acknowledged for sender in senders)

    def all_there():
        return all(len(stored(cluster, s.service)) >= s.acknowledged for s in senders)

    harness.eventually(all_there, 30, "all acknowledged records are applied")
    for sender in senders:
        bodies = stored(cluster, sender.service)
        assert sorted(bodies) == sorted(f"n{i}" for i in range(sender.acknowledged)), "each of them once"
    assert cluster.total("lockstep_bus_records_applied_total") - applied == wanted
    harness.eventually(lambda: balanced(cluster), 10, "received = applied + refused + dropped")
    answers = {status: sum(s.answers.get(status, 0) for s in senders) for s in senders for status in s.answers}
    result("requests acknowledged while the broker was killed, a gateway too, and both started again; records applied", f"{wanted}, {wanted}: each once")
    result("answers that senders had meanwhile", ", ".join(f"{status}: {count}" for status, count in sorted(answers.items(), key=str)))
    result("records that gateways had on disk when the broker came back", ", ".join(f"{count:.0f}" for count in spooled))
    result("first record on a gateway's disk after the kill; none left after the broker was back", f"{down:.1f} s; {back:.1f} s")


def test_an_analyzer_that_is_killed_and_comes_back_has_every_record_once(cluster, result):
    sender = Sender(cluster.gateways[0], "restarted")
    sender.start()
    (owner,) = harness.eventually(
        lambda: [one for one in cluster.running() if one.get("/api/logs", service="restarted")["logs"]], 30, "somebody reads it"
    )
    kills = 3
    for _ in range(kills):
        owner.kill()
        cluster.restart(owner)
        (owner,) = [one for one in cluster.analyzers if one.instance == owner.instance]
        before = sender.acknowledged
        harness.eventually(lambda: sender.acknowledged > before + 50, 30, "more is sent")
    sender.ends.set()
    sender.join(30)
    harness.eventually(lambda: len(stored(cluster, "restarted")) >= sender.acknowledged, 30, "all of them are applied")
    bodies = stored(cluster, "restarted")
    assert sorted(bodies) == sorted(f"n{i}" for i in range(sender.acknowledged)), "each of them once"
    again = owner.counters().total("lockstep_bus_records_dropped_total", reason="read_again")
    result(
        f"an analyzer is killed {kills} times while records come, and started again: acknowledged, applied",
        f"{sender.acknowledged}, {len(bodies)}: each once; {again:.0f} read again after the last and dropped",
    )


def secret_file(folder):
    path, secret = folder / "token", secrets.token_urlsafe(32)
    path.touch(mode=0o600)
    path.write_text(secret + "\n")
    return path, secret


def test_a_tenant_is_its_own_at_the_other_end(cluster, result, tmp_path):
    token, secret = secret_file(tmp_path)
    gateway = Gateway(tmp_path / "gateway", cluster.broker, more=["--admin-token-file", token])
    try:
        assert gateway.post("logs", numbered(0, "of-team-a")).status == 401, "a gateway asks for its token"
        as_team = {"Authorization": f"Bearer {secret}", "X-Scope-OrgID": "team-a"}
        assert gateway.post("logs", numbered(0, "of-team-a"), headers=as_team).status == 200
    finally:
        gateway.kill()
    (sent,) = [record for record in cluster.broker.records("otlp_logs") if record.key == "service/of-team-a"]
    assert sent.headers == "tenant=team-a"
    kept = harness.eventually(
        lambda: [one for one in cluster.running() if list((cluster.folder / one.instance).glob("tenants/team-a/log/*"))],
        30, "an analyzer keeps the tenant's records in a folder of its own",
    )
    assert len(kept) == 1 and stored(cluster, "of-team-a") == [], "and shows them to nobody else"
    result("records of a tenant: with its name on the bus, in its own stores, seen by the default tenant", "1, 1, 0")


def test_a_token_that_is_made_at_an_analyzer_holds_at_gateways_until_it_is_revoked(cluster, result, tmp_path):
    token, secret = secret_file(tmp_path)
    more = ["--admin-token-file", token]
    gateway = Gateway(tmp_path / "gateway", cluster.broker, more=more)
    analyzer = Analyzer(tmp_path / "analyzer", cluster.broker, "of-tokens", more=more)
    try:
        def ask(path, body):
            headers = {"Authorization": f"Bearer {secret}", "content-type": "application/json"}
            answer = harness.request(analyzer.http, "POST", path, json.dumps(body).encode(), headers)
            assert answer.status in (200, 201), answer.body
            return answer.json()

        def sent(with_secret):
            return gateway.post("logs", numbered(0, "by-token"), headers={"Authorization": f"Bearer {with_secret}"}).status

        made = ask("/api/tokens", {"roles": ["ingest"], "tenants": ["default"], "name": "agents"})
        assert sent("lst_" + "x" * 43) == 401
        known = seconds_until(lambda: sent(made["token"]) == 200, 10, "the gateway knows it")
        ask(f"/api/tokens/{made['id']}/revoke", {})
        gone = seconds_until(lambda: sent(made["token"]) == 401, 10, "the gateway knows that it is none any more")
        assert not any(made["token"].encode() in record.payload for record in cluster.broker.records("lockstep_state")), "no secret is on the bus"
    finally:
        gateway.kill()
        analyzer.stop()
    harness.eventually(lambda: sum(cluster.partitions_read()) == PARTITIONS, 60, "the others have its partitions")
    result("a token made at an analyzer is taken by a gateway after; refused when it is revoked after", f"{known:.1f} s; {gone:.1f} s")


def incidents_of(server, job):
    """Its incidents, whatever people have done with them: (id, state)."""
    return [(one["id"], one["state"]) for one in server.get("/api/incidents", state="all", job=job)["incidents"]]


THROTTLED = "LockstepGpuThrottled"


def alerts_of(server, job):
    """The alert of the verdict with its cause, while it fires: what it is known by, since when, which time it is."""
    alerts = [one for one in server.get("/api/alerts")["alerts"] if one["job_id"] == job and one["state"] == "firing"]
    return [(one["fingerprint"], one["starts_unix_ns"], one["episodes"]) for one in alerts if one["name"] == THROTTLED]


def test_a_job_goes_to_another_analyzer_with_its_verdict_its_alert_and_its_incident(cluster, result, tmp_path):
    sim = play(tmp_path, cluster.gateways[1], "moved", 260, 2, rank=6)
    try:
        harness.eventually(lambda: len(cluster.owners("moved-a")) == 1, 30, "one analyzer has the job")
        (first,) = cluster.owners("moved-a")
        (before,) = harness.eventually(lambda: explained(first, "moved-a"), 90, "a verdict, with its cause")
        harness.eventually(lambda: (THROTTLED, "firing") in cluster.pages("moved-a"), 30, "somebody is paged")
        ((incident, _),) = harness.eventually(lambda: incidents_of(first, "moved-a"), 30, "an incident")
        answer = harness.request(first.http, "POST", f"/api/incidents/{incident}/acknowledge", b'{"note": "on it"}', {"content-type": "application/json"})
        assert answer.status == 200, answer.body
        alerts = alerts_of(first, "moved-a")
        sent = lambda result: first.counters().total("lockstep_alert_notifications_total", result=result)
        harness.eventually(lambda: sent("delivered") == sent("queued"), 30, "what the receiver answered is noted")
        first.kill()
        (second,) = cluster.running()
        moved = seconds_until(lambda: "moved-a" in second.jobs(), 30, "the other has the job")
        there = seconds_until(lambda: explained(second, "moved-a"), 30, "and its verdict") + moved
        (after,) = confirmed(second, "moved-a")
        assert is_same(after, before), (essence(after), essence(before))
        harness.eventually(lambda: alerts_of(second, "moved-a") == alerts, 30, "its alert, as it was")
        assert incidents_of(second, "moved-a") == [(incident, "acknowledged")], "its incident, as people left it"
        cluster.restart(first)
        harness.eventually(lambda: min(cluster.partitions_read()) > 0, 60, "whoever comes back reads again")
        harness.eventually(lambda: len(cluster.owners("moved-a")) == 1, 30, "one analyzer has the job")
        (last,) = cluster.owners("moved-a")
        again = harness.eventually(lambda: explained(last, "moved-a"), 60, "the verdict once more")
        assert len(again) == 1 and is_same(again[0], before), (essence(again[0]), essence(before))
        harness.eventually(lambda: [s for one in cluster.running() for s in alerts_of(one, "moved-a")] == alerts, 30, "one analyzer has its alert")
        held = [s for one in cluster.running() for s in incidents_of(one, "moved-a")]
        assert held == [(incident, "acknowledged")], "one analyzer has its incident"
    finally:
        end(sim)
    (last,) = cluster.owners("moved-a")
    assert [one["id"] for one in confirmed(last, "moved-a")] == [before["id"]], "neither gone nor twice"
    firing = [page for page in cluster.pages("moved-a") if page[1] == "firing"]
    assert len(set(firing)) == len(firing), ("nobody is paged twice", firing)
    harness.eventually(lambda: balanced(cluster), 10, "received = applied + refused + dropped")
    result("an analyzer is killed: its job is at the other after; with its verdict after", f"{moved:.1f} s; {there:.1f} s")
    result("the verdict before, after, and when the first was back", f"the same: `{before['id']}`")
    result("its alert and its incident, which somebody had acknowledged, before, after, and when the first was back", f"the same: `{incident}`, acknowledged")
    result("pages that a receiver got of it in all", ", ".join(name for name, _ in firing))
