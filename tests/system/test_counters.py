"""Nothing is lost unseen: at every stage, received = passed + refused + dropped."""

import itertools

import grpc
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

import harness
from test_otlp_sdk import to_otlp_json

RECEIVERS = ("otlp_http", "otlp_grpc")
SIGNALS = ("metrics", "logs", "spans")


class Sender:
    """Sends through both receivers, and keeps the books a second time."""

    def __init__(self, server):
        self.server = server
        self.channel = grpc.insecure_channel(server.otlp_grpc)
        self.received = dict.fromkeys(itertools.product(RECEIVERS, SIGNALS), 0)
        self.refused = dict.fromkeys(itertools.product(RECEIVERS, SIGNALS), 0)

    def send(self, receiver, signal, message, records, refused):
        if receiver == "otlp_grpc":
            body = self.channel.unary_unary(harness.GRPC_METHODS[signal])(message.SerializeToString(), timeout=10)
        else:
            body = self.server.post(signal, message)
            assert body.status == 200
            body = body.body
        told = ExportLogsServiceResponse.FromString(body).partial_success  # the three kinds are alike on the wire
        assert told.rejected_log_records == refused and bool(told.error_message) == (refused > 0)
        self.received[receiver, signal] += records
        self.refused[receiver, signal] += refused

    def send_undecodable(self, receiver, signal):
        """Nobody knows how many records these had: they count in no sum."""
        if receiver == "otlp_grpc":
            try:
                self.channel.unary_unary(harness.GRPC_METHODS[signal])(b"\xff\xff", timeout=10)
            except grpc.RpcError as failure:
                assert failure.code() == grpc.StatusCode.INVALID_ARGUMENT
            else:
                raise AssertionError("garbage was taken")
        else:
            assert self.server.post(signal, b"\xff\xff").status == 400


def mixed_traffic(sender):
    later = harness.now_ns() + 3_600_000_000_000
    bad_step = {"event_name": "train.step", "attributes": {}}
    for number, receiver in itertools.product(range(3), RECEIVERS):
        now = harness.now_ns()
        resource = harness.identity("job", number, 4)
        sender.send(
            receiver, "metrics", harness.gauge_request(resource, "m", [({"n": n}, now, 1.0) for n in range(5)]), 5, 0
        )
        sender.send(receiver, "metrics", harness.gauge_request(resource, "m", [({}, now, 1.0), ({}, later, 1.0)]), 2, 1)
        sender.send(
            receiver, "logs", harness.logs_request(resource, [harness.step_event(number), bad_step, {"body": "text"}]), 3, 1
        )
        sender.send(receiver, "logs", harness.logs_request({}, [harness.step_event(number), bad_step]), 2, 2)
        sender.send(receiver, "logs", harness.logs_request(resource, []), 0, 0)
        sender.send(
            receiver,
            "spans",
            harness.spans_request(resource, [("a", now, now), ("b", later, later), ("c", now, later)]),
            3,
            2,
        )
        for signal in SIGNALS:
            sender.send_undecodable(receiver, signal)
    # OTLP/JSON is another way through the same receiver.
    message = harness.logs_request(harness.identity("job", 3, 4), [harness.step_event(1), bad_step])
    answer = sender.server.post("logs", to_otlp_json(message).encode(), "application/json")
    assert answer.status == 200 and int(answer.json()["partialSuccess"]["rejectedLogRecords"]) == 1
    sender.received["otlp_http", "logs"] += 2
    sender.refused["otlp_http", "logs"] += 1


def test_every_receiver_and_signal_balances_and_agrees_with_the_sender(server):
    sender = Sender(server)
    mixed_traffic(sender)
    counters = server.counters()
    for receiver, signal in itertools.product(RECEIVERS, SIGNALS):
        received, passed, refused, dropped = (
            counters.total(f"lockstep_ingest_{what}_records_total", receiver=receiver, signal=signal)
            for what in ("received", "passed", "refused", "dropped")
        )
        assert received == passed + refused + dropped, (receiver, signal)
        assert received == sender.received[receiver, signal] > 0, (receiver, signal)
        assert refused == sender.refused[receiver, signal] > 0, (receiver, signal)
        assert dropped == 0
    assert counters.total("lockstep_ingest_undecodable_requests_total") == 3 * len(RECEIVERS) * len(SIGNALS)
    sender.channel.close()


def test_what_the_receivers_passed_is_what_the_stores_were_given(server):
    sender = Sender(server)
    mixed_traffic(sender)
    counters = server.counters()
    for signal in SIGNALS:
        passed = counters.total("lockstep_ingest_passed_records_total", signal=signal)
        applied = counters.total("lockstep_apply_records_received_total", signal=signal)
        assert passed == applied > 0, signal
        assert applied == (
            counters.total("lockstep_apply_records_passed_total", signal=signal)
            + counters.total("lockstep_apply_records_refused_total", signal=signal)
        )
    tables = {
        labels["table"]
        for name, labels, _ in counters.samples
        if name == "lockstep_store_rows_received_total" and labels
    }
    assert {"steps", "logs", "spans"} <= tables
    for table in tables:
        given = counters.total("lockstep_store_rows_received_total", table=table)
        kept = counters.total("lockstep_store_rows", table=table)
        gone = sum(
            counters.total(f"lockstep_store_rows_{what}_total", table=table)
            for what in ("replaced", "dropped", "refused")
        )
        assert given == kept + gone, table
    taken = counters.total("lockstep_metric_samples_received_total")
    assert taken == counters.total("lockstep_ingest_passed_records_total", signal="samples") > 0
    assert taken == sum(
        counters.total(f"lockstep_metric_samples_{what}_total") for what in ("stored", "replaced", "repeated", "refused")
    )
    sender.channel.close()


def test_after_a_restart_the_stores_balance_again(start, tmp_path):
    first = start(harness.Server, tmp_path / "data")
    sender = Sender(first)
    mixed_traffic(sender)
    sender.channel.close()
    passed = {
        signal: first.counters().total("lockstep_ingest_passed_records_total", signal=signal) for signal in SIGNALS
    }
    first.kill()
    counters = start(harness.Server, tmp_path / "data").counters()
    for signal in ("logs", "spans"):
        assert counters.total("lockstep_apply_records_received_total", signal=signal) == passed[signal], signal


def test_metrics_page_is_prometheus_text_with_help_and_type_for_every_name(server):
    text = harness.request(server.http, "GET", "/metrics").text
    names = harness.Counters(text).names()
    for name in names:
        assert text.count(f"# HELP {name} ") == 1 and text.count(f"# TYPE {name} ") == 1, name
        assert name.startswith("lockstep_"), name
