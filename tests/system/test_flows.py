"""Switches report by sFlow and IPFIX: what real exporters sent (tests/data/flows), sent again to a real server."""

import pathlib
import socket
import struct
import subprocess

import pytest

import harness

WAITS_S = 30
CAPTURES = harness.ROOT / "tests" / "data" / "flows"


def captured(name):
    data, at = (CAPTURES / name).read_bytes(), 0
    while at < len(data):
        (size,) = struct.unpack_from("<H", data, at)
        yield data[at + 2 : at + 2 + size]
        at += 2 + size


def send(address, datagrams):
    host, port = address.rsplit(":", 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for datagram in datagrams:
            sender.sendto(datagram, (host, int(port)))


def test_flows_and_ports_of_switches_are_asked_for(start, tmp_path):
    listen = ["--sflow-listen", "127.0.0.1:0", "--ipfix-listen", "127.0.0.1:0", "--ipfix-listen", "127.0.0.1:0"]
    server = start(harness.Server, tmp_path / "data", more=[*listen, "--flow-switch", "127.0.0.1=leaf1", "--flow-switch", "127.0.0.1/1=leaf2"])
    first, second = server.ready["ipfix"].split(",")
    send(server.ready["sflow"], captured("ovs.sflow"))
    send(first, captured("ovs.ipfix"))
    send(second, captured("softflowd.netflow9"))
    send(server.ready["sflow"], [b"\xff" * 1400, b""])

    def flows(**wanted):
        return server.get("/api/fabric/flows", limit=1000, **wanted)["flows"]

    roce = harness.eventually(lambda: [one for one in flows(switch="leaf1") if one["queue_pair"] == 0x1234], WAITS_S, "a flow of RoCE")
    assert roce[0] | {"bytes": 0, "packets": 0, "samples": 0, "first_unix_ns": 0, "last_unix_ns": 0} == {
        "switch": "leaf1", "in_port": "h1", "out_port": "h2", "src": "10.9.0.1", "dst": "10.9.0.2", "src_port": roce[0]["src_port"],
        "dst_port": 4791, "protocol": 17, "queue_pair": 0x1234, "ecn_marked_packets": 0, "vlan": 0, "dscp": 0,
        "bytes": 0, "packets": 0, "samples": 0, "first_unix_ns": 0, "last_unix_ns": 0,
    }  # fmt: skip
    harness.eventually(lambda: [one for one in flows(switch="leaf2", port="h1") if one["dst_port"] == 5001], WAITS_S, "IPFIX of the other domain")
    assert flows(src="10.9.0.0/24", dst="10.9.0.2") and not flows(src="10.8.0.0/24") and not flows(to=1)
    assert harness.request(server.http, "GET", "/api/fabric/flows?src=leaf1").status == 400

    def series(query):
        return server.get("/prometheus/api/v1/query", query=query)["data"]["result"]

    found = harness.eventually(lambda: series('lockstep_port_up{switch="leaf1",port="h1"}'), WAITS_S, "series of a port")
    assert found[0]["value"][1] == "1"
    assert {one["metric"]["direction"] for one in series('lockstep_port_bytes_total{port="h1"}')} == {"in", "out"}

    counted = server.counters()
    assert counted.total("lockstep_flow_datagrams_refused_total", receiver="sflow", reason="malformed") == 2
    assert counted.total("lockstep_flow_lost_total", receiver="sflow", what="datagrams") == 54
    assert server.log().count("is refused") == 1, "at most one line a second"
    assert server.stop() == 0


def test_nothing_listens_unless_it_is_asked_for_and_strangers_are_refused(start, tmp_path):
    server = start(harness.Server, tmp_path / "plain")
    assert "sflow" not in server.ready and "ipfix" not in server.ready
    answer = server.get("/api/fabric/flows")
    assert answer == {"received": False, "flows": [], "total": 0, "shown": 0}
    guarded = start(harness.Server, tmp_path / "guarded", more=["--sflow-listen", "127.0.0.1:0", "--flow-exporters", "10.0.0.0/8"])
    send(guarded.ready["sflow"], captured("ovs.sflow"))
    harness.eventually(lambda: guarded.counters().total("lockstep_flow_datagrams_refused_total", reason="exporter") == 9, WAITS_S, "nine refused datagrams")
    assert guarded.get("/api/fabric/flows")["flows"] == []
    assert pathlib.Path(tmp_path / "guarded.log").read_text().count("not in --flow-exporters") == 1


@pytest.mark.parametrize("option", ["--sflow-listen=nowhere", "--flow-exporters=10.0.0.0/99", "--flow-switch=leaf1"])
def test_an_option_that_is_wrong_is_said_in_one_line(tmp_path, option):
    done = subprocess.run([harness.BIN / "lockstepd", "--data", tmp_path / "data", option], capture_output=True, text=True, timeout=30)
    assert done.returncode != 0
    assert len(done.stderr.strip().splitlines()) == 1 and option.split("=")[0] in done.stderr, done.stderr
