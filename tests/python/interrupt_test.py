#!/usr/bin/env python3
"""Ctrl-C while DDP's backward exchanges gradients: wherever it comes, all ranks end."""
import contextlib
import os
import signal
import sys
import unittest

import workers

try:
    import torch
    import torch.distributed as dist
except ImportError as why:
    workers.skip(f"python3-torch is not installed: {why}")

import telegrad
import telegrad.torch
from torch.nn.parallel import DistributedDataParallel as DDP

RANK = int(os.environ.get("RANK", -1))
FILE = os.path.abspath(__file__)
HOOK = [sys.modules[f"telegrad.torch.{name}"].__file__ for name in ("_hook", "_pending")]
FORWARD = ("_watch_of", "<listcomp>")  # its functions that forward calls


class CtrlC:
    """In `with`: Ctrl-C at the hook's line of that number; `where`: its function."""

    def __init__(self, line):
        self.line = line
        self.where = None

    def __enter__(self):
        sys.settrace(self.trace)
        return self

    def __exit__(self, kind, error, traceback):
        sys.settrace(None)

    def trace(self, frame, event, _):
        if frame.f_code.co_filename not in HOOK or frame.f_code.co_name in FORWARD:
            return None
        if event == "line":
            self.line -= 1
            if self.line < 0:
                self.where = frame.f_code.co_name
                signal.raise_signal(signal.SIGINT)
        return self.trace


def compressed():
    """A model of two buckets, which DDP has made anew."""
    model = DDP(torch.nn.Sequential(torch.nn.Linear(9, 50), torch.nn.Linear(50, 40)),
                bucket_cap_mb=0.002)
    state = telegrad.torch.compress(model, verbose=False)
    for _ in range(2):
        step(model)
    dist.barrier()
    return model, state


def step(model):
    model(torch.ones(2, 9)).sum().backward()


# ---- what a rank does ----

def everywhere(_):
    """Rank 0 gets Ctrl-C in the next line each time, until it only waits for rank 1,
    which does not take part in that step."""
    dist.init_process_group("gloo")
    places = []
    while places.count("wait") < 8:
        model, state = compressed()
        with CtrlC(len(places)) as ctrl_c:
            try:
                if RANK == 0:
                    step(model)
                else:
                    state._job.barrier()
                raise AssertionError(f"{ctrl_c.where}, line {len(places)}: not heard")
            except KeyboardInterrupt:
                pass
            except telegrad.Cancelled:
                assert RANK == 1
            except RuntimeError as why:  # torch's, of what its hook raises
                assert str(why).startswith("KeyboardInterrupt"), why
        state._job.fail("interrupted")
        state.close()
        with contextlib.suppress(telegrad.Cancelled):
            state._job.close(3)
        place = [ctrl_c.where]
        dist.broadcast_object_list(place)
        places += place
    return sorted(set(places))


def interrupted(_):
    """Rank 0 waits in backward for rank 1, which reads what never comes."""
    dist.init_process_group("gloo")
    model, state = compressed()
    print("ready", flush=True)
    if RANK == 1:
        state._job.barrier()
    step(model)


# ---- the tests ----

class Interrupt(unittest.TestCase):
    def test_ctrl_c_is_heard_at_each_line_of_the_hook(self):
        for places in workers.Ranks(FILE, "everywhere", forks=False).results():
            self.assertLessEqual({"_finish", "push_pull", "_start", "wait", "exchange", "hook"},
                                 set(places))

    def test_all_ranks_end(self):
        ranks = workers.Ranks(FILE, "interrupted", forks=False)
        self.assertEqual([ranks.line(rank) for rank in range(2)], ["ready"] * 2)
        ranks.kill(0, signal.SIGINT)
        (code, _, err), (other, _, other_err) = ranks.wait()
        self.assertIn("KeyboardInterrupt", err)
        self.assertEqual(code, -signal.SIGINT)
        self.assertEqual(other, 33, other_err)
        self.assertIn("Cancelled: worker 0: Ctrl-C", other_err)


if __name__ == "__main__":
    workers.main({function.__name__: function for function in (everywhere, interrupted)})
