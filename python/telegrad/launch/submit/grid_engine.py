"""For qsub. Inside the job telegrad-launch reaches the hosts by qrsh -inherit."""
from .again import line


def text(options):
    count = options.workers or 1
    return ("#!/bin/bash\n"
            f"#$ -N {options.name}\n"
            "# A parallel environment with control_slaves TRUE; qconf -spl lists those there are.\n"
            f"#$ -pe mpi {count}\n"
            "#$ -cwd\n#$ -j y\n#$ -r n\n" + line(options))
