"""Grid Engine's daemons: the master here, an execution daemon on each host."""

import os
import shutil
import subprocess

import hosts

TOOLS = ["qsub", "qconf", "qacct", "sge_qmaster", "sge_execd"]
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
accounting_summary TRUE
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
    os.environ["PATH"] = "/run/bin:/usr/bin:/bin:/usr/sbin:/sbin"  # what every user can read
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
    with open(f"{LIBRARY}/default/common/sge_request", "w") as file:
        file.write(f"-v PATH,{','.join(ENVIRONMENT)}\n")
    queue = changed("queue", ("-sq",), qname="main.q", hostlist="n1 n2", pe_list="mpi", slots="2",
                    shell_start_mode="unix_behavior", load_thresholds="NONE", tmpdir=hosts.TEMPORARY)
    qconf("-Aq", queue)
    qconf("-Mconf", changed("global", ("-sconf",), reporting_params="accounting=true "
                            "reporting=false flush_time=00:00:01 accounting_flush_time=00:00:00"))
    qconf("-Msconf", changed("scheduler", ("-ssconf",), schedule_interval="0:0:1",
                             flush_submit_sec="1"))
