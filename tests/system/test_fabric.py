"""Topology, paths and who depends on what, through a real server: agents' reports by the simulator, cabling by a file."""

import json
import os
import signal
import time

import pytest

import harness
from test_flows import captured, send

# Two hosts of four GPUs, a pod each: rail i of the first is leaf-i, of the second leaf-(4+i). Two spines above them.
SCENARIO = """
name: fabric
steps: 120
topology: {gpus_per_host: 4, hosts_per_leaf: 1}
jobs: [{job: llama, dp: 8, step_ms: 100}]
"""


def topology():
    lines = ["switches:"]
    lines += [f"  - {{name: leaf-{leaf}, tier: leaf}}" for leaf in range(8)]
    lines += ["  - spine-0", "  - spine-1", "hosts:"]
    lines += [f"  - {{name: node-0{host}, nics: [{{device: mlx5_0, address: 10.9.0.{host + 1}}}]}}" for host in range(2)]
    lines += ["storage: [filer]", "links:"]
    lines += [
        f'  - ["leaf-{leaf}:up{spine}", "spine-{spine}:down{leaf}"]' for leaf in range(8) for spine in range(2)
    ]
    lines.append('  - ["node-00:mlx5_0", "leaf-0:Ethernet1/9"]')  # in truth another port
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fabric")
    (folder / "fleet.yaml").write_text(SCENARIO)
    (folder / "cables.yaml").write_text(topology())
    one = harness.Server(folder / "data", more=["--topology", folder / "cables.yaml", "--sflow-listen", "127.0.0.1:0"])
    try:
        played = harness.lockstep("sim", folder / "fleet.yaml", "--server", f"http://{one.otlp_http}", "--speed", 6)
        assert played.returncode == 0, played.stderr
        one.folder = folder
        yield one
    finally:
        one.stop()


def path(server, *arguments):
    return harness.lockstep("path", *arguments, "--server", server.url)


def hops(answer):
    return [(hop["kind"], hop["name"], hop["share"]) for hop in answer["hops"]]


def test_the_way_between_two_ranks_is_the_one_that_is_cabled(server):
    done = path(server, "0", "4", "--job", "llama", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["kind"] == "network" and answer["equal_paths"] == 2, answer
    assert answer["sentence"] == "Over the network, by 1 of 2 equal paths, not observed."
    names = hops(answer)
    assert ("nic", "node-00:mlx5_0", 1) in names and ("nic", "node-01:mlx5_0", 1) in names
    assert ("link", "node-00:mlx5_0 - leaf-0:Ethernet1/1", 1) in names, names
    assert ("link", "leaf-0:up1 - spine-1:down0", 0.5) in names and ("spine", "spine-1", 0.5) in names
    assert ("link", "spine-1:down4 - leaf-4:up1", 0.5) in names and ("leaf", "leaf-4", 1) in names
    by_name = {hop["name"]: hop for hop in answer["hops"]}
    assert by_name["node-00:mlx5_0 - leaf-0:Ethernet1/1"]["known"] == "LLDP"
    assert by_name["spine-1"]["sure"] == "possible" and by_name["leaf-0"]["known"] == "LLDP and file"
    assert any(value["meaning"] == "load" for value in by_name["node-00:mlx5_0"]["state"]), by_name["node-00:mlx5_0"]

    shown = path(server, "node-00:gpu0", "node-01:gpu0")
    assert shown.returncode == 0 and "50.0 % spine   spine-1" in shown.stdout, shown.stdout
    assert "note: 2 equal paths, none observed" in shown.stdout

    within = json.loads(path(server, "node-00:gpu0", "node-00:gpu3", "--json").stdout)
    assert within["kind"] == "nvlink", within


def test_a_name_that_is_not_there_is_one_clear_line(server):
    for arguments, code, line in [
        (("0", "9", "--job", "llama"), 4, "lockstep path: job llama has no rank 9 (8 ranks)\n"),
        (("0", "1", "--job", "lama"), 4, 'lockstep path: no job "lama". Did you mean llama?\n'),
        (("node-00:gpu9", "node-00:gpu1"), 4, 'lockstep path: node-00 has no "gpu9"\n'),
        (("0",), 2, "lockstep path: two ends are needed, A and B (1 given)\n"),
        (("0", "1", "--at", "soon"), 2, 'lockstep path: --at: "soon" is no moment (now, -2h, unix seconds, 2026-11-15T22:00:00Z)\n'),
    ]:
        done = path(server, *arguments)
        assert (done.returncode, done.stderr) == (code, line), arguments


def test_file_and_fabric_are_compared_and_the_file_is_read_again(server):
    shown = harness.lockstep("fabric", "--server", server.url)
    assert shown.returncode == 0, shown.stderr
    assert "other_port    node-00:mlx5_0" in shown.stdout and "leaf-0:Ethernet1/9" in shown.stdout, shown.stdout
    (server.folder / "cables.yaml").write_text(topology().replace("Ethernet1/9", "Ethernet1/1"))
    os.kill(server.pid, signal.SIGHUP)

    def differences():
        return [one["kind"] for one in server.get("/api/fabric")["differences"]]

    harness.eventually(lambda: "other_port" not in differences(), 10, "the file is not read again")
    (server.folder / "cables.yaml").write_text("switches: [a, a]\n")
    os.kill(server.pid, signal.SIGHUP)
    harness.eventually(lambda: "cables.yaml:1: a is there twice" in server.log(), 10, "the mistake is not told")
    assert server.get("/api/fabric")["nodes"]["leaf"] == 8, "what was declared before still is"


def test_the_graph_leads_from_a_job_to_its_leaf_and_back(server):
    graph = server.get("/api/graph", focus="rank:llama/0", depth=3)
    assert graph["nodes"][0]["id"] == "rank:llama/0"
    edges = {(edge["from"].split(":")[0], edge["kind"], edge["to"].split(":")[0]) for edge in graph["edges"]}
    assert {("rank", "member-of", "job"), ("rank", "runs-on", "gpu"), ("nic", "carries", "leaf")} <= edges, edges
    affected = harness.lockstep("fabric", "--affected", "link:leaf-0:up1", "--server", server.url)
    assert affected.returncode == 0, affected.stderr
    assert "1 of 8 ranks, 50.0 % of their traffic  (0)" in affected.stdout, affected.stdout


def test_flows_of_a_job_are_those_between_its_ranks(server):
    # As a switch saw them: between 10.9.0.1 and 10.9.0.2, RoCEv2 to queue pair 0x1234 among them.
    send(server.ready["sflow"], captured("ovs.sflow"))

    def flows():
        return server.get("/api/fabric/flows", job="llama", queue_pair=0x1234)["flows"]

    harness.eventually(flows, 20, "no flow of the job")
    flow = flows()[0]
    assert flow["src_end"] == {
        "kind": "nic", "name": "node-00:mlx5_0", "jobs": [{"job_id": "llama", "ranks": [0], "ranks_total": 1}],
    }  # fmt: skip
    assert flow["dst_end"]["name"] == "node-01:mlx5_0" and flow["dst_end"]["jobs"][0]["ranks"] == [4]
    shown = harness.lockstep("fabric", "--flows", "llama", "--server", server.url)
    assert shown.returncode == 0, shown.stderr
    assert "rank 0 (node-00:mlx5_0) -> rank 4 (node-01:mlx5_0)" in shown.stdout and "queue pair 4660" in shown.stdout, shown.stdout
    nobody = harness.lockstep("fabric", "--flows", "lama", "--server", server.url)
    assert (nobody.returncode, nobody.stderr) == (4, 'lockstep fabric: no job "lama". Did you mean llama?\n')


def test_a_job_depends_on_the_storage_that_its_hosts_mount(server):
    mount = [{"key": key, "value": {"stringValue": value}} for key, value in (("mount", "filer.dc1:/data"), ("op", "read"))]
    point = {"attributes": mount, "asInt": "7", "timeUnixNano": str(time.time_ns())}
    resource = {"attributes": [{"key": "host.name", "value": {"stringValue": "node-01"}}]}
    counted = {
        "name": "lockstep_storage_operations_total",
        "sum": {"aggregationTemporality": 2, "isMonotonic": True, "dataPoints": [point]},
    }
    body = {"resourceMetrics": [{"resource": resource, "scopeMetrics": [{"metrics": [counted]}]}]}
    answer = harness.request(
        server.otlp_http, "POST", "/v1/metrics", body=json.dumps(body), headers={"Content-Type": "application/json"}
    )
    assert answer.status == 200, answer.body

    def hit():
        return [(job["job_id"], job["first_ranks"]) for job in server.get("/api/fabric/affected", component="storage:filer")["jobs"]]

    harness.eventually(lambda: hit() == [("llama", [4, 5, 6, 7])], 20, "nobody depends on it")
    graph = server.get("/api/graph", focus="storage:filer", depth=1)
    assert [(edge["from"], edge["kind"], edge["label"]) for edge in graph["edges"]] == [("host:node-01", "mounts", "/data")], graph


def test_a_topology_file_that_is_wrong_stops_the_start_with_its_line(tmp_path):
    (tmp_path / "bad.yaml").write_text("switches:\n  - {name: a, tier: top}\n")
    with pytest.raises(RuntimeError, match="bad.yaml:2: tier: leaf, spine or switch"):
        harness.Server(tmp_path / "data", more=["--topology", tmp_path / "bad.yaml"])
