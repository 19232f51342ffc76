"""A network that fails: packets are lost, repeated, late or altered; hosts are cut off."""

import re

import hosts

hosts.enter([], required=True)

from cluster_case import ENDLESS, SHORT, TRAIN, ClusterCase, hash_in, main  # noqa: E402
from faulty_link import HERE, THERE, FaultyLink as Link  # noqa: E402

PORT = 9093  # of the scheduler
WENT_ON = re.compile(r"(\d) workers? went on from step (\d+)")
DENSE = SHORT[4:]  # without a codec
INSECURE = ["--insecure", "--encryption", "off"]


class FaultyLink(ClusterCase):
    def member(self, host, role, rank, flags, scheduler=HERE, workers=2):
        variables = {"DMLC_PS_ROOT_URI": scheduler, "DMLC_PS_ROOT_PORT": str(PORT),
                     "DMLC_NUM_WORKER": str(workers), "DMLC_NUM_SERVER": "1",
                     "DMLC_ROLE": role, "DMLC_WORKER_ID": str(rank)}
        enter = ["nsenter", f"--net=/run/netns/{host}"] if host else []
        return self.start([*enter, "env", *(f"{key}={value}" for key, value in variables.items()),
                           TRAIN, *flags, "--transport", "tcp", "--out", f"out-{role}-{rank}"])

    def over(self, *flags, training=SHORT):
        """All members but worker 1 are on this side of the link."""
        return [self.member(host, role, rank, [*training, *flags, "--bind", HERE if not host else THERE])
                for host, role, rank in ((None, "scheduler", 0), (None, "server", 0),
                                         (None, "worker", 0), ("n1", "worker", 1))]

    def test_lost_repeated_and_late_packets_cost_time_alone(self):
        with Link("n1", lose=0.05, repeat=0.02, delay=0.02) as link:
            for process in self.over(*self.far[2:]):
                self.end(process, 0)
        for fate, share in link.chances.items():
            self.assertGreater(link.count[fate], link.count["all"] * share / 2, link.count)
        self.assertGreater(link.count["all"], 1000)
        self.assert_same_weights("out-worker-0", 1)

    def test_flipped_bits_end_the_job(self):
        # Of the data path: control records have their checks in system/security.
        with Link("n1", alter=50, spare=PORT) as link:
            for flags, words in ((self.far[2:], "altered, repeated or out of order on its way"),
                                 (INSECURE, "fails its check")):
                for process in self.over(*flags, training=ENDLESS):
                    (line,) = self.fatal_lines(self.end(process, 43))
                    self.assertRegex(line["message"], f"(server|worker)/[01].*{words}")
            self.assertGreater(link.count["altered"], 1)

    def test_with_resend_flipped_bits_cost_time_alone(self):
        with Link("n1", alter=400, spare=PORT) as link:
            for process in self.over(*INSECURE, "--resend", training=DENSE):
                self.end(process, 0)
            self.assertGreater(link.count["altered"], 3)
        self.end(self.start([TRAIN, *DENSE, "--workers", "2", "--out", "here"]), 0)
        self.assertEqual(*(hash_in(f"{self.folder}/{out}") for out in ("out-worker-0", "here")))

    def test_the_side_of_the_scheduler_goes_on_alone(self):
        flags = [*SHORT[:-2], "--num-batches", "200", "--inject", "slow:0:50", "--checkpoint",
                 f"{self.folder}/ck", "--checkpoint-every", "5", "--elastic", "2",
                 "--dead-timeout", "3", "--disp-batches", "5", *self.far]
        places = [(None, "scheduler", 0), (None, "server", 0), ("n1", "worker", 0),
                  ("n1", "worker", 1), ("n2", "worker", 2), ("n2", "worker", 3)]
        runs = [self.member(host, role, rank, flags, "10.77.0.254", workers=4)
                for host, role, rank in places]
        hosts.wait_until(lambda: "Batch [" in self.output(runs[2]), 120, "steps")
        hosts.run("ip", "link", "set", "vn2", "down")
        for process in runs[4:]:
            self.assertIn(process.wait(20), (20, 24), self.output(process))
        hosts.wait_until(lambda: WENT_ON.search(self.output(runs[2])), 20, "the others go on")
        hosts.run("ip", "link", "set", "vn2", "up")
        text = [self.end(process, 0) for process in runs[:4]][2]
        (told,) = WENT_ON.findall(text)
        self.assertEqual(told[0], "2")
        for process in runs[4:]:
            self.assertNotIn("went on", self.output(process))


if __name__ == "__main__":
    main()
