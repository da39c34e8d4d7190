"""The official client of the Model Context Protocol against a real server, with and without a handshake. Run by ./dev test mcp,
which installs it."""

import asyncio
import json

import harness
import mcp
import pytest

from test_feedback import SLOW, confirmed, play

MODES = {"auto": "2026-07-28", "legacy": "2025-11-25"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    one = harness.Server(tmp_path_factory.mktemp("mcp") / "data")
    play(one, "train", 40)
    harness.eventually(lambda: confirmed(one, "train"), 15, "a confirmed verdict")
    yield one
    one.stop()


@pytest.mark.parametrize("mode", MODES)
def test_the_official_client_agrees_on_a_version_and_uses_every_tool(server, mode):
    async def talk():
        async with mcp.Client(server.url + "/mcp", mode=mode) as client:
            assert client.protocol_version == MODES[mode]
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert {"jobs", "why", "evidence", "step", "query", "node", "profile", "logs", "incidents"} == set(tools)
            assert all(tool.annotations.read_only_hint for tool in tools.values())
            assert tools["why"].input_schema["required"] == ["job"]
            said = await client.call_tool("why", {"job": "train"})
            assert not said.is_error and "ank 5" in said.content[0].text
            why = json.loads(said.content[1].text)
            assert why["verdicts"][0]["culprit"]["rank"] == [SLOW]
            claim = next(one for one in why["verdicts"][0]["chain"] if "/evidence?" in one["query"])
            for tool, arguments in (
                ("jobs", {}), ("evidence", {"query": claim["query"]}), ("query", {"query": "vector(1)"}),
                ("profile", {"job": "train"}), ("incidents", {"limit": 5}), ("logs", {"severity": "warn"}),
            ):  # fmt: skip
                answer = await client.call_tool(tool, arguments)
                assert not answer.is_error, (tool, answer.content)
                json.loads(answer.content[0].text)
            for tool, arguments in (("node", {"host": "nowhere"}), ("why", {"job": "none"}), ("jobs", {"limit": 0})):
                answer = await client.call_tool(tool, arguments)
                assert answer.is_error and answer.content[0].text.count("\n") == 0, tool
            with pytest.raises(Exception, match="there is no tool"):
                await client.call_tool("remove_everything", {})

    asyncio.run(talk())
