"""Kernel traces with a known truth through `lockstep analyze` and `lockstep diff`: the culprit, its kernel, the reason, the clocks."""

import gzip
import json
import os
import subprocess
import sys
import threading

import pytest

import harness
import nsys_export
from test_perfetto import Read, trace_type  # noqa: F401 (a fixture)

MAKE = harness.ROOT / "bench" / "analyze" / "make_traces.py"


def made(folder, *options):
    subprocess.run([sys.executable, MAKE, folder, "--ranks", "4", "--steps", "4", "--layers", "4", *options], check=True, stdout=subprocess.DEVNULL)
    return folder


def analyzed(folder, *options, code=0):
    done = harness.lockstep("analyze", folder, "--json", *options)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    return made(tmp_path_factory.mktemp("healthy"), "--offset-us", "800", "--drift-ppm", "30")


@pytest.mark.parametrize(
    "kind, reason, kernel",
    [
        ("precision", "higher_precision", "ampere_sgemm_128x64_tn"),
        ("unaligned", "unaligned_shapes", "align1"),
        ("copies", "extra_copies", "direct_copy_kernel"),
        ("slow", "slower_kernel", "nvjet_tst"),
        ("clocks", "all_kernels_slower", "nvjet_tst"),
        ("loader", "data_loading", ""),
    ],
)
def test_the_slow_rank_its_kernel_and_the_reason_are_named(tmp_path, kind, reason, kernel):
    answer = analyzed(made(tmp_path, "--offset-us", "800", "--drift-ppm", "30", "--fault", f"2:{kind}"), code=1)
    verdict = answer["verdict"]
    assert verdict["ranks"] == [2], verdict["sentence"]
    assert verdict["reason"] == reason, verdict["sentence"]
    assert kernel in verdict.get("kernel", ""), verdict["sentence"]


def test_a_trace_may_come_through_a_pipe(healthy, tmp_path):
    traces = sorted(path for path in healthy.iterdir() if ".json" in path.name)
    content = traces[0].read_bytes()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(content))
    writer.start()
    done = harness.lockstep("analyze", pipe, "--json")
    writer.join()
    from_file = harness.lockstep("analyze", traces[0], "--json")
    assert done.returncode == from_file.returncode, done.stderr
    assert json.loads(done.stdout)["ranks"][0]["rank"] == json.loads(from_file.stdout)["ranks"][0]["rank"]


def test_of_equal_ranks_none_is_named_and_their_clocks_are_found(healthy):
    answer = analyzed(healthy)
    assert answer["verdict"]["ranks"] == []
    truth = {one["rank"]: one for one in json.loads((healthy / "truth.txt").read_text())["clocks"]}
    clocks = {rank["rank"]: rank["clock"] for rank in answer["ranks"]}
    for rank, clock in clocks.items():
        offset = clock["offset_us"] - clocks[0]["offset_us"]
        assert abs(offset - truth[rank]["offset_us"]) < 10 + clock["error_us"], rank


def test_cuda_graphs_and_traces_on_demand_are_read(tmp_path):
    answer = analyzed(made(tmp_path, "--graphs", "--on-demand", "--no-seq", "--fault", "1:slow:3"), code=1)
    assert answer["verdict"]["ranks"] == [1], answer["verdict"]["sentence"]
    first = answer["ranks"][0]
    assert first["steps"] == {**first["steps"], "count": 4, "marks": "optimizer"}
    assert first["graph_kernels"] > first["graph_launches"] > 0
    assert answer["collectives"]["by_order"] == answer["collectives"]["matched"] == 16


def test_an_export_of_nsight_systems_says_the_same_of_all_ranks_in_it(tmp_path):
    traces = made(tmp_path / "traces", "--fault", "2:precision")
    nsys_export.export([traces / f"rank-{rank}.json.gz" for rank in range(4)], tmp_path / "report.sqlite")
    answer = analyzed(tmp_path / "report.sqlite", code=1)
    assert [rank["rank"] for rank in answer["ranks"]] == [0, 1, 2, 3]
    assert answer["verdict"]["ranks"] == [2], answer["verdict"]["sentence"]
    assert answer["verdict"]["reason"] == "higher_precision", answer["verdict"]["sentence"]
    kineto = analyzed(traces, code=1)
    for ours, theirs in zip(answer["ranks"], kineto["ranks"], strict=True):
        assert ours["time"]["compute_us"] == pytest.approx(theirs["time"]["compute_us"], rel=0.001)
        assert ours["steps"]["median_us"] == pytest.approx(theirs["steps"]["median_us"], rel=0.001)
    (tmp_path / "no.sqlite").write_bytes(b"SQLite format 3\0" + bytes(2000))
    refused = harness.lockstep("analyze", tmp_path / "no.sqlite")
    assert refused.returncode == 5 and "no export of Nsight Systems" in refused.stderr, refused.stderr


def test_a_broken_file_costs_what_is_broken(healthy, tmp_path):
    text = gzip.decompress((healthy / "rank-1.json.gz").read_bytes()).decode()
    (tmp_path / "rank-0.json").write_text(text.replace('"name": "aten::gelu"', '"name": "aten::"gelu""', 1))
    (tmp_path / "rank-1.json.gz").write_bytes(gzip.compress(text.encode())[:-4000])
    (tmp_path / "rank-2.json").write_text("no trace")
    done = harness.lockstep("analyze", tmp_path, "--json")
    answer = json.loads(done.stdout)
    read = {rank["file"].split("/")[-1]: rank["read"] for rank in answer["ranks"]}
    assert read["rank-0.json"]["bad"] == 1 and not read["rank-0.json"]["truncated"]
    assert read["rank-1.json.gz"]["truncated"]
    assert any("is not a JSON trace" in note for note in answer["notes"])
    assert harness.lockstep("analyze", tmp_path / "rank-2.json").returncode == 5
    assert harness.lockstep("analyze", tmp_path / "nowhere").returncode == 4


def test_diff_holds_a_gate(healthy, tmp_path):
    slower = made(tmp_path / "slower", "--fault", "0:slow:1.2")
    assert harness.lockstep("diff", healthy, healthy, "--gate", "3%").returncode == 0
    assert harness.lockstep("diff", slower, healthy, "--gate", "3%").returncode == 0  # faster passes
    done = harness.lockstep("diff", healthy, slower, "--gate", "3%")
    assert done.returncode == 1 and "slower" in done.stdout and "the gate is 3 %" in done.stderr
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    unset = harness.lockstep("diff", healthy, slower, "--gate", "")
    assert unset.returncode == 2 and unset.stderr == 'lockstep diff: --gate is a percentage such as 3%, not ""\n'
    other = made(tmp_path / "other", "--device", "NVIDIA A100-SXM4-80GB", "--tokens", "8192")
    done = harness.lockstep("diff", healthy, other, "--gate", "3%")
    assert done.returncode == 6 and "not comparable: other GPUs" in done.stderr
    forced = harness.lockstep("diff", healthy, other, "--gate", "3%", "--force", "--json")
    assert forced.returncode == 1 and "compared all the same" in forced.stderr, forced.stderr
    answer = json.loads(forced.stdout)
    assert any("2.00 times the work" in why for why in answer["not_comparable"]), answer["not_comparable"]
    gemm = next(kernel for kernel in answer["kernels"] if kernel["name"].startswith("nvjet_tst"))
    assert {shape["shape"] for shape in gemm["shapes"]} == {"[[4096, 4096], [4096, 4096]]", "[[8192, 4096], [4096, 4096]]"}
    assert harness.lockstep("diff", healthy, tmp_path / "nowhere").returncode == 4
    # What was kept under a name says the same as the traces that it was made of.
    kept = ["--baselines", tmp_path / "kept"]
    assert harness.lockstep("baseline", "list", *kept).returncode == 4
    assert harness.lockstep("baseline", "save", "main", healthy, *kept).returncode == 0
    assert harness.lockstep("baseline", "save", "../main", healthy, *kept).returncode == 2
    assert harness.lockstep("diff", "baseline:main", healthy, "--gate", "3%", *kept).returncode == 0
    assert harness.lockstep("diff", "baseline:main", slower, "--gate", "3%", *kept).returncode == 1
    by_name = harness.lockstep("diff", "baseline:main", other, "--json", *kept)
    assert by_name.returncode == 6 and json.loads(by_name.stdout) == json.loads(harness.lockstep("diff", healthy, other, "--json").stdout)
    compared = analyzed(slower, "--compare", "baseline:main", *kept, code=1)["comparison"]
    assert compared == analyzed(slower, "--compare", healthy, code=1)["comparison"]
    assert harness.lockstep("analyze", slower, "--compare", "baseline:none", *kept).returncode == 4
    two = harness.lockstep("analyze", slower, "--compare", "baseline:main", "--compare", healthy, *kept)
    assert two.returncode == 2 and "baseline:main is a run by itself" in two.stderr, two.stderr
    assert harness.lockstep("diff", "baseline:none", healthy, *kept).returncode == 4
    assert harness.lockstep("diff", "baseline:../kept/main", healthy, *kept).returncode == 2
    (tmp_path / "empty.json").write_text('{"traceEvents": []}')
    for force in ([], ["--force"]):
        nothing = harness.lockstep("diff", "baseline:main", tmp_path / "empty.json", "--gate", "3%", *force, *kept)
        assert nothing.returncode == 6 and "nothing ran in the traces of the second run" in nothing.stderr, nothing.stderr
    assert harness.lockstep("baseline", "save", "empty", tmp_path / "empty.json", *kept).returncode == 5
    (tmp_path / "kept" / "cut.baseline").write_bytes((tmp_path / "kept" / "main.baseline").read_bytes()[:-300])
    listed = harness.lockstep("baseline", "list", *kept)
    assert listed.returncode == 5 and "main" in listed.stdout and listed.stderr.count("\n") == 1 and "no baseline" in listed.stderr
    assert harness.lockstep("diff", "baseline:cut", healthy, *kept).returncode == 5
    assert harness.lockstep("baseline", "delete", "main", *kept).returncode == 0
    assert harness.lockstep("baseline", "delete", "main", *kept).returncode == 4


def test_tables_fit_a_terminal_and_the_perfetto_file_reads_back(healthy, tmp_path, trace_type):  # noqa: F811
    file = tmp_path / "all.pftrace"
    done = harness.lockstep("analyze", healthy, "--perfetto", file)
    assert done.returncode == 0, done.stderr
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    trace = Read(trace_type, file.read_bytes())
    assert sorted(trace.processes.values()) == [f"rank {rank} node-0" for rank in range(4)]
    collectives = [one for one in trace.slices if one["name"].startswith("ncclDevKernel")]
    assert len(collectives) == 4 * 16 and all(one["flows"] for one in collectives)
    by_flow = {}
    for one in collectives:
        by_flow.setdefault(one["flows"][0], []).append(one["end"])
    assert all(max(ends) - min(ends) < 20_000 for ends in by_flow.values()), "ends of a collective lie apart"
