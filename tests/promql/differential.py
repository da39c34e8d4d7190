#!/usr/bin/env python3
"""The same data and the same queries to a real Prometheus and to our evaluator; every difference is named.

    differential.py [--seed N] [--generated N] [--prometheus PROGRAM] [--write]

Data: counters with resets, gauges, gaps, stale markers, classic and native histograms, two hours of them, remote-written to
Prometheus. Queries: a list as broad as the compliance suite's, and N generated ones. Numbers may differ by 1e-12 of
their size (sums of many numbers in another order by more: TOLERANT). Exit status 1 where something differs."""
import argparse
import itertools
import json
import math
import pathlib
import random
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

from module import prometheus_program
from results import replace_section

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEP_MS = 15_000
SAMPLES = 480  # two hours
STALE = "stale"

# --- data


def histogram(rng, scale, custom):
    if custom:
        bounds = [0.1, 0.5, 1, 2.5, 10]
        counts = [float(rng.randint(0, 9) * scale) for _ in range(len(bounds) + 1)]
        return {"schema": -53, "custom": bounds, "offset": 0, "buckets": counts, "zero": 0.0, "threshold": 0.0, "negative": []}
    counts = [float(rng.randint(1, 9) * scale) for _ in range(6)]
    return {"schema": rng.choice([0, 0, 1]), "custom": [], "offset": -2, "buckets": counts, "zero": float(scale),
            "threshold": 0.001, "negative": [float(rng.randint(0, 3) * scale) for _ in range(3)]}


def add_up(total, part):
    for key in ("buckets", "negative"):
        total[key] = [a + b for a, b in zip(total[key], part[key])]
    total["zero"] += part["zero"]


def generate(seed, end_ms):
    """{labels as tuple: [(time, value)]}"""
    rng = random.Random(seed)
    times = [end_ms - (SAMPLES - 1 - i) * STEP_MS for i in range(SAMPLES)]
    series = {}

    def put(name, labels, values):
        series[tuple(sorted({"__name__": name, **labels}.items()))] = [(t, v) for t, v in zip(times, values) if v is not None]

    instances = [f"demo{i}" for i in range(3)]
    for instance, job in itertools.product(instances, ["api", "worker"]):
        base = {"instance": instance, "job": job}
        for mode in ["user", "system", "idle"]:
            value, values = rng.uniform(0, 100), []
            for _ in times:
                value = 0.0 if rng.random() < 0.004 else value + rng.uniform(0, 20)
                values.append(round(value, 3))
            put("demo_cpu_usage_seconds_total", {**base, "mode": mode}, values)
        walk, values = rng.uniform(1e9, 4e9), []
        for _ in times:
            walk += rng.uniform(-1e7, 1e7)
            values.append(None if rng.random() < 0.05 else walk)
        put("demo_memory_usage_bytes", {**base, "type": "used"}, values)
        put("demo_memory_usage_bytes", {**base, "type": "free"}, [rng.uniform(1e8, 2e9) for _ in times])
        put("demo_num_cpus", base, [float(4 + (i // 200)) for i in range(SAMPLES)])
        counts = [0.0] * 6
        columns = [[] for _ in counts]
        for _ in times:
            hit = rng.randint(0, 5)
            for k in range(hit, 6):
                counts[k] += rng.randint(1, 3)
            counts = [max(counts[: k + 1]) for k in range(6)]
            for k, column in enumerate(columns):
                column.append(counts[k])
        for bound, column in zip(["0.1", "0.5", "1", "2.5", "10", "+Inf"], columns):
            put("demo_api_request_duration_seconds_bucket", {**base, "le": bound}, column)
        put("demo_api_request_duration_seconds_count", base, columns[-1])
        put("demo_api_request_duration_seconds_sum", base, [c * 0.7 for c in columns[-1]])
        total, values = histogram(rng, 1, False), []
        for _ in times:
            part = histogram(rng, 1, False)
            if rng.random() < 0.005:
                total = histogram(rng, 1, False)
            else:
                part["schema"] = total["schema"]
                add_up(total, part)
            values.append(json.loads(json.dumps(total)))
        put("demo_native_seconds", base, values)
        total, values = histogram(rng, 1, True), []
        for _ in times:
            add_up(total, histogram(rng, 1, True))
            values.append(json.loads(json.dumps(total)))
        put("demo_custom_seconds", base, values)
    for instance in instances:
        put("demo_info", {"instance": instance, "version": f"1.{len(instance)}.{instance[-1]}"}, [1.0] * SAMPLES)
        put("target_info", {"instance": instance, "job": "api", "os": "linux", "version": f"2.{instance[-1]}"}, [1.0] * SAMPLES)
        put("demo_disk_usage_bytes", {"instance": instance}, [1e6 + 3.5 * i + rng.uniform(0, 1) for i in range(SAMPLES)])
    put("demo_intermittent", {"instance": "demo0"}, [float(i) if (i // 30) % 2 == 0 else (STALE if i % 30 == 0 else None) for i in range(SAMPLES)])
    put("demo_odd", {"kind": "nan"}, [float("nan") if i % 7 == 0 else float(i) for i in range(SAMPLES)])
    put("demo_odd", {"kind": "inf"}, [float("inf") if i % 50 == 0 else -float(i) for i in range(SAMPLES)])
    put("demo_odd", {"kind": "negative"}, [math.sin(i / 10) for i in range(SAMPLES)])
    put("demo_time", {}, [t / 1000 for t in times])
    return series


def text_of(value):
    if value == STALE:
        return STALE
    if isinstance(value, dict):
        parts = [f"schema:{value['schema']}", f"count:{count_of(value)!r}", f"sum:{sum_of(value)!r}"]
        if value["schema"] != -53:
            parts += [f"z_bucket:{value['zero']!r}", f"z_bucket_w:{value['threshold']!r}", f"offset:{value['offset']}"]
            parts.append("n_buckets:[" + " ".join(repr(x) for x in value["negative"]) + "]")
        else:
            parts.append("custom_values:[" + " ".join(repr(float(x)) for x in value["custom"]) + "]")
        parts.append("buckets:[" + " ".join(repr(x) for x in value["buckets"]) + "]")
        return "{{" + " ".join(parts) + "}}"
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


def count_of(h):
    return sum(h["buckets"]) + sum(h["negative"]) + h["zero"]


def sum_of(h):
    return count_of(h) * 0.8


# --- remote write 1.0, by hand


def varint(value):
    value &= (1 << 64) - 1
    out = b""
    while True:
        byte = value & 0x7F
        value >>= 7
        if not value:
            return out + bytes([byte])
        out += bytes([byte | 0x80])


def field(number, kind, body):
    return varint(number << 3 | kind) + (varint(len(body)) + body if kind == 2 else body)


def zigzag(value):
    return (value << 1) ^ (value >> 63)


def doubles(values):
    return b"".join(struct.pack("<d", v) for v in values)


def histogram_bytes(h, when):
    span = lambda offset, length: field(1, 0, varint(zigzag(offset))) + field(2, 0, varint(length))
    out = field(2, 1, struct.pack("<d", count_of(h))) + field(3, 1, struct.pack("<d", sum_of(h)))
    out += field(4, 0, varint(zigzag(h["schema"])))
    if h["schema"] != -53:
        out += field(5, 1, struct.pack("<d", h["threshold"])) + field(7, 1, struct.pack("<d", h["zero"]))
        out += field(8, 2, span(0, len(h["negative"]))) + field(10, 2, doubles(h["negative"]))
    else:
        out += field(16, 2, doubles([float(x) for x in h["custom"]]))
    out += field(11, 2, span(h["offset"], len(h["buckets"]))) + field(13, 2, doubles(h["buckets"]))
    return out + field(15, 0, varint(when))


def write_request(series, from_ms, to_ms):
    out = b""
    for labels, samples in series.items():
        body = b"".join(field(1, 2, field(1, 2, n.encode()) + field(2, 2, v.encode())) for n, v in labels)
        some = False
        for when, value in samples:
            if not from_ms <= when < to_ms:
                continue
            some = True
            if isinstance(value, dict):
                body += field(4, 2, histogram_bytes(value, when))
            else:
                raw = struct.pack("<Q", 0x7FF0000000000002) if value == STALE else struct.pack("<d", value)
                body += field(2, 2, field(1, 1, raw) + field(2, 0, varint(when)))
        if some:
            out += field(1, 2, body)
    return out


def snappy(data):
    """Valid, though nothing is compressed: literals only."""
    out = varint(len(data))
    for at in range(0, len(data), 60000):
        piece = data[at:at + 60000]
        out += bytes([61 << 2]) + struct.pack("<H", len(piece) - 1) + piece
    return out


# --- Prometheus


class Prometheus:
    FEATURES = "promql-experimental-functions,promql-duration-expr,promql-extended-range-selectors,promql-binop-fill-modifiers"

    def __init__(self, program, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        (folder / "prometheus.yml").write_text("global: {}\n")
        said = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
        known = re.search(r"version ([0-9.]+)", said)
        self.version = known.group(1) if known else "3.14.0"  # what is built from the module does not know its version
        old = self.version.startswith("2.")
        features = ["--enable-feature=native-histograms"] if old else [f"--enable-feature={self.FEATURES}"]
        self.log = open(folder / "log", "wb")
        self.process = subprocess.Popen(
            [program, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address=127.0.0.1:{self.port}", "--web.enable-remote-write-receiver", *features],
            stdout=self.log, stderr=self.log)
        for _ in range(300):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5).read()
                return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.2)  # the interval of the poll
        raise SystemExit("promql: Prometheus does not start: " + (folder / "log").read_text()[-500:])

    def write(self, body):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/api/v1/write", data=snappy(body),
            headers={"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf", "X-Prometheus-Remote-Write-Version": "0.1.0"})
        urllib.request.urlopen(request, timeout=120).read()

    def ask(self, start, end, step, query):
        path, form = "query", {"query": query, "time": f"{start / 1000:.3f}"}
        if step:
            path, form = "query_range", {"query": query, "start": f"{start / 1000:.3f}", "end": f"{end / 1000:.3f}", "step": f"{step / 1000:.3f}"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/api/v1/{path}", data=urllib.parse.urlencode(form).encode())
        try:
            return json.load(urllib.request.urlopen(request, timeout=120))
        except urllib.error.HTTPError as error:
            return json.load(error)

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


# --- queries


def templates():
    """As broad as the compliance suite's list."""
    cpu, memory, odd = "demo_cpu_usage_seconds_total", "demo_memory_usage_bytes", "demo_odd"
    buckets, native, custom = "demo_api_request_duration_seconds_bucket", "demo_native_seconds", "demo_custom_seconds"
    out = ["42", "1.234", ".123", "1.23e-3", "0x3d", "Inf", "-Inf", "NaN", "5m", "-2 ^ 3", "1 + 2 * 3 % 2", "1 / 0", "0 / 0",
           "1 > bool 0", '"text"', cpu, "{__name__=~'demo_.*'}", f"{cpu}{{mode='idle'}}", f"{cpu}{{mode!='idle'}}",
           f"{cpu}{{instance=~'demo.*', mode!~'i.*'}}", "missing_metric", f"{cpu} offset 1m", f"{cpu} offset -1m",
           f"{memory} @ start()", f"{memory} @ end()", "demo_intermittent", "demo_intermittent offset 5m", "-demo_memory_usage_bytes",
           "time()", "vector(time())", "scalar(demo_time)", "demo_time - time()", "pi()", "vector(1) or vector(2)"]
    for op in ["+", "-", "*", "/", "%", "^", "atan2"]:
        out += [f"{memory} {op} 3", f"3 {op} {memory}", f"{memory} {op} on(instance, job, type) {memory} offset 1m", f"1 {op} 3"]
    for op in ["==", "!=", "<", ">", "<=", ">="]:
        out += [f"{memory} {op} 1e9", f"{memory} {op} bool 1e9", f"1e9 {op} {memory}", f"{memory} {op} {memory} offset 2m",
                f"{memory} {op} bool {memory} offset 2m", f"1 {op} bool 2", f"{odd} {op} {odd}"]
    for op in ["sum", "avg", "max", "min", "count", "stddev", "stdvar", "group"]:
        for group in ["", "by() ", "by(instance) ", "by(instance, mode) ", "without(mode) ", "without() ", "by(missing) "]:
            out.append(f"{op} {group}({cpu})")
        out += [f"{op}({odd})", f"{op}({native})", f"{op} by(job) ({custom})"]
    out += [f"topk(2, {memory})", f"bottomk(2, {memory})", f"topk by(job) (1, {memory})", f"topk(0, {memory})", f"topk(100, {cpu})",
            f"quantile(0.9, {memory})", f"quantile(-1, {memory})", f"quantile(2, {memory})", f"quantile by(job) (0.5, {memory})",
            "count_values('v', demo_num_cpus)", f"limit_ratio(0.5, {cpu})", f"limit_ratio(-0.5, {cpu})"]
    ranged = ["rate", "increase", "delta", "irate", "idelta", "deriv", "changes", "resets", "sum_over_time", "avg_over_time",
              "min_over_time", "max_over_time", "count_over_time", "stddev_over_time", "stdvar_over_time", "last_over_time",
              "first_over_time", "present_over_time", "absent_over_time", "mad_over_time", "ts_of_max_over_time",
              "ts_of_min_over_time", "ts_of_first_over_time", "ts_of_last_over_time"]
    for name in ranged:
        for window in ["15s", "1m", "5m", "1h"]:
            out.append(f"{name}({cpu}[{window}])")
        out += [f"{name}({odd}[10m])", f"{name}({native}[5m])", f"{name}({custom}[5m])", f"{name}(demo_intermittent[20m])",
                f"{name}(missing[5m])", f"{name}({memory}[10m] offset 3m)", f"{name}({memory}[5m] @ end())",
                f"{name}(sum by(job) ({memory})[10m:1m])", f"{name}(rate({cpu}[2m])[10m:30s] offset 1m)"]
    for name in ["rate", "increase", "delta", "changes", "resets"]:
        out.append(f"{name}({cpu}[5m] anchored)")
    for name in ["rate", "increase", "delta"]:
        out.append(f"{name}({cpu}[5m] smoothed)")
    for name in ["abs", "ceil", "floor", "exp", "sqrt", "ln", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
                 "cosh", "tanh", "asinh", "acosh", "atanh", "rad", "deg", "sgn", "round"]:
        out += [f"{name}({odd})", f"{name}(-demo_num_cpus / 10)"]
    for name in ["year", "month", "day_of_month", "day_of_week", "day_of_year", "days_in_month", "hour", "minute"]:
        out += [f"{name}()", f"{name}(demo_time)", f"{name}(demo_time * 40 - 1e10)"]
    out += [f"quantile_over_time({q}, {memory}[10m])" for q in ["-1", "0", "0.3", "0.99", "1", "2"]]
    out += [f"predict_linear(demo_disk_usage_bytes[{w}], 3600)" for w in ["1m", "15m", "1h"]]
    out += [f"double_exponential_smoothing({memory}[10m], {a}, {b})" for a, b in [(0.1, 0.1), (0.5, 0.9), (1, 0.5)]]
    out += [f"clamp({odd}, -0.5, 0.5)", f"clamp({odd}, 1, -1)", f"clamp_min({odd}, 0)", f"clamp_max({odd}, 0)", f"round({odd}, 0.25)",
            f"timestamp({memory})", f"timestamp({memory} offset 1m)", f"timestamp(-{memory})", "absent(missing{a='b'})",
            f"absent({memory})", "absent(sum(missing))", f"sort({memory})", f"sort_desc({odd})", f"sort_by_label({cpu}, 'mode', 'instance')",
            f"label_replace({memory}, 'x', '$1-$2', 'instance', '(demo)(.*)')", f"label_replace({memory}, 'instance', '', 'type', '.*')",
            f"label_replace({memory}, 'job', 'same', '', '')", f"label_join({memory}, 'x', '-', 'instance', 'type')",
            f"label_replace({cpu}, '~bad', '', 'a', 'b')", f"info({memory}, {{__name__='demo_info'}})"]
    for q in ["-0.1", "0", "0.5", "0.9", "1", "1.1", "NaN"]:
        out += [f"histogram_quantile({q}, rate({buckets}[5m]))", f"histogram_quantile({q}, sum by(le, job) (rate({buckets}[5m])))",
                f"histogram_quantile({q}, {native})", f"histogram_quantile({q}, sum(rate({native}[5m])))", f"histogram_quantile({q}, {custom})"]
    for name in ["histogram_count", "histogram_sum", "histogram_avg", "histogram_stddev", "histogram_stdvar"]:
        out += [f"{name}({native})", f"{name}(rate({native}[5m]))", f"{name}(sum by(job) ({custom}))"]
    out += [f"histogram_fraction(0, 1, {native})", f"histogram_fraction(-1, 0.3, rate({custom}[5m]))", f"histogram_fraction(0, 1, rate({buckets}[5m]))",
            f"{native} * 2", f"2 * {native}", f"{native} / 3", f"{native} + {native}", f"{native} - {native} offset 1m", f"{native} == {native}",
            f"{native} != {native} offset 1m", f"{native} > 1", f"{native} + 1", f"-{native}", f"{native} + {custom}", f"{native} </ 1",
            f"{native} >/ 1", f"{custom} </ 1", f"count_values('v', {custom})", f"sum({native}) + sum({native})"]
    for histogram in [native, custom]:  # where bounds are cut, on both sides of zero and in its bucket
        for bound in ["-3", "-0.7", "-0.0005", "0", "0.0004", "0.3", "1.5", "30"]:
            out += [f"histogram_count({histogram} </ {bound})", f"histogram_sum({histogram} >/ {bound})", f"histogram_avg({histogram} >/ {bound})",
                    f"histogram_fraction(-Inf, {bound}, {histogram})", f"histogram_fraction({bound}, 20, rate({histogram}[5m]))"]
        for q in ["0.01", "0.1", "0.2", "0.35", "0.75", "0.99"]:
            out += [f"histogram_quantile({q}, {histogram})", f"histogram_quantile({q}, rate({histogram}[5m]))"]
        out += [f"histogram_quantiles({histogram}, 'q', 0.1, 0.9)", f"histogram_count(sum({histogram}) - sum({histogram} offset 1m))",
                f"histogram_count(avg by(job) ({histogram}))", f"histogram_sum(avg_over_time({histogram}[3m]))", f"histogram_sum(sum_over_time({histogram}[3m]))",
                f"histogram_stdvar({histogram} / 7)", f"histogram_sum(increase({histogram}[4m] offset 1m))", f"histogram_count(last_over_time({histogram}[2m]))"]
    out += [f"info({cpu})", f"info({memory}, {{os=~'.+'}})", f"info({memory}, {{version='2.1'}})", f"info(rate({cpu}[5m]), {{__name__=~'(demo|target)_info'}})",
            f"info({memory}, {{missing='x'}})", f"info({memory}, {{missing=~'.*'}})", f"info(target_info)", f"info({memory} offset 1m, {{__name__!='target_info'}})",
            f"info({native}, {{os!=''}})", f"sum by(os) (info({memory}))"]
    for op in ["and", "or", "unless"]:
        out += [f"{memory} {op} {memory}{{type='used'}}", f"{memory} {op} on(instance) demo_info", f"{memory} {op} ignoring(type) {cpu}"]
    out += [f"{memory} * on(instance) group_left(version) demo_info", f"demo_info * on(instance) group_right(version) {memory}",
            f"{memory} * on(instance) demo_info", f"{memory} / ignoring(type) {memory}", f"{memory} / ignoring(type) group_left {memory}{{type='free'}}",
            f"sum by(instance) ({memory}) / on(instance) demo_num_cpus{{job='api'}}",
            f"{memory}{{type='used'}} + ignoring(type) fill(0) {memory}{{type='free', job='api'}}",
            f"max_over_time((time() - max(demo_time) < 1000)[5m:10s] offset 5m)", f"avg_over_time(rate({cpu}[1m])[2m:10s])",
            f"{memory}[1m]", f"{native}[1m]", f"{memory}[1m:30s]", "rate(demo_cpu_usage_seconds_total)", f"sum({cpu}[5m])", "1 +", "foo{", "{}",
            f"{cpu}[step()]", f"rate({cpu}[max_of(1m, 90s)])", f"rate({cpu}[5m] offset (1m * 2))", "start()", "end() - start()", "step()", "range()"]
    return out


class Generator:
    """Random queries, types kept."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def pick(self, *choices):
        return self.rng.choice(choices)

    def selector(self):
        name = self.pick("demo_cpu_usage_seconds_total", "demo_memory_usage_bytes", "demo_num_cpus", "demo_odd", "demo_disk_usage_bytes",
                         "demo_api_request_duration_seconds_bucket", "demo_intermittent", "demo_native_seconds", "demo_custom_seconds", "demo_time")
        matchers = self.pick("", "", "", "{instance='demo1'}", "{job=~'a.*'}", "{instance!='demo0'}", "{job!~'w.*|x'}", "{mode='user'}")
        return name + matchers

    def modifiers(self):
        return self.pick("", "", "", "", " offset 1m", " offset -30s", " offset 17s", " @ start()", " @ end()")

    def window(self):
        return self.pick("15s", "31s", "1m", "2m30s", "5m", "10m", "1h")

    def matrix(self, depth):
        if depth > 0 and self.rng.random() < 0.2:
            return f"({self.vector(depth - 1)})[{self.window()}:{self.pick('', '30s', '1m', '7s')}]{self.modifiers()}"
        return f"{self.selector()}[{self.window()}]{self.modifiers()}"

    def scalar(self, depth):
        if depth <= 0 or self.rng.random() < 0.6:
            return self.pick("1", "0", "-1", "0.5", "2", "1e9", "time()", "0.99", "3")
        return self.pick(f"scalar({self.vector(depth - 1)})", f"({self.scalar(depth - 1)} {self.pick('+', '-', '*', '/')} {self.scalar(depth - 1)})")

    def vector(self, depth):
        if depth <= 0:
            return self.selector() + self.modifiers()
        kind = self.rng.random()
        if kind < 0.3:
            name = self.pick("rate", "increase", "delta", "irate", "idelta", "deriv", "changes", "resets", "sum_over_time", "avg_over_time",
                             "min_over_time", "max_over_time", "count_over_time", "stddev_over_time", "last_over_time", "first_over_time",
                             "present_over_time", "mad_over_time", "ts_of_max_over_time")
            return f"{name}({self.matrix(depth - 1)})"
        if kind < 0.36:
            return self.pick(f"quantile_over_time({self.pick('0.1', '0.5', '0.95')}, {self.matrix(depth - 1)})",
                             f"predict_linear({self.matrix(depth - 1)}, 600)")
        if kind < 0.6:
            op = self.pick("sum", "avg", "max", "min", "count", "group", "stddev", "stdvar")
            group = self.pick("", "by(instance)", "by(job)", "by(instance, job)", "without(mode)", "without(instance, le)", "by(le)")
            return f"{op} {group} ({self.vector(depth - 1)})"
        if kind < 0.66:
            return f"quantile {self.pick('', 'by(job)')} ({self.pick('0.2', '0.9')}, {self.vector(depth - 1)})"
        if kind < 0.74:
            name = self.pick("abs", "ceil", "floor", "sgn", "sqrt", "round", "deg", "histogram_count", "histogram_sum", "histogram_avg")
            return f"{name}({self.vector(depth - 1)})"
        if kind < 0.78:
            return f"histogram_quantile({self.pick('0.1', '0.5', '0.9')}, {self.vector(depth - 1)})"
        if kind < 0.86:
            op = self.pick("+", "-", "*", "/", "%", "^", "==", "!=", ">", "<", ">= bool", "<= bool")
            sides = [self.vector(depth - 1), self.scalar(depth - 1)]
            self.rng.shuffle(sides)
            return f"({sides[0]} {op} {sides[1]})"
        if kind < 0.95:
            op = self.pick("+", "-", "*", "/", "==", "> bool", "and", "or", "unless")
            how = self.pick("", "", "on(instance, job)", "ignoring(mode, type)", "on(job)")
            if op not in ("and", "or", "unless") and how and self.rng.random() < 0.4:
                how += self.pick(" group_left", " group_right")
            return f"({self.vector(depth - 1)} {op} {how} {self.vector(depth - 1)})"
        if kind < 0.97:
            return f"-({self.vector(depth - 1)})"
        return self.pick(f"label_replace({self.vector(depth - 1)}, 'x', '$1', 'instance', 'demo(.)')", f"clamp_min({self.vector(depth - 1)}, 1)",
                         f"absent({self.vector(depth - 1)})", f"timestamp({self.selector()})", f"sort({self.vector(depth - 1)})")

    def query(self):
        return self.vector(self.rng.randint(1, 4))


# --- comparison

# Where the two differ and ours is kept: (query, why).
KNOWN = [(re.compile(r"predict_linear\(.*:\w*\] @ "), "Prometheus answers nothing for predict_linear over a subquery with @")]

# Sums in which rounding is magnified: another order of adding shows further up.
TOLERANT = re.compile(r"stddev|stdvar|deriv|predict_linear|smoothing|\^|%|sin|cos|tan|round|ceil|floor|sgn")


def number(text):
    return float(text.replace("+Inf", "inf").replace("-Inf", "-inf"))


def near(a, b, tolerance):
    a, b = number(a), number(b)
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    if a == b:
        return True
    if math.isinf(a) or math.isinf(b):
        return False
    return abs(a - b) <= tolerance * max(abs(a), abs(b)) or abs(a - b) < 1e-300


def same_value(a, b, tolerance):
    if isinstance(a, list) != isinstance(b, list):
        return False
    if isinstance(a, list):
        return len(a) == len(b) and all(same_value(x, y, tolerance) for x, y in zip(a, b))
    return near(a, b, tolerance)


def theirs_as_ours(answer):
    """Prometheus's answer in the form promql_eval prints."""
    notes = sorted(answer.get("warnings", []) + answer.get("infos", []))
    if answer["status"] != "success":
        return {"error": answer["error"], "notes": notes, "series": []}
    data = answer["data"]
    out = {"error": "", "notes": notes, "series": []}
    if data["resultType"] == "scalar":
        out["scalar"] = data["result"][1]
    elif data["resultType"] == "string":
        out["string"] = data["result"][1]
    else:
        for series in data["result"]:
            points = [series["value"]] if "value" in series else series.get("values", [])
            histograms = [series["histogram"]] if "histogram" in series else series.get("histograms", [])
            values = [[round(t * 1000), v] for t, v in points]
            values += [[round(t * 1000), [h["count"], h["sum"]] + [b[1:] for b in h.get("buckets", [])]] for t, h in histograms]
            out["series"].append({"metric": series["metric"], "values": sorted(values, key=lambda v: v[0])})
    return out


def difference(query, ours, theirs):
    if bool(ours["error"]) != bool(theirs["error"]):
        return f"ours: {ours['error'] or 'a value'}; theirs: {theirs['error'] or 'a value'}"
    if ours["error"]:
        return None
    tolerance = 1e-5 if "%" in query else 1e-7 if TOLERANT.search(query) else 1e-12
    for kind in ("scalar", "string"):
        if (kind in ours) != (kind in theirs):
            return "another type"
    if "scalar" in ours:
        return None if near(ours["scalar"], theirs["scalar"], tolerance) else f"{ours['scalar']} instead of {theirs['scalar']}"
    if "string" in ours:
        return None if ours["string"] == theirs["string"] else "another string"
    key = lambda series: json.dumps(series["metric"], sort_keys=True)
    if query.startswith("sort") and [key(s) for s in ours["series"]] != [key(s) for s in theirs["series"]]:
        values = [s["values"][0][1] for s in ours["series"]]
        if len(set(map(str, values))) == len(values):
            return "another order"
    a, b = {key(s): s for s in ours["series"]}, {key(s): s for s in theirs["series"]}
    if a.keys() != b.keys():
        return f"{len(a)} series instead of {len(b)}; e.g. {sorted(a.keys() ^ b.keys())[0]}"
    for name in a:
        x, y = a[name]["values"], b[name]["values"]
        if [p[0] for p in x] != [p[0] for p in y]:
            return f"other times for {name}: {len(x)} points instead of {len(y)}"
        for p, q in zip(x, y):
            if not same_value(p[1], q[1], tolerance):
                return f"{p[1]} instead of {q[1]} at {p[0]} for {name}"
    return None


def comparable(notes):
    """Prometheus miscounts the samples that it fixed for monotonicity (its sum doubles with each merge)."""
    return sorted(re.sub(r"over \d+ samples", "over N samples", note) for note in notes)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--generated", type=int, default=3000)
    parser.add_argument("--prometheus", help="the program; else 3.14 from the cache, built where missing")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    program = options.prometheus or prometheus_program()
    end_ms = int(time.time()) // 60 * 60_000 - 60_000
    series = generate(options.seed, end_ms)
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work)
        server = Prometheus(program, folder)
        version = server.version
        try:
            for start in range(end_ms - SAMPLES * STEP_MS, end_ms + 1, 600_000):
                server.write(write_request(series, start, start + 600_000))
            with open(folder / "samples", "w") as data:
                for labels, samples in series.items():
                    text = "{" + ", ".join(f"{n}={json.dumps(v)}" for n, v in labels) + "}"
                    data.writelines(f"{text}\t{when} {text_of(value)}\n" for when, value in samples)
            rng = random.Random(options.seed)
            generator = Generator(options.seed)
            cases = []
            for query in templates():
                cases.append((end_ms - 600_000, 0, 0, query))
                cases.append((end_ms - 2_700_000, end_ms - 300_000, 60_000, query))
            for _ in range(options.generated):
                query = generator.query()
                at = end_ms - rng.randint(0, 5_400_000)
                cases.append((at, 0, 0, query) if rng.random() < 0.4 else (at - 900_000, at, rng.choice([10_000, 60_000, 77_000]), query))
            lines = "".join(f"{a} {b} {c} {q}\n" for a, b, c, q in cases)
            answer = subprocess.run([ROOT / "build" / "bin" / "promql_eval", folder / "samples"], input=lines, capture_output=True, text=True)
            ours = [json.loads(line) for line in answer.stdout.splitlines()]
            if len(ours) != len(cases):
                sys.exit(f"promql: {len(ours)} answers to {len(cases)} queries: {answer.stderr.strip()[-300:]}")
            differences, notes, known, errors, filled = [], [], {}, 0, 0
            for (start, end, step, query), mine in zip(cases, ours):
                theirs = theirs_as_ours(server.ask(start, end, step, query))
                errors += bool(theirs["error"])
                filled += bool(theirs["series"] or "scalar" in theirs or "string" in theirs)
                problem = difference(query, mine, theirs)
                kind = "range" if step else "instant"
                reason = next((why for pattern, why in KNOWN if pattern.search(query)), None)
                if problem and reason:
                    known[reason] = known.get(reason, 0) + 1
                elif problem:
                    differences.append(f"`{query}` {'range' if step else 'instant'}: {problem}")
                elif comparable(mine["notes"]) != comparable(theirs["notes"]) and not mine["error"]:
                    notes.append(f"`{query}` {kind}: ours {sorted(mine['notes'])}, theirs {theirs['notes']}")
        finally:
            server.stop()
    fixed = 2 * len(templates())
    text = (f"Against Prometheus {version}, seed {options.seed}: {fixed} queries from the list and {options.generated:,} generated ones over "
            f"{len(series)} series of {SAMPLES} samples; {len(cases) - len(differences) - sum(known.values()):,} of {len(cases):,} agree ({filled:,} have a value, "
            f"{errors} are errors, the rest are empty); notes (warnings, infos) differ in {len(notes)}.\n")
    text += "".join(f"- known, {count} times: {reason}\n" for reason, count in known.items())
    text += "\n".join(f"- {line[:400]}" for line in differences[:60])
    if notes:
        text += "\n\nNotes that differ:\n\n" + "\n".join(f"- {line[:900]}" for line in notes[:10])
    print(text)
    if options.write:
        replace_section(ROOT / "bench" / "results" / "promql.md", f"Beside Prometheus {version}", text)
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
