"""The trainer under a real srun on two hosts, plain and with PMIx."""

import os
import shutil
import signal
import subprocess
import unittest

import hosts

hosts.enter(["srun", "scancel", "slurmctld", "slurmd", "munged"])

from cluster_case import (ENDLESS, LAUNCH, SERVER, SHORT, TRAIN,  # noqa: E402
                          ClusterCase)

CONFIGURATION = """\
ClusterName=test
SlurmctldHost=head
SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
StateSaveLocation=/run/ctld
SlurmdSpoolDir=/run/slurmd.%n
SlurmctldPidFile=/run/ctld.pid
SlurmdPidFile=/run/slurmd.%n.pid
SlurmctldLogFile=/run/ctld.log
SlurmdLogFile=/run/slurmd.%n.log
MpiDefault=none
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
NodeName=n[1-2] CPUs=4 RealMemory=1000
PartitionName=main Nodes=n[1-2] Default=YES MaxTime=10 State=UP OverSubscribe=FORCE:4
"""


def daemon(*command):
    subprocess.Popen(command, stdin=subprocess.DEVNULL,
                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def start_slurm():
    os.makedirs("/run/munge")
    os.makedirs("/run/ctld")
    with open("/run/munge/key", "wb") as file:
        file.write(os.urandom(1024))
    os.chmod("/run/munge/key", 0o400)
    daemon(shutil.which("munged"), "--foreground", "--force",
           "--key-file=/run/munge/key", "--log-file=/run/munge/log",
           "--pid-file=/run/munge/pid", "--seed-file=/run/munge/seed")
    hosts.wait_until(lambda: os.path.exists("/run/munge/munge.socket.2"), 10,
                     "munged")
    with open("/run/slurm.conf", "w") as file:
        file.write(CONFIGURATION)
    os.environ["SLURM_CONF"] = "/run/slurm.conf"
    daemon(shutil.which("slurmctld"), "-D")
    for name in hosts.NAMES:
        hosts.start_on(name, f"{shutil.which('slurmd')} -D -N {name}",
                       f"/run/slurmd-{name}.out")
    hosts.wait_until(
        lambda: subprocess.run(["srun", "--immediate=1", "-N2", "true"],
                               capture_output=True).returncode == 0, 40,
        "a first srun")


start_slurm()


class Slurm(ClusterCase):
    def srun(self, args, ranks=2, mpi="none"):
        return self.start(["srun", f"--mpi={mpi}", "-N2", f"-n{ranks}",
                           "--distribution=cyclic", *args])

    def need_pmix(self):
        found = subprocess.run(["srun", "--mpi=list"], capture_output=True,
                               text=True)
        if "pmix" not in found.stdout + found.stderr:
            self.skipTest("this Slurm has no plug-in for PMIx")

    def test_plain_srun_gives_what_one_host_gives(self):
        self.end(self.srun([TRAIN, *SHORT, *self.far, "--out", "s"]), 0)
        self.assertEqual(self.hash_of("s"), self.expected_hash(2))
        self.assert_all_gone()

    def test_srun_with_pmix_gives_what_one_host_gives(self):
        self.need_pmix()
        self.end(self.srun([TRAIN, *SHORT, *self.far, "--out", "s"],
                           mpi="pmix"), 0)
        self.assertEqual(self.hash_of("s"), self.expected_hash(2))

    def test_the_last_rank_may_be_a_server_that_is_no_trainer(self):
        flags = " ".join([*self.far, "--servers", "1"])
        script = f"{self.folder}/rank.sh"
        with open(script, "w") as file:
            file.write(f"if [ $SLURM_PROCID = 2 ]; then exec {SERVER} {flags}; "
                       f"fi\nexec {TRAIN} {' '.join(SHORT)} {flags} --out s\n")
        self.end(self.srun(["sh", script], ranks=3), 0)
        self.assertEqual(self.hash_of("s"), self.expected_hash(1))

    def test_a_killed_worker_is_named(self):
        process = self.srun([TRAIN, *ENDLESS, *self.far])
        self.wait_for_training(process)
        os.kill(self.member("worker 1"), signal.SIGKILL)
        text = self.end(process, None)
        lines = self.fatal_lines(text)
        self.assertEqual([line["code"] for line in lines], [20], text)
        self.assertRegex(lines[0]["dead"][0], "(worker|server)/1@n2")
        self.assert_all_gone()

    def test_scancel_ends_every_rank_as_cancelled(self):
        process = self.srun([TRAIN, *ENDLESS, *self.far])
        self.wait_for_training(process)
        subprocess.run(["scancel", "--user=root"], check=True)
        text = self.end(process, None)
        lines = self.fatal_lines(text)
        self.assertTrue(lines, text)
        self.assertEqual({line["reason"] for line in lines}, {"cancelled"},
                         text)
        self.assert_all_gone()

    def test_without_bind_each_rank_says_which_flags_help(self):
        text = self.end(self.srun([TRAIN, *SHORT]), None, seconds=40)
        self.assertEqual(text.count("--bind auto"), 2, text)

    def test_the_launcher_finds_the_nodes_of_its_allocation(self):
        for servers in (0, 1):
            process = self.start(["salloc", "-Q", "-N2", "-n2", "--ntasks-per-node=1", *LAUNCH,
                                  "-s", str(servers), "--", TRAIN, *SHORT, "--out",
                                  f"s{servers}"])
            text = self.end(process, 0)
            self.assertIn("[worker 0@n1]", text)
            self.assertEqual(self.hash_of(f"s{servers}"), self.expected_hash(servers or 2))
        self.assert_all_gone()

    def test_the_launcher_asks_for_an_allocation(self):
        process = self.start([*LAUNCH, "--cluster", "slurm", "-n", "2", "--workers-per-host", "1",
                              "--", TRAIN, *SHORT, "--out", "s"])
        self.end(process, 0)
        self.assertEqual(self.hash_of("s"), self.expected_hash(2))

    def test_a_printed_file_is_one_for_sbatch(self):
        program = f"{self.folder}/telegrad-launch"
        with open(program, "w") as file:
            file.write(f"#!/bin/sh\nexec {' '.join(LAUNCH)} \"$@\"\n")
        os.chmod(program, 0o755)
        printed = subprocess.run(
            [*LAUNCH, "--print", "slurm", "-n", "2", "--workers-per-host", "1", "--", TRAIN,
             *SHORT, "--out", "s"], stdout=subprocess.PIPE, check=True, cwd=self.folder).stdout
        with open(f"{self.folder}/job.sh", "wb") as file:
            file.write(printed)
        self.end(self.start(["sbatch", "--wait", "-o", "out", "job.sh"], env={
            **os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"}), 0)
        self.assertEqual(self.hash_of("s"), self.expected_hash(2))

    def test_a_worker_killed_under_the_launcher_is_named(self):
        process = self.start(["salloc", "-Q", "-N2", "-n2", *LAUNCH, "--", TRAIN, *ENDLESS])
        self.wait_for_training(process)
        os.kill(self.member("worker 1"), signal.SIGKILL)
        self.assertIn("worker 1@n2 was killed by 137 (SIGKILL)", self.end(process, 20, 20))
        self.assert_all_gone()

    def test_scancel_ends_what_the_launcher_has_started(self):
        process = self.start(["salloc", "-Q", "-N2", "-n2", *LAUNCH, "--", TRAIN, *ENDLESS])
        self.wait_for_training(process)
        subprocess.run(["scancel", "--user=root"], check=True)
        self.end(process, None, seconds=20)
        self.assert_all_gone()


if __name__ == "__main__":
    unittest.main(verbosity=2)
