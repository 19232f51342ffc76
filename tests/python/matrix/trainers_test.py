#!/usr/bin/env python3
"""Lightning, Transformers and Accelerate, each that is installed, with what
`telegrad` has for it: two ranks end with equal weights, and with fewer bytes."""
import importlib.util
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import workers

try:
    import torch
    import torch.distributed as dist
except ImportError as why:
    workers.skip(f"torch is not installed: {why}")

RANK = int(os.environ.get("RANK", -1))
FILE = os.path.abspath(__file__)


def net():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(24, 50), torch.nn.ReLU(),
                               torch.nn.Linear(50, 3))


def examples():
    """32 of each rank's own."""
    generator = torch.Generator().manual_seed(RANK)
    return [torch.randn(24, generator=generator) for _ in range(32)]


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=.9, weight_decay=.01)


def told_kubeflow():
    """(step, steps, names of numbers) of each report of this rank, from now on."""
    import telegrad.kubeflow
    told = []
    telegrad.kubeflow._REPORTER.report = lambda step, steps, numbers: told.append(
        [step, steps, sorted(numbers)])
    return told


def found(model, state, optimizer):
    return [sum(p.double().abs().sum().item() for p in model.parameters()),
            state.report()["push_ratio"], state.report()["steps"],
            optimizer.param_groups[0].get("telegrad_momentum")]


# ---- what a rank does ----

def lightning(_):
    import lightning.pytorch as pl

    import telegrad.lightning

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net()

        def training_step(self, batch, index):
            return self.net(batch).pow(2).mean()

        def configure_optimizers(self):
            return sgd(self)

    told = told_kubeflow()
    callback = telegrad.lightning.Compress(gc_type="2bit")
    module = Module()
    with tempfile.TemporaryDirectory() as folder:
        trainer = pl.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=1,
                             default_root_dir=folder, callbacks=[callback], logger=False,
                             enable_progress_bar=False, enable_checkpointing=False)
        trainer.fit(module, torch.utils.data.DataLoader(examples(), batch_size=8))
    return [*found(module, callback.state, trainer.optimizers[0]), told]


def transformers(_):
    import transformers as hf

    import telegrad.transformers

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net()

        def forward(self, x, **_):
            return {"loss": self.net(x).pow(2).mean()}

    told = told_kubeflow()
    callback = telegrad.transformers.Compress(gc_type="int2")
    model = Model()
    optimizer = sgd(model)
    with tempfile.TemporaryDirectory() as folder:
        hf.Trainer(model=model, callbacks=[callback], optimizers=(optimizer, None),
                   args=hf.TrainingArguments(
                       output_dir=folder, per_device_train_batch_size=8, num_train_epochs=1,
                       logging_steps=1, use_cpu=True, report_to=[], save_strategy="no",
                       disable_tqdm=True, remove_unused_columns=False),
                   train_dataset=[{"x": each} for each in examples()]).train()
    return [*found(model, callback.state, optimizer), told]


def accelerate(_):
    from accelerate import Accelerator

    import telegrad.accelerate
    import telegrad.torch

    model = net()
    own = sgd(model)
    accelerator = Accelerator(cpu=True, kwargs_handlers=[
        telegrad.accelerate.handler(gc_type="2bit", guard=False, optimizer=own)])
    model, optimizer, loader = accelerator.prepare(
        model, own,
        torch.utils.data.DataLoader(examples(), batch_size=8))
    for batch in loader:
        optimizer.zero_grad()
        accelerator.backward(model(batch).pow(2).mean())
        optimizer.step()
    state = telegrad.torch._hook.states()[0]
    result = found(model, state, optimizer)
    state.close()
    dist.barrier()
    return result


# ---- the tests ----

class Trainers(unittest.TestCase):
    def check(self, function, least_ratio):
        name = function.__name__
        if importlib.util.find_spec(name) is None:
            self.skipTest(f"{name} is not installed")
        (one, ratio, steps, kept, *told), (other, _, _, _, *others) = workers.Ranks(
            FILE, name, 2, KUBEFLOW_TRAINER_STATUS_URL="https://localhost:1/").results()
        self.assertEqual(one, other)
        self.assertEqual(kept, .9)
        self.assertGreater(ratio, least_ratio)
        self.assertGreater(steps, 1)
        return told, others

    def check_kubeflow(self, told, others):
        """Rank 0 tells each step and its loss."""
        self.assertEqual(others, [[]])
        steps = told[0][-1][1]
        self.assertEqual([each[:2] for each in told[0]],
                         [[step, steps] for step in range(1, steps + 1)])
        self.assertEqual(told[0][-1][2], ["loss", "step"])

    def test_lightning(self):
        self.check_kubeflow(*self.check(lightning, 4))

    def test_transformers(self):
        self.check_kubeflow(*self.check(transformers, 2))

    def test_accelerate(self):
        self.check(accelerate, 4)


if __name__ == "__main__":
    workers.main({function.__name__: function for function in (
        lightning, transformers, accelerate)})
