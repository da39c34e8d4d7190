"""Where steps begin and which phase is open: the rules of docs/guide/python.md, without torch."""

import threading
import unittest

from support import Marked

from lockstep._marks import Marks


class Job:
    """Plays a loop's events into Marks."""

    def __init__(self, **options):
        self.sink = Marked()
        self.marks = Marks(self.sink, **options)

    def fetch(self, source=1, grad_on=True, got=True):
        self.marks.fetch_end(self.marks.fetch_begin(source, grad_on), got)

    def backward(self, inside=lambda: None):
        token = self.marks.backward_begin()
        inside()
        self.marks.backward_end(token)

    def optimize(self, optimizer=1, inside=lambda: None):
        token = self.marks.optimizer_begin()
        inside()
        self.marks.optimizer_end(token, optimizer)

    def save(self):
        self.marks.save_end(self.marks.save_begin())

    def train(self, steps, optimizers=(1,)):
        for _ in range(steps):
            self.fetch()
            self.backward()
            for optimizer in optimizers:
                self.optimize(optimizer)


class AutomaticSteps(unittest.TestCase):
    def test_the_first_fetch_begins_step_0_and_an_optimizer_step_ends_it(self):
        job = Job()
        job.train(1)
        self.assertEqual(job.sink.take(), "step 0 +input +forward +backward -backward +optimizer -optimizer end 0")

    def test_from_the_second_round_on_a_step_begins_where_the_one_before_ends(self):
        job = Job()
        job.train(1)
        job.sink.take()
        job.train(2)
        self.assertEqual(
            job.sink.take(),
            "step 1 +input +forward +backward -backward +optimizer -optimizer "
            "step 2 +input +forward +backward -backward +optimizer -optimizer step 3",
        )

    def test_several_backwards_before_an_optimizer_step_are_one_step(self):
        job = Job()
        for _ in range(3):
            for _ in range(4):
                job.fetch()
                job.backward()
            job.optimize()
        self.assertEqual(job.marks.steps, 3)
        self.assertEqual(job.sink.steps()[1].count("+backward"), 4)

    def test_between_backwards_of_a_step_is_forward_once_a_job_has_shown_how_many_there_are(self):
        job = Job()
        for _ in range(2):
            for _ in range(2):
                job.fetch()  # all batches of the step first
            job.backward()
            job.backward()
            job.optimize()
        self.assertEqual(
            [mark for mark in job.sink.steps()[1] if mark != "-optimizer"],
            [
                "+input",
                "+forward",
                "+input",
                "+forward",
                "+backward",
                "+forward",
                "+backward",
                "-backward",
                "+optimizer",
            ],
        )

    def test_optimizers_that_step_one_after_the_other_are_one_step_from_the_first(self):
        job = Job()
        job.train(5, optimizers=(1, 2, 3))
        self.assertEqual(job.marks.steps, 5)
        self.assertEqual(job.sink.steps()[2].count("+optimizer"), 3)

    def test_of_optimizers_with_backwards_between_them_the_last_closes_the_round(self):
        job = Job()
        for _ in range(10):
            job.fetch()
            job.backward()
            job.optimize(1)
            job.backward()
            job.optimize(2)
        # The first round, in which nobody can know of the second optimizer, is two steps.
        self.assertEqual(job.marks.steps, 11)
        self.assertEqual(job.sink.steps()[5].count("+optimizer"), 2)

    def test_an_optimizer_that_steps_more_often_than_the_last_one_makes_no_steps_of_its_own(self):
        job = Job()
        for _ in range(6):
            for _ in range(5):
                job.fetch()
                job.backward()
                job.optimize(1)
            job.backward()
            job.optimize(2)
        self.assertEqual(job.sink.steps()[max(job.sink.steps()) - 1].count("+optimizer"), 6)

    def test_a_last_optimizer_that_is_gone_does_not_stop_the_steps(self):
        job = Job()
        job.train(4, optimizers=(1, 2))
        before = job.marks.steps
        job.train(40, optimizers=(1,))
        self.assertGreater(job.marks.steps, before + 25)

    def test_optimizers_fused_into_backward_end_the_step_with_it(self):
        job = Job()
        for _ in range(3):
            job.fetch()
            job.backward(inside=lambda: [job.optimize(parameter) for parameter in range(20)])
        self.assertEqual(job.marks.steps, 3)

    def test_a_step_that_the_scaler_left_out_is_a_step(self):
        job = Job()
        job.train(2)
        job.fetch()
        job.backward()
        job.marks.optimizer_skipped(1)
        self.assertEqual(job.marks.steps, 3)
        self.assertIn("skipped=1", job.sink.steps()[2])

    def test_backward_inside_an_optimizer_goes_back_to_the_optimizer(self):
        job = Job()
        job.fetch()
        job.optimize(inside=job.backward)
        self.assertEqual(job.sink.take(), "step 0 +input +forward +optimizer +backward +optimizer -optimizer end 0")

    def test_backward_within_backward_is_one(self):
        job = Job()
        job.fetch()
        job.backward(inside=job.backward)
        self.assertEqual(job.sink.take(), "step 0 +input +forward +backward -backward")

    def test_an_optimizer_step_within_an_optimizer_step_is_one(self):
        job = Job()
        for _ in range(3):
            job.fetch()
            job.backward()
            job.optimize(1, inside=lambda: job.optimize(2))
        self.assertEqual(job.marks.steps, 3)

    def test_an_optimizer_step_that_never_ended_does_not_stop_the_steps(self):
        job = Job()
        job.fetch()
        job.marks.optimizer_begin()
        job.train(3)
        self.assertEqual(job.marks.steps, 3)

    def test_the_first_step_may_have_another_number(self):
        job = Job(first_step=700)
        job.train(2)
        self.assertEqual(sorted(job.sink.steps()), [700, 701, 702])  # the last is open


class Evaluation(unittest.TestCase):
    def test_fetches_without_gradients_are_eval_of_the_step_they_fall_into(self):
        job = Job()
        job.train(2)
        job.sink.take()
        for _ in range(50):
            job.fetch(source=9, grad_on=False)
        job.fetch(source=9, grad_on=False, got=False)
        job.train(1)
        self.assertEqual(
            job.sink.take(), "+eval -eval +input +forward +backward -backward +optimizer -optimizer step 3"
        )

    def test_many_fetches_without_a_backward_are_eval(self):
        job = Job()
        job.train(2)
        job.sink.take()
        for _ in range(50):
            job.fetch(source=9)
        marks = job.sink.take().split()
        self.assertEqual(marks, ["+input", "+forward"] * 3 + ["+eval"])
        job.fetch(source=1)  # the training loader again
        self.assertEqual(job.sink.take(), "+input +forward")

    def test_a_job_that_fetches_many_batches_before_it_trains_is_understood_after_one_step(self):
        job = Job()
        for _ in range(3):
            for _ in range(8):
                job.fetch()
            for _ in range(8):
                job.backward()
            job.optimize()
        self.assertNotIn("+eval", job.sink.steps()[1] + job.sink.steps()[2])

    def test_an_evaluation_before_training_makes_no_step(self):
        job = Job()
        for _ in range(5):
            job.fetch(grad_on=False)
        self.assertEqual(job.sink.steps(), {})


class ToldSteps(unittest.TestCase):
    def test_automatic_steps_stop_when_the_job_tells_its_own(self):
        job = Job()
        job.train(2)
        job.sink.take()
        job.marks.step_begin(100)
        job.backward()
        job.optimize()
        job.optimize()
        job.marks.step_end()
        self.assertEqual(
            job.sink.take(), "step 100 +backward -backward +optimizer -optimizer +optimizer -optimizer end 100"
        )

    def test_the_fetch_before_a_told_step_belongs_to_it(self):
        job = Job()
        for number in range(2):
            job.fetch()
            job.marks.step_begin(number)
            job.backward()
            job.optimize()
            job.marks.step_end()
        self.assertEqual(
            job.sink.steps()[1], ["+input", "+forward", "+backward", "-backward", "+optimizer", "-optimizer"]
        )

    def test_a_step_without_a_number_gets_the_next(self):
        job = Job()
        numbers = []
        for given in (None, None, 7, None):
            numbers.append(job.marks.step_begin(given))
            job.marks.step_end()
        self.assertEqual(numbers, [0, 1, 7, 8])

    def test_what_follows_a_step_that_a_callback_has_called_done_counts_to_it(self):
        job = Job()
        job.marks.step_begin(4)
        job.marks.step_done(5)
        job.marks.scalar("loss", 2)
        job.save()
        job.fetch()
        self.assertEqual(job.sink.take(), "step 4 loss=2 +checkpoint -checkpoint step 5 +input +forward")
        job.marks.step_begin(5)  # already begun by its fetch
        self.assertEqual(job.sink.take(), "")


class Phases(unittest.TestCase):
    def test_a_phase_of_the_job_hides_automatic_ones_and_gives_back_what_was_open(self):
        job = Job()
        job.fetch()
        job.sink.take()
        outer = job.marks.phase_begin("rollout")
        inner = job.marks.phase_begin("sync")
        job.marks.phase_end(inner)
        job.backward()
        job.marks.phase_end(outer)
        self.assertEqual(job.sink.take(), "+rollout +sync +rollout -other")

    def test_a_checkpoint_gives_back_the_phase_it_interrupted(self):
        job = Job()
        job.fetch()
        job.sink.take()
        job.save()
        self.assertEqual(job.sink.take(), "+checkpoint +forward")

    def test_a_phase_that_is_open_at_a_boundary_goes_on_in_the_next_step(self):
        job = Job()
        job.marks.step_begin(0)
        phase = job.marks.phase_begin("rollout")
        job.marks.step_begin(1)
        job.marks.phase_end(phase)
        self.assertEqual(job.sink.take(), "step 0 +rollout step 1 +rollout -other")

    def test_an_inner_phase_that_was_never_closed_ends_with_the_outer_one(self):
        job = Job()
        outer = job.marks.phase_begin("a")
        job.marks.phase_begin("b")
        job.marks.phase_end(outer)
        self.assertEqual(job.sink.take(), "+a +b -other")

    def test_input_time_is_what_the_fetches_took(self):
        now = [0]
        job = Job(clock=lambda: now[0])
        for _ in range(3):
            token = job.marks.fetch_begin(1, True)
            now[0] += 30
            job.marks.fetch_end(token, True)
            now[0] += 10
            job.backward()
            job.optimize()
        self.assertEqual((job.marks.steps, job.marks.steps_ns, job.marks.phase_ns[1]), (3, 120, 90))
        self.assertEqual(job.marks.phase_ns[2], 30)


class Threads(unittest.TestCase):
    def on_thread(self, call):
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()

    def test_a_loader_read_ahead_on_another_thread_is_no_input(self):
        job = Job()
        job.train(1)
        job.sink.take()
        self.on_thread(job.fetch)
        self.assertEqual(job.sink.take(), "")

    def test_a_job_that_trains_on_another_thread_is_seen(self):
        job = Job()
        self.on_thread(lambda: job.train(3))
        self.assertEqual(job.marks.steps, 3)

    def test_marks_from_many_threads_at_once_lose_no_step(self):
        job = Job()

        def work():
            for _ in range(200):
                job.marks.step_begin()
                job.marks.phase_end(job.marks.phase_begin("x"))
                job.marks.scalar("loss", 1.0)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(job.sink.steps()), list(range(800)))


if __name__ == "__main__":
    unittest.main()
