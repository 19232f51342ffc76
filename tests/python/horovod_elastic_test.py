#!/usr/bin/env python3
"""Horovod's elastic mode: ranks go on in their processes when others die, or come."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import workers

try:
    import torch
except ImportError as why:
    workers.skip(f"python3-torch is not installed: {why}")

import telegrad
import telegrad.horovod.torch as hvd

RANK = int(os.environ.get("RANK", -1))
FILE = os.path.abspath(__file__)
LAUNCH = os.path.join(os.path.dirname(FILE), "../../python/telegrad-launch")
BATCHES, LOST = 8, 3  # steps; the one in which a rank dies


def batch(index):
    """Its gradient is a multiple of 1/8, and the mean of 2 and 3 ranks' too."""
    generator = torch.Generator().manual_seed(index)
    return 6 * torch.randint(-8, 9, (20,), generator=generator) / 8


def train(options):
    """Rank `victim` dies in step LOST, in front of its gradients; with `waits` those that are left wait there until so
    many are there."""
    hvd.init()
    net = torch.nn.Linear(20, 1, bias=False)
    torch.nn.init.constant_(net.weight, RANK)  # rank 0's count
    inner = torch.optim.SGD(net.parameters(), lr=1 / 8, momentum=.5)
    optimizer = hvd.DistributedOptimizer(
        inner, named_parameters=net.named_parameters(),
        compression=options.get("codec") or hvd.Compression.none)
    sampler = hvd.elastic.ElasticSampler(range(60), shuffle=False)
    state = hvd.elastic.TorchState(net, optimizer, batch=0, sampler=sampler)
    resets, seen, sizes, tries = [], [], {}, {}
    state.register_reset_callbacks([lambda: resets.append([hvd.rank(), hvd.size()])])
    gap = {"from": 0, "longest": 0}

    @hvd.elastic.run
    def run(state):
        begins = state.batch
        while state.batch < BATCHES:
            step = state.batch
            tries[step] = tries.get(step, 0) + 1
            dies = step == LOST and RANK == options["victim"] and not is_again(options)
            if dies and "waits" in options:
                os.kill(os.getpid(), signal.SIGKILL)
            if step == LOST and hvd.size() < options.get("waits", 0):
                time.sleep(.05)
                state.check_host_updates()
                continue
            (index,) = sampler.get_indices(step - begins, 1)
            optimizer.zero_grad()
            loss = net(batch(index)).sum()
            if dies:  # the others have sent theirs, or do
                os.kill(os.getpid(), signal.SIGKILL)
            loss.backward()
            optimizer.step()
            seen.append(index)
            sizes[step] = hvd.size()
            sampler.record_batch(step - begins, 1)
            state.batch += 1
            if step:
                gap["longest"] = max(gap["longest"], time.monotonic() - gap["from"])
            state.commit()
            gap["from"] = time.monotonic()

    run(state)
    found = {"weights": net.weight.tolist(), "resets": resets, "seen": seen, "sizes": sizes,
             "tries": tries, "gap_s": gap["longest"], "rank": hvd.rank(),
             "processed": sampler.processed_num}
    hvd.shutdown()
    if "folder" in options:
        with open(f"{options['folder']}/{found['rank']}", "w", encoding="ascii") as file:
            json.dump(found, file)
    return found


def is_again(options):
    """Whether this process is in a dead one's place; with a folder, whether another was there."""
    if "folder" not in options:
        return "again" in options
    try:
        os.mkdir(f"{options['folder']}/died")
    except FileExistsError:
        return True
    return False


def alone(_):
    """Without an elastic job it is one attempt."""
    hvd.init()
    state = hvd.elastic.TorchState(batch=0)

    @hvd.elastic.run
    def run(state):
        if RANK == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        state.batch = 7
        hvd.allreduce(torch.ones(3), name="x")

    text = workers.refused(hvd.HorovodInternalError, lambda: run(state))
    assert state.batch == 0, "it is not restored"
    return text


class Elastic(unittest.TestCase):
    def finish(self, processes, left):
        ended = [(process.returncode, *text) for process, text in
                 zip(processes, workers.texts_of(processes))]
        for place in left:
            self.assertEqual(ended[place][0], 0, ended[place])
        return [json.loads(ended[place][1].strip().splitlines()[-1]) for place in left]

    def test_the_others_restore_what_was_committed_and_go_on(self):
        for codec in (None, "int2"):
            with self.subTest(codec=codec):
                ranks = workers.Ranks(FILE, "train", 3, {"victim": 2, "codec": codec},
                                      TELEGRAD_ELASTIC="1")
                one, other = self.finish(ranks.processes, (0, 1))
                self.assertEqual(ranks.processes[2].returncode, -signal.SIGKILL)
                self.assertEqual(one["weights"], other["weights"])
                for rank, each in enumerate((one, other)):
                    self.assertEqual(each["resets"], [[rank, 2]])
                    self.assertEqual(each["sizes"], {str(step): 2 + (step < LOST)
                                                     for step in range(BATCHES)})
                    self.assertEqual(each["tries"][str(LOST)], 2)
                    self.assertEqual(each["processed"], 3 * LOST + 2 * (BATCHES - LOST))
                    self.assertLess(each["gap_s"], 15)
                # Nothing twice, nothing left out: the dead one had done nothing of step 3.
                self.assertEqual(sorted(one["seen"] + other["seen"]),
                                 [i for i in range(19) if i >= 9 or i % 3 < 2])
                if codec is None:
                    self.check(one["weights"], [list(range(3 * s, 3 * s + 3)) for s in range(3)]
                               + [[9 + 2 * s, 10 + 2 * s] for s in range(5)])

    def check(self, weights, steps):
        """By torch's own SGD, of the indices of each step."""
        weight = torch.nn.Parameter(torch.zeros(20))
        optimizer = torch.optim.SGD([weight], lr=1 / 8, momentum=.5)
        for indices in steps:
            weight.grad = sum(map(batch, indices)) / len(indices)
            optimizer.step()
        self.assertEqual(weights[0], weight.tolist())

    def test_another_rank_comes_and_begins_with_what_the_others_have(self):
        ranks = workers.Ranks(FILE, "train", 2, {"victim": 1, "waits": 3}, TELEGRAD_ELASTIC="1:3")
        ranks.processes[1].communicate(workers.TIMEOUT_S)
        self.assertEqual(ranks.processes[1].returncode, -signal.SIGKILL)
        common = {"MASTER_PORT": ranks.port, "TELEGRAD_ELASTIC": "1:3"}
        added = workers.Ranks(FILE, "train", 3, {"victim": 1, "waits": 3, "again": True},
                              only=(1, 2), **common)
        processes = [ranks.processes[0], *added.processes]
        found = self.finish(processes, range(3))
        for each in found:
            self.assertEqual(each["weights"], found[0]["weights"])
            self.assertEqual(each["sizes"][str(BATCHES - 1)], 3)
            self.assertNotIn(str(LOST - 1), each["sizes"] if each["rank"] else {})
        self.assertEqual([each["rank"] for each in found], [0, 1, 2])

    def test_the_launcher_starts_another_one_in_a_killed_ones_place(self):
        with tempfile.TemporaryDirectory() as folder:
            argument = {"victim": 2, "waits": 3, "folder": folder}
            command = [sys.executable, "-B", LAUNCH, "-n", "3", "--elastic", "2:3", "--",
                       sys.executable, "-B", FILE, "--rank", "train"]
            done = subprocess.run(command, capture_output=True, text=True, check=False,
                                  timeout=workers.TIMEOUT_S,
                                  env={**os.environ, "ARGUMENT": json.dumps(argument)})
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("another one starts in its place", done.stdout + done.stderr)
            found = []
            for rank in range(3):
                with open(f"{folder}/{rank}", encoding="ascii") as file:
                    found.append(json.load(file))
            for each in found:
                self.assertEqual(each["weights"], found[0]["weights"])
                self.assertEqual(each["sizes"][str(BATCHES - 1)], 3)

    def test_a_job_that_is_not_elastic_says_how_to_be(self):
        ranks = workers.Ranks(FILE, "alone", 2)
        (text,) = self.finish(ranks.processes, (0,))
        self.assertIn("worker/1@", text)
        self.assertIn("TELEGRAD_ELASTIC=MIN:MAX", text)


if __name__ == "__main__":
    workers.main({each.__name__: each for each in (train, alone)})
