"""Hosts by ssh. Keys, users and known hosts are as the user's configuration has them."""
import shlex

from ..errors import Refused


def prepare(options, environ):
    from ..options import need_tool
    need_tool("ssh", "it reaches the hosts; --cluster mpi needs none")


def shell_words(command):
    """ssh joins words by spaces and gives them to a shell there: the one place that quotes."""
    return " ".join(map(shlex.quote, command))


def ssh_words(options):
    words = ["ssh", "-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={options.connect_timeout}",
             "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4"]
    if options.ssh_port:
        words += ["-p", str(options.ssh_port)]
    return words


def reach(host, command, options):
    if host.startswith("-"):
        raise Refused(f"{host!r} is no host")
    return [*ssh_words(options), host.strip("[]"), shell_words(command)]
