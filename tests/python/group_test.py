#!/usr/bin/env python3
"""Collectives over the workers of a job: values, what differs, who dies, Ctrl-C."""
import json
import os
import signal
import subprocess
import sys
import threading
import unittest

import workers

try:
    import numpy as np
except ImportError:
    workers.skip("python3-numpy is not installed")

import telegrad

RANK = int(os.environ.get("RANK", -1))
N = 100_003  # more than one piece, and no multiple


def job():
    return telegrad.Job(from_launcher=True, dead_timeout=4).join()


# ---- what a rank does ----

def values(_):
    """All three, of all types, beside a store; each rank's numbers are its own."""
    got = []
    with job() as mine, telegrad.Group(mine) as group, telegrad.Store(mine) as store:
        keys = store.init(["w"], [np.zeros(3, np.float32)])
        for dtype in (np.float32, np.float16, np.int32):
            own = (np.arange(N) % 50 + RANK).astype(dtype)
            for op, want in (("sum", 3 * (np.arange(N) % 50) + 3),
                             ("min", np.arange(N) % 50), ("max", np.arange(N) % 50 + 2)):
                array = own.copy()
                assert group.allreduce(array, op) is array
                assert np.array_equal(array, want.astype(dtype)), (dtype, op)
            array = group.broadcast(own.copy(), root=1)
            assert np.array_equal(array, own - RANK + 1), dtype
            out = group.allgather(own, np.empty((3, N), dtype))
            for rank in range(3):
                assert np.array_equal(out[rank], own - RANK + rank), (dtype, rank)
            got.append(np.dtype(dtype).name)
        value = np.ones(3, np.float32)
        store.push_pull(keys, [value], [value])
        assert value.tolist() == [3] * 3
        for wrong in (lambda: group.allreduce(array, "mean"),
                      lambda: group.broadcast(array, root=3),
                      lambda: group.allgather(own, np.empty(N, np.int32)),
                      lambda: group.allreduce(np.zeros(3, np.uint16))):
            got.append(workers.refused(telegrad.UsageError, wrong))
        group.allreduce(value)
        group.close()
        got.append(workers.refused(telegrad.WrongOrder, lambda: group.allreduce(value)))
    return got


def algorithms(_):
    """Sums of each algorithm, whose bits all ranks share; what is none."""
    got = []
    own = (np.random.default_rng(RANK).random(N) - 0.5).astype(np.float32)
    with job() as mine, telegrad.Group(mine) as group:
        for algorithm in ("auto", "ring", "recursive_doubling", "halving_doubling", "tree",
                          "two_level"):
            array = group.allreduce(own.copy(), algorithm=algorithm)
            all_bits = group.allgather(array, np.empty((3, N), np.float32))
            assert all(np.array_equal(one, array) for one in all_bits), algorithm
            want = sum((np.random.default_rng(rank).random(N) - 0.5).astype(np.float32)
                       for rank in range(3))
            assert np.allclose(array, want, atol=1e-6), algorithm
        got.append(workers.refused(
            telegrad.UsageError, lambda: group.allreduce(own, algorithm="star")))
        got.append(workers.refused(
            telegrad.UsageError, lambda: group.allreduce(own, algorithm="chain")))
    os.environ["TELEGRAD_ALLREDUCE"] = "star"
    got.append(workers.refused(telegrad.UsageError, telegrad.Job))
    return got


def forced(_):
    """Two groups of a job."""
    with job() as mine, telegrad.Group(mine) as one, telegrad.Group(mine) as other:
        return [one.allreduce(np.ones(3)).tolist(), other.allreduce(np.ones(3)).tolist()]


def counts(_):
    """Unequal blocks, every type, the empty array and a timeout."""
    with job() as mine, telegrad.Group(mine) as group, telegrad.Store(mine) as store:
        assert (group.rank, group.size) == (RANK, 3)
        sizes = [4, 0, 30_000]
        whole = [np.arange(size) % 50 + rank for rank, size in enumerate(sizes)]
        for dtype in (np.float32, np.float64, np.int32, np.int64, np.uint8, np.int8, bool):
            cast = [part.astype(dtype) for part in whole]
            joined = np.concatenate(cast)
            out = group.allgatherv(cast[RANK], np.empty_like(joined), sizes)
            assert np.array_equal(out, joined), dtype
            want = joined if dtype is bool else (joined * dtype(3)).astype(dtype)
            begin = sum(sizes[:RANK])
            out = group.reduce_scatter(joined, np.empty(sizes[RANK], dtype), sizes)
            assert np.array_equal(out, want[begin:begin + sizes[RANK]]), dtype
            out = group.reduce_scatter(joined[:6], np.empty(2, dtype), op="product")
            want = np.power(joined[:6], 3, dtype=None if dtype is bool else dtype)
            assert np.array_equal(out, want[2 * RANK:2 * RANK + 2].astype(dtype)), dtype
            # Rank r sends 10 * r + i elements to rank i.
            sends = [10 * RANK + rank for rank in range(3)]
            receives = [10 * rank + RANK for rank in range(3)]
            out = group.alltoall(np.full(sum(sends), RANK, dtype),
                                 np.empty(sum(receives), dtype), sends, receives)
            assert np.array_equal(out, np.repeat(np.arange(3), receives).astype(dtype)), dtype
            out = group.alltoall(np.arange(3).astype(dtype), np.empty(3, dtype))
            assert np.array_equal(out, np.full(3, RANK).astype(dtype)), dtype
        group.allreduce(np.empty(0, np.int64))
        group.barrier()
        one = np.ones(3, np.int8)
        texts = [workers.refused(telegrad.UsageError, wrong) for wrong in (
            lambda: group.allgatherv(one, np.empty(4, np.int8), [3, 3, 3]),
            lambda: group.allgatherv(one, np.empty(9, np.int8), [3, 3]),
            lambda: group.reduce_scatter(one, np.empty(2, np.int8)),
            lambda: group.alltoall(one, np.empty(3, np.uint8)),
            lambda: group.alltoall(one, one.copy(), [1, 1, 1]),
            lambda: group.set_timeout(0),
            lambda: group.allreduce(np.zeros(3, np.complex64)),
            lambda: store.init(["w"], [np.zeros(3, np.int64)]))]
        mine.barrier()
        group.set_timeout(0.2)
        if RANK > 0:
            texts.append(workers.refused(telegrad.Timeout, group.barrier))
        mine.barrier()
    return texts


def splits(_):
    """Ranks 2 and 0, then 1 alone; who is in none gets None; both beside the whole."""
    with job() as mine, telegrad.Group(mine) as group:
        part, alone = group.split([2, 0]), group.split([1])
        got = [part and [part.rank, part.size], alone and [alone.rank, alone.size]]
        if part:
            out = part.allgather(np.full(2, RANK), np.empty(4, np.int64))
            assert out.tolist() == [2, 2, 0, 0], out
            part.barrier()
            part.close()
        assert group.allreduce(np.full(1, RANK))[0] == 3
        got.append(workers.refused(telegrad.UsageError, lambda: group.split([0, 3])))
        group.barrier()
    return got


def messages(_):
    """From threads, in other orders, beside collectives; what does not fit."""
    with job() as mine, telegrad.Group(mine) as group:
        others = [rank for rank in range(3) if rank != RANK]
        got = {}

        def send(to):
            for tag in range(4):
                group.send(np.full(10 ** tag * 40, RANK + 10 * tag, np.int32), to, tag)

        def receive(source):
            for tag in range(4):
                array = np.empty(10 ** tag * 40, np.int32)
                got[source, tag] = [group.recv(array, source, tag), int(array.min())]

        threads = [threading.Thread(target=work, args=(rank,))
                   for rank in others for work in (send, receive)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            assert group.allreduce(np.ones(1000, np.float64))[-1] == 3
        for thread in threads:
            thread.join()
        assert got == {(rank, tag): [rank, rank + 10 * tag]
                       for rank in others for tag in range(4)}, got
        texts = [workers.refused(telegrad.UsageError, wrong) for wrong in (
            lambda: group.send(np.ones(1), RANK), lambda: group.recv(np.ones(1), 3))]
        group.barrier()
        if RANK == 1:
            group.send(np.ones(3, np.int8), 0, 7)
        elif RANK == 0:
            texts.append(workers.refused(
                telegrad.Mismatch, lambda: group.recv(np.ones(4, np.int8), tag=7)))
            group.set_timeout(0.2)
            texts.append(workers.refused(telegrad.Timeout, lambda: group.recv(np.ones(1))))
            group.set_timeout(60)
        group.barrier()
    return texts


def starts(_):
    """In the order of the starts, by no thread of Python's; what is wrong, and what is
    dropped, ends with an error."""
    with job() as mine, telegrad.Group(mine) as group:
        own, whole = np.full(N, RANK + 1.0), np.empty(3 * N)
        if RANK == 0:
            first = group.start("barrier")
            assert not first.wait(0.01) and not group.is_idle()
        mine.barrier()
        if RANK > 0:
            first = group.start("barrier")
        begun = [group.start("allreduce", own), group.start("broadcast", own[:1], root=2),
                 group.start("allreduce", own, op="product"),
                 group.start("allgather", own, whole)]
        part, turned = np.empty(N), np.empty(3 * N)
        begun += [group.start("reduce_scatter", whole, part, op="max"),
                  group.start("alltoall", whole, turned)]
        assert [each.name for each in threading.enumerate()] == ["MainThread"]
        begun[-1].wait()
        assert all(each.wait(0) for each in [first, *begun]) and group.is_idle()
        assert (own == 6 ** 3).all() and (part == 6 ** 3).all() and (turned == 6 ** 3).all()
        texts = [workers.refused(telegrad.UsageError, work) for work in (
            lambda: group.start("join"), lambda: group.start("allreduce", own, op="mean"),
            group.start("broadcast", own, root=3).wait,
            lambda: group.start("allgather", own, own).wait())]
        mine.barrier()
        if RANK == 0:  # the first waits for the others, who do not come
            group.set_timeout(1)
            late, dropped = group.start("barrier"), group.start("allreduce", own)
            assert not dropped.wait(0.01)
            group.close()
            texts += [workers.refused(telegrad.Timeout, late.wait),
                      workers.refused(telegrad.Cancelled, dropped.wait),
                      workers.refused(telegrad.WrongOrder, lambda: group.start("barrier"))]
        mine.barrier()
    return texts


def differs(_):
    """One rank has other sizes: both say so."""
    with job() as mine, telegrad.Group(mine) as group:
        text = workers.refused(telegrad.Mismatch,
                               lambda: group.allreduce(np.zeros(4 + RANK, np.float32)))
        mine.barrier()
    return text


def dies(_):
    mine = job()
    group = telegrad.Group(mine)
    array = np.ones(N, np.float32)
    try:
        group.allreduce(array)
        if RANK == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        for _ in range(1000):
            group.allreduce(array)
    except telegrad.Error as why:
        print(json.dumps([type(why).__name__, list(why.dead)]), flush=True)
        raise


def never_ends(call):
    """Rank 1 waits in `call` for rank 0, which does not make it, until Ctrl-C."""
    mine = job()
    group = telegrad.Group(mine)
    print("ready", flush=True)
    array = np.ones(N, np.float32)
    if RANK == 0:
        # Two gathers would end as a mismatch, if both come before Ctrl-C.
        mine.barrier() if call in ("allreduce", "start", "close") else group.allreduce(array)
    elif call in ("start", "close"):
        started = group.start("allreduce", array)
        started.wait() if call == "start" else group.close()
    elif call == "allreduce":
        group.allreduce(array)
    elif call == "init":
        telegrad.Store(mine).init(["w"], [array])
    else:
        telegrad.kvstore.create("dist_sync", mine).barrier()


# ---- the tests ----

class Signals(unittest.TestCase):
    def test_end_a_process_that_has_imported_it_as_ever(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            run = subprocess.run(
                [sys.executable, "-c",
                 f"import signal, telegrad; signal.raise_signal({int(number)})"],
                check=False, timeout=60, capture_output=True, text=True)
            self.assertEqual(run.returncode, -number, run.stderr)
            self.assertEqual("KeyboardInterrupt" in run.stderr, number == signal.SIGINT)

    def test_a_handlers_error_ends_a_wait(self):
        """A RuntimeError is what torch's DataLoader raises when its worker dies."""
        calls, stopped = [], threading.Event()

        def work():
            calls.append(1)
            signal.raise_signal(signal.SIGUSR1)
            stopped.wait(10)

        def handler(*_):
            raise RuntimeError("a worker was killed")

        before = signal.signal(signal.SIGUSR1, handler)
        try:
            with self.assertRaisesRegex(RuntimeError, "a worker was killed"):
                telegrad._library.interruptible(work, lambda _: stopped.set())
        finally:
            signal.signal(signal.SIGUSR1, before)
        self.assertEqual(len(calls), 1)


class Group(unittest.TestCase):
    def ranks(self, function, num):
        return workers.Ranks(os.path.abspath(__file__), function.__name__, num)

    def test_values_of_three_workers(self):
        for got in self.ranks(values, 3).results():
            self.assertEqual(got[:3], ["float32", "float16", "int32"])
            for text, pattern in zip(got[3:], ("mean.*sum", "root 3 of 3 workers",
                                               "takes 300009|one type", "int64", "closed")):
                self.assertRegex(text, pattern)

    def test_algorithms_are_chosen(self):
        for star, chain, forced in self.ranks(algorithms, 3).results():
            self.assertRegex(star, "star.*none of auto, ring")
            self.assertRegex(chain, "this collective has auto, recursive_doubling, ring, "
                                    "halving_doubling, tree, two_level")
            self.assertRegex(forced, "TELEGRAD_ALLREDUCE star: .*none of auto")

    def test_a_forced_algorithm_in_place_of_the_plans_is_told_once(self):
        ranks = workers.Ranks(os.path.abspath(__file__), "forced", 2, TELEGRAD_ALLREDUCE="tree")
        for rank, (code, out, err) in enumerate(ranks.wait()):
            self.assertEqual(code, 0, err)
            self.assertIn("[[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]]", out)
            told = [line for line in err.splitlines() if "TELEGRAD_ALLREDUCE" in line]
            self.assertEqual(len(told), 1 if rank == 0 else 0, err)
            if told:
                self.assertRegex(told[0], "tree for all sizes; the plan had recursive_doubling"
                                          " to .*, ring above")

    def test_unequal_blocks_of_all_types(self):
        patterns = ("output of 4 elements: it takes 9", "each of 3 ranks", "output of 2 elements: it takes 1",
                    "int8 into uint8", "one side alone", "timeout of 0", "complex|c8",
                    "int64.*float32", "rank")
        for rank, texts in enumerate(self.ranks(counts, 3).results()):
            self.assertEqual(len(texts), 8 if rank == 0 else 9)
            for text, pattern in zip(texts, patterns):
                self.assertRegex(text, pattern)

    def test_what_is_started_is_done_in_order_by_a_thread_of_its_own(self):
        patterns = ("join.*allreduce, allgather", "mean.*sum", "root 3 of 3 workers",
                    "takes 300009", "1 s", "freed before the operation began", "closed")
        for rank, texts in enumerate(self.ranks(starts, 3).results()):
            self.assertEqual(len(texts), 4 if rank else 7)
            for text, pattern in zip(texts, patterns):
                self.assertRegex(text, pattern)

    def test_parts_of_the_ranks(self):
        for rank, (part, alone, text) in enumerate(self.ranks(splits, 3).results()):
            self.assertEqual(part, [[1, 2], None, [0, 2]][rank])
            self.assertEqual(alone, [None, [0, 1], None][rank])
            self.assertRegex(text, "ranks 0, 3 of 3")

    def test_messages_between_two_ranks(self):
        texts = self.ranks(messages, 3).results()
        for rank, found in enumerate(texts):
            self.assertRegex(found[0], f"rank {rank} of 3")
            self.assertRegex(found[1], "rank 3 of 3")
        self.assertRegex(texts[0][2], "rank 1 sends 3 int8 to rank 0, which receives 4 int8")
        self.assertRegex(texts[0][3], "receive of 1 float64 from any rank.*0.2 s")

    def test_other_sizes_are_refused_with_both(self):
        for text in self.ranks(differs, 2).results():
            self.assertRegex(text, r"4.*5|5.*4")

    def test_who_dies_is_named(self):
        ended = self.ranks(dies, 3).wait()
        for code, out, err in ended[:2]:
            kind, dead = json.loads(out)
            self.assertIn(kind, ("PeerDied", "ServerLost"), err)
            self.assertRegex(" ".join(dead), "(worker|server)/2@")
            self.assertIn(code, (20, 23), err)

    def test_ctrl_c_ends_all_who_hear_whose_it_was(self):
        for call in ("allreduce", "start", "close", "init", "barrier"):
            ranks = workers.Ranks(os.path.abspath(__file__), "never_ends", 2, call)
            for rank in range(2):
                self.assertEqual(ranks.line(rank), "ready")
            ranks.kill(1, signal.SIGINT)
            (other, _, other_err), (_, _, err) = ranks.wait()
            self.assertIn("KeyboardInterrupt", err, call)
            self.assertEqual(other, 33, other_err)
            self.assertIn("Cancelled: worker 1: Ctrl-C", other_err, call)

    def test_alone_and_too_early(self):
        early = telegrad.Job()
        with self.assertRaisesRegex(telegrad.WrongOrder, "before the worker joins"):
            telegrad.Group(early)
        with early.join(), telegrad.Group(early) as group:
            array = np.arange(4, dtype=np.int32)
            self.assertEqual(group.allreduce(array.copy()).tolist(), array.tolist())
            self.assertEqual(group.allgather(array, array.copy()).tolist(),
                             array.tolist())


if __name__ == "__main__":
    workers.main({function.__name__: function for function in (
        values, counts, splits, starts, messages, algorithms, forced, differs, dies, never_ends)})
