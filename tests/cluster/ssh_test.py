"""DMLC variables, and addresses by hand, over ssh between two hosts."""

import os
import shlex
import signal

import hosts

hosts.enter(["ssh", "sshd", "ssh-keygen"], required=True)

from cluster_case import (ENDLESS, SERVER, SHORT, TRAIN, ClusterCase,  # noqa: E402
                          main)

hosts.use_ssh()


class Ssh(ClusterCase):
    def on(self, name, command, **variables):
        words = [f"{key}={value}" for key, value in variables.items()]
        text = shlex.join(["env", "-C", self.folder, *words, *command])
        return self.start(["ssh", name, text])

    def dmlc(self, args):
        """name -> process: the scheduler on n1, the server on n2."""
        common = {"DMLC_PS_ROOT_URI": "n1", "DMLC_PS_ROOT_PORT": "9091",
                  "DMLC_NUM_WORKER": 2, "DMLC_NUM_SERVER": 1}
        flags = [*args, *self.far]
        runs = {"scheduler": self.on("n1", [TRAIN, *flags],
                                     DMLC_ROLE="scheduler", **common),
                "server 0": self.on("n2", [TRAIN, *flags],
                                    DMLC_ROLE="server", **common)}
        for rank, name in enumerate(hosts.NAMES):
            runs[f"worker {rank}"] = self.on(
                name, [TRAIN, *flags, "--out", f"out-{rank}"],
                DMLC_ROLE="worker", DMLC_WORKER_ID=rank, **common)
        return runs

    def test_dmlc_variables_give_what_one_host_gives(self):
        for process in self.dmlc(SHORT).values():
            self.end(process, 0)
        self.assert_same_weights("out-0", 1)
        self.assert_all_gone()

    def test_servers_by_hand_give_what_one_host_gives(self):
        flags = ["--scheduler", "n1:9092", "--workers", "2", *self.far]
        runs = [self.on("n1", [SERVER, "--role", "scheduler", *flags]),
                self.on("n2", [SERVER, *flags])]
        runs += [self.on(name, [TRAIN, *SHORT, *flags, "--out", f"out-{name}"])
                 for name in hosts.NAMES]
        for process in runs:
            self.end(process, 0)
        (out,) = [f"out-{name}" for name in hosts.NAMES if os.path.exists(
            f"{self.folder}/out-{name}/summary.json")]
        self.assert_same_weights(out, 1)

    def test_auto_finds_the_address_that_reaches_the_scheduler(self):
        self.far[1] = "auto"
        for process in self.dmlc(SHORT).values():
            self.end(process, 0)

    def test_a_killed_worker_is_named_by_all(self):
        runs = self.dmlc(ENDLESS)
        self.wait_for_training(runs["worker 0"])
        os.kill(self.member("worker 1"), signal.SIGKILL)
        killed = runs.pop("worker 1")
        self.end(killed, None)
        for process in runs.values():
            text = self.end(process, 20)
            (line,) = self.fatal_lines(text)
            self.assertIn("worker/1@n2", line["dead"][0])
        self.assert_all_gone()

    def test_a_cancelled_job_is_told_as_cancelled(self):
        runs = self.dmlc(ENDLESS)
        self.wait_for_training(runs["worker 0"])
        os.kill(self.member("server"), signal.SIGTERM)
        for name, process in runs.items():
            text = self.end(process, 143 if name == "server 0" else 33)
            (line,) = self.fatal_lines(text)
            self.assertEqual(line["reason"], "cancelled")
        self.assert_all_gone()


if __name__ == "__main__":
    main()
