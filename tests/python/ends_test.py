#!/usr/bin/env python3
"""A rank that ends before the others, in whatever way: they hear at once who and why, and
it waits for nobody. Operations may take 300 s: only that ends them in time."""
import os
import re
import signal
import subprocess
import sys
import tempfile
import traceback
import unittest

import numpy as np
import telegrad
import workers

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing
except ImportError as why:
    workers.skip(f"python3-torch is not installed: {why}")

import telegrad.torch
from torch.nn.parallel import DistributedDataParallel as DDP

RANK = int(os.environ.get("RANK", -1))
FILE = os.path.abspath(__file__)
# Where hosts sum first, the job of a host's workers has an end of its own.
AMONG = r"(among the workers of worker/\d's host: )?"


# ---- what a rank does ----

def steps(how):
    """Rank 1 does two steps of rank 0's three, and ends so."""
    kv = telegrad.kvstore.create("dist_sync")
    value = np.ones(70000, np.float32)
    kv.init("w", value)
    for _ in range(2 if RANK == 1 else 3):
        kv.pushpull("w", value, out=value)
    if how == "close":
        kv.close()
    elif how != "end":
        sys.exit(int(how))


def pulls(_):
    """Equal work is promised of pushes alone."""
    kv = telegrad.kvstore.create("dist_sync")
    value = np.ones(8, np.float32)
    kv.init("w", value)
    for _ in range(1 if RANK == 1 else 3):
        kv.pull("w", out=value)


def sums(how):
    """Rank 0, beside which the scheduler is, sums once less."""
    job = telegrad.Job("127.0.0.1:" + os.environ["MASTER_PORT"], rank=RANK, num_workers=2,
                       has_scheduler=RANK == 0, servers_here=RANK == 0).join()
    group = telegrad.Group(job)
    for _ in range(1 + RANK):
        group.allreduce(np.ones(8, np.float32))
    if how == "close":
        job.close()


def small_model(has_buffers=False):
    layers = [torch.nn.Linear(8, 8)]
    if has_buffers:
        layers.append(torch.nn.BatchNorm1d(8))
    model = DDP(torch.nn.Sequential(*layers))
    telegrad.torch.compress(model, "2bit", verbose=False)
    return model


def step(model):
    model(torch.rand(4, 8)).sum().backward()


def batches(argument):
    """The rank `longer` has a batch more than the other one."""
    has_buffers, longer = argument
    dist.init_process_group("gloo")
    model = small_model(has_buffers)
    for _ in range(2 + (RANK == longer)):
        step(model)


def catches(_):
    """Rank 1 catches its error, says it, and ends."""
    dist.init_process_group("gloo")
    model = small_model()
    try:
        step(model)
        if RANK == 1:
            raise ValueError("bad batch")
        step(model)
    except ValueError:
        traceback.print_exc()
        sys.exit(1)


def killed(_):
    """Rank 1 dies, while rank 0 is about to send buffers."""
    dist.init_process_group("gloo")
    model = small_model(has_buffers=True)
    step(model)
    if RANK == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        step(model)


def restarts(_):
    """Of torchrun: in its first two attempts another rank dies after two steps."""
    dist.init_process_group("gloo")
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    model = DDP(torch.nn.Linear(8, 8))
    telegrad.torch.compress(model, "2bit:4", verbose=False)
    for i in range(4):
        if i == 2 and (attempt, RANK) == (0, 1):
            os._exit(1)
        if i == 2 and (attempt, RANK) == (1, 0):  # beside which the scheduler is
            os.kill(os.getpid(), signal.SIGKILL)
        model.zero_grad()
        model(torch.ones(4, 8)).sum().backward()  # gradients of 4
    return [attempt, RANK, float(model.module.weight.grad.sum())]


def spawned(rank, port):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=port, LOCAL_RANK=str(rank))
    dist.init_process_group("gloo")
    model = small_model()
    step(model)
    if rank == 1:
        raise ValueError("bad batch")
    step(model)


def spawns(_):
    torch.multiprocessing.spawn(spawned, (os.environ["MASTER_PORT"],), nprocs=2)


# ---- the tests ----

class Ends(unittest.TestCase):
    def ranks(self, function, argument=None, num=2, **more):
        return workers.Ranks(FILE, function.__name__, num, argument, **more).wait()

    def test_steps_after_a_worker_left_name_it(self):
        for how in ("close", "0", "end"):
            (code, _, err), (_, _, left_err) = self.ranks(steps, how, forks=False)
            self.assertEqual(code, 20, err + left_err)
            self.assertRegex(err, f"PeerDied: {AMONG}worker/1 has left the job after step 2; "
                                  "tensor w, step 3 waits for it")
            if len(workers.encoders()) > 1:  # else a host's job may, of its own part
                self.assertNotIn("suspect", err + left_err)

    def test_an_exit_status_fails_the_job(self):
        (code, _, err), (own, _, _) = self.ranks(steps, "3")
        self.assertEqual((code, own), (70, 3), err)
        self.assertIn("worker/1 has ended with exit status 3", err)

    def test_who_only_pulls_needs_nobody(self):
        for code, _, err in self.ranks(pulls):
            self.assertEqual(code, 0, err)
            self.assertRegex(err, "^(telegrad: hosts sum first: .*\n)?$")

    def test_a_collective_names_who_left(self):
        for how in ("end", "close"):
            (own, _, _), (code, _, err) = self.ranks(sums, how)
            self.assertEqual((code, own), (20, 20 if how == "close" else 0), err)
            self.assertIn("PeerDied: worker/0 has left the job; a collective of worker/1 "
                          "waits for it", err)

    def test_a_batch_more(self):
        for has_buffers in (False, True):
            for longer in (0, 1):
                ended = self.ranks(batches, [has_buffers, longer])
                code, _, err = ended[longer]
                self.assertEqual(code, 20, (has_buffers, longer, ended))
                self.assertRegex(err, f"PeerDied: {AMONG}worker/{1 - longer} has left the job")
                self.assertEqual(ended[1 - longer][0], 0, ended)

    def test_a_caught_error(self):
        (code, _, err), (own, _, _) = self.ranks(catches)
        self.assertEqual((code, own), (70, 1), err)
        self.assertIn("worker/1 has ended with exit status 1", err)

    def test_a_death_is_told_where_buffers_are_sent_first(self):
        code, _, err = self.ranks(killed)[0]
        self.assertEqual(code, 20, err)
        self.assertRegex(err, "PeerDied: .*worker/1@")

    def test_torchrun_starts_all_anew_after_a_death(self):
        with tempfile.TemporaryDirectory() as folder:
            # Without -r and -t torchrun of torch 1.13 fails with Python 3.11.
            run = subprocess.run(
                [sys.executable, "-m", "torch.distributed.run", "--standalone",
                 "--nproc_per_node", "2", "--max_restarts", "2", "-r", "1", "-t", "1",
                 "--log_dir", folder, FILE, "--rank", "restarts"],
                env=dict(os.environ, ARGUMENT="null", PYTHONDONTWRITEBYTECODE="1"),
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                timeout=workers.TIMEOUT_S, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        mean = 64 * 4 * len(workers.encoders()) / 2  # codes of 4, for two ranks
        self.assertEqual(sorted(re.findall(rf"\[2, (\d), {mean}\]", run.stdout)), ["0", "1"],
                         run.stdout + run.stderr)

    def test_a_spawned_process_that_raises(self):
        """Its parent hears of it, since nobody waits for the end of the operation."""
        code, _, err = self.ranks(spawns, num=1)[0]
        self.assertEqual(code, 1, err)
        self.assertIn("ValueError: bad batch", err)


if __name__ == "__main__":
    workers.main({function.__name__: function for function in (
        steps, pulls, sums, batches, catches, killed, restarts, spawns)})
