"""A fabric of our own: Open vSwitch bridges and hosts in network namespaces, real packets, real exporters.

Runs inside a network namespace of its own (./dev test fabric: unshare --net), so nothing of the machine's network is touched. A host
is a process that holds a namespace; when it ends, the namespace and its links are gone. Open vSwitch runs without its kernel module.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess

import harness


def run(*arguments, timeout=30):
    done = subprocess.run([str(one) for one in arguments], capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, arguments))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def wait_until(condition, what, seconds=20):
    return harness.eventually(condition, seconds, what)


class Host:
    """A network namespace with one link into a bridge."""

    def __init__(self, name):
        self.name = name
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        own = os.readlink("/proc/self/ns/net")
        wait_until(lambda: os.readlink(f"/proc/{self.holder.pid}/ns/net") != own, "a namespace for a host", 10)
        self.run("ip", "link", "set", "lo", "up")

    def command(self, *arguments):
        return ["nsenter", "--target", str(self.holder.pid), "--net", *map(str, arguments)]

    def run(self, *arguments):
        return run(*self.command(*arguments))

    def start(self, *arguments, **options):
        return subprocess.Popen(self.command(*arguments), **options)

    def close(self):
        self.holder.kill()
        self.holder.wait()


class Fabric:
    """Bridges of one Open vSwitch in the namespace of the test."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.hosts = []
        self.processes = []
        run("ip", "link", "set", "lo", "up")
        database, socket = self.folder / "conf.db", self.folder / "db.sock"
        self.socket = f"unix:{socket}"
        run("ovsdb-tool", "create", database, "/usr/share/openvswitch/vswitch.ovsschema")
        environment = {**os.environ, "OVS_RUNDIR": str(self.folder), "OVS_LOGDIR": str(self.folder)}
        log = open(self.folder / "ovs.log", "ab")
        for command in (
            ["ovsdb-server", database, f"--remote=punix:{socket}", f"--unixctl={self.folder}/ovsdb.ctl"],
            ["ovs-vswitchd", self.socket, "--disable-system", f"--unixctl={self.folder}/vswitchd.ctl"],
        ):
            self.processes.append(subprocess.Popen([str(one) for one in command], stdout=log, stderr=log, env=environment))
            if command[0] == "ovsdb-server":
                wait_until(socket.exists, "the socket of ovsdb-server")
        self.vsctl("--", "init")

    def vsctl(self, *arguments):
        return run("ovs-vsctl", f"--db={self.socket}", "--timeout=20", *arguments)

    def appctl(self, *arguments):
        return run("ovs-appctl", "-t", self.folder / "vswitchd.ctl", *arguments)

    def add_bridge(self, name):
        self.vsctl("add-br", name, "--", "set", "bridge", name, "datapath_type=netdev")
        return name

    def add_host(self, name, bridge, address):
        """A host on a port of the bridge that has the host's name."""
        host = Host(name)
        self.hosts.append(host)
        run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", host.holder.pid)
        run("ip", "link", "set", name, "up")
        host.run("ip", "address", "add", address, "dev", "eth0")
        host.run("ip", "link", "set", "eth0", "up")
        # Frames as they would be on a wire: no segments of 64 KiB, checksums in the packets.
        if shutil.which("ethtool"):
            host.run("ethtool", "-K", "eth0", "tx", "off", "tso", "off", "gso", "off", "gro", "off")
        self.vsctl("add-port", bridge, name)
        host.port = name
        return host

    def connect(self, bridge, other):
        """A link between two bridges, its ports named for where they lead."""
        one, two = f"{bridge}-{other}", f"{other}-{bridge}"
        run("ip", "link", "add", one, "type", "veth", "peer", "name", two)
        for end, place in ((one, bridge), (two, other)):
            run("ip", "link", "set", end, "up")
            self.vsctl("add-port", place, end)

    def export_sflow(self, bridge, target, sampling=4, polling=1, agent="lo", header=128):
        self.vsctl("--", "--id=@s", "create", "sflow", f"agent={agent}", f'target="{target}"', f"sampling={sampling}",
                   f"polling={polling}", f"header={header}", "--", "set", "bridge", bridge, "sflow=@s")

    def export_ipfix(self, bridge, target, sampling=4, domain=1, active_timeout=1):
        self.vsctl("--", "--id=@i", "create", "ipfix", f'targets="{target}"', f"sampling={sampling}",
                   f"obs_domain_id={domain}", f"obs_point_id={domain}", f"cache_active_timeout={active_timeout}",
                   "--", "set", "bridge", bridge, "ipfix=@i")

    def counters(self, port):
        """What a port of the switch counted, as of now: rx is what reached the port, not all of which the switch could take; tx is
        what the switch sent. The same counters as in `ovs-vsctl get interface PORT statistics`, which are some seconds old."""
        both = json.loads(run("ip", "-s", "-j", "link", "show", "dev", port))[0]["stats64"]
        return {f"{way}_{what}": both[way][what] for way in ("rx", "tx") for what in ("bytes", "packets")}

    def port_number(self, port):
        return int(self.vsctl("get", "interface", port, "ifindex").strip())

    def close(self):
        for host in self.hosts:
            host.close()
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self.processes):
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
