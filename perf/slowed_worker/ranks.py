"""Processes of this script as the ranks of a job, on this machine."""
import os
import socket
import subprocess
import sys


def run(arguments):
    """What each printed; `arguments` has for each rank those behind the script's own. They
    have torchrun's variables."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    common = dict(os.environ, WORLD_SIZE=str(len(arguments)), MASTER_ADDR="127.0.0.1",
                  MASTER_PORT=str(port), OMP_NUM_THREADS="1")
    ranks = [subprocess.Popen([sys.executable, *sys.argv, *more],
                              env=dict(common, RANK=str(rank), LOCAL_RANK=str(rank)),
                              stdout=subprocess.PIPE, text=True)
             for rank, more in enumerate(arguments)]
    texts = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        sys.exit("a rank failed")
    return texts
