"""mpirun over ssh between hosts: a rank each, and hosts that telegrad-launch reaches by it."""

import hosts

hosts.enter(["ssh", "sshd", "ssh-keygen", "mpirun"], required=True, count=3)

import page  # noqa: E402
from cluster_case import (ENDLESS, LAUNCH, SERVER, SHORT, TRAIN, ClusterCase,  # noqa: E402
                          main, processes, whole)
from common import Common  # noqa: E402

hosts.use_ssh()


class Mpirun(ClusterCase, Common):
    killed, makes_secret = 128 + 9, False
    late = "not all ranks of the launcher have come .* within --join-timeout 3 s"

    def setUp(self):
        super().setUp()
        self.flags = self.far

    def mpirun(self, *parts, names=("n1", "n2")):
        """Each part: how many ranks, and the command."""
        command = ["mpirun", "--bind-to", "none"]
        for count, words in parts:
            command += [*([":"] if parts[0][1] is not words else []),
                        "--host", ",".join(f"{name}:4" for name in names), "--map-by", "node",
                        "-np", str(count), *words]
        return self.start(command)

    def job(self, *words):
        return self.mpirun((2, words))

    def test_servers_may_be_no_trainers(self):
        flags = [*self.far, "--servers", "1"]
        self.ends(self.mpirun((2, [TRAIN, *SHORT, *flags, "--out", "mpi"]),
                              (1, [SERVER, *flags])), 0)
        self.assert_same_weights("mpi", 1)

    @whole
    def test_three_hosts_train(self):
        text = self.ends(self.mpirun((3, [TRAIN, *SHORT, *self.far]), names=hosts.NAMES), 0)
        self.assertIn("3 workers", text)

    @whole
    def test_nothing_outlives_mpirun(self):
        process = self.job(TRAIN, *ENDLESS, *self.far)
        self.wait_for_training(process)
        process.kill()
        self.assert_all_gone()

    def test_without_bind_each_rank_says_which_flags_help(self):
        text = self.end(self.job(TRAIN, *SHORT), None, seconds=30)
        self.assertIn("--bind auto", text)
        self.assertIn("--secret-file", text)
        self.assertNotIn("refused", text)
        self.assertEqual(processes(), {})

    def test_the_launcher_reaches_hosts_by_it(self):
        with open(f"{self.folder}/hosts", "w") as file:
            file.write("n1\nn2\n")
        self.ends(self.start([*LAUNCH, "-H", "hosts", "--cluster", "mpi", "-n", "2", "-s", "1",
                              "--", TRAIN, *SHORT, "--out", "m"]), 0)
        self.assert_same_weights("m", 1)


    @whole
    def test_the_examples_of_the_page(self):
        with open(f"{self.folder}/hosts", "w") as file:
            file.write("n1\nn2\n")
        for heading in ("Smallest", "Real: servers of their own",
                        "Hosts by mpirun, processes by telegrad-launch"):
            with self.subTest(heading):
                commands = page.follow(self, "mpi", heading)
                text = self.ends(self.start(["sh", "-ec", "\n".join(commands)]), 0)
                self.assertIn("test accuracy", text)


if __name__ == "__main__":
    main()
