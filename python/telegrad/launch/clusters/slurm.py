"""Nodes by srun, a step for each; outside of an allocation salloc makes one first."""
import os
import sys


def prepare(options, environ):
    from ..options import need_tool
    need_tool("srun", "--cluster slurm reaches nodes by it; --print slurm writes a file for sbatch")
    if environ.get("SLURM_JOB_ID"):
        return
    need_tool("salloc", "it asks Slurm for nodes")
    words = ["salloc", f"--ntasks={options.workers or 1}", f"--job-name={options.name}"]
    if options.workers_per_host:
        words.append(f"--ntasks-per-node={options.workers_per_host}")
    again = [*words, sys.executable, *options.this_command]
    if options.dry_run:
        from ..clusters.ssh import shell_words
        print(shell_words(again))
        sys.exit(0)
    os.execvp("salloc", again)


def reach(host, command, options):
    return ["srun", "--nodes=1", "--ntasks=1", f"--nodelist={host}", "--overlap", "--quiet",
            "--unbuffered", "--mpi=none", "--cpu-bind=none", "--export=ALL", *command]
