#!/usr/bin/env python3
"""Which codec telegrad.torch takes beside which optimizer, variable and link, and what it
says of that."""
import gc
import inspect
import json
import math
import os
import re
import unittest
import warnings

import workers

try:
    import torch
    import torch.distributed as dist
except ImportError as why:
    workers.skip(f"python3-torch is not installed: {why}")

import telegrad
import telegrad.torch
from nets import Net, inputs
from telegrad.torch import _options
from torch.nn.parallel import DistributedDataParallel as DDP

RANK = int(os.environ.get("RANK", -1))
FILE = os.path.abspath(__file__)


# ---- what a rank does ----

def says(kinds):
    """What the first rank says of models whose optimizers nobody has named."""
    dist.init_process_group("gloo")
    for kind, is_early in kinds:
        model = DDP(torch.nn.BatchNorm1d(24) if kind == "norm" else torch.nn.Linear(24, 50))
        arguments = {"momentum": {"momentum": .9}, "adam": {}}.get(kind)

        def made(model=model, kind=kind, arguments=arguments):
            if arguments is None:
                return None
            return (torch.optim.AdamW if kind == "adam" else torch.optim.SGD)(
                model.parameters(), lr=.1, **arguments)

        optimizer = made() if is_early else None
        state = telegrad.torch.compress(model, gc_type="auto" if is_early else "2bit")
        optimizer = optimizer or made()
        model(inputs(0, RANK)).sum().backward()  # the user's line
        state.close()


def of_environment(_):
    """The codec of a variable, an argument that wins, and what is said through logging."""
    dist.init_process_group("gloo")
    lines = workers.logged(lambda record: [record.levelname, record.getMessage()])
    shown = []
    for options in ({}, {"gc_type": "fp16"}):
        model = DDP(Net())
        state = telegrad.torch.compress(model, **options)
        model(inputs(0, RANK)).sum().backward()
        shown.append(repr(state))
        telegrad.torch.report(model)
        state.state_dict()
        state.close()
    return [shown, lines]


def chooses(_):
    """Over an emulated link of 20 Mbit/s."""
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(3)]))
    state = telegrad.torch.compress(model, gc_type="auto", allow="2bit", link="20mbit")
    ratios = []
    for step in range(45):
        model(torch.ones(1, 256)).sum().backward()
        if step in (0, 8):
            ratios.append(state.report()["push_ratio"])
    found = state.report()
    state.close()
    return ["; ".join(f"{made['choice']}: {made['why']}" for made in found["auto"]),
            ratios[-1], found["push_ratio"] if workers.pushes(RANK) else math.inf]


# ---- the tests ----

class Choice(unittest.TestCase):
    def ranks(self, function, argument=None, num=2):
        return workers.Ranks(FILE, function.__name__, num, argument)

    def test_adam_and_momentum_with_two_bits_are_warned_of(self):
        check, parameters = telegrad.torch._auto.check_optimizer, list(Net().parameters())
        adam = torch.optim.AdamW(parameters)
        check(adam, "auto", None)
        for codec in ("2bit:auto", "topk:0.01", "terngrad", "powersgd"):
            with self.assertWarnsRegex(UserWarning, f"{codec} with AdamW"):
                check(adam, codec, None)
            with self.assertRaisesRegex(telegrad.UsageError, f"{codec} with AdamW.*int8"):
                check(adam, "auto", f"int8,{codec}")
        with self.assertRaisesRegex(telegrad.UsageError, "2bit with RMSprop"):
            check(torch.optim.RMSprop(parameters), "auto", "2bit")
        with self.assertWarnsRegex(UserWarning, "^2bit with AdamW"):
            check(adam, "int8", None, "bias=none;embedding=2bit;head=2bit")

        class Own(torch.optim.Adam):
            """A user's."""

        class Accelerated:
            """As Accelerate's: around the optimizer."""
            def __init__(self, optimizer):
                self.optimizer, self.param_groups = optimizer, optimizer.param_groups

        for each in (Own(parameters), Accelerated(Own(parameters))):
            with self.assertWarnsRegex(UserWarning, "2bit with Own") as caught:
                check(each, "2bit", None)
            self.assertEqual(caught.filename, __file__)
        with_momentum = torch.optim.SGD(parameters, lr=.05, momentum=.9)
        with self.assertWarnsRegex(
                UserWarning, r"2bit with momentum 0.9: .*\(..., optimizer=\) moves it.*int4") as caught:
            check(Accelerated(with_momentum), "auto", "2bit")
        self.assertEqual(caught.filename, __file__)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check(with_momentum, "dgc", "2bit", "bias=int8;embedding=terngrad")
            check(Accelerated(torch.optim.SGD(parameters, lr=1)), "2bit", None)
            check(adam, "auto", "fp16,int8", "bias=none")
            check(adam, "int4", None)
            check(torch.optim.SGD(parameters, lr=1), "auto", "2bit")
            check(torch.optim.Adagrad(parameters), "auto", "2bit")

    def test_auto_takes_no_few_bits_beside_what_they_harm(self):
        """As `telegrad-train`, which takes int4 there."""
        model, kind = Net(), telegrad.torch._auto.OptimizerCheck
        parameters = list(model.parameters())
        for make, allowed, note in (
                (lambda: torch.optim.SGD(parameters, lr=1), "int2", "^$"),
                (lambda: torch.optim.SGD(parameters, lr=1, momentum=.9, dampening=.5), "int4",
                 "harm steps with momentum 0.9"),
                (lambda: torch.optim.RMSprop(parameters), "int4", "steps with RMSprop"),
                (lambda: None, "int4", "no optimizer is known.*optimizer=")):
            optimizer = make()
            for given in (None, optimizer):
                gc.collect()  # those before
                check = kind("auto", None, "", given, model.parameters(), True)
                self.assertEqual(check.allow, allowed)
                self.assertRegex(check.note, note)
        self.assertEqual(kind("auto", "2bit", "", None, parameters, True).allow, "2bit")

    def test_the_first_rank_is_told_what_nobody_has_asked_for(self):
        kinds = [["momentum", False], ["adam", False], ["none", False], ["norm", False],
                 ["momentum", True]]
        (code, _, err), (_, _, other) = self.ranks(says, kinds).wait()
        self.assertEqual((code, other), (0, ""), err)
        for text in (r"torch_choice_test.py:\d+: UserWarning: 2bit with momentum 0.9.*\n.*the user's "
                     "line", r"torch_choice_test.py:\d+: UserWarning: 2bit with AdamW",
                     "no optimizer of torch steps the model.*optimizer=",
                     "nothing is compressed: 2bit .*dense_1d=False",
                     "auto for 1 tensor of 1,200 elements .it measures before",
                     "auto may take int4: .*momentum 0.9"):
            self.assertEqual(len(re.findall(text, err)), 1 if "no opt" not in text else 2, err)

    def test_the_environment_chooses_where_the_script_does_not(self):
        run = workers.Ranks(FILE, "of_environment", 2, TELEGRAD_CODEC="int4")
        (code, out, err), (other, second, _) = run.wait()
        self.assertEqual((code, other, err), (0, 0, ""), err)
        (int4, fp16), lines = json.loads(out)
        self.assertRegex(int4, r"State: int4, none; 1 steps, pushed \d+\.\d\dx")
        self.assertIn("fp16, none", fp16)
        self.assertEqual([level for level, _ in lines], ["INFO"] * len(lines))
        self.assertRegex(lines[0][1], "2 workers, .*int4 for 3 tensors")
        self.assertEqual(json.loads(second)[1], [])
        run = workers.Ranks(FILE, "of_environment", 2, TELEGRAD_DISABLE="1")
        for rank, (code, out, err) in enumerate(run.wait()):
            self.assertEqual((code, err), (0, ""), err)
            shown, lines = json.loads(out)
            self.assertRegex(shown[0], "disabled")
            self.assertEqual(len(lines), 2 if rank == 0 else 0)

    def test_the_typed_options_are_those_that_there_are(self):
        for kind, options in ((telegrad.torch.State, _options.StateOptions),
                              (telegrad.torch.Replicas, _options.ReplicasOptions)):
            own = set(inspect.signature(kind).parameters) - {
                "model", "gc_type", "replicas", "job_options"}
            self.assertEqual(set(options.__annotations__),
                             own | set(_options.ServersOptions.__annotations__))
        of_job = set(inspect.signature(telegrad.Job).parameters) - {
            "scheduler", "has_scheduler", "secret", "rank", "num_workers", "num_servers", "elastic",
            "servers_here", "role", "from_launcher", "hosts_part"}
        self.assertEqual(set(_options.JobOptions.__annotations__),
                         of_job | {"secret_file"})  # a Job has the secret itself

    def test_parameters_of_one_dimension_have_a_short_pattern(self):
        layers = [f"h.{i}.{name}" for i in range(200) for name in (
            "ln-1.weight", "ln-1.bias", "attn.weight", "attn.bias", "3.q.weight")]
        pairs = [f"{i}.{name}" for i in range(300) for name in ("weight", "bias")]
        for model, flat in (
                (layers, [name for name in layers if "bias" in name or "ln" in name]),
                (pairs, [name for name in pairs if "bias" in name or name[0] in "13579"]),
                (["1.2.w", "1.3.w", "12.w", "1.w", "a1b2", "w"], ["1.3.w", "12.w", "w"]),
                (["only"], ["only"])):
            pattern = telegrad.torch._bucket.pattern_of(flat, model)
            self.assertEqual([name for name in model if re.search(pattern, name)], flat)
            self.assertLess(len(pattern), 1000)
            telegrad.Store(None, "local").set_compression(rules=pattern + "=none")

    def test_auto_compresses_over_a_slow_link_and_says_why(self):
        for text, first, last in self.ranks(chooses).results():
            self.assertRegex(text, "off for .* steps")
            self.assertRegex(text, "2bit for 3 of .*link")
            self.assertGreater(first, 0.9)
            self.assertGreater(last, 2)


if __name__ == "__main__":
    workers.main({function.__name__: function for function in (says, of_environment, chooses)})
