#!/usr/bin/env python3
"""Writes src/query/promql/testing/answers.test: queries with our evaluator's answers, which the unit tests hold it to.

    answers.py            (after ./dev build dev promql_eval)

The values are right because differential.py holds the same queries against a real Prometheus; run that first, and look at the difference
before it is committed. The unit tests need neither, and take a second."""
import json
import math
import pathlib
import random
import subprocess
import tempfile

from differential import Generator, templates, text_of, number

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "src/query/promql/testing/answers.test"
STEP_MS, SAMPLES = 15_000, 61
START_MS, END_MS, EVERY_MS = 300_000, 900_000, 300_000
GENERATED = 200


def data():
    """{series: [value, or None for none]}, short enough to be read."""
    rng = random.Random(7)
    series = {}
    for instance, job in (("demo0", "api"), ("demo1", "worker")):
        labels = f'instance="{instance}", job="{job}"'
        for mode in ("idle", "user"):
            value, values = float(rng.randint(0, 50)), []
            for i in range(SAMPLES):
                value = 0.0 if rng.random() < 0.04 else value + rng.randint(0, 20)
                values.append(value)
            series[f'demo_cpu_usage_seconds_total{{{labels}, mode="{mode}"}}'] = values
        for kind in ("used", "free"):
            series[f'demo_memory_usage_bytes{{{labels}, type="{kind}"}}'] = [
                None if rng.random() < 0.08 else float(rng.randint(500, 2000)) * 1e6 for _ in range(SAMPLES)]
        series[f"demo_num_cpus{{{labels}}}"] = [float(4 + i // 30) for i in range(SAMPLES)]
        counts, columns = [0.0] * 4, [[] for _ in range(4)]
        for _ in range(SAMPLES):
            for k in range(rng.randint(0, 3), 4):
                counts[k] += rng.randint(1, 3)
            counts = [max(counts[:k + 1]) for k in range(4)]
            for k in range(4):
                columns[k].append(counts[k])
        for bound, column in zip(("0.1", "1", "10", "+Inf"), columns):
            series[f'demo_api_request_duration_seconds_bucket{{{labels}, le="{bound}"}}'] = column
        for name, custom in (("demo_native_seconds", False), ("demo_custom_seconds", True)):
            size = 4 if custom else 5
            buckets, negative, zero, values = [0.0] * size, [0.0] * 2, 0.0, []
            for i in range(SAMPLES):
                if rng.random() < 0.03:
                    buckets, negative, zero = [0.0] * size, [0.0] * 2, 0.0
                buckets = [b + rng.randint(0, 4) for b in buckets]
                negative = [b + rng.randint(0, 2) for b in negative]
                zero += 1
                values.append({"schema": -53 if custom else (0 if instance == "demo0" else 1), "custom": [0.1, 1, 10], "offset": 0 if custom else -2,
                               "buckets": buckets, "zero": 0.0 if custom else zero, "threshold": 0.0 if custom else 0.001,
                               "negative": [] if custom else negative})
            series[f"{name}{{{labels}}}"] = values
        series[f'demo_info{{instance="{instance}", version="1.{instance[-1]}"}}'] = [1.0] * SAMPLES
        series[f'target_info{{instance="{instance}", job="{job}", os="linux", version="2.{instance[-1]}"}}'] = [1.0] * SAMPLES
        series[f'demo_disk_usage_bytes{{instance="{instance}"}}'] = [1000 + 3.5 * i + rng.randint(0, 2) for i in range(SAMPLES)]
    series['demo_intermittent{instance="demo0"}'] = [float(i) if (i // 12) % 2 == 0 else ("stale" if i % 12 == 0 else None) for i in range(SAMPLES)]
    series['demo_odd{kind="nan"}'] = [float("nan") if i % 7 == 0 else float(i) for i in range(SAMPLES)]
    series['demo_odd{kind="inf"}'] = [float("inf") if i % 25 == 0 else -float(i) for i in range(SAMPLES)]
    series['demo_odd{kind="negative"}'] = [round(math.sin(i / 10), 3) for i in range(SAMPLES)]
    series["demo_time"] = [i * STEP_MS / 1000 for i in range(SAMPLES)]
    return series


def short(value):
    if value is None:
        return "_"
    if isinstance(value, dict):
        return text_of(value).replace(".0 ", " ").replace(".0]", "]")
    return str(int(value)) if isinstance(value, float) and value.is_integer() else text_of(value)


def value_text(text):
    value = number(text)
    return text if math.isnan(value) or math.isinf(value) else f"{value:.9g}"


def ask(program, data_file, lines):
    done = subprocess.run([program, data_file], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def case(query, answer, ranged):
    """None where the script cannot say it."""
    if "\n" in query or any(isinstance(v, list) for s in answer["series"] for _, v in s["values"]):
        return None
    head = f"eval range from {START_MS // 1000}s to {END_MS // 1000}s step {EVERY_MS // 1000}s {query}" if ranged else f"eval instant at {END_MS // 1000}s {query}"
    lines = [head]
    if answer["error"]:
        return "\n".join(lines + [f"  expect fail msg:{answer['error']}"])
    for kind in ("warn", "info"):
        lines.append(f"  expect {'' if any(note.startswith(f'PromQL {kind}') for note in answer['notes']) else 'no_'}{kind}")
    if "string" in answer:
        return None
    if "scalar" in answer and not ranged:
        return "\n".join(lines + ["  " + value_text(answer["scalar"])])
    for series in answer["series"]:
        metric = dict(series["metric"])
        name = metric.pop("__name__", "")
        labels = "{" + ", ".join(f'{k}="{v}"' for k, v in sorted(metric.items())) + "}"
        found = {when: value_text(value) for when, value in series["values"]}
        if not ranged and len(found) != 1:
            return None
        times = range(START_MS, END_MS + 1, EVERY_MS) if ranged else [*found]
        lines.append(f"  {name}{labels} " + " ".join(found.get(when, "_") for when in times))
    return "\n".join(lines)


def main():
    series = data()
    queries = templates()
    generator = Generator(3)
    queries += [generator.query() for _ in range(GENERATED)]
    program = ROOT / "build/dev/bin/promql_eval"
    text = "# Written by tests/promql/answers.py; see there.\nload 15s\n"
    text += "".join(f"  {name} {' '.join(short(value) for value in values)}\n" for name, values in series.items())
    with tempfile.NamedTemporaryFile("w", suffix=".data") as file:
        for name, values in series.items():
            for i, value in enumerate(values):
                if value is not None:
                    file.write(f"{name}\t{i * STEP_MS} {text_of(value)}\n")
        file.flush()
        histograms = []
        for ranged in (True, False):
            times = f"{START_MS} {END_MS} {EVERY_MS}" if ranged else f"{END_MS} 0 0"
            answers = ask(program, file.name, [f"{times} {query}" for query in queries])
            if ranged:
                for query, answer in zip(queries, answers):
                    if any(isinstance(v, list) for s in answer["series"] for _, v in s["values"]):
                        histograms += [f"histogram_count({query})", f"histogram_sum({query})", f"histogram_quantile(0.6, {query})", f"histogram_fraction(-0.2, 0.7, {query})"]
            cases = [case(query, answer, ranged) for query, answer in zip(queries, answers)]
            if not ranged:  # what a range query answers otherwise or not at all
                cases = [one for query, one in zip(queries, cases) if one and ("sort" in query or "topk" in query or "bottomk" in query or "limit" in query)]
            text += "".join(f"\n{one}\n" for one in cases if one and len(one) < 4000)
        answers = ask(program, file.name, [f"{START_MS} {END_MS} {EVERY_MS} {query}" for query in histograms])
        text += "".join(f"\n{one}\n" for one in (case(q, a, True) for q, a in zip(histograms, answers)) if one)
    OUT.write_text(text)
    print(f"{OUT.relative_to(ROOT)}: {text.count(chr(10) + 'eval ')} cases, {len(text)} bytes")


if __name__ == "__main__":
    main()
