"""The Model Context Protocol by hand: the same numbers as the API, roles, audit, other sites. With the real client: ./dev test mcp."""

import json
import pathlib

import harness
import pytest

from test_feedback import SLOW, confirmed, play

JSON = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
ADMIN = "an-admin-token-that-nobody-else-has-0123456789"


class Assistant:
    """Speaks as 2025-11-25 does, or (stateless) as 2026-07-28."""

    def __init__(self, server, token, stateless=False):
        self.server, self.token, self.stateless = server, token, stateless

    def send(self, method, params=None, headers=None):
        params = params or {}
        more = {}
        if self.stateless:
            version = "2026-07-28"
            meta = {"protocolVersion": version, "clientCapabilities": {}}
            params = {**params, "_meta": {f"io.modelcontextprotocol/{key}": value for key, value in meta.items()}}
            more = {"MCP-Protocol-Version": version, "Mcp-Method": method}
            if "name" in params:
                more["Mcp-Name"] = params["name"]
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        who = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return harness.request(self.server.http, "POST", "/mcp", body, {**JSON, **who, **more, **(headers or {})})

    def call(self, tool, **arguments):
        answer = self.send("tools/call", {"name": tool, "arguments": arguments})
        assert answer.status == 200, answer.text
        result = answer.json()["result"]
        return result["isError"], [block["text"] for block in result["content"]]

    def tools(self):
        return {tool["name"] for tool in self.send("tools/list").json()["result"]["tools"]}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mcp")
    secret = pathlib.Path(folder / "admin")
    secret.touch(mode=0o600)
    secret.write_text(ADMIN + "\n")
    server = harness.Server(folder / "data", more=["--admin-token-file", secret])
    server.secret = ADMIN

    class Sender:  # as test_feedback plays
        http, otlp_http = server.http, server.otlp_http

        @staticmethod
        def post(signal, message):
            token = {"Authorization": f"Bearer {server.ingest}", "Content-Type": harness.PROTOBUF}
            return harness.request(server.otlp_http, "POST", harness.PATHS[signal], message.SerializeToString(), token)

        @staticmethod
        def get(path):
            return harness.request(server.http, "GET", path, None, {"Authorization": f"Bearer {ADMIN}"}).json()

    def token(*roles):
        wanted = json.dumps({"name": "-".join(roles), "roles": list(roles), "tenants": ["default"]}).encode()
        made = harness.request(server.http, "POST", "/api/tokens", wanted, {**JSON, "Authorization": f"Bearer {ADMIN}"})
        assert made.status == 200, made.text
        return made.json()["token"]

    server.ingest, server.read, server.operate = token("ingest"), token("read"), token("operate")
    server.sender = Sender
    play(Sender, "train", 40)
    harness.eventually(lambda: confirmed(Sender, "train"), 15, "a confirmed verdict")
    yield server
    server.stop()


@pytest.mark.parametrize("stateless", [False, True])
def test_an_assistant_is_told_what_the_api_says(world, stateless):
    assistant = Assistant(world, world.read, stateless)
    wrong, (sentence, text) = assistant.call("why", job="train")
    why = world.sender.get("/api/jobs/train/why")
    assert not wrong and why["verdicts"][0]["sentence"] in sentence
    told = json.loads(text)
    assert told["verdicts"][0]["culprit"]["rank"] == [SLOW]
    assert told["verdicts"][0]["lost_share"] == why["verdicts"][0]["lost_share"]
    claim = next(one for one in told["verdicts"][0]["chain"] if "/evidence?" in one["query"])
    wrong, (evidence,) = assistant.call("evidence", query=claim["query"])
    assert not wrong and json.loads(evidence) == world.sender.get(claim["query"])
    wrong, texts = assistant.call("evidence", query="/api/jobs/train/steps?last=40", max_bytes=1000)
    assert not wrong and len(texts[0]) <= 1000 and "Cut to fit max_bytes: " in texts[1]


def test_who_may_not_read_is_not_let_in_and_who_may_not_operate_changes_nothing(world):
    assert Assistant(world, "").send("tools/list").status == 401
    assert Assistant(world, world.ingest).send("tools/list").status == 403
    reader, operator = Assistant(world, world.read), Assistant(world, world.operate)
    assert operator.tools() - reader.tools() == {"order_profile", "acknowledge"}
    incident = json.loads(reader.call("incidents")[1][0])["incidents"][0]["id"]
    assert reader.call("acknowledge", incident=incident) == (True, ["acknowledge needs the role operate"])
    wrong, texts = operator.call("acknowledge", incident=incident, note="an assistant looks at it")
    assert not wrong and json.loads(texts[0])["state"] == "acknowledged"
    rows = [row for row in world.sender.get("/api/audit")["audit"] if "acknowledge" in row["action"]]
    assert len(rows) == 1 and incident in rows[0]["object"] and "operate" in rows[0]["who"]


def test_pages_of_other_sites_and_forms_are_refused_and_there_is_no_stream(world):
    assistant = Assistant(world, world.read)
    assert assistant.send("tools/list", headers={"Origin": "http://evil.example"}).status == 403
    for form in ("text/plain", "text/plain;a=, application/json"):
        assert assistant.send("tools/list", headers={"Content-Type": form}).status == 403, form
    assert assistant.send("tools/list", headers={"Content-Type": "text/plain", "X-Lockstep": "1"}).status == 415
    for method in ("GET", "DELETE"):
        answer = harness.request(world.http, method, "/mcp", None, {"Authorization": f"Bearer {world.read}"})
        assert answer.status == 405 and answer.headers["allow"] == "POST"
