"""For sbatch. Inside the job telegrad-launch reaches the nodes by srun."""
from .again import line


def text(options):
    rows = [f"--job-name={options.name}", f"--ntasks={options.workers or 1}"]
    if options.workers_per_host:
        rows.append(f"--ntasks-per-node={options.workers_per_host}")
    rows += ["--output=%x-%j.out",
             "--no-requeue", "--signal=B:TERM@30"]
    return ("#!/bin/bash\n"
            "# --restart of telegrad-launch knows when starting again may help, so there is no\n"
            "# requeue; half a minute before the time limit all is ended in order.\n"
            + "".join(f"#SBATCH {row}\n" for row in rows) + line(options))
