"""mpirun over ssh, and DMLC variables over ssh, between two hosts."""

import os
import shlex
import signal
import unittest

import hosts

hosts.enter(["ssh", "sshd", "ssh-keygen", "mpirun"], required=True)

from cluster_case import (ENDLESS, SERVER, SHORT, TRAIN,  # noqa: E402
                          ClusterCase, processes)

SSH_FOLDER = hosts.private_folder()
SSH_CONFIG = hosts.start_sshd(SSH_FOLDER)


class Ssh(ClusterCase):
    def on(self, name, command, **variables):
        words = [f"{key}={value}" for key, value in variables.items()]
        text = shlex.join(["env", "-C", self.folder, *words, *command])
        return self.start(["ssh", "-F", SSH_CONFIG, name, text])

    def mpirun(self, *parts, options=()):
        """Each part: how many ranks, and the command."""
        command = ["mpirun", "--allow-run-as-root", "--bind-to", "none",
                   "--mca", "plm_rsh_args", f"-F {SSH_CONFIG}",
                   "--mca", "oob_tcp_if_include", hosts.NETWORK,
                   "--mca", "btl", "tcp,self",
                   "--mca", "btl_tcp_if_include", hosts.NETWORK, *options]
        for count, words in parts:
            command += [*([":"] if parts[0][1] is not words else []),
                        "--host", "n1:4,n2:4", "--map-by", "node", "-np",
                        str(count), *words]
        return self.start(command)

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

    def test_mpirun_gives_what_one_host_gives(self):
        self.end(self.mpirun((2, [TRAIN, *SHORT, *self.far, "--out", "mpi"])),
                 0)
        self.assertEqual(self.hash_of("mpi"), self.expected_hash(2))
        self.assert_all_gone()

    def test_mpirun_starts_servers_that_are_no_trainers(self):
        flags = [*self.far, "--servers", "1"]
        self.end(self.mpirun((2, [TRAIN, *SHORT, *flags, "--out", "mpi"]),
                             (1, [SERVER, *flags])), 0)
        self.assertEqual(self.hash_of("mpi"), self.expected_hash(1))
        self.assert_all_gone()

    def test_dmlc_variables_give_what_one_host_gives(self):
        for process in self.dmlc(SHORT).values():
            self.end(process, 0)
        self.assertEqual(self.hash_of("out-0"), self.expected_hash(1))
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
        self.assertEqual(self.hash_of(out), self.expected_hash(1))

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

    def test_a_worker_killed_under_mpirun_is_named(self):
        process = self.mpirun((2, [TRAIN, *ENDLESS, *self.far]))
        self.wait_for_training(process)
        os.kill(self.member("worker 1"), signal.SIGKILL)
        text = self.end(process, None)
        lines = self.fatal_lines(text)
        self.assertEqual([line["code"] for line in lines], [20], text)
        # The worker's server ends with it, and may be missed first.
        self.assertRegex(lines[0]["dead"][0], "(worker|server)/1@n2")
        self.assert_all_gone()

    def test_without_bind_each_rank_says_which_flags_help(self):
        process = self.mpirun((2, [TRAIN, *SHORT]))
        text = self.end(process, None, seconds=30)
        self.assertIn("--bind auto", text)
        self.assertIn("--secret-file", text)
        self.assertNotIn("refused", text)
        self.assertEqual(processes(), {})

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
    unittest.main(verbosity=2)
