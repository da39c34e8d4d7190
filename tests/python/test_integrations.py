"""Callbacks and wrappers against small stand-ins that call them in the order and with the arguments of the real ones.

The real Trainer and Lightning are run by `./dev test python-frameworks`; DeepSpeed, Megatron and vLLM only here.
"""

import types
import unittest

from support import Marked

import lockstep
from lockstep import _guard, _runtime
from lockstep.integrations import _common, accelerate, deepspeed, hf, lightning, megatron, vllm


class Loop(unittest.TestCase):
    def setUp(self):
        _guard._said.clear()
        self.sink = Marked()
        self.marks = _runtime.use_sink(self.sink)
        self.addCleanup(_runtime.reset)

    def fetch(self, source=1):
        self.marks.fetch_end(self.marks.fetch_begin(source, True), True)

    def compute(self):
        self.marks.backward_end(self.marks.backward_begin())
        self.marks.optimizer_end(self.marks.optimizer_begin(), 1)


class HuggingFace(Loop):
    """The order of events is that of transformers.Trainer._inner_training_loop and _maybe_log_save_evaluate."""

    def train(self, steps, first=0, log=(), evaluate=(), save=(), accumulation=1):
        callback = hf.make_callback(object)(hooks=())
        args, state, control = (
            types.SimpleNamespace(world_size=1),
            types.SimpleNamespace(global_step=first),
            types.SimpleNamespace(),
        )
        callback.on_train_begin(args, state, control, model=types.SimpleNamespace(config={"parameters": 10}))
        for _ in range(steps):
            for _ in range(accumulation):
                self.fetch()
            for micro in range(accumulation):
                if micro == 0:
                    callback.on_step_begin(args, state, control)
                self.marks.backward_end(self.marks.backward_begin())
            self.marks.optimizer_end(self.marks.optimizer_begin(), 1)
            state.global_step += 1
            n = state.global_step
            control.should_log, control.should_evaluate, control.should_save = n in log, n in evaluate, n in save
            callback.on_step_end(args, state, control)
            if control.should_log:
                control.should_log = False
                callback.on_log(args, state, control, logs={"loss": 10.0 - n, "learning_rate": 0.5, "epoch": 0.1})
            if control.should_evaluate:
                for _ in range(4):
                    self.fetch(source=2)
                    callback.on_prediction_step(args, state, control)
                callback.on_evaluate(args, state, control, metrics={"eval_loss": 1})
            if control.should_save:
                callback.on_save(args, state, control)
        callback.on_train_end(args, state, control)
        return self.sink.steps()

    def test_steps_carry_the_trainers_numbers_and_begin_with_their_fetch(self):
        steps = self.train(3, first=40)
        self.assertEqual(sorted(steps), [40, 41, 42])
        self.assertEqual(steps[41], ["+input", "+forward", "+backward", "-backward", "+optimizer", "-optimizer"])

    def test_a_logged_loss_belongs_to_the_step_it_is_of(self):
        steps = self.train(3, log=(2,))
        self.assertEqual(steps[1][-2:], ["loss=8", "learning_rate=0.5"])

    def test_evaluation_and_checkpoint_count_to_the_step_before(self):
        steps = self.train(3, log=(2,), evaluate=(2,), save=(2, 3))
        self.assertEqual(sorted(steps), [0, 1, 2])
        self.assertIn("+eval", steps[1])
        self.assertEqual(steps[1][-2:], ["+checkpoint", "-checkpoint"])
        self.assertEqual(steps[2][-2:], ["+checkpoint", "-checkpoint"])

    def test_gradient_accumulation_is_one_step(self):
        steps = self.train(3, accumulation=4)
        self.assertEqual(sorted(steps), [0, 1, 2])
        self.assertEqual(steps[1].count("+backward"), 4)

    def test_the_class_can_be_had_without_transformers(self):
        self.assertTrue(issubclass(hf.LockstepCallback, hf._Callback))


class Lightning(Loop):
    def train(self, batches, accumulation=1, loss=1.5, loggers=()):
        callback = lightning.make_callback(object)(hooks=())
        trainer = types.SimpleNamespace(global_step=0, log_every_n_steps=2, loggers=list(loggers))
        callback.on_validation_start(trainer, None)  # the sanity check
        callback.on_validation_end(trainer, None)
        callback.on_train_start(trainer, None)
        for index in range(batches):
            self.fetch()
            callback.on_train_batch_start(trainer, None, "batch", index)
            self.marks.backward_end(self.marks.backward_begin())
            if (index + 1) % accumulation == 0:
                self.marks.optimizer_end(self.marks.optimizer_begin(), 1)
                trainer.global_step += 1
            callback.on_train_batch_end(trainer, None, {"loss": loss}, "batch", index)
            if index == 3:
                callback.on_validation_start(trainer, None)
                callback.on_validation_end(trainer, None)
        callback.on_train_end(trainer, None)
        return self.sink.steps()

    def test_a_step_is_what_moves_global_step(self):
        steps = self.train(6, accumulation=2)
        self.assertEqual(sorted(steps), [0, 1, 2])
        self.assertEqual(steps[1].count("+backward"), 2)

    def test_loss_and_validation_count_to_their_step(self):
        steps = self.train(6)
        self.assertIn("loss=1.5", steps[2])
        self.assertEqual(steps[3][-2:], ["+eval", "-eval"])

    def test_a_loss_on_the_gpu_is_read_only_in_steps_that_lightning_logs(self):
        read = []
        loss = types.SimpleNamespace(
            device=types.SimpleNamespace(type="cuda"), numel=lambda: 1, item=lambda: read.append(1) or 2.0
        )
        self.train(6, loss=loss)
        self.assertEqual(read, [])
        self.train(6, loss=loss, loggers=["one"])
        self.assertEqual(len(read), 3)


class Accelerate(Loop):
    def test_what_is_logged_is_told_and_still_logged(self):
        logged = []

        class Accelerator:
            def log(self, values, step=None):
                logged.append((values, step))

            def save_state(self, folder):
                return folder

        accelerator = accelerate.wrap(Accelerator(), hooks=())
        accelerator = accelerate.wrap(accelerator, hooks=())  # twice does no harm
        lockstep.step_begin(0)
        accelerator.log({"train_loss": 3.0, "lr": 0.5, "note": "x"}, step=7)
        self.assertEqual(accelerator.save_state("there"), "there")
        self.assertEqual(logged, [({"train_loss": 3.0, "lr": 0.5, "note": "x"}, 7)])
        self.assertEqual(self.sink.take(), "step 0 loss=3 learning_rate=0.5 +checkpoint -checkpoint")


class DeepSpeed(Loop):
    class Engine:
        """Accumulates two batches."""

        def __init__(self, marks):
            self.global_steps, self.micro, self.marks = 5, 0, marks

        def forward(self, x):
            return x

        def backward(self, loss):
            self.marks.backward_end(self.marks.backward_begin())

        def step(self):
            self.micro += 1
            if self.micro % 2 == 0:
                for part in range(3):  # an optimizer of parts
                    self.marks.optimizer_end(self.marks.optimizer_begin(), part)
                self.global_steps += 1

        def get_global_grad_norm(self):
            return 0.25

    def test_a_step_is_an_optimizer_step_of_the_engine(self):
        engine = deepspeed.wrap(self.Engine(self.marks), hooks=())
        for _ in range(6):
            self.fetch()
            engine.backward(engine.forward(1))
            engine.step()
        self.marks.finish()
        steps = self.sink.steps()
        self.assertEqual(sorted(steps), [5, 6, 7])
        self.assertEqual([mark for mark in steps[6] if mark in ("+input", "+backward", "+optimizer", "grad_norm=0.25")],
                         ["+input", "+backward", "+optimizer"] * 2 + ["grad_norm=0.25"])  # fmt: skip

    def test_an_error_of_the_engine_passes(self):
        engine = self.Engine(self.marks)
        engine.forward = lambda x: 1 / 0
        engine = deepspeed.wrap(engine, hooks=())
        with self.assertRaises(ZeroDivisionError):
            engine.forward(1)
        self.assertEqual(self.sink.take(), "step 5 +forward -forward")


class Megatron(Loop):
    def test_a_call_of_train_step_is_a_step_and_timers_are_phases(self):
        class Timer:
            def __init__(self):
                self.calls = []

            def start(self, barrier=False):
                self.calls.append("start")

            def stop(self):
                self.calls.append("stop")

        known = {}

        def real_timers(name, log_level=None):
            return known.setdefault(name, Timer())

        timers = megatron.wrap_timers(real_timers)

        def train_step(data):
            for name in ("batch-generator", "forward-compute", "forward-backward", "optimizer"):
                timers(name, log_level=1).start()
                timers(name).stop()
            return {"lm loss": 2.0}, 0, False, False, 0, 0.75, None

        step = megatron.wrap_train_step(train_step, first_step=10, hooks=())
        for _ in range(2):
            step("data")
        self.marks.finish()
        steps = self.sink.steps()
        self.assertEqual(sorted(steps), [10, 11])
        self.assertEqual(
            steps[11],
            ["+input", "-input", "+forward", "-forward", "+optimizer", "-optimizer", "loss=2", "grad_norm=0.75"],
        )
        self.assertEqual(known["optimizer"].calls, ["start", "stop"] * 2)


class Vllm(Loop):
    def module(self, **kinds):
        module = types.ModuleType("vllm.v1.engine.core")
        for name, kind in kinds.items():
            kind.__module__ = module.__name__
            setattr(module, name, kind)
        return module

    def engine(self, worker=None):
        class Scheduler:
            def __init__(self):
                self.running, self.waiting, self.left = ["a", "b"], ["c"], 3

            def has_requests(self):
                return self.left > 0

            def schedule(self):
                self.left -= 1
                return types.SimpleNamespace(total_num_scheduled_tokens=17)

            def update_from_output(self, output, result):
                return {"out": result}

        class Executor:
            def execute_model(self, output, non_block=False):
                return worker.execute_model(output) if worker else "tokens"

        class EngineCore:
            def __init__(self):
                self.scheduler, self.model_executor, self.batch_queue = Scheduler(), Executor(), None

            def step(self):
                if not self.scheduler.has_requests():
                    return {}, False
                output = self.scheduler.schedule()
                result = self.model_executor.execute_model(output, non_block=True)
                return self.scheduler.update_from_output(output, result), True

        return EngineCore

    def test_an_iteration_of_the_engine_is_a_step_and_an_idle_one_is_not(self):
        kind = self.engine()
        vllm.hook(self.module(EngineCore=kind))
        engine = kind()
        answers = [engine.step() for _ in range(5)]
        self.assertEqual(answers, [({"out": "tokens"}, True)] * 3 + [({}, False)] * 2)
        steps = self.sink.steps()
        self.assertEqual(sorted(steps), [0, 1, 2])
        self.assertEqual(steps[1][:4], ["+schedule", "-other", "tokens=17", "+execute"])
        self.assertEqual(steps[1][4:6], ["+update", "-other"])
        self.assertIn("running=2", steps[1])
        self.assertIn("waiting=1", steps[1])

    def worker(self):
        class Worker:
            def execute_model(self, scheduler_output):
                return "tokens"

        return Worker

    def test_a_worker_in_the_engines_process_is_part_of_its_step(self):
        worker = self.worker()
        kind = self.engine(worker=worker())
        vllm.hook(self.module(EngineCore=kind, Worker=worker))
        kind().step()
        self.assertEqual(sorted(self.sink.steps()), [0])

    def test_a_worker_in_a_process_of_its_own_has_steps_of_its_own(self):
        worker = self.worker()
        vllm.hook(self.module(Worker=worker))
        output = types.SimpleNamespace(total_num_scheduled_tokens=9)
        for _ in range(2):
            self.assertEqual(worker().execute_model(output), "tokens")
        self.assertEqual(self.sink.steps()[1], ["tokens=9", "+forward", "-forward"])

    def test_the_engine_before_v1(self):
        class LLMEngine:
            def __init__(self):
                self.scheduler = [types.SimpleNamespace(running=["a"], waiting=["b", "c"])]

            def has_unfinished_requests(self):
                return True

            def step(self):
                return ["out"]

        vllm.hook(self.module(LLMEngine=LLMEngine))
        self.assertEqual(LLMEngine().step(), ["out"])
        self.assertEqual(self.sink.take(), "step 0 running=1 waiting=2 end 0")

    def test_an_error_of_the_engine_passes_and_ends_the_step(self):
        kind = self.engine()
        vllm.hook(self.module(EngineCore=kind))
        engine = kind()
        engine.model_executor.execute_model = lambda *_, **__: 1 / 0
        with self.assertRaises(ZeroDivisionError):
            engine.step()
        self.assertTrue(self.sink.take().endswith("end 0"))
        self.assertEqual(vllm._in_engine, 0)


class Common(Loop):
    def test_a_broken_callback_says_one_line_and_is_off(self):
        import contextlib
        import io

        @_guard.guarded("a callback of this test")
        def callback():
            raise ValueError("odd state")

        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            for _ in range(3):
                callback()
        self.assertEqual(said.getvalue().count("\n"), 1)

    def test_of_what_a_framework_logs_only_known_numbers_are_taken(self):
        _common.log_numbers({"loss": 1, "lr": 2, "accuracy": 3, "flag": True, 4: 5})
        self.assertEqual(self.sink.take(), "loss=1 learning_rate=2")


if __name__ == "__main__":
    unittest.main()
