"""Users who mean harm, against the real agent: it is not held up, opens nothing that is not theirs, and ends when asked."""

import os
import subprocess

import pytest

import harness

RECORDING = harness.RECORDINGS / "ddp_healthy"
NOBODY = 65534


@pytest.fixture
def recorders(tmp_path):
    folder = tmp_path / "recorders"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def playing(recorders):
    """A job that records, slowly enough to outlive the test."""
    process = subprocess.Popen(
        [str(harness.BIN / "lockstep"), "replay", str(RECORDING), "--job", "healthy", "--speed", "0.5"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "LOCKSTEP_RECORDER_DIR": str(recorders)},
    )
    harness.eventually(lambda: len(list(recorders.glob("*.lsfr"))) == 4, 20, "every rank has a recorder")
    yield process
    process.kill()
    process.wait()


def health(agent):
    return harness.request(agent.ready["metrics"], "GET", "/healthz")


def test_pipes_in_place_of_hooks_hold_up_neither_evidence_nor_the_end(start, recorders, playing, tmp_path):
    for recorder in recorders.glob("*.lsfr"):
        os.mkfifo(recorder.with_suffix(".hook"))
    agent = start(harness.Agent, tmp_path / "agent", recorders, export=tmp_path / "export")
    refused = lambda: agent.counters().total("lockstep_agent_user_files_refused_total", reason="kind") == 4
    harness.eventually(refused, 20, "the evidence thread has come by all four")
    answer = health(agent)
    assert (answer.status, answer.text) == (200, "ok\n")
    assert agent.stop() == 0
    assert "has not come back" not in agent.log(), "no thread was held up"


def test_a_folder_of_many_recorders_leaves_the_agent_quick_and_is_counted(start, recorders, playing, tmp_path):
    whole = next(recorders.glob("*.lsfr"))
    for number in range(1000):
        os.link(whole, recorders / f"{5_000_000 + number}-1.lsfr")
    agent = start(harness.Agent, tmp_path / "agent", recorders, export=tmp_path / "export")
    over = lambda: agent.counters().total("lockstep_agent_over_limit_total", what="recorders") > 0
    harness.eventually(over, 20, "some are left out")
    assert agent.counters().total("lockstep_agent_recorders") <= 128
    assert health(agent).status == 200
    assert agent.stop() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be made to change what is not its own")
def test_a_link_in_place_of_roots_own_folder_is_not_followed(tmp_path):
    victim = tmp_path / "etc"
    victim.mkdir(mode=0o755)
    link = tmp_path / "lockstep-0"
    link.symlink_to(victim)
    os.lchown(link, NOBODY, NOBODY)
    ended = subprocess.run(
        [str(harness.BIN / "lockstep-agent"), "--data", tmp_path / "agent", "--recorders", link, "--metrics", "127.0.0.1:0"],
        capture_output=True, text=True, timeout=20,
    )  # fmt: skip
    assert ended.returncode == 1 and "is a link that user 65534 has put there" in ended.stderr
    assert victim.stat().st_mode & 0o7777 == 0o755
