"""What NCCL's own RAS service answers about a job that is well, one that a rank does not take part in, and one that lost a rank.
The raw bytes go to OUT/ras/STATE_QUERY.txt."""
import socket
import time

from programs import Job, fresh, ready_machine, start_agent

ADDRESS = ("127.0.0.1", 28028)  # NCCL's default
FROM_STEP = 60
QUERIES = {
    "text_status": ["STATUS"],
    "text_verbose": ["VERBOSE STATUS"],
    "json_verbose": ["SET FORMAT json", "VERBOSE STATUS"],
}


def ask(commands, address=ADDRESS):
    """Everything the service sent, as it came. All lines but the last command are answered with one line; the last with the rest."""
    received = b""
    with socket.create_connection(address, timeout=15) as connection:
        for command in commands:
            connection.sendall(command.encode() + b"\n")
            if command == commands[-1]:
                break
            lines = received.count(b"\n")
            while received.count(b"\n") == lines:
                part = connection.recv(65536)
                if not part:
                    return received
                received += part
        while part := connection.recv(65536):
            received += part
    return received


def save(folder, state):
    for query, commands in QUERIES.items():
        began = time.monotonic()
        try:
            answer = ask(["CLIENT PROTOCOL 2", "TIMEOUT 5", *commands])
        except OSError as problem:
            answer = f"no answer: {problem!r}\n".encode()
        (folder / f"{state}_{query}.txt").write_bytes(answer)
        print(f"  {state}_{query}: {len(answer)} bytes in {time.monotonic() - began:.1f} s: {answer[:90]!r}", flush=True)


def main(out, arguments):
    if arguments:
        raise SystemExit("run.py OUT ras takes no arguments")
    with ready_machine():
        collect(fresh(out / "ras"))


def collect(folder):
    agent = start_agent(folder, ["--export", f"file:{folder}/export"])
    job = Job("ras", folder, "ddp", "missing:3", steps=200, from_step=FROM_STEP)
    try:
        recorders = folder / "recorders"
        job.wait(60, until=lambda: len(list(recorders.glob("*"))) >= 4)
        job.wait(4)  # the communicator is there and some steps are done
        save(folder, "healthy")
        job.wait(60, until=lambda: job.fault_began_ns() is not None)
        job.wait(4)
        save(folder, "missing")
        job.ranks[3].kill()
        for seconds in (3, 22):  # its sockets are closed; its keep-alive is over
            job.wait(seconds)
            save(folder, f"killed_{seconds}s")
    finally:
        job.kill()
        agent.stop()
