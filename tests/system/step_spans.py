"""Steps in detail as agents send them: OTLP spans, ids derived as docs/formats/spans.md says."""

import harness
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

FNV128 = (0x6C62272E07BB014262B821756295C58D, 0x0000000001000000000000000000013B, 128)
FNV64 = (0xCBF29CE484222325, 0x00000100000001B3, 64)


def fnv1a(data, parameters, start=None):
    basis, prime, bits = parameters
    value = basis if start is None else start
    for byte in data:
        value = (value ^ byte) * prime % (1 << bits)
    return value


def trace_id(job, attempt, step):
    return fnv1a(f"{job}/{attempt}/{step}".encode(), FNV128).to_bytes(16, "big")


def span_id(trace, rank, place=""):
    value = fnv1a(f"/{rank}/{place}".encode(), FNV64, fnv1a(trace, FNV64))
    return value.to_bytes(8, "big")


def detail_request(job, rank, world, step, start_ns, duration_ns, phases=(), ops=(), host=None):
    """phases: (name, offset, duration); ops: dictionaries with function, ordinal, offset, duration and more."""
    message = ExportTraceServiceRequest()
    group = message.resource_spans.add()
    resource = {**harness.identity(job, rank, world), "lockstep.attempt": 0}
    if host is not None:
        resource["host.name"] = host
    harness.add_attributes(group.resource.attributes, resource)
    scope = group.scope_spans.add()
    trace = trace_id(job, 0, step)
    root = span_id(trace, rank)

    def add(place, name, start, duration, attributes):
        span = scope.spans.add()
        span.trace_id = trace
        span.span_id = span_id(trace, rank, place)
        if place:
            span.parent_span_id = root
        span.name = name
        span.kind = 1
        span.start_time_unix_nano = start
        span.end_time_unix_nano = start + duration
        harness.add_attributes(span.attributes, {"lockstep.step": step, **attributes})

    add("", "train.step", start_ns, duration_ns, {"lockstep.kind": "step", "lockstep.sampled": "periodic"})
    for index, (name, offset, duration) in enumerate(phases):
        place = f"phase/{index}"
        add(place, name, start_ns + offset, duration, {"lockstep.kind": "phase", "lockstep.phase": name})
    for index, op in enumerate(ops):
        add(
            f"op/{index}",
            op["function"],
            start_ns + op["offset"],
            op["duration"],
            {
                "lockstep.kind": op.get("kind", "collective"),
                "lockstep.comm_id": op.get("comm_id", "0x1a"),
                "lockstep.comm_size": world,
                "lockstep.rank_in_comm": rank,
                "lockstep.seq": op.get("seq", op["ordinal"] - 1),
                "lockstep.ordinal": op["ordinal"],
                "lockstep.bytes": op.get("bytes", 1 << 20),
                "lockstep.datatype": "ncclFloat32",
                "lockstep.queue_ns": 1000,
                **({"lockstep.peer": op["peer"]} if "peer" in op else {}),
            },
        )
    return message


def send_step(server, job, world, step, start_ns, clock_offsets_ns=None, collectives=20):
    """A step of `collectives` AllReduce that all ranks leave together, on clocks that are off. Rank 1 is the last to
    come to each, so it spends the least time; rank 0 sends rank 1 one message."""
    for rank in range(world):
        off = (clock_offsets_ns or {}).get(rank, 0)
        late = 1_000_000 if rank == 1 else 0
        ops = [
            {
                "function": "AllReduce",
                "ordinal": index + 1,
                "offset": 5_000_000 + index * 4_000_000 + late,
                "duration": 3_000_000 - late,
            }
            for index in range(collectives)
        ]
        if rank < 2:
            ops.append(
                {
                    "function": "Send" if rank == 0 else "Recv",
                    "kind": "p2p",
                    "comm_id": "0x2b",
                    "ordinal": 1,
                    "peer": 1 - rank,
                    "offset": 90_000_000 - rank * 500_000,
                    "duration": 1_000_000,
                }
            )
        phases = [("input", 0, 2_000_000), ("forward", 2_000_000, 40_000_000), ("backward", 42_000_000, 50_000_000)]
        message = detail_request(job, rank, world, step, start_ns + off, 100_000_000, phases, ops)
        answer = server.post("spans", message)
        assert answer.status == 200, answer.text
        events = [harness.step_event(step, duration_ns=100_000_000)]
        answer = server.post("logs", harness.logs_request(harness.identity(job, rank, world), events))
        assert answer.status == 200, answer.text
