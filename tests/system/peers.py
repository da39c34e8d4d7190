"""Programs of the machine's beside ours, and questions to what speaks Prometheus' API."""

import json
import os
import socket
import subprocess
import urllib.parse

import harness


def listens(address):
    host, port = address.rsplit(":", 1)
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


class Child:
    """A program of the machine's, not of ours, listening on an address; killed at the end."""

    def __init__(self, arguments, address, log, environment=None):
        self.address = address
        with open(log, "wb") as out:
            self.process = subprocess.Popen(
                [str(one) for one in arguments],
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
            )
        harness.eventually(lambda: listens(address), 30, f"{arguments[0]} listens; its words: {log}")

    def end(self):
        self.process.kill()
        self.process.wait()

    kill = end  # as the daemons of ours have it, for start()


def asked(address, path, method, parameters):
    form = urllib.parse.urlencode(parameters, doseq=True)
    if method == "POST":
        answer = harness.request(
            address, "POST", path, form.encode(), {"Content-Type": "application/x-www-form-urlencoded"}
        )
    else:
        answer = harness.request(address, "GET", path + ("?" + form if form else ""))
    body = json.loads(answer.body)
    assert answer.status == 200 and body["status"] == "success", f"{path} {parameters}: {answer.status} {answer.text}"
    return body["data"]
