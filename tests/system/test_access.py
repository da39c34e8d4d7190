"""Tokens, roles, sessions, owners and the audit log, on the real server: docs/guide/security.md says what is promised."""

import json
import pathlib
import re
import subprocess

import grpc
import harness
import hostile
import pytest
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2_grpc as logs_grpc

ROLES = ("ingest", "read", "operate", "admin")
# What a token with a role may do: admin includes operate, operate includes read, ingest stands alone.
MAY = {
    "nobody": {"Anyone"},
    "ingest": {"Anyone", "Ingest"},
    "read": {"Anyone", "Read"},
    "operate": {"Anyone", "Read", "Operate"},
    "admin": {"Anyone", "Read", "Operate", "Admin"},
}
JSON = {"Content-Type": "application/json"}
ADMIN_SECRET = "an-admin-token-that-nobody-else-has-0123456789"


def routes():
    """Rows of api/routes.cc: method, a path that the pattern matches, role."""
    text = (harness.ROOT / "src/api/routes.cc").read_text()
    table = text[text.index("kRoutes[] = {") : text.index("\n};")]
    rows = re.findall(r'\{"(/[^"]*)".*?Role::k(\w+),\s*\w+(?:,\s*"(\w+)")?', table, re.S)
    assert len(rows) == len(re.findall(r"^    \{\"/", table, re.M))
    return [(method or "GET", re.sub(r"\{\w+\}", "7", pattern), role) for pattern, role, method in rows]


def bearer(token):
    return {"Authorization": f"Bearer {token}"} if token else {}


def secret_file(folder, name, content):
    path = pathlib.Path(folder) / name
    path.touch(mode=0o600)
    path.write_text(content + "\n")
    return path


class World:
    """A server with an admin token file, and a token for each role, made by the command line."""

    def __init__(self, folder):
        self.folder = folder
        self.admin_file = secret_file(folder, "admin", ADMIN_SECRET)
        self.secrets = {"admin file": ADMIN_SECRET}
        self.said = []  # everything that the command line printed on standard error
        self.server = self.start()
        self.tokens = {role: self.create("--role", role, "--name", f"the {role} one") for role in ROLES}

    def start(self):
        return harness.Server(self.folder / "data", more=["--admin-api", "--admin-token-file", self.admin_file])

    def cli(self, *arguments, token_file=None):
        done = harness.lockstep(
            *arguments, "--server", self.server.url, environment={"LOCKSTEP_TOKEN_FILE": str(token_file or self.admin_file)}
        )
        self.said.append(done.stderr)
        return done

    def create(self, *arguments, token_file=None):
        done = self.cli("token", "create", *arguments, token_file=token_file)
        assert done.returncode == 0, done.stderr
        token = done.stdout.strip()
        assert re.fullmatch(r"lst_[A-Za-z0-9_-]{43}", token)
        self.secrets[" ".join(arguments)] = token
        return token

    def id_of(self, token):
        return self.ask(token, "GET", "/api/session").json()["name"].split()[1]

    def ask(self, token, method, path, body=None, headers=None, address=None):
        body = b"{}" if method == "POST" and body is None else body
        return harness.request(
            address or self.server.http, method, path, body, {**(JSON if method == "POST" else {}), **bearer(token), **(headers or {})}
        )


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    one = World(tmp_path_factory.mktemp("access"))
    yield one
    one.server.stop()


@pytest.mark.limit(180)
@pytest.mark.parametrize("who", ["nobody", *ROLES])
def test_every_route_lets_in_whom_its_row_names_and_nobody_else(world, who):
    token = world.tokens.get(who)
    for method, path, role in routes():
        answer = world.ask(token, method, path)
        if who == "admin" and path.startswith("/api/backup"):
            # Of all tenants, so an admin of one is not enough; whoever has the file's token is admin of all.
            assert answer.status == 403 and world.ask(ADMIN_SECRET, method, path).status not in (401, 403)
        elif role in MAY[who]:
            assert answer.status not in (401, 403), (who, method, path, answer.text)
        else:
            assert answer.status == (401 if who == "nobody" else 403), (who, method, path, answer.text)
            assert answer.text.count("\n") == 1
    for path in ("/api/none", "/prometheus/api/v1/none"):
        assert world.ask(token, "GET", path).status == (404 if "Read" in MAY[who] else 401 if who == "nobody" else 403)


@pytest.mark.parametrize("who", ["nobody", *ROLES])
def test_every_receiver_takes_data_from_ingest_alone(world, who):
    token = world.tokens.get(who)
    refused = 401 if who == "nobody" else 403
    asked = [(world.server.otlp_http, "POST", path) for path in harness.PATHS.values()]
    asked += [(world.server.otlp_http, "GET", "/v1/lockstep/commands"), (world.server.http, "POST", hostile.WRITE)]
    asked += [(world.server.otlp_http, "POST", "/v1/lockstep/uploads"), (world.server.otlp_http, "PUT", "/v1/lockstep/uploads/x/parts/1")]
    for address, method, path in asked:
        status = world.ask(token, method, path, address=address, headers=harness.OURS).status
        assert status not in (401, 403) if who == "ingest" else status == refused, (who, path, status)
    with grpc.insecure_channel(world.server.otlp_grpc) as channel:
        call = logs_grpc.LogsServiceStub(channel).Export
        message = harness.logs_request({"service.name": "x"}, [])
        metadata = [("authorization", f"Bearer {token}")] if token else []
        if who == "ingest":
            call(message, metadata=metadata)
        else:
            with pytest.raises(grpc.RpcError) as failure:
                call(message, metadata=metadata)
            wanted = grpc.StatusCode.UNAUTHENTICATED if who == "nobody" else grpc.StatusCode.PERMISSION_DENIED
            assert failure.value.code() == wanted


def test_curl_with_a_bearer_token_and_with_a_password(world, tmp_path):
    url = world.server.url + "/api/jobs"
    for line in (f'header = "Authorization: Bearer {world.tokens["read"]}"', f'user = "anybody:{world.tokens["read"]}"'):
        config = secret_file(tmp_path, "curl", line)
        done = subprocess.run(["curl", "-sf", "-K", config, url], capture_output=True, text=True, timeout=30)
        assert done.returncode == 0 and "jobs" in json.loads(done.stdout)
    done = subprocess.run(["curl", "-s", "-i", url], capture_output=True, text=True, timeout=30)
    assert "401" in done.stdout.splitlines()[0] and 'www-authenticate: bearer realm="lockstep"' in done.stdout.lower()


def test_a_token_speaks_for_its_own_tenants_alone(world):
    token = world.create("--role", "read", "--tenant", "default,lab")
    for tenant, status in (("default", 200), ("elsewhere", 403), ("../x", 403)):
        answer = world.ask(token, "GET", "/api/session", headers={"X-Scope-OrgID": tenant})
        if status == 200:
            assert answer.json()["tenant"] == tenant
        answer = world.ask(token, "GET", "/api/jobs", headers={"X-Scope-OrgID": tenant})
        assert answer.status == status, answer.text
        assert tenant == "default" or tenant not in answer.text


def test_an_admin_of_one_tenant_makes_and_sees_tokens_of_that_alone(world, tmp_path):
    lab = world.create("--role", "admin", "--tenant", "lab")
    lab_file = secret_file(tmp_path, "lab", lab)
    harness.eventually(lambda: world.ask(lab, "GET", "/api/session").status == 200, 20, "the tenant is opened at first use")
    for body in ({"roles": "read", "tenants": "*"}, {"roles": "read", "tenants": ["lab", "default"]}):
        answer = world.ask(lab, "POST", "/api/tokens", json.dumps(body).encode())
        assert answer.status == 403 and "token" not in answer.json()
    world.create("--role", "ingest", token_file=lab_file)
    listed = json.loads(world.cli("token", "list", "--json", token_file=lab_file).stdout)["tokens"]
    assert len(listed) == 2 and all(token["tenants"] == ["lab"] for token in listed)
    other = world.id_of(world.tokens["read"])
    assert world.cli("token", "revoke", other, token_file=lab_file).returncode == 4
    rows = json.loads(world.cli("audit", "--json", token_file=lab_file).stdout)["audit"]
    assert rows and all(row["tenant"] == "lab" for row in rows)


def test_a_token_ends_no_later_than_the_one_that_makes_it(world, tmp_path):
    short = world.create("--role", "admin", "--tenant", "*", "--name", "for an hour", "--expires", "1h")
    short_file = secret_file(tmp_path, "short", short)
    listed = lambda: {row["name"]: row for row in world.ask(ADMIN_SECRET, "GET", "/api/tokens").json()["tokens"]}  # noqa: E731
    end = listed()["for an hour"]["expires_unix_ns"]
    world.create("--role", "read", "--name", "unasked", token_file=short_file)
    world.create("--role", "read", "--name", "shorter", "--expires", "10m", token_file=short_file)
    assert listed()["unasked"]["expires_unix_ns"] == end > listed()["shorter"]["expires_unix_ns"]
    refused = world.cli("token", "create", "--role", "read", "--expires", "2h", token_file=short_file)
    assert refused.returncode == 5 and "ends no later than the one that makes it" in refused.stderr, refused.stderr
    # Nor does a session that was made of it.
    signed_in = world.ask(None, "POST", "/api/session", json.dumps({"token": short}).encode(), harness.OURS)
    cookie = {"Cookie": signed_in.headers["set-cookie"].split(";")[0], **harness.OURS}
    answer = world.ask(None, "POST", "/api/tokens", b'{"name":"x","roles":"read","expires_s":7200}', cookie)
    assert answer.status == 403, answer.text


def test_a_revoked_token_opens_nothing_from_that_moment_on_also_after_a_restart(tmp_path):
    world = World(tmp_path)
    token = world.create("--role", "read", "--expires", "90d")
    assert world.ask(token, "GET", "/api/jobs").status == 200
    assert world.cli("token", "revoke", world.id_of(token)).returncode == 0
    assert world.ask(token, "GET", "/api/jobs").status == 401
    world.server.stop()
    world.server = world.start()
    assert world.ask(token, "GET", "/api/jobs").status == 401
    assert world.ask(world.tokens["read"], "GET", "/api/jobs").status == 200
    # The admin token file is read again when it changes.
    world.admin_file.write_text("another-" + ADMIN_SECRET)
    harness.eventually(lambda: world.ask("another-" + ADMIN_SECRET, "GET", "/api/tokens").status == 200, 10, "read again")
    assert world.ask(ADMIN_SECRET, "GET", "/api/tokens").status == 401
    world.server.stop()


def test_without_tokens_nothing_is_asked_for_and_the_first_one_ends_that(tmp_path):
    server = harness.Server(tmp_path / "data")
    assert server.get("/api/jobs")["jobs"] == []
    assert harness.request(server.http, "GET", "/api/session").json()["tokens_in_use"] is False
    refused = harness.lockstep("token", "create", "--role", "read", "--server", server.url)
    assert refused.returncode == 5 and "first token must be admin" in refused.stderr
    made = harness.lockstep("token", "create", "--role", "admin", "--server", server.url)
    assert made.returncode == 0, made.stderr
    assert harness.request(server.http, "GET", "/api/jobs").status == 401
    said = harness.lockstep("jobs", "--server", server.url)
    assert said.returncode == 5 and "--token-file" in said.stderr
    file = secret_file(tmp_path, "token", made.stdout.strip())
    assert harness.lockstep("jobs", "--server", server.url, environment={"LOCKSTEP_TOKEN_FILE": str(file)}).returncode == 0
    assert harness.lockstep("token", "list", "--server", server.url, "--token-file", file).returncode == 0
    server.stop()


def test_a_person_signs_in_and_out_with_a_cookie_that_no_script_and_no_other_site_uses(world):
    answer = world.ask(None, "POST", "/api/session", json.dumps({"token": world.tokens["operate"]}).encode())
    assert answer.status == 200 and answer.json()["signed_in"] is True
    cookie = answer.headers["set-cookie"]
    assert all(part in cookie for part in ("HttpOnly", "SameSite=Strict", "Path=/", "Max-Age="))
    session = {"Cookie": cookie.split(";")[0]}
    world.secrets["session"] = cookie.split(";")[0].split("=")[1]
    assert world.ask(None, "GET", "/api/jobs", headers=session).status == 200
    assert world.ask(None, "GET", "/api/tokens", headers=session).status == 403
    foreign = {**session, "Origin": "http://evil.example"}
    assert world.ask(None, "POST", "/api/verdicts/7/feedback", headers=foreign).status == 403
    form = {**session, "Content-Type": "application/x-www-form-urlencoded"}
    assert world.ask(None, "POST", "/api/verdicts/7/feedback", headers=form).status == 403
    assert world.ask(None, "POST", "/api/session/end", headers=session).status == 200
    assert world.ask(None, "GET", "/api/jobs", headers=session).status == 401
    assert world.ask(None, "POST", "/api/session", b'{"token": "lst_wrong"}').status == 401


def test_many_wrong_tokens_from_an_address_are_told_to_wait_and_a_right_one_is_let_in(tmp_path):
    world = World(tmp_path)
    statuses = [world.ask(f"lst_guess{i}", "GET", "/api/jobs").status for i in range(40)]
    assert set(statuses) == {401, 429} and statuses == sorted(statuses)
    assert world.ask(world.tokens["read"], "GET", "/api/jobs").status == 200
    counters = harness.Counters(world.ask(world.tokens["read"], "GET", "/metrics").text)
    assert counters.total("lockstep_access_requests_total", result="limited") == statuses.count(429)
    world.server.stop()


def test_the_audit_log_has_who_did_what_with_which_result(world):
    world.ask(world.tokens["operate"], "POST", "/api/verdicts/no-such/feedback", b'{"right": true}')
    world.ask(world.tokens["read"], "GET", "/api/jobs")
    rows = json.loads(world.cli("audit", "--who", "the operate one", "--action", "feedback", "--since", "1h", "--json").stdout)["audit"]
    assert rows[0]["action"] == "POST /api/verdicts/{name}/feedback"
    assert rows[0]["object"] == "no-such" and rows[0]["status"] == 404
    assert rows[0]["peer"].startswith("127.0.0.1:")
    made = json.loads(world.cli("audit", "--action", "POST /api/tokens", "--limit", "500", "--json").stdout)["audit"]
    assert {row["object"] for row in made} >= {world.id_of(world.tokens[role]) for role in ROLES}
    everything = json.loads(world.cli("audit", "--limit", "10000", "--json").stdout)["audit"]
    assert not [row for row in everything if row["action"] == "GET /api/jobs"]  # reading is nobody's business
    shown = world.cli("audit", "--limit", "2", "--action", "GET /api/audit").stdout.splitlines()  # its own is the newest
    assert "  in progress  " in shown[0] and "          200  " in shown[1], shown


def test_the_audit_log_has_who_was_refused_and_how_often_and_the_operator_alone_sees_strangers(world):
    world.ask(world.tokens["read"], "POST", "/api/tokens", b"{}")
    for _ in range(3):
        world.ask("lst_nobody-has-this-one", "GET", "/api/jobs/some-job/why")

    def refusals(secret):
        return world.ask(secret, "GET", "/api/audit?action=refused&limit=10000").json()["audit"]

    def both():
        rows = refusals(ADMIN_SECRET)
        known = [row for row in rows if "(the read one)" in row["who"] and row["status"] == 403]
        strangers = [row for row in rows if row["who"] == "unknown" and row["peer"] == "127.0.0.1" and row["tenant"] == "*"]
        return known and strangers

    harness.eventually(both, 20, "both are in the audit log")
    assert "nobody-has-this-one" not in json.dumps(refusals(ADMIN_SECRET))
    of_default = world.create("--role", "admin", "--tenant", "default")
    assert "unknown" not in {row["who"] for row in refusals(of_default)}


def test_a_host_and_a_job_belong_to_whoever_fed_them_first_until_taken_over(world):
    first, second = (world.create("--role", "ingest", "--owner", owner) for owner in ("farm", "lab"))
    message = harness.logs_request(harness.identity("owned-job", 3, 8), [harness.step_event(1)])

    def send(token):
        return world.server.post("logs", message, headers=bearer(token))

    def poll(token):
        path = "/v1/lockstep/commands?host=node-3"
        return world.ask(token, "GET", path, address=world.server.otlp_http, headers=harness.OURS)

    assert send(first).status == 200
    refused = send(second)
    assert refused.status == 403 and "node-3" in refused.text and "farm" not in refused.text
    assert poll(second).status == 403
    with grpc.insecure_channel(world.server.otlp_grpc) as channel:
        with pytest.raises(grpc.RpcError) as failure:
            logs_grpc.LogsServiceStub(channel).Export(message, metadata=[("authorization", f"Bearer {second}")])
        assert failure.value.code() == grpc.StatusCode.PERMISSION_DENIED
    series = hostile.series_1({"__name__": "up", "host": "node-3"}, 1.0, harness.now_ns() // 1_000_000)
    written = {"Content-Type": hostile.TYPE_1, "Content-Encoding": "snappy"}
    assert world.ask(first, "POST", hostile.WRITE, hostile.snappy(series), written).status == 204
    refused = world.ask(second, "POST", hostile.WRITE, hostile.snappy(series), written)
    assert refused.status == 403 and "node-3" in refused.text
    owners = json.loads(world.cli("owner", "list", "--json").stdout)["owners"]
    assert {(one["kind"], one["name"], one["owner"]) for one in owners} >= {("host", "node-3", "farm"), ("job", "owned-job", "farm")}
    for kind, name in (("host", "node-3"), ("job", "owned-job")):
        assert world.cli("owner", "takeover", kind, name, "--owner", "lab").returncode == 0
    assert send(second).status == 200
    assert send(first).status == 403
    counters = harness.Counters(world.ask(world.tokens["read"], "GET", "/metrics").text)
    assert counters.total("lockstep_name_owner_checks_total", result="refused_owner") >= 4


def test_secrets_are_in_no_log_no_answer_no_process_list_and_no_file(world):
    for secret in list(world.secrets.values()):  # also shown to whoever refuses
        world.ask(secret + "x", "GET", "/api/jobs")
        world.ask(world.tokens["admin"], "POST", f"/api/tokens/{secret}/revoke")  # the secret taken for the id
        world.ask(world.tokens["admin"], "POST", "/api/tokens", json.dumps({"token": secret}).encode())
        world.ask(None, "POST", "/api/session", json.dumps({"token": secret, "more": 1}).encode())
    places = {
        "log": world.server.log(),
        "command line": "".join(world.said),
        "metrics": world.ask(world.tokens["read"], "GET", "/metrics").text,
        "audit": world.ask(ADMIN_SECRET, "GET", "/api/audit?limit=10000").text,
        "tokens": world.ask(ADMIN_SECRET, "GET", "/api/tokens").text,
        "session": world.ask(world.tokens["read"], "GET", "/api/session").text,
        "refusal": world.ask(ADMIN_SECRET + "x", "GET", "/api/jobs").text,
        "bad body": world.ask(ADMIN_SECRET, "POST", "/api/tokens", json.dumps({"roles": ADMIN_SECRET}).encode()).text,
    }
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            places[f"{process}/cmdline"] = (process / "cmdline").read_text(errors="replace")
        except OSError:
            pass  # it has ended
    for file in (world.folder / "data").rglob("*"):
        if file.is_file():
            places[str(file)] = file.read_bytes().decode(errors="replace")
    for what, secret in world.secrets.items():
        for place, text in places.items():
            assert secret not in text, f"the secret of {what} is in {place}"
