"""A fabric and daemons that are gone when the test is. What the system tests share is used here too (tests/system/harness.py)."""

import pathlib
import sys

import pytest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / "system"), str(pathlib.Path(__file__).resolve().parent)]

from fabric_world import Fabric  # noqa: E402


@pytest.fixture
def fabric(tmp_path):
    folder = tmp_path / "ovs"
    folder.mkdir()
    world = Fabric(folder)
    yield world
    world.close()


@pytest.fixture
def start():
    """start(Server, ...): killed at the end if the test has not ended it."""
    daemons = []

    def start_one(kind, *arguments, **options):
        daemons.append(kind(*arguments, **options))
        return daemons[-1]

    yield start_one
    for daemon in daemons:
        daemon.kill()
