"""Two emulated hosts, 10.77.0.1 and 10.77.0.2 (fd77::1, fd77::2), each a network
namespace with an /etc/hosts and a host name of its own. Neither has a default route."""

import os
import subprocess
import tempfile

ADDRESSES = ("10.77.0.1", "10.77.0.2")
# Binds the file of hosts, sets the name; both end with the command.
_ENTER = ('hostname "$1"; mount --make-rprivate /; mount --bind "$2" /etc/hosts; '
          'shift 2; exec "$@"')


def why_not():
    """A reason why this machine cannot have them; empty: it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"tgprobe{os.getpid()}"
    try:
        made = subprocess.run(["ip", "netns", "add", name], capture_output=True)
        if made.returncode != 0:
            return f"ip netns add: {made.stderr.decode().strip()}"
        subprocess.run(["ip", "netns", "del", name], check=True)
    except OSError as why:
        return f"ip: {why}"
    return ""


class TwoHosts:
    def __init__(self, hosts, names=("na", "nb"), v4=True):
        """`hosts`: the text of each one's /etc/hosts."""
        self._folder = tempfile.TemporaryDirectory()
        self._names = names
        self._spaces = [f"tg{os.getpid()}{letter}" for letter in "ab"]
        self.files = [os.path.join(self._folder.name, f"hosts{i}") for i in range(2)]
        for file, text in zip(self.files, hosts):
            with open(file, "w") as out:
                out.write(text)
        for space in self._spaces:
            self._ip("netns", "add", space)
        self._ip("link", "add", "v0", "netns", self._spaces[0], "type", "veth",
                 "peer", "name", "v1", "netns", self._spaces[1])
        for i, space in enumerate(self._spaces):
            self._ip("-n", space, "link", "set", "lo", "up")
            self._ip("-n", space, "link", "set", f"v{i}", "up")
            if v4:
                self._ip("-n", space, "addr", "add", f"{ADDRESSES[i]}/24", "dev", f"v{i}")
            self._ip("-n", space, "addr", "add", f"fd77::{i + 1}/64", "dev", f"v{i}",
                     "nodad")

    @staticmethod
    def _ip(*words):
        subprocess.run(["ip", *words], check=True)

    def on(self, host, command):
        """The command as it runs on that host; its process is that of the command."""
        return ["ip", "netns", "exec", self._spaces[host], "unshare", "-u", "-m", "sh",
                "-c", _ENTER, "sh", self._names[host], self.files[host], *command]

    def close(self):
        for space in self._spaces:
            subprocess.run(["ip", "netns", "del", space], check=False)
        self._spaces = []
        self._folder.cleanup()
