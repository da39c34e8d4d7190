"""A step as a Perfetto archive and as one file: asked for over HTTP and by the command line, judged by libprotobuf."""

import io
import json
import subprocess
import tarfile

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.unknown_fields import UnknownFieldSet

import harness
import step_spans

JOB = "llama/70b"
START_NS = 1_790_000_000_000_000_000
OFFSETS_NS = {1: 2_000_000, 2: -3_000_000, 3: 500_000}
BEGIN, END = 1, 2


@pytest.fixture(scope="session")
def trace_type(tmp_path_factory):
    """The Trace message, from our description of it."""
    path = harness.ROOT / "tests" / "system" / "perfetto_subset.proto"
    out = tmp_path_factory.mktemp("proto") / "set"
    protoc = ["protoc", f"--proto_path={path.parent}", f"--descriptor_set_out={out}", path.name]
    subprocess.run(protoc, check=True, timeout=30)
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("lockstep.perfetto.Trace"))


def unknown_fields(message):
    count = len(UnknownFieldSet(message))
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            values = value if field.is_repeated else [value]
            count += sum(unknown_fields(item) for item in values)
    return count


class Read:
    """A trace with its interned strings put back, slices by process and track."""

    def __init__(self, trace_type, data):
        trace = trace_type.FromString(data)
        assert unknown_fields(trace) == 0
        self.first = trace.packet[0]
        self.tracks, self.processes, self.slices, self.snapshots = {}, {}, [], []
        names, keys, texts, categories = {}, {}, {}, {}
        opened = {}
        for packet in trace.packet:
            for table, entries in (
                (categories, packet.interned_data.event_categories),
                (names, packet.interned_data.event_names),
                (keys, packet.interned_data.debug_annotation_names),
                (texts, packet.interned_data.debug_annotation_string_values),
            ):
                for entry in entries:
                    assert entry.iid not in table, "interned twice"
                    table[entry.iid] = entry.name
            if packet.HasField("clock_snapshot"):
                self.snapshots.append(packet.clock_snapshot)
            if packet.HasField("track_descriptor"):
                one = packet.track_descriptor
                self.tracks[one.uuid] = one
                if one.HasField("process"):
                    self.processes[one.uuid] = one.process.process_name
            if not packet.HasField("track_event"):
                continue
            event = packet.track_event
            assert packet.trusted_packet_sequence_id == 1 and packet.sequence_flags & 2
            if event.type == BEGIN:
                track = self.tracks[event.track_uuid]
                notes = {}
                for note in event.debug_annotations:
                    kind = [f for f in ("bool_value", "int_value", "string_value_iid") if note.HasField(f)][0]
                    value = getattr(note, kind)
                    notes[keys[note.name_iid]] = texts[value] if kind == "string_value_iid" else value
                opened.setdefault(event.track_uuid, []).append(
                    {
                        "process": self.processes[track.parent_uuid],
                        "track": track.name,
                        "name": names[event.name_iid],
                        "category": categories[event.category_iids[0]],
                        "start": packet.timestamp,
                        "notes": notes,
                        "flows": list(event.flow_ids),
                    }
                )
            elif event.type == END:
                one = opened[event.track_uuid].pop()
                one["end"] = packet.timestamp
                one["ending_flows"] = list(event.terminating_flow_ids)
                assert one["end"] >= one["start"]
                self.slices.append(one)
        assert not any(opened.values()), "a slice does not end"

    def of(self, process, name):
        return sorted(
            (one for one in self.slices if one["process"] == process and one["name"] == name), key=lambda s: s["start"]
        )


def send_group(server, name, comm_id, ranks):
    """As agents tell a communicator and the framework's group of the same ranks."""
    for place, rank in enumerate(ranks):
        events = [
            {
                "event_name": "comm.init",
                "attributes": {"comm_id": comm_id, "size": len(ranks), "rank_in_comm": place, "nodes": 1, "name": ""},
            },
            {"event_name": "comm.group", "attributes": {"name": name, "ranks": ",".join(map(str, ranks))}},
        ]
        assert server.post("logs", harness.logs_request(harness.identity(JOB, rank, 4), events)).status == 200


@pytest.fixture
def stepped(server):
    step_spans.send_step(server, JOB, 4, 10, START_NS)
    step_spans.send_step(server, JOB, 4, 20, START_NS + 1_000_000_000, OFFSETS_NS)
    return server


def path_of(step, **parameters):
    query = "&".join(f"{key}={value}" for key, value in parameters.items())
    return f"/api/jobs/llama%2F70b/steps/{step}/perfetto" + ("?" + query if query else "")


def fetch(server, step, **parameters):
    answer = harness.request(server.http, "GET", path_of(step, **parameters))
    assert answer.status == 200, answer.text
    return answer


def test_one_file_has_every_rank_on_one_axis_with_arrows_between_them(stepped, trace_type):
    send_group(stepped, "dp", 0x1A, [0, 1, 2, 3])
    answer = fetch(stepped, 20, format="pftrace")
    assert answer.headers["x-lockstep-ranks"] == "4" and answer.headers["x-lockstep-ranks-unknown-clock"] == "0"
    assert 'filename="llama_70b-step-20.pftrace"' in answer.headers["content-disposition"]
    read = Read(trace_type, answer.body)
    assert read.first.sequence_flags == 3
    assert sorted(read.processes.values()) == [f"rank {rank} node-{rank}" for rank in range(4)]
    assert len(read.snapshots) == 1 and read.snapshots[0].primary_trace_clock == 6
    error_ns = int(answer.headers["x-lockstep-clock-error-ns"])
    ends = {}
    for rank in range(4):
        process = f"rank {rank} node-{rank}"
        step = read.of(process, "step 20")[0]
        assert step["track"] == "step" and step["end"] - step["start"] == pytest.approx(100_000_000, abs=1000)
        assert [one["track"] for one in read.of(process, "forward")] == ["phases"]
        collectives = read.of(process, "AllReduce")
        assert {one["track"] for one in collectives} == {"dp 0 0x1a (4 ranks)"}
        assert len(collectives) == 20 and {one["category"] for one in collectives} == {"collective"}
        assert collectives[3]["notes"]["bytes"] == 1 << 20 and collectives[3]["notes"]["queue_ns"] == 1000
        # Rank 1 comes last, so the others have waited a millisecond for it.
        assert collectives[3]["notes"]["wait_ns"] == (0 if rank == 1 else 1_000_000)
        ends[rank] = [one["end"] for one in collectives]
    # Clocks were milliseconds apart; on the job's axis all leave a collective together, within the error that is told.
    assert error_ns < 1_000_000
    for index in range(20):
        moments = [ends[rank][index] for rank in range(4)]
        assert max(moments) - min(moments) <= 2 * error_ns + 1000
    flows = {tuple(read.of(f"rank {rank} node-{rank}", "AllReduce")[3]["flows"]) for rank in range(4)}
    assert len(flows) == 1 and len(flows.pop()) == 1
    sent, received = read.of("rank 0 node-0", "Send")[0], read.of("rank 1 node-1", "Recv")[0]
    assert sent["flows"] == received["ending_flows"] and len(sent["flows"]) == 1
    assert sent["track"].endswith("0x2b (4 ranks)")


def test_an_archive_has_a_file_per_rank_and_the_offsets_of_their_clocks(stepped, trace_type):
    answer = fetch(stepped, 20, ranks="1-3")
    assert answer.headers["content-type"] == "application/x-tar"
    members = {}
    with tarfile.open(fileobj=io.BytesIO(answer.body)) as tar:
        for member in tar:
            assert member.isfile() and member.mode == 0o644
            members[member.name] = tar.extractfile(member).read()
    assert list(members) == ["perfetto_manifest.json", *(f"rank-{rank:04}.pftrace" for rank in (1, 2, 3))]
    assert members["perfetto_manifest.json"].startswith(b'{"perfetto_manifest"')
    manifest = json.loads(members["perfetto_manifest.json"])["perfetto_manifest"]
    assert manifest["version"] == 1
    assert manifest["attributes"]["lockstep.job_id"] == JOB and manifest["attributes"]["lockstep.step"] == 20
    files = {file["path"]: file for file in manifest["files"]}
    assert files["rank-0001.pftrace"] == {"path": "rank-0001.pftrace", "machine": {"name": "rank 1 node-1"}}
    for rank in (2, 3):
        clocks = files[f"rank-{rank:04}.pftrace"]["clocks"]
        assert clocks["clock"] == "BOOTTIME"
        assert clocks["sync_to"] == {"file": "rank-0001.pftrace", "clock": "BOOTTIME"}
        # Its clock reads T when the first file's reads T + offset.
        assert clocks["offset_ns"] == pytest.approx(OFFSETS_NS[1] - OFFSETS_NS[rank], abs=200_000)
        read = Read(trace_type, members[f"rank-{rank:04}.pftrace"])
        process = f"rank {rank} node-{rank}"
        assert list(read.processes.values()) == [process]
        start = START_NS + 1_000_000_000 + OFFSETS_NS[rank]
        assert read.of(process, "step 20")[0]["start"] == start, "on its own clock"
        assert read.snapshots == []
    assert len(Read(trace_type, members["rank-0001.pftrace"]).snapshots) == 1


def test_what_cannot_be_answered_is_one_line_that_says_what_can(stepped):
    for path, status, part in (
        (path_of(12), 404, "no detail of step 12; steps with detail: 20, 10"),
        (path_of(20, ranks="9"), 404, "ranks with detail: 0-3"),
        (path_of("soon"), 400, "latest"),
        (path_of(-1), 400, "whole number"),
        (path_of(20, ranks="a-b"), 400, "ranks"),
        (path_of(20, ranks="0-4000000000"), 400, "ranks"),
        (path_of(20, format="json"), 400, "tar, pftrace"),
        (path_of(20, rank="0"), 400, "known: ranks, format"),
        ("/api/jobs/lama%2F70b/steps/20/perfetto", 404, "did you mean"),
    ):
        answer = harness.request(stepped.http, "GET", path)
        assert answer.status == status, (path, answer.text)
        line = answer.json()["error"]
        assert part in line and "\n" not in line, line


def test_the_command_line_writes_the_newest_step_and_says_how_to_open_it(stepped, tmp_path, trace_type):
    run = ["trace", JOB, "--server", stepped.url]
    done = subprocess.run(
        [str(harness.BIN / "lockstep"), *run], cwd=tmp_path, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0 and done.stderr == "", done
    assert done.stdout.count("\n") == 1
    for part in ("llama_70b-step-20.tar: step 20 of llama/70b, 4 ranks", "clocks aligned to within", "Perfetto UI"):
        assert part in done.stdout, done.stdout
    assert tarfile.is_tarfile(tmp_path / "llama_70b-step-20.tar")

    out = tmp_path / "one.pftrace"
    done = harness.lockstep(*run, "--step", 10, "--ranks", "0,2", "-o", out)
    assert done.returncode == 0, done
    assert sorted(Read(trace_type, out.read_bytes()).processes.values()) == ["rank 0 node-0", "rank 2 node-2"]

    done = harness.lockstep(*run, "--step", 12)
    assert done.returncode == 4 and done.stdout == ""
    assert done.stderr.strip() == "lockstep trace: no detail of step 12; steps with detail: 20, 10"
    done = harness.lockstep(*run, "-o", tmp_path / "no" / "such" / "folder.tar")
    assert done.returncode == 5 and "folder.tar" in done.stderr and done.stderr.count("\n") == 1
    done = harness.lockstep(*run, "--format", "zip")
    assert done.returncode == 2 and "tar or pftrace" in done.stderr


def test_a_job_without_detail_says_so(server):
    server.post("logs", harness.logs_request(harness.identity("plain", 0, 1), [harness.step_event(1)]))
    done = harness.lockstep("trace", "plain", "--server", server.url)
    assert done.returncode == 4 and "in detail" in done.stderr and done.stderr.count("\n") == 1
