"""Bad input: one clear line for whoever sent it, a counter, and the service goes on."""

import gzip
import random
import struct
import urllib.parse

import grpc
import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

import harness

INVALID_ARGUMENT = 3
HOUR_NS = 3_600_000_000_000
BODY_BYTES_MAX = 32 << 20
UNDECODABLE = "lockstep_ingest_undecodable_requests_total"
REFUSED = "lockstep_ingest_refused_records_total"


def one_line(text):
    """A sentence for people: not empty, one line, printable, not a page."""
    line = text.removesuffix("\n")
    assert line and "\n" not in line and line.isprintable() and len(line) < 500, repr(text)
    return line


def status_line(answer):
    """The message of an error body: google.rpc.Status in the request's own encoding."""
    if answer.headers["content-type"] == "application/json":
        body = answer.json()
        assert body["code"] == INVALID_ARGUMENT
        return one_line(body["message"])
    assert answer.headers["content-type"] == harness.PROTOBUF
    body = Status.FromString(answer.body)
    assert body.code == INVALID_ARGUMENT
    return one_line(body.message)


@pytest.fixture
def goes_on(server):
    """After the test (and whenever called), a good request works and is found again."""
    count = 0

    def check():
        nonlocal count
        count += 1
        answer = server.post("logs", harness.logs_request({"service.name": "good"}, [{"body": f"good {count}"}]))
        assert answer.status == 200 and answer.body == b""
        assert server.get("/api/logs", service="good", limit=1)["logs"][0]["body"] == f"good {count}"

    yield check
    check()


def good_logs():
    return harness.logs_request(harness.identity("job", 0, 1), [harness.step_event(1), {"body": "text"}])


def varint(number):
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number, content):
    """A length-delimited protobuf field."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def nested_body(depth):
    """A log request whose body is an array in an array in an array ..."""
    value = field(1, b"x")  # AnyValue.string_value
    for _ in range(depth):
        value = field(5, field(1, value))  # AnyValue.array_value, ArrayValue.values
    return field(1, field(2, field(2, field(5, value))))  # resource_logs, scope_logs, log_records, body


def zstd_of_zeros(size):
    """A zstd frame of nothing but run-length blocks: 4 bytes for each 128 KiB of zeros."""
    block = 128 << 10
    count = size // block
    frame = bytes([0x28, 0xB5, 0x2F, 0xFD, 0x00, 0x50])  # magic, no content size, a window of 1 MiB
    for index in range(count):
        frame += struct.pack("<I", int(index == count - 1) | 1 << 1 | block << 3)[:3] + b"\0"
    return frame


# OTLP/HTTP: what cannot be decoded


def test_a_truncated_request_is_refused_wherever_it_is_cut(server, goes_on):
    whole = good_logs().SerializeToString()
    cuts = range(1, len(whole), max(1, len(whole) // 60))
    for cut in cuts:
        answer = server.post("logs", whole[:cut])
        assert answer.status == 400, f"cut at {cut} of {len(whole)}"
        status_line(answer)
    assert server.counters().total(UNDECODABLE, receiver="otlp_http", reason="protobuf") == len(cuts)
    assert server.get("/api/jobs")["total"] == 0, "nothing of a refused request is kept"


def test_random_bytes_never_hurt(server, goes_on):
    source = random.Random(7)
    refused = 0
    for round_number in range(60):
        body = source.randbytes(source.choice([1, 7, 100, 5000]))
        for signal in harness.PATHS:
            answer = server.post(signal, body)
            assert answer.status in (200, 400)  # a few bytes may be an unknown field, which protobuf passes over
            if answer.status == 400:
                status_line(answer)
                refused += 1
    assert refused > 100
    assert server.counters().total(UNDECODABLE, reason="protobuf") == refused


def test_damaged_requests_never_hurt(server, goes_on):
    source = random.Random(8)
    whole = good_logs().SerializeToString()
    for _ in range(200):
        body = bytearray(whole)
        for _ in range(source.randint(1, 4)):
            body[source.randrange(len(body))] = source.randrange(256)
        assert server.post("logs", bytes(body)).status in (200, 400)


def test_a_value_nested_ten_thousand_deep_is_refused(server, goes_on):
    assert server.post("logs", nested_body(20)).status == 200, "what is reasonable is taken"
    answer = server.post("logs", nested_body(10_000))
    assert answer.status == 400 and "nested too deeply" in status_line(answer)

    deep = '{"arrayValue":{"values":[' * 3000 + '{"intValue":"1"}' + "]}}" * 3000
    answer = server.post(
        "logs",
        b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":' + deep.encode() + b"}]}]}]}",
        "application/json",
    )
    assert answer.status == 400
    status_line(answer)
    answer = server.post("logs", b"[" * 1_000_000, "application/json")
    assert answer.status == 400
    status_line(answer)
    counters = server.counters()
    assert counters.total(UNDECODABLE, reason="protobuf") == 1 and counters.total(UNDECODABLE, reason="json") == 2


@pytest.mark.parametrize(
    "signal, body",
    [
        ("logs", b"\x0a\x00" * 200_000),
        ("metrics", b"\x0a\x00" * 200_000),
        ("spans", b"\x0a\x00" * 200_000),
        ("metrics", field(1, field(2, b"\x12\x00" * 200_000))),
        ("logs", field(1, b"\x12\x00" * 200_000)),
        ("logs", field(1, field(1, b"\x0a\x00" * 200_000))),
    ],
    ids=["resource logs", "resource metrics", "resource spans", "metrics", "scopes", "resource attributes"],
)
def test_many_empty_pieces_are_read_in_no_time(server, goes_on, signal, body):
    answer = harness.request(
        server.otlp_http, "POST", harness.PATHS[signal], body, {"Content-Type": harness.PROTOBUF}, timeout=8
    )
    assert answer.status in (200, 400)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'{"resourceLogs": 7}',
        b'{"resourceLogs": [{"scopeLogs": "x"}]}',
        b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"traceId":"xyz"}]}]}]}',
        b"\xff\xfe{}",
    ],
)
def test_json_that_is_none_or_of_the_wrong_shape_is_refused(server, goes_on, body):
    answer = server.post("logs", body, "application/json")
    assert answer.status == 400
    status_line(answer)
    assert server.counters().total(UNDECODABLE, receiver="otlp_http", reason="json") == 1


@pytest.mark.parametrize(
    "encoding, bomb", [("gzip", lambda: gzip.compress(b"\0" * (80 << 20))), ("zstd", lambda: zstd_of_zeros(80 << 20))]
)
def test_a_small_body_that_becomes_a_huge_one_is_refused(server, goes_on, encoding, bomb):
    body = bomb()
    assert len(body) < 200_000
    answer = server.post("logs", body, headers={"Content-Encoding": encoding})
    assert answer.status == 413 and str(BODY_BYTES_MAX) in one_line(answer.text)
    assert server.counters().total(UNDECODABLE, receiver="otlp_http", reason="too_large") == 1


def test_a_request_that_would_take_gigabytes_decoded_is_refused(server, goes_on):
    body = gzip.compress(field(1, field(2, b"\x12\x00" * 8_000_000)), 1)  # eight million empty log records
    assert len(body) < 100_000
    answer = server.post("logs", body, headers={"Content-Encoding": "gzip"})
    assert answer.status == 400 and "too many" in status_line(answer)
    assert server.counters().total(UNDECODABLE, receiver="otlp_http", reason="protobuf") == 1
    with open(f"/proc/{server.pid}/status") as status:
        (peak_kb,) = [int(line.split()[1]) for line in status if line.startswith("VmHWM:")]
    assert peak_kb < 1_200_000


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_body_that_is_not_what_its_encoding_says_is_refused(server, goes_on, encoding):
    for body in (b"not compressed at all", gzip.compress(b"x" * 1000)[:-12], b""):
        answer = server.post("logs", body, headers={"Content-Encoding": encoding})
        assert answer.status == 400, body
        status_line(answer)
    assert server.counters().total(UNDECODABLE, receiver="otlp_http", reason="compression") == 3


def test_a_wrong_encoding_is_refused(server, goes_on):
    answer = server.post("logs", good_logs(), headers={"Content-Encoding": "br"})
    assert answer.status == 415 and "br" in one_line(answer.text)
    assert server.counters().total(UNDECODABLE, receiver="otlp_http", reason="content_encoding") == 1


@pytest.mark.parametrize("content_type", ["text/plain", "application/xml", "", "application/x-protobufs"])
def test_a_wrong_content_type_is_refused(server, goes_on, content_type):
    answer = server.post("logs", good_logs(), content_type)
    assert answer.status == 415 and "application/x-protobuf" in one_line(answer.text)
    assert server.counters().total(UNDECODABLE, receiver="otlp_http", reason="content_type") == 1


# OTLP/HTTP: the envelope


def test_a_body_over_the_limit_is_refused_whether_announced_or_not(server, goes_on):
    head = b"POST /v1/logs HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n"
    answer = harness.raw_request(
        server.otlp_http, [head + b"Content-Length: %d\r\n\r\n" % (BODY_BYTES_MAX + 1), b"\0" * 1000]
    )
    assert answer.status == 413 and str(BODY_BYTES_MAX) in one_line(answer.text)

    mebibyte = b"100000\r\n" + b"\0" * (1 << 20) + b"\r\n"
    answer = harness.raw_request(server.otlp_http, [head + b"Transfer-Encoding: chunked\r\n\r\n"] + [mebibyte] * 40)
    assert answer.status == 413 and str(BODY_BYTES_MAX) in one_line(answer.text)
    assert server.counters().total("lockstep_http_bad_requests_total", receiver="otlp_http", reason="too_large") == 2


def test_what_is_not_http_is_refused(server, goes_on):
    for nonsense in (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 TLS?\r\n\r\n",
        b"HELLO\r\n\r\n",
        b"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n",
    ):
        answer = harness.raw_request(server.otlp_http, [nonsense])
        assert answer.status == 400
        one_line(answer.text)
    answer = harness.raw_request(server.otlp_http, [b"POST /v1/logs HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\n\r\n"])
    assert answer.status == 431
    one_line(answer.text)
    assert server.counters().total("lockstep_http_bad_requests_total", receiver="otlp_http") == 4


def test_a_wrong_method_or_path_is_told_the_right_one(server, goes_on):
    answer = harness.request(server.otlp_http, "GET", "/v1/logs")
    assert answer.status == 405 and answer.headers["allow"] == "POST"
    one_line(answer.text)
    for path in ("/", "/v1/log", "/v2/logs", "/v1/logs/"):
        answer = harness.request(server.otlp_http, "POST", path, b"", {"Content-Type": harness.PROTOBUF})
        assert answer.status == 404 and "/v1/logs" in one_line(answer.text)
    counters = server.counters()
    assert counters.total("lockstep_http_requests_total", receiver="otlp_http", code="404") == 4
    assert counters.total("lockstep_http_requests_total", receiver="otlp_http", code="405") == 1


def test_the_api_says_what_is_wrong_with_a_request(server, goes_on):
    server.post("logs", good_logs())
    for method, path, status, word in (
        ("POST", "/api/jobs", 405, "GET"),
        ("GET", "/api/nothing", 404, "/api/nothing"),
        ("GET", "/api/jobs/jbo", 404, "job"),
        ("GET", "/api/jobs?colour=red", 400, "colour"),
        ("GET", "/api/jobs?limit=-1", 400, "limit"),
        ("GET", "/api/jobs/job/steps?last=501", 400, "500"),
        ("GET", "/api/jobs/job/ranks/9", 404, "9"),
        ("GET", "/api/spans?trace_id=xyz", 400, "trace_id"),
        ("GET", "/api/metrics?limit=1e3", 400, "limit"),
    ):
        answer = harness.request(server.http, method, path)
        assert answer.status == status, (path, answer.status, answer.text)
        assert word in one_line(answer.json()["error"]), answer.text
        assert server.counters().total("lockstep_http_requests_total", receiver="http", code=str(status)) >= 1
    assert harness.request(server.http, "GET", "/api/jobs/jbo").json()["did_you_mean"] == "job"


# OTLP/HTTP: single records


def partial(answer, kind, count):
    assert answer.status == 200
    message = kind.FromString(answer.body).partial_success
    rejected = {field.name: value for field, value in message.ListFields() if field.name.startswith("rejected")}
    assert list(rejected.values()) == [count], str(message)
    return one_line(message.error_message)


def test_a_time_in_the_future_is_refused_and_the_rest_is_kept(server, goes_on):
    now, later = harness.now_ns(), harness.now_ns() + 5 * HOUR_NS
    resource = {"service.name": "clock", "host.name": "gpu-017"}

    line = partial(
        server.post(
            "metrics", harness.gauge_request(resource, "m", [({"n": "1"}, now, 1.0), ({"n": "2"}, later, 2.0)])
        ),
        ExportMetricsServiceResponse,
        1,
    )
    assert "gpu-017" in line and "ahead" in line and "kept 1, refused 1" in line
    assert [one["labels"]["n"] for one in server.get("/api/metrics", name="m")["series"]] == ["1"]

    line = partial(
        server.post(
            "logs",
            harness.logs_request(
                resource,
                [
                    {"body": "now"},
                    {"body": "later", "time_unix_nano": later},
                    {"body": "far", "time_unix_nano": 2**64 - 1},
                ],
            ),
        ),
        ExportLogsServiceResponse,
        2,
    )
    assert "kept 1, refused 2" in line
    assert [log["body"] for log in server.get("/api/logs", service="clock")["logs"]] == ["now"]

    line = partial(
        server.post("spans", harness.spans_request(resource, [("ends later", now, later), ("fine", now, now)])),
        ExportTraceServiceResponse,
        1,
    )
    assert "kept 1, refused 1" in line
    assert [span["name"] for span in server.get("/api/spans", service="clock")["spans"]] == ["fine"]

    counters = server.counters()
    for signal, count in (("metrics", 1), ("logs", 2), ("spans", 1)):
        assert counters.total(REFUSED, receiver="otlp_http", signal=signal, reason="future_time") == count
    assert "ahead" in server.log()


MALFORMED_STEPS = {
    "no step": {"duration_ns": 1},
    "no duration": {"step": 1},
    "negative step": {"step": -1, "duration_ns": 1},
    "longer than a day": {"step": 1, "duration_ns": 25 * HOUR_NS},
    "a step that is text": {"step": "1", "duration_ns": 1},
    "too many phases": {"step": 1, "duration_ns": 1, "phases": [0] * 9},
    "a phase that is text": {"step": 1, "duration_ns": 1, "phases": ["x"]},
    "a short communicator row": {"step": 1, "duration_ns": 1, "comms": [[1, 2, 3]]},
    "a flow row of text": {"step": 1, "duration_ns": 1, "flows": [["x"] * 10]},
}


@pytest.mark.parametrize("attributes", MALFORMED_STEPS.values(), ids=MALFORMED_STEPS.keys())
def test_a_malformed_train_step_is_refused_and_the_rest_is_kept(server, goes_on, attributes):
    bad = {"event_name": "train.step", "attributes": attributes}
    answer = server.post("logs", harness.logs_request(harness.identity("job", 0, 1), [harness.step_event(7), bad]))
    line = partial(answer, ExportLogsServiceResponse, 1)
    assert "record 2 of 2" in line and "train.step" in line
    assert server.get("/api/jobs/job")["last_step"] == 7
    assert server.counters().total(REFUSED, receiver="otlp_http", signal="logs", reason="bad_train_step") == 1


@pytest.mark.parametrize(
    "resource",
    [
        {"lockstep.job_id": "job", "lockstep.rank": 4, "lockstep.world_size": 4},
        {"lockstep.job_id": "job", "lockstep.rank": -1},
        {"lockstep.job_id": "job", "lockstep.rank": 2**40},
        {"lockstep.job_id": "job"},
        {"lockstep.rank": 0},
        {},
        {"lockstep.job_id": "j" * 257, "lockstep.rank": 0},
        {"lockstep.job_id": "two\nlines", "lockstep.rank": 0},
        {"lockstep.job_id": "job", "lockstep.rank": 0, "host.name": "\x1b[2J"},
    ],
    ids=["outside", "negative", "huge", "no rank", "no job", "nothing", "long", "newline", "escape"],
)
def test_a_rank_that_does_not_fit_its_world_belongs_to_no_job(server, goes_on, resource):
    line = partial(
        server.post("logs", harness.logs_request(resource, [harness.step_event(7)])), ExportLogsServiceResponse, 1
    )
    assert "lockstep." in line or "resource" in line
    assert server.get("/api/jobs")["total"] == 0
    assert server.counters().total(REFUSED, receiver="otlp_http", signal="logs", reason="bad_identity") == 1


@pytest.mark.parametrize(
    "job",
    ["a/b", "..", ".", "x y", "ü-日本", "<script>alert(1)</script>", "%2F", "a?b=c&d", "a\\b", '"quoted"', "x" * 256],
)
def test_a_job_may_be_called_almost_anything(server, job):
    assert server.post("logs", harness.logs_request(harness.identity(job, 0, 1), [harness.step_event(3)])).body == b""
    assert server.get("/api/jobs/" + urllib.parse.quote(job, safe=""))["job_id"] == job
    done = harness.lockstep("why", job, "--server", server.url)
    assert done.returncode == 0 and done.stdout.startswith(job), done


# OTLP/gRPC


def call(server, method, body, **options):
    with grpc.insecure_channel(server.otlp_grpc, options=[("grpc.max_send_message_length", -1)]) as channel:
        with pytest.raises(grpc.RpcError) as failure:
            channel.unary_unary(method)(body, timeout=30, **options)
    return failure.value.code(), one_line(failure.value.details())


def test_a_garbage_grpc_message_is_an_invalid_argument(server, goes_on):
    for body in (b"\xff" * 100, good_logs().SerializeToString()[:-3], nested_body(10_000)):
        code, _ = call(server, harness.GRPC_METHODS["logs"], body)
        assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert server.counters().total(UNDECODABLE, receiver="otlp_grpc", reason="protobuf") == 3


def test_a_grpc_message_over_the_limit_is_resource_exhausted(server, goes_on):
    code, line = call(server, harness.GRPC_METHODS["logs"], b"\0" * (BODY_BYTES_MAX + 1))
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED and str(BODY_BYTES_MAX) in line
    code, line = call(server, harness.GRPC_METHODS["logs"], b"\0" * (80 << 20), compression=grpc.Compression.Gzip)
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED and str(BODY_BYTES_MAX) in line
    counters = server.counters()
    assert counters.total("lockstep_http_bad_requests_total", receiver="otlp_grpc", reason="too_large") == 1
    assert counters.total(UNDECODABLE, receiver="otlp_grpc", reason="too_large") == 1


def test_an_unknown_grpc_method_is_unimplemented(server, goes_on):
    code, _ = call(server, "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export", b"")
    assert code == grpc.StatusCode.UNIMPLEMENTED


def test_what_is_not_http2_is_closed_on_the_grpc_port(server, goes_on):
    with pytest.raises((OSError, harness.http.client.HTTPException)):
        harness.request(server.otlp_grpc, "POST", "/v1/logs", b"x", timeout=10)
    with grpc.insecure_channel(server.otlp_grpc) as channel:
        assert channel.unary_unary(harness.GRPC_METHODS["logs"])(good_logs().SerializeToString(), timeout=10) == b""


# The command line

SMALL_RECORDING = """\
H 412 0 1 node0 1794705512103900751 34705712776
I 34705772485 412 1 1681005588880477542 1 1 0 -
S 34801386004 412 1 8 2 0 0 0 AllGather 8 0 ncclInt8 1 3 RING LL 0
X 34801404024 412 8
F 42216930619 412 1
"""


@pytest.mark.parametrize(
    "number, bad",
    [
        (3, "S 34801386004 412 1 8 2 0 0 0 AllGather"),
        (4, "X 34801404024 412 9"),
        (1, "H 412 0"),
        (2, "I never 412 1 1681005588880477542 1 1 0 -"),
        (5, "Q"),
        (4, ""),
    ],
)
def test_a_malformed_line_of_a_recording_is_named_by_file_and_number(tmp_path, number, bad):
    lines = SMALL_RECORDING.splitlines()
    lines[number - 1] = bad
    (tmp_path / "rank0.calls").write_text("\n".join(lines) + "\n")
    for arguments in ([], ["--why"], ["--why", "--json"]):
        done = harness.lockstep("replay", tmp_path, *arguments)
        assert done.returncode == 5 and done.stdout == "", done
        assert f"rank0.calls:{number}: " in one_line(done.stderr)


def test_a_recording_that_is_not_there_is_not_found(tmp_path):
    done = harness.lockstep("replay", tmp_path / "nothing", "--why")
    assert done.returncode == 4 and "nothing" in one_line(done.stderr)
    (tmp_path / "empty").mkdir()
    done = harness.lockstep("replay", tmp_path / "empty", "--why")
    assert done.returncode in (4, 5) and "empty" in one_line(done.stderr)


def test_an_unknown_job_gets_a_suggestion_and_exit_code_4(server):
    server.post("logs", harness.logs_request(harness.identity("llama-70b", 0, 1), [harness.step_event(1)]))
    done = harness.lockstep("why", "lama-70b", "--server", server.url)
    assert done.returncode == 4 and done.stdout == ""
    assert '"lama-70b"' in one_line(done.stderr) and "llama-70b" in done.stderr.replace("lama-70b", "", 1)
    done = harness.lockstep("why", "lama-70b", "--json", "--server", server.url)
    assert done.returncode == 4
    one_line(done.stderr)
    assert harness.lockstep("why", "llama-70b", "--server", server.url).returncode == 0


@pytest.mark.parametrize("command", [["why", "job"], ["why"], ["jobs"], ["jobs", "--json"]])
def test_no_server_is_exit_code_3(command):
    nobody = "http://" + harness.unused_address()
    done = harness.lockstep(*command, "--server", nobody)
    assert done.returncode == 3 and nobody in one_line(done.stderr)
    done = harness.lockstep(*command, environment={"LOCKSTEP_SERVER": nobody})
    assert done.returncode == 3 and nobody in one_line(done.stderr)


@pytest.mark.parametrize(
    "command, word",
    [
        (["why", "job", "--jsn"], "--json"),
        (["why", "a", "b"], "JOB"),
        (["jobs", "--server"], "--server"),
        (["wy"], "why"),
        (["replay", "x", "--speed", "fast"], "--speed"),
        (["replay", "x", "--json"], "--why"),
        (["demo", "--seed", "-1"], "--seed"),
        (["sim", "--ranks", "0"], "--ranks"),
        (["why", "job", "--server", "ftp://x"], "--server"),
    ],
)
def test_wrong_usage_is_exit_code_2(command, word):
    done = harness.lockstep(*command)
    assert done.returncode == 2 and done.stdout == "" and word in one_line(done.stderr), done


def test_a_daemon_with_a_wrong_flag_does_not_start(tmp_path):
    for program, arguments, word in (
        ("lockstepd", [], "--data"),
        ("lockstepd", ["--data", tmp_path, "--htp", "x"], "--http"),
        ("lockstep-agent", [], "--data"),
        ("lockstep-agent", ["--data", tmp_path, "--export", "s3:x"], "file:DIR"),
    ):
        done = harness.subprocess.run(
            [str(harness.BIN / program), *map(str, arguments)], capture_output=True, text=True, timeout=20
        )
        assert done.returncode == 2 and done.stdout == "" and word in one_line(done.stderr), (program, arguments, done)
