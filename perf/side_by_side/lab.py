"""Hosts as network namespaces, each joined to one bridge by a shaped link.

Needs root, iproute2 and a kernel with veth, bridge and tbf.
"""
import os
import signal
import subprocess
import sys

MTU = 9000


def ip(*words, netns=None):
    prefix = ["ip", "-n", netns] if netns else ["ip"]
    subprocess.run([*prefix, *words], check=True)


def end_once(*_):
    """Ends as by an exception, which removes the hosts and what runs there."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


class Lab:
    """`num_hosts` namespaces; `rate` as tc takes it ("1gbit"), None: unshaped.

    Both ends of each link are shaped: what a host sends and what it receives.
    A burst is a credit of each iteration: at most 1 % of the payload.
    """

    def __init__(self, num_hosts, rate, burst):
        self.tag = f"tg{os.getpid()}"
        self.hosts = [f"{self.tag}h{i}" for i in range(num_hosts)]
        self.switch = f"{self.tag}s"
        self.rate = rate
        self.burst = burst
        self.made = []

    def __enter__(self):
        signal.signal(signal.SIGTERM, end_once)
        try:
            self._build()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_):
        self._remove()

    def address(self, host):
        return f"10.77.0.{host + 1}"

    def command(self, host, words):
        return ["ip", "netns", "exec", self.hosts[host], *words]

    def sent_bytes(self):
        """What all hosts have sent over their links so far."""
        return sum(self._counter(host, "tx_bytes")
                   for host in range(len(self.hosts)))

    def _counter(self, host, name):
        text = subprocess.run(
            self.command(host, ["cat", f"/sys/class/net/eth0/statistics/{name}"]),
            check=True, capture_output=True, text=True).stdout
        return int(text)

    def _build(self):
        for name in [self.switch, *self.hosts]:
            ip("netns", "add", name)
            self.made.append(name)
            ip("link", "set", "lo", "up", netns=name)
        ip("link", "add", "br0", "mtu", str(MTU), "type", "bridge",
           netns=self.switch)
        ip("link", "set", "br0", "up", netns=self.switch)
        for i, host in enumerate(self.hosts):
            ip("link", "add", "eth0", "mtu", str(MTU), "type", "veth", "peer",
               "name", f"p{i}", "mtu", str(MTU), "netns", self.switch,
               netns=host)
            ip("link", "set", f"p{i}", "master", "br0", "up",
               netns=self.switch)
            ip("addr", "add", f"{self.address(i)}/24", "dev", "eth0",
               netns=host)
            ip("link", "set", "eth0", "up", netns=host)
            self._shape(host, "eth0")
            self._shape(self.switch, f"p{i}")

    def _shape(self, netns, device):
        if self.rate is None:
            return
        subprocess.run(["tc", "-n", netns, "qdisc", "add", "dev", device,
                        "root", "tbf", "rate", self.rate, "burst", self.burst,
                        "latency", "50ms"], check=True)

    def _remove(self):
        for name in reversed(self.made):
            subprocess.run(["ip", "netns", "delete", name], check=False)
        self.made = []
