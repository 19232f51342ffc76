#!/usr/bin/env python3
"""telegrad.kvstore over real jobs of two processes: MXNet's calls and meanings, known
answers (docs/mxnet.md), failures, Ctrl-C, forks, and ends with operations in flight."""
import json
import os
import signal
import threading
import time
import unittest

import workers

try:
    import numpy as np
except ImportError:
    workers.skip("python3-numpy is not installed")

import telegrad

RANK = int(os.environ.get("RANK", -1))


def create(**options):
    options.setdefault("dead_timeout", 4)
    return telegrad.kvstore.create("dist_sync", **options)


def full(value, n=6):
    return np.full(n, value, np.float32)


# ---- what a rank does ----

def meanings(_):
    """init, push, pull and so on, with integers and lists, without compression."""
    kv = create()
    got = {"rank": kv.rank, "num_workers": kv.num_workers, "type": kv.type}
    kv.init(3, full(RANK + 1))
    out = full(0)
    kv.pull(3, out=out)
    got["init_is_rank_0s"] = out.tolist() == [1] * 6
    kv.push(3, [full(RANK + 1), full(10)])  # several of a key are added first
    kv.pull(3, out=out)
    got["push_assigns_the_sum"] = out.tolist() == [23] * 6  # 1 + 10 + 2 + 10
    kv.push(3, full(1))
    kv.pull(3, out=out)
    got["pushes_do_not_accumulate"] = out.tolist() == [2] * 6
    kv.init([5, 7], [full(0), full(0, 4)])
    outs = [[full(0), full(0)], [full(0, 4)]]
    kv.push([5, 7], [full(RANK), full(2, 4)], priority=3)
    kv.pull([5, 7], out=outs, priority=3)
    got["lists"] = [[array.tolist()[0] for array in arrays] for arrays in outs]
    value = full(RANK + 4)
    kv.pushpull(3, value)
    got["pushpull_in_place"] = value.tolist() == [9] * 6
    kv.broadcast(9, full(RANK + 3), out=out)
    got["broadcast"] = out.tolist() == [3] * 6
    gradient = full(1)
    kv.push(9, gradient)
    gradient[:] = 77  # the store has its own copy
    kv.pull(9, out=out)
    got["push_copies"] = out.tolist() == [2] * 6
    got["dead"] = kv.num_dead_node()
    for wrong, error in ((lambda: kv.init(3, full(0)), telegrad.UsageError),
                         (lambda: kv.init("x", full(0)), telegrad.UsageError),
                         (lambda: kv.pull(99, out=out), telegrad.WrongOrder),
                         (lambda: kv.push(3, full(1, 7)) or kv.pull(3, out=out),
                          telegrad.UsageError),
                         (lambda: kv.row_sparse_pull(3), telegrad.UsageError),
                         (lambda: kv.save_optimizer_states("f"), telegrad.WrongOrder),
                         (lambda: kv.set_updater(print), telegrad.Unsupported)):
        try:
            wrong()
            got.setdefault("not refused", []).append(str(error))
        except error:
            pass
    kv.barrier()
    kv.close()
    return got


def halves(_):
    """float16 travels as such; 2048 + 3 lies between two of them, and goes to even."""
    kv = create()
    value = np.full(8, [2048, 3][RANK], np.float16)
    kv.init("h", np.zeros(8, np.float16))
    kv.pushpull("h", value)
    raw = kv.stats()["push_raw_bytes"]
    kv.close()
    return [value.tolist()[0], raw]


def means(_):
    """Of rounds; the first value and what is broadcast stay as they are."""
    kv = create()
    kv.set_optimizer(telegrad.optimizer.Rescale(1 / kv.num_workers))
    out = full(0)
    kv.init("x", full(8))
    got = []
    for call in (lambda: kv.pull("x", out=out),
                 lambda: kv.push("x", full(RANK + 4)) or kv.pull("x", out=out),
                 lambda: kv.broadcast("y", full(RANK + 3), out=out),
                 lambda: kv.pushpull("y", full(2 * RANK), out=out)):
        call()
        got.append(out.tolist()[5])
    kv.close()
    return got


def known_answers(_):
    """Key by key what A, B, B2, C and E give when both workers send the same."""
    kv = create()
    kv.set_gradient_compression({"type": "2bit", "threshold": 0.5})
    a = np.array([[.5, -.5, .49999997, -.49999997, .25, -.25, 0, -0., 1.25, -1.25, .75,
                   -.75, .125, 3, -3, .5, -.5, .5, .375],
                  [0, 0, 3e-8, -3e-8, .25, -.25, .5, -.5, 0, 0, .25, -.25, .375, 0, 0,
                   -.5, .5, -.5, .125]], np.float32)
    b = [full(.4), full(np.float32(.5) - np.float32(.4)), full(.2), full(.3)]
    sums = {"a": [], "b": [], "b2": []}
    kv.init(list(sums), [a[0] * 0, full(0), full(0)])
    for name, gradients in (("a", list(a)), ("b", b),
                            ("b2", [full(x) for x in (.4, .2, .2, .2)])):
        for gradient in gradients:
            out = np.empty_like(gradient)
            kv.push(name, gradient)
            kv.pull(name, out=out)
            sums[name].append(out.tolist())
    kv.close()
    return sums


def two_bit_model(gradient, residual, threshold):
    """MXNet's rule in NumPy: what is sent; `residual` keeps the rest."""
    residual += gradient
    sent = np.where(residual >= threshold, threshold,
                    np.where(residual <= -threshold, -threshold, 0)).astype(np.float32)
    residual -= sent
    return sent


def model_of_two_bits(_):
    """Sums over 20 steps equal those of the model with both workers' gradients."""
    kv = create()
    kv.set_gradient_compression({"type": "2bit", "threshold": 0.25})
    n, residuals = 1001, [np.zeros(1001, np.float32) for _ in range(2)]
    kv.init("w", np.zeros(n, np.float32))
    draws = [np.random.default_rng(rank) for rank in range(2)]
    for step in range(20):
        gradients = [draw.normal(0, .2, n).astype(np.float32) for draw in draws]
        want = sum(two_bit_model(g, r, np.float32(.25))
                   for g, r in zip(gradients, residuals))
        out = np.empty(n, np.float32)
        kv.pushpull("w", gradients[RANK], out=out)
        assert np.array_equal(out, want), f"step {step}"
    stats = kv.stats()
    kv.close()
    return stats


def optimizer(_):
    """The store runs sgd with momentum, as MXNet's order of operations in float32."""
    kv = create()
    kv.set_optimizer(telegrad.optimizer.SGD(learning_rate=.5, momentum=.5,
                                            rescale_grad=.25))
    kv.init("w", full(1))
    weight, momentum, out = np.float32(1), np.float32(0), full(0)
    for step in range(3):
        kv.push("w", full(RANK + step))
        kv.pull("w", out=out)
        momentum = np.float32(.5) * momentum - np.float32(.5) * np.float32(
            .25 * (2 * step + 1))
        weight += momentum
        assert out.tolist() == [weight] * 6, (step, out, weight)
    kv.close()
    return True


def dies(how):
    """A rank kills itself; the others say what they raised, and end with it."""
    where, rank, kind = how
    kv = telegrad.kvstore.create(kind, dead_timeout=4)
    out = full(0)
    start = time.monotonic()
    try:
        kv.init("w", full(0))
        kv.pushpull("w", full(1), out=out)
        if RANK == rank:
            os.kill(os.getpid(), signal.SIGKILL)
        if where == "barrier":
            kv.barrier()
        while True:
            kv.pushpull("w", full(1), out=out)
    except telegrad.Error as why:
        print(json.dumps({"kind": type(why).__name__, "dead": why.dead,
                          "seconds": time.monotonic() - start,
                          "num_dead": kv.num_dead_node()}), flush=True)
        raise


def never_ends(_):
    """Rank 0 pushes alone, until Ctrl-C."""
    kv = create()
    kv.init("w", full(0))
    out = full(0)
    kv.pushpull("w", full(1), out=out)
    print("ready", flush=True)
    if RANK == 0:
        kv.pushpull("w", full(1), out=out)
    else:
        kv.barrier()


def ends_in_flight(_):
    """The interpreter ends while an operation waits for the other rank."""
    kv = create()
    kv.init("w", full(0))
    kv.barrier()
    if RANK == 0:
        kv.push("w", full(1))
    return "left"


def forks(_):
    """A child of os.fork can use nothing, and its end harms nothing."""
    kv = create()
    kv.init("w", full(0))
    out = full(0)
    kv.pushpull("w", full(1), out=out)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            kv.pushpull("w", full(1), out=out)
        except telegrad.WrongOrder:
            code = 0
        kv._store.close()
        kv._store.job.close()
        os._exit(code)
    _, status = os.waitpid(child, 0)
    kv.pushpull("w", full(2), out=out)
    kv.close()
    return [os.waitstatus_to_exitcode(status), out.tolist()[0]]


def wrong_secret(_):
    address = f"127.0.0.1:{os.environ['MASTER_PORT']}"
    secret = bytes([65 + RANK]) * 32
    job = telegrad.Job(address, rank=RANK, num_workers=2, has_scheduler=RANK == 0,
                       servers_here=int(RANK == 0), secret=secret, join_timeout=4)
    try:
        job.join()
    except telegrad.Error as why:
        return [type(why).__name__, str(why)]
    return ["joined", ""]


def differs(_):
    kv = create()
    kv.set_gradient_compression({"type": "2bit", "threshold": [.5, .25][RANK]})
    kv.init("w", full(0))
    try:
        kv.pull("w", out=full(0))
    except telegrad.Error as why:
        return [type(why).__name__, str(why)]
    return ["no error", ""]


def joins_as_server(_):
    """Alone: nobody else comes."""
    create()


def one_bit(_):
    """MXNet's test of its master: a threshold is any number; known answers."""
    found = []
    grad = np.array([2, -2, .5, -.5, 0, 1, -1, .25, 3, -3], np.float32)
    for threshold in (0, .5, -.5):
        kv = create()
        kv.set_gradient_compression({"type": "1bit", "threshold": threshold})
        kv.init("w", full(0, 10))
        out = full(0, 10)
        for value in (grad, 0 * grad):
            kv.push("w", value)
            kv.pull("w", out=out)
            found.append(out.tolist())
        kv.close()
    return found


def dmlc(_):
    """With the variables of MXNet's launcher; two of the four are no workers."""
    os.environ.update(
        DMLC_ROLE=("scheduler", "server", "worker", "worker")[RANK],
        DMLC_PS_ROOT_URI="127.0.0.1", DMLC_PS_ROOT_PORT=os.environ["MASTER_PORT"],
        DMLC_NUM_WORKER="2", DMLC_NUM_SERVER="1")
    kv = create()
    assert RANK >= 2, "a server or scheduler came back from create"
    kv.init("w", full(0))
    out = full(0)
    kv.pushpull("w", full(RANK), out=out)
    kv.close()
    return out.tolist()[0]


def server_dies(_):
    """Workers go on until their server is gone."""
    os.environ.update(
        DMLC_ROLE=("scheduler", "server", "worker", "worker")[RANK],
        DMLC_PS_ROOT_URI="127.0.0.1", DMLC_PS_ROOT_PORT=os.environ["MASTER_PORT"],
        DMLC_NUM_WORKER="2", DMLC_NUM_SERVER="1")
    kv = create()
    kv.init("w", full(0))
    kv.pushpull("w", full(1))
    print("ready", flush=True)
    start = time.monotonic()
    try:
        while True:
            kv.pushpull("w", full(1))
    except telegrad.Error as why:
        print(json.dumps([type(why).__name__, why.dead, time.monotonic() - start]),
              flush=True)
        raise


def opens_and_closes(rounds):
    """What 2 and `rounds` jobs leave behind: threads, descriptors."""
    def left():
        deadline = time.monotonic() + 5  # a thread that has ended leaves a bit later
        while len(os.listdir("/proc/self/task")) > 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        return [threading.active_count(), len(os.listdir("/proc/self/fd")),
                len(os.listdir("/proc/self/task"))]
    found = []
    for i in range(rounds):
        with telegrad.Job(operation_timeout=20) as job:
            job.join()
            store = telegrad.Store(job)
            key = store.init(["w"], [full(0)])
            value = full(i)
            store.push_pull(key, [value], [value])
            assert value[0] == i
            store.close()
        if i == 1:
            found.append(left())
    found.append(left())
    return found


# ---- the tests ----

class KVStore(unittest.TestCase):
    def ranks(self, function, argument=None, num=2, **environment):
        return workers.Ranks(os.path.abspath(__file__), function.__name__, num, argument,
                             **environment)

    def test_calls_mean_what_they_mean_in_mxnet(self):
        for rank, got in enumerate(self.ranks(meanings).results()):
            lists = got.pop("lists")
            self.assertEqual(lists, [[1, 1], [4]])
            self.assertEqual((got.pop("rank"), got.pop("num_workers"), got.pop("type"),
                              got.pop("dead")), (rank, 2, "dist_sync", 0))
            self.assertEqual(set(got.values()), {True}, got)

    def test_sums_of_two_workers_are_twice_the_known_answers(self):
        for got in self.ranks(known_answers).results():
            twice = 2 * np.array(
                [[.5, -.5, 0, 0, 0, 0, 0, 0, .5, -.5, .5, -.5, 0, .5, -.5, .5, -.5, .5,
                  0], [0, 0, .5, -.5, .5, -.5, .5, -.5, .5, -.5, .5, -.5, .5, .5, -.5,
                       -.5, .5, -.5, .5]])
            self.assertEqual(got["a"], twice.tolist())
            self.assertEqual([row[0] for row in got["b"]], [0, 1, 0, 1])
            self.assertEqual([row[0] for row in got["b2"]], [0, 1, 0, 1])

    def test_one_bit_has_any_threshold(self):
        def model(threshold):
            grad = np.array([2, -2, .5, -.5, 0, 1, -1, .25, 3, -3], np.float32)
            residual, sums = 0 * grad, []
            for value in (grad, 0 * grad):
                residual = residual + value
                signs = np.where(residual > threshold, 1, -1).astype(np.float32)
                residual = residual - signs
                sums.append((2 * signs).tolist())
            return sums
        want = [row for threshold in (0, .5, -.5) for row in model(threshold)]
        self.assertEqual(self.ranks(one_bit).results(), [want] * 2)
        self.assertEqual(want[0][:5], [2, -2, 2, -2, -2])

    def test_a_late_join_is_awaited_as_long_as_the_variable_says(self):
        """In the process of a server, too, which gives no arguments."""
        for variable, text in (("0.2", "0.2 s|JoinTimeout|join"), ("soon", "soon.*seconds")):
            common = dict(DMLC_PS_ROOT_URI="127.0.0.1", DMLC_NUM_WORKER="1",
                          DMLC_PS_ROOT_PORT=str(workers.free_port()), DMLC_NUM_SERVER="1",
                          DMLC_ROLE="scheduler", TELEGRAD_JOIN_TIMEOUT=variable)
            (code, _, err), = self.ranks(joins_as_server, num=1, **common).wait()
            self.assertNotEqual(code, 0)
            self.assertRegex(err, text)

    def test_results_are_means_where_that_is_asked_for(self):
        self.assertEqual(self.ranks(means).results(), 2 * [[8, 4.5, 3, 1]])

    def test_floats_of_16_bits(self):
        # Half the bytes of float32, or those: numbers count gradients as 32-bit floats.
        for value, raw in self.ranks(halves).results():
            self.assertEqual(value, 2052)
            self.assertEqual(raw, 32)  # as float32, as everywhere

    def test_two_bits_equal_the_model_on_every_step(self):
        for stats in self.ranks(model_of_two_bits).results():
            self.assertEqual(stats["push_raw_bytes"], 20 * 4004)
            # 63 words of codes in a frame of 64 bytes' header.
            self.assertEqual(stats["push_wire_bytes"], 20 * (252 + 64))

    def test_the_store_runs_sgd(self):
        self.assertEqual(self.ranks(optimizer).results(), [True, True])

    def test_who_dies_is_named_and_all_end_with_code_20(self):
        for where in ("pushpull", "barrier"):
            with self.subTest(where):
                ended = self.ranks(dies, [where, 2, "dist_sync"], num=3).wait()
                self.assertEqual(ended[2][0], -signal.SIGKILL)
                for code, out, err in ended[:2]:
                    self.assertEqual(code, 20, err)
                    got = json.loads(out)
                    self.assertEqual(got["kind"], "PeerDied")
                    self.assertIn("worker/2@", " ".join(got["dead"]))
                    self.assertLess(got["seconds"], 10)
                    self.assertGreaterEqual(got["num_dead"], 1)

    def test_rank_0_is_named_when_it_dies_with_its_scheduler(self):
        for type in ("dist_sync", "allreduce"):
            with self.subTest(type):
                ended = self.ranks(dies, ["pushpull", 0, type], num=3).wait()
                self.assertEqual(ended[0][0], -signal.SIGKILL)
                for code, out, err in ended[1:]:
                    self.assertEqual(code, 24, err)
                    got = json.loads(out)
                    self.assertEqual(got["kind"], "SchedulerLost")
                    self.assertRegex(got["dead"][0], r"^worker/0@\S+:\d+$")
                    self.assertEqual(got["dead"][-1], "scheduler")
                    self.assertLess(got["seconds"], 10)

    def test_a_server_of_its_own_is_named_when_it_dies(self):
        """Launched by DMLC's variables: scheduler, server, two workers."""
        ranks = self.ranks(server_dies, num=4)
        self.assertEqual([ranks.line(rank) for rank in (2, 3)], ["ready"] * 2)
        ranks.kill(1)
        ended = ranks.wait()
        for code, out, err in ended[2:]:
            self.assertEqual(code, 23, err)
            kind, dead, seconds = json.loads(out)
            self.assertEqual((kind, len(dead)), ("ServerLost", 1))
            self.assertRegex(dead[0], r"^server/0@\S+:\d+$")
            self.assertLess(seconds, 10)

    def test_ctrl_c_ends_all(self):
        ranks = self.ranks(never_ends)
        for rank in range(2):
            self.assertEqual(ranks.line(rank), "ready")
        ranks.kill(0, signal.SIGINT)
        ended = ranks.wait()
        self.assertIn("KeyboardInterrupt", ended[0][2])
        self.assertNotEqual(ended[0][0], 0)
        self.assertEqual(ended[1][0], 33, ended[1])
        self.assertIn("telegrad.errors.Cancelled", ended[1][2])

    def test_the_interpreter_ends_with_operations_in_flight(self):
        self.assertEqual(self.ranks(ends_in_flight).results(), ["left"] * 2)

    def test_a_fork_is_harmless(self):
        self.assertEqual(self.ranks(forks).results(), [[0, 4]] * 2)

    def test_a_wrong_secret_is_refused(self):
        (kind, text), (other, other_text) = self.ranks(wrong_secret).results()
        self.assertEqual(other, "AuthenticationError", other_text)
        self.assertIn(kind, ("JoinTimeout", "AuthenticationError"), text)

    def test_another_codec_on_one_rank_is_refused_with_both_values(self):
        for kind, text in self.ranks(differs).results():
            self.assertEqual(kind, "Mismatch", text)
            self.assertRegex(text, "0.5.*0.25")

    def test_roles_of_mxnets_launcher(self):
        ended = self.ranks(dmlc, num=4).wait()
        self.assertEqual([code for code, _, _ in ended], [0] * 4, ended)
        self.assertEqual([out.strip() for _, out, _ in ended], ["", "", "5.0", "5.0"])

    def test_nothing_is_left_behind(self):
        ((first, last),) = self.ranks(opens_and_closes, 12, num=1).results()
        self.assertEqual(first, last)

    def test_a_launchers_variables_that_are_absent_are_named(self):
        with self.assertRaisesRegex(telegrad.UsageError, "DMLC_ROLE"):
            create()


if __name__ == "__main__":
    workers.main({function.__name__: function for function in (
        meanings, means, halves, known_answers, model_of_two_bits, optimizer, dies,
        never_ends, one_bit, joins_as_server,
        ends_in_flight, forks, dmlc, server_dies, wrong_secret, differs,
        opens_and_closes)})
