"""Slurm's daemons: munged and slurmctld here, a slurmd on each host."""

import os
import shutil
import subprocess

import hosts

TOOLS = ["srun", "sbatch", "scancel", "scontrol", "slurmctld", "slurmd", "munged"]
CONFIGURATION = """\
ClusterName=test
SlurmctldHost=head
SlurmUser=root
AuthType=auth/munge
AuthInfo=cred_expire=10
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ReturnToService=2
StateSaveLocation=/run/ctld
SlurmdSpoolDir=/run/slurmd.%n
SlurmctldPidFile=/run/ctld.pid
SlurmdPidFile=/run/slurmd.%n.pid
SlurmctldLogFile=/run/ctld.log
SlurmdLogFile=/run/slurmd.%n.log
MpiDefault=none
TmpFS=/run/own
SchedulerParameters=bf_interval=1,sched_interval=5
KillWait=5
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
JobAcctGatherParams=OverMemoryKill
NodeName=n[1-2] CPUs=4 RealMemory=8000
PartitionName=main Nodes=n[1-2] Default=YES MaxTime=10 DefMemPerNode=1500 State=UP OverSubscribe=FORCE:4
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
