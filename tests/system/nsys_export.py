"""A Kineto trace of each rank as one export of Nsight Systems: what that would have recorded of the same job on one node."""

import gzip
import json
import sqlite3

PUSH_POP_RANGE = 59
COPY_KINDS = {"HtoD": 1, "DtoH": 2, "DtoD": 8}
TABLES = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER);
INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER,
  correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER,
  blockX INTEGER, blockY INTEGER, blockZ INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER,
  globalPid INTEGER, bytes INTEGER, copyKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER, textId INTEGER);
"""


def export(traces, path):
    """traces: files by rank."""
    names = {}
    database = sqlite3.connect(path)
    database.executescript(TABLES)

    def text(value):
        return names.setdefault(value, len(names) + 1)

    loaded = []
    for file in traces:
        opened = gzip.open(file) if file.name.endswith(".gz") else open(file, "rb")
        with opened:
            loaded.append([event for event in json.load(opened)["traceEvents"] if event.get("ph") == "X"])
    first = min(event["ts"] for events in loaded for event in events)
    for rank, events in enumerate(loaded):
        process = (1000 - rank) << 24  # the order of processes is not that of ranks
        for event in events:
            start = round((event["ts"] - first) * 1000)
            times = (start, start + round(event["dur"] * 1000))
            args, kind, name = event.get("args", {}), event["cat"], event["name"]
            thread = process + int(event["tid"]) % 1000
            if kind == "kernel":
                place = (*times, rank, 1, args["stream"], args["correlation"], process, text(name), 0)
                row = (*place, *args.get("grid", (1, 1, 1)), *args.get("block", (1, 1, 1)))
                database.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({','.join('?' * 15)})", row)
            elif kind == "gpu_memcpy":
                copy = next((number for word, number in COPY_KINDS.items() if word in name), 0)
                row = (*times, rank, args["stream"], args["correlation"], process, args.get("bytes", 0), copy)
                database.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES ({','.join('?' * 8)})", row)
            elif kind == "cuda_runtime":
                row = (*times, thread, args["correlation"], text(f"{name}_v7000"))
                database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?)", row)
            elif kind in ("cpu_op", "user_annotation"):
                said = f"{name}, seq = 1" if kind == "cpu_op" else name.replace("ProfilerStep#", "iteration ")
                database.execute("INSERT INTO NVTX_EVENTS VALUES (?,?,?,NULL,?,?)", (*times, PUSH_POP_RANGE, thread, text(said)))
    database.executemany("INSERT INTO StringIds VALUES (?,?)", [(number, value) for value, number in names.items()])
    database.commit()
    database.close()
