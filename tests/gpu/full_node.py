"""What Lockstep costs a job on a node whose cores are all taken: 8 ranks, two cores each, 16 cores.

Whole runs differ by percents, so everything is switched inside one run: blocks of steps with the hook on or off, NCCL's events as the
plugin chooses them or only its operations, and one of several agents running while the others are stopped. Every condition comes
once in a round, in an order drawn anew; the result is the mean over rounds of log(block / block without), with its 95 % interval.

"off" has the plugin loaded with nothing but operations asked for (27 calls a step, 0.003 % of it): a plugin cannot be unloaded while
a job runs. Its counterpart, no plugin at all, is in `run.py OUT overhead`."""
import argparse
import json
import os
import pathlib
import signal
import sys
import time

import programs
from blocks import blocks_of, compare, table
from programs import BUILD, PLUGIN, Daemon, Job, fresh, plugin_numbers

HERE = pathlib.Path(__file__).resolve().parent
CONTROL_AT = 256  # offset of the control word (docs/formats/flight-recorder.md)
LOW = 0x06
SAMPLED = 0x805E  # what the agent asks for on such a node, five seconds after the job began

# name: what runs. hook: the Python hook; mask: NCCL's events that are asked for (None: as the plugin chooses); agent: its row in AGENTS;
# policy: the scheduling of the agent's threads (None: its own choice).
CONDITIONS = {
    "off": {"hook": False, "mask": LOW, "agent": None, "policy": None},
    "on": {"hook": True, "mask": SAMPLED, "agent": "whole", "policy": None},
    "every-transfer": {"hook": True, "mask": None, "agent": "whole", "policy": None},
    "hook": {"hook": True, "mask": LOW, "agent": None, "policy": None},
    "operations": {"hook": True, "mask": LOW, "agent": "whole", "policy": None},
    "no-steps": {"hook": True, "mask": 0x4E, "agent": "whole", "policy": None},
    "normal": {"hook": True, "mask": SAMPLED, "agent": "whole", "policy": "normal"},
    "idle": {"hook": True, "mask": SAMPLED, "agent": "whole", "policy": "idle"},
    "node-only": {"hook": False, "mask": LOW, "agent": "node", "policy": None},
}
# name: the agent's arguments; "{recorders}" is the job's folder, "{nothing}" an empty one.
AGENTS = {
    "whole": ["--recorders", "{recorders}"],
    "node": ["--recorders", "{nothing}"],
}
POLICIES = {"normal": (os.SCHED_OTHER, 0), "low": (os.SCHED_BATCH, 10), "idle": (os.SCHED_IDLE, 19)}


def control_word(mask, until_s):
    body = (until_s << 16) | mask
    check = (body * 0x9E3779B97F4A7C15 & (1 << 64) - 1) >> 49
    return 1 << 63 | check << 48 | body


def set_detail(recorders, mask):
    word = 0 if mask is None else control_word(mask, int(time.monotonic()) + 3600)
    for path in recorders.glob("*.lsfr"):
        with open(path, "r+b") as file:
            file.seek(CONTROL_AT)
            file.write(word.to_bytes(8, "little"))


def children_of(pid):
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        found += [int(word) for word in (task / "children").read_text().split()]
    return found


def cpu_ticks(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


class Agent:
    def __init__(self, name, folder, recorders, program):
        own = fresh(folder / f"agent-{name}")
        (own / "nothing").mkdir()
        words = [word.format(recorders=recorders, nothing=own / "nothing") for word in AGENTS[name]]
        self.daemon = Daemon([program, "--data", own / "data", "--metrics", "127.0.0.1:0", "--export", f"file:{own}/export", *words], own / "log")
        self.use = {}  # condition: [seconds, CPU seconds]
        self.since = None
        self.policy = "low"  # its own choice

    def processes(self):
        pid = self.daemon.process.pid
        return [pid, *children_of(pid)]

    def ticks(self):
        return sum(cpu_ticks(pid) for pid in self.processes()) / os.sysconf("SC_CLK_TCK")

    def go(self, condition):
        """On for a condition, or stopped for None."""
        now, ticks = time.monotonic(), self.ticks()
        if self.since is not None:
            use = self.use.setdefault(self.since[0], [0.0, 0.0])
            use[0] += now - self.since[1]
            use[1] += ticks - self.since[2]
        if (condition is None) != (self.since is None):
            for pid in self.processes():
                os.kill(pid, signal.SIGCONT if condition else signal.SIGSTOP)
        self.since = (condition, now, ticks) if condition else None

    def schedule(self, policy):
        if policy == self.policy:
            return
        self.policy = policy
        for pid in self.processes():
            for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
                os.sched_setscheduler(int(task.name), POLICIES[policy][0], os.sched_param(0))
                os.setpriority(os.PRIO_PROCESS, int(task.name), POLICIES[policy][1])

    def threads(self):
        """name: CPU seconds, of each thread of the agent and its GPU reader."""
        found = {}
        for pid in self.processes():
            for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
                fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
                name = f"{(task / 'comm').read_text().strip()}:{pid}:{task.name}"
                found[name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return found

    def stop(self):
        for pid in self.processes():
            os.kill(pid, signal.SIGCONT)
        self.daemon.stop()


def run_kind(out, kind, options):
    folder = fresh(out / kind)
    conditions = {name: CONDITIONS[name] for name in options.conditions}
    plan = {"conditions": conditions, "seed": options.seed, "settle_s": options.settle}
    (folder / "plan.json").write_text(json.dumps(plan))
    recorders = folder / "recorders"
    recorders.mkdir()
    names = {one["agent"] for one in conditions.values()} - {None}
    agents = {}
    cores = sorted(os.sched_getaffinity(0))
    each = max(1, len(cores) // options.ranks)
    own = [cores[(each * rank) % len(cores) :][:each] for rank in range(options.ranks)]
    extra = ["--cpu"] if options.cpu else []
    built = programs.ROOT / "build" if options.cpu else BUILD
    command = [sys.executable, HERE / "full_node_rank.py", kind, folder, "--plan", folder / "plan.json", "--seconds", options.seconds, "--block", options.block, *options.arguments, *extra]
    environment = {"OMP_NUM_THREADS": "1", "LOCKSTEP_LIBRARY": str(built / "lib" / "liblockstep.so"), "PYTHONPATH": str(programs.ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
    job = None
    try:
        for name in names:
            agents[name] = Agent(name, folder, recorders, options.agent or built / "bin" / "lockstep-agent")
        time.sleep(1)  # past what an agent does at its start
        for agent in agents.values():
            agent.go("start")
            agent.go(None)
        job = Job(f"full-{kind}", folder, "ddp", world=options.ranks, plugin=None if options.cpu else PLUGIN, cores=own, take_turns=1, environment=environment, command=command)
        signal.alarm(int(options.seconds) + 120)
        while (line := job.ranks[0].stdout.readline()) and line != "over\n":
            words = line.split()
            if line == "settle\n" and "whole" in agents:
                agents["whole"].go("settle")
            if not words or words[0] != "block":
                continue
            condition = conditions[words[2]]
            set_detail(recorders, condition["mask"])
            for name, agent in agents.items():
                if name != condition["agent"]:
                    agent.go(None)
            if condition["agent"]:
                agents[condition["agent"]].go(words[2])
                agents[condition["agent"]].schedule(condition["policy"] or "low")
        for agent in agents.values():
            agent.go(None)
        codes = job.wait(30)
        signal.alarm(0)
        steps = [json.loads((folder / f"steps_rank{rank}.json").read_text()) for rank in range(options.ranks)]
        result = compare(blocks_of(steps, options.block), conditions, options.seed)
        shares = {name: use[1] / use[0] for agent in agents.values() for name, use in agent.use.items()}
        lines = table(kind, result, shares)
        for name, agent in agents.items():
            agent.go("end")
            time.sleep(0.3)  # its page is written once a round
            numbers = [line for line in plugin_numbers(agent.daemon) if line.startswith("lockstep_agent_")]
            print(f"agent {name}, threads {agent.threads()}: " + "; ".join(numbers), flush=True)
            agent.go(None)
            asked = [line.split(" agent: ", 1)[1] for line in (folder / f"agent-{name}" / "log").read_text().splitlines() if "asked for" in line]
            print(f"agent {name} asked {len(asked)} times: {asked[:3]}", flush=True)
        print(f"{kind}: exit {codes}", "\n".join(lines), sep="\n", flush=True)
        return lines
    finally:
        if job:
            job.kill()
        for agent in agents.values():
            agent.stop()


def main(out, arguments):
    parser = argparse.ArgumentParser(prog="run.py OUT full-node")
    parser.add_argument("--kinds", default="ddp,fsdp2,pipeline")
    parser.add_argument("--conditions", default="off,on", help=f"of {','.join(CONDITIONS)}; off among them")
    parser.add_argument("--seconds", type=float, default=120, help="for each kind")
    parser.add_argument("--settle", type=float, default=12, help="seconds with everything on before the first block: the agent finds out where it is")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--block", type=int, default=20, help="steps")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--agent", default="", help="another agent than the one built here")
    parser.add_argument("--cpu", action="store_true", help="no GPU: try the script itself")
    parser.add_argument("arguments", nargs="*", help="for full_node_rank.py, after --")
    options = parser.parse_args(arguments)
    options.conditions = options.conditions.split(",")
    if "off" not in options.conditions or any(name not in CONDITIONS for name in options.conditions):
        parser.error(f"--conditions: of {','.join(CONDITIONS)}, with off")
    lines = []

    def run_all():
        for kind in options.kinds.split(","):
            if not options.cpu:
                programs.restart_mps()
            lines.extend(run_kind(out, kind, options))

    if options.cpu:
        run_all()
    else:
        with programs.ready_machine():
            run_all()
    (out / "full-node.md").write_text("\n".join(lines) + "\n")
