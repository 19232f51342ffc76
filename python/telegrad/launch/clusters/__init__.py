"""Kinds of clusters: how a host of each is reached.

A kind is a module. `reach(host, command, options)` gives the words that run the command on
the host with this process's standard streams; `prepare(options, environ)`, where it has one,
looks whether that can be, or takes the place of this process. One that starts no agents has
`start(options)` instead.
"""
from . import kubernetes, local, mpi, sge, slurm, ssh

KINDS = {"local": local, "ssh": ssh, "hostfile": ssh, "mpi": mpi, "slurm": slurm, "sge": sge,
         "kubernetes": kubernetes}
