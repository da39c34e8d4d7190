"""Real switches and a real probe report to a real server while traffic of ours runs; what the server says is compared with what the
switches counted themselves.

Leaf 1 and leaf 2 are bridges of Open vSwitch, joined by one spine; a host on each leaf. sFlow comes from all three, IPFIX from leaf 1, and
softflowd watches the port of host 1. The ports of sFlow's agent addresses are those of three addresses of the loopback interface.
"""

import math
import pathlib
import subprocess

import harness
from fabric_world import run, wait_until

TRAFFIC = pathlib.Path(__file__).with_name("traffic.py")
SAMPLING = 10
AGENTS = {"leaf1": "127.1.0.1", "spine1": "127.1.0.2", "leaf2": "127.1.0.3"}
PYTHON = "/usr/bin/python3"


def two_tiers(fabric):
    for name, address in AGENTS.items():
        fabric.add_bridge(name)
        # The agent's address is that of an interface.
        run("ip", "link", "add", f"{name}-id", "type", "veth", "peer", "name", f"{name}-id2")
        run("ip", "address", "add", f"{address}/32", "dev", f"{name}-id")
        run("ip", "link", "set", f"{name}-id", "up")
    fabric.connect("leaf1", "spine1")
    fabric.connect("leaf2", "spine1")
    return fabric.add_host("h1", "leaf1", "10.9.0.1/24"), fabric.add_host("h2", "leaf2", "10.9.0.2/24")


def query(server, text):
    found = server.get("/prometheus/api/v1/query", query=text)["data"]["result"]
    return {
        (one["metric"]["switch"], one["metric"].get("port"), one["metric"].get("direction")): float(one["value"][1])
        for one in found
    }


def send_tcp(source, target, address, total):
    """Returns the port that it was sent from."""
    listener = target.start(PYTHON, TRAFFIC, "server", 5001, stdout=subprocess.PIPE, text=True)
    assert listener.stdout.readline() == "listening\n"
    port = int(source.run(PYTHON, TRAFFIC, "client", address, 5001, total))
    assert int(listener.communicate(timeout=30)[0]) == total
    return port


def counter(server, name, **labels):
    return server.counters().total(name, **labels)


def test_what_switches_report_is_what_they_carried(fabric, start, tmp_path):
    h1, h2 = two_tiers(fabric)
    names = [f"--flow-switch={address}={name}" for name, address in AGENTS.items()] + ["--flow-switch=127.0.0.1/7=leaf1-ipfix"]
    server = start(
        harness.Server, tmp_path / "data", more=["--sflow-listen", "127.0.0.1:0", "--ipfix-listen", "127.0.0.1:0", *names]
    )
    for name in AGENTS:
        fabric.export_sflow(name, server.ready["sflow"], sampling=SAMPLING, polling=1, agent=f"{name}-id")
    fabric.export_ipfix("leaf1", server.ready["ipfix"], sampling=SAMPLING, domain=7)
    probe = subprocess.Popen(
        ["softflowd", "-i", "h1", "-d", "-v", "9", "-n", server.ready["ipfix"], "-t", "maxlife=2", "-t", "tcp=1", "-t", "udp=1",
         "-t", "general=1", "-t", "expint=1", "-p", tmp_path / "softflowd.pid", "-c", tmp_path / "softflowd.ctl"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: counter(server, "lockstep_flow_samples_total", receiver="sflow", what="ports") > 0, "counters of ports")
        total = 20_000_000
        source_port = send_tcp(h1, h2, "10.9.0.2", total)
        out_ports = {"leaf1": "leaf1-spine1", "spine1": "spine1-leaf2", "leaf2": "h2"}
        before = {name: fabric.counters(port)["tx_packets"] for name, port in out_ports.items()}
        h1.run(PYTHON, TRAFFIC, "udp", "10.9.0.2", 4791, 4000)

        # Flows: the path is the one that the packets took, at every switch, and the bytes are about right.
        def flows():
            found = server.get("/api/fabric/flows", src="10.9.0.1", dst="10.9.0.2", limit=1000)["flows"]
            return {(one["switch"], one["src_port"], one["dst_port"]): one for one in found if one["samples"] > 0}

        tcp, roce = (source_port, 5001), (49200, 4791)
        wait_until(lambda: all((name, *roce) in flows() for name in AGENTS), "RoCE seen at every switch")
        seen = flows()
        path = {name: (seen[name, *tcp]["in_port"], seen[name, *tcp]["out_port"]) for name in AGENTS}
        assert path == {"leaf1": ("h1", "leaf1-spine1"), "spine1": ("spine1-leaf1", "spine1-leaf2"), "leaf2": ("leaf2-spine1", "h2")}
        assert {seen[name, *roce]["queue_pair"] for name in AGENTS} == {0x1234}
        for name, port in out_ports.items():
            sent = fabric.counters(port)["tx_packets"] - before[name]  # a busy machine drops some on the way

            def is_close():
                one = flows()[name, *roce]
                return abs(one["packets"] / sent - 1) < 4 / math.sqrt(one["samples"])

            wait_until(is_close, f"{sent} packets at {name}, estimated {flows()[name, *roce]['packets']}")
            flow = flows()[name, *roce]
            marked = flow["ecn_marked_packets"] / flow["packets"]
            assert abs(marked - 0.25) < 4 * math.sqrt(0.25 * 0.75 / flow["samples"]), flow

        # Counters are the switch's own, to the byte once it is quiet.
        def agrees(name, port, direction, key):
            own = fabric.counters(port)
            return query(server, f'lockstep_port_bytes_total{{switch="{name}"}}').get((name, port, direction)) == own[key]

        for name, port in (("leaf1", "h1"), ("spine1", "spine1-leaf2"), ("leaf2", "h2")):
            wait_until(lambda: agrees(name, port, "in", "rx_bytes") and agrees(name, port, "out", "tx_bytes"),
                       f"bytes of {port} as the switch counts them")

        # Estimates from flows agree with them within sampling error.
        def estimated():
            values = query(server, "lockstep_port_flow_bytes_total")
            return values if ("leaf2", "h2", "out") in values and ("leaf1-ipfix", "leaf1-spine1", "out") in values else None

        def close(switch, port, direction, key, samples):
            value = estimated()
            own = fabric.counters(port)[key]
            return value and abs(value[switch, port, direction] / own - 1) < 5 / math.sqrt(samples)

        samples = total / 1448 / SAMPLING
        for switch, port, direction, key in (
            ("leaf1", "leaf1-spine1", "out", "tx_bytes"),
            ("spine1", "spine1-leaf2", "out", "tx_bytes"),
            ("leaf2", "h2", "out", "tx_bytes"),
            ("leaf1-ipfix", "leaf1-spine1", "out", "tx_bytes"),
        ):
            wait_until(lambda: close(switch, port, direction, key, samples), f"estimated bytes of {switch} {port} {direction}", 30)
        marked = flows()["leaf2", *roce]["ecn_marked_packets"]
        assert query(server, "lockstep_port_ecn_marked_packets_total")["leaf2", "h2", "out"] == marked > 0

        # Another rate from now on, without a word beforehand.
        def both():
            values = estimated()
            return values["leaf2", "h2", "out"], fabric.counters("h2")["tx_bytes"]

        estimate, own = both()
        rate = 4 * SAMPLING
        fabric.export_sflow("leaf2", server.ready["sflow"], sampling=rate, polling=1, agent="leaf2-id")
        send_tcp(h1, h2, "10.9.0.2", total)

        def still_agrees():
            now = both()
            return abs((now[0] - estimate) / (now[1] - own) - 1) < 5 / math.sqrt(total / 1448 / rate)

        wait_until(still_agrees, "estimated bytes of leaf2 h2 out with another sampling rate", 30)

        # softflowd takes every packet: at least what was sent, and with what was sent again no more than the port counted.
        def probed():
            return flows().get(("127.0.0.1", *tcp))

        wait_until(lambda: (one := probed()) and one["bytes"] > total, "softflowd's flow", 30)
        assert total < probed()["bytes"] <= fabric.counters("h1")["rx_bytes"]

        # Nothing is lost unseen.
        for receiver in ("sflow", "ipfix"):
            received = counter(server, "lockstep_flow_datagrams_total", receiver=receiver)
            decoded = counter(server, "lockstep_flow_datagrams_decoded_total", receiver=receiver)
            assert received - decoded < 50, "what is on its way between two counters"
            for name in ("refused_total", "dropped_total"):
                assert counter(server, f"lockstep_flow_datagrams_{name}", receiver=receiver) == 0
            assert counter(server, "lockstep_flow_kernel_drops_total", receiver=receiver) == 0
            assert counter(server, "lockstep_flow_lost_total", receiver=receiver) == 0, server.log()[-2000:]
    finally:
        probe.terminate()
        probe.wait(timeout=10)
    assert server.stop() == 0
