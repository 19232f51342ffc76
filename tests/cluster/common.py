"""What a job must show on each kind of cluster, whatever starts it there."""

import base64
import glob
import os
import shlex
import signal

import hosts
from cluster_case import ENDLESS, SHORT, TRAIN, processes, whole

RANK = "${RANK:-${SLURM_PROCID:-$OMPI_COMM_WORLD_RANK}}"


def secret_files():
    """Of all jobs here; Grid Engine gives each task a folder of its own."""
    return set(glob.glob(f"{hosts.TEMPORARY}/**/telegrad-launch-*/secret", recursive=True))


class Common:
    """Beside ClusterCase. `job` starts two workers, one on each host."""

    flags = []  # of every job here; `far` where no launcher makes the secret
    killed = 20  # what is recorded of a job whose worker was killed
    makes_secret = True  # what starts the job here
    late = r"join deadline of 3.0 s passed; missing: worker/1"

    def job(self, *words):
        """A process that ends with the job. Those that need it get `flags`."""
        raise NotImplementedError

    def cancel(self, process):
        process.send_signal(signal.SIGINT)

    def recorded(self, process):
        """The exit code that the scheduler has written down."""
        return process.returncode

    def ends(self, process, code):
        text = self.end(process, None, seconds=40)
        self.assertEqual(self.recorded(process), code, text)
        self.assert_all_gone()
        return text

    def ranks(self, line, join_timeout=5):
        """A program that runs it with $rank and $secret, and then the trainer."""
        path = f"{self.folder}/rank.sh"
        kept = "${TELEGRAD_SECRET_FILE:-%s/secret}" % self.folder
        with open(path, "w") as file:
            file.write(f"rank={RANK}\nsecret={kept}\n{line}\nexec {shlex.join([TRAIN, *SHORT])}"
                       f" --bind {hosts.NETWORK} --secret-file $secret"
                       f" --join-timeout {join_timeout}\n")
        return ["sh", path]

    def test_the_weights_are_those_of_one_host(self):
        self.ends(self.job(TRAIN, *SHORT, *self.flags, "--out", "common"), 0)
        self.assert_same_weights("common")

    def test_a_killed_worker_ends_all_within_ten_seconds(self):
        process = self.job(TRAIN, *ENDLESS, *self.flags)
        self.wait_for_training(process)
        os.kill(self.member("worker 1"), signal.SIGKILL)
        self.assert_all_gone(10)
        text = self.ends(process, self.killed)
        codes = {line["code"] for line in self.fatal_lines(text)}
        self.assertEqual(codes, {20}, text)
        # The worker's server ends with it, and may be missed first.
        self.assertRegex(text, "(worker|server)[ /]1@n[12]")

    def test_cancelled_nothing_is_left_within_five_seconds(self):
        before = secret_files()
        process = self.job(TRAIN, *ENDLESS, *self.flags, "--metrics-port", "9108")
        self.wait_for_training(process)
        kept = secret_files() - before if self.makes_secret else {f"{self.folder}/secret"}
        self.assertTrue(kept)
        self.check_listeners()
        self.check_secrets(kept, self.output(process))
        self.cancel(process)
        hosts.wait_until(lambda: not (processes() or hosts.listeners() or hosts.shared_memory()
                                      or secret_files() - before), 5, "nothing is left")
        self.end(process, None, seconds=30)

    def check_listeners(self):
        found = hosts.listeners()
        self.assertGreaterEqual(len([each for each in found if 9108 <= each[3] < 9236]), 2, found)
        for name, address, program, _ in found:
            own = "10.77.0.254" if name == "head" else hosts.address(name)
            self.assertIn(address, ("127.0.0.1", "::1", own), f"{program} on {name}")

    def check_secrets(self, files, output):
        """In no argument, no variable and no output."""
        for path in files:
            with open(path, "rb") as file:
                secret = file.read()
            forms = (secret, secret.hex().encode(), base64.b64encode(secret))
            for place in [*glob.glob("/proc/[0-9]*/cmdline"), *glob.glob("/proc/[0-9]*/environ")]:
                try:
                    with open(place, "rb") as file:
                        content = file.read()
                except OSError:
                    continue  # it has ended
                for form in forms:
                    self.assertNotIn(form, content, place)
            for form in forms:
                self.assertNotIn(form, output.encode())

    @whole
    def test_who_does_not_come_is_named_when_the_join_timeout_has_passed(self):
        text = self.ends(self.job(*self.ranks('[ "$rank" = 0 ] || exec sleep 6', 3)), 25)
        self.assertRegex(text, self.late)

    @whole
    def test_another_secret_is_refused(self):
        with open(f"{self.folder}/other", "wb") as file:
            file.write(os.urandom(32))
        os.chmod(f"{self.folder}/other", 0o600)
        text = self.ends(self.job(*self.ranks(
            f'[ "$rank" = 0 ] || secret={self.folder}/other')), 30)
        self.assertIn("does not hold this job's secret", text)

    @whole
    def test_without_a_secret_nothing_listens_beyond_loopback(self):
        if self.makes_secret:
            self.skipTest("telegrad-launch makes one for each job")
        process = self.job(TRAIN, *SHORT, "--bind", hosts.NETWORK)
        while process.poll() is None:
            self.assertEqual([each for each in hosts.listeners()
                              if each[1] not in ("127.0.0.1", "::1")], [])
        self.assertIn("--secret-file", self.ends(process, 30))
