"""Where steps begin and which phase is open: the rules of docs/guide/python.md, without torch."""

import random
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


class ReportedSteps(unittest.TestCase):
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


class OnlyGeneral(Marks):
    """Never takes a quick way."""

    __slots__ = ()
    _quick = property(lambda self: False, lambda self, value: None)


class Counting:
    """In place of the general way's lock: how often it was taken."""

    def __init__(self, lock):
        self.lock, self.taken = lock, 0

    def __enter__(self):
        self.taken += 1
        return self.lock.__enter__()

    def __exit__(self, *error):
        return self.lock.__exit__(*error)


def random_events(seed):
    """Of a job that does what it likes, but mostly trains: a function that plays them into a kind of Marks."""
    dice = random.Random(seed)
    optimizers = dice.choice(([1], [1], [1, 2]))

    def a_step(marks):
        for _ in range(dice.choice((1, 1, 1, 2))):
            token = marks.fetch_begin(dice.choice((1, 1, 1, 1, 9)), dice.random() > 0.03)
            if dice.random() < 0.03:
                marks.save_end(marks.save_begin())
            marks.fetch_end(token, dice.random() > 0.03)
            token = marks.backward_begin()
            if dice.random() < 0.05:
                marks.backward_end(marks.backward_begin())
            if dice.random() < 0.03:
                marks.optimizer_end(marks.optimizer_begin(), 1)
            marks.backward_end(token)
        for optimizer in optimizers:
            token = marks.optimizer_begin()
            if dice.random() < 0.05:
                marks.backward_end(marks.backward_begin())
            if dice.random() < 0.05:
                marks.optimizer_end(marks.optimizer_begin(), optimizer)
            if dice.random() > 0.02:
                marks.optimizer_end(token, optimizer)
        what = dice.random()
        if what < 0.03:
            marks.optimizer_skipped(1)
        elif what < 0.06:
            marks.eval_begin()
            marks.fetch_end(marks.fetch_begin(7, True), True)
            if dice.random() < 0.7:
                marks.eval_end()
        elif what < 0.09:
            phase = marks.phase_begin("rollout")
            if dice.random() < 0.5:
                marks.fetch_end(marks.fetch_begin(1, True), True)
            marks.phase_end(phase)
        elif what < 0.12:
            marks.loader_end(marks.loader_begin())
        elif what < 0.14 and seed % 3 == 0:
            marks.step_done(marks.steps + 100)
        elif what < 0.15 and seed % 3 == 0:
            marks.step_begin()
        elif what < 0.16 and seed % 3 == 0:
            marks.step_end()
        elif what < 0.17 and seed % 3 == 0:
            marks.finish()

    def play(kind):
        dice.seed(seed)
        now = [0]
        ticks = random.Random(seed)

        def at(sink_call):
            def call(*arguments):
                now[0] += ticks.randrange(1, 1000)  # time passes with every mark, the same in both ways
                return sink_call(*arguments)

            return call

        sink = Marked()
        for name in ("step_begin", "step_end", "phase_begin", "phase_end", "scalar"):
            setattr(sink, name, at(getattr(sink, name)))
        marks = kind(sink, clock=lambda: now[0])
        ended = []
        marks._at_step_end.append(lambda step, duration: ended.append(step))
        counting = marks._lock = Counting(marks._lock)
        for _ in range(60):
            a_step(marks)
        told = (sink.marks, ended, marks.step, marks.steps, marks.optimizer_steps)
        return told, counting.taken

    return play


class QuickWay(unittest.TestCase):
    def test_the_quick_way_tells_what_the_general_one_does(self):
        quicker = 0
        for seed in range(150):
            play = random_events(seed)
            general, general_locks = play(OnlyGeneral)
            quick, quick_locks = play(Marks)
            self.assertEqual(quick, general, f"seed {seed}")
            quicker += quick_locks < general_locks / 2
        self.assertGreater(quicker, 75)

    def test_a_plain_step_takes_no_lock_from_the_third_on(self):
        for first in (lambda job: None, lambda job: job.marks.step_done(0)):  # automatic, or told by a callback
            job = Job()
            first(job)
            job.train(3)
            counting = job.marks._lock = Counting(job.marks._lock)
            job.train(20)
            self.assertEqual(counting.taken, 0)

    def test_time_is_summed_as_in_the_general_way(self):
        sums = []
        for kind in (Marks, OnlyGeneral):
            now = [0]
            marks = kind(Marked(), clock=lambda: now[0])
            for _ in range(9):
                token = marks.fetch_begin(1, True)
                now[0] += 3
                marks.fetch_end(token, True)
                now[0] += 50
                token = marks.backward_begin()
                now[0] += 700
                marks.backward_end(token)
                now[0] += 11000
                token = marks.optimizer_begin()
                now[0] += 130000
                marks.optimizer_end(token, 1)
            sums.append((marks.steps, marks.steps_ns, marks.phase_ns))
        self.assertEqual(sums[0], sums[1])
        self.assertEqual(sums[0][2][1:5], [27, 450, 6300, 1170000])

    def test_a_job_that_trains_on_another_thread_is_quick_too(self):
        job = Job()

        def work():
            job.train(3)
            counting = job.marks._lock = Counting(job.marks._lock)
            job.train(5)
            taken.append(counting.taken)

        taken = []
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        self.assertEqual((taken, job.marks.steps), ([0], 8))

    def test_a_loader_read_ahead_and_a_save_in_the_background_leave_it_quick(self):
        job = Job()
        job.train(3)
        thread = threading.Thread(target=lambda: (job.fetch(source=5), job.save(), job.backward()))
        thread.start()
        thread.join()
        self.assertTrue(job.marks._quick)

    def test_who_tells_from_another_thread_waits_for_the_quick_way_and_ends_it(self):
        job = Job()
        job.train(3)
        marks = job.marks
        marks._inside = True  # as the training thread has it amid an event
        done = threading.Event()
        thread = threading.Thread(target=lambda: (marks.step_done(70), done.set()))
        thread.start()
        self.assertFalse(done.wait(0.02))
        marks._inside = False
        self.assertTrue(done.wait(10))
        thread.join()
        self.assertFalse(marks._quick)
        job.train(1)
        self.assertIn(70, job.sink.steps())
        self.assertFalse(marks._quick)

    def test_a_quick_way_that_never_ended_hangs_nobody(self):
        job = Job()
        job.train(3)
        job.marks._inside = True
        thread = threading.Thread(target=job.marks.step_done, args=(70,), daemon=True)
        thread.start()
        thread.join(60)
        self.assertFalse(thread.is_alive())

    def test_training_while_other_threads_tell_steps_loses_no_mark(self):
        job = Job()
        job.train(3)
        begun = []

        def tell():
            for _ in range(200):
                begun.append(job.marks.step_begin())

        threads = [threading.Thread(target=tell) for _ in range(3)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            job.backward()
            job.optimize()
        self.assertEqual(len(begun), len(set(begun)))
        self.assertEqual(sorted(set(job.sink.steps())), list(range(max(begun) + 1)))


if __name__ == "__main__":
    unittest.main()
