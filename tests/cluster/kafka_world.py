"""A real Kafka broker on loopback, from Maven Central, kept in a cache folder outside the tree; and what kcat reads from it."""

import base64
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

import harness

HERE = pathlib.Path(__file__).resolve().parent
POM = HERE / "kafka.pom.xml"
VERSION = re.search(r"<artifactId>kafka_2.13</artifactId><version>(.+?)</version>", POM.read_text())[1]
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "lockstep" / f"kafka-{VERSION}"

PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""


def install():
    """The folder with Kafka's jars."""
    jars = CACHE / "lib"
    if not (CACHE / ".ready").exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        shutil.copy(POM, CACHE / "pom.xml")
        subprocess.run(["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"], cwd=CACHE, check=True)
        (CACHE / ".ready").touch()
    return jars


class Broker:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True)
        self.classes = f"{install()}/*"
        self.port = harness.unused_port()
        self.settings = self.folder / "server.properties"
        self.settings.write_text(
            PROPERTIES.format(port=self.port, controller=harness.unused_port(), data=self.folder / "data")
        )
        name = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
        self._java("kafka.tools.StorageTool", "format", "-t", name, "-c", self.settings)
        self.process = None
        self.start()

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def _java(self, *arguments):
        done = subprocess.run(["java", "-cp", self.classes, *map(str, arguments)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self):
        with open(self.folder / "broker.log", "ab") as log:
            self.process = subprocess.Popen(
                ["java", "-Xmx512m", "-cp", self.classes, "kafka.Kafka", str(self.settings)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )
        harness.eventually(self.answers, 120, f"a broker that answers; {self.folder / 'broker.log'}")

    def answers(self):
        assert self.process.poll() is None, (self.folder / "broker.log").read_text()[-2000:]
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", self.port)) != 0:
                return False
        return subprocess.run(["kcat", "-b", self.address, "-L", "-m", "2"], capture_output=True).returncode == 0

    def kill(self):
        """SIGKILL, as a crash."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def records(self, topic):
        """All of a topic, as kcat reads them."""
        done = subprocess.run(
            ["kcat", "-b", self.address, "-C", "-q", "-e", "-o", "beginning", "-t", topic, "-f", "%p\t%k\t%h\t%T\t%S\n%s\n"],
            capture_output=True, check=True,
        )
        rest, all_records = done.stdout, []
        while rest:
            head, rest = rest.split(b"\n", 1)
            partition, key, headers, time_ms, size = head.decode().split("\t")
            size = max(int(size), 0)  # -1: a row that goes
            all_records.append(Record(int(partition), key, headers, int(time_ms), rest[:size]))
            rest = rest[size + 1 :]
        return all_records


@dataclasses.dataclass
class Record:
    partition: int
    key: str
    headers: str
    time_ms: int
    payload: bytes


def seconds_until(check, longest, why):
    began = time.monotonic()
    harness.eventually(check, longest, why)
    return time.monotonic() - began
