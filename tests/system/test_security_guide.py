"""The set-up in docs/guide/security.md, run as it stands there."""
import os
import pathlib
import shlex
import subprocess

import harness

GUIDE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "guide" / "security.md"


def commands():
    """The lines of the first block of commands."""
    lines = GUIDE.read_text().splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith("    "))
    block = []
    for line in lines[first:]:
        if not line.startswith("    "):
            break
        block.append(line.strip())
    return block


def test_the_five_commands_of_the_guide_do_what_they_say(tmp_path):
    block = commands()
    assert len(block) == 5
    server_at = next(at for at, line in enumerate(block) if line.startswith("lockstepd "))

    def run(lines, **variables):
        environment = {**os.environ, "PATH": f"{pathlib.Path(harness.BIN).resolve()}:{os.environ['PATH']}", **variables}
        script = "set -e\n" + "\n".join(lines)
        done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done

    run(block[:server_at])
    words = shlex.split(block[server_at])[1:]
    assert words[:2] == ["--data", "DIR"]
    server = harness.Server(tmp_path / "data", more=[tmp_path / word if word.endswith(".token") else word for word in words[2:]])
    try:
        url = f"http://{server.http}"
        run(block[server_at + 1 :], LOCKSTEP_SERVER=url)
        seen = {}
        for name in ("agents.token", "me.token"):
            token = (tmp_path / name).read_text().strip()
            assert token.startswith("lst_")
            answer = harness.request(server.http, "GET", "/api/jobs", headers={"Authorization": f"Bearer {token}"})
            seen[name] = answer.status
        assert seen == {"agents.token": 403, "me.token": 200}
    finally:
        server.stop()
