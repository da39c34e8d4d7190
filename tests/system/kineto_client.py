"""What PyTorch's profiler does when KINETO_USE_DAEMON is set, for tests without one: asks the daemon on its node for an
order again and again, and writes a trace. Of a process of its own, as the kernel says who asks."""

import json
import os
import socket
import struct
import time
import uuid


# Five kernels, one after the other.
EVENTS = [
    {
        "ph": "X",
        "cat": "kernel",
        "name": "gemm",
        "pid": 0,
        "tid": 7,
        "ts": 1000.0 * i,
        "dur": 700.0,
        "args": {"device": 0, "stream": 7, "correlation": i},
    }
    for i in range(1, 6)
]


class KinetoClient:
    def __init__(self, folder, ticks_s=0.1):
        self.folder, self.ticks_s = folder, ticks_s
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.name = os.path.join(folder, "dynoconfigclient" + str(uuid.uuid4()))
        self.socket.bind(self.name)
        self.socket.settimeout(0.09)  # as long as Kineto waits

    def ask(self, kind):
        """The text of an order; empty: none."""
        payload = struct.pack("=iiqii", kind, 2, 0, os.getpid(), os.getppid())
        header = struct.pack("=Q32s", len(payload), b"req")
        try:
            self.socket.sendto(header + payload, os.path.join(self.folder, "dynolog"))
            answer = self.socket.recv(65536)
        except OSError:
            return ""
        size, name = struct.unpack("=Q32s", answer[:40])
        assert name.rstrip(b"\0") == b"req" and size == len(answer) - 40
        return answer[40:].decode()

    def order(self):
        """Waits for one; its lines as a dictionary."""
        while True:
            text = self.ask(2)
            if text:
                return dict(line.split("=", 1) for line in text.splitlines())
            time.sleep(self.ticks_s)  # a tick of its own

    def trace(self, order):
        """Busy for a moment, then the file, as Kineto names and renames it."""
        for _ in range(3):
            assert self.ask(0) == ""
            time.sleep(self.ticks_s)  # a tick of its own
        stem, suffix = order["ACTIVITIES_LOG_FILE"].rsplit(".", 1)
        path = f"{stem}_{os.getpid()}.{suffix}"
        with open(path + ".tmp", "w", encoding="utf-8") as file:
            json.dump({"trace_id": order["REQUEST_TRACE_ID"], "traceEvents": EVENTS, "order": order}, file)
        os.replace(path + ".tmp", path)
        self.ask(2)
