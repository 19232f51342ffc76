#!/usr/bin/env python3
"""Stores, collectives and operations of a job whose workers die, and to which others come."""
import json
import os
import signal
import time
import unittest

import workers

try:
    import numpy as np
except ImportError:
    workers.skip("python3-numpy is not installed")

import telegrad

RANK = int(os.environ.get("RANK", -1))
FILE = os.path.abspath(__file__)
STEPS, LOST = 8, 3
SIZE = 600
SECRET = b"a secret of thirty-two bytes or more"


def gradient(step, who):
    """Multiples of 1/256: all sums are exact."""
    return np.random.default_rng(100 * step + who).integers(-64, 65, SIZE).astype(
        np.float32) / 256


def store_of(options):
    kind = options.get("kind", "dist_sync")
    own = {"elastic": (1, 3), **options.get("job", {})}
    if "secret" in own:
        own["secret"] = own["secret"].encode()
    job = telegrad.Job(os.environ["SCHEDULER"], num_workers=own.pop("num_workers", 3),
                       rank=None if "who" in options else RANK, hosts_part=kind == "allreduce",
                       dead_timeout=4, join_timeout=20, **own).join()
    kv = telegrad.kvstore.create(kind, job)
    if options.get("codec"):
        kv.set_gradient_compression({"type": options["codec"]})
    if options.get("optimizer"):
        kv.set_optimizer(telegrad.optimizer.SGD(learning_rate=.5, momentum=.5))
    return job, kv


def end(who):
    os.kill(os.getpid(), signal.SIGKILL)


# ---- what a worker does ----

def train(options):
    """Adds up gradients, of `RANK` as it began; worker `victim` dies in step LOST. Notes who was
    there in each step."""
    job, kv = store_of(options)
    who, victim = options.get("who", RANK), options.get("victim")
    weights = np.zeros(SIZE, np.float32)
    kv.init(["a", "b"], [weights[:500].copy(), weights[500:].copy()])
    parts = {"a": weights[:500], "b": weights[500:]}
    kv.pull([*parts], [*parts.values()])
    step = begins = kv.share(0)
    errors, gaps, sizes, is_new = [], [], {}, False
    done, waits = time.monotonic(), options.get("waits", 0)
    while step < STEPS:
        if step == LOST and who == victim and not options.get("within"):
            end(who)
        try:
            if is_new:
                step, is_new = kv.share(step), False
            kv.let_in()
            if step == LOST and job.num_workers < waits:  # until the other one is there
                time.sleep(.05)
                continue
            sums = gradient(step, who)
            new = {"a": sums[:500].copy(), "b": sums[500:].copy()}
            kv.pushpull("a", new["a"])
            if step == LOST and who == victim:
                end(who)
            kv.pushpull("b", new["b"])
        except telegrad.EpochEnded as why:
            assert why.retryable and isinstance(why, telegrad.PeerDied), why
            errors.append([why.exit_code, list(why.dead), str(why)])
            kv.reconfigure(parts)
            is_new = True
            continue
        for key, part in parts.items():
            part[:] = new[key] if options.get("optimizer") else part + new[key]
        sizes[step] = job.num_workers
        step += 1
        gaps.append(time.monotonic() - done)
        done = time.monotonic()
    found = {"begins": begins, "errors": errors, "gap_s": max(gaps), "sizes": sizes,
             "weights": weights.tolist(), "rank": job.rank, "workers": job.num_workers,
             "epoch": job.epoch, "elder": job.elder}
    kv.close()
    job.close()
    return found


def alone(options):
    """Weights of dist_async, to which each adds half of its gradients when it likes. Worker 2 dies
    in step LOST, when it has pushed; all of it, and all of the others', stays."""
    job, kv = store_of(options)
    kv.set_optimizer(telegrad.optimizer.SGD(learning_rate=.5, momentum=options["momentum"]))
    weights = np.zeros(SIZE, np.float32)
    kv.init("w", weights)
    kv.pull("w", weights)
    step = 0
    while step < STEPS:
        try:
            if step % LOST == 0:
                kv.let_in()
            if step == LOST and RANK == 2:
                end(RANK)
            if step == LOST and job.num_workers == 3:
                kv.barrier()  # nobody has a push under way when the epoch ends
            kv.pushpull("w", gradient(step, RANK))
        except telegrad.EpochEnded:
            kv.reconfigure({"w": weights * 0 - 7})
            continue
        step += 1
    kv.barrier()
    kv.pull("w", weights)
    kv.barrier()
    kv.close()
    job.close()
    return weights.tolist()


def collect(_):
    """Sums by a group and by operations, both made anew behind a death."""
    job = telegrad.Job(os.environ["SCHEDULER"], rank=RANK, num_workers=3, dead_timeout=4,
                       hosts_part=True, elastic=2).join()
    found = []
    for attempt in range(2):
        group, operations = telegrad.Group(job), telegrad.Operations(job)
        one = np.full(4, RANK + 1, np.float32)
        group.allreduce(one)
        if attempt == 0 and RANK == 1:
            end(RANK)
        try:
            other = np.full(4, RANK + 1, np.float32)
            handle = operations.submit("allreduce", other, name="x", out=other)
            operations.wait(handle, timeout=30)
            group.allreduce(one)
            found.append([one.tolist(), other.tolist()])
        except telegrad.EpochEnded as why:
            assert attempt == 0, why
            found.append([sorted(why.dead)[-1]])  # its part of the sums is dead, too
            text = workers.refused(telegrad.WrongOrder, lambda: telegrad._library.call(
                "job_reconfigure", job.handle))
            assert "close them first" in text, text
            job.reconfigure()
    job.close()
    return found


def too_few(_):
    job, kv = store_of({"job": {"elastic": 2, "num_workers": 2}})
    kv.init("a", np.zeros(8, np.float32))
    kv.barrier()
    if RANK == 1:
        end(RANK)
    try:
        while True:
            kv.let_in()
    except telegrad.PeerDied as why:
        assert not isinstance(why, telegrad.EpochEnded), why
        again = workers.refused(telegrad.PeerDied, job.reconfigure)
        return [why.exit_code, str(why), again]


def cannot(_):
    """What is refused without any other worker."""
    found = [workers.refused(telegrad.UsageError, lambda given=given: telegrad.Job(
        num_workers=2, has_scheduler=True, elastic=given[0], **given[1]))
        for given in ((0, {}), ((3, 4), {}), ((1, 1), {}), ("2:4", {}), ((1, 2, 3), {}),
                      (1, {"tier1": "on"}))]
    with telegrad.Job(has_scheduler=True, servers_here=1).join() as job:
        assert (job.epoch, job.elder, job.share({"step": 3})) == (1, 0, {"step": 3})
        found += [workers.refused(telegrad.WrongOrder, job.reconfigure),
                  workers.refused(telegrad.WrongOrder, job.let_in),
                  workers.refused(telegrad.UsageError, lambda: job.share(object())),
                  workers.refused(telegrad.UsageError, lambda: job.share("x" * (1 << 20)))]
    with telegrad.Job(has_scheduler=True, servers_here=1, elastic=1).join() as job:
        kv = telegrad.kvstore.create("dist_sync", job)
        kv.init("a", np.zeros(3, np.float32))
        found += [workers.refused(telegrad.WrongOrder, lambda: kv.reconfigure({"a": 0})),
                  workers.refused(telegrad.UsageError, lambda: kv.reconfigure({"b": 0}))]
        kv.let_in()  # nobody waits
        out = np.ones(3, np.float32)
        kv.pushpull("a", out)
        assert out.tolist() == [1, 1, 1]
        kv.close()
    found.append(workers.refused(telegrad.UsageError, lambda: telegrad.kvstore.create(
        "local").let_in()))
    return found


class Elastic(unittest.TestCase):
    def begin(self, function, num=3, servers=1, argument=None, **job):
        """Scheduler and servers of a job, here, and its workers."""
        role = telegrad.SERVER if servers else telegrad.SCHEDULER
        self.job = telegrad.Job("127.0.0.1:0", role=role, has_scheduler=True, num_workers=num,
                                num_servers=max(servers, 1), servers_here=servers,
                                hosts_part=not servers, dead_timeout=4, join_timeout=20, **job)
        return workers.Ranks(FILE, function, num, argument, SCHEDULER=self.job.address)

    def add(self, options):
        """One more worker, of no rank."""
        argument = {"who": 5, **options}
        (one,) = workers.Ranks(FILE, "train", 1, argument, SCHEDULER=self.job.address).processes
        return one

    def end(self):
        self.job.serve()
        self.job.close()

    def check(self, ended, left, members, start=0):
        """What those that are left printed; `members`: who was there, by step."""
        found = []
        for place in left:
            code, out, err = ended[place]
            self.assertEqual(code, 0, f"{place}:\n{out}\n{err}")
            found.append(json.loads(out.strip().splitlines()[-1]))
        wanted = sum(gradient(step, who) for step in range(STEPS) for who in members(step))
        for each in found:
            self.assertEqual(each["weights"], wanted.tolist())
        return found

    def test_those_that_are_left_go_on_and_no_step_is_mixed(self):
        for victim, options in ((2, {"within": True}), (0, {}),
                                (1, {"kind": "allreduce", "within": True})):
            with self.subTest(victim=victim, **options):
                ranks = self.begin("train", servers=int("kind" not in options),
                                   argument={"victim": victim, **options})
                ended = ranks.wait()
                self.assertEqual(ended[victim][0], -signal.SIGKILL, ended[victim])
                left = [rank for rank in range(3) if rank != victim]
                found = self.check(ended, left, lambda step: range(3) if step < LOST else left)
                for place, each in enumerate(found):
                    (error,) = each["errors"]
                    self.assertEqual(error[0], 20, error)
                    self.assertIn(f"worker/{victim}@", sorted(error[1])[-1])
                    self.assertEqual((each["rank"], each["workers"], each["epoch"],
                                      each["elder"]), (place, 2, 2, 0))
                    self.assertLess(each["gap_s"], 10)
                self.end()

    def test_servers_steps_and_codes_go_on(self):
        for options in ({"optimizer": True}, {"codec": "2bit"}):
            with self.subTest(**options):
                ended = self.begin("train", argument={"victim": 1, "within": True,
                                                      **options}).wait()
                one, other = (json.loads(ended[rank][1].strip().splitlines()[-1])
                              for rank in (0, 2))
                self.assertEqual(one["weights"], other["weights"])
                self.assertEqual(one["sizes"], {str(step): 2 + (step < LOST)
                                                for step in range(STEPS)})
                self.end()

    def test_asynchronous_servers_keep_what_was_pushed(self):
        for momentum in (0, .5):
            with self.subTest(momentum=momentum):
                ended = self.begin("alone", argument={"kind": "dist_async",
                                                      "momentum": momentum}).wait()
                one, other = (json.loads(ended[rank][1].strip().splitlines()[-1])
                              for rank in (0, 1))
                self.assertEqual(one, other)
                pushed = [(step, who) for who in range(3)
                          for step in range(STEPS if who < 2 else LOST)]
                if not momentum:
                    wanted = -.5 * sum(gradient(*each) for each in pushed)
                    self.assertEqual(one, wanted.tolist())
                self.assertGreater(min(map(abs, np.array(one) + 7)), 0)
                self.end()

    def test_another_comes_in_the_place_of_the_dead_and_has_what_the_others_have(self):
        for kind in ("dist_sync", "allreduce"):
            with self.subTest(kind=kind):
                options = {"kind": kind, "victim": 0, "waits": 3}
                ranks = self.begin("train", servers=int(kind == "dist_sync"), argument=options)
                self.assertEqual(ranks.processes[0].wait(), -signal.SIGKILL)
                one = self.add({"kind": kind, "waits": 3})
                ended = [*ranks.wait(), (0, *one.communicate(workers.TIMEOUT_S))]
                found = self.check(ended, (1, 2, 3), lambda step: (
                    range(3) if step < LOST else (1, 2, 5)))
                self.assertEqual([each["begins"] for each in found], [0, 0, LOST])
                self.assertEqual([each["rank"] for each in found], [1, 2, 0])
                self.assertEqual({each["elder"] for each in found}, {1})
                self.end()

    def test_who_does_not_fit_ends_and_the_job_goes_on(self):
        ranks = self.begin("train", argument={"victim": 2, "waits": 3, "job": {
            "secret": SECRET.decode()}}, secret=SECRET)
        self.assertEqual(ranks.processes[2].wait(), -signal.SIGKILL)
        secret = {"secret": SECRET.decode()}
        for job, code, texts in (
                ({**secret, "elastic": 1}, 31, ("--elastic", "1:3")),
                ({**secret, "link": "1gbit"}, 31, ("emulated link", "none", "1gbit")),
                ({"secret": SECRET.decode() + "?"}, 30, ("secret",)),
                ({**secret, "codec": "2bit"}, 31, ("codec: ", " none", " 2bit"))):
            options = {"codec": job.pop("codec")} if "codec" in job else {}
            out, err = self.add({"job": job, **options}).communicate(workers.TIMEOUT_S)
            for text in texts:
                self.assertIn(text, err)
            self.assertIn({30: "AuthenticationError", 31: "Mismatch"}[code], err)
        one = self.add({"waits": 3, "job": secret})
        ended = [*ranks.wait(), (0, *one.communicate(workers.TIMEOUT_S))]
        self.check(ended, (0, 1, 3), lambda step: range(3) if step < LOST else (0, 1, 5))
        self.end()

    def test_collectives_and_operations_go_on(self):
        ended = self.begin("collect", servers=0).wait()
        for rank in (0, 2):
            code, out, err = ended[rank]
            self.assertEqual(code, 0, f"{out}\n{err}")
            (dead,), sums = json.loads(out.strip().splitlines()[-1])
            self.assertIn("worker/1@", dead)
            self.assertEqual(sums, [[8] * 4, [4] * 4])
        self.end()

    def test_fewer_than_the_least_end_the_job(self):
        ended = self.begin("too_few", 2).wait()
        code, text, again = json.loads(ended[0][1].strip().splitlines()[-1])
        self.assertEqual(code, 20)
        self.assertIn("below_min_workers: 1 is left", text)
        self.assertEqual(again, text)
        with self.assertRaises(telegrad.PeerDied):
            self.job.serve()

    def test_what_cannot_be(self):
        (found,) = workers.Ranks(FILE, "cannot", 1).results()
        for text, part in zip(found, (
                "elastic=0", "MIN 1 to 2, not 3", "MAX 2 or more, not 1", "'2:4'", "(1, 2, 3)",
                "tier1 'on'", "without elastic_min", "without elastic_min", "share",
                "at most 1048576", "has not ended", "other keys", "one process")):
            self.assertIn(part, text)


if __name__ == "__main__":
    workers.main(globals())
