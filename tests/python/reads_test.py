#!/usr/bin/env python3
"""Steps 3 to 100 of the hook read no number that would be on a GPU: the host would wait for
it. And where it may wait for a device is listed here."""
import ast
import os
import pathlib
import unittest
from collections import Counter

import workers

try:
    import torch
    import torch.distributed as dist
    import reads
except ImportError as why:
    workers.skip(f"python3-torch is not installed: {why}")

import telegrad.torch
from nets import Net, inputs
from telegrad.torch import _pending
from torch.nn.parallel import DistributedDataParallel as DDP

FILE = os.path.abspath(__file__)
PACKAGE = pathlib.Path(telegrad.torch.__file__).parent
FIRST, LAST = 3, 100

# Settings, and an optimizer with what it has in front of the codec.
STEPS = {
    "none": ({"gc_type": "none"}, torch.optim.SGD, {}),
    "2bit": ({"gc_type": "2bit"}, torch.optim.SGD, {}),
    "momentum": ({"gc_type": "2bit"}, torch.optim.SGD, {"momentum": .9}),
    "normalize": ({"gc_type": "int2"}, torch.optim.AdamW, {}),
    "parts": ({"gc_type": "2bit", "tier1": "group"}, torch.optim.SGD, {}),
}

# Calls that wait for a device, or copy from one, by file and function: for settings, a
# checkpoint, an end, where `elastic` asks all shards, and of operations that go through host
# memory. None of them is in a step.
WAITS = {
    "_alike.py _plain item": 1,
    "_parts.py close synchronize": 1,
    "_replicas.py _end_together item": 1,
    "_residuals.py _carried numpy": 1,
    "_residuals.py _loaded numpy": 1,
    "_staged.py _lowered cpu": 1,
    "_staged.py _settle synchronize": 1,
}


def watched(threads):
    """Reads of the thread that completes operations, too."""
    complete = _pending.Pending._complete

    def under_mode(self):
        with threads.mode():
            complete(self)
    _pending.Pending._complete = under_mode


def steps_of(name):
    """What the host reads in these steps; the last one is a read of the test's own."""
    dist.init_process_group("gloo")
    seen = reads.Reads()
    watched(seen)
    options, kind, settings = STEPS[name]
    model = DDP(Net())
    optimizer = kind(model.parameters(), lr=2. ** -10, **settings)
    state = telegrad.torch.State(model, optimizer=optimizer, verbose=False, **options)

    def hook(own, bucket):
        seen.add(bucket.buffer())
        return telegrad.torch.hook(own, bucket)

    model.register_comm_hook(state, hook)
    seen.add(*model.parameters())
    with seen.mode():
        for step in range(LAST + 1):
            if step == FIRST:
                seen.count()
            optimizer.zero_grad()
            model(inputs(step, dist.get_rank())).sum().backward()
            optimizer.step()
        own = len(seen.found)
        bool(model.module.last.bias.grad.isfinite().all())
    found = seen.found
    state.close()
    return [found[:own], found[own:]]


def calls(path):
    """Of each function those that may wait."""
    found = Counter()

    def visit(node, function):
        for each in ast.iter_child_nodes(node):
            is_function = isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))
            if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute):
                if each.func.attr in ("cpu", "item", "numpy", "synchronize", "tolist"):
                    found[f"{path.name} {function} {each.func.attr}"] += 1
            visit(each, each.name if is_function else function)
    visit(ast.parse(path.read_text(encoding="utf-8")), "")
    return found


class Steps(unittest.TestCase):
    def test_nothing_is_read(self):
        for name in STEPS:
            with self.subTest(name):
                for found, own in workers.Ranks(FILE, "steps_of", argument=name).results():
                    self.assertEqual(found, [])
                    self.assertTrue(own, "a read is not noticed")

    def test_calls_that_wait_are_known(self):
        found = Counter()
        for path in PACKAGE.glob("*.py"):
            found += calls(path)
        self.assertEqual(found, WAITS)


if __name__ == "__main__":
    workers.main({function.__name__: function for function in (steps_of,)})
