"""The trainer under Slurm on two hosts: ranks of srun, and telegrad-launch in its jobs."""

import re
import shlex
import subprocess

import hosts
import slurm_cluster

hosts.enter(slurm_cluster.TOOLS)

from cluster_case import (ENDLESS, LAUNCH, SERVER, SHORT, TRAIN, ClusterCase,  # noqa: E402
                          main)
from common import Common  # noqa: E402

slurm_cluster.start_slurm()


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

    def submit(self, text, *options):
        with open(f"{self.folder}/job.sh", "w") as file:
            file.write(text)
        # --wait looks after 2, 8 and 32 seconds.
        wait = ('id=$(sbatch --parsable "$@") && echo job $id && '
                "while squeue -h -j $id | grep -q .; do sleep 0.2; done")
        process = self.start(["sh", "-c", wait, "sh", "-o", "out", *options, "job.sh"])
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


if __name__ == "__main__":
    main()
