"""One memory budget for the process: hostile clients at full speed leave its memory flat, /healthz quick, and the others
served. HOSTILE_SECONDS says for how long (./dev soak: 300)."""

import os
import statistics

import harness
import hostile
import pytest

MEMORY_MAX = 300 << 20
SLACK = hostile.SLACK
SECONDS = float(os.environ.get("HOSTILE_SECONDS", "6"))


@pytest.mark.limit(SECONDS + 150)
def test_hostile_clients_at_full_speed_leave_memory_flat_and_the_others_served(start, tmp_path):
    server = start(harness.Server, tmp_path / "data", more=["--memory-max", MEMORY_MAX])
    target = hostile.Target(server.pid, server.http, server.otlp_http)
    assert target.write(1) == 204
    attack = hostile.Attack(target).run(SECONDS)
    seen = f"{attack.resident_max >> 20} MiB, {attack.honest}, {attack.answers}"
    assert server.running(), seen
    assert attack.resident_max < MEMORY_MAX + SLACK, seen
    assert statistics.median(attack.health_s) < 1 and max(attack.health_s) < 20, sorted(attack.health_s)[-5:]
    for sort in hostile.ATTACKS:
        assert any(answer.startswith(sort.__name__) for answer in attack.answers), f"{sort.__name__} never came: {seen}"

    # Nothing of it stays: who is honest is served, and what was taken has been given back.
    harness.eventually(lambda: target.write(2) == 204 and target.value() == 2, 60, f"an honest write; {seen}")
    counters = target.counters()
    refused = sum(number for name, number in counters.items() if name.startswith("lockstep_memory_refused_total"))
    assert refused > 0, counters
    assert sum(n for name, n in counters.items() if name.startswith("lockstep_ingest_undecodable_requests_total")) > 0

    def given_back():
        now = target.counters()
        uses = ("bodies", "decoding", "queue", "queries")
        return all(now[f'lockstep_memory_bytes{{use="{use}"}}'] < 8 << 20 for use in uses)

    harness.eventually(given_back, 60, f"{target.counters()}")
    assert target.resident_bytes() < MEMORY_MAX
