"""The parts of these tests that need no GPU: statistics, judging, the RAS client, the reading of recorded callbacks.

    python3 -m unittest discover -s tests/gpu -p 'test_*.py'"""
import http.server
import json
import pathlib
import socket
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import live
import overhead
import plugins
import ras
import run


def said(at_s, state, rank, layer="gpu", kind="slow", verdict_id="a", cause="slow-compute"):
    return {"id": verdict_id, "state": state, "kind": kind, "ranks": [rank], "layer": layer, "cause": cause, "at_unix_ns": int(at_s * 1e9),
            "found_unix_ns": 0, "sentence": ""}


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


class Commands(unittest.TestCase):
    def test_an_unknown_case_is_refused_before_anything_is_built(self):
        with self.assertRaises(SystemExit):
            run.record(pathlib.Path("unused"), ["ddp_nonsense"])
        with self.assertRaises(SystemExit):
            live.main(pathlib.Path("unused"), ["ddp_nonsense"])


if __name__ == "__main__":
    unittest.main()
