"""Fixtures: processes that are gone when the test is, and a limit on every test's time."""

import os
import signal
import time

import pytest

import harness

# Nothing here leaves loopback, and the SDK takes its settings from the tests alone; whom to trust too, which Python's
# requests would believe the environment about before what it is told.
ELSEWHERE = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "requests_ca_bundle", "curl_ca_bundle")
for name in list(os.environ):
    if name.lower() in ELSEWHERE or name.startswith(("OTEL_", "AWS_")):
        del os.environ[name]
    elif name.startswith("LOCKSTEP_") and name not in ("LOCKSTEP_BIN", "LOCKSTEP_CHROMIUM", "LOCKSTEP_ARTIFACTS"):
        del os.environ[name]

LIMIT_S = 60


def pytest_configure(config):
    config.addinivalue_line("markers", f"limit(seconds): the test's limit in time ({LIMIT_S} s unless told), on an idle machine")


def pytest_sessionstart(session):
    missing = [name for name in ("lockstepd", "lockstep-agent", "lockstep") if not (harness.BIN / name).exists()]
    if missing:
        raise pytest.UsageError(f"{harness.BIN} has no {', '.join(missing)}: build first (./dev build)")


@pytest.fixture(autouse=True)
def limit(request):
    marker = request.node.get_closest_marker("limit")
    seconds = marker.args[0] if marker else LIMIT_S
    began = time.monotonic()

    def on_alarm(number, frame):
        left = seconds * harness.patience() - (time.monotonic() - began)
        if left <= 0:
            raise TimeoutError(f"{request.node.name} took longer than {time.monotonic() - began:.0f} s")
        signal.setitimer(signal.ITIMER_REAL, left)

    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def start(request):
    """start(Server, ...) or start(Agent, ...): killed at the end if the test has not ended it."""
    daemons = []

    def start_one(kind, *arguments, **options):
        daemons.append(kind(*arguments, **options))
        return daemons[-1]

    yield start_one
    for daemon in daemons:
        daemon.kill()


@pytest.fixture
def server(start, tmp_path):
    """A fresh server on free ports. It must still be alive when the test is over, unless the test ended it."""
    one = start(harness.Server, tmp_path / "data")
    yield one
    assert one.process.poll() in (
        None,
        0,
        -signal.SIGKILL,
    ), f"lockstepd has ended with {one.process.poll()}:\n{one.log()}"
