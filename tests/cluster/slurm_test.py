"""The trainer under Slurm on two hosts: ranks of srun, and telegrad-launch in its jobs."""

import glob
import os
import re
import shlex
import signal
import subprocess

import hosts
import slurm_cluster

hosts.enter(slurm_cluster.TOOLS)

import page  # noqa: E402
from cluster_case import (ENDLESS, LAUNCH, SERVER, SHORT, TRAIN, ClusterCase,  # noqa: E402
                          main, processes)
from common import Common  # noqa: E402

slurm_cluster.start_slurm()
# sbatch --wait looks after 2, 8 and 32 seconds.
WAIT = "while squeue -h | grep -q .; do sleep 0.2; done"


class SlurmCase(ClusterCase):
    @staticmethod
    def job_of(text):
        """What scontrol knows of the job that srun or sbatch has named."""
        number = re.search(r"[jJ]ob (\d+)", text)[1]
        shown = subprocess.run(["scontrol", "show", "job", number], check=True, text=True,
                               stdout=subprocess.PIPE).stdout
        return dict(re.findall(r"(\w+)=(\S+)", shown))

    def messages(self, process):
        return self.output(process)

    def recorded(self, process):
        code, number = self.job_of(self.messages(process))["ExitCode"].split(":")
        return 128 + int(number) if int(number) else int(code)

    def cancel(self, process):
        hosts.run("scancel", "--user=root")


class Srun(SlurmCase, Common):
    """A rank for each task."""

    killed, makes_secret = 128 + 9, False

    def setUp(self):
        super().setUp()
        self.flags = self.far

    def job(self, *words, mpi="none", ranks=2):
        # -Q would hide the number of the job.
        return self.start(["srun", "-v", f"--mpi={mpi}", "-N2", f"-n{ranks}",
                           "--distribution=cyclic", *words])

    def messages(self, process):
        return re.search("srun: jobid .*", self.output(process))[0].replace("jobid", "job")

    def test_pmix_gives_what_one_host_gives(self):
        found = subprocess.run(["srun", "--mpi=list"], capture_output=True, text=True)
        if "pmix" not in found.stdout + found.stderr:
            self.skipTest("this Slurm has no plug-in for PMIx")
        self.ends(self.job(TRAIN, *SHORT, *self.far, "--out", "s", mpi="pmix"), 0)
        self.assert_same_weights("s")

    def test_the_last_rank_may_be_a_server_that_is_no_trainer(self):
        flags = shlex.join([*self.far, "--servers", "1"])
        script = f"{self.folder}/rank.sh"
        with open(script, "w") as file:
            file.write(f"if [ $SLURM_PROCID = 2 ]; then exec {SERVER} {flags}; "
                       f"fi\nexec {TRAIN} {' '.join(SHORT)} {flags} --out s\n")
        self.ends(self.job("sh", script, ranks=3), 0)
        self.assert_same_weights("s", 1)

    def test_scancel_ends_every_rank_as_cancelled(self):
        process = self.job(TRAIN, *ENDLESS, *self.far)
        self.wait_for_training(process)
        self.cancel(process)
        text = self.end(process, None)
        lines = self.fatal_lines(text)
        self.assertTrue(lines, text)
        self.assertEqual({line["reason"] for line in lines}, {"cancelled"}, text)

    def test_without_bind_each_rank_says_which_flags_help(self):
        text = self.end(self.job(TRAIN, *SHORT), None, seconds=40)
        self.assertEqual(text.count("--bind auto"), 2, text)


class Sbatch(SlurmCase, Common):
    """What telegrad-launch prints for sbatch."""

    def submit(self, text):
        with open(f"{self.folder}/job.sh", "w") as file:
            file.write(text)
        process = self.start(["sh", "-ec", "sbatch -o out job.sh\n" + WAIT])
        process.messages, process.log = process.log, f"{self.folder}/out"
        open(process.log, "a").close()
        return process

    def printed(self, *words):
        return subprocess.run([*LAUNCH, "--print", "slurm", "-n", "2", "--workers-per-host", "1",
                               "--", *words], stdout=subprocess.PIPE, check=True, text=True,
                              cwd=self.folder).stdout

    def job(self, *words):
        return self.submit(self.printed(*words))

    def messages(self, process):
        with open(process.messages) as file:
            return file.read()

    def test_an_allocation_tells_its_nodes(self):
        for servers in (0, 1):
            process = self.start(["salloc", "-Q", "-N2", "-n2", "--ntasks-per-node=1", *LAUNCH,
                                  "-s", str(servers), "--", TRAIN, *SHORT, "--out",
                                  f"s{servers}"])
            self.assertIn("[worker 0@n1]", self.end(process, 0))
            self.assert_same_weights(f"s{servers}", servers or 2)
        self.assert_all_gone()

    def test_the_launcher_asks_for_an_allocation(self):
        process = self.start([*LAUNCH, "--cluster", "slurm", "-n", "2", "--workers-per-host", "1",
                              "--", TRAIN, *SHORT, "--out", "s"])
        self.end(process, 0)
        self.assert_same_weights("s")


class Page(SlurmCase):
    """docs/deploy/slurm.md."""

    def follow(self, heading, change=lambda text: text, **more):
        """A process that types what the page says, and waits for the jobs."""
        commands = page.follow(self, "slurm", heading, change)
        return self.start(["sh", "-ec", f"\n{WAIT}\n".join([*commands, ""])], **more)

    def text(self, name):
        (path,) = glob.glob(f"{self.folder}/{name}")
        with open(path) as file:
            return file.read()

    def test_the_smallest_example(self):
        process = self.follow("Smallest")
        self.assertIn("[worker 0@n1]", self.end(process, 0))
        self.assertIn("test accuracy", self.text("telegrad-*.out"))

    def test_after_a_death_the_real_job_is_requeued_and_goes_on(self):
        process = self.follow("A real job", lambda text: text.replace("epochs 20", "epochs 10"))
        train = f"{self.folder}/train.out"
        hosts.wait_until(lambda: os.path.exists(train) and "Epoch[3]" in self.text("train.out"),
                         90, "three epochs")
        os.kill(self.member("worker 1"), signal.SIGKILL)
        job = self.job_of(self.end(process, 0))
        self.assertEqual((job["JobState"], job["Restarts"]), ("COMPLETED", "1"))
        before, after = self.text("train.out").split("the job ended with 20 (peer_died)")
        self.assertIn("Epoch[0]", before)
        self.assertNotIn("Epoch[0]", after)
        self.assertIn("test accuracy", after)

    def test_after_a_mismatch_it_is_not_requeued(self):
        os.makedirs(f"{self.folder}/bin")
        with open(f"{self.folder}/bin/telegrad-launch", "w") as file:
            file.write("#!/bin/sh\nexit 31\n")
        os.chmod(f"{self.folder}/bin/telegrad-launch", 0o755)
        path = f"{self.folder}/bin:{os.environ['PATH']}"
        process = self.follow("A real job", env={**os.environ, "PATH": path})
        job = self.job_of(self.end(process, 0))
        self.assertEqual((job["ExitCode"], job["Restarts"]), ("31:0", "0"))

    def test_the_time_limit_ends_jobs_and_the_signal_before_it_in_order(self):
        # A minute is the least; Slurm looks twice in it.
        signalled = self.follow("A real job", lambda text: text.replace("--time=10", "--time=1")
                                .replace("TERM@30", "TERM@55").replace("epochs 20", "epochs 20000"))
        with open(f"{self.folder}/limit.sh", "w") as file:
            words = shlex.join([TRAIN, *ENDLESS, *self.far, "--out", "limit"])
            file.write(f"#!/bin/sh\nexec srun -N2 -n2 {words}\n")
        limited = self.start(["sh", "-ec", "sbatch -N2 -o limit.out limit.sh\n" + WAIT])
        hosts.wait_until(lambda: "Submitted" in self.output(limited), 10, "sbatch")
        number = re.search(r"job (\d+)", self.output(limited))[1]
        hosts.wait_until(lambda: len(processes()) >= 4, 20, "both jobs")
        hosts.run("scontrol", "update", f"job={number}", "EndTime=now+5")
        self.assertEqual(self.job_of(self.end(signalled, 0))["ExitCode"], "143:0")
        self.assertIn("telegrad-launch: ended by SIGTERM", self.text("train.out"))
        self.assertEqual(self.job_of(self.end(limited, 0))["JobState"], "TIMEOUT")
        self.assertIn("DUE TO TIME LIMIT", self.text("limit.out"))
        self.assert_all_gone(5)

    def test_the_memory_limit_is_named(self):
        process = self.start(["srun", "-N1", "-n1", "--mem=60", TRAIN, *ENDLESS])
        self.assertIn("exceeded memory limit", self.end(process, 137))
        self.assert_all_gone(5)

    def test_ranks_of_srun(self):
        self.assertIn("test accuracy", self.end(self.follow("Ranks of srun"), 0))

    def test_servers_have_nodes_of_their_own_in_a_heterogeneous_job(self):
        text = self.end(self.follow("Servers on nodes of their own"), 0)
        self.assertIn("2 workers, 1 server", text)

    def test_tasks_of_an_array_are_jobs(self):
        self.end(self.follow("Arrays"), 0)
        for task in ("0", "1"):
            self.assertIn("test accuracy", self.text(f"array-{task}.out"))
            self.assertTrue(os.path.exists(f"{self.folder}/run-{task}/summary.json"))


if __name__ == "__main__":
    main()
