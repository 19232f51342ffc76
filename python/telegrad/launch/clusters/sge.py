"""Hosts of a parallel environment of Grid Engine, by qrsh -inherit."""
from ..errors import Refused
from .ssh import shell_words


def prepare(options, environ):
    from ..options import need_tool
    if not environ.get("PE_HOSTFILE"):
        raise Refused("--cluster sge runs inside a job with a parallel environment; "
                      "--print sge writes one for qsub")
    need_tool("qrsh", "--cluster sge reaches hosts by it")


def reach(host, command, options):
    # qrsh gives its words to a shell, too.
    return ["qrsh", "-inherit", host, shell_words(command)]
