"""The demo names every fault, and its page leads a browser from the fleet to the guilty rank."""

import json
import os
import re
import shutil
import signal
import subprocess
import urllib.request

import pytest

import harness

FAULTS = ("slow-gpu", "slow-input", "slow-link", "missing-rank")


def verify():
    return harness.lockstep("demo", "--verify", "--seed", "1", timeout=120)


@pytest.mark.limit(250)
def test_verify_names_every_fault_rightly_and_nothing_else():
    done = verify()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Every fault was named rightly, and nothing else was said." in done.stdout
    assert done.stderr == ""
    assert (
        done.stdout.count("inject ") == len(FAULTS)
        and "NOT INJECTED" not in done.stdout
        and "mistake" not in done.stdout
    )
    for fault in FAULTS:
        row = re.search(
            rf"^{fault} +(demo-\S+) +(\d+) +(\d+) +([\d.]+) s, (\d+) steps +right$", done.stdout, re.MULTILINE
        )
        assert row, f"no row for {fault}:\n{done.stdout}"
        job, rank = row[1], row[2]
        assert re.search(
            rf"confirmed +{job}, (slow|hang): rank {rank}, \w+, after", done.stdout
        ), f"{fault}: no verdict on rank {rank}\n{done.stdout}"
    assert "GPU slowed by heat (gpu): Rank" in done.stdout, done.stdout  # its node says why
    assert re.search(r"page +http://127\.0\.0\.1:\d+", done.stdout)


@pytest.fixture
def demo(tmp_path):
    """A demo that plays until it is stopped; gives its URL."""
    log = open(tmp_path / "demo.log", "w+")
    process = subprocess.Popen(
        [str(harness.BIN / "lockstep"), "demo", "--http", "127.0.0.1:0", "--seed", "2", "--gpu-hour-price", "H100=2.5"],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )

    def url():
        assert process.poll() is None, (tmp_path / "demo.log").read_text()
        found = re.search(r"page +(http://\S+)", (tmp_path / "demo.log").read_text())
        return found and found[1]

    try:
        yield harness.eventually(url, 30, "the demo says where its page is")
        assert process.poll() is None, (tmp_path / "demo.log").read_text()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0, (tmp_path / "demo.log").read_text()
        assert not list(tmp_path.glob("lockstep-demo-*")), "the demo's folder is removed"
    finally:
        process.kill()
        process.wait()
        log.close()


@pytest.mark.limit(180)
def test_a_browser_is_led_from_the_fleet_to_the_guilty_rank_of_a_running_demo(demo):
    assert (
        harness.ROOT / "web" / "dist" / "index.html"
    ).exists(), "the page is not built: (cd web && npm ci && npm run build)"
    assert shutil.which("npm"), "npm is not installed"
    artifacts = harness.ROOT / "artifacts" / "web-live"
    shutil.rmtree(artifacts, ignore_errors=True)
    page = subprocess.Popen(
        ["npm", "run", "--silent", "test:page"],
        cwd=harness.ROOT / "web",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "LOCKSTEP_URL": demo, "LOCKSTEP_ARTIFACTS": str(artifacts)},
    )
    try:
        output, _ = page.communicate(timeout=300)
    finally:
        if page.poll() is None:  # npm, node and the browser with all its processes
            os.killpg(page.pid, signal.SIGKILL)
            page.wait()
    assert page.returncode == 0, output
    assert "leads from the fleet to the guilty rank" in output, output
    with urllib.request.urlopen(demo + "/api/fleet") as answer:
        assert json.load(answer)["money_day"].endswith(" at 2.50 a GPU-hour"), "what the faults cost"
    assert {path.stem for path in artifacts.glob("*.png")} >= {"live-fleet", "live-job", "live-rank", "live-table"}
