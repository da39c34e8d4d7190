"""The package with the real Trainer, Lightning, Accelerate and a current torch: `./dev test python-frameworks`.

Not found by unittest's discovery: it needs build/frameworks, which that command makes.
"""

import importlib.metadata
import sys
import tempfile
import time
import unittest

from support import Marked

import lockstep
from lockstep import _groups, _runtime

assert "torch" not in sys.modules
lockstep.init()  # before torch, as the import hook does

import accelerate  # noqa: E402
import lightning  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from torch.utils.data import DataLoader, Dataset, TensorDataset  # noqa: E402

STEP_PHASES = ["+input", "+forward", "+backward", "-backward", "+optimizer", "-optimizer"]


class Slow(Dataset):
    def __init__(self, length, delay_s=0.0):
        self.length, self.delay_s = length, delay_s

    def __len__(self):
        return self.length

    def __getitem__(self, at):
        time.sleep(self.delay_s)  # a loader that takes so long
        tokens = torch.arange(at, at + 16) % 64
        return {"input_ids": tokens, "labels": tokens}


def phases(marks):
    return [mark for mark in marks if mark[0] in "+-"]


class Real(unittest.TestCase):
    def setUp(self):
        _groups.forget()
        self.sink = Marked()
        _runtime.use_sink(self.sink)
        self.addCleanup(_runtime.reset)
        torch.manual_seed(1)

    def loop(self, steps, compiled=False):
        model = torch.nn.Linear(4, 1)
        run = torch.compile(model, backend="eager") if compiled else model
        optimizer = torch.optim.AdamW(model.parameters())
        for x, y in DataLoader(TensorDataset(torch.randn(2 * steps, 4), torch.randn(2 * steps, 1)), batch_size=2):
            torch.nn.functional.mse_loss(run(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
        return self.sink.steps()

    def test_a_plain_loop(self):
        steps = self.loop(4)
        self.assertEqual(sorted(steps), [0, 1, 2, 3, 4])
        self.assertEqual(phases(steps[2]), STEP_PHASES)

    def test_a_compiled_model(self):
        self.assertEqual(phases(self.loop(4, compiled=True)[2]), STEP_PHASES)

    def test_the_flop_counter_counts_one_step(self):
        from lockstep import _count_flops

        _count_flops.arm()
        marks = self.loop(8)
        # Two samples, 4 x 1: forward 16, the weight's gradient 16
        self.assertIn("flops=32", marks[7])
        self.assertTrue(
            any(mark.startswith("note counted 32 FLOPs in step") for step in marks.values() for mark in step)
        )

    def test_a_step_that_the_scaler_leaves_out_is_a_step(self):
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
        data = DataLoader(TensorDataset(torch.randn(12, 4), torch.randn(12, 1)), batch_size=2)
        for number, (x, y) in enumerate(data):
            loss = torch.nn.functional.mse_loss(model(x), y)
            scaler.scale(loss * float("inf") if number == 3 else loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        steps = self.sink.steps()
        self.assertEqual(sorted(steps), [0, 1, 2, 3, 4, 5, 6])
        self.assertEqual([number for number in steps if "skipped=1" in steps[number]], [3])

    def test_a_device_mesh_names_its_groups(self):
        with tempfile.TemporaryDirectory() as folder:
            torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
            try:
                torch.distributed.init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
                torch.distributed.new_group([0], group_desc="TENSOR_MODEL_PARALLEL_GROUP_2")
            finally:
                torch.distributed.destroy_process_group()
        told = [mark for mark in self.sink.marks if mark.startswith("group")]
        self.assertEqual(told, ["group world 0", "group dp 0", "group tp 0", "group TENSOR_MODEL_PARALLEL_GROUP_2 0"])

    def test_a_distributed_checkpoint_is_one(self):
        import torch.distributed.checkpoint as checkpoint

        steps = self.loop(2)
        with tempfile.TemporaryDirectory() as folder:
            checkpoint.save({"a": torch.ones(2)}, checkpoint_id=folder, no_dist=True)
        self.assertEqual(
            [mark for mark in self.sink.steps()[2] if "checkpoint" in mark], ["+checkpoint", "-checkpoint"]
        )
        self.assertEqual(sorted(steps), [0, 1, 2])

    def trainer(self, folder, **options):
        from lockstep.integrations.hf import LockstepCallback

        config = transformers.GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2)
        arguments = transformers.TrainingArguments(
            output_dir=folder, max_steps=6, per_device_train_batch_size=2, report_to=[], use_cpu=True, disable_tqdm=True,
            logging_steps=2, dataloader_num_workers=0, **options,
        )  # fmt: skip
        model = transformers.GPT2LMHeadModel(config)
        callback = LockstepCallback(tokens_per_step=32, peak=1e9, sequence=16)
        return transformers.Trainer(
            model=model, args=arguments, train_dataset=Slow(64, 0.002), eval_dataset=Slow(8), callbacks=[callback]
        )

    def test_the_trainer(self):
        with tempfile.TemporaryDirectory() as folder:
            self.trainer(folder, eval_strategy="steps", eval_steps=3, save_steps=4).train()
        steps = self.sink.steps()
        self.assertEqual(sorted(steps), [0, 1, 2, 3, 4, 5])
        for number in range(1, 6):
            self.assertTrue({"+input", "+forward", "+backward", "+optimizer"} <= set(steps[number]), steps[number])
            self.assertTrue(any(mark.startswith("flops=") for mark in steps[number]), steps[number])
        self.assertTrue(any(mark.startswith("learning_rate=") for mark in steps[1]), steps[1])
        self.assertFalse(any(mark.startswith("learning_rate=") for mark in steps[2]), steps[2])
        self.assertIn("+eval", steps[2])
        self.assertNotIn("+eval", steps[3])
        self.assertIn("+checkpoint", steps[3])
        self.assertNotIn("+checkpoint", steps[1])

    def test_the_trainer_with_gradient_accumulation(self):
        with tempfile.TemporaryDirectory() as folder:
            self.trainer(folder, gradient_accumulation_steps=5, save_strategy="no").train()
        steps = self.sink.steps()
        self.assertEqual(sorted(steps), [0, 1, 2, 3, 4, 5])
        self.assertEqual(steps[3].count("+backward"), 5)
        self.assertNotIn("+eval", steps[3])

    def test_lightning(self):
        from lockstep.integrations.lightning import LockstepCallback

        class Module(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(4, 1)

            def training_step(self, batch, index):
                return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])

            def validation_step(self, batch, index):
                self.layer(batch[0])

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.01)

        data = TensorDataset(torch.randn(24, 4), torch.randn(24, 1))
        with tempfile.TemporaryDirectory() as folder:
            trainer = lightning.Trainer(
                max_epochs=2, accelerator="cpu", devices=1, logger=False, enable_progress_bar=False, enable_model_summary=False,
                default_root_dir=folder, callbacks=[LockstepCallback()], accumulate_grad_batches=2,
            )  # fmt: skip
            trainer.fit(Module(), DataLoader(data, batch_size=4), DataLoader(data, batch_size=4))
        steps = self.sink.steps()
        self.assertEqual(sorted(steps)[:6], [0, 1, 2, 3, 4, 5])
        self.assertEqual(steps[1].count("+backward"), 2)
        self.assertTrue(any(mark.startswith("loss=") for mark in steps[4]))
        self.assertIn("+eval", steps[2])  # the last step of the first epoch
        self.assertIn("+checkpoint", steps[2])

    def test_accelerate_with_gradient_accumulation(self):
        from lockstep.integrations.accelerate import wrap

        accelerator = wrap(accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2))
        model = torch.nn.Linear(4, 1)
        model, optimizer, data = accelerator.prepare(
            model, torch.optim.SGD(model.parameters(), lr=0.01),
            DataLoader(TensorDataset(torch.randn(24, 4), torch.randn(24, 1)), batch_size=4),
        )  # fmt: skip
        for x, y in data:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.mse_loss(model(x), y)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        steps = self.sink.steps()
        self.assertEqual(sorted(steps), [0, 1, 2, 3])
        self.assertEqual(steps[1].count("+backward"), 2)


if __name__ == "__main__":
    print(
        "with",
        *(
            f"{name} {importlib.metadata.version(name)}"
            for name in ("torch", "transformers", "accelerate", "lightning")
        ),
    )
    unittest.main()
