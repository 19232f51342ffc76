"""Where members of two hosts listen and look for each other, whatever names say."""

import os
import sys
import unittest

from harness import BINARY, SystemTest, wait_until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..",
                                "testing"))
import two_hosts  # noqa: E402

LOCAL = "127.0.0.1 localhost\n"
OWN_NAME = LOCAL + "127.0.1.1 na\n"  # as Debian has it
HEAD = LOCAL + "127.0.1.1 nb\n10.77.0.1 na\n"
NETWORK = "10.77.0.0/24"
SLURM = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2",
         "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NODELIST": "na,nb",
         "SLURM_JOB_ID": "77"}


def torchrun(master):
    return {"WORLD_SIZE": "2", "MASTER_ADDR": master, "MASTER_PORT": "29516"}


class TwoHosts(SystemTest):
    def begin(self, hosts):
        both = two_hosts.TwoHosts(hosts)
        self.addCleanup(both.close)
        self.secret = self.path("secret")
        with open(os.open(self.secret, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write("0123456789abcdef" * 4)
        return both

    def join(self, both, host, env, program=BINARY, bind="auto", timeout="20"):
        args = ["--bind", bind, "--secret-file", self.secret, "--join-timeout",
                timeout]
        if program == BINARY:
            args += [*self.gradients(), "--out", f"out-{host}"]
        return self.start(args, env, both.on(host, []), program)

    def ranks(self, both, first, second, bind="auto", timeout="20"):
        return [self.join(both, 0, {"RANK": "0", "SLURM_PROCID": "0", **first},
                            bind=bind, timeout=timeout),
                self.join(both, 1, {"RANK": "1", "SLURM_PROCID": "1", **second},
                            bind=bind, timeout=timeout)]

    def assert_ends(self, runs, code=0):
        for run in runs:
            self.assertEqual(self.wait(run, 60), code, run.output())

    def test_the_heads_own_name_is_loopback_there(self):
        for env in (torchrun("na"), SLURM):
            for bind in ("auto", NETWORK):
                with self.subTest(env=env, bind=bind):
                    both = self.begin((OWN_NAME, HEAD))
                    self.assert_ends(self.ranks(both, env, env, bind))
                    both.close()

    def test_a_server_on_the_head_finds_its_scheduler(self):
        both = self.begin((OWN_NAME, HEAD))
        env = {"DMLC_PS_ROOT_URI": "na", "DMLC_PS_ROOT_PORT": "9091",
               "DMLC_NUM_WORKER": "1", "DMLC_NUM_SERVER": "1"}
        server = os.environ["TELEGRAD_SERVER"]
        self.assert_ends([
            self.join(both, host, {**env, "DMLC_ROLE": role}, program)
            for host, role, program in ((0, "scheduler", server), (0, "server", server),
                                        (1, "worker", BINARY))])

    def test_rank_0_is_told_localhost(self):
        for master in ("localhost", "127.0.0.1"):
            for bind in ("auto", NETWORK):
                with self.subTest(master=master, bind=bind):
                    both = self.begin((LOCAL, LOCAL))
                    self.assert_ends(self.ranks(both, torchrun(master),
                                                torchrun("10.77.0.1"), bind))
                    both.close()

    def test_a_name_is_looked_up_until_it_is_there(self):
        both = self.begin((LOCAL + "10.77.0.1 head-0.job\n", LOCAL))
        env = torchrun("head-0.job")
        runs = self.ranks(both, env, env)
        # Rank 0 waits for rank 1, which does not know the name yet.
        self.assertTrue(wait_until(lambda: self.listens(runs[0].pid), 20))
        self.assertIsNone(runs[1].process.poll(), runs[1].output())
        with open(both.files[1], "a") as file:
            file.write("10.77.0.1 head-0.job\n")
        self.assert_ends(runs)

    @staticmethod
    def listens(pid):
        """Whether somebody in the network namespace of `pid` does."""
        with open(f"/proc/{pid}/net/tcp") as file:
            return any(line.split()[3] == "0A" for line in file if ":" in line)

    def test_a_name_that_never_comes_is_named(self):
        both = self.begin((LOCAL, LOCAL))
        env = {**torchrun("head-0.job"), "RANK": "1"}
        run = self.join(both, 1, env, timeout="1")
        self.assertEqual(self.wait(run, 30), 25, run.output())
        self.assertIn('"head-0.job"', run.stderr())


if __name__ == "__main__":
    if two_hosts.why_not():
        print(f"skipped: {two_hosts.why_not()}")
        sys.exit(77)
    unittest.main(verbosity=2)
