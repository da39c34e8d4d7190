"""The parts of these tests that need no GPU: statistics, judging, the RAS client, the reading of recorded callbacks,
the Python hook against a trace.

    python3 -m unittest discover -s tests/gpu -p 'test_*.py'"""
import argparse
import http.server
import json
import pathlib
import socket
import sys
import tempfile
import threading
import unittest
import unittest.mock as mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import blocks
import hook
import hook_compare
import hook_rank
import live
import live_outside
import masks
import overhead
import plugins
import ras
import run


def said(at_s, state, rank, layer="gpu", kind="slow", verdict_id="a", cause="slow-compute"):
    return {"id": verdict_id, "state": state, "kind": kind, "ranks": [rank], "layer": layer, "cause": cause, "at_unix_ns": int(at_s * 1e9),
            "found_unix_ns": 0, "sentence": ""}


class Clock:
    """In place of the module time."""

    def __init__(self):
        self.ns = 0

    def pass_ms(self, ms):
        self.ns += ms * 1_000_000

    def perf_counter_ns(self):
        return self.ns

    def thread_time_ns(self):
        return 0  # nobody was at work


class Overhead(unittest.TestCase):
    def test_interval_is_students(self):
        mean, half = overhead.mean_and_half_width([1.0, 2.0, 3.0, 4.0, 5.0])
        self.assertEqual(mean, 3.0)
        self.assertAlmostEqual(half, 1.9633, places=3)  # 2.776 * sqrt(2.5) / sqrt(5)
        self.assertEqual(overhead.mean_and_half_width([7.0]), (7.0, None))
        self.assertAlmostEqual(overhead.mean_and_half_width([0.0, 1.0] * 50)[1], 1.96 * 0.50252 / 10, places=4)

    def test_warm_up_and_the_first_step_of_a_block_do_not_count(self):
        rank = [1000.0] * 20 + ([500.0] + [10.0] * 9) * 2
        self.assertEqual(overhead.blocks_of([rank, rank]), [[10.0] * 9] * 2)

    def test_difference_is_relative_to_off(self):
        pair = overhead.compare([[101.0] * 9, [103.0] * 9], [[100.0] * 9, [100.0] * 9])
        self.assertAlmostEqual(pair["difference"], 0.02)
        self.assertAlmostEqual(pair["block_differences"][1], 0.03)
        self.assertEqual(overhead.summary([pair, pair])["half_width"], 0.0)


class FullNode(unittest.TestCase):
    """Conditions that take turns in blocks of one run (blocks.py)."""

    CONDITIONS = {"off": {}, "on": {}}

    def steps(self, cost, first_ms=0, stall_in=None):
        """When each step of 100 ms began, in 40 blocks of 20: dearer by `cost` while "on", and the first of such a block by first_ms."""
        began = [0]
        for block in range(40):
            on = blocks.plan_of(self.CONDITIONS, 1, block) == "on"
            for step in range(20):
                took = 100 * (1 + cost * on) + (first_ms if on and step == 0 else 0)
                began.append(began[-1] + 1e6 * (3000 if stall_in == block and step == 15 else took))
        return began

    def compared(self, **what):
        return blocks.compare(blocks.blocks_of([self.steps(**what)] * 2, 20), self.CONDITIONS, 1)["on"]

    def test_what_is_dearer_while_on_is_found(self):
        row = self.compared(cost=0.02)
        for measure in blocks.MEASURES:
            self.assertAlmostEqual(row[measure], 1.98, places=2)

    def test_the_backlog_of_an_agent_that_stood_still_does_not_count(self):
        self.assertAlmostEqual(self.compared(cost=0, first_ms=80)["mean"], 0)

    def test_a_stall_moves_the_mean_and_is_counted(self):
        stalled = next(block for block in range(40) if blocks.plan_of(self.CONDITIONS, 1, block) == "on")
        row = self.compared(cost=0, stall_in=stalled)
        self.assertGreater(row["mean"], 1)
        self.assertLess(row["typical"], row["mean"] / 5)
        self.assertEqual(row["median"], 0)
        self.assertGreater(row["stalls"], 0)

    def test_blocks_that_settle_to_their_end_are_an_error(self):
        with self.assertRaisesRegex(ValueError, "--block should be larger"):
            blocks.blocks_of([self.steps(cost=0)], 5)


class FakeSide:
    """A job whose all-reduces take base_us and a cost on top, on a clock of its own; the machine gets slower by the block."""

    def __init__(self, machine, cost_us, settle_s=0.0):
        self.machine, self.cost_us, self.settle_s, self.blocks = machine, cost_us, settle_s, []

    def block(self, size, count, settle):
        self.blocks.append((size, count, settle))
        self.machine["drift"] *= 1.001
        us = (100 + size / 1000) * self.machine["drift"] + self.cost_us
        self.machine["now"] += us * (count + settle) / 1e6
        return us


class Masks(unittest.TestCase):
    def run_sides(self, seconds):
        machine = {"now": 0.0, "drift": 1.0}
        sides = {"none": FakeSide(machine, 0), "null": FakeSide(machine, 0), "auto": FakeSide(machine, 1, settle_s=0.6), "low": FakeSide(machine, 0), "full": FakeSide(machine, 10)}
        rounds = []
        us = masks.measure(sides, [65536, 1 << 20], seconds, clock=lambda: machine["now"], said=lambda line, **_: rounds.append(line))
        return sides, us, rounds, machine["now"]

    def test_sizes_go_from_64_kb_to_16_mb(self):
        self.assertEqual([masks.size_text(size) for size in masks.SIZES], ["64 KB", "128 KB", "256 KB", "512 KB", "1 MB", "2 MB", "4 MB", "8 MB", "16 MB"])

    def test_a_cost_is_found_although_the_machine_gets_slower(self):
        _, us, _, _ = self.run_sides(60)
        compared = masks.compare(us)
        for size, row in compared.items():
            self.assertGreater(row["rounds"], 8)
            self.assertAlmostEqual(row["full"]["us"], 10, delta=2)
            self.assertLess(abs(row["full"]["us"] - 10), row["full"]["us_half"] + 0.5)
            self.assertLess(abs(row["null"]["us"]), row["null"]["us_half"] + 0.1)

    def test_every_side_runs_every_size_once_a_round_and_the_first_round_does_not_count(self):
        sides, us, rounds, _ = self.run_sides(20)
        for name, side in sides.items():
            self.assertEqual(len(side.blocks), 2 * len(rounds), name)
            self.assertEqual(len(us[65536][name]), len(rounds) - 1)
        self.assertTrue(all(settle == 0 for _, _, settle in sides["full"].blocks))
        self.assertTrue(all(settle > 0 for _, _, settle in sides["auto"].blocks[2:]), "what the plugin chooses needs time to show")

    def test_no_round_is_begun_that_would_not_end_in_time(self):
        _, _, rounds, now = self.run_sides(20)
        self.assertGreater(len(rounds), 3)
        self.assertLess(now, 21)

    def test_the_table_is_markdown_with_an_interval_in_every_cell(self):
        _, us, _, _ = self.run_sides(20)
        lines = masks.table(masks.compare(us)).splitlines()
        self.assertEqual(len(lines), 4)
        self.assertEqual({line.count("|") for line in lines}, {8})
        self.assertIn("| 64 KB |", lines[2])
        self.assertEqual(lines[2].count("±"), 8)

    def test_sizes_that_are_none_are_refused(self):
        self.assertEqual(masks.sizes_of("4096,1048576"), [4096, 1048576])
        for text in ("0", "6", "-4"):
            with self.assertRaises(argparse.ArgumentTypeError):
                masks.sizes_of(text)


class Judging(unittest.TestCase):
    truth = live.slow(1, "gpu")

    def test_times_count_from_the_beginning_of_the_fault(self):
        result = live.judge([said(12, "suspected", 1), said(14, "confirmed", 1)], self.truth, int(10e9))
        self.assertTrue(result["right"])
        self.assertEqual((result["suspected_s"], result["confirmed_s"]), (2.0, 4.0))

    def test_a_wrong_rank_or_layer_is_false_and_counts_once(self):
        result = live.judge([said(12, "confirmed", 2), said(13, "confirmed", 2), said(14, "confirmed", 1, verdict_id="b")], self.truth, int(10e9))
        self.assertFalse(result["right"])
        self.assertEqual(result["false"], ["slow 2 gpu/slow-compute"])
        self.assertFalse(live.judge([said(12, "confirmed", 1, layer="host")], self.truth, int(10e9))["right"])

    def test_a_suspicion_is_no_answer_but_a_wrong_one_is_told(self):
        result = live.judge([said(12, "suspected", 1), said(12, "suspected", 3)], self.truth, int(10e9))
        self.assertFalse(result["right"])
        self.assertEqual(result["false_suspicions"], ["slow 3 gpu/slow-compute"])
        self.assertIn("(suspected)", result["named"])

    def test_a_healthy_job_has_no_verdict(self):
        self.assertTrue(live.judge([], None, None)["right"])
        self.assertFalse(live.judge([said(12, "confirmed", 1)], None, None)["right"])

    def test_watch_asks_a_server_until_the_right_answer_has_lasted(self):
        asked = []

        class Why(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path)
                self.send_response(404 if len(asked) == 1 else 200)
                self.end_headers()
                state = "suspected" if len(asked) == 2 else "confirmed"
                verdict = {"id": "a", "state": state, "kind": "slow", "culprit": {"rank": [1], "layer": "gpu", "cause": "slow-compute"},
                           "found_unix_ns": 1, "sentence": "Rank 1 is slow."}
                self.wfile.write(json.dumps({"verdicts": [verdict]}).encode())

            def log_message(self, *_):
                pass

        server = http.server.HTTPServer(("127.0.0.1", 0), Why)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        old, live.AFTER_S = live.AFTER_S, 0.3
        try:
            answers, _ = live.watch(f"127.0.0.1:{server.server_port}", "job", self.truth, lambda: None, lambda: True)
        finally:
            live.AFTER_S = old
            server.shutdown()
            server.server_close()
        self.assertEqual([one["state"] for one in answers], ["suspected", "confirmed"])
        self.assertEqual(asked[0], "/api/jobs/job/why")

    def test_every_case_names_a_job_and_its_truth(self):
        for name, (job, case, truth) in live.CASES.items():
            self.assertTrue(name.startswith(job))
            self.assertEqual(truth is None, case == "healthy")
            if truth:
                self.assertIn(f"_r{truth['rank']}", name)
                self.assertEqual(case.split(":")[1], str(truth["rank"]))


class LiveOutside(unittest.TestCase):
    def test_every_case_has_the_truth_of_its_name(self):
        for name, case in live_outside.CASES.items():
            self.assertTrue(name.startswith(case["job"]))
            ranks = {int(word[1:]) for word in name.split("_") if word[0] == "r" and word[1:].isdigit()}
            self.assertEqual({truth["rank"] for truth in live_outside.truths_of(case)}, ranks)

    def test_two_faults_are_named_when_both_are_and_anything_else_is_false(self):
        truths = [live.slow(1, "gpu"), live.slow(2, "link")]
        result = live_outside.judge([said(12, "confirmed", 1), said(13, "confirmed", 5, verdict_id="b")], truths, int(10e9))
        self.assertEqual(result["named"], [True, False])
        self.assertEqual(result["confirmed_s"], [2.0, None])
        self.assertEqual(len(result["false"]), 1)
        self.assertEqual(live_outside.judge([], [], 0)["named"], [])


class Ras(unittest.TestCase):
    def test_asks_line_by_line_and_keeps_every_byte(self):
        listener = socket.create_server(("127.0.0.1", 0))
        heard = []

        def serve():
            connection, _ = listener.accept()
            with connection, connection.makefile("r") as lines:
                for answer in (b"SERVER PROTOCOL 2\n", b"OK\n", b"{\n}\n"):
                    heard.append(lines.readline().strip())
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        answer = ras.ask(["CLIENT PROTOCOL 2", "SET FORMAT json", "VERBOSE STATUS"], listener.getsockname())
        thread.join()
        listener.close()
        self.assertEqual(answer, b"SERVER PROTOCOL 2\nOK\n{\n}\n")
        self.assertEqual(heard, ["CLIENT PROTOCOL 2", "SET FORMAT json", "VERBOSE STATUS"])


class Calls(unittest.TestCase):
    def check(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rank0.calls"
            path.write_text(text)
            return plugins.check_calls(path)

    def test_a_good_recording_has_no_mistakes(self):
        events, mistakes = self.check("H 1 0 4 node0 1 1\nI 1 1 1 9 4 4 0 -\nS 2 1 1 8 2 0 0 0 AllGather 8 0 ncclInt8 1 3 RING LL 0\n"
                                      "S 3 2 1 9 64 8 0 0 5\nR 4 2 9 22 6\nX 4 2 9\nX 5 1 8\nF 6 1 1\n")
        self.assertEqual(mistakes, [])
        self.assertEqual((events[2], events[64], events["state 22"], events["F"]), (1, 1, 1, 1))

    def test_handles_nobody_gave_out_are_seen(self):
        _, mistakes = self.check("S 2 1 1 8 64 77 0 0 5\nX 3 1 8\nX 3 1 8\nR 4 1 12345 22 6\n")
        self.assertEqual(mistakes, ["1 handles never given out", "1 handles stopped twice", "1 parents never given out"])


class HookCost(unittest.TestCase):
    def test_interval_of_the_median_is_made_of_order_statistics(self):
        self.assertEqual(hook_compare.median_and_interval(list(range(101))), (50, 40, 61))
        self.assertEqual(hook_compare.median_and_interval([3.0, 1.0, 2.0]), (2.0, 1.0, 3.0))

    def test_a_dear_hook_shows_as_difference_and_not_as_null(self):
        steps = [102.0 if hook_rank.ON[step % 4] else 100.0 for step in range(60)]
        told = hook_compare.turns_of([steps, steps])
        self.assertAlmostEqual(told["difference"]["median"], 0.02)
        self.assertEqual((told["null"]["median"], told["difference"]["count"], told["null"]["count"]), (0.0, 20, 19))
        self.assertEqual((told["on_ms"], told["off_ms"]), (102.0, 100.0))

    def test_a_machine_that_gets_slower_does_not_look_like_a_dear_hook(self):
        told = hook_compare.turns_of([[100.0 + step for step in range(220)]])
        self.assertLess(abs(told["difference"]["mean"]), 0.0005)

    def test_too_few_steps_are_an_error(self):
        with self.assertRaises(RuntimeError):
            hook_compare.turns_of([[1.0] * 27])

    def test_time_in_the_hook_is_told_per_step_without_the_warm_up(self):
        def reading(steps, us):
            return {"steps": steps, "ns": us * 1000, "cpu_ns": us * 500, "calls": steps * 6, "entry_points": {"a": us * 250} if steps else {}}

        readings = [reading(0, 0), reading(9, 9000), reading(19, 10000), reading(29, 10500), reading(39, 11100)]
        told = hook_compare.counted_of([{"readings": readings, "timer_ns": 100.0}, {"readings": readings, "timer_ns": 100.0}])
        self.assertAlmostEqual(told["us_per_step"], 55.0)
        self.assertAlmostEqual(told["cpu_us_per_step"], 27.5)
        self.assertAlmostEqual(told["entry_points_us"]["a"], 13.75)
        self.assertEqual((told["us_worst_block"], told["calls_per_step"]), (60.0, 6.0))
        self.assertAlmostEqual(told["clock_us_per_step"], 0.6)
        with self.assertRaises(RuntimeError):
            hook_compare.counted_of([{"readings": [reading(0, 0)] * 5, "timer_ns": 1.0}])

    def test_an_entry_point_inside_another_counts_once(self):
        counted = hook_rank.Counted(argparse.Namespace(_marks=argparse.Namespace(steps=7)))
        counted.plain = lambda name, default=None: lambda function: function
        inner = counted.guarded("inner")(lambda: 1)
        outer = counted.guarded("outer")(lambda: inner() + 1)
        self.assertEqual((outer(), counted.calls, counted.depth), (2, 1, 0))
        self.assertEqual(len(counted.entry_points), 1)
        self.assertEqual((counted.readline(), counted.readings[0]["steps"]), ("go\n", 7))

    def test_what_the_jobs_own_call_takes_is_not_the_hooks(self):
        counted = hook_rank.Counted(argparse.Namespace(_marks=argparse.Namespace(steps=7)))
        clock = Clock()
        self.enterContext(mock.patch.object(hook_rank, "time", clock))

        def own(told):
            clock.pass_ms(50)
            if told is None:
                raise ValueError("of the job")
            return told

        def hook(original):
            def wrapper(*arguments):
                clock.pass_ms(2)
                try:
                    return original(*arguments)
                finally:
                    clock.pass_ms(3)

            return wrapper

        call = counted.around("input hook: fetch", own, hook)
        self.assertEqual((call(5), counted.calls, counted.depth), (5, 2, 0))
        with self.assertRaises(ValueError):
            call(None)
        self.assertEqual((counted.calls, counted.depth, sorted(counted.entry_points)), (4, 0, ["input hook: fetch begin", "input hook: fetch end"]))
        self.assertEqual(counted.entry_points, {"input hook: fetch begin": 4_000_000, "input hook: fetch end": 6_000_000})
        self.assertEqual((counted.ns, counted.cpu_ns), (10_000_000, 0))

    def test_a_hook_inside_an_entry_point_counts_to_that(self):
        counted = hook_rank.Counted(argparse.Namespace(_marks=None))
        call = counted.around("backward hook", lambda: 1, lambda original: lambda: original())
        outer = counted.called("outer", lambda: call() + 1)
        self.assertEqual((outer(), counted.calls, counted.depth, list(counted.entry_points)), (2, 1, 0, ["outer: <lambda>"]))

    def test_turns_switch_the_hook_by_the_step(self):
        seen = []
        turns = hook_rank.Turns(argparse.Namespace(switch=seen.append))
        for _ in range(8):
            turns.readline()
        self.assertEqual(seen, [True, False, False, True] * 2)


class HookTruth(unittest.TestCase):
    """A trace made by hand, ms from the base: step 7 is told as 100 to 200, the optimizer's steps end at 99.99 and 199.98."""

    base_ns = 1_790_857_026_000_000_000

    def trace(self):
        def event(category, name, begin, end, thread=1):
            return {"ph": "X", "cat": category, "name": name, "ts": begin * 1000.0, "dur": round((end - begin) * 1000.0, 3), "tid": thread, "args": {}}

        events = [
            event("user_annotation", "ProfilerStep#6", 50, 105), event("user_annotation", "ProfilerStep#7", 105, 230),
            event("user_annotation", "Optimizer.step#AdamW.step", 90, 99.99), event("user_annotation", "Optimizer.step#AdamW.step", 180, 199.98),
            event("user_annotation", "save", 101, 111), event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 112, 122),
            event("user_annotation", "backward", 140, 175),
            event("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 141, 150, 2), event("cpu_op", "torch.distributed.ddp.reducer::copy_bucket_to_grad", 170, 174, 2),
            event("cpu_op", "aten::addmm", 141, 149, 2),
            # On the GPU: compute 130 to 160, NCCL 150 to 170 (of which 10 hidden), the optimizer 185 to 190.
            event("kernel", "gemm", 130, 160, 7), event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 150, 170, 8), event("kernel", "adam", 185, 190, 7),
            {"ph": "i", "name": "Record Window End", "ts": 1.0},
        ]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "trace_rank3.json"
            path.write_text(json.dumps({"baseTimeNanoseconds": self.base_ns, "traceEvents": events}))
            return hook_compare.read_trace(path)

    def step(self, number=7, begin_ms=100.0, parts=True):
        parts_ms = {"compute": 36.0, "communication": 9.0, "input": 10.0, "host": 23.0, "checkpoint": 10.0, "idle": 12.0}
        return {"step": number, "start_unix_ns": self.base_ns + round(begin_ms * 1e6), "duration_ms": 100.0, "inferred": False, "parts_ms": parts_ms if parts else None,
                "phases_ms": {"input": 10.5, "forward": 17.5, "backward": 35.0, "optimizer": 20.0, "checkpoint": 10.0}}

    def test_phases_come_from_annotations(self):
        (entry,) = hook_compare.compared(3, self.trace(), [self.step()])
        truth = {name: round(value[0], 3) for name, value in entry["phases"].items()}
        self.assertEqual(truth, {"input": 10.0, "forward": 18.0, "backward": 35.0, "optimizer": 19.98, "checkpoint": 10.0, "engine": 33.0})
        self.assertEqual(entry["phases"]["engine"][1], 35.0)
        self.assertAlmostEqual(entry["end_us"], 20.0, places=3)

    def test_the_split_is_the_guides_definition_and_adds_up(self):
        (entry,) = hook_compare.compared(3, self.trace(), [self.step()])
        truth = {name: round(value[0], 3) for name, value in entry["parts"].items()}
        # Nothing on the GPU: 100-130, 170-185, 190-200. Host: forward 122-130, backward 170-175, optimizer 180-185 and 190-199.98.
        self.assertEqual(truth, {"compute": 35.0, "communication": 10.0, "input": 10.0, "checkpoint": 10.0, "host": 27.98, "idle": 7.02})
        self.assertAlmostEqual(sum(truth.values()), 100.0)

    def test_steps_that_the_trace_does_not_cover_whole_are_left_out(self):
        self.assertEqual(hook_compare.compared(0, self.trace(), [self.step(6, 49.0), self.step(8, 131.0)]), [])

    def test_rows_have_median_and_worst_with_its_place(self):
        entries = hook_compare.compared(3, self.trace(), [self.step()]) * 2 + hook_compare.compared(5, self.trace(), [self.step(9)])
        entries[2]["parts"]["compute"] = (35.0, 45.0)
        rows = {row["name"]: row for row in hook_compare.rows_of(entries, "parts")}
        self.assertEqual((rows["compute"]["median_ms"], rows["compute"]["worst_ms"], rows["compute"]["worst_at"]), (1.0, 10.0, "rank 5 step 9"))
        self.assertAlmostEqual(rows["compute"]["worst_percent"], 10.0)
        lines = hook_compare.table(list(rows.values()), "part")
        self.assertEqual(len({line.count("|") for line in lines}), 1)
        self.assertIn("| compute | 35.00 | 36.00 |", lines[2])

    def test_a_step_without_a_split_has_phases_all_the_same(self):
        entries = hook_compare.compared(3, self.trace(), [self.step(parts=False)])
        self.assertEqual(hook_compare.rows_of(entries, "parts"), [])
        self.assertEqual(len(hook_compare.rows_of(entries, "phases")), 6)

    def test_another_programs_trace_is_refused_in_a_line(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "trace_rank0.json"
            path.write_text("[]")
            with self.assertRaisesRegex(RuntimeError, "trace_rank0.json is no trace of Kineto's"):
                hook_compare.read_trace(path)


class HookRun(unittest.TestCase):
    options = argparse.Namespace(cpu=False, can_count=True)

    def told(self, rank, steps=20):
        parts = {"compute": 10.0, "communication": 20.0, "input": 60.0 if rank == 2 else 0.0, "host": 5.0, "checkpoint": 0.0, "idle": 5.0}
        phases = {"input": 60.0 if rank == 2 else 1.0, "forward": 10.0, "backward": 10.0, "optimizer": 2.0}
        return [{"step": step, "inferred": False, "duration_ms": 100.0, "parts_ms": parts, "mfu": 0.01, "scalars": {"flops": hook.flops_of_step(hook.SIZES, 4) * 1.01},
                 "phases_ms": {**phases, "checkpoint": 5.0} if step == 10 else phases} for step in range(steps)]

    def result(self, told):
        comms = [{"role": "world", "name": "world", "told": True, "size": 4, "ranks": "0-3"}]
        return {**hook.examined(4, 20, told, self.options, 4), "comms": comms, "complaints": [], "unmodified": True, "verdict": {"confirmed_s": 3.0}}

    def test_all_is_held_when_all_is_there(self):
        held = hook.checks(self.result({rank: self.told(rank) for rank in range(4)}), self.options)
        self.assertEqual([name for name, value in held.items() if not value], [])
        self.assertIn("verdict names the input of rank 2", held)

    def test_what_is_missing_is_named(self):
        told = {rank: self.told(rank) for rank in range(4)}
        del told[1][7]
        told[3] = self.told(2)
        for step in told[0]:
            step["phases_ms"] = {"input": 1.0}
            step["scalars"] = {"flops": 1.0}
        for mine in told.values():
            for step in mine:
                step["scalars"] = {"flops": 1.0}
        result = self.result(told)
        result["verdict"]["confirmed_s"] = None
        wrong = {name for name, value in hook.checks(result, self.options).items() if not value}
        self.assertEqual(wrong, {"every step of every rank", "phases in every step", "FLOPs counted as computed by hand, within 5 %", "slow loader is input of rank 2 alone",
                                 "verdict names the input of rank 2"})

    def test_logs_of_those_that_failed_come_first(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for rank in range(3):
                (folder / f"rank{rank}.log").write_text(f"rank {rank} here\nlockstep: counted 1 FLOPs\n")
            (folder / "rank1.log").write_text("line\n" * 100 + "lockstep: input hook failed (x)\nTraceback: the end\n")
            text = hook.tails(folder, [None, 1, 0])
            self.assertIn("the end", text)
            self.assertNotIn("rank 0 here", text)
            self.assertLess(text.count("line"), 30)
            self.assertEqual(hook.complaints(folder), ["lockstep: input hook failed (x)"])

    def test_the_report_keeps_parts_of_earlier_calls_and_shows_failures(self):
        with tempfile.TemporaryDirectory() as name:
            out = pathlib.Path(name)
            hook.report(out, {"machine": "m", "date": "d", "results": {"run": {"4": {"failed": "rank 3 died\n--- rank3.log\nboom"}}}})
            text = (out / "hook.md").read_text()
            self.assertIn("FAILED: run, 4 ranks", text)
            self.assertIn("boom", text)
            self.assertEqual(json.loads((out / "hook.json").read_text())["machine"], "m")


class Commands(unittest.TestCase):
    def test_an_unknown_case_is_refused_before_anything_is_built(self):
        with self.assertRaises(SystemExit):
            run.record(pathlib.Path("unused"), ["ddp_nonsense"])
        with self.assertRaises(SystemExit):
            live.main(pathlib.Path("unused"), ["ddp_nonsense"])
        with self.assertRaises(SystemExit):
            live_outside.main(pathlib.Path("unused"), ["fsdp_nonsense"])
        for words in (["--parts", "nonsense"], ["--ranks", "2"], ["--pair-steps", "45"]):
            with self.assertRaises(SystemExit):
                hook.main(pathlib.Path("unused"), words)


if __name__ == "__main__":
    unittest.main()
