"""telegrad-launch on three hosts, over ssh."""

import json
import os
import shlex
import signal
import subprocess
import time
import unittest

import hosts

hosts.enter(["ssh", "sshd", "ssh-keygen"], required=True, count=3)

import page  # noqa: E402
from cluster_case import (ENDLESS, LAUNCH, SERVER, SHORT, TRAIN, ClusterCase,  # noqa: E402
                          main, processes, whole)
from common import Common  # noqa: E402

SSH_FOLDER = hosts.use_ssh()
SSH_CONFIG = f"{SSH_FOLDER}/ssh_config"


class Launched(ClusterCase, Common):
    def job(self, *words):
        return self.launch("-n", "2", "--", *words)

    def launch(self, *words, lines=hosts.NAMES):
        with open(f"{self.folder}/hosts", "w") as file:
            file.write("\n".join(lines) + "\n")
        return self.start([*LAUNCH, "-H", "hosts", *words])

    def test_ssh_gives_what_one_host_gives(self):
        for servers, more in ((0, []), (1, []), (1, ["--server-program", SERVER])):
            with self.subTest(f"{servers} {more}"):
                self.end(self.launch("-n", "2", "-s", str(servers), *more, "--", TRAIN, *SHORT,
                                     "--out", f"s{servers}"), 0)
                self.assert_same_weights(f"s{servers}", servers or 2)
        self.assert_all_gone()

    def test_a_file_of_hosts_of_a_batch_system_is_enough(self):
        with open(f"{self.folder}/nodes", "w") as file:
            file.write("n1\nn2\n")
        process = self.start([*LAUNCH, "--", TRAIN, *SHORT, "--out", "pbs"],
                             env={**os.environ, "PBS_NODEFILE": f"{self.folder}/nodes"})
        self.assertIn("[worker 0@n1]", self.end(process, 0))
        self.assert_same_weights("pbs")

    def test_a_device_that_failed_is_left_out_of_the_next_start(self):
        script = "test $(hostname) = n1 && test $RANK = 0 && exit 44; echo $RANK of $WORLD_SIZE"
        process = self.launch("-n", "2", "--restart", "3", "--account", "jobs", "--", "sh", "-c",
                              script)
        text = self.end(process, 0)
        with open(f"{self.folder}/jobs") as file:
            job = json.load(file)
        self.assertEqual((job["cluster"], job["hosts"], job["workers"], job["starts"], job["code"]),
                         ("ssh", hosts.NAMES, 2, 2, 0))
        self.assertIn("the job ended with 44 (device_fault): worker 0@n1 ended with 44", text)
        self.assertIn("[worker 0@n2] 0 of 2\n", text)
        self.assertIn("[worker 1@n3] 1 of 2\n", text)
        process = self.launch("--restart", "3", "--", "sh", "-c", script,
                              lines=["n1 slots=1", "n2 slots=1"])
        self.assertIn("the other hosts are too few to start again", self.end(process, 44))

    def test_signals_end_all_on_all_hosts(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            process = self.launch("-n", "3", "-s", "1", "--", TRAIN, *ENDLESS)
            self.wait_for_training(process)
            process.send_signal(number)
            self.end(process, 128 + number, seconds=10)
            hosts.wait_until(lambda: not processes(), 5, "all processes gone")

    def test_nothing_outlives_the_launcher_or_a_connection(self):
        for victim in ("launcher", "ssh"):
            process = self.launch("-n", "3", "--", TRAIN, *ENDLESS)
            self.wait_for_training(process)
            if victim == "launcher":
                process.kill()
                process.wait()
            else:
                pid = subprocess.run(["pgrep", "-f", "ssh -F .* n2 python3"], text=True,
                                     capture_output=True, check=True).stdout.split()[0]
                os.kill(int(pid), signal.SIGKILL)
                text = self.end(process, 20, seconds=20)
                self.assertIn("the connection to n2 has ended", text)
            self.assert_all_gone()

    def test_a_host_that_hears_nothing_ends_its_processes(self):
        process = self.launch("-n", "2", "--lost-timeout", "2", "--", "sleep", "1000")
        hosts.wait_until(lambda: len(self.sleeping()) == 2, 20, "both")
        pid = subprocess.run(["pgrep", "-f", "ssh -F .* n2 python3"], text=True,
                             capture_output=True, check=True).stdout.split()[0]
        os.kill(int(pid), signal.SIGSTOP)
        hosts.wait_until(lambda: len(self.sleeping()) == 1, 10, "its end")
        process.terminate()
        self.assertIn("worker 1@n2 did not end", self.end(process, 143, seconds=40))
        self.assertEqual(self.sleeping(), [])

    @staticmethod
    def sleeping():
        return subprocess.run(["pgrep", "-x", "sleep"], text=True,
                              capture_output=True).stdout.split()

    def test_hosts_that_cannot_be_used_are_named_before_anything_starts(self):
        down = "10.77.0.99"
        text = self.end(self.launch("-n", "4", "--", TRAIN, *SHORT, lines=["n1", "n2", "n9", down]),
                        25, seconds=40)
        self.assertRegex(text, "n9: .*resolve")
        self.assertRegex(text, f"{down}: .*(No route to host|timed out)")
        self.assertNotIn("[worker", text)
        with open(f"{self.folder}/program.py", "w") as file:
            file.write("#!/bin/sh\n[ $(hostname) = n2 ] && echo 0.1.0 || echo 0.2.0\n")
        os.chmod(f"{self.folder}/program.py", 0o755)
        os.rename(f"{self.folder}/program.py", f"{self.folder}/telegrad-train")
        text = self.end(self.launch("-n", "2", "--", "./telegrad-train"), 31)
        self.assertIn("n1 has 0.2.0, n2 has 0.1.0", text)
        with open(SSH_CONFIG) as file:
            before = file.read()
        try:
            with open(SSH_CONFIG, "w") as file:
                file.write(before.replace("UserKnownHostsFile ", "UserKnownHostsFile /dev/null "
                                          "#"))
            text = self.end(self.launch("-n", "1", "--", "true"), 25)
            self.assertIn("n1: Host key verification failed", text)
        finally:
            with open(SSH_CONFIG, "w") as file:
                file.write(before)

    def ranks_in_time(self, count, seconds, *words, **more):
        started = time.monotonic()
        process = self.launch("-n", str(count), *words, "--", "sh", "-c",
                              "echo $RANK of $WORLD_SIZE", **more)
        text = self.end(process, 0, seconds=2 * seconds)
        took = time.monotonic() - started
        self.assertEqual(sorted(line.split("] ")[1] for line in text.splitlines()),
                         sorted(f"{rank} of {count}" for rank in range(count)))
        print(f"{count} ranks: {took:.1f} s")
        self.assertLess(took, seconds)

    def test_two_hundred_ranks_of_three_hosts(self):
        self.ranks_in_time(200, 20)

    def test_thirty_hosts_are_connected_to_a_few_at_a_time(self):
        # Names of the three.
        with open(SSH_CONFIG, "a") as file:
            for i in range(30):
                name = hosts.NAMES[i % 3]
                file.write(f"Host h{i}\n HostName {name}\n HostKeyAlias {name}\n"
                           f" IdentityFile {SSH_FOLDER}/key\n"
                           f" UserKnownHostsFile {SSH_FOLDER}/known\n LogLevel ERROR\n")
        self.ranks_in_time(60, 40, "--connections", "8", lines=[f"h{i}" for i in range(30)])

    def test_the_first_step_comes_about_as_early_as_on_one_host(self):
        def first_step(*words):
            started = time.monotonic()
            process = self.start([*LAUNCH, *words, "-n", "3", "--", TRAIN, *ENDLESS[:-1], "1"])
            self.wait_for_training(process)
            took = time.monotonic() - started
            process.terminate()
            self.end(process, 143)
            return took
        with open(f"{self.folder}/hosts", "w") as file:
            file.write("\n".join(hosts.NAMES) + "\n")
        times = []
        for _ in range(8):  # others may be busy here, too
            times.append((first_step("-H", "hosts"), first_step()))
            far, local = (min(each) for each in zip(*times))
            if far < local + 3:
                break
        print(f"first step: {local:.1f} s on one host, {far:.1f} s on three")
        self.assertLess(far, local + 3)

    def test_variables_and_folders_go_along(self):
        os.makedirs(f"{self.folder}/there")
        process = self.launch("--env", "TOLD='a b'$x", "--workdir", f"{self.folder}/there", "--",
                              "sh", "-c", "echo \"$TOLD $PWD\"")
        text = self.end(process, 0)
        for rank, name in enumerate(hosts.NAMES):
            self.assertIn(f"[worker {rank}@{name}] 'a b'$x {self.folder}/there\n", text)

    @unittest.skipUnless(hosts.shutil.which("rsync"), "rsync is not installed")
    def test_this_folder_is_copied_first(self):
        os.makedirs(f"{self.folder}/here")
        for name, text in (("hosts", "n1\nn2\n"), ("said.txt", "copied\n")):
            with open(f"{self.folder}/here/{name}", "w") as file:
                file.write(text)
        process = self.start(["env", "-C", f"{self.folder}/here", *LAUNCH, "-H", "hosts",
                              "--sync-dst-dir", f"{self.folder}/there", "--", "cat", "said.txt"])
        self.assertIn("[worker 1@n2] copied", self.end(process, 0))

    def test_ssh_is_told_nothing_but_how_to_start_python(self):
        process = self.launch("--dry-run", "--ssh-port", "2222", "--", "true")
        words = shlex.split(self.end(process, 0).splitlines()[0])
        self.assertEqual(words[-4:-1], ["-p", "2222", "n1"])
        self.assertTrue(words[-1].startswith("python3 -IS -c "))
        self.assertFalse([word for word in words if "StrictHostKeyChecking" in word])


    @whole
    def test_the_examples_of_the_page(self):
        with open(f"{self.folder}/hosts", "w") as file:
            file.write("n1\nn2\n")
        for heading in ("Smallest", "A real job"):
            for command in page.follow(self, "ssh", heading):
                with self.subTest(command):
                    text = self.ends(self.start(["sh", "-ec", command]), 0)
                    self.assertIn("test accuracy", text)


if __name__ == "__main__":
    main()
