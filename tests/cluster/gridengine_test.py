"""telegrad-launch in a parallel environment of a real Grid Engine on two hosts."""

import os
import shutil
import signal
import subprocess
import unittest

import hosts

hosts.enter(["qsub", "qconf", "sge_qmaster", "sge_execd"])

from cluster_case import (ENDLESS, LAUNCH, SHORT, TRAIN,  # noqa: E402
                          ClusterCase, processes)

LIBRARY = "/var/lib/gridengine"
SCRIPTS = "/usr/share/gridengine/scripts"
USER, GROUP = 4711, 65534  # jobs of root are refused
ENVIRONMENT = {"SGE_ROOT": LIBRARY, "SGE_CELL": "default", "SGE_QMASTER_PORT": "6444",
               "SGE_EXECD_PORT": "6445", "SGE_ND": "1"}
PARALLEL = """\
pe_name            mpi
slots              16
user_lists         NONE
xuser_lists        NONE
start_proc_args    NONE
stop_proc_args     NONE
allocation_rule    1
control_slaves     TRUE
job_is_first_task  FALSE
urgency_slots      min
accounting_summary FALSE
qsort_args         NONE
"""


def private(folder, owner):
    """What is there, to be changed by nobody else."""
    kept = f"/run/kept{folder.replace('/', '-')}"
    shutil.copytree(folder, kept, symlinks=True)
    hosts.run("mount", "-t", "tmpfs", "tmpfs", folder)
    shutil.copytree(kept, folder, symlinks=True, dirs_exist_ok=True)
    hosts.run("chown", "-R", f"{owner}:", folder)


def qconf(*words, quiet=True):
    return subprocess.run(["qconf", *words], capture_output=quiet, text=True)


def changed(name, kind, **values):
    """A configuration of qconf's with other values, as a file."""
    text = qconf(*kind).stdout
    lines = [line for line in text.splitlines() if line.split(" ")[0] not in values]
    path = f"/run/{name}"
    with open(path, "w") as file:
        file.write("\n".join(lines + [f"{key} {value}" for key, value in values.items()]) + "\n")
    return path


def start_grid_engine():
    os.environ.update(ENVIRONMENT)
    shutil.copy("/etc/passwd", "/run/passwd")
    with open("/run/passwd", "a") as file:
        file.write(f"tester:x:{USER}:{GROUP}::/run:/bin/sh\n")
    hosts.run("mount", "--bind", "/run/passwd", "/etc/passwd")
    for folder in ("/var/spool/gridengine", f"{LIBRARY}/default"):
        private(folder, "sgeadmin")
    shutil.rmtree("/var/spool/gridengine/spooldb", ignore_errors=True)
    os.makedirs("/var/spool/gridengine/spooldb")
    os.makedirs("/run/gridengine")
    hosts.run("chown", "sgeadmin:", "/var/spool/gridengine/spooldb", "/run/gridengine")
    if os.path.exists(f"{LIBRARY}/default/common/act_qmaster"):
        os.remove(f"{LIBRARY}/default/common/act_qmaster")
    hosts.run("setpriv", "--reuid", "sgeadmin", "--regid", "sgeadmin", "--clear-groups",
              f"{SCRIPTS}/init_cluster", LIBRARY, "default", "/var/spool/gridengine/spooldb",
              "root", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    subprocess.Popen([shutil.which("sge_qmaster")], stdin=subprocess.DEVNULL,
                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    hosts.wait_until(lambda: qconf("-sh").returncode == 0, 20, "sge_qmaster")
    qconf("-am", "sgeadmin")
    for words in (("-ah", "head"), ("-as", "head"), ("-ah", "n1,n2")):
        qconf(*words)
    for name in hosts.NAMES:
        hosts.start_on(name, shutil.which("sge_execd"), f"/run/execd-{name}.log")
    with open("/run/parallel", "w") as file:
        file.write(PARALLEL)
    qconf("-Ap", "/run/parallel")
    hosts.wait_until(lambda: all(name in qconf("-sel").stdout for name in hosts.NAMES), 20,
                     "execution hosts")
    qconf("-dq", "main.q")
    queue = changed("queue", ("-sq",), qname="main.q", hostlist="n1 n2", pe_list="mpi", slots="2",
                    shell_start_mode="unix_behavior", load_thresholds="NONE", tmpdir="/tmp")
    qconf("-Aq", queue)
    qconf("-Msconf", changed("scheduler", ("-ssconf",), schedule_interval="0:0:1",
                             flush_submit_sec="1"))


start_grid_engine()


class GridEngine(ClusterCase):
    def submit(self, *words):
        """A process that ends with the job, and with its exit code."""
        program = f"{self.folder}/telegrad-launch"
        with open(program, "w") as file:
            # Not that of this process, which may be root's alone.
            file.write(f"#!/bin/sh\nexec /usr/bin/python3 {' '.join(LAUNCH[1:])} \"$@\"\n")
        os.chmod(program, 0o755)
        printed = subprocess.run([*LAUNCH, "--print", "sge", *words], stdout=subprocess.PIPE,
                                 check=True, cwd=self.folder, text=True).stdout
        with open(f"{self.folder}/job.sh", "w") as file:
            file.write(printed)
        hosts.run("chown", "-R", f"{USER}:{GROUP}", self.folder)
        settings = ",".join(f"{name}={value}" for name, value in ENVIRONMENT.items())
        process = self.start(
            ["setpriv", "--reuid", str(USER), "--regid", str(GROUP),
             "--clear-groups", "qsub", "-sync", "y", "-o", "out", "-v",
             f"PATH={self.folder}:/usr/bin:/bin:{os.path.dirname(shutil.which('qrsh'))},{settings}", "job.sh"])
        process.log = f"{self.folder}/out"
        open(process.log, "w").close()
        os.chmod(process.log, 0o666)
        return process

    def test_a_printed_file_is_one_for_qsub(self):
        for servers in (0, 1):
            process = self.submit("-n", "2", "-s", str(servers), "--", TRAIN, *SHORT, "--out",
                                  f"s{servers}")
            self.assertIn("[worker 0@n", self.end(process, 0))
            self.assertEqual(self.hash_of(f"s{servers}"), self.expected_hash(servers or 2))
        self.assert_all_gone()

    def test_a_killed_worker_gives_the_job_its_exit_code(self):
        process = self.submit("-n", "2", "--", TRAIN, *ENDLESS)
        self.wait_for_training(process)
        os.kill(self.member("worker 1"), signal.SIGKILL)
        self.assertIn("was killed by 137 (SIGKILL)", self.end(process, 20, seconds=30))
        self.assert_all_gone()

    def test_qdel_ends_all(self):
        process = self.submit("-n", "2", "--", TRAIN, *ENDLESS)
        self.wait_for_training(process)
        subprocess.run(["qdel", "-u", "tester"], check=True, capture_output=True)
        hosts.wait_until(lambda: not processes(), 10, "all processes gone")


if __name__ == "__main__":
    unittest.main(verbosity=2)
