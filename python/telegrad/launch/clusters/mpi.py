"""Hosts by Open MPI's mpirun, one for each host: it reaches them as the site has set it up."""
import os


def prepare(options, environ):
    from ..options import need_tool
    need_tool("mpirun", "--cluster mpi reaches hosts by it")


def reach(host, command, options):
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return ["mpirun", *root, "--host", host, "-np", "1", "--bind-to", "none", *command]
