"""The command line as a stranger meets it: any address of the server will do, numbers can be typed back, nothing is passed over."""

import os
import re
import subprocess

import pytest

import harness
from test_feedback import SLOW, STEP_NS, WORLD

JOB = "llama/70b run 1"  # names need not be tame
STEPS = 40


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One for all tests here, with one job of which a rank is slow, and a quiet one."""
    one = harness.Server(tmp_path_factory.mktemp("cli") / "data")
    begin = harness.now_ns() - STEPS * STEP_NS
    for job, bad in ((JOB, 20), ("quiet", STEPS)):
        for rank in range(WORLD):
            events = []
            for step in range(STEPS):
                length = STEP_NS if step >= bad else STEP_NS * 5 // 8
                own = length if rank == SLOW and step >= bad else STEP_NS // 2
                events.append(
                    harness.step_event(
                        step, length, self_ns=own, comm_ns=length - own, start_unix_ns=begin + step * STEP_NS
                    )
                )
            assert one.post("logs", harness.logs_request(harness.identity(job, rank, WORLD), events)).status == 200
    harness.eventually(
        lambda: any(job["health"] == "slow" for job in one.get("/api/jobs")["jobs"]) or None, 15, "a slow job"
    )
    yield one
    assert one.running(), one.log()
    one.kill()


def addresses(server):
    return [server.http, server.otlp_http, server.otlp_grpc]


def test_any_address_of_the_server_will_do_for_every_command(server):
    for address in addresses(server):
        said = harness.lockstep("why", JOB, "--server", "http://" + address)
        assert said.returncode == 1 and said.stdout.startswith(JOB + " · "), (address, said)
        assert f"\n{server.url}/jobs/" in said.stdout, "the link leads to the page, whichever address was given"
        jobs = harness.lockstep("jobs", environment={"LOCKSTEP_SERVER": "http://" + address})
        assert jobs.returncode == 0 and JOB in jobs.stdout, (address, jobs)
    unknown = harness.lockstep("why", "nope", "--server", "http://" + server.otlp_http)
    assert unknown.returncode == 4 and "nope" in unknown.stderr, unknown


def test_the_ports_are_told_to_anybody_and_nothing_else_is(server):
    told = harness.request(server.http, "GET", "/.well-known/lockstep")
    ports = [address.rsplit(":", 1)[1] for address in addresses(server)]
    assert told.status == 200 and told.text == "lockstep listener=http tls=no http={} otlp_http={} otlp_grpc={}\n".format(*ports)
    told = harness.request(server.otlp_http, "GET", "/.well-known/lockstep")
    assert told.status == 200 and told.text.startswith("lockstep listener=otlp_http tls=no ")
    assert harness.request(server.http, "POST", "/.well-known/lockstep", b"", harness.OURS).status in (404, 405)


def test_behind_another_port_the_right_address_is_asked_for(server):
    """As a container's published port, or a proxy, does it: the server's own ports mean nothing there."""
    with harness.forwarded(server.otlp_http) as address:
        said = harness.lockstep("jobs", "--server", "http://" + address)
    assert said.returncode == 2 and said.stderr.count("\n") == 1, said
    assert "by a proxy or another port" in said.stderr and "lockstepd --http" in said.stderr, said.stderr


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_an_agent_sends_to_whichever_address_it_was_given(server, start, tmp_path, protocol):
    (tmp_path / "recorders").mkdir()
    for number, address in enumerate(addresses(server)):
        data = tmp_path / f"agent{number}"
        agent = start(harness.Agent, data, tmp_path / "recorders", address, more=["--protocol", protocol])
        harness.eventually(
            lambda: agent.counters().total("lockstep_agent_records_passed_total") > 0 or None, 15, f"records by {address}"
        )
        assert agent.counters().total("lockstep_agent_records_refused_total") == 0, agent.log()
        right = server.otlp_grpc if protocol == "grpc" else server.otlp_http
        if protocol != "grpc":
            harness.eventually(
                lambda: server.counters().total("lockstep_http_deferred", receiver="otlp_http") == 1, 15, "its long poll"
            )
        checks = harness.request(agent.ready["metrics"], "GET", "/checks").json()
        assert right in checks["destination"], checks["destination"]
        agent.stop()


def test_a_simulated_job_reaches_the_server_by_its_page(server):
    done = harness.lockstep("sim", "--server", server.url, "--ranks", 2, "--steps", 3, "--speed", 100, "--job", "by-page")
    assert done.returncode == 0, done
    assert "by-page" in [job["job_id"] for job in server.get("/api/jobs")["jobs"]]


def test_every_program_says_which_version_it_is():
    lines = {name: subprocess.run([harness.BIN / name, "--version"], capture_output=True, text=True, check=True).stdout
             for name in ("lockstep", "lockstepd", "lockstep-agent")}  # fmt: skip
    told = {name: re.fullmatch(name + r" (\d+\.\d+\.\d+)(?: \(commit [0-9a-f]{12}\))?\n", line) for name, line in lines.items()}
    assert all(told.values()) and len({match.group(1) for match in told.values()}) == 1, lines
    assert harness.lockstep("version").stdout == lines["lockstep"]


def columns_of(text):
    return max(len(line) for line in text.splitlines())


def test_output_keeps_the_width_that_is_there_and_colour_is_for_terminals(server):
    at = ["--server", server.url]
    tables = (["sle"], ["incidents"], ["alerts"])  # of numbers: 80 columns is the least
    for columns, more in ((60, ()), (80, tables), (100, tables)):
        for words in (["why", JOB], ["jobs"], ["doctor", JOB], *more):
            said = harness.lockstep(*words, *at, environment={"COLUMNS": str(columns)}).stdout
            # What can be pasted is never broken: a command, an address.
            long = [line for line in said.splitlines() if len(line) > columns and " lockstep " not in line and "://" not in line]
            assert not long, (words, columns, long)
    assert "\x1b" not in harness.lockstep("why", JOB, *at).stdout, "no colour in pipes"
    assert "\x1b[1;31mSLOW" in harness.lockstep("why", JOB, *at, "--color", "always").stdout
    assert "\x1b" not in in_terminal(["jobs", *at], {"NO_COLOR": "1"})
    assert "\x1b[1;31mslow" in in_terminal(["jobs", *at])
    wrong = harness.lockstep("jobs", "--color=blue")
    assert wrong.returncode == 2 and wrong.stderr.count("\n") == 1 and "auto, always or never" in wrong.stderr


def in_terminal(words, environment=None, keys=b"", size=(24, 80), until=None, then=()):
    """What the command line shows on a terminal. until: what to see before the keys are pressed; then: further such pairs."""
    import fcntl
    import pty
    import select
    import struct
    import termios

    pid, terminal = pty.fork()
    if pid == 0:
        clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
        os.execve(harness.BIN / "lockstep", ["lockstep", *map(str, words)], {**clean, "TERM": "xterm", **(environment or {})})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    steps = [(until, keys), *then] if keys else []
    seen, since = b"", 0
    while select.select([terminal], [], [], 20)[0]:
        try:
            data = os.read(terminal, 65536)
        except OSError:
            break
        seen += data
        if steps and (steps[0][0] is None or steps[0][0].encode() in seen[since:]):
            since = len(seen)
            os.write(terminal, steps.pop(0)[1])
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.WIFEXITED(status) and os.WEXITSTATUS(status) in (0, 1), (status, seen[-2000:])
    return seen.decode(errors="replace")


def test_watch_draws_again_and_ends_cleanly_on_ctrl_c(server):
    seen = in_terminal(["why", JOB, "--server", server.url, "--watch", "1"], keys=b"\x03", until="Ctrl-C ends")
    assert seen.startswith("\x1b[?1049h") and seen.endswith("\x1b[?25h\x1b[?1049l"), "the shell's screen is put back"
    assert "every 1 s" in seen and "SLOW" in seen
    frames = subprocess.Popen(
        [harness.BIN / "lockstep", "jobs", "--watch", "1", "--server", server.url],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    lines = [frames.stdout.readline()]
    while not lines[-1].startswith("---- "):
        lines.append(frames.stdout.readline())
    assert any(JOB in line for line in lines) and frames.stdout.readline().startswith("JOB"), lines
    frames.send_signal(2)
    assert frames.wait(timeout=10) == 0 and frames.stderr.read() == ""
    frames.stdout.close()
    frames.stderr.close()
    gone = harness.lockstep("why", "nope", "--watch", "--server", server.url)
    assert gone.returncode == 4 and "nope" in gone.stderr, "what will never be there is not waited for"


def test_what_is_shown_can_be_typed_back(server):
    far = harness.lockstep("step", JOB, "1,024", "--server", server.url)
    assert far.returncode == 4 and "1024" in far.stderr, far
    assert harness.lockstep("step", JOB, "1,02", "--server", server.url).returncode == 2


def test_errors_name_commands(server):
    for words in (["why", "zzz"], ["verdict", "zzz"], ["sle", "zzz"]):
        said = harness.lockstep(*words, "--server", server.url)
        assert said.returncode == 4 and "/api/" not in said.stderr and "lockstep " in said.stderr, said.stderr


def test_a_report_is_one_file_that_loads_nothing_and_shows_what_jobs_are_called_as_text(server, tmp_path):
    bad_name = "<script>alert(1)</script>"
    done = harness.lockstep("sim", "--server", server.url, "--ranks", 2, "--steps", 5, "--speed", 100, "--job", bad_name)
    assert done.returncode == 0, done
    for job in (JOB, bad_name):
        out = tmp_path / "report.html"
        made = harness.lockstep("report", job, "--out", out, "--server", server.url)
        assert made.returncode == 0 and str(out) in made.stdout, made
        html = out.read_text()
        assert "<script" not in html and "src=" not in html and "@import" not in html and "url(http" not in html
        assert "default-src 'none'" in html and html.rstrip().endswith("</html>")
    html = harness.lockstep("report", JOB, "--out", "-", "--server", server.url).stdout
    verdict = server.get("/api/jobs/" + harness.urllib.parse.quote(JOB, safe="") + "/why")["verdicts"][0]
    assert verdict["sentence"].split(":")[0] in html and "who waits" in html and html.count("<svg") == 2
    assert len(html) < 500_000
    assert harness.lockstep("report", "zzz", "--server", server.url).returncode == 4


def completed(words, server):
    """What bash offers for the last word."""
    script = (
        'source <("$LOCKSTEP" completion bash); COMP_WORDS=("$LOCKSTEP" "${@}"); COMP_CWORD=$#; _lockstep;'
        ' printf "%s\\n" "${COMPREPLY[@]}"'
    )
    environment = {**os.environ, "LOCKSTEP": str(harness.BIN / "lockstep"), "LOCKSTEP_SERVER": server.url}
    done = subprocess.run(["bash", "-c", script, "bash", *words], capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and done.stderr == "", done
    return done.stdout.split("\n")[:-1]


def test_completion_knows_every_command_its_options_and_the_jobs(server, tmp_path):
    trap = tmp_path / "trap"
    name = f"$(touch {trap}) `touch {trap}`"
    for job in (name, "--server=http://elsewhere.example"):
        done = harness.lockstep("sim", "--server", server.url, "--ranks", 1, "--steps", 2, "--speed", 99, f"--job={job}")
        assert done.returncode == 0, done
    listed = re.findall(r"^  (\w+) ", harness.lockstep("help").stdout, re.M)
    assert len(listed) > 30 and completed([""], server) == listed
    assert completed(["wh"], server) == ["why", "whatif"]
    assert {"--server", "--watch", "--history"} <= set(completed(["why", "--"], server))
    assert set(completed(["incidents", ""], server)) == {"show", "ack", "resolve", "reopen", "feedback"}
    assert "--markdown" in completed(["incidents", "show", "--"], server)
    assert completed(["why", "qui"], server) == ["quiet"]
    assert completed(["sle", "--job", "llama"], server) == [JOB.replace(" ", "\\ ")]
    offered = completed(["why", ""], server)
    assert len(offered) >= 3 and not any(one.startswith("-") for one in offered), "a job whose name is an option is not offered as one"
    assert not trap.exists(), "names of jobs come from anybody: no shell may expand them"
    for shell in ("zsh", "fish"):
        script = harness.lockstep("completion", shell).stdout
        assert all(command in script for command in listed) and "completion --jobs" in script
    assert harness.lockstep("completion", "csh").returncode == 2
    away = harness.lockstep("completion", "--jobs", "--server", "http://" + harness.unused_address())
    assert away.returncode == 3 and away.stdout + away.stderr == "", "a shell that completes is told nothing"


def test_manual_pages_have_every_command_and_option_and_groff_takes_them():
    for program in ("lockstep", "lockstepd", "lockstep-agent"):
        page = harness.lockstep("help", "--man", program)
        assert page.returncode == 0 and page.stdout.startswith(".TH "), page
        shown = subprocess.run([harness.BIN / program, "--help"], capture_output=True, text=True).stdout
        for option in re.findall(r"^  (--[\w-]+)", shown, re.M):
            assert option.replace("-", "\\-") in page.stdout, (program, option)
        try:
            taken = subprocess.run(["groff", "-ww", "-man", "-Tutf8", "-z"], input=page.stdout, capture_output=True, text=True)
        except FileNotFoundError:
            continue
        assert taken.returncode == 0 and taken.stderr == "", taken.stderr[:2000]
    assert harness.lockstep("help", "why").stdout.startswith("lockstep why: ")


def test_top_goes_down_and_up_and_puts_the_terminal_back(server):
    at = ["top", "--server", server.url]
    frame = harness.lockstep(*at).stdout
    assert frame.startswith("lockstep top") and frame.index(JOB) < frame.index("quiet") and "\x1b" not in frame, "worst first"
    one = harness.lockstep("top", JOB, "--server", server.url).stdout
    assert "Too little CPU" in one and "RANK" in one and f"node-{SLOW}" in one
    assert harness.lockstep("top", "zzz", "--server", server.url).returncode == 4
    for size in ((24, 80), (60, 200)):
        way = [("OWN TIME", b"\r"), ("COMM", b"\x1b"), ("BEYOND", b"q")]
        seen = in_terminal([*at, "--every", "60"], keys=b"\r", until="q end", size=size, then=way)
        assert seen.startswith("\x1b[?1049h") and seen.endswith("\x1b[?25h\x1b[?1049l"), seen[-200:]
        assert f"rank {SLOW}" in seen
    seen = in_terminal(at, keys=b"/qui\r", until="q end", then=[("filter: qui", b"q")])
    assert "1 of " in seen
