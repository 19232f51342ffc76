#!/usr/bin/env python3
"""telegrad.torch when ranks die: the others do that step again, with what they held back."""
import glob
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from datetime import timedelta

import ledger
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
STEPS, LOST = 9, 4
SIZES = {"a": 1200, "b": 700}


def gradients(step, who):
    """Multiples of 1/256, as thresholds and means of two are: all sums are exact."""
    generator = torch.Generator().manual_seed(100 * step + who)
    return {name: torch.randint(-64, 65, (size,), generator=generator) / 256
            for name, size in SIZES.items()}


class Net(torch.nn.Module):
    """Its gradients are those that it is given."""

    def __init__(self):
        super().__init__()
        for name, size in SIZES.items():
            setattr(self, name, torch.nn.Parameter(torch.zeros(size)))

    def forward(self, wanted):
        return sum((getattr(self, name) * wanted[name]).sum() for name in SIZES)

    def all(self):
        return torch.cat([getattr(self, name).detach() for name in SIZES]).double()


def make(codec="2bit:0.25", **options):
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    net = Net()
    model = DDP(net, bucket_cap_mb=0.001, broadcast_buffers=False)
    state = telegrad.torch.compress(model, codec, guard=False, momentum="off",
                                    reply="dense",
                                    dense_1d=False, dead_timeout=4, **options)
    return net, model, state


def held(state):
    found = state._residuals.held()
    return torch.cat([found.get(name, torch.zeros(size)) for name, size in
                      SIZES.items()]).double()


def survive(argument):
    """Rank `victim` dies at step LOST, before it or within it; the others go on."""
    victim, is_within = argument
    net, model, state = make(elastic=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=1)
    store = dist.TCPStore("127.0.0.1", int(os.environ["STORE"]), is_master=False,
                          timeout=timedelta(seconds=20))
    found, step, gap_s, done = {}, 0, 0, time.monotonic()
    said = workers.logged()
    while step < STEPS:
        if step == LOST and RANK == victim:
            if not is_within:
                os.kill(os.getpid(), signal.SIGKILL)
            net.a.register_hook(lambda _: os.kill(os.getpid(), signal.SIGKILL))
        weights, before = net.all(), held(state)
        optimizer.zero_grad()
        try:
            model(gradients(step, RANK)).backward()
        except telegrad.Error as why:
            assert why.retryable and step == LOST and not found, why
            assert torch.equal(weights, net.all()), "the step has left a trace"
            assert torch.equal(before, held(state)), "what is held back has changed"
            found = {"why": type(why).__name__, "held": before.tolist(),
                     "norm": f"whose L2 norm is {float(before.norm()):.4g}"}
            state.reconfigure(dist.PrefixStore("attempt1", store), RANK - (RANK > victim),
                              2, timeout=20)
            assert torch.equal(before, held(state))
            for parameter in net.parameters():  # thirds so far, halves from here on
                parameter.data.zero_()
            continue
        optimizer.step()
        step += 1
        gap_s, done = max(gap_s, time.monotonic() - done), time.monotonic()
    return {"at loss": found, "said": "\n".join(said), "gap_s": gap_s, "workers": state.num_workers, "steps": state.steps,
            "process": os.getpid(), "weights": net.all().tolist(), "held": held(state).tolist()}


def survive_diloco(_):
    """As `survive`, of the last rank at the second exchange; weights in float64."""
    dist.init_process_group("gloo")
    net = Net()
    diloco = telegrad.torch.DiLoCo(net, torch.optim.SGD(net.parameters(), lr=1), sync_every=2,
                                   gc_type="2bit:0.25", momentum="off", elastic=True,
                                   dead_timeout=4)
    store = dist.TCPStore("127.0.0.1", int(os.environ["STORE"]), is_master=False,
                          timeout=timedelta(seconds=20))

    def held():
        kept = diloco._residuals.held()
        return torch.cat([kept.get(name, torch.zeros(size))
                          for name, size in SIZES.items()]).double()

    found = None
    for step in range(8):
        diloco._inner.zero_grad()
        net(gradients(step, RANK)).backward()
        if step == 3 and RANK == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if step == 2:
            found = {"held": held().tolist(), "weights": net.all().tolist()}
        try:
            diloco.step()
        except telegrad.PeerDied as why:
            assert why.retryable and step == 3, why
            diloco.reconfigure(dist.PrefixStore("attempt1", store), RANK, 2, timeout=20)
    return {"at loss": found, "weights": net.all().tolist(), "held": held().tolist(),
            "workers": diloco._job.num_workers, "steps": diloco.steps}


def under_torchrun(folder):
    """Each rank saves each step; rank 2 dies at step LOST of the first attempt, and the next one
    goes on from the last step that all have saved. Appends when each step was done."""
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    net, model, state = make()
    optimizer = torch.optim.SGD(net.parameters(), lr=1)
    saved = [int(name.split("-")[1]) for name in os.listdir(folder)
             if name.startswith(f"{RANK}-")]
    newest = torch.tensor([max(saved, default=0)])
    dist.all_reduce(newest, dist.ReduceOp.MIN)
    step = int(newest)
    if step > 0:
        kept = torch.load(f"{folder}/{RANK}-{step}")
        net.load_state_dict(kept["net"])
        state.load_state_dict(kept["state"])
    begins = step
    while step < STEPS:
        if step == LOST and RANK == 2 and attempt == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        model(gradients(step, RANK)).backward()
        optimizer.step()
        step += 1
        with open(f"{folder}/times{RANK}", "a", encoding="ascii") as file:
            file.write(f"{step} {time.time()}\n")
        torch.save({"net": net.state_dict(), "state": state.state_dict()}, f"{folder}/part{RANK}")
        os.replace(f"{folder}/part{RANK}", f"{folder}/{RANK}-{step}")
    with open(f"{folder}/end{RANK}", "w", encoding="ascii") as file:
        workers.json.dump([begins, net.all().tolist()], file)
    state.close()


def refused(_):
    texts = [workers.refused(telegrad.UsageError, lambda: make(elastic=True, **options))
             for options in ({"tier1": "on"}, {"codec": "auto"})]
    _, _, state = make()
    texts.append(workers.refused(telegrad.WrongOrder,
                                 lambda: state.reconfigure(None, 0, 1)))
    net = Net()
    inner = torch.optim.SGD(net.parameters(), lr=1)

    def local(**options):
        return telegrad.torch.DiLoCo(net, inner, sync_every=2, **options)

    texts += [workers.refused(telegrad.UsageError, lambda: local(elastic=True, fragments=2)),
              workers.refused(telegrad.WrongOrder, lambda: local().reconfigure(None, 0, 1))]
    return texts


class Elastic(unittest.TestCase):
    def lose(self, victim, is_within, how="survive", **environment):
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        ended = workers.Ranks(FILE, how, 3, [victim, is_within],
                              STORE=str(store.port), **environment).wait()
        self.assertEqual(ended[victim][0], -signal.SIGKILL, ended[victim])
        left = [rank for rank in range(3) if rank != victim]
        for rank in left:
            code, out, err = ended[rank]
            self.assertEqual(code, 0, f"rank {rank}:\n{out}\n{err}")
        return left, [workers.json.loads(ended[rank][1].strip().splitlines()[-1])
                      for rank in left]

    def test_the_others_do_the_step_again_and_lose_nothing(self):
        for victim, is_within in ((2, True), (0, False)):
            with self.subTest(victim=victim):
                left, (one, other) = self.lose(victim, is_within)
                self.assertLess(one["gap_s"], 10)
                self.assertEqual((one["workers"], one["steps"]), (2, STEPS))
                self.assertEqual(one["weights"], other["weights"])
                self.assertIn("what 1 of 3 held back is lost", one["said"])
                self.assertIn(one["at loss"]["norm"], one["said"])
                # What was held back and came since is in the weights, or held back.
                given = sum(torch.tensor(each["at loss"]["held"]) for each in (one, other))
                for step in range(LOST, STEPS):
                    for rank in left:
                        given = given + torch.cat([*gradients(step, rank).values()])
                moved = -torch.tensor(one["weights"])
                kept = torch.tensor(one["held"]) + torch.tensor(other["held"])
                self.assertTrue(torch.equal(given.double(), (2 * moved + kept).double()))
                self.assertGreater(float(kept.abs().sum()), 0)

    def count_again(self, folder, ranks, results):
        """All that was summed, what was held back and the weights, from the ledgers alone."""
        first, second = sorted(ledger.lives(folder), key=lambda life: -len(life.members))
        self.assertEqual((len(first.members), len(second.members)), (3, 2))
        rank_of = {each["process"]: rank for rank, each in zip(ranks, results)}
        dead, = set(first.processes()) - set(rank_of)
        rank_of[dead], = set(range(3)) - set(ranks)
        self.assertEqual(set(second.processes()), set(rank_of) - {dead})
        count = ledger.Count(SIZES, lambda process, step: {
            name: values.tolist() for name, values in gradients(step, rank_of[process]).items()
        }, threshold=0.25)

        def held(process):
            return sum((count.residuals[process][name] for name in SIZES), [])

        for step in range(LOST):
            self.assertTrue(first.whole(step, SIZES), step)
            count.sums(first, step, step)
        for each in results:
            self.assertEqual(each["at loss"]["held"], held(each["process"]))
        weights = [0.0] * sum(SIZES.values())
        for step in range(LOST, STEPS):
            self.assertTrue(second.whole(step - LOST, SIZES), step)
            total = count.sums(second, step - LOST, step)
            for i, value in enumerate(sum((total[name] for name in SIZES), [])):
                weights[i] -= value / 2
        for each in results:
            self.assertEqual(each["held"], held(each["process"]))
            self.assertEqual(each["weights"], weights)

    def test_ledgers_have_all_that_was_summed_with_whom(self):
        with tempfile.TemporaryDirectory() as folder:
            ranks, results = self.lose(1, True, TELEGRAD_LEDGER=folder)
            self.count_again(folder, ranks, results)
            # It finds one sum that is another one.
            for path in glob.glob(f"{folder}/*"):
                with open(path, encoding="ascii") as file:
                    text = file.read()
                if '"tensor":"a"' in text:
                    break
            at = text.index('"crc32c":', text.index('"tensor":"a"')) + len('"crc32c":')
            with open(path, "w", encoding="ascii") as file:
                file.write(f"{text[:at]}1{text[at:]}")
            with self.assertRaises(AssertionError):
                self.count_again(folder, ranks, results)

    def test_local_steps_go_on_with_what_ranks_had_done_since_the_last_exchange(self):
        left, (one, other) = self.lose(2, False, "survive_diloco")
        self.assertEqual((one["workers"], one["steps"]), (2, 8))
        self.assertEqual(one["weights"], other["weights"])
        # What was held back and the steps since are in the weights, or held back. Thirds,
        # of before the loss, are not exact.
        given = sum(torch.tensor(each["at loss"]["held"]) for each in (one, other))
        for step in range(2, 8):
            for rank in left:
                given = given + torch.cat([*gradients(step, rank).values()])
        moved = torch.tensor(one["at loss"]["weights"]) - torch.tensor(one["weights"])
        kept = torch.tensor(one["held"]) + torch.tensor(other["held"])
        self.assertTrue(torch.allclose(given, 2 * moved + kept, atol=1e-4))
        self.assertGreater(float(kept.abs().sum()), 0)

    def test_torchrun_starts_all_again_and_the_run_has_the_bits_of_a_whole_one(self):
        with tempfile.TemporaryDirectory() as logs, tempfile.TemporaryDirectory() as folder, \
                tempfile.TemporaryDirectory() as whole:
            # Of Debian's torch only this has standard streams that Python 3.11 takes.
            command = [sys.executable, "-B", "-m", "torch.distributed.run", "-r", "1", "-t", "1",
                       "--log_dir", logs, "--nproc_per_node=4", "--max_restarts=1",
                       "--monitor_interval=0.1", "--rdzv_backend=c10d",
                       "--rdzv_endpoint=127.0.0.1:0", FILE, "--rank", "under_torchrun"]
            done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1",
                                                "ARGUMENT": workers.json.dumps(folder)},
                                  capture_output=True, text=True, check=False,
                                  timeout=workers.TIMEOUT_S)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            workers.Ranks(FILE, "under_torchrun", 4, whole,
                          TORCHELASTIC_RESTART_COUNT="1").results()
            for rank in range(4):
                begins, weights = self.of_file(f"{folder}/end{rank}")
                self.assertEqual(begins, LOST)
                self.assertEqual(weights, self.of_file(f"{whole}/end{rank}")[1])
            with open(f"{folder}/times0", encoding="ascii") as file:
                times = [float(line.split()[1]) for line in file]
            gap_s = max(later - before for before, later in zip(times, times[1:]))
            print(f"torchrun, 4 ranks: {gap_s:.2f} s from the last step to the next one")
            self.assertLess(gap_s, 60)

    @staticmethod
    def of_file(path):
        with open(path, encoding="ascii") as file:
            return workers.json.load(file)

    def test_what_cannot_be(self):
        for texts in workers.Ranks(FILE, "refused", 2).results():
            self.assertIn("tier1", texts[0])
            self.assertIn("'auto'", texts[1])
            self.assertIn("without elastic=True", texts[2])
            self.assertIn("fragments", texts[3])
            self.assertIn("DiLoCo without elastic=True", texts[4])


if __name__ == "__main__":
    workers.main({"survive": survive, "survive_diloco": survive_diloco, "refused": refused,
                  "under_torchrun": under_torchrun})
