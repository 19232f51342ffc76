#!/usr/bin/env python3
"""Ranks whose settings differ: all hear of it before the first step, with the setting's
name and both values."""
import inspect
import os
import unittest

import workers

try:
    import torch
    import torch.distributed as dist
except ImportError as why:
    workers.skip(f"python3-torch is not installed: {why}")

import telegrad
import telegrad.torch
from telegrad.torch import _alike, _options
from torch.nn.parallel import DistributedDataParallel as DDP

RANK = int(os.environ.get("RANK", -1))
FILE = os.path.abspath(__file__)
# Rank 0 has what is standard, or the first of two. What is said of each setting by name.
OF_STATE = {
    "gc_type": "int8", "rules": "weight=none", "threshold": 0.5, "reply": "dense",
    "packing": "radix", "nonfinite": "error", "min_bytes": 64, "warmup_steps": 3,
    "guard": False, "dense_1d": False, "servers": 1, "tier1": "off"}
OF_DILOCO = {
    "gc_type": "int8", "threshold": 0.5, "min_bytes": 64, "servers": 1, "sync_every": 4,
    "fragments": 2, "tier1": "off"}
# The job compares them itself, they are a host's own, or they decide no result.
NOT_COMPARED = {"job_id", "insecure", "transport", "tls", "bind", "link", "gdr", "gpu", "num_threads",
                "join_timeout", "dead_timeout", "operation_timeout", "verbose", "group",
                "encryption", "secret_file", "metrics_port", "metrics_file", "flight_recorder"}
# What is said is the optimizer's rates; auto alone takes it; of who keeps momentum; "on"
# takes Adam; tier1 differs then, too.
IN_OTHER_WORDS = {"optimizer", "allow", "momentum", "momentum_rate", "normalize", "elastic"}


def sgd(parameters, rank_1, **options):
    """Of rate 0.5, on rank 1 of `rank_1`."""
    return torch.optim.SGD(parameters, lr=rank_1 if RANK == 1 else 0.5, **options)


def compressed(**options):
    state = telegrad.torch.compress(DDP(torch.nn.Linear(9, 50)), verbose=False, **options)
    state.close()


def diloco(inner=0.5, outer=0.5, **options):
    model = torch.nn.Linear(9, 50)
    telegrad.torch.DiLoCo(model, sgd(model.parameters(), inner), **{
        "sync_every": 6, "outer": lambda anchors: sgd(anchors, outer), **options}).close()


# ---- what a rank does ----

def unlike(_):
    """What is said of each setting; with the same settings all goes on."""
    dist.init_process_group("gloo")

    def refused(make, options):
        return workers.refused(telegrad.Mismatch,
                               lambda: make(**(options if RANK == 1 else {})))

    texts = [refused(compressed, {name: value}) for name, value in OF_STATE.items()]
    texts += [refused(diloco, {name: value}) for name, value in OF_DILOCO.items()]
    texts += [refused(diloco, {"inner": 0.25}), refused(diloco, {"outer": 0.25})]
    weights = list(torch.nn.Linear(3, 3).parameters())
    for options in ({"gc_type": "auto", "allow": "fp16,int4" if RANK == 0 else "int4"},
                    {"optimizer": sgd(weights, 0.25)},
                    {"optimizer": [torch.optim.SGD, torch.optim.Adam][RANK](weights, 0.5),
                     "gc_type": "int8"},
                    {"momentum": ["nesterov", "heavyball"][RANK], "momentum_rate": 0.5},
                    {"momentum_rate": [0.5, 0.25][RANK]}, {"elastic": RANK == 1}):
        texts.append(workers.refused(telegrad.Mismatch, lambda: compressed(**options)))
    texts.append(refused(diloco, {"elastic": True}))
    compressed(gc_type="int8", threshold=[0.5, "0.5"][RANK], guard=[True, 1][RANK],
               optimizer=sgd(weights, 0.5) if RANK == 0 else None)
    diloco(num_threads=1 + RANK)
    return texts


def ends(_):
    dist.init_process_group("gloo")
    diloco(sync_every=4 + RANK)


# ---- the tests ----

class Alike(unittest.TestCase):
    def ranks(self, function, num=2):
        return workers.Ranks(FILE, function.__name__, num)

    def test_each_setting_that_differs_is_named_on_all_ranks(self):
        first, second = self.ranks(unlike).results()
        self.assertEqual(first, second)
        said = iter(first)
        for name, value in (*OF_STATE.items(), *OF_DILOCO.items()):
            self.assertRegex(next(said), rf"^{name}: rank 0 has \S*, rank 1 has {value}; give")
        for text in ("inner lr: rank 0 has 0.5, rank 1 has 0.25",
                     "outer lr: rank 0 has 0.5, rank 1 has 0.25",
                     "allow: rank 0 has fp16,int4, rank 1 has int4",
                     "optimizer lr: rank 0 has 0.5, rank 1 has 0.25",
                     "optimizer: rank 0 has SGD, rank 1 has Adam",
                     "momentum: rank 0 has nesterov, rank 1 has heavyball",
                     "momentum_rate: rank 0 has 0.5, rank 1 has 0.25",
                     *2 * ["elastic: rank 0 has False, rank 1 has True"]):
            self.assertIn(text, next(said))

    def test_the_first_of_more_ranks_is_told_with_its_number(self):
        for code, _, err in self.ranks(ends, 3).wait():
            self.assertEqual(code, 31, err)
            self.assertIn("Mismatch: sync_every: rank 0 has 4, rank 1 has 5; give all the same",
                          err)

    def test_every_option_is_compared_or_known_not_to_be(self):
        known = NOT_COMPARED | IN_OTHER_WORDS
        self.assertEqual(set(_options.StateOptions.__annotations__) | {"gc_type"},
                         set(OF_STATE) | known - {"group"})
        own = set(inspect.signature(telegrad.torch.DiLoCo).parameters)
        self.assertEqual(own - {"model", "job_options"} | set(
            _options.DiLoCoOptions.__annotations__), set(OF_DILOCO) | {"inner", "outer"} |
            {"momentum", "momentum_rate", "elastic"} | NOT_COMPARED - {"verbose"})

    def test_groups_of_an_optimizer(self):
        """What differs between groups is a list; an object without a value is its class."""
        one, other = torch.zeros(1), torch.zeros(1)
        optimizer = torch.optim.SGD([{"params": [one], "lr": torch.tensor(0.25)},
                                     {"params": [other]}], lr=0.5, momentum=0.75)
        optimizer.param_groups[0]["own"] = optimizer.param_groups[1]["own"] = [one, object()]
        found = _alike.optimizer_settings("outer", optimizer)
        self.assertEqual((found["outer"], found["outer lr"], found["outer momentum"]),
                         ("SGD", [0.25, 0.5], 0.75))
        self.assertEqual(found["outer own"], [0.0, "object"])
        self.assertEqual(_alike.optimizer_settings("outer", None), {})


if __name__ == "__main__":
    workers.main({function.__name__: function for function in (unlike, ends)})
