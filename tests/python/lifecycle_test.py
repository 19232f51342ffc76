#!/usr/bin/env python3
"""The beginning and the end of what telegrad.torch makes: it leaves nothing, in a forked
process and after many models; what cannot begin leaves nothing, either."""
import gc
import os
import sys
import threading
import time
import unittest

import workers

try:
    import torch
    import torch.distributed as dist
except ImportError as why:
    workers.skip(f"python3-torch is not installed: {why}")

import telegrad
import telegrad.torch
from telegrad.torch._threads import set_result
from torch.nn.parallel import DistributedDataParallel as DDP

RANK = int(os.environ.get("RANK", -1))
FILE = os.path.abspath(__file__)


def compressed(**options):
    model = DDP(torch.nn.Linear(9, 50))
    return model, telegrad.torch.compress(model, verbose=RANK == 0, **options)


def step(model):
    model(torch.ones(2, 9)).sum().backward()


def left():
    """Threads of this process and descriptors, when what has ended is gone."""
    counts, deadline = [], time.monotonic() + 5
    while time.monotonic() < deadline:
        now = [len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))]
        counts.append(now)
        if counts[-10:] == [now] * 10:
            break
        time.sleep(0.02)
    return counts[-1]


# ---- what a rank does ----

def forks(_):
    """A child that ends as Python ends, with exit handlers; the parent goes on."""
    dist.init_process_group("gloo")
    model, state = compressed()
    step(model)
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        state.close()  # nothing of it is the child's
        sys.exit(5)
    _, status = os.waitpid(child, 0)
    step(model)
    assert state.report()["steps"] == 2
    return os.WEXITSTATUS(status)


def many(num):
    """Models that come and go."""
    dist.init_process_group("gloo")
    counts = []
    for _ in range(num):
        model, state = compressed()
        step(model)
        state.close()
        state.close()
        text = workers.refused(telegrad.WrongOrder, lambda model=model: step(model))
        assert "closed" in text, text
        del model, state
        counts.append(left())
    return [counts[1], counts[-1], threading.active_count()]


def dropped(num):
    """Models that nobody closes, and states that outlive them."""
    dist.init_process_group("gloo")
    first = []

    def one(keep):
        model, state = compressed()
        step(model)
        diloco = telegrad.torch.DiLoCo(torch.nn.Linear(9, 50), None, sync_every=3)
        del model, diloco
        gc.collect()
        return state if keep else None

    kept = one(True)
    first = left_at_most(None)
    for i in range(num):
        one(False)
    last = left_at_most(first)
    kept.close()
    assert len(telegrad.torch._states.states()) <= 1
    return [first, last]


def left_at_most(counts):
    """The threads and descriptors when no job is left, and no more than `counts`."""
    deadline = time.monotonic() + 20
    while telegrad.job._open_jobs and time.monotonic() < deadline:
        time.sleep(0.02)
    now = left()
    while counts and time.monotonic() < deadline and (
            now[0] > counts[0] or now[1] > counts[1]):
        now = left()
    return now


def future_at_the_end(_):
    """A future is being set when the interpreter ends."""
    dist.init_process_group("gloo")
    model, state = compressed()
    step(model)
    sys.ends_slowly = workers.EndsSlowly()
    future = torch.futures.Future()
    future.then(lambda _, sleep=time.sleep: sleep(0.5))

    threading.Thread(target=set_result, args=(future, None), daemon=True).start()
    time.sleep(0.1)


class InOrder(list):
    """In place of a set, whose order is any."""

    def discard(self, item):
        if item in self:
            self.remove(item)


def never_closed(_):
    """Jobs that the interpreter's end closes, in another order on each rank; of their
    stores the script has no names any more."""
    dist.init_process_group("gloo")
    stores = [telegrad.kvstore.create("dist_sync", operation_timeout=15) for _ in range(2)]
    jobs = InOrder([store._own_job for store in stores][::1 if RANK == 0 else -1])
    telegrad.job._open_jobs = jobs
    return len(jobs)


def has_a_hook(_):
    """A model with a hook of torch's is refused, and may be made anew."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(9, 50))
    model.register_comm_hook(None, default_hooks.allreduce_hook)
    before = left()
    texts = [workers.refused(telegrad.UsageError,
                             lambda: telegrad.torch.compress(model)) for _ in range(2)]
    assert left() == before, (before, left())
    model, state = compressed()
    step(model)
    return texts


# ---- the tests ----

class Lifecycle(unittest.TestCase):
    def ranks(self, function, argument=None):
        return workers.Ranks(FILE, function.__name__, 2, argument)

    def test_a_child_of_a_fork_ends_as_it_wants(self):
        for code, out, err in self.ranks(forks).wait():
            self.assertEqual((code, out.strip()), (0, "5"), err)
            self.assertNotIn("Traceback", err)
            self.assertLessEqual(err.count("rank 0 in"), 1)

    def test_models_that_come_and_go_leave_nothing(self):
        for first, last, _ in self.ranks(many, 6).results():
            self.assertEqual(first, last)

    def test_models_that_are_dropped_leave_their_jobs(self):
        for first, last in self.ranks(dropped, 20).results():
            self.assertLessEqual(last[0], first[0])
            self.assertLessEqual(last[1], first[1])

    def test_jobs_that_nobody_closed_end_in_order(self):
        for code, _, err in self.ranks(never_closed).wait():
            self.assertEqual(code, 0, err)
            self.assertNotIn("have not left", err)

    def test_a_future_that_is_set_at_the_end_aborts_nobody(self):
        for code, _, err in self.ranks(future_at_the_end).wait():
            self.assertEqual(code, 0, err)

    def test_a_model_with_a_hook_is_refused_and_leaves_nothing(self):
        for texts in self.ranks(has_a_hook).results():
            for text in texts:
                self.assertRegex(text, "has a communication hook.*new DistributedDataParallel")


if __name__ == "__main__":
    workers.main({function.__name__: function for function in (
        forks, many, dropped, never_closed, future_at_the_end, has_a_hook)})
